/* What C and Python both declare of musl/: numbers, structs and functions. */
#pragma once

#include "common/gdbheapx.h"

/* ---- records.py ---- */

enum { HEAD_LABEL = 64, HEAD_BACK = 22, HEAD_MARK = 23 };
enum { MUSL_USED = 0, MUSL_FREE = 1, MUSL_METADATA = 2 };
enum { PLACE_MAPPED = 0, PLACE_NESTED = 1, PLACE_DONATED = 2, PLACE_LOST = 3 };
enum {
    GROUP_GOOD = 0, GROUP_AREA_UNREADABLE = 1, GROUP_AREA_CHECK = 2, GROUP_AREA_AGAIN = 3, GROUP_CLASS = 4,
    GROUP_MASKS = 5, GROUP_PLACE = 6, GROUP_OVERLAP = 7, GROUP_OUTSIDE = 8, GROUP_UNMAPPED = 9,
    GROUP_MAKING = 10
};
enum {
    HEADER_INDEX = 16, HEADER_OFFSET = 17, HEADER_ZERO = 18, HEADER_SLACK = 19, HEADER_STALE = 20,
    HEADER_USED = 21, HEADER_HALF = 24
};
enum { TAG_NESTED = 1, TAG_SHORT = 2, TAG_BIG = 4 };
enum {
    UNIT_BYTES = 16, TRAILER_BYTES = 4, AREA_BYTES = 4096, MUSL_CLASSES = 48, OWN_CLASS = 63,
    MOST_MUSL_PROBLEMS = 1000
};

struct musl_layout {
    uint64_t word_bytes, little_endian, secret, first_area, most_areas, page_bytes;
};

struct musl_group {
    uint64_t address, meta, bytes, slot_bytes, slots, free_slots, nested_slots, size_class, place, problem,
        is_freeable;
};

struct musl_class {
    uint64_t groups, slots, free_slots, slot_bytes, free_bytes, counted_slots;
};

struct musl_held {
    uint64_t groups, own_bytes, rest_bytes, donated_bytes, lost_bytes;
};

struct musl_problem {
    uint64_t code, address, meta;
};

struct musl_sums {
    uint64_t ended, areas, groups, runs, held, alone, problems, told;
};

struct block_source;
struct block_wanted;
struct groups_job;
struct slot_run;
struct slot_tally_job;
struct source;

#pragma GCC visibility push(default)

/* ---- walkers.py ---- */

struct block_source *heapx_musl_blocks(const struct source *memory, const struct slot_run *runs, uint64_t run_count, const uint64_t *frees,
    const uint8_t *free_kinds, uint64_t free_count, const uint8_t *classes, const struct block_wanted *wanted);
struct slot_tally_job *heapx_musl_tally_new(const struct source *memory, const struct slot_run *runs, uint64_t run_count,
    const uint64_t *frees, uint64_t free_count, uint64_t labels);
struct groups_job *heapx_musl_groups_new(const struct source *source, const struct musl_layout *layout, const uint64_t *memory,
    uint64_t memory_count, int with_rows);
int64_t heapx_musl_groups_slice(struct groups_job *job, double seconds);
void heapx_musl_groups_sums(const struct groups_job *job, struct musl_sums *out);
void heapx_musl_groups_result(const struct groups_job *job, uint64_t *areas, uint64_t *held, uint64_t *alone, struct musl_class *classes,
    struct musl_held *sums, struct musl_problem *problems);
void heapx_musl_groups_rows(const struct groups_job *job, struct musl_group *groups, struct slot_run *runs);
void heapx_musl_groups_free(struct groups_job *job);

#pragma GCC visibility pop
