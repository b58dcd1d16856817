/* Which words of memory may be addresses: an object's writable data has millions, of which few lead to where a heap may lie. */
#include "heapx.h"

/* Writes the places of words that lie in one of the ranges and have none of the bits of `mask`: how many. `ranges`: begin and end of each,
   sorted, without overlap; `places` has room for all. */
uint64_t heapx_words_into(const uint64_t *words, uint64_t count, const uint64_t *ranges, uint64_t range_count, uint64_t mask,
                          uint64_t *places)
{
    const uint64_t low = range_count ? ranges[0] : 1, high = range_count ? ranges[2 * range_count - 1] : 0;
    uint64_t found = 0, near = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t word = words[i];
        if (word < low || word >= high || word & mask)
            continue;
        if (word < ranges[2 * near] || word >= ranges[2 * near + 1]) {
            uint64_t first = 0, last = range_count;     /* the last range that begins at the word or before it */
            while (last - first > 1) {
                const uint64_t middle = first + (last - first) / 2;
                if (ranges[2 * middle] <= word)
                    first = middle;
                else
                    last = middle;
            }
            near = first;
            if (word >= ranges[2 * near + 1])
                continue;
        }
        places[found++] = i;
    }
    return found;
}
