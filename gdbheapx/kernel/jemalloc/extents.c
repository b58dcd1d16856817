/* jemalloc's extents, one by one in address order.

   The leaf elements of an extent's first and last page name it, in a slab those of all pages. What an extent structure says of itself is
   believed when both are met: until then it is pending, and another extent that begins inside it throws it away. */
#include "extents.h"

#include <stdlib.h>

#define NOWHERE UINT64_MAX

int extents_open(struct extents *extents, const struct source *source, const struct heap_layout *heap)
{
    memset(extents, 0, sizeof *extents);
    extents->heap = heap;
    extents->layout = &heap->extent;
    extents->bins = (const struct bin_layout *) (heap + 1);
    extents->size_classes = (const uint64_t *) (extents->bins + heap->nbins);
    extents->pending = &extents->slots[0];
    extents->spare = &extents->slots[1];
    pages_open(&extents->pages, source, 0);
    return tree_open(&extents->tree, source, heap, &extents->problems, &extents->unknown);
}

void extents_close(struct extents *extents)
{
    tree_close(&extents->tree);
    pages_close(&extents->pages);
}

const uint8_t *extent_bytes(struct extents *extents, uint64_t address)
{
    const uint64_t size = extents->layout->size_bytes;
    return address <= UINT64_MAX - size && pages_read(&extents->pages, address, extents->bytes, size) ? extents->bytes : NULL;
}

uint64_t extents_at(const struct extents *extents)
{
    if (extents->live)
        return extents->pending->begin;
    return extents->have_entry ? extents->page : tree_at(&extents->tree);
}

/* Fills extent->free from level 0 of the bitmap; whether as many regions are free as nfree says. */
static int read_bitmap(const struct extents *extents, struct extent *extent, const uint8_t *bitmap)
{
    uint64_t nregs = extents->bins[extent->szind].nregs, count = 0;
    const unsigned word = extents->tree.word, per_group = 64 / (8 * word);
    const uint64_t words = (nregs + 8 * word - 1) / (8 * word), groups = (nregs + 63) / 64;
    for (uint64_t group = 0; group < groups; group++) {
        uint64_t bits = 0;
        for (unsigned i = 0; i < per_group && group * per_group + i < words; i++)
            bits |= word_at(extents, bitmap + (group * per_group + i) * word) << (i * 8 * word);
        if (group + 1 == groups && nregs % 64) {
            extent->rest = bits & ~(((uint64_t) 1 << nregs % 64) - 1);
            bits &= ((uint64_t) 1 << nregs % 64) - 1;
        }
        extent->free[group] = bits;
        count += (uint64_t) __builtin_popcountll(bits);
    }
    return count == extent->nfree;
}

static int check_active(struct extents *extents, struct extent *extent, uint64_t bits, const uint8_t *bytes)
{
    if (extent->szind >= (extent->slab ? extents->heap->nbins : extents->heap->nsizes))
        return EXTENT_SZIND;
    if (!extent->slab)
        return EXTENT_GOOD;
    if (extent->end - extent->begin != extents->bins[extent->szind].slab_size_bytes)
        return EXTENT_SLAB_SIZE;
    const uint64_t shards = extents->bins[extent->szind].shards;
    if (shards && bits_of(bits, extents->layout->binshard) >= shards)
        problem_add(&extents->details, EXTENT_SHARD, extent->begin, extent->pointer);
    extent->rest = 0;
    if (!read_bitmap(extents, extent, bytes + extents->layout->bitmap_offset))
        return EXTENT_BITMAP;
    if (extent->rest)
        problem_add(&extents->details, EXTENT_BITMAP_REST, extent->begin, extent->pointer);
    return EXTENT_GOOD;
}

/* What is wrong with an extent whose range is known to be right. */
static int check_bits(struct extents *extents, struct extent *extent, const uint8_t *bytes)
{
    const uint64_t bits = load_word(bytes + extents->layout->bits_offset, 8, extents->tree.swap);
    extent->arena = bits_of(bits, extents->layout->arena);
    extent->slab = bits_of(bits, extents->layout->slab);
    extent->state = bits_of(bits, extents->layout->state);
    extent->szind = bits_of(bits, extents->layout->szind);
    extent->nfree = bits_of(bits, extents->layout->nfree);
    extent->unassociated = extent->arena == field_mask(extents->layout->arena);
    if (extent->unassociated)
        return EXTENT_GOOD;
    if (extent->arena >= extents->heap->narenas)
        return EXTENT_ARENA;
    if (extent->state >= extents->layout->states)
        return EXTENT_STATE;
    /* Active without a size class: taken out of its state's list, by an allocation that has not yet made it its own or by a purge. */
    if (extent->state == extents->layout->active && extent->szind == extents->heap->nsizes)
        extent->state = extents->layout->states;
    /* slab, nfree and szind of other states are what an earlier life left behind */
    return extent->state == extents->layout->active ? check_active(extents, extent, bits, bytes) : EXTENT_GOOD;
}

