/* reserves RECORD THREADS

   Each thread takes 8 MiB in blocks of 64 KiB from an arena of its own, fills them and frees those of the last 4 MiB. Beside that: anonymous memory
   that is written, some that was never touched, addresses without any right, and shared memory of which a small part is written. The record holds
   the bytes that are kept from malloc, and the anonymous and the shared ones that were written. */

#include "stage.h"

#include <pthread.h>
#include <sys/syscall.h>

#define MIB ((size_t)1 << 20)
#define BYTES ((size_t)64 << 10)
#define BLOCKS (8 * MIB / BYTES)
#define WRITTEN (12 * MIB)
#define SHARED (4 * MIB)

static pthread_barrier_t started, done, forever;

static void *work(void *unused)
{
    void *blocks[BLOCKS];
    size_t number;

    pthread_barrier_wait(&started); /* every thread meets a locked arena, or none: each gets its own */
    for (number = 0; number < BLOCKS; number++)
        memset(blocks[number] = malloc(BYTES - 64), 1, BYTES - 64);
    for (number = BLOCKS; number-- > BLOCKS / 2;)
        free(blocks[number]);
    pthread_barrier_wait(&done);
    pthread_barrier_wait(&forever);
    return unused;
}

static char *map(size_t bytes, int rights)
{
    char *at = mmap(NULL, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        stage_fail("no memory");
    return at;
}

static void map_others(void)
{
    int fd = (int)syscall(SYS_memfd_create, "frames", 0);
    char *at;

    memset(map(WRITTEN, PROT_READ | PROT_WRITE), 1, WRITTEN);
    map(192 * MIB, PROT_READ | PROT_WRITE);
    map(256 * MIB, PROT_NONE);
    if (fd < 0 || ftruncate(fd, 64 * MIB) != 0)
        stage_fail("no memfd");
    at = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        stage_fail("no shared memory");
    memset(at, 1, SHARED);
}

int main(int argc, char **argv)
{
    int number, threads = argc == 3 ? atoi(argv[2]) : 0;
    uint64_t *record;
    pthread_t thread;

    if (threads < 1)
        stage_fail("usage: reserves RECORD THREADS");
    record = stage_record(argv[1], 3 * sizeof *record);
    pthread_barrier_init(&started, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&done, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&forever, NULL, (unsigned)threads + 1);
    for (number = 0; number < threads; number++)
        if (pthread_create(&thread, NULL, work, NULL) != 0)
            stage_fail("no thread");
    map_others();
    pthread_barrier_wait(&started);
    pthread_barrier_wait(&done);
    record[0] = (uint64_t)threads * BLOCKS / 2 * BYTES;
    record[1] = WRITTEN;
    record[2] = SHARED;
    stage_ready(1);
    for (;;)
        stage_command();
}
