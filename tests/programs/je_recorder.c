/* je_recorder RECORD park|after THREADS ROUNDS

   THREADS threads make blocks of every size class and of random sizes, aligned ones, in automatic and in explicit arenas, with and
   without caches, free each other's, and keep each block's fate in the record. Then every cache is flushed and filled again with
   known blocks, so that what is in it is known exactly. At last malloc_stats_print's JSON goes into the record: the program
   rests inside the write callback (park: memory is what the figures say) or after it (after). */

#include "je_stage.h"

#define SLOTS 1500
#define CACHED_EACH 6
#define LARGEST ((size_t)4 << 20)

static unsigned threads, rounds;
static unsigned cache;                       /* by tcache.create */
static unsigned dirty, muzzy, gone, purged; /* by arenas.create */
static pthread_barrier_t barrier;
static struct je_block **slots; /* [threads][SLOTS] */

static void *any_memory(uint64_t *random, size_t size)
{
    void *memory = NULL;

    switch (stage_random(random) % 8) {
    case 0:
        return calloc(1, size);
    case 1:
        return posix_memalign(&memory, (size_t)16 << stage_random(random) % 10, size) == 0 ? memory : NULL;
    case 2:
        return realloc(malloc(size / 2 + 1), size);
    case 3:
        return je_mallocx(size, JE_NO_TCACHE);
    default:
        return malloc(size);
    }
}

static void step(struct je_block **slot, uint64_t *random)
{
    size_t size = stage_random(random) % 300 ? stage_request(random) : 131072 + stage_random(random) % 900000;

    if (*slot)
        je_drop(*slot, stage_random(random) % 5 ? 0 : JE_NO_TCACHE, JE_FREED);
    *slot = NULL;
    if (stage_random(random) % 3)
        *slot = je_keep(any_memory(random, size), size);
}

/* The next size class. From 5.3.1 on every page multiple is one; this takes four to a doubling, as older ones have them. */
static size_t next_class(size_t size)
{
    return je_nallocx(size + (size < 4096 ? 1 : size / 8), 0);
}

/* One live block of every size class, exactly its size. */
static void every_class(void)
{
    size_t size;

    for (size = je_nallocx(1, 0); size <= LARGEST; size = next_class(size))
        je_keep(malloc(size), size);
}

/* Alignments above a page, and more than oversize_threshold, which has an arena of its own from 5.2 on. */
static void odd_ones(void)
{
    unsigned log2;

    for (log2 = 4; log2 <= 22; log2++)
        je_keep(je_mallocx(100, JE_ALIGN_LOG2(log2)), 100);
    je_keep(malloc((size_t)17 << 20), (size_t)17 << 20);
    je_drop(je_keep(malloc((size_t)9 << 20), (size_t)9 << 20), 0, JE_FREED);
}

#define FILL 3000

/* The first two thirds go again, so that whole slabs become free pages. */
static void fill_arena(unsigned arena, uint64_t *random)
{
    static struct je_block *mine[FILL];
    unsigned i;

    for (i = 0; i < FILL; i++) {
        size_t size = stage_request(random);

        mine[i] = je_keep(je_mallocx(size, JE_ARENA(arena) | JE_NO_TCACHE), size);
    }
    for (i = 0; i < FILL * 2 / 3; i++)
        je_drop(mine[i], JE_NO_TCACHE, JE_FREED);
}

/* Arenas of the program's own: one that keeps dirty pages, one whose free pages are muzzy, one that was reset and purged, one that is gone. */
static void explicit_arenas(void)
{
    uint64_t random = 424242;
    unsigned i;

    for (i = 0; i < FILL; i++)
        je_mallocx(1 + i * 7 % 20000, JE_ARENA(purged) | JE_NO_TCACHE);
    je_write(je_name("arena.%u.reset", purged), NULL, 0);
    fill_arena(dirty, &random);
    fill_arena(muzzy, &random);
    fill_arena(purged, &random);
    for (i = 0; i < 3; i++) { /* only decay in its time makes pages muzzy; a purge skips that state */
        usleep(5000);
        je_write(je_name("arena.%u.decay", muzzy), NULL, 0);
    }
    je_write(je_name("arena.%u.purge", purged), NULL, 0);
    je_dallocx(je_mallocx(100000, JE_ARENA(gone) | JE_NO_TCACHE), JE_NO_TCACHE);
    je_write(je_name("arena.%u.destroy", gone), NULL, 0);
}

