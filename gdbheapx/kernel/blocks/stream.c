/* The stream of blocks: one source, or one and the blocks that lie apart from its memory, in the order of addresses. */
#include "../common/heapx.h"
#include "stream.h"

#include <stdlib.h>

#define HELD_ROWS 1024u

/* A source whose rows wait until they are the lowest, and the blocks beside it. */
struct merged {
    struct block_source source;     /* first: a merged is a block_source */
    struct block_source *inner;
    struct block_rows apart;        /* the caller's: sorted */
    uint64_t next_apart;
    struct block_rows held;
    uint64_t next_held;
    uint64_t addresses[HELD_ROWS], usable[HELD_ROWS];
    uint32_t arenas[HELD_ROWS];
    uint8_t classes[HELD_ROWS], kinds[HELD_ROWS];
};

static void rows_copy(struct block_rows *to, const struct block_rows *from, uint64_t first, uint64_t count)
{
    memcpy(to->addresses + to->count, from->addresses + first, count * sizeof *to->addresses);
    memcpy(to->usable + to->count, from->usable + first, count * sizeof *to->usable);
    memcpy(to->classes + to->count, from->classes + first, count);
    memcpy(to->kinds + to->count, from->kinds + first, count);
    memcpy(to->arenas + to->count, from->arenas + first, count * sizeof *to->arenas);
    to->count += count;
}

/* How many of the rows from `first` on lie below `bound`, at most `most`. */
static uint64_t rows_below(const struct block_rows *rows, uint64_t first, uint64_t bound, uint64_t most)
{
    uint64_t count = 0;
    while (count < most && first + count < rows->count && rows->addresses[first + count] < bound)
        count++;
    return count;
}

static int merged_next(struct block_source *self, double seconds, struct block_rows *rows)
{
    struct merged *merged = (struct merged *) self;
    double deadline = clock_now() + seconds;
    const uint64_t before = rows->count;
    merged->inner->keeps = self->keeps;
    while (rows->count < rows->room) {
        const uint64_t room = rows->room - rows->count;
        if (merged->next_held == merged->held.count && !merged->inner->state(merged->inner).ended) {
            if (self->keeps && rows->count > before)
                break;
            const int is_last = merged->next_apart == merged->apart.count;
            merged->held.count = merged->next_held = 0;
            int failed = merged->inner->next(merged->inner, deadline - clock_now(), is_last ? rows : &merged->held);
            if (failed)
                return failed;
            if (is_last || (!merged->held.count && !merged->inner->state(merged->inner).ended))
                break;
            continue;
        }
        if (merged->next_held == merged->held.count) {
            const uint64_t left = merged->apart.count - merged->next_apart, count = left < room ? left : room;
            rows_copy(rows, &merged->apart, merged->next_apart, count);
            merged->next_apart += count;
            if (!count)
                break;
            continue;
        }
        const int has_apart = merged->next_apart < merged->apart.count;
        const uint64_t bound = has_apart ? merged->apart.addresses[merged->next_apart] : UINT64_MAX;
        const uint64_t count = rows_below(&merged->held, merged->next_held, bound, room);
        rows_copy(rows, &merged->held, merged->next_held, count);
        merged->next_held += count;
        if (count < room && merged->next_held < merged->held.count) {
            rows_copy(rows, &merged->apart, merged->next_apart, 1);
            merged->next_apart++;
        }
    }
    return 0;
}

static struct block_state merged_state(const struct block_source *self)
{
    const struct merged *merged = (const struct merged *) self;
    struct block_state state = merged->inner->state(merged->inner);
    if (merged->next_held < merged->held.count) {
        state.ended = 0;
        state.at = merged->held.addresses[merged->next_held] - merged->inner->lead;
    }
    if (merged->next_apart < merged->apart.count) {
        const uint64_t at = merged->apart.addresses[merged->next_apart];
        state.at = state.ended || at < state.at ? at : state.at;
        state.ended = 0;
    }
    return state;
}

static const uint8_t *merged_lend(const struct block_source *self, uint64_t address, uint64_t *length)
{
    const struct block_source *inner = ((const struct merged *) self)->inner;
    return inner->lend ? inner->lend(inner, address, length) : NULL;
}

static int merged_split(const struct block_source *self, unsigned most, struct block_source **out, uint64_t *begins)
{
    const struct merged *merged = (const struct merged *) self;
    const struct block_rows *all = &merged->apart;
    const int count = merged->inner->split ? merged->inner->split(merged->inner, most, out, begins) : 0;
    uint64_t first = 0;
    for (int i = 0; i < count; i++) {
        uint64_t end = first;
        while (end < all->count && (i + 1 == count || all->addresses[end] < begins[i + 1]))
            end++;
        struct block_source *part = heapx_blocks_merge(out[i], all->addresses + first, all->usable + first, all->classes + first,
                                                       all->kinds + first, all->arenas + first, end - first);
        if (!part) {
            for (int k = 0; k < count; k++)
                out[k]->free(out[k]);
            return NO_MEMORY;
        }
        out[i] = part;
        first = end;
    }
    return count;
}

static void merged_free(struct block_source *self)
{
    struct merged *merged = (struct merged *) self;
    merged->inner->free(merged->inner);
    free(merged);
}

/* The source's blocks and those given here, sorted, which stay the caller's. The result owns the source; NULL: no memory, and it is the
   caller's still. */
struct block_source *heapx_blocks_merge(struct block_source *inner, uint64_t *addresses, uint64_t *usable, uint8_t *classes, uint8_t *kinds,
                                        uint32_t *arenas, uint64_t count)
{
    struct merged *merged = calloc(1, sizeof *merged);
    if (!merged)
        return NULL;
    struct block_source source = {0, merged_next, merged_state, merged_free, merged_lend, 0, merged_split};
    struct block_rows apart = {addresses, usable, classes, kinds, arenas, count, count};
    struct block_rows held = {merged->addresses, merged->usable, merged->classes, merged->kinds, merged->arenas, 0, HELD_ROWS};
    merged->source = source;
    merged->inner = inner;
    merged->apart = apart;
    merged->held = held;
    return &merged->source;
}

/* Writes up to `room` rows, for at most about `seconds`. Returns how many, or -2: no memory. heapx_blocks_state says whether that was
   all. */
int64_t heapx_blocks_next(struct block_source *source, double seconds, uint64_t *addresses, uint64_t *usable, uint8_t *classes,
                          uint8_t *kinds, uint32_t *arenas, uint64_t room)
{
    struct block_rows rows = {addresses, usable, classes, kinds, arenas, 0, room};
    int failed = source->next(source, seconds, &rows);
    return failed ? failed : (int64_t) rows.count;
}

/* `out`: ended, stop, at. */
void heapx_blocks_state(const struct block_source *source, struct block_state *out)
{
    *out = source->state(source);
}

void heapx_blocks_free(struct block_source *source)
{
    if (source)
        source->free(source);
}
