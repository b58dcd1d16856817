/* What lies on pages of which sort, of the blocks of each owner and class: one pass over all blocks, by address. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROWS 64u              /* a power of two */

struct span {
    uint64_t start, end, kinds;     /* kinds: where those of its pages begin */
};

struct pages_told {
    const struct span *spans;
    const uint8_t *kinds;
    uint64_t count, at, page;       /* at: no span before it reaches the block */
};

struct cold_sums {
    struct cold_sum *rows;
    uint32_t *table;                /* row + 1; twice as many places as there is room for rows */
    uint64_t count, room;
};

static uint64_t place_of(const struct cold_sums *all, uint64_t owner, uint64_t label)
{
    uint64_t place = ((owner << 32 | label) * 0x9E3779B97F4A7C15ull >> 20) & (2 * all->room - 1);
    while (all->table[place] && (all->rows[all->table[place] - 1].owner != owner || all->rows[all->table[place] - 1].label != label))
        place = (place + 1) & (2 * all->room - 1);
    return place;
}

/* 0: no memory. */
static int grow(struct cold_sums *all)
{
    const uint64_t room = all->room ? 2 * all->room : FIRST_ROWS;
    struct cold_sum *rows = realloc(all->rows, (size_t) room * sizeof *rows);
    uint32_t *table = calloc((size_t) room, 2 * sizeof *table);
    if (rows)
        all->rows = rows;
    if (!rows || !table) {
        free(table);
        return 0;
    }
    free(all->table);
    all->table = table;
    all->room = room;
    for (uint64_t row = 0; row < all->count; row++)
        table[place_of(all, rows[row].owner, rows[row].label)] = (uint32_t) row + 1;
    return 1;
}

static struct cold_sum *row_of(struct cold_sums *all, uint32_t owner, uint32_t label)
{
    if (all->count == all->room && !grow(all))
        return NULL;
    uint32_t *number = &all->table[place_of(all, owner, label)];
    if (!*number) {
        memset(&all->rows[all->count], 0, sizeof *all->rows);
        all->rows[all->count].owner = owner;
        all->rows[all->count].label = label;
        *number = (uint32_t) ++all->count;
    }
    return &all->rows[*number - 1];
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
        for (const uint8_t *kind = told->kinds + span->kinds + (from - span->start) / told->page; from < to; kind++) {
            const uint64_t behind = from - (from - span->start) % told->page + told->page;
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

/* A row for each pair of numbers that blocks have in `owners` and `labels` (NULL: 0 for all). `spans`: ascending, of whole pages, with the
   place in `kinds` of the COLD_... bits of each page. Returns how many rows there are, at most `room` of them written, or NO_MEMORY. */
int64_t heapx_graph_cold(const struct graph *graph, const uint32_t *owners, const uint32_t *labels, const struct span *spans,
                         uint64_t count, const uint8_t *kinds, uint64_t page_bytes, struct cold_sum *out, uint64_t room)
{
    struct pages_told told = {spans, kinds, count, 0, page_bytes};
    struct cold_sums all = {0};
    struct index_cursor cursor;
    const uint32_t blocks = (uint32_t) graph->index.blocks;
    int64_t result = 0;
    if (blocks)
        index_seek(&graph->index, &cursor, 0);
    for (uint64_t id = 0, begin = blocks ? index_next(&graph->index, &cursor) : 0, next; id < blocks; id++, begin = next) {
        struct cold_sum *row = row_of(&all, owners ? owners[id] : 0, labels ? labels[id] : 0);
        next = id + 1 < blocks ? index_next(&graph->index, &cursor) : 0;
        if (!row) {
            result = NO_MEMORY;
            break;
        }
        add(row, &told, begin, index_size(&graph->index, (uint32_t) id), next);
    }
    if (!result) {
        result = (int64_t) all.count;
        if (room && all.count)
            memcpy(out, all.rows, (size_t) (all.count < room ? all.count : room) * sizeof *out);
    }
    free(all.rows);
    free(all.table);
    return result;
}
