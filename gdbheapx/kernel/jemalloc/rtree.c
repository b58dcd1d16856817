/* jemalloc's rtree: the elements of its leaf nodes in address order.

   A node is read in blocks into a buffer that its level keeps. Nodes may lie anywhere, also where damage put them: each is read once, and
   all together are no larger than the memory that could hold them. */
#include "rtree.h"

#include <stdlib.h>

#define FIRST_SEEN 256u

void problem_add(struct problems *problems, int code, uint64_t page, uint64_t extent)
{
    problems->counts[code]++;
    if (problems->listed < MOST_PROBLEMS) {
        struct extent_problem *row = &problems->rows[problems->listed++];
        row->code = (uint64_t) code;
        row->page = page;
        row->extent = extent;
    }
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

static uint64_t seen_slot(const uint64_t *seen, uint64_t room, uint64_t node)
{
    uint64_t slot = (node * 0x9E3779B97F4A7C15u >> 20) & (room - 1);
    while (seen[slot] && seen[slot] != node)
        slot = (slot + 1) & (room - 1);
    return slot;
}

/* Whether the node is new; remembers it. */
static int see(struct tree *tree, uint64_t node)
{
    if (2 * (tree->seen_count + 1) > tree->seen_room) {
        uint64_t room = tree->seen_room ? 2 * tree->seen_room : FIRST_SEEN;
        uint64_t *seen = calloc((size_t) room, sizeof *seen);
        if (!seen) {
            tree->no_memory = 1;
            return 0;
        }
        for (uint64_t i = 0; i < tree->seen_room; i++)
            if (tree->seen[i])
                seen[seen_slot(seen, room, tree->seen[i])] = tree->seen[i];
        free(tree->seen);
        tree->seen = seen;
        tree->seen_room = room;
    }
    uint64_t slot = seen_slot(tree->seen, tree->seen_room, node);
    if (tree->seen[slot])
        return 0;
    tree->seen[slot] = node;
    tree->seen_count++;
    return 1;
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

int tree_open(struct tree *tree, const struct source *source, const struct heap_layout *layout, struct problems *problems,
              struct range *unknown)
{
    const struct rtree_layout *rtree = &layout->rtree;
    memset(tree, 0, sizeof *tree);
    tree->layout = layout;
    tree->source = source;
    tree->problems = problems;
    tree->unknown = unknown;
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

void tree_close(struct tree *tree)
{
    for (unsigned depth = 0; depth < MOST_LEVELS; depth++)
        free(tree->levels[depth].bytes);
    free(tree->seen);
}

uint64_t tree_at(const struct tree *tree)
{
    const struct tree_level *level = &tree->levels[tree->depth];
    return level->index < level->count ? page_of(tree, level, level->index) : page_behind(tree, level, level->count);
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

static void close_node(struct tree *tree, struct tree_level *level)
{
    if (level->missing == level->count)
        problem_add(tree->problems, EXTENT_NODE_UNREADABLE, level->node, 0);
    else if (level->missing)
        problem_add(tree->problems, EXTENT_NODE_HOLE, level->hole, 0);
    level->missing = 0;
}

/* Nothing more is read. */
static void give_up(struct tree *tree, uint64_t page)
{
    lose(tree, page, UINT64_MAX);
    for (unsigned depth = 0; depth <= tree->depth; depth++)
        tree->levels[depth].index = tree->levels[depth].count;
}

static void open_child(struct tree *tree, struct tree_level *level, uint64_t index, uint64_t node)
{
    const struct tree_level *child = &tree->levels[tree->depth + 1];
    uint64_t bytes = child->count * child->element;
    int code;
    if ((node & (tree->word - 1)) || node > UINT64_MAX - bytes) {
        code = EXTENT_NODE_MISALIGNED;
    } else if (tree->node_bytes + bytes > tree->layout->mapped_bytes) {
        problem_add(tree->problems, EXTENT_TOO_MANY_NODES, node, 0);
        give_up(tree, page_of(tree, level, index));
        return;
    } else if (!see(tree, node)) {
        code = EXTENT_NODE_TWICE;
    } else {
        tree->node_bytes += bytes;
        open_level(tree, tree->depth + 1, node, level->key + (index << level->shift));
        return;
    }
    problem_add(tree->problems, code, node, 0);
    lose(tree, page_of(tree, level, index), page_behind(tree, level, index + 1));
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
    uint64_t more;
    switch (kind) {
    case LEAF_COMPACT:
    case LEAF_COMPACT_STATE:
        return leaf_bits_of(kind, bits & 1, bits >> 2 & 7, bits >> tree->layout->rtree.lg_vaddr);
    case LEAF_METADATA:
        more = load_word(element + tree->word, 4, tree->swap);
        return leaf_bits_of(kind, more & 1, more >> 2 & 7, more >> 5);
    case LEAF_FIELDS:
        more = load_word(element + tree->word, 4, tree->swap);
        return leaf_bits_of(kind, element[tree->word + 4] & 1, 0, more);
    default:
        return 0;
    }
}

int tree_next(struct tree *tree, uint64_t *page, uint64_t *pointer)
{
    uint64_t value;
    for (;;) {
        struct tree_level *level = &tree->levels[tree->depth];
        if (level->index == level->count) {
            close_node(tree, level);
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
