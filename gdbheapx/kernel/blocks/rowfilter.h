/* Which rows of a signer a block cannot meet, told by its size and a few of its bytes: all rows at once, one bit each. */
#ifndef HEAPX_ROWFILTER_H
#define HEAPX_ROWFILTER_H

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

#define FILTER_ROWS 64u
#define FILTER_PLACES 12u               /* bytes that are looked at, at most */
#define FILTER_AT_ONCE 4u               /* so many of them without a question in between: branches cost more */
#define FILTER_BYTES 64u                /* they are among these */
#define FILTER_SIZES 128u               /* steps of eight bytes; the last one: so many, or more */

/* Of up to FILTER_ROWS rows, from `first` on. */
struct row_filter {
    uint64_t first;
    uint64_t by_size[FILTER_SIZES + 1];
    unsigned place_count;               /* at least FILTER_AT_ONCE */
    unsigned furthest;                  /* of the first FILTER_AT_ONCE */
    unsigned places[FILTER_PLACES];
    uint64_t by_byte[FILTER_PLACES][256];
};

/* Filters of all rows, one for each FILTER_ROWS of them; NULL: no memory. free() frees them. */
struct row_filter *row_filters_new(const struct asked_rows *asked);

/* Rows that may be met. What is set here has still to be asked, from the lowest bit on. */
static inline uint64_t filter_rows(const struct row_filter *filter, uint64_t usable, const uint8_t *bytes, uint64_t length)
{
    uint64_t rows = filter->by_size[usable / 8 < FILTER_SIZES ? usable / 8 : FILTER_SIZES];
    unsigned next = 0;
    if (filter->furthest < length)
        for (; next < FILTER_AT_ONCE; next++)
            rows &= filter->by_byte[next][bytes[filter->places[next]]];
    for (; rows && next < filter->place_count; next++)
        if (filter->places[next] < length)
            rows &= filter->by_byte[next][bytes[filter->places[next]]];
    return rows;
}

#endif
