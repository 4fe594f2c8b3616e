// One program for the system calls that a recording must follow; the first argument says which.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif

enum { PAGE = 4096 };

static void mappings(const char *file) {
    char *area = mmap(0, 100 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mmap(area + 10 * PAGE, 20 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memset(area + 10 * PAGE, 1, 20 * PAGE);
    mprotect(area + 10 * PAGE, 5 * PAGE, PROT_READ);
    madvise(area + 15 * PAGE, 3 * PAGE, MADV_DONTNEED);
    munmap(area + 20 * PAGE, 7 * PAGE);
    char *moved = mremap(area + 15 * PAGE, 5 * PAGE, 33 * PAGE, MREMAP_MAYMOVE);
    moved[32 * PAGE] = 1;
    int number = open(file, O_RDONLY);
    char *whole = mmap(0, PAGE, PROT_READ, MAP_SHARED, number, PAGE);
    volatile char byte = *whole;
    (void)byte;
    int zero = open("/dev/zero", O_RDWR);
    char *zeroes = mmap(0, 9 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
    zeroes[PAGE] = 1;
    char *heap = sbrk(0);
    sbrk(50 * PAGE);
    memset(heap, 1, 50 * PAGE);
    sbrk(-20 * PAGE);
}

static void advice(void) {
    char *area = mmap(0, 1024 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(area + 10 * PAGE, 600 * PAGE, MADV_HUGEPAGE);
    madvise(area + 20 * PAGE, 6 * PAGE + 1, MADV_NOHUGEPAGE);
    madvise(area + 30 * PAGE, 0, MADV_HUGEPAGE);
    madvise(area + 1, PAGE, MADV_HUGEPAGE);
    madvise(area, PAGE, MADV_SEQUENTIAL);
    memset(area, 1, 1024 * PAGE);
    mmap(0, 99 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
}

static void *work(void *argument) {
    char *own = malloc(64 * PAGE);
    for (int round = 0; round < 50; round++) {
        char *area = mmap(0, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(area, round, 16 * PAGE);
        memcpy(own, area, 16 * PAGE);
        mprotect(area, 4 * PAGE, PROT_READ);
        munmap(area, 16 * PAGE);
    }
    free(own);
    return argument;
}

static void threads(void) {
    pthread_t others[4];
    for (int at = 0; at < 4; at++)
        pthread_create(&others[at], 0, work, 0);
    work(0);
    for (int at = 0; at < 4; at++)
        pthread_join(others[at], 0);
}

static void sleeping(void) {
    nanosleep(&(struct timespec){0, 300000000}, 0);
    poll(0, 0, 200);
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 250000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&mutex);
    while (!pthread_cond_timedwait(&never, &mutex, &until))
        ;
}

static void children(const char *self) {
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) {
            char *area = mmap(0, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memset(area, 1, 8 * PAGE);
            if (round == 1)
                execl("/proc/self/exe", self, "status", "7", (char *)0);
            if (round == 2)
                raise(SIGKILL);
            _exit(round);
        }
        int status;
        waitpid(child, &status, 0);
    }
}

static void closing(void) {
    for (int number = 3; number < 2000; number++)
        close(number);
    syscall(SYS_close_range, 3, ~0u, 0);
    int copy = dup2(1, 990);
    char *area = mmap(0, 123 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(area, copy, 123 * PAGE);
}

// Starts programs as careful programs do: nothing but the first three descriptors is for them.
static void starting(const char *self, int tiny_files) {
    struct rlimit none = {0, 0};
    if (tiny_files)
        setrlimit(RLIMIT_FSIZE, &none);
    pid_t child = fork();
    if (child == 0) {
        syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC);
        execl("/no/such/program", self, (char *)0);
        execl("/proc/self/exe", self, "status", "7", (char *)0);
    }
    int status;
    waitpid(child, &status, 0);
    for (int number = 3; number < 2000; number++)
        fcntl(number, F_SETFD, FD_CLOEXEC);
    execl("/proc/self/exe", self, "status", status == 7 << 8 ? "42" : "1", (char *)0);
}

// A program by a descriptor that is closed when it begins: that of a file, of one without a name (removed, in memory), and of a folder.
static int descriptors(const char *self) {
    extern char **environ;
    int file = open(self, O_RDONLY | O_CLOEXEC), memory = memfd_create("program", MFD_CLOEXEC), sum = 0;
    const char *name = strrchr(self, '/') + 1;
    int folder = open(strndup(self, name - self), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char buffer[1 << 14];
    for (long got; (got = read(file, buffer, sizeof buffer)) > 0;)
        write(memory, buffer, got);
    for (int which = 0; which < 3; which++) {
        if (fork() == 0) {
            char *words[] = {"program", "status", "7", 0};
            if (which < 2)
                fexecve(which ? memory : file, words, environ);
            else
                syscall(SYS_execveat, folder, name, words, environ, 0);
            _exit(1);
        }
        int status;
        wait(&status);
        sum += WEXITSTATUS(status);
    }
    return sum;
}

static void copying(const char *file) {
    static char buffer[72];
    int ends[2], number = open(file, O_RDWR);
    pipe(ends);
    write(ends[1], buffer, 5);
    read(ends[0], buffer + 8, 64);
    pwrite(number, buffer, 7, 100);
    pread(number, buffer + 16, 3, 0);
    read(-1, buffer, 64);
    for (int times = 0; times < 20; times++)
        getppid();
    char *area = mmap(0, 77 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(area, 77 * PAGE);
}

static pthread_barrier_t used;

/* Uses 40 pages, at as many GB as the thread's number, and waits or goes on while the process
   ends. */
static void *use(void *number) {
    volatile char *area = (char *)((long)number << 30);
    mmap((char *)area, 40 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    for (int times = 0; times < 20000; times++)
        area[times % 40 * PAGE]++;
    pthread_barrier_wait(&used);
    if ((long)number % 2)
        pause();
    for (;;)
        area[0]++;
}

static void leaving(void) {
    pthread_t thread;
    pthread_barrier_init(&used, 0, 5);
    for (long number = 1; number < 5; number++)
        pthread_create(&thread, 0, use, (void *)number);
    pthread_barrier_wait(&used);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "mappings"))
        mappings(words[2]);
    else if (!strcmp(what, "advice"))
        advice();
    else if (!strcmp(what, "copying"))
        copying(words[2]);
    else if (!strcmp(what, "threads"))
        threads();
    else if (!strcmp(what, "leaving"))
        leaving();
    else if (!strcmp(what, "sleeping"))
        sleeping();
    else if (!strcmp(what, "children"))
        children(words[0]);
    else if (!strcmp(what, "closing"))
        closing();
    else if (!strcmp(what, "starting"))
        starting(words[0], count > 2);
    else if (!strcmp(what, "descriptors"))
        return descriptors(words[0]);
    else if (!strcmp(what, "crash"))
        *(volatile int *)8 = 1;
    else if (!strcmp(what, "status"))
        return atoi(words[2]);
    else if (!strcmp(what, "forever"))
        for (;;)
            pause();
    return 0;
}
