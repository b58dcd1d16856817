/* jemalloc: the extents that the leaf elements of its rtree name (extents.c), for what is made of them (walkers.c). */
#ifndef HEAPX_EXTENTS_H
#define HEAPX_EXTENTS_H

#include "../common/heapx.h"
#include "gdbheapx_jemalloc.h"

/* What contradicts: the first MOST_PROBLEMS one by one, all of them counted. */
struct problems {
    uint64_t counts[EXTENT_CODES];
    uint64_t listed;
    struct extent_problem rows[MOST_PROBLEMS];
};

/* Addresses; empty if begin == end. */
struct range {
    uint64_t begin, end;
};

static inline int range_has(const struct range *range, uint64_t address)
{
    return address >= range->begin && address < range->end;
}

#define MOST_LEVELS 3u

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
    struct address_set seen;        /* nodes that were met */
    int interrupted, no_memory;
    struct tree_level levels[MOST_LEVELS];
};

#define MOST_GROUPS (MOST_REGIONS / 64)

static inline uint64_t bits_of(uint64_t bits, struct bit_field field)
{
    return bits >> field.shift & (((uint64_t) 1 << field.width) - 1);
}

struct extent {
    uint64_t pointer, begin, end, address;  /* address: e_addr, which may lie within the first page */
    uint64_t arena, slab, state, szind, nfree;
    int code;               /* EXTENT_GOOD, or what is wrong with it */
    int unassociated;
    uint64_t rest;          /* bits of the last group of the bitmap that no region has */
    uint64_t free[MOST_GROUPS];     /* slabs: one bit per region, set if free; none beyond nregs */
};

/* Extents in address order, each once, when the leaf elements of its first and its last page were met. */
struct extents {
    struct tree tree;
    struct pages pages;             /* of extent structures */
    uint8_t bytes[MOST_EXTENT_BYTES];   /* the structure at hand */
    struct problems problems;
    struct problems details;        /* what takes no extent out of the totals */
    const struct heap_layout *heap; /* the caller's, as the next three */
    const struct extent_layout *layout;
    const struct bin_layout *bins;
    const uint64_t *size_classes;
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

/* 0 if there is no memory. `heap` stays the caller's. */
int extents_open(struct extents *extents, const struct source *source, const struct heap_layout *heap);
void extents_close(struct extents *extents);

/* The extent structure at `address`, until the next call; NULL: it cannot all be read, or the reading call was interrupted. */
const uint8_t *extent_bytes(struct extents *extents, uint64_t address);

/* EXTENTS_ONE: *found is the next good extent, until the next call. EXTENTS_PAUSED: the deadline passed, or the reading call was
   interrupted. */
int extents_next(struct extents *extents, const struct extent **found);

/* The page that is next. */
uint64_t extents_at(const struct extents *extents);

/* Before each portion of work. */
static inline void extents_resume(struct extents *extents, double seconds)
{
    extents->tree.interrupted = extents->pages.interrupted = 0;
    extents->deadline = clock_now() + seconds;
}

static inline int extents_interrupted(const struct extents *extents)
{
    return extents->tree.interrupted || extents->pages.interrupted;
}

/* A word of a structure of the target. */
static inline uint64_t word_at(const struct extents *extents, const uint8_t *bytes)
{
    return load_word(bytes, extents->tree.word, extents->tree.swap);
}

/* STATE_ number. */
int extent_state(const struct extents *extents, const struct extent *extent);

/* Bytes of the only block of an extent that is no slab. */
uint64_t extent_block_bytes(const struct extents *extents, const struct extent *extent);

static inline int region_is_free(const struct extent *extent, uint64_t region)
{
    return (int) (extent->free[region >> 6] >> (region & 63) & 1);
}

#endif
