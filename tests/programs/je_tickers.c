/* je_tickers RECORD WORK_MS ROLE...

   One thread for each role, named after it, tells what it is by how it meets jemalloc first:
     healthy      allocates first
     frees-first  its first call is free() of a block of another thread's; from 5.0.1 to 5.2.1 it never purges
     free-only    only ever frees
     untouched    never calls jemalloc
     one-malloc   allocates one block and no more
     tcache-off   turns its cache off, then as healthy
   healthy, frees-first and tcache-off allocate 80 MB, free it, and work lightly for WORK_MS: enough ticks for many decays, if any
   thread's ticks count. Before and after the work the main thread reads from jemalloc itself what each arena holds: the measured
   truth. The command `w` makes the threads work again and measures again; the others rest meanwhile. */

#include "je_stage.h"
#include <sys/syscall.h>

#define MOST 32
#define BURST_BLOCKS 20480 /* of 4,000 bytes: 80 MB */
#define FREES 200
#define MOST_ARENAS 400

enum role { HEALTHY, FREES_FIRST, FREE_ONLY, UNTOUCHED, ONE_MALLOC, TCACHE_OFF };

static const char *const names[] = {"healthy", "frees-first", "free-only", "untouched", "one-malloc", "tcache-off"};

/* The record's words: threads, then lwp, role and arena (plus one; 0: never asked) of each; from ARENAS on their number and four
   words each: dirty pages before and after, sweeps before and after (all ones where this build does not count). */
#define THREADS 0
#define ARENAS 128

static enum role roles[MOST];
static unsigned count, work_ms;
static void *gifts[MOST][FREES]; /* of the main thread's, for others to free */
static void **bursts;            /* [MOST][BURST_BLOCKS] */
static pthread_barrier_t barrier;

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int works(enum role role)
{
    return role == HEALTHY || role == FREES_FIRST || role == TCACHE_OFF;
}

/* Blocks as large as no cache keeps: each malloc and each free is a tick. */
static void light_work(void)
{
    uint64_t end = now_ms() + work_ms;
    unsigned i;

    while (now_ms() < end) {
        for (i = 0; i < 64; i++) {
            char *volatile block = malloc(400000); /* no cache has it, also where pages are of 64 KiB: each call ticks */

            *block = 1;
            free(block);
        }
        usleep(1000);
    }
}

static void burst(unsigned number)
{
    void **mine = bursts + (size_t)number * BURST_BLOCKS;
    unsigned i;

    for (i = 0; i < BURST_BLOCKS; i++)
        memset(mine[i] = malloc(4000), 1, 4000);
    for (i = 0; i < BURST_BLOCKS; i++)
        free(mine[i]);
}

/* What the thread does before anything else with jemalloc. */
static void begin(unsigned number)
{
    void *volatile one;
    uint8_t off = 0;
    unsigned i;

    switch (roles[number]) {
    case FREES_FIRST:
        free(gifts[number][0]);
        break;
    case FREE_ONLY:
        for (i = 0; i < FREES; i++)
            free(gifts[number][i]);
        break;
    case ONE_MALLOC:
        one = malloc(100);
        (void)one;
        break;
    case TCACHE_OFF:
        je_write("thread.tcache.enabled", &off, 1);
        break;
    default:
        break;
    }
    if (works(roles[number])) {
        unsigned arena;

        burst(number);
        je_read("thread.arena", &arena, sizeof arena);
        je_record->words[THREADS + 1 + 3 * number + 2] = arena + 1;
    }
}

static void *live(void *argument)
{
    unsigned number = (unsigned)(uintptr_t)argument;
    uint64_t *words = je_record->words + THREADS + 1 + 3 * number;

    prctl(PR_SET_NAME, names[roles[number]], 0, 0, 0);
    words[0] = (uint64_t)syscall(SYS_gettid);
    words[1] = roles[number];
    begin(number);
    for (;;) {
        pthread_barrier_wait(&barrier); /* the main thread measures */
        pthread_barrier_wait(&barrier);
        if (works(roles[number]))
            light_work();
    }
    return NULL;
}

static void measure(unsigned place)
{
    unsigned arenas, i;

    je_epoch();
    je_read("arenas.narenas", &arenas, sizeof arenas);
    if (arenas > MOST_ARENAS)
        stage_fail("too many arenas");
    je_record->words[ARENAS] = arenas;
    for (i = 0; i < arenas; i++) {
        uint64_t *words = je_record->words + ARENAS + 1 + 4 * i;
        size_t dirty = 0, length = sizeof dirty;
        uint64_t sweeps = 0;

        /* An arena that is not there yet has no figures, and no pages. */
        words[place] = je_mallctl(je_name("stats.arenas.%u.pdirty", i), &dirty, &length, NULL, 0) == 0 ? dirty : 0;
        length = sizeof sweeps;
        words[2 + place] = je_mallctl(je_name("stats.arenas.%u.dirty_npurge", i), &sweeps, &length, NULL, 0) == 0 ? sweeps : UINT64_MAX;
    }
}

/* All threads are at the barrier, before and after. */
static void work_and_measure(void)
{
    measure(0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    measure(1);
}

int main(int argc, char **argv)
{
    unsigned i, j;

    if (argc < 4 || argc - 3 > MOST)
        stage_fail("usage: je_tickers RECORD WORK_MS ROLE...");
    je_start();
    je_open_record(argv[1], 0);
    work_ms = (unsigned)atoi(argv[2]);
    count = (unsigned)argc - 3;
    je_record->words[THREADS] = count;
    bursts = stage_pages((size_t)count * BURST_BLOCKS * sizeof *bursts);
    for (i = 0; i < count; i++) {
        for (j = 0; j < sizeof names / sizeof *names && strcmp(names[j], argv[3 + i]) != 0; j++)
            ;
        if (j == sizeof names / sizeof *names)
            stage_fail("there is no such role");
        roles[i] = (enum role)j;
        for (j = 0; j < FREES; j++)
            gifts[i][j] = malloc(64);
    }
    pthread_barrier_init(&barrier, NULL, count + 1);
    for (i = 0; i < count; i++) {
        pthread_t id;

        if (pthread_create(&id, NULL, live, (void *)(uintptr_t)i) != 0)
            stage_fail("a thread cannot be made");
    }
    pthread_barrier_wait(&barrier);
    work_and_measure();
    for (;;) {
        stage_ready(1);
        if (stage_command() == 'w')
            work_and_measure();
    }
}
