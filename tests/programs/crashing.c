/* crashing RECORD THREADS BYTES_PER_SECOND [MOST_BYTES]: each thread keeps 7 of 8 blocks of 16 to 1,000 bytes that it allocates, all threads
   together at that rate and up to 400 MB, and goes on in place of the oldest then. `s`: the main thread writes to address 0; `a`: it calls
   abort(). With MOST_BYTES they begin at `g`, and rest when they have kept so much.

   The record: how many bytes are kept, and how many threads rest. */

#include "stage.h"

#include <pthread.h>
#include <time.h>

#define LEAST_MEAN 450 /* of blocks that are kept: they have 508 bytes */

static uint64_t each_bytes_per_second, each_most_bytes = UINT64_MAX, places = 200000, *record;

static void *work(void *argument)
{
    void **blocks = stage_pages(places * sizeof *blocks);
    uint64_t random = (uint64_t)(uintptr_t)argument, bytes = 0, place = 0, kept = 0;
    struct timespec began, now;

    clock_gettime(CLOCK_MONOTONIC, &began);
    while (kept < each_most_bytes) {
        size_t size = 16 + stage_random(&random) % 985;
        void **block = malloc(size);

        if (!block)
            stage_fail("no memory");
        memset(block, 1, size);
        bytes += size;
        if (place % 8) {
            free(blocks[place % places]);
            block[0] = blocks[(place - 1) % places];
            blocks[place % places] = block;
            kept += size;
            __atomic_add_fetch(&record[0], size, __ATOMIC_RELAXED);
        } else {
            free(block);
        }
        place++;
        if (place % 64 == 0) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            double late = bytes / (double)each_bytes_per_second - (double)(now.tv_sec - began.tv_sec) - (now.tv_nsec - began.tv_nsec) / 1e9;
            if (late > 0.001) {
                struct timespec rest = {0, (long)(late > 0.9 ? 9e8 : late * 1e9)};
                nanosleep(&rest, NULL);
            }
        }
    }
    __atomic_add_fetch(&record[1], 1, __ATOMIC_RELAXED);
    while (pause())
        ;
    return NULL;
}

static void begin(uintptr_t threads)
{
    pthread_t thread;

    for (uintptr_t number = 1; number <= threads; number++)
        if (pthread_create(&thread, NULL, work, (void *)number) != 0)
            stage_fail("no thread");
}

int main(int argc, char **argv)
{
    uintptr_t threads = argc == 4 || argc == 5 ? (uintptr_t)atoi(argv[2]) : 0;

    if (!threads)
        stage_fail("usage: crashing RECORD THREADS BYTES_PER_SECOND [MOST_BYTES]");
    record = stage_record(argv[1], 2 * sizeof *record);
    each_bytes_per_second = strtoull(argv[3], NULL, 10) / threads + 1;
    if (argc == 5) {
        each_most_bytes = strtoull(argv[4], NULL, 10) / threads;
        places = each_most_bytes / LEAST_MEAN * 8 / 7;
    } else {
        begin(threads);
    }
    stage_ready(1);
    for (;;)
        switch (stage_command()) {
        case 's':
            *(volatile int *)0 = 1;
            break;
        case 'a':
            abort();
        case 'g':
            begin(threads);
            stage_ready(1);
        }
}
