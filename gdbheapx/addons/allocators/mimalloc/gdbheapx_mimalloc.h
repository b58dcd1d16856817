/* What C and Python both declare of mimalloc/: numbers, structs and functions. */
#pragma once

#include "common/gdbheapx.h"

/* ---- records.py ---- */

enum { LIST_GOOD = 0, LIST_STRAY = 1, LIST_LONG = 2, LIST_UNREADABLE = 3, LIST_KIND_BITS = 3 };

struct mi_free_list {
    uint64_t head, page, kind, null, is_encoded, key, turn;
};

struct mi_list_page {
    uint64_t start, block_bytes, blocks;
};

struct mi_list_end {
    uint64_t members, problem, at;
};

struct free_lists;
struct source;

#pragma GCC visibility push(default)

struct free_lists *heapx_mimalloc_lists_new(const struct source *source, const struct mi_free_list *lists, uint64_t count,
    const struct mi_list_page *pages, uint64_t page_count);
int64_t heapx_mimalloc_lists_slice(struct free_lists *job, double seconds);
uint64_t heapx_mimalloc_lists_count(const struct free_lists *job, uint64_t *lists);
void heapx_mimalloc_lists_result(const struct free_lists *job, uint64_t *found, struct mi_list_end *ends, uint64_t *shared);
uint64_t heapx_mimalloc_lists_split(uint64_t *found, uint64_t count, uint8_t *kinds);
void heapx_mimalloc_lists_free(struct free_lists *job);

#pragma GCC visibility pop
