/* je_big RECORD REGIONS BYTES

   REGIONS blocks of BYTES altogether, mostly small, in four arenas by four threads, with holes: every fifth is free again. For
   measuring how long a large heap takes. The record's words: blocks made, blocks freed, usable bytes of the blocks that live. */

#include "je_stage.h"

#define THREADS 4

static uint64_t regions, bytes;
static atomic_uint_fast64_t made, freed, live_bytes;
static pthread_barrier_t barrier;

/* Seven of eight blocks are small; the eighth takes what is left of the mean. */
static size_t size_of(uint64_t number)
{
    size_t mean = (size_t)(bytes / regions), small = 16 + mean / 4 + number * 48271 % (mean / 2);

    return number % 8 ? small : 4 * mean + number * 69621 % (mean * 2);
}

static void *work(void *argument)
{
    uint64_t number, first = (uint64_t)(uintptr_t)argument * (regions / THREADS), end = first + regions / THREADS, sum = 0, gone = 0;
    void **mine = stage_pages((size_t)(end - first) * sizeof *mine);

    for (number = first; number < end; number++) {
        if (!(mine[number - first] = malloc(size_of(number))))
            stage_fail("out of memory");
        *(volatile char *)mine[number - first] = 1;
        sum += malloc_usable_size(mine[number - first]);
    }
    for (number = first; number < end; number++)
        if (number * 2654435761u % 5 == 0) {
            sum -= malloc_usable_size(mine[number - first]);
            free(mine[number - first]);
            gone++;
        }
    munmap(mine, (size_t)(end - first) * sizeof *mine);
    atomic_fetch_add(&made, end - first);
    atomic_fetch_add(&freed, gone);
    atomic_fetch_add(&live_bytes, sum);
    pthread_barrier_wait(&barrier);
    for (;;)
        pause();
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned i;

    if (argc < 4)
        stage_fail("usage: je_big RECORD REGIONS BYTES");
    je_start();
    je_open_record(argv[1], 0);
    regions = strtoull(argv[2], NULL, 10);
    bytes = strtoull(argv[3], NULL, 10);
    if (regions < 1000 || bytes / regions < 64)
        stage_fail("at least 1,000 regions of 64 bytes on average");
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (i = 0; i < THREADS; i++) {
        pthread_t id;

        if (pthread_create(&id, NULL, work, (void *)(uintptr_t)i) != 0)
            stage_fail("a thread cannot be made");
    }
    pthread_barrier_wait(&barrier);
    je_record->words[0] = made;
    je_record->words[1] = freed;
    je_record->words[2] = live_bytes;
    stage_ready(1);
    for (;;)
        stage_command();
}
