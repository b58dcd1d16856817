/* What C and Python both declare of html/: structs and functions. */
#pragma once

#include "blocks/gdbheapx_blocks.h"

/* ---- page_parts.py ---- */

struct map_numbers {
    uint64_t page_bytes, lead_bytes, cell_bytes, free_kinds, free_is_pinned;
};

struct cell {
    uint64_t used_bytes, pinned_bytes, cached_bytes, own_bytes, free_bytes, returned_bytes,
        free_resident_bytes, returned_resident_bytes, unsure_bytes;
};

struct heap_map;

#pragma GCC visibility push(default)

/* ---- page_parts.py ---- */

struct heap_map *heapx_map_new(const struct map_numbers *shape, const uint64_t *overheads, const uint64_t *ranges, uint64_t count,
    const struct page_table *table);
void heapx_map_free(struct heap_map *map);
int64_t heapx_map_slice(struct heap_map *map, struct block_source *blocks, double seconds);
void heapx_map_cells(struct heap_map *map, struct cell *out);

#pragma GCC visibility pop
