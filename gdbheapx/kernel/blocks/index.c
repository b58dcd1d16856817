/* The index of blocks: filled in ascending order, then asked. */
#define _GNU_SOURCE
#include "index.h"

#include <stdlib.h>
#include <sys/mman.h>

#define LINE_PLACES 64u
#define FIRST_ROOM 4096u
#define MOST_CROSSED (1u << 21)     /* ends of slots within ranges: all of 47 bits of addresses */
#define MOST_SPAN (1ull << 56)      /* no machine's user space is larger */

static size_t lines_bytes(const struct index *index)
{
    return (size_t) (SLOT_BYTES >> index->shift) / LINE_PLACES * sizeof(struct line);
}

static int add_slots(struct index *index, const uint64_t *ranges, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (ranges[2 * i] >= ranges[2 * i + 1])
            continue;
        for (uint64_t at = ranges[2 * i] >> SLOT_SHIFT; at <= (ranges[2 * i + 1] - 1) >> SLOT_SHIFT; at++) {
            uint32_t *place = &index->table[at - (index->low >> SLOT_SHIFT)];
            if (*place)
                continue;
            if (!has_room(&index->slots, index->slot_count, &index->slot_room, sizeof *index->slots))
                return 0;
            index->slots[index->slot_count] = (struct slot) {.begin = at << SLOT_SHIFT, .plain_from = UINT32_MAX};
            *place = ++index->slot_count;
        }
    }
    return 1;
}

/* Lines for the slots that are there. */
static int add_lines(struct index *index)
{
    index->lined_slots = index->slot_count;
    index->lines = lazy_alloc(index->lined_slots * lines_bytes(index));
    for (uint32_t i = 0; index->lines && i < index->lined_slots; i++)
        index->slots[i].lines = index->lines + i * (lines_bytes(index) / sizeof(struct line));
    return index->lines != NULL;
}

/* `crossed`: how many ends of slots lie within these ranges. */
static void widen(uint64_t *low, uint64_t *high, uint64_t *crossed, const uint64_t *ranges, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (ranges[2 * i] < ranges[2 * i + 1])
            *crossed += ((ranges[2 * i + 1] - 1) >> SLOT_SHIFT) - (ranges[2 * i] >> SLOT_SHIFT);
        if (ranges[2 * i] < *low)
            *low = ranges[2 * i];
        if (ranges[2 * i + 1] > *high)
            *high = ranges[2 * i + 1];
    }
}

int index_open(struct index *index, unsigned shift, const uint64_t *ranges, uint64_t count, const uint64_t *others, uint64_t other_count)
{
    uint64_t low = UINT64_MAX, high = 0, crossed = 0;
    memset(index, 0, sizeof *index);
    index->shift = shift;
    widen(&low, &high, &crossed, ranges, count);
    widen(&low, &high, &crossed, others, other_count);
    if (low >= high)
        return 1;
    if (high - low > MOST_SPAN || crossed > MOST_CROSSED)
        return 0;
    index->low = low >> SLOT_SHIFT << SLOT_SHIFT;
    index->span = high - index->low;
    index->table = lazy_alloc((size_t) ((index->span >> SLOT_SHIFT) + 1) * sizeof *index->table);
    return index->table && add_slots(index, ranges, count) && add_lines(index) && add_slots(index, others, other_count);
}

void index_close(struct index *index)
{
    lazy_free(index->lines, index->lined_slots * lines_bytes(index));
    if (index->table)
        lazy_free(index->table, (size_t) ((index->span >> SLOT_SHIFT) + 1) * sizeof *index->table);
    free(index->in_order);
    free(index->slots);
    lazy_free(index->sizes, (size_t) index->room * sizeof *index->sizes);
    free(index->large);
    memset(index, 0, sizeof *index);
}

int index_reserve(struct index *index, uint64_t count)
{
    if (index->room - index->blocks >= count)
        return 1;
    const uint64_t room = index->room + index->room / 2 + count + FIRST_ROOM;
    uint16_t *more = dense_grow(index->sizes, (size_t) index->room * sizeof *more, (size_t) room * sizeof *more);
    if (!more)
        return 0;
    index->sizes = more;
    index->room = room;
    return 1;
}

static int add_large(struct index *index, uint32_t id, uint64_t size)
{
    if (!has_room(&index->large, index->large_count, &index->large_room, sizeof *index->large))
        return 0;
    index->large[index->large_count++] = (struct large_block) {id, size};
    return 1;
}

int index_add(struct index *index, uint64_t address, uint64_t size)
{
    const uint32_t number = slot_at(index, address);
    if (!number || !index->slots[number - 1].lines || (index->blocks && address <= index->last_address)
        || address & ((1ull << index->shift) - 1) || !size || size % 4)
        return 0;
    const int is_large = size / 4 >= SIZE_ELSEWHERE;
    if (!index_reserve(index, 1) || (is_large && !add_large(index, (uint32_t) index->blocks, size)))
        return -2;
    struct slot *slot = index->current = &index->slots[number - 1];
    const uint64_t place = (address - slot->begin) >> index->shift;
    const uint32_t line = (uint32_t) (place / LINE_PLACES);
    if (index->is_part && !index->edge)
        index->edge = &slot->lines[line];
    const int is_edge = &slot->lines[line] == index->edge;
    *(is_edge ? &index->edge_bits : &slot->lines[line].bits) |= 1ull << place % LINE_PLACES;
    slot->plain_from = is_edge ? line + 1 : slot->end ? slot->plain_from : line;
    if (!slot->end)
        slot->first = line;
    slot->end = line + 1;
    index->sizes[index->blocks++] = is_large ? SIZE_ELSEWHERE : (uint16_t) (size / 4);
    index->last_address = address;
    return 1;
}

