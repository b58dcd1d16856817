/* What the pages of a heap are, by cells of equal size: in use, pinned, in caches, the allocator's own, free, returned; and what of the
   last two is in RAM. One pass over the stream of blocks, memory for the cells alone. */
#include "gdbheapx_html.h"
#include "blocks/stream.h"
#include "common/heapx.h"

#include <stdlib.h>

#define MOST_BYTES (1ull << 62)     /* no address and no size is larger, whatever the target says */

enum { PAGE_USED, PAGE_PINNED, PAGE_CACHED, PAGE_OWN, PAGE_FREE, PAGE_RETURNED };

struct map_range {
    uint64_t begin, end, before;        /* before: bytes of all ranges below */
};

struct heap_map {
    struct map_numbers shape;
    uint64_t overheads[MOST_KINDS];     /* by kind, modulo 2**64 */
    struct map_range *ranges;
    uint64_t range_count, at;           /* at: the range that was met last */
    struct cell *cells;
    uint64_t cell_count;
    uint64_t page;                      /* begin of the page that is looked at */
    unsigned seen;                      /* one bit for each class on it; 0: none */
    struct page_window window;
};

void heapx_map_free(struct heap_map *map)
{
    free(map->ranges);
    free(map->cells);
    free(map);
}

/* `ranges`: begin and end of each, sorted, without overlap, whole pages. `table`: NULL where nothing tells what is in RAM. */
struct heap_map *heapx_map_new(const struct map_numbers *shape, const uint64_t *overheads, const uint64_t *ranges, uint64_t count,
                               const struct page_table *table)
{
    struct heap_map *map = calloc(1, sizeof *map);
    if (!map)
        return NULL;
    map->shape = *shape;
    memcpy(map->overheads, overheads, sizeof map->overheads);
    map->ranges = calloc((size_t) count + 1, sizeof *map->ranges);
    uint64_t bytes = 0;
    for (uint64_t i = 0; map->ranges && i < count; i++) {
        map->ranges[i] = (struct map_range) {ranges[2 * i], ranges[2 * i + 1], bytes};
        bytes += ranges[2 * i + 1] - ranges[2 * i];
    }
    map->range_count = count;
    map->cell_count = (bytes + map->shape.cell_bytes - 1) / map->shape.cell_bytes;
    map->cells = calloc((size_t) map->cell_count + 1, sizeof *map->cells);
    page_window_open(&map->window, table);
    if (map->ranges && map->cells)
        return map;
    heapx_map_free(map);
    return NULL;
}