/* Reads the extent that the element at hand names. 0 if not even its range is known; -1 if reading was interrupted. */
static int judge(struct extents *extents, struct extent *extent)
{
    const uint64_t page = extents->page, mask = extents->tree.page - 1;
    extent->pointer = extents->pointer;
    extent->begin = NOWHERE;
    const uint8_t *bytes = extent_bytes(extents, extents->pointer);
    if (extents->pages.interrupted)
        return -1;
    extent->code = EXTENT_UNREADABLE;
    if (!bytes)
        return 0;
    extent->address = word_at(extents, bytes + extents->layout->addr_offset);
    uint64_t size = word_at(extents, bytes + extents->layout->size_offset) & ~mask;
    uint64_t begin = extent->address & ~mask, top = UINT64_MAX >> extents->tree.high_bits;
    extent->code = EXTENT_SIZE;
    if (!size)
        return 0;
    extent->code = EXTENT_STALE;
    if (page - begin >= size) {
        extent->begin = begin;
        return 0;
    }
    extent->code = EXTENT_SIZE;
    if (size - 1 > top - (begin & top))
        return 0;
    extent->begin = page;
    extent->end = begin + size;
    extent->code = page == begin ? check_bits(extents, extent, bytes) : EXTENT_FIRST_PAGE;
    return 1;
}

static void said(struct extents *extents, const struct extent *extent, uint64_t begin)
{
    extents->bad_pointer = extent->pointer;
    extents->bad_begin = begin;
}

/* The pending extent goes up to `end` as far as is known, and is not counted. */
static void throw_away(struct extents *extents, uint64_t end, int code)
{
    struct extent *pending = extents->pending;
    if (pending->code == EXTENT_GOOD)
        problem_add(&extents->problems, code, pending->begin, pending->pointer);
    extents->unparsed_bytes += end - pending->begin;
    range_add(&extents->unknown, pending->begin, end);
    said(extents, pending, NOWHERE);
    extents->live = 0;
}

/* Whether it is in use, so that leaf elements say the same of it as its own fields. */
static int is_active(const struct extents *extents, const struct extent *extent)
{
    return extent->code == EXTENT_GOOD && !extent->unassociated && extent->state == extents->layout->active;
}

int extent_state(const struct extents *extents, const struct extent *extent)
{
    const struct extent_layout *layout = extents->layout;
    const uint64_t known[] = {layout->active, layout->dirty, layout->muzzy, layout->retained, layout->pinned};
    int state = STATE_ACTIVE;
    while (state < STATE_OTHER && known[state] != extent->state)
        state++;
    return state;
}

uint64_t extent_block_bytes(const struct extents *extents, const struct extent *extent)
{
    const uint64_t bytes = extent->end - extent->begin, pad = extents->heap->sizes.large_pad_bytes;
    if (!extents->heap->sizes.from_extent || extent->szind < extents->heap->nbins)
        return extents->size_classes[extent->szind];
    return bytes > pad ? bytes - pad : bytes;
}

/* What a leaf element of this extent must say; `mask`: what of it the element at hand is asked for. */
static void check_leaf(struct extents *extents, const struct extent *extent, uint64_t mask)
{
    const uint64_t wanted = leaf_bits_of(extents->heap->rtree.leaf_kind, extent->slab, extent->state, extent->szind);
    if ((extents->tree.bits ^ wanted) & mask)
        problem_add(&extents->details, EXTENT_LEAF, extents->page, extent->pointer);
}

/* The element of the last page: of a large allocation only its state is kept (emap.c: emap_remap). Slabs have one for each page. */
static void check_last_leaf(struct extents *extents)
{
    const struct extent *pending = extents->pending;
    struct tree *tree = &extents->tree;
    if (!is_active(extents, pending) || extents->heap->rtree.leaf_kind == LEAF_UNKNOWN)
        return;
    check_leaf(extents, pending, pending->slab ? UINT64_MAX : 14);
    if (!pending->slab)
        return;
    const uint64_t inside = (pending->end - pending->begin) / tree->page - 2;
    if (tree->odd_page)
        problem_add(&extents->details, EXTENT_LEAF, tree->odd_page, pending->pointer);
    if (tree->skipped != inside && tree->hole.begin == tree->hole.end)
        problem_add(&extents->details, EXTENT_INTERIOR, pending->begin, pending->pointer);
}

