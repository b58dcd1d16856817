/* jemalloc's blocks as a stream: the regions of slabs, large allocations, and the extents that nobody has. */
#include "../blocks/stream.h"
#include "extents.h"

#include <stdlib.h>

struct blocks {
    struct block_source source;     /* first: blocks are a block_source */
    struct extents extents;
    const struct extent *extent;    /* the one at hand, from region `region` on; NULL if the next is wanted */
    uint64_t region;
    const uint64_t *cached;         /* the caller's */
    uint64_t cached_count, next_cached;
    struct block_wanted wanted;
    uint64_t arena;                 /* UINT64_MAX for all */
    int ended;
};

static const uint8_t CLASS_OF[] = {
    [BLOCK_USED] = CLASS_USED, [BLOCK_CACHED] = CLASS_CACHED, [BLOCK_FREE] = CLASS_FREE, [BLOCK_DIRTY] = CLASS_RETURNED,
    [BLOCK_MUZZY] = CLASS_RETURNED, [BLOCK_RETAINED] = CLASS_RETURNED, [BLOCK_OTHER] = CLASS_OVERHEAD,
    [BLOCK_PINNED] = CLASS_RETURNED,    /* as all extents that nobody has: no page of it lies between blocks */
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

static const uint8_t BLOCK_OF[] = {
    [STATE_DIRTY] = BLOCK_DIRTY, [STATE_MUZZY] = BLOCK_MUZZY, [STATE_RETAINED] = BLOCK_RETAINED, [STATE_PINNED] = BLOCK_PINNED,
    [STATE_OTHER] = BLOCK_OTHER,
};

static void list_extent(struct blocks *blocks, struct block_rows *rows)
{
    const struct extent *extent = blocks->extent;
    const int state = extent_state(&blocks->extents, extent);
    if (state == STATE_ACTIVE && extent->slab) {
        list_slab(blocks, rows);
        return;
    }
    if (state == STATE_ACTIVE)
        add(blocks, rows, extent->address, extent_block_bytes(&blocks->extents, extent),
            is_cached(blocks, extent->address) ? BLOCK_CACHED : BLOCK_USED);
    else
        add(blocks, rows, extent->begin, extent->end - extent->begin, BLOCK_OF[state]);
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
        if (blocks->ended)
            break;
        if (extent->end > blocks->wanted.start && (blocks->arena == UINT64_MAX || blocks->arena == extent->arena)) {
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

/* `arena`: UINT64_MAX for all. `layout` and `cached` stay the caller's. NULL: no memory. */
struct block_source *heapx_extent_blocks(const struct source *memory, const struct heap_layout *layout, const uint64_t *cached,
                                         uint64_t cached_count, const struct block_wanted *wanted, uint64_t arena)
{
    const struct block_source source = {0, blocks_next, blocks_state, blocks_free, NULL, 0, NULL};
    struct blocks *blocks = calloc(1, sizeof *blocks);
    if (!blocks)
        return NULL;
    blocks->source = source;
    blocks->cached = cached;
    blocks->cached_count = cached_count;
    blocks->wanted = *wanted;
    blocks->arena = arena;
    if (extents_open(&blocks->extents, memory, layout))
        return &blocks->source;
    blocks_free(&blocks->source);
    return NULL;
}
