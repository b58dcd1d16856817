/* jemalloc's extents, one by one in address order, by the elements of its rtree's leaf nodes.

   The leaf elements of an extent's first and last page name it, in a slab those of all pages. What an extent structure says of itself is
   believed when both are met: until then it is pending, and another extent that begins inside it throws it away. */
#include "extents.h"

#include <stdlib.h>

#define NOWHERE UINT64_MAX
#define LEAF_BLOCK (256u << 10)
#define NODE_BLOCK (64u << 10)

enum { TREE_ENTRY, TREE_END, TREE_AGAIN /* a block was read */, TREE_PAUSED /* the reading call was interrupted */ };

/* ---- the rtree

   A node is read in blocks into a buffer that its level keeps. Nodes may lie anywhere, also where damage put them: each is read once, and
   all together are no larger than the memory that could hold them. ---- */

static void problem_add(struct problems *problems, int code, uint64_t page, uint64_t extent)
{
    problems->counts[code]++;
    if (problems->listed < MOST_PROBLEMS)
        problems->rows[problems->listed++] = (struct extent_problem) {(uint64_t) code, page, extent};
}

/* The smallest range that holds both. */
static inline void range_add(struct range *range, uint64_t begin, uint64_t end)
{
    if (range->begin == range->end) {
        range->begin = begin;
        range->end = end;
    } else {
        range->begin = begin < range->begin ? begin : range->begin;
        range->end = end > range->end ? end : range->end;
    }
}

/* What a leaf element says of an extent: 0 where its kind is not known. Only kinds with a state have one. */
static inline uint64_t leaf_bits_of(uint64_t kind, uint64_t slab, uint64_t state, uint64_t szind)
{
    if (kind == LEAF_UNKNOWN)
        return 0;
    return slab | (kind == LEAF_COMPACT_STATE || kind == LEAF_METADATA ? state << 1 : 0) | szind << 8;
}

static uint64_t extended(const struct tree *tree, uint64_t address)
{
    if (!tree->high_bits)
        return address;
    if (tree->layout->rtree.sign_extend)
        return (uint64_t) ((int64_t) (address << tree->high_bits) >> tree->high_bits);
    return address << tree->high_bits >> tree->high_bits;
}

static uint64_t page_of(const struct tree *tree, const struct tree_level *level, uint64_t index)
{
    return extended(tree, level->key + (index << level->shift));
}

/* Where the pages of element index - 1 end: not extended, so that the address space's end is no page of its lower half. */
static uint64_t page_behind(const struct tree *tree, const struct tree_level *level, uint64_t index)
{
    uint64_t page = page_of(tree, level, index - 1), bytes = (uint64_t) 1 << level->shift;
    return page > UINT64_MAX - bytes ? UINT64_MAX : page + bytes;
}

/* Of these pages nothing is known. */
static void lose(struct tree *tree, uint64_t begin, uint64_t end)
{
    range_add(&tree->hole, begin, end);
    range_add(tree->unknown, tree->hole.begin, tree->hole.end);
}

/* Whether the node is new; remembers it. */
static int see(struct tree *tree, uint64_t node)
{
    const int is_new = address_set_add(&tree->seen, node);
    tree->no_memory |= is_new < 0;
    return is_new > 0;
}

static void open_level(struct tree *tree, unsigned depth, uint64_t node, uint64_t key)
{
    struct tree_level *level = &tree->levels[depth];
    level->node = node;
    level->key = key;
    level->index = level->first = level->loaded = level->missing = level->hole = 0;
    level->counted = 0;
    tree->depth = depth;
}

/* 0: no memory. */
static int open_tree(struct tree *tree, const struct heap_layout *layout)
{
    const struct rtree_layout *rtree = &layout->rtree;
    tree->layout = layout;
    tree->height = (unsigned) rtree->height;
    tree->word = (unsigned) layout->extent.word_bytes;
    tree->swap = is_swapped(layout->extent.little_endian);
    tree->page = (uint64_t) 1 << rtree->lg_page;
    tree->high_bits = 64 - (unsigned) rtree->lg_vaddr;
    tree->low_mask = ((uint64_t) 1 << rtree->extent_low_bits) - 1;
    unsigned shift = (unsigned) rtree->lg_page;
    for (unsigned depth = tree->height; depth-- > 0;) {
        struct tree_level *level = &tree->levels[depth];
        int leaf = depth + 1 == tree->height;
        level->bits = (unsigned) rtree->level_bits[depth];
        level->count = (uint64_t) 1 << level->bits;
        level->element = leaf ? (unsigned) rtree->leaf_bytes : tree->word;
        level->shift = shift;
        shift += level->bits;
        level->capacity = leaf ? LEAF_BLOCK : NODE_BLOCK;
        level->bytes = malloc((size_t) level->capacity);
        if (!level->bytes)
            return 0;
    }
    open_level(tree, 0, rtree->root, 0);
    tree->node_bytes = tree->levels[0].count * tree->levels[0].element;
    return see(tree, rtree->root) || !tree->no_memory;
}