/* A cache that no thread owns. The flush takes out what jemalloc put in beside the blocks that were asked for. */
static void explicit_cache(void)
{
    struct je_block *mine[32][CACHED_EACH];
    unsigned classes = 0, number, i;
    size_t size;

    for (size = je_nallocx(1, 0); size <= 16384 && classes < 32; size = je_nallocx(3 * size, 0), classes++)
        for (i = 0; i < CACHED_EACH; i++)
            mine[classes][i] = je_keep(je_mallocx(size, JE_TCACHE((int)cache)), size);
    je_write("tcache.flush", &cache, sizeof cache);
    for (number = 0; number < classes; number++)
        for (i = 0; i < CACHED_EACH; i++)
            je_drop(mine[number][i], JE_TCACHE((int)cache), JE_CACHED);
}

/* Blocks to be cached at the end; made before the flush, so that the cache holds nothing but them. */
static void known_cache(void)
{
    struct je_block *mine[128][CACHED_EACH];
    unsigned classes = 0, number, i;
    uint8_t enabled;
    size_t size, largest;

    je_read("arenas.tcache_max", &largest, sizeof largest);
    for (size = je_nallocx(1, 0); size <= largest && classes < 128; size = next_class(size), classes++)
        for (i = 0; i < CACHED_EACH; i++)
            mine[classes][i] = je_keep(malloc(size), size);
    pthread_barrier_wait(&barrier);
    je_read("thread.tcache.enabled", &enabled, 1);
    if (enabled)
        je_write("thread.tcache.flush", NULL, 0);
    for (number = 0; number < classes; number++)
        for (i = 0; i < CACHED_EACH; i++)
            if ((i + number) % 3)
                je_drop(mine[number][i], 0, enabled ? JE_CACHED : JE_FREED);
}

static void rounds_of(unsigned thread)
{
    uint64_t random = 88172645463325252ULL + thread * 7919;
    struct je_block **mine = slots + (size_t)thread * SLOTS, **next = slots + (size_t)((thread + 1) % threads) * SLOTS;
    unsigned round, i;

    /* jemalloc makes what it needs for a thread, its cache and its tickers, before any recorded block is freed, so that no such
       block's address becomes jemalloc's own. */
    stage_sort();
    pthread_barrier_wait(&barrier);
    for (round = 0; round < rounds; round++) {
        for (i = 0; i < SLOTS; i++)
            step(mine + stage_random(&random) % SLOTS, &random);
        pthread_barrier_wait(&barrier);
        for (i = 0; i < SLOTS / 4; i++) {
            struct je_block **other = next + stage_random(&random) % SLOTS;

            if (*other)
                je_drop(*other, 0, JE_FREED);
            *other = NULL;
        }
        pthread_barrier_wait(&barrier);
    }
    if (thread == 0) {
        every_class();
        odd_ones();
        explicit_arenas();
        explicit_cache();
    }
    pthread_barrier_wait(&barrier);
    known_cache();
    pthread_barrier_wait(&barrier);
}

static void *work(void *argument)
{
    rounds_of((unsigned)(uintptr_t)argument);
    for (;;)
        pause();
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned i;

    if (argc < 5)
        stage_fail("usage: je_recorder RECORD park|after THREADS ROUNDS");
    threads = (unsigned)atoi(argv[3]);
    rounds = (unsigned)atoi(argv[4]);
    je_start();
    je_open_record(argv[1], 20000 + (size_t)threads * (1000 + (size_t)rounds * SLOTS));
    je_print_stats(0); /* makes what every print needs, before any recorded block is freed */
    slots = stage_pages((size_t)threads * SLOTS * sizeof *slots);
    dirty = je_new_arena(-1, 0);
    muzzy = je_new_arena(1, -1);
    gone = je_new_arena(-1, -1);
    purged = je_new_arena(-1, -1);
    je_dallocx(je_mallocx(100000, JE_ARENA(purged) | JE_NO_TCACHE), JE_NO_TCACHE); /* up to 5.2.1: this thread's tickers of all arenas */
    je_read("tcache.create", &cache, sizeof cache);
    pthread_barrier_init(&barrier, NULL, threads);
    for (i = 1; i < threads; i++) {
        pthread_t id;

        if (pthread_create(&id, NULL, work, (void *)(uintptr_t)i) != 0)
            stage_fail("a thread cannot be made");
    }
    rounds_of(0);
    je_print_stats(strcmp(argv[2], "park") == 0);
    stage_ready(1);
    for (;;)
        stage_command();
}
