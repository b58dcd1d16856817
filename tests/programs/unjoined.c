/* unjoined RECORD COUNT KEPT

   COUNT joinable threads that have ended and that nobody joins, and KEPT that were joined, whose stacks stay for reuse.

   Commands: none. */

#include "stage.h"
#include <pthread.h>
#include <sys/stat.h>

#define MOST 1000

static pthread_barrier_t all;

static void *end_soon(void *argument)
{
    pthread_barrier_wait(&all);
    return argument;
}

int main(int argc, char **argv)
{
    pthread_t threads[MOST];
    unsigned i, count, kept;
    struct stat tasks;

    if (argc != 4)
        stage_fail("usage: unjoined RECORD COUNT KEPT");
    uint64_t *record = stage_record(argv[1], 16);
    count = (unsigned)atoi(argv[2]), kept = (unsigned)atoi(argv[3]);
    if (count + kept > MOST)
        stage_fail("too many threads");
    pthread_barrier_init(&all, NULL, count + kept + 1);
    for (i = 0; i < count + kept; i++)
        if (pthread_create(&threads[i], NULL, end_soon, NULL))
            stage_fail("a thread cannot be made");
    pthread_barrier_wait(&all);
    for (i = count; i < count + kept; i++)
        pthread_join(threads[i], NULL);
    while (!stat("/proc/self/task", &tasks) && tasks.st_nlink > 3)
        usleep(1000);
    record[0] = count;
    stage_ready(1);
    for (;;)
        stage_command();
}
