/* What C and Python both declare of tcmalloc/: numbers, structs and functions. */
#pragma once

#include "common/gdbheapx.h"

/* ---- records.py ---- */

enum { SPAN_BYTES = 48, SPAN_GOOD = 0, SPAN_UNREADABLE = 1, SPAN_WRONG = 2, SPAN_LEAF = 3 };
enum {
    TC_USED = 0, TC_CENTRAL = 1, TC_TRANSFER = 2, TC_CACHED = 3, TC_FREE_SPAN = 4, TC_RETURNED = 5,
    TC_TAIL = 6, TC_METADATA = 7
};
enum { TC_LARGE = 0, TC_FREE_LABEL = 128, TC_RETURNED_LABEL = 129, TC_TAIL_LABEL = 130 };
enum { SPAN_IN_USE = 0, SPAN_ON_NORMAL = 1, SPAN_ON_RETURNED = 2 };
enum { LIST_GOOD = 0, LIST_UNREADABLE = 1, LIST_LONG = 2, LIST_MISALIGNED = 3 };
enum { SIZE_CLASSES = 128, TC_LABELS = 131, MOST_SPAN_PROBLEMS = 1000 };

struct span_layout {
    uint64_t little_endian, page_shift, leaf_bits, page_bits;
};

struct page_leaf {
    uint64_t place, address;
};

struct tc_span {
    uint64_t address, start, bytes, size_class, location, is_sampled, refcount, objects, list;
};

struct span_tally {
    uint64_t spans, bytes, objects, listed;
};

struct span_range {
    uint64_t start, end;
};

struct tc_free_list {
    uint64_t head, most, kind, start;
};

struct tc_list_end {
    uint64_t count, problem, at;
};

struct span_problem {
    uint64_t code, address, page;
};

struct span_sums {
    uint64_t ended, spans, runs, held, problems, told;
};

struct list_sums {
    uint64_t ended, objects;
};

struct lists_job;
struct slot_run;
struct source;
struct spans_job;

#pragma GCC visibility push(default)

/* ---- walkers.py ---- */

struct spans_job *heapx_tc_spans_new(const struct source *source, const struct span_layout *layout, const struct page_leaf *leaves,
    uint64_t leaf_count, const uint64_t *sizes);
int64_t heapx_tc_spans_slice(struct spans_job *job, double seconds);
void heapx_tc_spans_sums(const struct spans_job *job, struct span_sums *out);
void heapx_tc_spans_result(const struct spans_job *job, struct tc_span *spans, struct slot_run *runs, struct span_problem *problems,
    struct span_tally *tallies, struct span_range *held);
void heapx_tc_spans_free(struct spans_job *job);
struct lists_job *heapx_tc_lists_new(const struct source *source, uint64_t little_endian, const struct tc_free_list *lists,
    uint64_t list_count, uint64_t most, struct tc_list_end *ends);
int64_t heapx_tc_lists_slice(struct lists_job *job, double seconds);
void heapx_tc_lists_sums(const struct lists_job *job, struct list_sums *out);
void heapx_tc_lists_result(const struct lists_job *job, uint64_t *objects);
void heapx_tc_lists_split(uint64_t *objects, uint64_t count, uint64_t *kinds);
void heapx_tc_lists_free(struct lists_job *job);

#pragma GCC visibility pop
