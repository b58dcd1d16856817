/* What C and Python both declare of jemalloc/: numbers, structs and functions. */
#pragma once

#include "../common/gdbheapx.h"

/* ---- records.py ---- */

enum {
    BLOCK_USED = 0, BLOCK_CACHED = 1, BLOCK_FREE = 2, BLOCK_DIRTY = 3, BLOCK_MUZZY = 4, BLOCK_RETAINED = 5,
    BLOCK_OTHER = 6, BLOCK_METADATA = 7, BLOCK_PINNED = 8
};
enum {
    CACHED_OUTSIDE = 0, CACHED_NOT_START = 1, CACHED_FREE = 2, CACHED_TWICE = 3, CACHED_UNKNOWN = 4,
    CACHED_REASONS = 5
};
enum {
    EXTENT_NODE_UNREADABLE = 0, EXTENT_NODE_HOLE = 1, EXTENT_NODE_TWICE = 2, EXTENT_NODE_MISALIGNED = 3,
    EXTENT_TOO_MANY_NODES = 4, EXTENT_UNREADABLE = 5, EXTENT_SIZE = 6, EXTENT_STALE = 7,
    EXTENT_FIRST_PAGE = 8, EXTENT_LAST_PAGE = 9, EXTENT_OVERLAP = 10, EXTENT_ARENA = 11, EXTENT_STATE = 12,
    EXTENT_SZIND = 13, EXTENT_SLAB_SIZE = 14, EXTENT_BITMAP = 15, EXTENT_LEAF = 16, EXTENT_INTERIOR = 17,
    EXTENT_SHARD = 18, EXTENT_BITMAP_REST = 19, EXTENT_CODES = 20, EXTENT_GOOD = -1, EXTENT_CLASSES = 218
};
enum {
    STATE_ACTIVE = 0, STATE_DIRTY = 1, STATE_MUZZY = 2, STATE_RETAINED = 3, STATE_PINNED = 4, STATE_OTHER = 5,
    STATES = 6
};
enum { LEAF_UNKNOWN = 0, LEAF_COMPACT = 1, LEAF_COMPACT_STATE = 2, LEAF_METADATA = 3, LEAF_FIELDS = 4 };
enum { MOST_PROBLEMS = 64, MOST_REGIONS = 32768, MOST_EXTENT_BYTES = 8192, MOST_RANGES = 131072 };
enum {
    LINKED_GOOD = 0, LINKED_UNREADABLE = 1, LINKED_BACK = 2, LINKED_ALIEN = 3, LINKED_FULL = 4,
    LINKED_CYCLE = 5
};
enum { UNUSED_NUMBERS = 8 };
#define NO_LINK 0xffffffffffffffffull

struct bit_field {
    uint64_t shift, width;
};

struct extent_layout {
    uint64_t size_bytes, bits_offset, addr_offset, size_offset, bitmap_offset, bitmap_bytes;
    struct bit_field arena, slab, state, szind, nfree;
    uint64_t states, active, dirty, muzzy, retained, word_bytes, little_endian;
    struct bit_field binshard;
    uint64_t pinned;
};

struct rtree_layout {
    uint64_t root, height, level_bits[3], lg_page, lg_vaddr, leaf_bytes, compact, extent_low_bits,
        sign_extend, leaf_kind;
};

struct bin_layout {
    uint64_t reg_size_bytes, slab_size_bytes, nregs, shards;
};

struct block_sizes {
    uint64_t from_extent, large_pad_bytes;
};

/* The bins follow it, then the size classes. */
struct heap_layout {
    struct rtree_layout rtree;
    struct extent_layout extent;
    struct block_sizes sizes;
    uint64_t narenas, mapped_bytes, nbins, nsizes;
};

struct state_totals {
    uint64_t extents, bytes;
    struct residency residency;
};

struct bin_totals {
    uint64_t szind, curslabs, curregs, cached_regions, nonfull_slabs;
};

struct large_totals {
    uint64_t szind, extents, bytes, cached_extents, cached_bytes;
};

struct absent_totals {
    uint64_t used, cached, free, rounding, sampled, dirty, muzzy, retained, pinned, other;
};

struct extent_problem {
    uint64_t code, page, extent;
};

struct cached_problem {
    uint64_t address, reason;
};

struct extents_summary {
    uint64_t done, at, nodes, leaf_nodes, extents, unassociated_extents, unparsed_bytes, unreadable_bytes,
        problems, details, cached_problems;
};

struct linked_list {
    uint64_t head, next_offset, prev_offset, child_offset, arena, state, szind, is_nonfull, most;
};

struct linked {
    uint64_t members, bytes, problem, at, before;
};

struct block_source;
struct block_wanted;
struct extents_job;
struct linked_job;
struct page_table;
struct source;

#pragma GCC visibility push(default)

/* ---- walkers.py ---- */

struct block_source *heapx_extent_blocks(const struct source *memory, const struct heap_layout *layout, const uint64_t *cached,
    uint64_t cached_count, const struct block_wanted *wanted, uint64_t arena);
struct extents_job *heapx_extents_new(const struct source *source, const struct heap_layout *layout, const uint64_t *cached,
    uint64_t cached_count, const struct page_table *pages, const uint64_t *runs, uint64_t run_count);
int64_t heapx_extents_slice(struct extents_job *job, double seconds);
void heapx_extents_summary(const struct extents_job *job, struct extents_summary *out);
void heapx_extents_problems(const struct extents_job *job, uint64_t *counts, uint64_t *detail_counts, uint64_t *cached_counts,
    struct extent_problem *problems, struct extent_problem *details, struct cached_problem *cached);
uint64_t heapx_extents_ranges(const struct extents_job *job, uint64_t room, uint64_t *out);
int heapx_extents_arena(const struct extents_job *job, uint64_t index, struct state_totals *states, struct bin_totals *bins,
    struct large_totals *larges, uint64_t *classes, uint64_t *counts, struct absent_totals *absent);
void heapx_extents_free(struct extents_job *job);
struct linked_job *heapx_linked_new(const struct source *source, const struct heap_layout *layout, const struct linked_list *lists,
    uint64_t count);
int64_t heapx_linked_slice(struct linked_job *job, double seconds);
uint64_t heapx_linked_result(const struct linked_job *job, struct linked *out);
void heapx_linked_free(struct linked_job *job);

#pragma GCC visibility pop
