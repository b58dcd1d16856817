/* crashing RECORD THREADS BYTES_PER_SECOND: each thread keeps 7 of 8 blocks of 16 to 1,000 bytes that it allocates, all threads together at
   that rate and up to 400 MB, and goes on in place of the oldest then. `s`: the main thread writes to address 0; `a`: it calls abort(). */

#include "stage.h"

#include <pthread.h>
#include <time.h>

#define KEPT 200000

static uint64_t each_bytes_per_second;

static void *work(void *argument)
{
    void **blocks = stage_pages(KEPT * sizeof *blocks);
    uint64_t random = (uint64_t)(uintptr_t)argument, bytes = 0, place = 0;
    struct timespec began, now;

    clock_gettime(CLOCK_MONOTONIC, &began);
    for (;;) {
        size_t size = 16 + stage_random(&random) % 985;
        void **block = malloc(size);

        if (!block)
            stage_fail("no memory");
        memset(block, 1, size);
        bytes += size;
        if (place % 8) {
            free(blocks[place % KEPT]);
            block[0] = blocks[(place - 1) % KEPT];
            blocks[place % KEPT] = block;
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
    return NULL;
}

int main(int argc, char **argv)
{
    uintptr_t number, threads = argc == 4 ? (uintptr_t)atoi(argv[2]) : 0;
    pthread_t thread;

    if (!threads)
        stage_fail("usage: crashing RECORD THREADS BYTES_PER_SECOND");
    stage_record(argv[1], sizeof(uint64_t));
    each_bytes_per_second = strtoull(argv[3], NULL, 10) / threads + 1;
    for (number = 1; number <= threads; number++)
        if (pthread_create(&thread, NULL, work, (void *)number) != 0)
            stage_fail("no thread");
    stage_ready(1);
    for (;;)
        switch (stage_command()) {
        case 's':
            *(volatile int *)0 = 1;
            break;
        case 'a':
            abort();
        }
}
