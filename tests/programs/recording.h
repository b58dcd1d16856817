/* What recorders share that call a malloc at random from several threads: `PROGRAM RECORD THREADS SLOTS ROUNDS [busy]`.

   The program defines `struct block`, which begins with the block's address (0: an empty slot), before it includes this, and request() and
   keep() after it. */

#include "stage.h"
#include <pthread.h>
#include <stdatomic.h>

static struct block *blocks;
static unsigned threads, slots, rounds;
static int is_busy;
static pthread_barrier_t barrier;
static atomic_uint parked;

/* What one step asks for, and the record of what it got. */
static size_t request(uint64_t *random);
static void keep(struct block *block, void *memory, size_t size);

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

/* The record: `head_bytes`, of which the first two words are the number of threads and of slots, and the blocks. */
static void *record_begin(int argc, char **argv, size_t head_bytes)
{
    uint64_t *header;

    if (argc < 5)
        stage_fail("usage: RECORD THREADS SLOTS ROUNDS [busy]");
    threads = (unsigned)atoi(argv[2]);
    slots = (unsigned)atoi(argv[3]);
    rounds = (unsigned)atoi(argv[4]);
    is_busy = argc > 5;
    header = stage_record(argv[1], head_bytes + (size_t)threads * slots * sizeof *blocks);
    header[0] = threads;
    header[1] = slots;
    blocks = (struct block *)((char *)header + head_bytes);
    return header;
}

/* Until all are parked or, with `busy`, go on with what is not recorded. */
static void record_rounds(void)
{
    unsigned i;
    pthread_t id;

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
}
