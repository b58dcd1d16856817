/* What C and Python both declare of glibc/: numbers, structs and functions. */
#pragma once

#include "../common/gdbheapx.h"

enum {
    BROKEN_PREV_SIZE = 0, BROKEN_FREE_NEIGHBOURS = 1, BROKEN_NOT_BINNED = 2, BROKEN_BINNED_USED = 3,
    BROKEN_BINNED_ASTRAY = 4, BROKEN_LISTED_FREE = 5, BROKEN_LISTED_ASTRAY = 6, BROKEN_NON_MAIN = 7,
    BROKEN_FREE_FLAGS = 8, BROKEN_FIRST = 9, BROKEN_STOP = 10, BROKEN_RULES = 11
};
enum {
    MEMBER_SIZE = 0, MEMBER_KEY = 1, MEMBER_ORDER = 2, MEMBER_NEXTSIZE = 3, MEMBER_LINK = 4, MEMBER_RULES = 5
};
enum { REGION_MAIN = 1, REGION_FIRST = 2, REGION_BINS_KNOWN = 4 };
enum { MOST_ROWS = 64, WALK_CLASSES = 345 };

struct region {
    uint64_t begin, end, top, joined;
};

struct checked {
    struct region region;
    uint64_t flags;
};

struct member_list {
    uint64_t kind, head, count, min_size, max_size, key, is_sorted;
};

struct broken {
    uint64_t rule, address, value, previous, previous_status;
};

enum { TCACHE = 0, FAST = 1, BIN = 2 };
enum { UNALIGNED = 1, UNREADABLE = 2, TOO_LONG = 3, BACK_LINK = 4, CYCLE = 5, CUT = 6 };
enum { TCACHE_SIZED = 3 };
enum { LISTS_MEMBERS = 0, LISTS_TWICE = 1, LISTS_MAPPED = 2 };

struct rules {
    uint64_t mangled, collect, most_entries;
};

enum { SPECIAL_FAST = 1, SPECIAL_TCACHE = 2, SPECIAL_TCACHE_STRUCT = 3 };
enum {
    STATUS_USED = 0, STATUS_FAST = 1, STATUS_TCACHE = 2, STATUS_TCACHE_STRUCT = 3, STATUS_FREE = 4,
    STATUS_TOP = 5, STATUS_FENCE = 6, STATUS_MAPPED = 7, STATUS_MAPPED_TCACHE = 8
};

struct geometry {
    uint64_t word_bytes, alignment_bytes, min_chunk_bytes, chunk_struct_bytes, page_bytes, little_endian,
        is_tagged;
};

struct listed {
    struct region region;
    uint64_t arena;
};

struct walk_result {
    uint64_t stop, at, used_chunks, used_bytes, tcache_chunks, tcache_bytes, fast_chunks, fast_bytes,
        free_chunks, free_bytes, tcache_struct_chunks, tcache_struct_bytes, top_bytes, fence_bytes,
        largest_free_bytes, interior_bytes, interior_resident_bytes, interior_exclusive_bytes,
        interior_unsure_bytes, interior_huge_bytes, interior_ranges, top_run_start, free_sum, fd_sum, bk_sum,
        bad_prev_size, bad_prev_size_chunks, bad_neighbour, bad_neighbour_chunks, further_pieces, specials_met,
        missed_special, missed_specials;
};

struct block_source;
struct block_wanted;
struct chain;
struct checker;
struct job;
struct lists;
struct members;
struct mmapped;
struct page_table;
struct source;

#pragma GCC visibility push(default)

void heapx_check_free(struct checker *checker);
struct checker *heapx_check_new(const struct source *source, const struct geometry *geometry, const struct checked *regions,
    uint64_t region_count, const uint64_t *specials, uint64_t special_count, const uint64_t *members, uint64_t member_count);
int64_t heapx_check_slice(struct checker *checker, double seconds);
uint64_t heapx_check_result(const struct checker *checker, uint64_t room, uint64_t *counts, struct broken *rows);
void heapx_members_free(struct members *members);
struct members *heapx_members_new(const struct source *source, const struct geometry *geometry, const struct member_list *lists,
    uint64_t count, int mangled);
int64_t heapx_members_slice(struct members *members, double seconds);
uint64_t heapx_members_result(const struct members *members, uint64_t room, uint64_t *counts, struct broken *rows);

void heapx_lists_free(struct lists *lists);
struct lists *heapx_lists_new(const struct source *source, const struct geometry *geometry, const uint64_t *columns, uint64_t count,
    const uint64_t *also, uint64_t also_count, const struct rules *rules);
int64_t heapx_lists_slice(struct lists *lists, double seconds);
void heapx_lists_result(const struct lists *lists, uint64_t *out);
uint64_t heapx_lists_numbers(const struct lists *lists, int which, const uint64_t **values);

struct block_source *heapx_chunk_blocks(const struct source *memory, const struct geometry *geometry, const struct listed *regions,
    uint64_t region_count, const uint64_t *specials, uint64_t special_count, const struct block_wanted *wanted);
void heapx_chain_free(struct chain *chain);
struct chain *heapx_chain_new(const struct source *source, const struct geometry *geometry, uint64_t low, uint64_t high,
    const uint64_t *anchors, uint64_t anchor_count, int strict, int fences, uint64_t step);
int64_t heapx_chain_slice(struct chain *chain, double seconds);
int heapx_chain_found(const struct chain *chain, uint64_t *start);
void heapx_mmapped_free(struct mmapped *scan);
struct mmapped *heapx_mmapped_new(const struct source *source, const struct geometry *geometry, const uint64_t *ranges,
    uint64_t range_count, const uint64_t *data, uint64_t data_count, int has_trailer, uint64_t wanted_chunks, uint64_t wanted_bytes,
    uint64_t most_pages, const struct page_table *pages);
int64_t heapx_mmapped_slice(struct mmapped *scan, double seconds);
uint64_t heapx_mmapped_result(const struct mmapped *scan, uint64_t room, uint64_t *out);
int heapx_mmapped_complete(const struct mmapped *scan);
int64_t heapx_walk_slice(struct job *job, double seconds);
void heapx_walk_free(struct job *job);
struct job *heapx_walk_new(const struct source *source, const struct geometry *geometry, const struct region *regions,
    uint64_t region_count, const uint64_t *specials, uint64_t special_count, const struct page_table *pages, unsigned threads);
uint64_t heapx_walk_result(struct job *job, uint64_t region, struct walk_result *out, uint64_t *classes);

#pragma GCC visibility pop
