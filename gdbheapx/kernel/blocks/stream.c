/* The stream of blocks: one source, or one and the blocks that lie apart from its memory, in the order of addresses. */
#include "../common/heapx.h"
#include "stream.h"

#include <stdlib.h>
#include <string.h>

/* A source whose rows wait until they are the lowest, and the blocks beside it. */
struct merged {
    struct block_source source;     /* first: a merged is a block_source */
    struct block_source *inner;
    struct block_rows apart;        /* the caller's: sorted */
    uint64_t next_apart;
    struct row_buffer held;
    uint64_t next_held;
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
        if (merged->next_held == merged->held.rows.count && !merged->inner->state(merged->inner).ended) {
            if (self->keeps && rows->count > before)
                break;
            const int is_last = merged->next_apart == merged->apart.count;
            merged->held.rows.count = merged->next_held = 0;
            int failed = merged->inner->next(merged->inner, deadline - clock_now(), is_last ? rows : &merged->held.rows);
            if (failed)
                return failed;
            if (is_last || (!merged->held.rows.count && !merged->inner->state(merged->inner).ended))
                break;
            continue;
        }
        if (merged->next_held == merged->held.rows.count) {
            const uint64_t left = merged->apart.count - merged->next_apart, count = left < room ? left : room;
            rows_copy(rows, &merged->apart, merged->next_apart, count);
            merged->next_apart += count;
            if (!count)
                break;
            continue;
        }
        const int has_apart = merged->next_apart < merged->apart.count;
        const uint64_t bound = has_apart ? merged->apart.addresses[merged->next_apart] : UINT64_MAX;
        const uint64_t count = rows_below(&merged->held.rows, merged->next_held, bound, room);
        rows_copy(rows, &merged->held.rows, merged->next_held, count);
        merged->next_held += count;
        if (count < room && merged->next_held < merged->held.rows.count) {
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
    if (merged->next_held < merged->held.rows.count) {
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
    merged->source = (struct block_source) {0, merged_next, merged_state, merged_free, merged_lend, 0, merged_split};
    merged->inner = inner;
    merged->apart = (struct block_rows) {addresses, usable, classes, kinds, arenas, count, count};
    rows_open(&merged->held);
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

/* ---- several streams as one ---- */

/* Several streams of blocks as one, in the order of addresses: a process may have more than one heap. */

struct stream_lane {
    struct block_source *source;    /* the caller's */
    uint64_t next;
    struct row_buffer held;
};

struct joined {
    struct block_source source;     /* first: a joined is a block_source */
    uint64_t count;
    struct stream_lane lanes[];
};

/* Every lane has a row or has ended: 1; not yet: 0; NO_MEMORY. `held`: bytes at hand are lent, no lane may go on. */
static int lanes_ready(struct joined *joined, int held, double deadline)
{
    int ready = 1;
    for (uint64_t i = 0; i < joined->count; i++) {
        struct stream_lane *lane = &joined->lanes[i];
        if (lane->next < lane->held.rows.count || lane->source->state(lane->source).ended)
            continue;
        if (held)
            return 0;
        lane->held.rows.count = lane->next = 0;
        lane->source->keeps = joined->source.keeps;
        int failed = lane->source->next(lane->source, deadline - clock_now(), &lane->held.rows);
        if (failed)
            return failed;
        ready &= lane->held.rows.count || lane->source->state(lane->source).ended;
    }
    return ready;
}

static int joined_next(struct block_source *self, double seconds, struct block_rows *rows)
{
    struct joined *joined = (struct joined *) self;
    const double deadline = clock_now() + seconds;
    const uint64_t before = rows->count;
    while (rows->count < rows->room) {
        struct stream_lane *lowest = NULL;
        int ready = lanes_ready(joined, self->keeps && rows->count > before, deadline);
        if (ready <= 0)
            return ready;
        for (uint64_t i = 0; i < joined->count; i++) {
            struct stream_lane *lane = &joined->lanes[i];
            if (lane->next < lane->held.rows.count && (!lowest || lane->held.addresses[lane->next] < lowest->held.addresses[lowest->next]))
                lowest = lane;
        }
        if (!lowest)
            break;
        const uint64_t at = lowest->next++;
        rows_add(rows, lowest->held.addresses[at], lowest->held.usable[at], lowest->held.classes[at], lowest->held.kinds[at],
                 lowest->held.arenas[at]);
    }
    return 0;
}

/* It has ended when all have; it stopped where the first one did. */
static struct block_state joined_state(const struct block_source *self)
{
    const struct joined *joined = (const struct joined *) self;
    struct block_state state = {1, 0, UINT64_MAX};
    for (uint64_t i = 0; i < joined->count; i++) {
        const struct stream_lane *lane = &joined->lanes[i];
        const struct block_state one = lane->source->state(lane->source);
        const uint64_t at = lane->next < lane->held.rows.count ? lane->held.addresses[lane->next] : one.at;
        state.ended &= one.ended && lane->next == lane->held.rows.count;
        state.stop = one.stop;
        if (at < state.at)
            state.at = at;
    }
    return state;
}

static const uint8_t *joined_lend(const struct block_source *self, uint64_t address, uint64_t *length)
{
    const struct joined *joined = (const struct joined *) self;
    const uint8_t *bytes = NULL;
    for (uint64_t i = 0; i < joined->count && !bytes; i++) {
        const struct block_source *source = joined->lanes[i].source;
        bytes = source->lend ? source->lend(source, address, length) : NULL;
    }
    return bytes;
}

/* Where only one has any. */
static int joined_split(const struct block_source *self, unsigned most, struct block_source **out, uint64_t *begins)
{
    const struct joined *joined = (const struct joined *) self;
    const struct block_source *one = NULL;
    uint64_t left = 0;
    for (uint64_t i = 0; i < joined->count; i++)
        if (!joined->lanes[i].source->state(joined->lanes[i].source).ended) {
            one = joined->lanes[i].source;
            left++;
        }
    return left == 1 && one->split ? one->split(one, most, out, begins) : 0;
}

static void joined_free(struct block_source *self)
{
    free(self);
}

/* The sources stay the caller's. NULL: no memory. */
struct block_source *heapx_blocks_join(const uint64_t *sources, uint64_t count)
{
    struct joined *joined = calloc(1, sizeof *joined + (size_t) count * sizeof *joined->lanes);
    if (!joined)
        return NULL;
    joined->source = (struct block_source) {0, joined_next, joined_state, joined_free, joined_lend, 0, joined_split};
    joined->count = count;
    for (uint64_t i = 0; i < count; i++) {
        joined->lanes[i].source = (struct block_source *) (uintptr_t) sources[i];
        rows_open(&joined->lanes[i].held);
    }
    return &joined->source;
}

/* Blocks that stand in arrays. */
struct listed {
    struct block_source source;     /* first: a listed is a block_source */
    struct block_rows rows;
    uint64_t next;
};

static int listed_next(struct block_source *self, double seconds, struct block_rows *rows)
{
    struct listed *listed = (struct listed *) self;
    const struct block_rows *from = &listed->rows;
    (void) seconds;
    for (; listed->next < from->count && rows->count < rows->room; listed->next++)
        rows_add(rows, from->addresses[listed->next], from->usable[listed->next], from->classes[listed->next], from->kinds[listed->next],
                 from->arenas[listed->next]);
    return 0;
}

static struct block_state listed_state(const struct block_source *self)
{
    const struct listed *listed = (const struct listed *) self;
    const int ended = listed->next == listed->rows.count;
    return (struct block_state) {(uint64_t) ended, 0, ended ? UINT64_MAX : listed->rows.addresses[listed->next]};
}

/* The arrays stay the caller's. NULL: no memory. */
struct block_source *heapx_blocks_listed(uint64_t *addresses, uint64_t *usable, uint8_t *classes, uint8_t *kinds, uint32_t *arenas,
                                         uint64_t count)
{
    struct listed *listed = calloc(1, sizeof *listed);
    if (!listed)
        return NULL;
    listed->source = (struct block_source) {0, listed_next, listed_state, joined_free, NULL, 0, NULL};
    listed->rows = (struct block_rows) {addresses, usable, classes, kinds, arenas, count, count};
    return &listed->source;
}

/* Cells side by side, of runs {address of the first, bytes of each, how many}: those with a label, all where `labels` is NULL. How many. */
uint64_t heapx_blocks_cells(const uint64_t *runs, uint64_t run_count, const uint32_t *labels, uint64_t *addresses, uint64_t *usable)
{
    uint64_t count = 0, number = 0;
    for (const uint64_t *run = runs; run < runs + 3 * run_count; run += 3)
        for (uint64_t cell = 0; cell < run[2]; cell++, number++) {
            addresses[count] = run[0] + cell * run[1];
            usable[count] = run[1];
            count += !labels || labels[number];
        }
    return count;
}

/* The cell's place among all of the runs, which are sorted; UINT64_MAX: none begins there. `near`: the run of the cell before. */
static uint64_t cell_at(const uint64_t *runs, uint64_t run_count, const uint64_t *firsts, uint64_t address, uint64_t *near)
{
    if (address < runs[3 * *near] || (*near + 1 < run_count && address >= runs[3 * *near + 3]))
        *near = rows_up_to(runs + 3, run_count - 1, 3 * sizeof *runs, address);
    const uint64_t *run = runs + 3 * *near, away = address - run[0];
    return address >= run[0] && run[1] && away % run[1] == 0 && away / run[1] < run[2] ? firsts[*near] + away / run[1] : UINT64_MAX;
}

/* Labels of 0 for cells in lists, each through its first word of eight bytes, from `heads` on. How many, or -1: a list leads to no cell, or
   to one twice, has no end within `most`, or cannot be read; NO_MEMORY. Labels are other than 0 at first; runs are as above, sorted. */
int64_t heapx_blocks_unlist(const struct source *memory, int little_endian, const uint64_t *runs, uint64_t run_count, const uint64_t *heads,
                            uint64_t head_count, uint64_t most, uint32_t *labels)
{
    uint64_t *firsts = malloc((size_t) (run_count + 1) * sizeof *firsts), count = 0, near = 0;
    struct pages pages;
    if (!firsts)
        return NO_MEMORY;
    firsts[0] = 0;
    for (uint64_t run = 0; run < run_count; run++)
        firsts[run + 1] = firsts[run] + runs[3 * run + 2];
    source_map(memory);
    pages_open(&pages, memory, 0);
    int good = 1;
    for (uint64_t list = 0; list < head_count && good; list++)
        for (uint64_t at = heads[list]; at && good;) {
            const uint64_t cell = run_count ? cell_at(runs, run_count, firsts, at, &near) : UINT64_MAX;
            uint8_t word[8];
            const uint8_t *bytes = source_at(memory, at, sizeof word);
            good = cell != UINT64_MAX && labels[cell] && count < most && (bytes || pages_read(&pages, at, word, sizeof word));
            if (good) {
                labels[cell] = 0;
                count++;
                at = load_word(bytes ? bytes : word, 8, is_swapped((uint64_t) little_endian));
            }
        }
    pages_close(&pages);
    free(firsts);
    return good ? (int64_t) count : -1;
}