/* The elements of one level at most up to the end of the page of CACHE_PAGE bytes where they cannot be read. */
static void pass_hole(struct tree *tree, struct tree_level *level)
{
    uint64_t offset = level->index * level->element;
    uint64_t behind = ((level->node + offset) | (CACHE_PAGE - 1)) + 1 - level->node;
    uint64_t next = (behind + level->element - 1) / level->element;
    if (next > level->count || behind < offset)
        next = level->count;
    if (!level->missing)
        level->hole = level->node + offset;
    level->missing += next - level->index;
    tree->unreadable_bytes += (next - level->index) * level->element;
    lose(tree, page_of(tree, level, level->index), page_behind(tree, level, next));
    level->index = next;
}

static int load(struct tree *tree, struct tree_level *level)
{
    uint64_t offset = level->index * level->element, left = (level->count - level->index) * level->element;
    int64_t got = source_read(tree->source, level->node + offset, level->bytes, left < level->capacity ? left : level->capacity);
    tree->reads++;
    if (got < 0) {
        tree->interrupted = 1;
        return TREE_PAUSED;
    }
    level->first = level->index;
    level->loaded = (uint64_t) got / level->element;
    if (!level->loaded) {
        pass_hole(tree, level);
    } else if (!level->counted) {
        level->counted = 1;
        tree->nodes++;
        tree->leaf_nodes += tree->depth + 1 == tree->height;
    }
    return TREE_AGAIN;
}

static void open_child(struct tree *tree, struct tree_level *level, uint64_t index, uint64_t node)
{
    const struct tree_level *child = &tree->levels[tree->depth + 1];
    const uint64_t bytes = child->count * child->element;
    int code = EXTENT_GOOD;
    if ((node & (tree->word - 1)) || node > UINT64_MAX - bytes)
        code = EXTENT_NODE_MISALIGNED;
    else if (tree->node_bytes + bytes > tree->layout->mapped_bytes)
        code = EXTENT_TOO_MANY_NODES;
    else if (!see(tree, node))
        code = EXTENT_NODE_TWICE;
    if (code == EXTENT_GOOD) {
        tree->node_bytes += bytes;
        open_level(tree, tree->depth + 1, node, level->key + (index << level->shift));
        return;
    }
    problem_add(tree->problems, code, node, 0);
    lose(tree, page_of(tree, level, index), code == EXTENT_TOO_MANY_NODES ? UINT64_MAX : page_behind(tree, level, index + 1));
    for (unsigned depth = 0; code == EXTENT_TOO_MANY_NODES && depth <= tree->depth; depth++)    /* nothing more is read */
        tree->levels[depth].index = tree->levels[depth].count;
}

/* The next element of what is loaded whose word is not zero, or the end of what is loaded. */
static uint64_t find(const struct tree *tree, struct tree_level *level, uint64_t *value)
{
    const uint64_t end = level->first + level->loaded;
    uint64_t index = level->index;
    const uint8_t *from = level->bytes + (index - level->first) * level->element;
    for (; index < end; index++, from += level->element) {
        if (level->element == 8 && !(index & 7)) {
            uint64_t words[8];
            while (index + 8 <= end) {
                memcpy(words, from, sizeof words);
                if (words[0] | words[1] | words[2] | words[3] | words[4] | words[5] | words[6] | words[7])
                    break;
                index += 8;
                from += sizeof words;
            }
            if (index == end)
                break;
        }
        *value = load_word(from, tree->word, tree->swap);
        if (*value)
            return index;
    }
    return end;
}

