/* tops RECORD THREADS: each thread takes 3 MiB in small blocks from an arena of its own and frees all of it, which merges into the arena's top.

   Run with MALLOC_TRIM_THRESHOLD_ above that, so that free() keeps the tops. The record holds the bytes that were freed. */

#include "stage.h"

#include <pthread.h>

#define BLOCKS 3000
#define BYTES 1024

static pthread_barrier_t filled, freed, forever;

static void *fill(void *unused)
{
    void **blocks = stage_pages(BLOCKS * sizeof *blocks);
    int number;

    for (number = 0; number < BLOCKS; number++)
        memset(blocks[number] = malloc(BYTES), 1, BYTES);
    pthread_barrier_wait(&filled); /* every thread has an arena of its own by now */
    for (number = 0; number < BLOCKS; number++) /* the lowest first: these fill the thread's cache, and the last one meets the top */
        free(blocks[number]);
    pthread_barrier_wait(&freed);
    pthread_barrier_wait(&forever);
    return unused;
}

int main(int argc, char **argv)
{
    int number, threads = argc == 3 ? atoi(argv[2]) : 0;
    uint64_t *record;
    pthread_t thread;

    if (threads < 1)
        stage_fail("usage: tops RECORD THREADS");
    record = stage_record(argv[1], sizeof *record);
    pthread_barrier_init(&filled, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&freed, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&forever, NULL, 2 * (unsigned)threads);
    for (number = 0; number < threads; number++)
        if (pthread_create(&thread, NULL, fill, NULL) != 0)
            stage_fail("no thread");
    pthread_barrier_wait(&filled);
    pthread_barrier_wait(&freed);
    record[0] = (uint64_t)threads * BLOCKS * BYTES;
    stage_ready(1);
    for (;;)
        stage_command();
}
