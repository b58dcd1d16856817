/* main_ended RECORD: its main thread has ended, and another one runs with a thousand blocks of its own. */

#include "stage.h"
#include <pthread.h>

#define BLOCKS 1000

static uint64_t *record;
static void *volatile *kept;
static pthread_t first;

static void *serve(void *unused)
{
    (void)unused;
    kept = calloc(BLOCKS, sizeof *kept);
    for (unsigned i = 0; i < BLOCKS; i++)
        kept[i] = malloc(3000);
    pthread_join(first, NULL); /* the kernel's own word that it has ended */
    record[0] = BLOCKS;
    stage_ready(1);
    for (;;)
        stage_command();
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t second;
    if (argc != 2)
        stage_fail("usage: main_ended RECORD");
    record = stage_record(argv[1], 8);
    first = pthread_self();
    if (pthread_create(&second, NULL, serve, NULL))
        stage_fail("pthread_create");
    pthread_exit(NULL);
}
