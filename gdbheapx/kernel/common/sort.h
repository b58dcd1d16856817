/* Numbers sorted in slices. */
#ifndef HEAPX_SORT_H
#define HEAPX_SORT_H

#include <stddef.h>
#include <stdint.h>

#define SORT_BITS 11u
#define SORT_DIGITS (1u << SORT_BITS)

/* Least significant digit first; digits that all numbers share are passed over. */
struct sort {
    uint64_t *values, *spare;   /* both the caller's; after the last slice `values` is sorted */
    size_t count, place;
    unsigned shift;
    int step;
    uint64_t common;            /* bits in which numbers differ */
    size_t starts[SORT_DIGITS];
};

/* `spare`: as much room as `values`. */
void sort_open(struct sort *sort, uint64_t *values, uint64_t *spare, size_t count);

/* Works until the deadline: 1 if there is more to do. */
int sort_slice(struct sort *sort, double deadline);

#endif
