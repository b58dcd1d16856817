/* mi_recorder RECORD THREADS SLOTS ROUNDS [busy]

   THREADS threads call malloc, calloc, realloc, aligned_alloc and free at random and free each other's blocks; two further threads do so and
   end, so that what is left of theirs has no owner. Every live block stands in the record with its usable size. Then all are parked, or
   with `busy` go on with blocks that are not recorded. The malloc is the one that is preloaded. */

#include "stage.h"
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

struct block {
    uint64_t address; /* 0: an empty slot */
    uint64_t usable;
};

static uint64_t *header; /* threads, slots */
static struct block *blocks;
static unsigned threads, slots, rounds;
static int is_busy;
static pthread_barrier_t barrier;
static atomic_uint parked;

static size_t request(uint64_t *random)
{
    uint64_t kind = stage_random(random) % 1000;

    if (kind == 0)
        return (size_t)131072 + stage_random(random) % 8000000;
    return stage_request(random);
}

static void keep(struct block *block, void *memory, size_t size)
{
    if (!memory)
        stage_fail("out of memory");
    memset(memory, 0x5a, size < 64 ? size : 64);
    block->usable = malloc_usable_size(memory);
    block->address = (uint64_t)(uintptr_t)memory;
}

static void drop(struct block *block)
{
    void *volatile memory = (void *)(uintptr_t)block->address;

    block->address = 0;
    free(memory);
}

static void step(struct block *block, uint64_t *random)
{
    size_t size = request(random);

    switch (stage_random(random) % 20) {
    case 0:
        drop(block);
        keep(block, calloc(1, size), size);
        break;
    case 1:
        drop(block);
        if (stage_random(random) % 5 == 0) {
            size_t alignment = (size_t)16 << stage_random(random) % 14;

            keep(block, aligned_alloc(alignment, (size + alignment - 1) & -alignment), size);
        }
        break;
    case 2:
        keep(block, realloc((void *)(uintptr_t)block->address, size), size);
        break;
    case 3:
    case 4:
    case 5:
    case 6:
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
        for (i = 0; i < slots / 5; i++)
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
    struct block *mine = (struct block *)argument;
    uint64_t random = 77 + (uint64_t)(mine - blocks);
    unsigned i;

    for (i = 0; i < slots; i++)
        step(mine + i, &random);
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned i;
    pthread_t id;

    if (argc < 5)
        stage_fail("usage: mi_recorder RECORD THREADS SLOTS ROUNDS [busy]");
    threads = (unsigned)atoi(argv[2]);
    slots = (unsigned)atoi(argv[3]);
    rounds = (unsigned)atoi(argv[4]);
    is_busy = argc > 5;
    header = stage_record(argv[1], 16 + (size_t)(threads + 2) * slots * sizeof *blocks);
    header[0] = threads + 2;
    header[1] = slots;
    blocks = (struct block *)(header + 2);
    pthread_barrier_init(&barrier, NULL, threads);
    for (i = threads; i < threads + 2; i++)
        if (pthread_create(&id, NULL, end, blocks + (size_t)i * slots) != 0 || pthread_join(id, NULL) != 0)
            stage_fail("a thread cannot be made");
    for (i = 1; i < threads; i++)
        if (pthread_create(&id, NULL, work, (void *)(uintptr_t)i) != 0)
            stage_fail("a thread cannot be made");
    rounds_of(0);
    while (atomic_load(&parked) != threads - 1)
        usleep(1000);
    stage_ready(1);
    for (;;)
        stage_command();
}
