# Prints a C program of so many functions, always the same for a seed: program.pl FUNCTIONS [SEED]
use strict;
use integer;

my $state = $ARGV[1] // 1;

sub below {
    my ($limit) = @_;
    $state = ($state * 1103515245 + 12345) & 0x7fffffff;
    return ($state >> 8) % $limit;
}

my $functions = shift // 1000;
print "struct node { struct node *next; long key; double value; char name[24]; };\n";
print "extern long table[4096];\nextern int print(const char *, ...);\n";
for my $number (0 .. $functions - 1) {
    my ($a, $b, $c) = map { 1 + below(1000) } 1 .. 3;
    print "static long f$number(struct node *node, long x, long y) {\n    long sum = $a;\n";
    for my $part (0 .. 2 + below(4)) {
        my $kind = below(5);
        my $k = 1 + below(60);
        if ($kind == 0) {
            print "    for (long i = 0; i < x; i++)\n        sum += table[(i * $k + y) & 4095] ^ (sum << ", 1 + below(7), ");\n";
        } elsif ($kind == 1) {
            print "    switch ((x + sum) % ", 4 + below(9), ") {\n";
            print "    case $_: sum = sum * ", 1 + below(99), " + y / ", 1 + below(9), "; break;\n" for 0 .. 3;
            print "    default: sum ^= $b;\n    }\n";
        } elsif ($kind == 2) {
            print "    while (node && node->key < $k * sum) {\n        node->value *= 1.$k;\n        sum += node->name[$part];\n",
                "        node = node->next;\n    }\n";
        } elsif ($kind == 3 && $number) {
            print "    if (x > $k)\n        sum += f", below($number), "(node, x - 1, y ^ $c);\n";
        } else {
            print "    table[$k] += sum > y ? x * $b : print(\"%ld of f$number\", sum);\n";
        }
    }
    print "    return sum;\n}\n";
}
print "long all(struct node *node, long x) {\n    long sum = 0;\n";
print "    sum += f$_(node, x, sum);\n" for 0 .. $functions - 1;
print "    return sum;\n}\n";
