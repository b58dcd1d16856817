/* jemalloc's rtree: its leaf elements in address order, and what contradicts on the way (rtree.c). */
#ifndef HEAPX_RTREE_H
#define HEAPX_RTREE_H

#include "../common/heapx.h"
#include "gdbheapx_jemalloc.h"


/* What contradicts: the first MOST_PROBLEMS one by one, all of them counted. */
struct problems {
    uint64_t counts[EXTENT_CODES];
    uint64_t listed;
    struct extent_problem rows[MOST_PROBLEMS];
};

void problem_add(struct problems *problems, int code, uint64_t page, uint64_t extent);

/* Addresses; empty if begin == end. */
struct range {
    uint64_t begin, end;
};

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

static inline int range_has(const struct range *range, uint64_t address)
{
    return address >= range->begin && address < range->end;
}

#define MOST_LEVELS 3u
#define LEAF_BLOCK (256u << 10)
#define NODE_BLOCK (64u << 10)

enum { TREE_ENTRY, TREE_END, TREE_AGAIN /* a block was read */, TREE_PAUSED /* the reading call was interrupted */ };

/* One node on the way from the root. */
struct tree_level {
    uint64_t node, key;             /* its address; the page of its first element */
    uint64_t count, index;          /* elements; the next one */
    uint64_t first, loaded;         /* elements that are in bytes */
    uint64_t missing, hole;         /* elements that cannot be read; address of the first of them */
    unsigned element, shift;        /* size of an element; how far its index is shifted in a page's address */
    unsigned bits, counted;
    uint64_t capacity;
    uint8_t *bytes;
};

struct tree {
    const struct source *source;
    struct problems *problems;
    struct range *unknown;          /* grows by what is lost; the caller cuts it */
    const struct heap_layout *layout;
    unsigned height, depth, word, swap;
    unsigned high_bits;             /* bits of an address above lg_vaddr */
    uint64_t low_mask;              /* low bits of a compact word that are no part of the pointer */
    uint64_t page;
    uint64_t skip_pointer, skip_until;  /* elements that name this extent for pages below are passed over */
    uint64_t node_bytes;
    uint64_t bits;                  /* leaf_bits() of the element given last */
    uint64_t skip_bits;             /* what those of passed elements must be */
    uint64_t skipped, odd_page;     /* how many were passed, and the first that has others; the caller empties both */
    uint64_t nodes, leaf_nodes, unreadable_bytes, reads;
    struct range hole;              /* pages whose elements cannot be read: the caller empties it */
    uint64_t *seen;                 /* addresses of the nodes met, by hash */
    uint64_t seen_room, seen_count;
    int interrupted, no_memory;
    struct tree_level levels[MOST_LEVELS];
};

/* What a leaf element says of an extent: 0 where its kind is not known. Only kinds with a state have one. */
static inline uint64_t leaf_bits_of(uint64_t kind, uint64_t slab, uint64_t state, uint64_t szind)
{
    if (kind == LEAF_UNKNOWN)
        return 0;
    return slab | (kind == LEAF_COMPACT_STATE || kind == LEAF_METADATA ? state << 1 : 0) | szind << 8;
}

/* 0 if there is no memory. */
int tree_open(struct tree *tree, const struct source *source, const struct heap_layout *layout, struct problems *problems,
              struct range *unknown);
void tree_close(struct tree *tree);

/* The next leaf element that names an extent: its page and the extent's address. Moves on. */
int tree_next(struct tree *tree, uint64_t *page, uint64_t *pointer);

/* The page of the next element. */
uint64_t tree_at(const struct tree *tree);

#endif
