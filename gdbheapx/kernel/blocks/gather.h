/* One read of blocks, as far as it came: by one thread (gather.c), or in parts (parts.c). */
#ifndef HEAPX_GATHER_H
#define HEAPX_GATHER_H

#include "graph.h"

struct parts;

struct gathering {
    struct block_source *blocks;
    const uint64_t *own;            /* the caller's: addresses inside blocks that are the allocator's own, sorted */
    uint64_t own_count, next_own;
    struct parts *parts;            /* NULL: it is not read in parts */
    int is_split;                   /* that was tried */
    struct parts *asked;            /* others may ask who reads this */
    struct row_buffer held;
    uint64_t next;
    uint64_t until[ROWS_AT_ONCE];   /* where the used blocks end that follow each other closely from here on */
};

struct gathering *heapx_gather_new(struct block_source *blocks, const uint64_t *own, uint64_t own_count);
void heapx_gather_free(struct gathering *gathering);

/* Goes on until the deadline. As heapx_gather_slice. */
int64_t gather_rows(struct graph *graph, struct gathering *gathering, double deadline);

/* ---- parts.c ---- */

/* The blocks are read in parts from now on, if that is worth it. 0, or NO_MEMORY. */
int parts_open(struct graph *graph, struct gathering *gathering);
void parts_free(struct parts *parts);
/* How many of the parts are read, in thousandths. Between two slices no thread reads. */
uint64_t parts_done(const struct parts *parts);

/* As heapx_gather_slice; OUTSIDE: they cannot be read in parts, nothing was read. */
int64_t parts_slice(struct parts *parts, double deadline);

/* Answers who waits. 0: there is no point in going on. */
int parts_serve(struct parts *parts);

#endif
