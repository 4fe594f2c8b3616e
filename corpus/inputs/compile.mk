# Compiles every C file here by a shell that says so, and links them into one object.
all.o: $(patsubst %.c,%.o,$(wildcard *.c))
	tcc -r -o $@ $^

%.o: %.c
	@echo "CC $<"; tcc -c -o $@ $<
