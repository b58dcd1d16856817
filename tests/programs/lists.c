/* lists RECORD SHAPE COUNT: free lists of one shape and of COUNT members.

   fast-random, fast-up, fast-down: one fastbin, in random, ascending or descending order of addresses
   fast-lockstep: all fastbins at once, each of them ascending or descending through the same memory
   fast-wide: one fastbin in random order, with a used chunk of 16 KiB between any two members
   unsorted-random, unsorted-up, unsorted-down: the unsorted bin
   caches: COUNT threads, each with 7 chunks in each of its 64 thread cache bins
   arenas: COUNT threads, each with an arena of its own that holds a few chunks of each status
   free: COUNT free chunks in small and large bins, each between used ones

   Run it with glibc.malloc.tcache_count=0 but for `caches`. RECORD: members, their bytes (chunk sizes), threads. */

#include "stage.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define FAST_SIZES 7 /* chunk sizes of 32 to 128 bytes */
#define CACHE_BINS 64
#define CACHE_CHUNKS 7
#define STACK_BYTES (64 << 10)

static struct record {
    uint64_t members, bytes, threads;
} *record;

static uint64_t count, state = 88172645463325252ULL;
static _Atomic uint64_t ready;
static pthread_barrier_t together;

static void *need(size_t bytes)
{
    void *block = malloc(bytes);

    if (!block)
        stage_fail("out of memory");
    return block;
}

static void shuffle(void **blocks)
{
    uint64_t i;

    for (i = count - 1; i > 0; i--) {
        uint64_t j = stage_random(&state) % (i + 1);
        void *other = blocks[j];

        blocks[j] = blocks[i];
        blocks[i] = other;
    }
}

/* Frees the blocks so that the list they stand on, newest first, has the order that `order` names. */
static void free_in(const char *order, void **blocks)
{
    uint64_t i;

    if (!strcmp(order, "random"))
        shuffle(blocks);
    for (i = 0; i < count; i++)
        free(blocks[!strcmp(order, "up") ? count - 1 - i : i]);
}

/* One list of chunks of `size` usable bytes, each followed by a used one of `between` usable bytes (none if 0). */
static void one_list(const char *order, size_t size, size_t between)
{
    void **blocks = stage_pages(count * sizeof *blocks);
    uint64_t i;

    for (i = 0; i < count; i++) {
        blocks[i] = need(size);
        if (between)
            need(between);
    }
    need(24); /* the last one must not border top */
    free_in(order, blocks);
    record->members = count;
    record->bytes = count * ((size + 8 + 15) / 16 * 16);
}

/* Members of all fastbins side by side: odd ones' lists ascend, even ones' descend. */
static void lockstep(void)
{
    void **blocks = stage_pages(count * sizeof *blocks);
    uint64_t i;

    for (i = 0; i < count; i++) {
        size_t size = 24 + i % FAST_SIZES * 16;

        blocks[i] = need(size);
        record->bytes += size + 8;
    }
    for (i = count; i-- > 0;)
        if (i % FAST_SIZES % 2)
            free(blocks[i]);
    for (i = 0; i < count; i++)
        if (i % FAST_SIZES % 2 == 0)
            free(blocks[i]);
    record->members = count;
}

/* Blocks of all sizes of a small heap's bins; every second one freed in random order, and sorted. */
static void free_chunks(void)
{
    void **blocks = stage_pages(count * sizeof *blocks);
    uint64_t i;

    for (i = 0; i < count; i++) {
        size_t size = 136 + stage_random(&state) % 1200;

        blocks[i] = need(size);
        need(24);
        record->bytes += malloc_usable_size(blocks[i]) + 8;
    }
    free_in("random", blocks);
    stage_sort();
    record->members = count;
}

static void wait_here(void)
{
    atomic_fetch_add(&ready, 1);
    for (;;)
        pause();
}

static void *fill_cache(void *unused)
{
    void *blocks[CACHE_BINS * CACHE_CHUNKS];
    unsigned i;

    (void)unused;
    for (i = 0; i < CACHE_BINS * CACHE_CHUNKS; i++)
        blocks[i] = need(24 + i / CACHE_CHUNKS * 16);
    pthread_barrier_wait(&together); /* all have theirs before the first is freed: neighbours in memory are of many threads */
    for (i = 0; i < CACHE_BINS * CACHE_CHUNKS; i++)
        free(blocks[i]);
    wait_here();
    return NULL;
}

static void *use_arena(void *unused)
{
    void *blocks[64];
    unsigned i;

    (void)unused;
    for (i = 0; i < 64; i++)
        blocks[i] = need(24 + i * 48);
    pthread_barrier_wait(&together); /* all alive at once: none inherits another's arena */
    for (i = 0; i < 64; i += 2)
        free(blocks[i]);
    wait_here();
    return NULL;
}

static void in_threads(void *(*work)(void *))
{
    pthread_attr_t attributes;
    pthread_t id;
    uint64_t i;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_barrier_init(&together, NULL, (unsigned)count);
    for (i = 0; i < count; i++)
        if (pthread_create(&id, &attributes, work, NULL) != 0)
            stage_fail("a thread cannot be made");
    while (atomic_load(&ready) != count)
        usleep(1000);
    record->threads = count;
}

int main(int argc, char **argv)
{
    const char *shape = argc == 4 ? argv[2] : "";

    if (argc != 4)
        stage_fail("usage: lists RECORD SHAPE COUNT");
    record = stage_record(argv[1], sizeof *record);
    count = strtoull(argv[3], NULL, 10);
    if (!strcmp(shape, "fast-lockstep"))
        lockstep();
    else if (!strcmp(shape, "fast-wide"))
        one_list("random", 56, 16 << 10);
    else if (!strncmp(shape, "fast-", 5))
        one_list(shape + 5, 56, 0);
    else if (!strncmp(shape, "unsorted-", 9))
        one_list(shape + 9, 152, 24);
    else if (!strcmp(shape, "free"))
        free_chunks();
    else if (!strcmp(shape, "caches"))
        in_threads(fill_cache);
    else if (!strcmp(shape, "arenas"))
        in_threads(use_arena);
    else
        stage_fail("no such shape");
    if (!strcmp(shape, "caches")) {
        record->members = count * CACHE_BINS * CACHE_CHUNKS;
        record->bytes = count * CACHE_CHUNKS * (32 + 1040) / 2 * CACHE_BINS;
    }
    stage_ready(1);
    for (;;)
        stage_command();
}
