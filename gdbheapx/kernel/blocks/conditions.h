/* What a signer asks of a block: rows of conditions. */
#ifndef HEAPX_CONDITIONS_H
#define HEAPX_CONDITIONS_H

#include "../common/heapx.h"
#include "gdbheapx_blocks.h"

/* Numbers, by hash; or ranges, sorted. */
struct number_set {
    uint64_t *numbers;
    uint64_t count, places;             /* places: a power of two; 0: ranges */
    uint64_t low, high;
};

/* All rows of a signer. */
struct asked_rows {
    const struct condition *conditions;
    const struct row_numbers *rows;
    uint64_t row_count;
    const struct number_set *sets;
    unsigned swap;
};

#endif