/* The pending extent ends where it says. Whether it is one to be counted. */
static int settle(struct extents *extents)
{
    struct extent *pending = extents->pending;
    extents->live = 0;
    if (pending->code != EXTENT_GOOD) {
        throw_away(extents, pending->end, pending->code);
        return 0;
    }
    extents->unassociated += (uint64_t) pending->unassociated;
    return !pending->unassociated;
}

/* The elements of all the pending extent's pages are passed, its last page's named it not. Whether it is one to be counted. */
static int settle_unnamed(struct extents *extents)
{
    struct extent *pending = extents->pending;
    if (range_has(&extents->tree.hole, pending->end - extents->tree.page))
        return settle(extents);
    throw_away(extents, pending->end, EXTENT_LAST_PAGE);
    return 0;
}

/* The extent just read becomes the pending one, if it is more than a contradiction. Whether its only page was its last. */
static int take(struct extents *extents, int has_range)
{
    struct extent *fresh = extents->spare;
    if (!has_range || (extents->live && fresh->code == EXTENT_FIRST_PAGE)) {
        problem_add(&extents->problems, fresh->code, extents->page, fresh->pointer);
        range_add(&extents->unknown, extents->page, extents->page + extents->tree.page);
        said(extents, fresh, has_range ? NOWHERE : fresh->begin);
        return 0;
    }
    if (extents->live)
        throw_away(extents, fresh->begin, EXTENT_OVERLAP);
    if (fresh->code != EXTENT_GOOD)
        problem_add(&extents->problems, fresh->code, extents->page, fresh->pointer);
    extents->spare = extents->pending;
    extents->pending = fresh;
    extents->live = 1;
    extents->tree.skip_pointer = fresh->pointer;
    extents->tree.skip_until = fresh->end - extents->tree.page;
    extents->tree.hole.begin = extents->tree.hole.end = 0;
    extents->tree.skipped = extents->tree.odd_page = 0;
    extents->tree.skip_bits = leaf_bits_of(extents->heap->rtree.leaf_kind, fresh->slab, fresh->state, fresh->szind);
    if (is_active(extents, fresh))
        check_leaf(extents, fresh, UINT64_MAX);
    return fresh->end - fresh->begin == extents->tree.page;
}

/* The element at hand: whether the pending extent is settled by it and to be counted; -1 if reading was interrupted. */
static int meet(struct extents *extents)
{
    struct extent *pending = extents->pending;
    if (extents->live && extents->page >= pending->end && settle_unnamed(extents))
        return 1;   /* the element stays at hand */
    if (extents->live && extents->pointer == pending->pointer) {
        extents->have_entry = 0;
        if (extents->page != pending->end - extents->tree.page)
            return 0;
        check_last_leaf(extents);
        return settle(extents);
    }
    if (extents->pointer == extents->bad_pointer && extents->page != extents->bad_begin) {
        extents->have_entry = 0;
        return 0;
    }
    int has_range = judge(extents, extents->spare);
    if (has_range < 0)
        return -1;
    extents->have_entry = 0;
    return take(extents, has_range) && settle(extents);
}

int extents_next(struct extents *extents, const struct extent **found)
{
    int state = TREE_ENTRY;
    while (!extents->ended) {
        uint64_t reads = extents->tree.reads + extents->pages.reads;
        if (reads != extents->clock_reads) {
            extents->clock_reads = reads;
            if (clock_now() > extents->deadline)
                return EXTENTS_PAUSED;
        }
        int counted = 0;
        if (!extents->have_entry) {
            state = tree_next(&extents->tree, &extents->page, &extents->pointer);
            extents->have_entry = state == TREE_ENTRY;
        }
        if (state == TREE_PAUSED)
            return EXTENTS_PAUSED;
        extents->ended = state == TREE_END;
        if (extents->ended)
            counted = extents->live && settle_unnamed(extents);
        else if (extents->have_entry)
            counted = meet(extents);
        if (counted < 0)
            return EXTENTS_PAUSED;
        if (counted) {
            *found = extents->pending;
            return EXTENTS_ONE;
        }
        state = TREE_ENTRY;
    }
    return EXTENTS_END;
}
