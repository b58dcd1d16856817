/* musl's mallocng: where in its slot a block that is in use begins, and how many bytes were asked for, by its header and the end of the
   slot (get_slot_index, get_nominal_size and enframe of src/malloc/mallocng/meta.h). */
#include "blocks/slots.h"
#include "gdbheapx_musl.h"

#define MARK_SHIFT 5u           /* of the byte before the offset: the index of the slot is below */
#define MARK_GROUP 6u           /* the slot holds a group */
#define MARK_AWAY 7u            /* the block begins further on, by as many units as the offset says */
#define MARK_LONG 5u            /* what is left of the slot stands in the word before its end */

static unsigned half_at(const uint8_t *at, unsigned swap)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return swap ? (unsigned) ((half & 0xff) << 8 | half >> 8) : half;
}

/* From the group's first slot, in units. */
static uint64_t offset_in(const uint8_t *head, unsigned swap)
{
    return head[4] ? load_word(head, 4, swap) : half_at(head + 6, swap);
}

/* That of a block which was freed; malloc writes the offset before the index, and free() takes it away behind it. */
static int is_stale(const uint8_t *head)
{
    return !head[4] && head[5] == 255;
}

/* `swap`: the target's words are not in this machine's order. */
static int read_used(struct window *window, const struct slot_run *run, uint64_t slot, struct slot_block *block, unsigned swap)
{
    const uint64_t index = (slot - run->base - UNIT_BYTES) / run->slot_bytes, end = slot + run->slot_bytes - TRAILER_BYTES;
    const uint8_t *head = window_at(window, slot - 8, 8);
    if (!head)
        return window->interrupted ? SLOT_PAUSED : SLOT_UNREADABLE;
    const int is_away = head[5] == MARK_AWAY << MARK_SHIFT;
    uint64_t begin = slot, offset = offset_in(head, swap);
    if (is_away) {
        begin += UNIT_BYTES * (uint64_t) half_at(head + 6, swap);
        do {    /* a block aligned to more than a MiB has the low half of its offset there */
            if (begin > end)
                return HEADER_HALF;
            head = window_at(window, begin - 8, 8);
            if (!head)
                return window->interrupted ? SLOT_PAUSED : SLOT_UNREADABLE;
            offset = offset_in(head, swap);
            if (is_stale(head))
                return HEADER_STALE;
        } while ((head[5] == MARK_AWAY << MARK_SHIFT || run->base + UNIT_BYTES + UNIT_BYTES * offset != begin)
                 && (begin += UNIT_BYTES << 16) <= end);
        if (begin > end)
            return HEADER_HALF;
    }
    const unsigned mark = head[5] >> MARK_SHIFT;
    if (is_stale(head) || (!head[4] && !head[5] && !head[6] && !head[7] && begin != run->base + UNIT_BYTES))
        return HEADER_STALE;
    const int leads_back = run->base + UNIT_BYTES + UNIT_BYTES * offset == begin;
    if ((head[5] & 31u) != index)
        return is_away || (leads_back && !head[4] && !head[5]) ? HEADER_HALF : HEADER_INDEX;
    if ((head[4] && half_at(head + 6, swap)) || head[4] > 1)
        return HEADER_ZERO;
    if (!leads_back)
        return HEADER_OFFSET;
    const uint8_t *tail = window_at(window, end - 8, 9);
    if (!tail)
        return window->interrupted ? SLOT_PAUSED : SLOT_UNREADABLE;
    uint64_t left = mark;
    if (mark == MARK_LONG) {
        left = load_word(tail + 4, 4, swap);
        if (tail[3])
            return HEADER_ZERO;
    }
    if (mark == MARK_GROUP)
        return HEADER_HALF;
    if (mark > MARK_LONG || (mark == MARK_LONG && left < MARK_LONG) || left > end - begin)
        return HEADER_SLACK;
    block->address = begin;
    block->usable = end - left - begin;
    if (tail[8])
        return HEADER_ZERO;
    if (left) {
        const uint8_t *behind = window_at(window, end - left, 1);
        if (!behind)
            return window->interrupted ? SLOT_PAUSED : SLOT_UNREADABLE;
        if (*behind)
            return HEADER_ZERO;
    }
    return SLOT_READ;
}

/* What a group begins with: the way back to its meta, and, where it lies in a slot of another, the mark before it. */
static int read_head(struct window *window, const struct slot_run *run, uint64_t head, unsigned swap)
{
    const uint64_t meta = run->tag & ~(uint64_t) (TAG_NESTED | TAG_SHORT | TAG_BIG);
    const unsigned lead = run->tag & TAG_NESTED ? UNIT_BYTES : 0, word = run->tag & TAG_SHORT ? 4 : 8;
    const uint8_t *bytes = window_at(window, head - lead, lead + 8);
    if (!bytes)
        return window->interrupted ? SLOT_PAUSED : SLOT_UNREADABLE;
    const uint64_t back = load_word(bytes + lead, word, swap);
    if (back != meta)
        return back ? HEAD_BACK : HEADER_STALE;     /* 0: it is being made, or given up */
    return lead && bytes[lead - 3] >> MARK_SHIFT != MARK_GROUP ? HEAD_MARK : SLOT_READ;
}

static int read_slot(struct window *window, const struct slot_run *run, uint64_t slot, int is_free, struct slot_block *block)
{
    const unsigned swap = is_swapped(!(run->tag & TAG_BIG));
    struct slot_block found = *block;
    const uint8_t *head = is_free ? window_at(window, slot - 8, 8) : NULL;
    if (run->kind == MUSL_METADATA)
        return read_head(window, run, slot, swap);
    if (!is_free)
        return read_used(window, run, slot, block, swap);
    if (head && !head[5] && !head[6] && !head[7])   /* never handed out */
        return SLOT_READ;
    const int state = read_used(window, run, slot, &found, swap);
    return state == SLOT_PAUSED ? state : state == SLOT_READ ? HEADER_USED : SLOT_READ;
}

struct block_source *heapx_musl_blocks(const struct source *memory, const struct slot_run *runs, uint64_t run_count, const uint64_t *frees,
                                       const uint8_t *free_kinds, uint64_t free_count, const uint8_t *classes,
                                       const struct block_wanted *wanted)
{
    return slot_blocks(memory, runs, run_count, frees, free_kinds, free_count, classes, wanted, read_slot);
}

struct slot_tally_job *heapx_musl_tally_new(const struct source *memory, const struct slot_run *runs, uint64_t run_count, const uint64_t *frees,
                                        uint64_t free_count, uint64_t labels)
{
    return slot_tally(memory, runs, run_count, frees, free_count, labels, read_slot);
}
