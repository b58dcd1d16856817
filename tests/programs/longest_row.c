#include "tally.h"
__attribute__((visibility("default"))) uint32_t longest_row(const uint64_t *keys, uint32_t count);
uint32_t longest_row(const uint64_t *keys, uint32_t count)
{
    struct tally tally;
    uint32_t row = 0, longest = 0;
    if (!tally_open(&tally, 64))
        return UINT32_MAX;
    for (uint32_t i = 0; i < count; i++)
        *tally_at(&tally, keys[i]) = i;
    for (uint32_t i = 0; i < count; i++)
        if (*tally_find(&tally, keys[i]) != i)
            return UINT32_MAX;
    for (uint32_t at = 0; at < tally.room; at++) {
        row = tally.keys[at] ? row + 1 : 0;
        longest = row > longest ? row : longest;
    }
    tally_close(&tally);
    return longest;
}
