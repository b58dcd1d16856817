/* What C and Python both declare of short_stop/: numbers, structs and functions. */
#pragma once

#include "common/gdbheapx.h"

/* ---- running.py ---- */

enum { HELD_DONE = 0, HELD_ASKS = 1, HELD_NOT = 2 };

struct hold_order {
    uint64_t pid, limit_ns, patience_ns, number_at, result_at, thread_count, text_bytes, worker_count;
};

struct hold_taken {
    uint64_t began_ns, stopped_ns, unread_from, copied_bytes, unread_bytes, ended, text, text_bytes,
        registers, registers_bytes;
};

struct hold;

#pragma GCC visibility push(default)

/* ---- running.py ---- */

void heapx_copy_run_along(struct copy *copy, uint64_t threads, const struct source *swap, int is_marked, struct copy_taken *out);
void heapx_copy_round(struct copy *copy, uint64_t threads, const struct source *swap, int looks, struct copy_taken *out);
uint64_t heapx_copy_last(struct copy *copy, uint64_t threads, const struct source *swap, const double *until, struct copy_taken *out);
int heapx_follow_begin(int fd);
uint64_t heapx_pages_unmarked(const struct page_table *table, const uint64_t *ranges, uint64_t count);
uint64_t heapx_follow_ranges(int fd, int pagemap, const uint64_t *ranges, uint64_t count);
void heapx_follow_end(int fd, const uint64_t *ranges, uint64_t count);

struct hold *heapx_hold_new(const struct hold_order *order, const uint64_t *sets, uint64_t set_count);
void heapx_hold_free(struct hold *hold);
int heapx_hold_begin(struct hold *hold, struct copy *copy, const struct source *swap, const uint8_t *maps, uint64_t maps_bytes,
    struct hold_taken *out);
int heapx_hold_go_on(struct hold *hold, struct hold_taken *out);

#pragma GCC visibility pop
