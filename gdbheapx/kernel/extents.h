/* jemalloc: the rtree's leaf elements (rtree.c), the extents that they name (extents.c) and what is made of them (extent_totals.c, blocks.c).

   Numbers of gdbheapx/kernel/extents_api.py. */
#ifndef HEAPX_EXTENTS_H
#define HEAPX_EXTENTS_H

#include "heapx.h"

enum { BLOCK_USED, BLOCK_CACHED, BLOCK_FREE, BLOCK_DIRTY, BLOCK_MUZZY, BLOCK_RETAINED, BLOCK_OTHER };
enum { CACHED_OUTSIDE, CACHED_NOT_START, CACHED_FREE, CACHED_TWICE, CACHED_UNKNOWN, CACHED_REASONS };
enum {
    EXTENT_NODE_UNREADABLE, EXTENT_NODE_HOLE, EXTENT_NODE_TWICE, EXTENT_NODE_MISALIGNED, EXTENT_TOO_MANY_NODES,
    EXTENT_UNREADABLE, EXTENT_SIZE, EXTENT_STALE, EXTENT_FIRST_PAGE, EXTENT_LAST_PAGE, EXTENT_OVERLAP, EXTENT_ARENA, EXTENT_STATE,
    EXTENT_SZIND, EXTENT_SLAB_SIZE, EXTENT_BITMAP, EXTENT_CODES,
    EXTENT_GOOD = -1
};
#define MOST_PROBLEMS 64u
#define MOST_RANGES (1u << 17)

struct problem {
    uint64_t code, page, extent;
};

/* What contradicts: the first MOST_PROBLEMS one by one, all of them counted. */
struct problems {
    uint64_t counts[EXTENT_CODES];
    uint64_t listed;
    struct problem rows[MOST_PROBLEMS];
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

/* ---- rtree.c ---- */

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
    unsigned height, depth, word, swap, compact, sign_extend;
    unsigned high_bits;             /* bits of an address above lg_vaddr */
    uint64_t low_mask;              /* low bits of a compact word that are no part of the pointer */
    uint64_t page;
    uint64_t skip_pointer, skip_until;  /* elements that name this extent for pages below are passed over */
    uint64_t node_bytes, most_node_bytes;
    uint64_t nodes, leaf_nodes, unreadable_bytes, reads;
    struct range hole;              /* pages whose elements cannot be read: the caller empties it */
    uint64_t *seen;                 /* addresses of the nodes met, by hash */
    uint64_t seen_room, seen_count;
    int interrupted, no_memory;
    struct tree_level levels[MOST_LEVELS];
};

/* `numbers`: as extents_door.py makes them of RtreeLayout. 0 if there is no memory. */
int tree_open(struct tree *tree, const struct source *source, const uint64_t *numbers, unsigned word, unsigned swap, struct problems *problems,
              struct range *unknown);
void tree_close(struct tree *tree);

/* The next leaf element that names an extent: its page and the extent's address. Moves on. */
int tree_next(struct tree *tree, uint64_t *page, uint64_t *pointer);

/* The page of the next element. */
uint64_t tree_at(const struct tree *tree);

/* ---- extent_cache.c: extent structures, which lie close together but are met in any order ---- */

#define EXTENT_PAGES 512u           /* of CACHE_PAGE bytes */
#define EXTENT_PAGES_AHEAD 16u
#define MOST_EXTENT_BYTES 8192u

struct extent_cache {
    const struct source *source;
    uint8_t *bytes;
    uint64_t reads;
    int interrupted;
    uint64_t tags[EXTENT_PAGES];    /* page address | 1; 0 if empty */
    uint32_t lengths[EXTENT_PAGES];
    uint8_t whole[MOST_EXTENT_BYTES];
};

/* The `size` bytes at `address`, or NULL: they cannot all be read, or the reading call was interrupted. */
const uint8_t *extent_cache_at(struct extent_cache *cache, uint64_t address, uint64_t size);

/* ---- extents.c ---- */

#define MOST_GROUPS 512u            /* of 64 regions */

struct bit_field {
    unsigned shift;
    uint64_t mask;
};

struct bin {
    uint64_t reg_size, slab_size, nregs;
};

struct extent {
    uint64_t pointer, begin, end, address;  /* address: e_addr, which may lie within the first page */
    uint64_t arena, slab, state, szind, nfree;
    int code;               /* EXTENT_GOOD, or what is wrong with it */
    int unassociated;
    uint64_t free[MOST_GROUPS];     /* slabs: one bit per region, set if free; none beyond nregs */
};

/* Extents in address order, each once, when the leaf elements of its first and its last page were met. */
struct extents {
    struct tree tree;
    struct extent_cache cache;
    struct problems problems;
    unsigned word, swap;
    uint64_t extent_bytes, bits_offset, addr_offset, size_offset, bitmap_offset;
    struct bit_field arena, slab, state, szind, nfree;
    uint64_t states, active, dirty, muzzy, retained;
    uint64_t narenas, nsizes, nbins;
    const struct bin *bins;         /* the caller's */
    struct extent slots[2];
    struct extent *pending;         /* its last page is not met yet, if it is live */
    struct extent *spare;
    int live, have_entry, ended;
    uint64_t page, pointer;         /* the element at hand */
    uint64_t bad_pointer, bad_begin;    /* of this extent all is said, but for its element at bad_begin */
    struct range unknown;           /* where nothing can be said, since the extent before */
    uint64_t unassociated, unparsed_bytes;
    uint64_t clock_reads;
    double deadline;
};

enum { EXTENTS_ONE, EXTENTS_END, EXTENTS_PAUSED };

/* `numbers`: tree, extent and bounds, as extents_door.py makes them. 0 if there is no memory. */
int extents_open(struct extents *extents, const struct source *source, const uint64_t *numbers, const uint64_t *bins);
void extents_close(struct extents *extents);

/* EXTENTS_ONE: *found is the next good extent, until the next call. EXTENTS_PAUSED: the deadline passed, or the reading call was interrupted. */
int extents_next(struct extents *extents, const struct extent **found);

/* The page that is next. */
uint64_t extents_at(const struct extents *extents);

/* Before each portion of work. */
static inline void extents_resume(struct extents *extents, double seconds)
{
    extents->tree.interrupted = extents->cache.interrupted = 0;
    extents->deadline = clock_now() + seconds;
}

static inline int extents_interrupted(const struct extents *extents)
{
    return extents->tree.interrupted || extents->cache.interrupted;
}

static inline int region_is_free(const struct extent *extent, uint64_t region)
{
    return (int) (extent->free[region >> 6] >> (region & 63) & 1);
}

#endif
