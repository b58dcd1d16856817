/* Numbers in order: least significant digit first; digits that all numbers share are passed over, and so is what is in order already. */
#include "heapx.h"

#define SORT_BITS 11u
#define SORT_DIGITS (1u << SORT_BITS)

static void reverse(uint64_t *values, uint64_t count)
{
    for (uint64_t i = 0; i < count / 2; i++) {
        uint64_t value = values[i];
        values[i] = values[count - 1 - i];
        values[count - 1 - i] = value;
    }
}

/* The bits in which numbers differ; 0 if they are in order now, either way round before. */
static uint64_t bits_to_sort(uint64_t *values, uint64_t count)
{
    uint64_t bits = 0, rises = 0, falls = 0;
    for (uint64_t i = 1; i < count; i++) {
        bits |= values[i] ^ values[0];
        rises += values[i] > values[i - 1];
        falls += values[i] < values[i - 1];
    }
    if (falls && !rises)
        reverse(values, count);
    return rises && falls ? bits : 0;
}

static void sort_digit(const uint64_t *values, uint64_t *to, uint64_t count, unsigned shift)
{
    uint64_t starts[SORT_DIGITS] = {0}, sum = 0;
    for (uint64_t i = 0; i < count; i++)
        starts[values[i] >> shift & (SORT_DIGITS - 1)]++;
    for (unsigned digit = 0; digit < SORT_DIGITS; digit++) {
        const uint64_t here = starts[digit];
        starts[digit] = sum;
        sum += here;
    }
    for (uint64_t i = 0; i < count; i++)
        to[starts[values[i] >> shift & (SORT_DIGITS - 1)]++] = values[i];
}

/* Sorts the caller's numbers where they are, all at once: ten million take 0.1 s. 0: there is no memory for that. */
int heapx_sort(uint64_t *values, uint64_t count)
{
    const uint64_t bits = bits_to_sort(values, count);
    const size_t bytes = (size_t) count * sizeof *values;
    uint64_t *spare = bits ? big_alloc(bytes) : NULL, *from = values, *to = spare;
    unsigned shift = 0;
    if (!bits)
        return 1;
    if (!spare)
        return 0;
    while (!(bits >> shift & 1))
        shift++;    /* addresses are multiples of something */
    for (; shift < 64; shift += SORT_BITS) {
        if (!(bits >> shift & (SORT_DIGITS - 1)))
            continue;
        sort_digit(from, to, count, shift);
        uint64_t *sorted = to;
        to = from;
        from = sorted;
    }
    if (from != values)
        memcpy(values, from, bytes);
    big_free(spare, bytes);
    return 1;
}
