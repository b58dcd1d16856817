/* jemalloc's blocks one by one: the regions of slabs, large allocations, and the extents that nobody has. */
#include "extents.h"

#include <stdlib.h>

struct blocks {
    struct extents extents;
    const struct extent *extent;    /* the one at hand, from region `region` on; NULL if the next is wanted */
    uint64_t region;
    const uint64_t *cached, *size_classes;  /* the caller's */
    uint64_t cached_count, next_cached;
    uint64_t arena, statuses, min_size, max_size;   /* arena: UINT64_MAX for all */
    uint64_t from_extent, large_pad;
    int ended;
};

struct block_rows {
    uint64_t *addresses, *sizes;
    uint8_t *statuses;
    uint16_t *arenas;
    uint64_t count, room;
};

EXPORT void heapx_blocks_free(struct blocks *blocks)
{
    if (!blocks)
        return;
    extents_close(&blocks->extents);
    free(blocks);
}

/* `wanted`: arena, statuses, smallest and largest size, from_extent, large_pad. All arrays stay the caller's. NULL: no memory. */
EXPORT struct blocks *heapx_blocks_new(const struct source *source, const uint64_t *numbers, const uint64_t *bins, const uint64_t *size_classes,
                                       const uint64_t *cached, uint64_t cached_count, const uint64_t *wanted)
{
    struct blocks *blocks = calloc(1, sizeof *blocks);
    if (!blocks)
        return NULL;
    if (!extents_open(&blocks->extents, source, numbers, bins)) {
        heapx_blocks_free(blocks);
        return NULL;
    }
    blocks->size_classes = size_classes;
    blocks->cached = cached;
    blocks->cached_count = cached_count;
    blocks->arena = wanted[0];
    blocks->statuses = wanted[1];
    blocks->min_size = wanted[2];
    blocks->max_size = wanted[3];
    blocks->from_extent = wanted[4];
    blocks->large_pad = wanted[5];
    return blocks;
}

/* Whether the pointer is in a thread cache; asked in ascending order. */
static int is_cached(struct blocks *blocks, uint64_t address)
{
    while (blocks->next_cached < blocks->cached_count && blocks->cached[blocks->next_cached] < address)
        blocks->next_cached++;
    return blocks->next_cached < blocks->cached_count && blocks->cached[blocks->next_cached] == address;
}

static int wants_size(const struct blocks *blocks, uint64_t size)
{
    return size >= blocks->min_size && size <= blocks->max_size;
}

static void add(const struct blocks *blocks, struct block_rows *rows, uint64_t address, uint64_t size, int status)
{
    if (!(blocks->statuses >> status & 1) || !wants_size(blocks, size))
        return;
    rows->addresses[rows->count] = address;
    rows->sizes[rows->count] = size;
    rows->statuses[rows->count] = (uint8_t) status;
    rows->arenas[rows->count] = (uint16_t) blocks->extent->arena;
    rows->count++;
}

static void list_slab(struct blocks *blocks, struct block_rows *rows)
{
    const struct extent *extent = blocks->extent;
    const struct bin *bin = &blocks->extents.bins[extent->szind];
    const uint64_t regions = 1u << BLOCK_USED | 1u << BLOCK_CACHED | 1u << BLOCK_FREE;
    if (!(blocks->statuses & regions) || !wants_size(blocks, bin->reg_size))
        blocks->region = bin->nregs;
    for (; blocks->region < bin->nregs && rows->count < rows->room; blocks->region++) {
        uint64_t address = extent->begin + blocks->region * bin->reg_size;
        int status = region_is_free(extent, blocks->region) ? BLOCK_FREE : is_cached(blocks, address) ? BLOCK_CACHED : BLOCK_USED;
        add(blocks, rows, address, bin->reg_size, status);
    }
    if (blocks->region == bin->nregs)
        blocks->extent = NULL;
}

static uint64_t large_size(const struct blocks *blocks, const struct extent *extent)
{
    uint64_t bytes = extent->end - extent->begin;
    if (!blocks->from_extent || extent->szind < blocks->extents.nbins)
        return blocks->size_classes[extent->szind];
    return bytes > blocks->large_pad ? bytes - blocks->large_pad : bytes;
}

static void list_extent(struct blocks *blocks, struct block_rows *rows)
{
    const struct extents *extents = &blocks->extents;
    const struct extent *extent = blocks->extent;
    if (extent->state == extents->active) {
        if (extent->slab) {
            list_slab(blocks, rows);
            return;
        }
        add(blocks, rows, extent->address, large_size(blocks, extent), is_cached(blocks, extent->address) ? BLOCK_CACHED : BLOCK_USED);
    } else {
        int status = extent->state == extents->dirty ? BLOCK_DIRTY
                   : extent->state == extents->muzzy ? BLOCK_MUZZY
                   : extent->state == extents->retained ? BLOCK_RETAINED : BLOCK_OTHER;
        add(blocks, rows, extent->begin, extent->end - extent->begin, status);
    }
    blocks->extent = NULL;
}

/* Writes up to `room` rows, for at most about `seconds`. Returns how many, or -2: no memory. heapx_blocks_state says whether that was all. */
EXPORT int64_t heapx_blocks_next(struct blocks *blocks, double seconds, uint64_t *addresses, uint64_t *sizes, uint8_t *statuses, uint16_t *arenas,
                                 uint64_t room)
{
    struct block_rows rows = {addresses, sizes, statuses, arenas, 0, room};
    extents_resume(&blocks->extents, seconds);
    while (rows.count < room && !blocks->ended) {
        if (blocks->extent) {
            list_extent(blocks, &rows);
            continue;
        }
        const struct extent *extent;
        int state = extents_next(&blocks->extents, &extent);
        if (state == EXTENTS_PAUSED)
            break;
        blocks->ended = state == EXTENTS_END;
        if (state == EXTENTS_ONE && (blocks->arena == UINT64_MAX || blocks->arena == extent->arena)) {
            blocks->extent = extent;
            blocks->region = 0;
        }
    }
    return blocks->extents.tree.no_memory ? -2 : (int64_t) rows.count;
}

/* `out`: ended, at. */
EXPORT void heapx_blocks_state(const struct blocks *blocks, uint64_t *out)
{
    out[0] = (uint64_t) blocks->ended;
    out[1] = blocks->extent ? blocks->extent->begin : extents_at(&blocks->extents);
}
