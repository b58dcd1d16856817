/* Slots of equal size that stand side by side, as allocators cut them: which are free is told by a mask, a list of addresses, or both. */
#ifndef HEAPX_SLOTS_H
#define HEAPX_SLOTS_H

#include "../common/heapx.h"
#include "gdbheapx_blocks.h"

/* What lies in a slot that is in use, where only its own memory tells it. `block` has the whole slot's already. SLOT_READ, SLOT_PAUSED (the
   window was interrupted), or what is wrong there: SLOT_UNREADABLE, or a number of the allocator's own from SLOT_OWN on. Then the whole
   slot's stays, unless the block is known all the same. `is_free`: the slot is free by the mask, and only asked for what is wrong. */
struct slot_block {
    uint64_t address, usable;
};
typedef int (*slot_reader)(struct window *window, const struct slot_run *run, uint64_t slot, int is_free,
                           struct slot_block *block);

/* As heapx_slot_blocks and heapx_slot_tally_new, which have no reader. */
struct block_source *slot_blocks(const struct source *memory, const struct slot_run *runs, uint64_t run_count, const uint64_t *frees,
                                 const uint8_t *free_kinds, uint64_t free_count, const uint8_t *classes, const struct block_wanted *wanted,
                                 slot_reader reader);
struct slot_tally_job *slot_tally(const struct source *memory, const struct slot_run *runs, uint64_t run_count, const uint64_t *frees,
                                  uint64_t free_count, uint64_t labels, slot_reader reader);

#endif
