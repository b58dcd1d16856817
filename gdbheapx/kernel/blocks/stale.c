/* Notes of words that may own nothing, taken while memory is read. */
#include "stale.h"

/* What may be a string or a vector, as it is noted while memory is read. Without room for one more none of the notes is of use. */
static void note(struct stale *stale, struct grown *list, const void *one, size_t size)
{
    void *place = grown_add(list, size);
    stale->is_lost |= !place;
    if (place)
        memcpy(place, one, size);
}

void stale_body(struct stale *stale, uint64_t address, uint64_t from, uint64_t room, unsigned kind)
{
    const struct stale_body body = {address, (uint32_t) room, (uint32_t) from & (INT32_MAX >> 1), kind & 3};
    note(stale, &stale->bodies, &body, sizeof body);
}

void stale_word(struct stale *stale, uint64_t address, uint64_t room, uint64_t node, uint64_t slot)
{
    const struct stale_word word = {address, (uint32_t) room, (uint32_t) node, (uint32_t) slot};
    if (slot <= UINT32_MAX)
        note(stale, &stale->words, &word, sizeof word);
}

void stale_table(struct stale *stale, uint64_t control, uint64_t mask, uint64_t node)
{
    const struct stale_table table = {control, (uint32_t) node, 64u - (unsigned) __builtin_clzll(mask)};
    note(stale, &stale->tables, &table, sizeof table);
}

void stale_tail(struct stale *stale, uint64_t node, uint64_t slot, int32_t count)
{
    const struct stale_tail tail = {(uint32_t) node, (uint32_t) slot, count};
    note(stale, &stale->tails, &tail, sizeof tail);
}

void stale_join(struct stale *stale, const struct stale *part, uint64_t node)
{
    const struct stale_body *bodies = part->bodies.items;
    const struct stale_word *words = part->words.items;
    const struct stale_table *tables = part->tables.items;
    const struct stale_tail *tails = part->tails.items;
    for (uint64_t i = 0; i < part->bodies.count; i++)
        note(stale, &stale->bodies, &bodies[i], sizeof *bodies);
    for (uint64_t i = 0; i < part->words.count; i++)
        stale_word(stale, words[i].address, words[i].room, node + words[i].node, words[i].slot);
    for (uint64_t i = 0; i < part->tables.count; i++)
        stale_table(stale, tables[i].control, (UINT64_C(1) << tables[i].power) - 1, node + tables[i].node);
    for (uint64_t i = 0; i < part->tails.count; i++)
        stale_tail(stale, node + tails[i].node, tails[i].slot, tails[i].count);
    stale->is_lost |= part->is_lost;
}
