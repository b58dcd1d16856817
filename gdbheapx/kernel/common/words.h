/* Words, sorted rows and texts, as they lie in memory. */
#ifndef HEAPX_WORDS_H
#define HEAPX_WORDS_H

#include "gdbheapx.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Words of a target are not in this machine's order. */
static inline unsigned is_swapped(uint64_t little_endian)
{
    const uint16_t probe = 1;
    return *(const uint8_t *) &probe != (little_endian != 0);
}

static inline uint64_t load_word(const uint8_t *from, unsigned word, unsigned swap)
{
    if (word == 8) {
        uint64_t value;
        memcpy(&value, from, 8);
        return swap ? __builtin_bswap64(value) : value;
    } else {
        uint32_t value;
        memcpy(&value, from, 4);
        return swap ? __builtin_bswap32(value) : value;
    }
}

/* How many rows begin with a number up to `limit`; they are sorted by it. */
static inline uint64_t rows_up_to(const void *rows, uint64_t count, size_t row_bytes, uint64_t limit)
{
    uint64_t low = 0, high = count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (*(const uint64_t *) ((const uint8_t *) rows + row_bytes * middle) <= limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Where the first of these sorted numbers stands that is not below `least`; `count`: none. */
static inline uint64_t first_short_from(const uint32_t *numbers, uint64_t count, uint32_t least)
{
    uint64_t low = 0;
    while (low < count) {
        const uint64_t middle = low + (count - low) / 2;
        if (numbers[middle] < least)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

/* The range that holds the address: its place + 1; 0: none does. `ranges`: begin and end of each, sorted, without overlap. */
static inline uint64_t range_at(const uint64_t *ranges, uint64_t count, uint64_t address)
{
    const uint64_t low = rows_up_to(ranges, count, 2 * sizeof *ranges, address);
    return low && address < ranges[2 * low - 1] ? low : 0;
}


/* records.histogram_class: exact to 1,024 bytes, above that four steps per power of two, upper bound included. */
static inline unsigned histogram_class(uint64_t size, unsigned shift)
{
    if (size <= HISTOGRAM_EXACT_BYTES)
        return (unsigned) (size >> shift);
    unsigned power = 63u - (unsigned) __builtin_clzll(size - 1);
    unsigned step = (unsigned) ((size - 1) >> (power - 2)) & 3u;
    return (HISTOGRAM_EXACT_BYTES >> shift) + 1 + (power - 10) * 4 + step;
}

/* 0: it has something else than digits. No strtoull: since 2023 some headers make a call of it that other C libraries lack. */
static inline uint64_t number_in(const char *text)
{
    uint64_t number = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        number = 10 * number + (uint64_t) (*text - '0');
    return *text ? 0 : number;
}

#endif
