# Starts a small program again and again, after each page of the files was read: sh exec.sh TIMES FILE...
times=$1
shift
./touch "$@"
n=0
while [ "$n" -lt "$times" ]; do
    /bin/true
    n=$((n + 1))
done
