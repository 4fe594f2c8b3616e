/* What programs with threads begin and end with: PROGRAM THREADS REPEATS starts each with its number. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static long repeats;

/* Runs the threads from number `first` on and prints the sum of what they return. Returns the exit status. */
static int run(int count, char **words, long first, void *(*work)(void *))
{
    int threads = count == 3 ? atoi(words[1]) : 0;
    pthread_t all[64];
    uint64_t sum = 0;
    if (threads < 1 || threads > 64)
        return 2;
    repeats = atol(words[2]);
    for (long number = 0; number < threads; number++)
        pthread_create(&all[number], 0, work, (void *)(first + number));
    for (int number = 0; number < threads; number++) {
        void *found;
        pthread_join(all[number], &found);
        sum += (uint64_t)found;
    }
    printf("%lu\n", sum);
    return 0;
}
