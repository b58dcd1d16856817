/* swapped RECORD: a process at rest whose memory a test pushes out to swap.

   20 MB of small blocks, every other one freed; 24 blocks with a mapping of their own, 1 MiB each; 32 MiB of memory that is no allocator's; and
   three threads with caches of their own. All of it was written. The record holds the place and the size of the 32 MiB. Any command byte wakes
   every thread, so that what a wake costs (the kernel writes to each thread's restartable-sequence area) is paid before anybody looks; "ready"
   comes when all sleep again or are about to.

   The kernel is told not to make huge pages of the small ones by itself: they would be pushed out and come back as one. */

#include "stage.h"
#include <pthread.h>

#define BLOCKS 200000
#define MAPPED 24
#define OWN_BYTES ((size_t)32 << 20)
#define THREADS 3

static char *small[BLOCKS], *mapped[MAPPED];
static int down[THREADS][2], up[2];

/* In a thread: some blocks, half of them back to its cache, then sleep. */
static void *work(void *argument)
{
    const int *own = argument;
    char *blocks[200], byte;
    int i;

    for (i = 0; i < 200; i++) {
        blocks[i] = malloc((size_t)(20 + i));
        memset(blocks[i], 2, (size_t)(20 + i));
    }
    for (i = 0; i < 200; i += 2)
        free(blocks[i]);
    byte = 'r';
    do {
        if (write(up[1], &byte, 1) != 1)
            break;
    } while (read(own[0], &byte, 1) == 1);
    return NULL;
}

static void wait_for_threads(void)
{
    char byte;
    int i;

    for (i = 0; i < THREADS; i++)
        if (read(up[0], &byte, 1) != 1)
            stage_fail("a thread has ended");
}

int main(int argc, char **argv)
{
    uint64_t *record;
    char *own;
    int i;

    if (argc != 2)
        stage_fail("usage: swapped RECORD");
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    record = stage_record(argv[1], 16);
    for (i = 0; i < BLOCKS; i++) {
        small[i] = malloc(100);
        memset(small[i], 1, 100);
    }
    for (i = 0; i < BLOCKS; i += 2)
        free(small[i]);
    for (i = 0; i < MAPPED; i++) {
        mapped[i] = malloc((size_t)1 << 20);
        memset(mapped[i], 3, (size_t)1 << 20);
    }
    own = stage_pages(OWN_BYTES);
    memset(own, 4, OWN_BYTES);
    record[0] = (uint64_t)(uintptr_t)own;
    record[1] = OWN_BYTES;
    if (pipe(up) != 0)
        stage_fail("no pipe");
    for (i = 0; i < THREADS; i++) {
        pthread_t id;

        if (pipe(down[i]) != 0 || pthread_create(&id, NULL, work, down[i]) != 0)
            stage_fail("a thread cannot be made");
    }
    wait_for_threads();
    for (;;) {
        char byte = 'w';

        stage_ready(1);
        stage_command();
        for (i = 0; i < THREADS; i++)
            if (write(down[i][1], &byte, 1) != 1)
                stage_fail("a thread has ended");
        wait_for_threads();
    }
}