int index_open_part(struct index *part, const struct index *index)
{
    memset(part, 0, sizeof *part);
    part->shift = index->shift;
    part->low = index->low;
    part->span = index->span;
    part->table = index->table;
    part->slot_count = part->slot_room = index->slot_count;
    part->lined_slots = index->lined_slots;
    part->is_part = 1;
    part->slots = malloc((index->slot_count + 1) * sizeof *part->slots);
    if (part->slots)
        memcpy(part->slots, index->slots, index->slot_count * sizeof *part->slots);
    return part->slots != NULL;
}

void index_close_part(struct index *part)
{
    part->table = NULL;
    index_close(part);
}

int index_join(struct index *index, const struct index *part)
{
    if (!index_reserve(index, part->blocks))
        return 0;
    if (part->edge)
        part->edge->bits |= part->edge_bits;
    for (uint32_t i = 0; i < index->lined_slots; i++) {
        const struct slot *from = &part->slots[i];
        struct slot *to = &index->slots[i];
        to->first = to->end ? to->first : from->first;
        to->end = from->end ? from->end : to->end;
    }
    for (uint64_t i = 0; i < part->large_count; i++)
        if (!add_large(index, (uint32_t) index->blocks + part->large[i].id, part->large[i].size))
            return 0;
    if (part->blocks) {
        memcpy(index->sizes + index->blocks, part->sizes, (size_t) part->blocks * sizeof *index->sizes);
        index->blocks += part->blocks;
        index->last_address = part->last_address;
    }
    return 1;
}

void index_clear(struct index *index)
{
    const size_t bytes = index->lined_slots * lines_bytes(index);
    if (index->lines && madvise(index->lines, bytes, MADV_DONTNEED))
        memset(index->lines, 0, bytes);
}

static void settle_slot(const struct index *index, struct slot *slot, uint32_t *rank, uint64_t *last)
{
    uint32_t place = BEFORE_SLOT;
    slot->rank_before = *rank;
    slot->last_before = *last;
    for (uint32_t i = slot->first; i < slot->end; i++) {
        struct line *line = &slot->lines[i];
        line->rank = *rank;
        line->last = place;
        if (line->bits) {
            *rank += bits_in(line->bits);
            place = i * LINE_PLACES + 63u - (unsigned) __builtin_clzll(line->bits);
            *last = slot->begin + ((uint64_t) place << index->shift);
        }
    }
    slot->rank_after = *rank;
    slot->last_after = *last;
}

int index_settle(struct index *index)
{
    uint32_t rank = 0;
    uint64_t last = 0;
    uint64_t *places = malloc((index->slot_count + 1) * sizeof *places);   /* where each slot begins, and its number */
    index->in_order = malloc((index->slot_count + 1) * sizeof *index->in_order);
    for (uint32_t i = 0; places && i < index->slot_count; i++)
        places[i] = index->slots[i].begin | i;
    const int is_sorted = places && index->in_order && heapx_sort(places, index->slot_count);
    for (uint32_t i = 0; is_sorted && i < index->slot_count; i++) {
        index->in_order[i] = &index->slots[places[i] & (SLOT_BYTES - 1)];
        settle_slot(index, index->in_order[i], &rank, &last);
    }
    free(places);
    return is_sorted;
}

uint64_t index_large_size(const struct index *index, uint32_t id)
{
    uint64_t low = 0, high = index->large_count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (index->large[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < index->large_count && index->large[low].id == id ? index->large[low].size : 0;
}

/* The line of the slot in which the block is: the last one whose rank is not above its id. */
static uint32_t line_in(const struct slot *slot, uint32_t id)
{
    uint32_t low = slot->first, high = slot->end;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (slot->lines[middle].rank <= id)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void index_seek(const struct index *index, struct index_cursor *cursor, uint32_t id)
{
    uint32_t low = 0, high = index->slot_count;
    while (low < high) {    /* the first slot with blocks beyond `id` */
        const uint32_t middle = low + (high - low) / 2;
        if (index->in_order[middle]->rank_after <= id)
            low = middle + 1;
        else
            high = middle;
    }
    memset(cursor, 0, sizeof *cursor);
    cursor->slot = low;
    if (low == index->slot_count) {     /* behind the last */
        cursor->line = low ? index->in_order[low - 1]->end : 0;
        return;
    }
    const struct slot *slot = index->in_order[low];
    const uint32_t line = line_in(slot, id);
    cursor->slot++;
    cursor->line = line + 1;
    cursor->bits = slot->lines[line].bits;
    for (uint32_t left = id - slot->lines[line].rank; left && cursor->bits; left--)
        cursor->bits &= cursor->bits - 1;
}

/* Where the block begins. */
uint64_t index_address(const struct index *index, uint32_t id)
{
    struct index_cursor cursor;
    index_seek(index, &cursor, id);
    return index_next(index, &cursor);
}

uint64_t index_next(const struct index *index, struct index_cursor *cursor)
{
    while (!cursor->bits) {
        if (cursor->slot && cursor->line < index->in_order[cursor->slot - 1]->end) {
            cursor->bits = index->in_order[cursor->slot - 1]->lines[cursor->line++].bits;
        } else {
            if (cursor->slot == index->slot_count)
                return 0;
            cursor->line = index->in_order[cursor->slot++]->first;
        }
    }
    const uint64_t place = (uint64_t) (cursor->line - 1) * LINE_PLACES + (unsigned) __builtin_ctzll(cursor->bits);
    cursor->bits &= cursor->bits - 1;
    return index->in_order[cursor->slot - 1]->begin + (place << index->shift);
}
