/* The counters of a walk over jemalloc's extents (extent_totals.c), which become its answer (extent_answer.c). */
#ifndef HEAPX_EXTENT_TOTALS_H
#define HEAPX_EXTENT_TOTALS_H

#include "extents.h"

struct arena_totals {
    struct state_totals states[STATES];
    uint64_t rows[EXTENT_CLASSES][1 + UNUSED_NUMBERS];  /* class; extents and bytes of dirty, muzzy, retained, pinned */
    struct bin_totals *bins;            /* both behind the struct */
    struct large_totals *larges;
    struct absent_totals absent;
};

struct extents_job {
    struct extents extents;
    unsigned lg_page;
    struct page_window pages;
    const uint64_t *runs;               /* the caller's: begin and end of each run of pages that a core has; NULL: it is none */
    uint64_t run_count;
    const uint64_t *size_classes;       /* the caller's */
    struct block_sizes sizes;
    const uint64_t *cached;             /* the caller's */
    uint64_t cached_count, next_cached;
    uint64_t cached_counts[CACHED_REASONS];
    uint64_t cached_listed;
    struct cached_problem cached_rows[MOST_PROBLEMS];
    uint64_t counted;
    int no_memory, done;
    struct arena_totals **arenas;
    struct range *ranges;
    uint64_t range_count, range_room;
};

#endif
