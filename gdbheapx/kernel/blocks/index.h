/* Which block holds an address: one bit for each place where a used block may begin, and per 64 of them the rank of the first, so that a
   block's number is its rank by address and every table about blocks is a plain array. */
#ifndef HEAPX_INDEX_H
#define HEAPX_INDEX_H

#include "../common/heapx.h"
#include "gdbheapx_blocks.h"

#define SLOT_BYTES (1ull << SLOT_SHIFT)    /* heaps are sparse: lines are kept for so many bytes at a time */
#define BEFORE_SLOT UINT32_MAX
#define SIZE_ELSEWHERE UINT16_MAX

/* 64 places. */
struct line {
    uint64_t bits;
    uint32_t rank;                          /* blocks that begin before this line */
    uint32_t last;                          /* the last of them: its place within the slot, or BEFORE_SLOT */
};

/* Lines outside [first, end) hold no block and are not touched: 64 MiB are reserved for an arena of a few pages. */
struct slot {
    uint64_t begin;
    struct line *lines;                     /* NULL: no heap here, only mappings */
    uint32_t first, end;
    uint32_t plain_from;                    /* from this line on a block is added without further questions */
    uint32_t rank_before, rank_after;       /* blocks that begin before this slot, and before the next */
    uint64_t last_before, last_after;       /* where the last of them begins */
};

struct large_block {
    uint32_t id;
    uint64_t size;
};

struct index {
    unsigned shift;                         /* log2 of the bytes that one bit stands for */
    uint64_t low, span;                     /* all slots lie in [low, low + span) */
    uint32_t *table;                        /* by (address - low) >> SLOT_SHIFT: number of the slot + 1, or 0 */
    struct slot *slots;                     /* first those with lines */
    uint32_t slot_count;
    uint64_t slot_room;
    struct line *lines;                     /* of the slots, one after the other */
    uint32_t lined_slots;
    struct line *edge;                      /* of a part: where its first block is, whose line may be that of the part before, too; */
    uint64_t edge_bits;                     /* what it has of it */
    int is_part;
    struct slot *current;                   /* that of the block added last */
    struct slot **in_order;                 /* by address, once it is settled */
    uint64_t blocks, room;
    uint64_t last_address;
    uint16_t *sizes;                        /* by id, in units of four bytes, or SIZE_ELSEWHERE */
    struct large_block *large;              /* by id */
    uint64_t large_count, large_room;
};

/* `ranges`: begin and end of each, where blocks may be or (`marks` 0) only mappings; sorted. 0: no memory,
   or there are more addresses between them than any machine has. */
int index_open(struct index *index, unsigned shift, const uint64_t *ranges, uint64_t count, const uint64_t *others, uint64_t other_count);
void index_close(struct index *index);

/* For blocks that follow each other: it writes to the lines of the other, which is empty and stays open longer. 0: no memory. */
int index_open_part(struct index *part, const struct index *index);
void index_close_part(struct index *part);

/* So many more blocks are to come. 0: no memory. */
int index_reserve(struct index *index, uint64_t count);

/* Blocks of a part, all of which lie behind those that are there. 0: no memory. */
int index_join(struct index *index, const struct index *part);

/* What parts have written is gone. */
void index_clear(struct index *index);

/* One more block; they come in ascending order. 1: added, 0: cannot be a block there, -2: no memory. */
int index_add(struct index *index, uint64_t address, uint64_t size);

/* The same, where that is plain: the slot is that of the block before, and there is room. */
static inline int index_add_next(struct index *index, uint64_t address, uint64_t size)
{
    struct slot *slot = index->current;
    const uint64_t within = address - (slot ? slot->begin : 0);
    const uint32_t line = (uint32_t) (within >> (index->shift + 6));
    if (!slot || within >= SLOT_BYTES || line < slot->plain_from || index->blocks == index->room || address <= index->last_address
        || address & ((1ull << index->shift) - 1) || size / 4 >= SIZE_ELSEWHERE || !size || size % 4)
        return index_add(index, address, size);
    slot->lines[line].bits |= 1ull << (within >> index->shift & 63);
    slot->end = line + 1;
    index->sizes[index->blocks++] = (uint16_t) (size / 4);
    index->last_address = address;
    return 1;
}

/* All blocks are there. 0: no memory. */
int index_settle(struct index *index);

uint64_t index_large_size(const struct index *index, uint32_t id);
uint64_t index_address(const struct index *index, uint32_t id);

/* Goes through all blocks by address. */
struct index_cursor {
    uint32_t slot, line;
    uint64_t bits;                  /* of the line, those that are still to come */
};

