/* Sweeps: the index is filled before, and the answer is told after. */
#include "sweep_scan.h"

#include <stdlib.h>

#define ROWS 512u

static int is_own(struct sweep *sweep, const uint64_t *own, uint64_t own_count, uint64_t address, uint64_t size)
{
    while (sweep->next_own < own_count && own[sweep->next_own] < address)
        sweep->next_own++;
    return sweep->next_own < own_count && own[sweep->next_own] - address < size;
}

/* Goes through all blocks once; those that hold one of the sorted addresses `own` are left out. 1: there is more; 0: it was all;
   INTERRUPTED; NO_MEMORY. */
int64_t heapx_sweep_fill(struct sweep *sweep, struct block_source *blocks, const uint64_t *own, uint64_t own_count, double seconds)
{
    uint64_t addresses[ROWS], usable[ROWS];
    uint32_t arenas[ROWS];
    uint8_t classes[ROWS], kinds[ROWS];
    const double deadline = clock_now() + seconds;
    do {
        struct block_rows rows = {addresses, usable, classes, kinds, arenas, 0, ROWS};
        if (blocks->state(blocks).ended)
            return 0;
        const int failed = blocks->next(blocks, deadline - clock_now(), &rows);
        if (failed)
            return failed;
        if (!rows.count)
            return !blocks->state(blocks).ended;
        for (uint64_t i = 0; i < rows.count; i++) {
            const uint64_t size = usable[i] & ~(uint64_t) 3;
            if (classes[i] != CLASS_USED || is_own(sweep, own, own_count, addresses[i], size))
                continue;
            const int added = index_add_next(&sweep->index, addresses[i], size);
            if (added < 0)
                return added;
            sweep->odd_blocks += !added && size;
        }
    } while (clock_now() < deadline);
    return 1;
}

/* All blocks are there. 1, or NO_MEMORY. */
int64_t heapx_sweep_settle(struct sweep *sweep)
{
    return index_settle(&sweep->index) && sweep->index.blocks < NO_NODE / 2 ? 1 : NO_MEMORY;
}

unsigned heapx_sweep_evidence(const struct sweep *sweep, uint32_t node)
{
    return has_bit(sweep->marked, node) ? sweep_rule(sweep, node) : LEAKED;
}

/* See heapx_marks_sums. */
void heapx_sweep_sums(const struct sweep *sweep, struct sum *out)
{
    memset(out, 0, (LEAKED + 1) * sizeof *out);
    for (uint32_t id = 0; id < sweep->index.blocks; id++) {
        const unsigned evidence = heapx_sweep_evidence(sweep, id);
        out[evidence].blocks++;
        out[evidence].bytes += index_size(&sweep->index, id);
    }
}

void heapx_sweep_numbers(const struct sweep *sweep, struct sweep_numbers *out)
{
    out->blocks = sweep->index.blocks;
    out->passes = sweep->passes;
    out->bytes_read = sweep->bytes_read;
    out->unread_bytes = sweep->unread_bytes;
    out->unread_at = sweep->unread_at;
    out->odd_blocks = sweep->odd_blocks;
}

/* Who points to the wanted node. Returns how many there are, maybe more than were kept. */
uint64_t heapx_sweep_referrers(const struct sweep *sweep, struct referrer *out, uint64_t room)
{
    const uint64_t count = sweep->referrer_count < room ? sweep->referrer_count : room;
    if (count)
        memcpy(out, sweep->referrers, (size_t) count * sizeof *out);
    return sweep->referrer_count;
}
