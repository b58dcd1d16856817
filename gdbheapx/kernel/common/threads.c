/* Threads of the kernel's own for the length of one slice of work. */
#define _GNU_SOURCE
#include "threads.h"

#include <pthread.h>
#include <signal.h>

#define STACK_BYTES (256u << 10)

/* They take no signal: all of them stay with the program's own threads. */
static unsigned start(pthread_t *threads, thread_work work, char *items, size_t item_bytes, unsigned count)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    unsigned started = 0;
    if (!count || pthread_attr_init(&attributes))
        return 0;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < count && !pthread_create(&threads[started], &attributes, work, items + started * item_bytes))
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

void threads_run(thread_work work, void *items, size_t item_bytes, unsigned count)
{
    pthread_t threads[MAX_THREADS];
    char *first = items;
    if (count > MAX_THREADS)
        count = MAX_THREADS;
    unsigned started = count ? start(threads, work, first + item_bytes, item_bytes, count - 1) : 0;
    if (count)
        work(first);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}