/* The next block is this one. */
void index_seek(const struct index *index, struct index_cursor *cursor, uint32_t id);

/* Where the next block begins; 0: there is none. */
uint64_t index_next(const struct index *index, struct index_cursor *cursor);

static inline uint64_t index_size(const struct index *index, uint32_t id)
{
    const uint16_t size = index->sizes[id];
    return size == SIZE_ELSEWHERE ? index_large_size(index, id) : (uint64_t) size * 4;
}

static inline uint32_t slot_at(const struct index *index, uint64_t address)
{
    const uint64_t away = address - index->low;
    return away < index->span ? index->table[away >> SLOT_SHIFT] : 0;
}

static inline unsigned bits_in(uint64_t bits)
{
    bits -= bits >> 1 & 0x5555555555555555ull;
    bits = (bits & 0x3333333333333333ull) + (bits >> 2 & 0x3333333333333333ull);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0full;
    return (unsigned) (bits * 0x0101010101010101ull >> 56);
}

/* The block that holds the address which lies in slot number - 1, and how far inside; NO_NODE if none does. */
static inline uint32_t index_find(const struct index *index, uint32_t number, uint64_t address, uint64_t *offset)
{
    const struct slot *slot = &index->slots[number - 1];
    const uint64_t within = address - slot->begin;
    const uint32_t at = (uint32_t) (within >> (index->shift + 6));
    uint64_t begin;
    uint32_t count;
    if (at - slot->first < slot->end - slot->first) {
        const struct line *line = &slot->lines[at];
        const uint64_t below = line->bits & ((2ull << (within >> index->shift & 63)) - 1);
        count = line->rank;
        if (below) {
            count += bits_in(below);
            begin = slot->begin + (((uint64_t) at << 6 | (63u - (unsigned) __builtin_clzll(below))) << index->shift);
        } else {
            begin = line->last == BEFORE_SLOT ? slot->last_before : slot->begin + ((uint64_t) line->last << index->shift);
        }
    } else {
        count = at < slot->first ? slot->rank_before : slot->rank_after;
        begin = at < slot->first ? slot->last_before : slot->last_after;
    }
    if (!count)
        return NO_NODE;
    *offset = address - begin;
    return !*offset || *offset < index_size(index, count - 1) ? count - 1 : NO_NODE;
}

/* The same by the address alone. */
static inline uint32_t index_at(const struct index *index, uint64_t address, uint64_t *offset)
{
    const uint32_t number = slot_at(index, address);
    return number ? index_find(index, number, address, offset) : NO_NODE;
}

/* The block that begins at the address; NO_NODE if none does. */
static inline uint32_t index_begin(const struct index *index, uint64_t address)
{
    uint64_t offset = 0;
    const uint32_t id = index_at(index, address, &offset);
    return offset ? NO_NODE : id;
}

/* An address by slot, in order of their numbers, and the place in it: with this a line is found at once. */
static inline uint64_t packed_address(uint32_t number, uint64_t address)
{
    return (uint64_t) number << SLOT_SHIFT | (address & (SLOT_BYTES - 1));
}

static inline uint64_t packed_line(const struct index *index, uint64_t packed)
{
    return (packed - SLOT_BYTES) >> (index->shift + 6);
}

static inline uint64_t unpacked_address(const struct index *index, uint64_t packed)
{
    return index->slots[(packed >> SLOT_SHIFT) - 1].begin + (packed & (SLOT_BYTES - 1));
}

/* As index_find. */
static inline uint32_t index_find_packed(const struct index *index, uint64_t packed, uint64_t *offset)
{
    const uint32_t number = (uint32_t) (packed >> SLOT_SHIFT);
    if (number <= index->lined_slots) {
        const uint64_t at = packed_line(index, packed);
        const struct line *line = &index->lines[at];
        const uint64_t below = line->bits & ((2ull << (packed >> index->shift & 63)) - 1);
        if (below) {
            const uint32_t id = line->rank + bits_in(below) - 1;
            *offset = packed - SLOT_BYTES - ((at << 6 | (63u - (unsigned) __builtin_clzll(below))) << index->shift);
            return !*offset || *offset < index_size(index, id) ? id : NO_NODE;
        }
    }
    return index_find(index, number, unpacked_address(index, packed), offset);
}

/* The node of the mapping that holds the address: nodes of mappings follow those of blocks. `mappings`: begin and end of each, sorted. */
static inline uint32_t mapping_at(const uint64_t *mappings, uint64_t count, const struct index *index, uint64_t address)
{
    const uint64_t place = range_at(mappings, count, address);
    return place ? (uint32_t) (index->blocks + place - 1) : NO_NODE;
}

#endif
