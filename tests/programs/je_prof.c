/* je_prof RECORD THREADS
   to be run with MALLOC_CONF=prof:true and more

   Blocks from stacks of their own: three kinds of caller, at several depths, in each of THREADS threads, a third of them freed
   again, some by another thread. One thread has ended by then. The process's own heap profile, by prof.dump, is RECORD.heap. */

#include "je_stage.h"

#define EACH 400

static unsigned threads;
static pthread_barrier_t barrier;
static void **kept; /* [threads][3][EACH] */

__attribute__((noinline)) static void *small_maker(unsigned i)
{
    void *volatile made = malloc(16 + i % 200);

    return made;
}

__attribute__((noinline)) static void *large_maker(unsigned i)
{
    void *volatile made = calloc(1, 20000 + 37 * (size_t)i);

    return made;
}

__attribute__((noinline)) static void *deep_maker(unsigned i, unsigned depth)
{
    void *volatile made = depth ? deep_maker(i, depth - 1) : malloc(3000 + i);

    return made;
}

static void make(unsigned thread)
{
    void **mine = kept + (size_t)thread * 3 * EACH;
    unsigned i;

    for (i = 0; i < EACH; i++) {
        mine[i] = small_maker(i);
        mine[EACH + i] = large_maker(i);
        mine[2 * EACH + i] = deep_maker(i, i % 5);
    }
    for (i = 0; i < 3 * EACH; i += 3) {
        free(mine[i]);
        mine[i] = NULL;
    }
}

/* The next thread's. */
static void free_others(unsigned thread)
{
    void **next = kept + (size_t)((thread + 1) % threads) * 3 * EACH;
    unsigned i;

    for (i = 1; i < 3 * EACH; i += 30) {
        free(next[i]);
        next[i] = NULL;
    }
}

static void *work(void *argument)
{
    unsigned thread = (unsigned)(uintptr_t)argument;
    const char *name = thread % 2 ? "odd" : "even";

    je_write("thread.prof.name", &name, sizeof name);
    make(thread);
    pthread_barrier_wait(&barrier);
    free_others(thread);
    pthread_barrier_wait(&barrier);
    for (;;)
        pause();
    return NULL;
}

static void *pass(void *argument)
{
    return small_maker((unsigned)(uintptr_t)argument);
}

int main(int argc, char **argv)
{
    static char path[4096];
    const char *name = path;
    pthread_t id;
    unsigned i;
    uint8_t on;

    if (argc < 3)
        stage_fail("usage: je_prof RECORD THREADS");
    je_start();
    je_read("config.prof", &on, 1);
    if (!on)
        stage_fail("this jemalloc has no profiler");
    je_open_record(argv[1], 0);
    threads = (unsigned)atoi(argv[2]);
    kept = stage_pages((size_t)threads * 3 * EACH * sizeof *kept);
    pthread_barrier_init(&barrier, NULL, threads);
    for (i = 1; i < threads; i++)
        if (pthread_create(&id, NULL, work, (void *)(uintptr_t)i) != 0)
            stage_fail("a thread cannot be made");
    if (pthread_create(&id, NULL, pass, (void *)(uintptr_t)150) != 0 || pthread_join(id, NULL) != 0)
        stage_fail("a thread cannot be made");
    make(0);
    pthread_barrier_wait(&barrier);
    free_others(0);
    pthread_barrier_wait(&barrier);
    snprintf(path, sizeof path, "%s.heap", argv[1]);
    je_write("prof.dump", &name, sizeof name); /* the first dump makes what later ones find there */
    je_write("prof.dump", &name, sizeof name);
    stage_ready(1);
    for (;;)
        stage_command();
}