/* rtree.h (jemalloc): rtree_leaf_elm_s, compact or not, with a state from 5.3 on. */
static uint64_t leaf_bits(const struct tree *tree, const uint8_t *element)
{
    const uint64_t bits = load_word(element, tree->word, tree->swap), kind = tree->layout->rtree.leaf_kind;
    if (kind == LEAF_COMPACT || kind == LEAF_COMPACT_STATE)
        return leaf_bits_of(kind, bits & 1, bits >> 2 & 7, bits >> tree->layout->rtree.lg_vaddr);
    if (kind == LEAF_UNKNOWN)
        return 0;
    const uint64_t more = load_word(element + tree->word, 4, tree->swap);
    if (kind == LEAF_METADATA)
        return leaf_bits_of(kind, more & 1, more >> 2 & 7, more >> 5);
    return leaf_bits_of(kind, element[tree->word + 4] & 1, 0, more);
}

/* The next leaf element that names an extent: its page and the extent's address. Moves on. */
static int tree_next(struct tree *tree, uint64_t *page, uint64_t *pointer)
{
    uint64_t value;
    for (;;) {
        struct tree_level *level = &tree->levels[tree->depth];
        if (level->index == level->count) {
            if (level->missing == level->count)
                problem_add(tree->problems, EXTENT_NODE_UNREADABLE, level->node, 0);
            else if (level->missing)
                problem_add(tree->problems, EXTENT_NODE_HOLE, level->hole, 0);
            level->missing = 0;
            if (!tree->depth)
                return TREE_END;
            tree->depth--;
            continue;
        }
        if (level->index - level->first >= level->loaded)
            return load(tree, level);
        uint64_t index = find(tree, level, &value);
        if (index == level->first + level->loaded) {
            level->index = index;
            continue;
        }
        level->index = index + 1;
        if (tree->depth + 1 < tree->height) {
            open_child(tree, level, index, value);
            continue;
        }
        if (tree->layout->rtree.compact)  /* the word may be non-zero and name no extent */
            value = extended(tree, value) & ~tree->low_mask;
        *page = page_of(tree, level, index);
        if (!value)
            continue;
        const uint64_t bits = leaf_bits(tree, level->bytes + (index - level->first) * level->element);
        if (value != tree->skip_pointer || *page >= tree->skip_until) {
            tree->bits = bits;
            *pointer = value;
            return TREE_ENTRY;
        }
        tree->skipped++;
        if (bits != tree->skip_bits && !tree->odd_page)
            tree->odd_page = *page;
    }
}

/* ---- extents ---- */

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
    extents->tree.source = source;
    extents->tree.problems = &extents->problems;
    extents->tree.unknown = &extents->unknown;
    return open_tree(&extents->tree, heap);
}

void extents_close(struct extents *extents)
{
    for (unsigned depth = 0; depth < MOST_LEVELS; depth++)
        free(extents->tree.levels[depth].bytes);
    free(extents->tree.seen.slots);
    pages_close(&extents->pages);
}

const uint8_t *extent_bytes(struct extents *extents, uint64_t address)
{
    const uint64_t size = extents->layout->size_bytes;
    return address <= UINT64_MAX - size && pages_read(&extents->pages, address, extents->bytes, size) ? extents->bytes : NULL;
}

uint64_t extents_at(const struct extents *extents)
{
    const struct tree *tree = &extents->tree;
    const struct tree_level *level = &tree->levels[tree->depth];
    if (extents->live || extents->have_entry)
        return extents->live ? extents->pending->begin : extents->page;
    return level->index < level->count ? page_of(tree, level, level->index) : page_behind(tree, level, level->count);
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
    extent->unassociated = extent->arena == bits_of(UINT64_MAX, extents->layout->arena);
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

/* The pending extent goes up to `end` as far as is known, and is not counted. */
static void throw_away(struct extents *extents, uint64_t end, int code)
{
    struct extent *pending = extents->pending;
    if (pending->code == EXTENT_GOOD)
        problem_add(&extents->problems, code, pending->begin, pending->pointer);
    extents->unparsed_bytes += end - pending->begin;
    range_add(&extents->unknown, pending->begin, end);
    extents->bad_pointer = pending->pointer;
    extents->bad_begin = NOWHERE;
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
        extents->bad_pointer = fresh->pointer;
        extents->bad_begin = has_range ? NOWHERE : fresh->begin;
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
