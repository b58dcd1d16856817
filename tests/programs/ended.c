/* ended RECORD LIBRARY

   Threads that used the thread-local storage of a library that was loaded later, and have ended; their stacks are kept for reuse, with their
   dtvs and, until a thread reuses the stack, with what they had for the library. One thread lives, and one block is lost.

   Commands: none. */

#include "stage.h"
#include <dlfcn.h>
#include <pthread.h>

#define THREADS 4

static void (*use)(unsigned);
static pthread_barrier_t all;
static void *volatile lost;

static void *work(void *argument)
{
    use((unsigned)(uintptr_t)argument);
    pthread_barrier_wait(&all);
    if (argument)
        return NULL;
    for (;;)
        pause();
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS + 1];
    unsigned i;
    void *library;

    if (argc != 3)
        stage_fail("usage: ended RECORD LIBRARY");
    uint64_t *record = stage_record(argv[1], 16);
    library = dlopen(argv[2], RTLD_NOW);
    use = library ? (void (*)(unsigned))dlsym(library, "use_thread_local") : NULL;
    if (!use)
        stage_fail("the library cannot be loaded");
    pthread_barrier_init(&all, NULL, THREADS + 1);
    for (i = 0; i <= THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i);
    for (i = 1; i <= THREADS; i++)
        pthread_join(threads[i], NULL);
    lost = malloc(12345);
    record[0] = ~(uint64_t)(uintptr_t)lost;
    lost = NULL;
    stage_deepen();
    stage_forget_vectors();
    stage_ready(1);
    for (;;)
        stage_command();
}
