/* Labels of blocks: which blocks have one of some, and all of them by other numbers. */
#include "../common/heapx.h"
#include "gdbheapx_blocks.h"

/* Blocks whose label is `wanted`, the first `room` of them; `wanted`: by label 1, or 0. Returns how many were written. */
uint64_t heapx_labelled(const uint32_t *labels, uint64_t blocks, const uint8_t *wanted, uint64_t label_count, uint32_t *out, uint64_t room)
{
    uint64_t count = 0;
    for (uint64_t block = 0; block < blocks && count < room; block++)
        if (labels[block] < label_count && wanted[labels[block]])
            out[count++] = (uint32_t) block;
    return count;
}

/* `out`: of each block the number of its label, in `bytes` (1, 2 or 4), little endian. 0, or 1: a label has no number. */
int heapx_renumber(const uint32_t *labels, uint64_t blocks, const uint32_t *numbers, uint64_t label_count, unsigned bytes, uint8_t *out)
{
    for (uint64_t block = 0; block < blocks; block++) {
        if (labels[block] >= label_count)
            return 1;
        for (unsigned i = 0; i < bytes; i++)
            *out++ = (uint8_t) (numbers[labels[block]] >> 8 * i);
    }
    return 0;
}
