/* Fills memory, then reads bytes of it at random, with a few accesses to the stack around each: 33 regions of
 * 2 MB for 64 MB, one more than most caches of page-table entries hold. For `make coverage`. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words) {
    size_t bytes = (size_t)(count > 1 ? atoi(words[1]) : 64) << 20;
    int reads = count > 2 ? atoi(words[2]) : 600000;
    unsigned char *memory = malloc(bytes);
    volatile uint32_t stack[8] = {0};
    uint32_t place = 88172645, sum = 0;
    if (!memory)
        return 1;
    memset(memory, 1, bytes);
    for (int number = 0; number < reads; number++) {
        place ^= place << 13;
        place ^= place >> 17;
        place ^= place << 5;
        stack[number & 7] += memory[place % bytes];
        stack[(number + 3) & 7] ^= place;
        sum += stack[(number * 5) & 7];
    }
    printf("%u\n", sum);
    return 0;
}
