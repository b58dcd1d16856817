/* injected RECORD WHERE [beside]

   Its main thread stays in one place while somebody has it make system calls: WHERE is read, nanosleep, poll, futex, epoll, or vectors
   (a loop that keeps values in all vector and x87 registers and compares them). It counts in the record what it has done, and what was not as it should
   be: a call that came back with an error, too early, or with another errno; a register that changed. `beside`: three threads do the same
   with read, nanosleep and vectors. A byte on standard input makes it say "ready" once more, by the thread that reads there. */

#include "stage.h"
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>

struct record { uint64_t rounds, wrong, interrupted, last; };

static struct record *record;

static double now(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void done(int is_right, int code)
{
    __atomic_add_fetch(&record->rounds, 1, __ATOMIC_SEQ_CST);
    if (!is_right) {
        __atomic_add_fetch(&record->wrong, 1, __ATOMIC_SEQ_CST);
        record->last = (uint64_t)code;
    }
}

static void *writes(void *to)
{
    struct timespec pause = {0, 3000000};

    for (;;) {
        while (nanosleep(&pause, &pause) != 0)
            ;
        pause.tv_nsec = 3000000;
        if (write(*(int *)to, "x", 1) != 1)
            stage_fail("the pipe is closed");
    }
    return NULL;
}

static void reading(void)
{
    static __thread int ends[2];
    pthread_t other;
    char byte;

    if (pipe(ends) || pthread_create(&other, NULL, writes, &ends[1]))
        stage_fail("no pipe");
    for (;;)
        done(read(ends[0], &byte, 1) == 1 && byte == 'x', errno);
}

static void sleeping(void)
{
    for (;;) {
        struct timespec pause = {0, 5000000};
        double began = now();

        done(nanosleep(&pause, NULL) == 0 && now() - began >= 0.005, errno);
    }
}

static void polling(void)
{
    for (;;) {
        double began = now();

        done(poll(NULL, 0, 5) == 0 && now() - began >= 0.0049, errno);
    }
}

static void waiting(void)
{
    static int word;

    for (;;) {
        struct timespec pause = {0, 5000000};
        double began = now();
        long got = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &pause, NULL, 0);

        done(got == -1 && errno == ETIMEDOUT && now() - began >= 0.005, errno);
    }
}

static void events(void)
{
    struct epoll_event event;
    int epoll = epoll_create1(0);

    for (;;) {
        int got = epoll_wait(epoll, &event, 1, 5);

        if (got == -1 && errno == EINTR) /* signal(7): as whenever anybody stops it */
            __atomic_add_fetch(&record->interrupted, 1, __ATOMIC_SEQ_CST);
        else
            done(got == 0, errno);
    }
}

#ifdef __aarch64__
/* Values in three vector registers, and the control register, for a while. */
static int vectors(void)
{
    static const uint64_t seed[2] __attribute__((aligned(16))) = {0x0123456789abcdef, 0xfedcba9876543210};
    uint64_t seen[3][2] __attribute__((aligned(16))), before, after;

    memset(seen, 0, sizeof seen);
    __asm__ volatile("mrs %0, fpcr\n\tldr q0, [%3]\n\tmov v7.16b, v0.16b\n\tmov v15.16b, v0.16b\n\t"
        "mov w9, #3392\n\tmovk w9, #3, lsl #16\n1:\tsubs w9, w9, #1\n\tb.ne 1b\n\t"
        "str q0, [%2]\n\tstr q7, [%2, #16]\n\tstr q15, [%2, #32]\n\tmrs %1, fpcr"
        : "=&r"(before), "=&r"(after) : "r"(seen), "r"(seed) : "x9", "cc", "memory", "v0", "v7", "v15");
    return !memcmp(seen[0], seed, sizeof seed) && !memcmp(seen[1], seed, sizeof seed) && !memcmp(seen[2], seed, sizeof seed) && before == after;
}
#else
/* Values in xmm0 to xmm15 or their upper halves, an x87 register and the control word of both, for a while. */
static int vectors(void)
{
    static const uint64_t seed[4] __attribute__((aligned(32))) = {0x0123456789abcdef, 0xfedcba9876543210, 0x55aa55aa11223344, 0x99};
    uint64_t seen[16][4] __attribute__((aligned(32)));
    double left;
    uint32_t before = 0, after = 0;
    int k;

    memset(seen, 0, sizeof seen);
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("stmxcsr %2\n\tfld1\n\tfldpi\n\t"
            "vmovdqa (%4), %%ymm0\n\tvmovdqa %%ymm0, %%ymm7\n\tvmovdqa %%ymm0, %%ymm15\n\tmov $200000, %%ecx\n1:\tdec %%ecx\n\tjnz 1b\n\t"
            "vmovdqa %%ymm0, (%3)\n\tvmovdqa %%ymm7, 224(%3)\n\tvmovdqa %%ymm15, 480(%3)\n\tfsubp\n\tfstpl %0\n\tstmxcsr %1\n\tvzeroupper"
            : "=m"(left), "=m"(after), "=m"(before) : "r"(seen), "r"(seed) : "rcx", "memory", "xmm0", "xmm7", "xmm15", "st", "st(1)");
    else
        return 1;
    for (k = 0; k < 16; k += k ? 8 : 7)
        if (memcmp(seen[k], seed, sizeof seed))
            return 0;
    return (left > 2.14 || left < -2.14) && before == after;
}
#endif

static void computing(void)
{
    for (;;)
        done(vectors(), 1000);
}

static void stay(const char *where)
{
    static const struct { const char *name; void (*run)(void); } places[] = {
        {"read", reading}, {"nanosleep", sleeping}, {"poll", polling}, {"futex", waiting}, {"epoll", events}, {"vectors", computing},
    };
    unsigned k;

    for (k = 0; k < sizeof places / sizeof *places; k++)
        if (!strcmp(places[k].name, where))
            places[k].run();
    stage_fail("no such place");
}

static void *beside(void *where)
{
    stay(where);
    return NULL;
}

static void *serve(void *unused)
{
    char byte;

    (void)unused;
    while (read(0, &byte, 1) == 1)
        stage_ready(1);
    return NULL;
}

int main(int count, char **words)
{
    static char *others[] = {"read", "nanosleep", "vectors"};
    pthread_t thread;
    unsigned k;

    if (count < 3)
        return 2;
    record = stage_record(words[1], sizeof *record);
    if (count > 3) {
        for (k = 0; k < 3; k++)
            if (pthread_create(&thread, NULL, beside, others[k]))
                stage_fail("no thread");
        if (pthread_create(&thread, NULL, serve, NULL))
            stage_fail("no thread");
    }
    stage_ready(1);
    stay(words[2]);
    return 0;
}