/* The first range that ends above the address; the number of ranges where none does. */
static uint64_t range_above(const struct heap_map *map, uint64_t address)
{
    uint64_t low = 0, high = map->range_count;
    if (map->at < high && map->ranges[map->at].end > address && (!map->at || map->ranges[map->at - 1].end <= address))
        return map->at;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (map->ranges[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static uint64_t *bytes_of(struct cell *cell, unsigned state)
{
    uint64_t *const by_state[] = {
        [PAGE_USED] = &cell->used_bytes, [PAGE_PINNED] = &cell->pinned_bytes, [PAGE_CACHED] = &cell->cached_bytes,
        [PAGE_OWN] = &cell->own_bytes, [PAGE_FREE] = &cell->free_bytes, [PAGE_RETURNED] = &cell->returned_bytes,
    };
    return by_state[state];
}

static void add_to(struct heap_map *map, struct cell *cell, uint64_t begin, uint64_t end, unsigned state)
{
    *bytes_of(cell, state) += end - begin;
    if ((state == PAGE_FREE || state == PAGE_RETURNED) && map->window.table) {
        struct residency found = {0, 0, 0, 0, 0};
        page_window_add(&map->window, begin, end, &found);
        *(state == PAGE_FREE ? &cell->free_resident_bytes : &cell->returned_resident_bytes) += found.resident_bytes;
        cell->unsure_bytes += found.unsure_bytes;
    }
}

/* These whole pages are alike. What lies in no range is left out. */
static void add_pages(struct heap_map *map, uint64_t begin, uint64_t end, unsigned state)
{
    for (uint64_t i = range_above(map, begin); i < map->range_count && map->ranges[i].begin < end; i++) {
        const struct map_range *range = &map->ranges[i];
        uint64_t here = begin > range->begin ? begin : range->begin;
        const uint64_t last = end < range->end ? end : range->end;
        map->at = i;
        while (here < last) {
            const uint64_t place = range->before + (here - range->begin), left = map->shape.cell_bytes - place % map->shape.cell_bytes;
            const uint64_t until = last - here > left ? here + left : last;
            add_to(map, &map->cells[place / map->shape.cell_bytes], here, until, state);
            here = until;
        }
    }
}

static unsigned state_of(const struct heap_map *map, unsigned seen)
{
    const unsigned busy = 1u << CLASS_USED | 1u << CLASS_OVERHEAD;
    if ((seen & busy) && (seen & ~busy))
        return PAGE_PINNED;
    if (seen & busy)
        return seen & 1u << CLASS_USED ? PAGE_USED : PAGE_OWN;
    if (seen & 1u << CLASS_CACHED)
        return PAGE_CACHED;
    if (seen & (1u << CLASS_FREE | 1u << CLASS_RESERVE))
        return map->shape.free_is_pinned && seen & 1u << CLASS_FREE ? PAGE_PINNED : PAGE_FREE;
    return PAGE_RETURNED;
}

static void close_page(struct heap_map *map)
{
    if (map->seen)
        add_pages(map, map->page, map->page + map->shape.page_bytes, state_of(map, map->seen));
    map->seen = 0;
}

static void on_page(struct heap_map *map, uint64_t page, unsigned bit)
{
    if (map->page != page)
        close_page(map);
    map->page = page;
    map->seen |= bit;
}

static void map_row(struct heap_map *map, const struct block_rows *rows, uint64_t i)
{
    const unsigned kind = rows->kinds[i];
    const uint64_t begin = rows->addresses[i] - map->shape.lead_bytes, mask = map->shape.page_bytes - 1;
    const uint64_t size = rows->usable[i] + (kind < MOST_KINDS ? map->overheads[kind] : 0), end = begin + size;
    unsigned class = rows->classes[i];
    if (begin - 1 >= MOST_BYTES || size - 1 >= MOST_BYTES || class > CLASS_RETURNED)
        return;
    if (kind < 64 && (map->shape.free_kinds >> kind & 1))
        class = CLASS_RESERVE;
    const uint64_t first = begin & ~mask, last = (end - 1) & ~mask;
    on_page(map, first, 1u << class);
    if (last != first) {
        close_page(map);
        if (last - first > map->shape.page_bytes)
            add_pages(map, first + map->shape.page_bytes, last, state_of(map, 1u << class));
        on_page(map, last, 1u << class);
    }
}

/* Takes blocks of a stream for at most about `seconds`. 1: there is more; 0: it has ended; NO_MEMORY. */
int64_t heapx_map_slice(struct heap_map *map, struct block_source *blocks, double seconds)
{
    struct row_buffer buffer;
    const double deadline = clock_now() + seconds;
    do {
        rows_open(&buffer);
        const int failed = blocks->next(blocks, deadline - clock_now(), &buffer.rows);
        for (uint64_t i = 0; i < buffer.rows.count; i++)
            map_row(map, &buffer.rows, i);
        if (failed)
            return NO_MEMORY;
        if (blocks->state(blocks).ended)
            return 0;
    } while (clock_now() < deadline);
    return 1;
}

/* No more comes. `out`: all cells. */
void heapx_map_cells(struct heap_map *map, struct cell *out)
{
    close_page(map);
    memcpy(out, map->cells, (size_t) map->cell_count * sizeof *map->cells);
}
