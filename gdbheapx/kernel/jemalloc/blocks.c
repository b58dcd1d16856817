/* jemalloc's blocks as a stream: the regions of slabs, large allocations, and the extents that nobody has. */
#include "../blocks/stream.h"
#include "extents.h"

#include <stdlib.h>

struct blocks {
    struct block_source source;     /* first: blocks are a block_source */
    struct extents extents;
    const struct extent *extent;    /* the one at hand, from region `region` on; NULL if the next is wanted */
    uint64_t region;
    const uint64_t *cached, *size_classes;  /* the caller's */
    uint64_t cached_count, next_cached;
    struct block_wanted wanted;
    uint64_t arena;                 /* UINT64_MAX for all */
    struct block_sizes sizes;
    int ended;
};

static const uint8_t CLASS_OF[] = {
    [BLOCK_USED] = CLASS_USED, [BLOCK_CACHED] = CLASS_CACHED, [BLOCK_FREE] = CLASS_FREE, [BLOCK_DIRTY] = CLASS_RETURNED,
    [BLOCK_MUZZY] = CLASS_RETURNED, [BLOCK_RETAINED] = CLASS_RETURNED, [BLOCK_OTHER] = CLASS_OVERHEAD,
};

static void blocks_free(struct block_source *self)
{
    struct blocks *blocks = (struct blocks *) self;
    extents_close(&blocks->extents);
    free(blocks);
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
    return size >= blocks->wanted.min_size && size <= blocks->wanted.max_size;
}

static void add(const struct blocks *blocks, struct block_rows *rows, uint64_t address, uint64_t size, int status)
{
    if ((blocks->wanted.kinds >> status & 1) && address >= blocks->wanted.start && wants_size(blocks, size))
        rows_add(rows, address, size, CLASS_OF[status], status, (uint32_t) blocks->extent->arena);
}

static void list_slab(struct blocks *blocks, struct block_rows *rows)
{
    const struct extent *extent = blocks->extent;
    const struct bin_layout *bin = &blocks->extents.bins[extent->szind];
    const uint64_t regions = 1u << BLOCK_USED | 1u << BLOCK_CACHED | 1u << BLOCK_FREE;
    if (!(blocks->wanted.kinds & regions) || !wants_size(blocks, bin->reg_size_bytes))
        blocks->region = bin->nregs;
    for (; blocks->region < bin->nregs && rows->count < rows->room; blocks->region++) {
        uint64_t address = extent->begin + blocks->region * bin->reg_size_bytes;
        int status = region_is_free(extent, blocks->region) ? BLOCK_FREE : is_cached(blocks, address) ? BLOCK_CACHED : BLOCK_USED;
        add(blocks, rows, address, bin->reg_size_bytes, status);
    }
    if (blocks->region == bin->nregs)
        blocks->extent = NULL;
}

static uint64_t large_size(const struct blocks *blocks, const struct extent *extent)
{
    uint64_t bytes = extent->end - extent->begin;
    if (!blocks->sizes.from_extent || extent->szind < blocks->extents.nbins)
        return blocks->size_classes[extent->szind];
    return bytes > blocks->sizes.large_pad_bytes ? bytes - blocks->sizes.large_pad_bytes : bytes;
}

static void list_extent(struct blocks *blocks, struct block_rows *rows)
{
    const struct extents *extents = &blocks->extents;
    const struct extent *extent = blocks->extent;
    if (extent->state == extents->layout.active) {
        if (extent->slab) {
            list_slab(blocks, rows);
            return;
        }
        add(blocks, rows, extent->address, large_size(blocks, extent), is_cached(blocks, extent->address) ? BLOCK_CACHED : BLOCK_USED);
    } else {
        int status = extent->state == extents->layout.dirty ? BLOCK_DIRTY
                   : extent->state == extents->layout.muzzy ? BLOCK_MUZZY
                   : extent->state == extents->layout.retained ? BLOCK_RETAINED : BLOCK_OTHER;
        add(blocks, rows, extent->begin, extent->end - extent->begin, status);
    }
    blocks->extent = NULL;
}

static int blocks_next(struct block_source *self, double seconds, struct block_rows *rows)
{
    struct blocks *blocks = (struct blocks *) self;
    extents_resume(&blocks->extents, seconds);
    while (rows->count < rows->room && !blocks->ended) {
        if (blocks->extent) {
            list_extent(blocks, rows);
            continue;
        }
        const struct extent *extent;
        int state = extents_next(&blocks->extents, &extent);
        if (state == EXTENTS_PAUSED)
            break;
        blocks->ended = state == EXTENTS_END;
        if (state == EXTENTS_ONE && extent->end > blocks->wanted.start && (blocks->arena == UINT64_MAX || blocks->arena == extent->arena)) {
            blocks->extent = extent;
            blocks->region = 0;
        }
    }
    return blocks->extents.tree.no_memory ? NO_MEMORY : 0;
}

static struct block_state blocks_state(const struct block_source *self)
{
    const struct blocks *blocks = (const struct blocks *) self;
    const struct extent *extent = blocks->extent;
    struct block_state state = {(uint64_t) blocks->ended, STOP_END, extent ? extent->begin : extents_at(&blocks->extents)};
    if (extent && blocks->region)
        state.at += blocks->region * blocks->extents.bins[extent->szind].reg_size_bytes;
    if (!state.ended && state.at < blocks->wanted.start)
        state.at = blocks->wanted.start;
    return state;
}

/* `arena`: UINT64_MAX for all. All arrays stay the caller's. NULL: no memory. */
struct block_source *heapx_extent_blocks(const struct source *memory, const struct layout_numbers *numbers, const struct bin_layout *bins,
                                         const uint64_t *size_classes, const uint64_t *cached, uint64_t cached_count,
                                         const struct block_wanted *wanted, uint64_t arena, const struct block_sizes *sizes)
{
    struct blocks *blocks = calloc(1, sizeof *blocks);
    if (!blocks)
        return NULL;
    struct block_source source = {0, blocks_next, blocks_state, blocks_free, NULL, 0, NULL};
    blocks->source = source;
    if (!extents_open(&blocks->extents, memory, numbers, bins)) {
        blocks_free(&blocks->source);
        return NULL;
    }
    blocks->size_classes = size_classes;
    blocks->cached = cached;
    blocks->cached_count = cached_count;
    blocks->wanted = *wanted;
    blocks->arena = arena;
    blocks->sizes = *sizes;
    return &blocks->source;
}
