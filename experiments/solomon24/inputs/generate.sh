#!/bin/sh
# Writes a C program with so many functions, each with loops, arithmetic and calls of earlier ones: sh generate.sh FUNCTIONS
awk -v functions="${1:-400}" 'BEGIN {
    seed = 1
    print "#include <stdint.h>"
    print "static uint64_t table[4096];"
    for (f = 0; f < functions; f++) {
        printf "uint64_t function_%d(uint64_t a, uint64_t b)\n{\n    uint64_t sum = a;\n", f
        for (s = 0; s < 12; s++) {
            seed = (seed * 16807) % 2147483647
            kind = seed % 4
            constant = 1 + seed % 4093
            if (kind == 0) printf "    for (uint64_t i = 0; i < (b & 63); i++) sum += table[(i * %d + sum) & 4095] ^ (i << %d);\n", constant, 1 + seed % 13
            if (kind == 1) printf "    if (sum %% %d == %d) { sum ^= b * %d; table[sum & 4095] = a; } else { sum += a >> %d; }\n", constant + 7, seed % 7, constant, 1 + seed % 31
            if (kind == 2) printf "    switch (sum & 3) { case 0: sum += %d; break; case 1: sum *= %d; break; case 2: sum -= b; break; default: sum = ~sum; }\n", constant, constant * 2 + 1
            if (kind == 3 && f > 0) printf "    sum += function_%d(sum, b - %d);\n", seed % f, constant
        }
        print "    return sum;\n}"
    }
    print "int main(void)\n{\n    uint64_t sum = 0;"
    printf "    for (int i = 0; i < 8; i++) sum += function_%d(i, sum & 3);\n", functions > 2 ? 2 : 0
    print "    return (int)(sum & 127);\n}"
}'
