/* What may be a string or a vector, as it is noted while memory is read: see stale.h. */
#include "stale.h"

#include "../common/heapx.h"

#include <stdlib.h>

/* Room for one more; without it none of the notes is of use. */
static int has_room(struct stale *stale, void **items, uint64_t count, uint64_t *room, size_t size)
{
    if (count < *room)
        return 1;
    const uint64_t wanted = *room ? *room + *room / 2 : 1024;
    void *more = realloc(*items, (size_t) wanted * size);
    stale->is_lost |= !more;
    *items = more ? more : *items;
    *room = more ? wanted : *room;
    return more != NULL;
}

void stale_body(struct stale *stale, uint64_t address, uint64_t from, uint64_t room, unsigned kind)
{
    if (has_room(stale, (void **) &stale->bodies, stale->body_count, &stale->body_room, sizeof *stale->bodies))
        stale->bodies[stale->body_count++] = (struct stale_body) {address, (uint32_t) room, (uint32_t) from & (INT32_MAX >> 1), kind & 3};
}

void stale_word(struct stale *stale, uint64_t address, uint64_t room, uint64_t node, uint64_t slot)
{
    if (slot <= UINT32_MAX && has_room(stale, (void **) &stale->words, stale->word_count, &stale->word_room, sizeof *stale->words))
        stale->words[stale->word_count++] = (struct stale_word) {address, (uint32_t) room, (uint32_t) node, (uint32_t) slot};
}

void stale_table(struct stale *stale, uint64_t control, uint64_t mask, uint64_t node)
{
    if (has_room(stale, (void **) &stale->tables, stale->table_count, &stale->table_room, sizeof *stale->tables))
        stale->tables[stale->table_count++] = (struct stale_table) {control, (uint32_t) node, 64u - (unsigned) __builtin_clzll(mask)};
}

void stale_tail(struct stale *stale, uint64_t node, uint64_t slot, int32_t count)
{
    if (has_room(stale, (void **) &stale->tails, stale->tail_count, &stale->tail_room, sizeof *stale->tails))
        stale->tails[stale->tail_count++] = (struct stale_tail) {(uint32_t) node, (uint32_t) slot, count};
}

void stale_settle(struct stale *stale)
{
    struct stale tails = {.tails = stale->tails, .tail_count = stale->tail_count, .tail_room = stale->tail_room};
    free(stale->tables);
    free(stale->bodies);
    free(stale->words);
    *stale = tails;
}

void stale_free(struct stale *stale)
{
    stale_settle(stale);
    free(stale->tails);
    memset(stale, 0, sizeof *stale);
}

void stale_join(struct stale *stale, const struct stale *part, uint64_t node)
{
    for (uint64_t i = 0; i < part->body_count; i++)
        stale_body(stale, part->bodies[i].address, part->bodies[i].from, part->bodies[i].room, part->bodies[i].kind);
    for (uint64_t i = 0; i < part->word_count; i++)
        stale_word(stale, part->words[i].address, part->words[i].room, node + part->words[i].node, part->words[i].slot);
    for (uint64_t i = 0; i < part->table_count; i++)
        stale_table(stale, part->tables[i].control, (UINT64_C(1) << part->tables[i].power) - 1, node + part->tables[i].node);
    for (uint64_t i = 0; i < part->tail_count; i++)
        stale_tail(stale, node + part->tails[i].node, part->tails[i].slot, part->tails[i].count);
    stale->is_lost |= part->is_lost;
}
