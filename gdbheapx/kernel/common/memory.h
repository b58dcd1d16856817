/* Zeroed memory in huge pages where there are some, since it is read at random, NULL if there is none; lists that grow; threads for one
   slice of work. */
#ifndef HEAPX_MEMORY_H
#define HEAPX_MEMORY_H

#include "words.h"

void *big_alloc(size_t bytes);
void big_free(void *memory, size_t bytes);

/* The same for tables of which maybe only a part is used: what is never touched takes nothing. */
void *lazy_alloc(size_t bytes);

/* The same for tables that are filled from the begin on: huge pages. lazy_free() frees it. */
void *dense_alloc(size_t bytes);
void lazy_free(void *memory, size_t bytes);

/* More of dense_alloc(), which may move, without a copy. NULL: no memory, and it stays. */
void *dense_grow(void *memory, size_t before, size_t bytes);

/* `room` becomes larger, and the items to which the pointer at `at` leads may move. 0: no memory, and all stays. */
int grow_room(void *at, uint64_t *room, size_t size);
int grow_dense_room(void *at, uint64_t *room, size_t size);

/* The pointer at `at` leads to items with room for one more. 0: no memory, and they stay. */
static inline int has_room(void *at, uint64_t count, uint64_t *room, size_t size)
{
    return count < *room || grow_room(at, room, size);
}

/* The same of what there may be millions of, in dense_alloc(). */
static inline int has_dense_room(void *at, uint64_t count, uint64_t *room, size_t size)
{
    return count < *room || grow_dense_room(at, room, size);
}

/* Items that become more. */
struct grown {
    void *items;
    uint64_t count, room;
};

/* A place for one more of `size` bytes; NULL: no memory, and all stays. */
void *grown_add(struct grown *grown, size_t size);

/* Copies as many items as there is room for; how many there are. */
uint64_t grown_copy(const struct grown *grown, size_t size, void *to, uint64_t room);

/* Addresses but 0, by hash. */
struct address_set {
    uint64_t *slots, room, count;
};

/* 1: it was not there; 0: it was; NO_MEMORY. */
int address_set_add(struct address_set *set, uint64_t address);

#define MAX_THREADS 8u

typedef void *(*thread_work)(void *item);

/* Calls work(item) for each of `count` items side by side, the first of them here; returns when all are done. Where a thread cannot be
   made its item is not worked on: whoever calls takes up the rest in the next slice. */
void threads_run(thread_work work, void *items, size_t item_bytes, unsigned count);

#endif
