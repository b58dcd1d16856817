/* busy RECORD THREADS: each thread frees and allocates blocks of up to 3,000 bytes without end, 2,000 of them at a time. */

#include "stage.h"

#include <pthread.h>

#define BLOCKS 2000

static void *work(void *argument)
{
    void **blocks = stage_pages(BLOCKS * sizeof *blocks);
    uint64_t random = (uint64_t)(uintptr_t)argument;

    for (;;) {
        void **block = &blocks[stage_random(&random) % BLOCKS];

        free(*block);
        *block = malloc(16 + stage_random(&random) % 3000);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    uintptr_t number, threads = argc == 3 ? (uintptr_t)atoi(argv[2]) : 0;
    pthread_t thread;

    if (!threads)
        stage_fail("usage: busy RECORD THREADS");
    stage_record(argv[1], sizeof(uint64_t));
    for (number = 1; number <= threads; number++)
        if (pthread_create(&thread, NULL, work, (void *)number) != 0)
            stage_fail("no thread");
    stage_ready(1);
    for (;;)
        stage_command();
}
