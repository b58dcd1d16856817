/* left RECORD THREADS BLOCKS: each thread fills an arena of its own with small blocks, frees all of them, which go to fastbins, and ends.
   BLOCKS 0: each takes one small block and stays, and nothing else of its arena is ever touched.

   The record holds the bytes that were asked for. */

#include "stage.h"

#include <pthread.h>

#define BYTES 100

static pthread_barrier_t begun, taken, forever;
static int blocks;

static void *fill(void *unused)
{
    void **first = NULL, **next;
    int number;

    pthread_barrier_wait(&begun); /* every thread takes its first block while the others live: no arena is used twice */
    memset(first = malloc(BYTES), 0, BYTES);
    pthread_barrier_wait(&taken);
    if (blocks == 0)
        pthread_barrier_wait(&forever);
    for (number = 1; number < blocks; number++) {
        memset(next = malloc(BYTES), 1, BYTES);
        *next = first;
        first = next;
    }
    for (; first != NULL; first = next) {
        next = *first;
        free(first);
    }
    return unused;
}

int main(int argc, char **argv)
{
    int number, threads = argc == 4 ? atoi(argv[2]) : 0;
    uint64_t *record;
    pthread_t *thread;
    pthread_attr_t small;

    if (threads < 1)
        stage_fail("usage: left RECORD THREADS BLOCKS");
    blocks = atoi(argv[3]);
    record = stage_record(argv[1], sizeof *record);
    pthread_barrier_init(&begun, NULL, (unsigned)threads);
    pthread_barrier_init(&taken, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&forever, NULL, 2 * (unsigned)threads);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    thread = stage_pages((size_t)threads * sizeof *thread);
    for (number = 0; number < threads; number++)
        if (pthread_create(thread + number, &small, fill, NULL) != 0)
            stage_fail("no thread");
    pthread_barrier_wait(&taken);
    for (number = 0; blocks > 0 && number < threads; number++)
        pthread_join(thread[number], NULL);
    record[0] = (uint64_t)threads * (blocks > 0 ? blocks : 1) * BYTES;
    stage_ready(1);
    for (;;)
        stage_command();
}
