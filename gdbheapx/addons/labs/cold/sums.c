/* What lies on pages of which sort, of the blocks of each owner and class: one pass over all blocks, by address. */
#include "gdbheapx_cold.h"
#include "blocks/graph.h"
#include "blocks/tally.h"

#include <stdlib.h>
#include <string.h>

#define BLOCKS_AT_ONCE 65536u       /* between two looks at the clock */

struct span {
    uint64_t start, end, kinds;     /* kinds: where those of its pages begin */
};

struct pages_told {
    const struct span *spans;
    const uint8_t *kinds;
    uint64_t count, at;             /* at: no span before it reaches the block */
    uint64_t page, shift;           /* page: 1 << shift */
};

struct cold_sums {
    struct cold_sum *rows;
    struct tally numbers;           /* by owner and label, + 1: row + 1 */
    uint64_t count, room, last;     /* last: the row that was asked for */
};

struct cold {
    const struct graph *graph;
    const uint32_t *owners, *labels;    /* NULL: 0 for all */
    struct pages_told told;
    struct cold_sums all;
    struct index_cursor cursor;
    uint64_t id, begin;             /* of the next block */
};

static struct cold_sum *row_of(struct cold_sums *all, uint32_t owner, uint32_t label)
{
    if (all->count && all->rows[all->last].owner == owner && all->rows[all->last].label == label)
        return &all->rows[all->last];   /* neighbours are often alike */
    uint32_t *number = tally_at(&all->numbers, ((uint64_t) owner << 32 | label) + 1);
    if (!number || !has_room(&all->rows, all->count, &all->room, sizeof *all->rows))
        return NULL;
    if (!*number) {
        all->rows[all->count] = (struct cold_sum) {.owner = owner, .label = label};
        *number = (uint32_t) ++all->count;
    }
    all->last = *number - 1;
    return &all->rows[all->last];
}

/* One block. `next`: where the one behind it begins: what damaged sizes claim beyond that is not looked at. */
static void add(struct cold_sum *row, struct pages_told *told, uint64_t begin, uint64_t size, uint64_t next)
{
    const uint64_t room = next > begin ? next - begin : UINT64_MAX - begin, end = begin + (size < room ? size : room);
    uint64_t cold = 0, seen = 0;
    while (told->at < told->count && told->spans[told->at].end <= begin)
        told->at++;
    for (uint64_t number = told->at; number < told->count && told->spans[number].start < end; number++) {
        const struct span *span = &told->spans[number];
        uint64_t from = span->start > begin ? span->start : begin;
        const uint64_t to = span->end < end ? span->end : end;
        for (const uint8_t *kind = told->kinds + span->kinds + ((from - span->start) >> told->shift); from < to; kind++) {
            const uint64_t behind = from - ((from - span->start) & (told->page - 1)) + told->page;
            const uint64_t bytes = (behind < to ? behind : to) - from;
            seen += *kind & COLD_SEEN ? bytes : 0;
            cold += *kind & (COLD_STALE | COLD_SWAPPED) ? bytes : 0;
            row->known_bytes += *kind & (COLD_KNOWN | COLD_SWAPPED) ? bytes : 0;
            row->resident_bytes += *kind & COLD_RESIDENT ? bytes : 0;
            row->swapped_bytes += *kind & COLD_SWAPPED ? bytes : 0;
            row->locked_bytes += *kind & COLD_LOCKED ? bytes : 0;
            from += bytes;
        }
    }
    row->blocks++;
    row->bytes += size;
    row->unseen_bytes += size - seen;
    if (size && cold == size) {
        row->cold_blocks++;
        row->cold_bytes += size;
    } else
        row->partly_bytes += cold;
}

void heapx_cold_free(struct cold *cold)
{
    if (cold) {
        free(cold->all.rows);
        tally_close(&cold->all.numbers);
    }
    free(cold);
}

/* A row for each pair of numbers that blocks have in `owners` and `labels` (NULL: 0 for all). `spans`: ascending, of whole pages, with the
   place in `kinds` of the COLD_... bits of each page. All of them stay the caller's. NULL: no memory. */
struct cold *heapx_cold_new(const struct graph *graph, const uint32_t *owners, const uint32_t *labels, const struct span *spans,
                            uint64_t count, const uint8_t *kinds, uint64_t page_bytes)
{
    struct cold *cold = calloc(1, sizeof *cold);
    if (!cold)
        return NULL;
    *cold = (struct cold) {.graph = graph, .owners = owners, .labels = labels, .told = {.spans = spans, .kinds = kinds, .count = count}};
    cold->told.page = page_bytes;
    if (!tally_open(&cold->all.numbers, LEAST_TALLY)) {
        heapx_cold_free(cold);
        return NULL;
    }
    while (page_bytes >> cold->told.shift > 1)
        cold->told.shift++;
    if (graph->index.blocks) {
        index_seek(&graph->index, &cold->cursor, 0);
        cold->begin = index_next(&graph->index, &cold->cursor);
    }
    return cold;
}

/* 1: there is more. */
int64_t heapx_cold_slice(struct cold *cold, double seconds)
{
    const double deadline = clock_now() + seconds;
    const struct index *index = &cold->graph->index;
    while (cold->id < index->blocks) {
        const uint32_t id = (uint32_t) cold->id;
        struct cold_sum *row = row_of(&cold->all, cold->owners ? cold->owners[id] : 0, cold->labels ? cold->labels[id] : 0);
        const uint64_t next = id + 1 < index->blocks ? index_next(index, &cold->cursor) : 0;
        if (!row)
            return NO_MEMORY;
        add(row, &cold->told, cold->begin, index_size(index, id), next);
        cold->begin = next;
        if (!(++cold->id % BLOCKS_AT_ONCE) && clock_now() > deadline)
            return cold->id < index->blocks;
    }
    return 0;
}

/* How many rows there are; at most `room` of them are written. */
uint64_t heapx_cold_found(const struct cold *cold, struct cold_sum *out, uint64_t room)
{
    if (room && cold->all.count)
        memcpy(out, cold->all.rows, (size_t) (cold->all.count < room ? cold->all.count : room) * sizeof *out);
    return cold->all.count;
}

/* Blocks that are added up by now. */
uint64_t heapx_cold_done(const struct cold *cold)
{
    return cold->id;
}
