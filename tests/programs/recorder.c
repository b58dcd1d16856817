/* recorder RECORD THREADS SLOTS ROUNDS [subheaps]

   THREADS threads call malloc, calloc, realloc, memalign and free at random, also for each other's blocks, and keep a list of
   every live block and of every freed address in the record. They stay alive, parked, with blocks in their caches. */

#include "stage.h"
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

struct block {
    uint64_t address; /* 0: an empty slot */
    uint64_t requested;
};

struct header {
    uint64_t threads, slots, freed_capacity;
    uint64_t freed_count[128]; /* all frees of that thread; the log keeps the last freed_capacity */
};

#define FREED_CAPACITY 65536

static struct header *header;
static struct block *blocks; /* [threads][slots] */
static uint64_t *freed;      /* [threads][FREED_CAPACITY] */
static unsigned threads, slots, rounds;
static int want_subheaps;
static pthread_barrier_t barrier;
static atomic_uint parked;

static void note_freed(unsigned thread, void *address)
{
    freed[(size_t)thread * FREED_CAPACITY + header->freed_count[thread]++ % FREED_CAPACITY] = (uint64_t)(uintptr_t)address;
}

static void drop(unsigned thread, struct block *block)
{
    if (!block->address)
        return;
    note_freed(thread, (void *)(uintptr_t)block->address);
    free((void *)(uintptr_t)block->address);
    block->address = 0;
}

static size_t request(uint64_t *random)
{
    if (stage_random(random) % 400 == 0)
        return 131072 + stage_random(random) % 900000;
    return stage_request(random);
}

static void keep(struct block *block, void *memory, size_t size)
{
    if (!memory)
        stage_fail("out of memory");
    memset(memory, 0x5a, size < 64 ? size : 64);
    block->address = (uint64_t)(uintptr_t)memory;
    block->requested = size;
}

static void step(unsigned thread, struct block *block, uint64_t *random)
{
    size_t size = request(random);

    switch (stage_random(random) % 10) {
    case 0:
        drop(thread, block);
        keep(block, calloc(1, size), size);
        break;
    case 1:
        drop(thread, block);
        keep(block, memalign((size_t)16 << stage_random(random) % 10, size), size);
        break;
    case 2: {
        void *old = (void *)(uintptr_t)block->address;
        void *memory;

        if (old)
            note_freed(thread, old);
        memory = realloc(old, size);
        keep(block, memory, size);
        break;
    }
    case 3:
    case 4:
    case 5:
        drop(thread, block);
        break;
    default:
        drop(thread, block);
        keep(block, malloc(size), size);
    }
}

/* Small blocks freed last stay in the cache and, once that is full, in the fastbins. */
static void fill_caches(unsigned thread)
{
    struct block *mine = blocks + (size_t)thread * slots;
    unsigned i, left = slots / 8;

    for (i = 0; i < slots && left; i++)
        if (mine[i].address && mine[i].requested <= 100) {
            drop(thread, mine + i);
            left--;
        }
}

/* What each thread does, the main thread included. */
static void rounds_of(unsigned thread)
{
    uint64_t random = 88172645463325252ULL + thread * 7919;
    struct block *mine = blocks + (size_t)thread * slots;
    struct block *next = blocks + (size_t)((thread + 1) % threads) * slots;
    unsigned round, i;

    pthread_barrier_wait(&barrier);
    for (round = 0; round < rounds; round++) {
        for (i = 0; i < slots; i++)
            step(thread, mine + stage_random(&random) % slots, &random);
        pthread_barrier_wait(&barrier);
        for (i = 0; i < slots / 10; i++)
            drop(thread, next + stage_random(&random) % slots);
        pthread_barrier_wait(&barrier);
    }
    if (want_subheaps && thread == 1)
        for (i = 0; i < slots; i++) {
            drop(thread, mine + i);
            keep(mine + i, malloc(100000), 100000);
        }
    fill_caches(thread);
}

static void *work(void *argument)
{
    rounds_of((unsigned)(uintptr_t)argument);
    atomic_fetch_add(&parked, 1);
    for (;;)
        pause();
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_attr_t attributes;
    size_t bytes;
    unsigned i;

    if (argc < 5)
        stage_fail("usage: recorder RECORD THREADS SLOTS ROUNDS [subheaps]");
    threads = (unsigned)atoi(argv[2]);
    slots = (unsigned)atoi(argv[3]);
    rounds = (unsigned)atoi(argv[4]);
    want_subheaps = argc > 5;
    if (threads < 1 || threads > 128)
        stage_fail("1 to 128 threads");
    bytes = sizeof *header + (size_t)threads * (slots * sizeof *blocks + FREED_CAPACITY * sizeof *freed);
    header = stage_record(argv[1], bytes);
    header->threads = threads;
    header->slots = slots;
    header->freed_capacity = FREED_CAPACITY;
    blocks = (struct block *)(header + 1);
    freed = (uint64_t *)(blocks + (size_t)threads * slots);
    mallopt(M_MMAP_THRESHOLD, 131072); /* keep it there: large blocks stay mmapped after the first one is freed */
    pthread_barrier_init(&barrier, NULL, threads);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 131072);
    for (i = 1; i < threads; i++) {
        pthread_t id;

        if (pthread_create(&id, &attributes, work, (void *)(uintptr_t)i) != 0)
            stage_fail("a thread cannot be made");
    }
    rounds_of(0);
    while (atomic_load(&parked) != threads - 1)
        usleep(1000);
    stage_ready(1);
    for (;;)
        stage_command();
}
