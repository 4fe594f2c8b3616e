/* Threads that each read 16 MB of their own at random: mt THREADS READS (cc -O2 -pthread mt.c -o mt) */
#include "threads.h"

static void *work(void *number)
{
    uint64_t state = (uint64_t)(uintptr_t)number * 0x9e3779b97f4a7c15ull + 1, sum = 0;
    size_t bytes = 16u << 20;
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < bytes; at += 4096)
        memory[at] = 1;
    for (long read = 0; read < repeats; read++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        sum += memory[state % bytes];
    }
    return (void *)sum;
}

int main(int count, char **words)
{
    return run(count, words, 1, work);
}
