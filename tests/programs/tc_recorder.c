/* tc_recorder RECORD THREADS SLOTS ROUNDS [busy]

   THREADS threads call malloc, calloc, realloc, aligned_alloc and free at random, also for each other's blocks; every live block stands in
   the record with the size that was asked for and malloc_usable_size. Two further threads do so and end. Then all are parked, or with `busy`
   go on with blocks that are not recorded. The record begins with MallocExtension's own figures. Commands: `r` returns free memory and asks
   for the figures again, `s` only asks. */

#include "stage.h"
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

#define FIGURES 7

struct block {
    uint64_t address; /* 0: an empty slot */
    uint64_t requested, usable;
};

struct header {
    uint64_t threads, slots, leaked; /* a block that nothing points to, with its bits turned over */
    uint64_t figures[FIGURES];
};

/* Weak: the library is preloaded, or it is another one. */
extern int MallocExtension_GetNumericProperty(const char *, size_t *) __attribute__((weak));
extern void MallocExtension_ReleaseFreeMemory(void) __attribute__((weak));

static const char *const NAMES[FIGURES] = {
    "generic.current_allocated_bytes",       "generic.heap_size",
    "tcmalloc.pageheap_free_bytes",          "tcmalloc.pageheap_unmapped_bytes",
    "tcmalloc.central_cache_free_bytes",     "tcmalloc.transfer_cache_free_bytes",
    "tcmalloc.thread_cache_free_bytes",
};

static struct header *header;
static struct block *blocks;
static unsigned threads, slots, rounds;
static int is_busy;
static pthread_barrier_t barrier;
static atomic_uint parked;

static void ask(void)
{
    unsigned i;

    for (i = 0; i < FIGURES; i++) {
        size_t figure = 0;

        if (MallocExtension_GetNumericProperty)
            MallocExtension_GetNumericProperty(NAMES[i], &figure);
        header->figures[i] = figure;
    }
}

static size_t request(uint64_t *random)
{
    if (stage_random(random) % 1000 == 0)
        return (size_t)200000 + stage_random(random) % 4000000;
    return stage_request(random);
}

static void keep(struct block *block, void *memory, size_t size)
{
    if (!memory)
        stage_fail("out of memory");
    memset(memory, 0x5a, size < 64 ? size : 64);
    block->address = (uint64_t)(uintptr_t)memory;
    block->requested = size;
    block->usable = malloc_usable_size(memory);
}

static void drop(struct block *block)
{
    void *volatile memory = (void *)(uintptr_t)block->address;

    block->address = 0;
    free(memory);
}

static void step(struct block *block, uint64_t *random)
{
    size_t size = request(random), alignment;

    switch (stage_random(random) % 10) {
    case 0:
        drop(block);
        keep(block, calloc(1, size), size);
        break;
    case 1:
        drop(block);
        alignment = (size_t)16 << stage_random(random) % 10;
        if (stage_random(random) % 50 == 0)
            alignment = (size_t)1 << (17 + stage_random(random) % 5);
        keep(block, aligned_alloc(alignment, size), size);
        break;
    case 2:
        keep(block, realloc((void *)(uintptr_t)block->address, size), size);
        break;
    case 3:
    case 4:
    case 5:
        drop(block);
        break;
    default:
        drop(block);
        keep(block, malloc(size), size);
    }
}

static void rounds_of(unsigned thread)
{
    uint64_t random = 88172645463325252ULL + thread * 7919;
    struct block *mine = blocks + (size_t)thread * slots, *next = blocks + (size_t)((thread + 1) % threads) * slots;
    unsigned round, i;

    for (round = 0; round < rounds; round++) {
        pthread_barrier_wait(&barrier);
        for (i = 0; i < slots; i++)
            step(mine + stage_random(&random) % slots, &random);
        pthread_barrier_wait(&barrier);
        for (i = 0; i < slots / 10; i++)
            drop(next + stage_random(&random) % slots);
    }
    pthread_barrier_wait(&barrier);
}

static void *work(void *argument)
{
    uint64_t random = 1 + (uint64_t)(uintptr_t)argument;

    rounds_of((unsigned)(uintptr_t)argument);
    atomic_fetch_add(&parked, 1);
    while (is_busy) {
        void *volatile one = malloc(stage_request(&random)), *volatile other = malloc(stage_random(&random) % 3000);

        free(one);
        free(other);
    }
    for (;;)
        pause();
    return NULL;
}

static void *end(void *argument)
{
    void *volatile memory = malloc(1 + (size_t)(uintptr_t)argument);

    free(memory);
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned i;
    pthread_t id;

    if (argc < 5)
        stage_fail("usage: tc_recorder RECORD THREADS SLOTS ROUNDS [busy]");
    threads = (unsigned)atoi(argv[2]);
    slots = (unsigned)atoi(argv[3]);
    rounds = (unsigned)atoi(argv[4]);
    is_busy = argc > 5;
    header = stage_record(argv[1], sizeof *header + (size_t)threads * slots * sizeof *blocks);
    header->threads = threads;
    header->slots = slots;
    blocks = (struct block *)(header + 1);
    header->leaked = ~(uint64_t)(uintptr_t)malloc(4321);
    pthread_barrier_init(&barrier, NULL, threads);
    for (i = 1; i < threads; i++)
        if (pthread_create(&id, NULL, work, (void *)(uintptr_t)i) != 0)
            stage_fail("a thread cannot be made");
    rounds_of(0);
    for (i = 0; i < 2; i++)
        if (pthread_create(&id, NULL, end, (void *)(uintptr_t)i) != 0 || pthread_join(id, NULL) != 0)
            stage_fail("a thread cannot be made");
    while (atomic_load(&parked) != threads - 1)
        usleep(1000);
    ask();
    stage_ready(1);
    for (;;) {
        if (stage_command() == 'r' && MallocExtension_ReleaseFreeMemory)
            MallocExtension_ReleaseFreeMemory();
        ask();
        stage_ready(1);
    }
}
