/*
 * Threads unlike each other, each in 24 MB of its own: reads at random, in strides, near and far, and sorts of
 * pieces: mw THREADS STEPS (cc -O2 -pthread mw.c -o mw)
 */
#include "threads.h"

static int compare(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

static void *work(void *argument)
{
    long kind = (long)argument;
    uint64_t state = (kind + 1) * 0x9e3779b97f4a7c15ull, sum = 0;
    size_t bytes = 24u << 20;
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < bytes; at += 64)
        memory[at] = at >> 6;
    for (long step = 0; step < repeats; step++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        switch (kind % 4) {
        case 0:
            sum += memory[state % bytes];
            break;
        case 1:
            sum += memory[step * 4160 % bytes];
            break;
        case 2:
            sum += memory[state % 8 ? state % (64 << 10) : state % bytes];
            break;
        default:
            if (step % 4096 == 0) {
                uint32_t *piece = (uint32_t *)(memory + state % (bytes - (64 << 10)) / 64 * 64);
                for (int at = 0; at < 4096; at++)
                    piece[at] ^= state >> at % 40;
                qsort(piece, 4096, sizeof *piece, compare);
            }
        }
    }
    return (void *)sum;
}

int main(int count, char **words)
{
    return run(count, words, 0, work);
}
