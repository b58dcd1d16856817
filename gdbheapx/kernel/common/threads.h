/* Threads for the length of one slice of work. */
#ifndef HEAPX_THREADS_H
#define HEAPX_THREADS_H

#include <stddef.h>

#define MAX_THREADS 8u

typedef void *(*thread_work)(void *item);

/* Calls work(item) for each of `count` items side by side, the first of them here; returns when all are done. Where a thread cannot be
   made its item is not worked on: whoever calls takes up the rest in the next slice. */
void threads_run(thread_work work, void *items, size_t item_bytes, unsigned count);

#endif
