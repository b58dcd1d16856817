/* What C and Python both declare of cold/: numbers, structs and functions. */
#pragma once

#include "blocks/gdbheapx_blocks.h"

/* ---- find.py ---- */

enum {
    COLD_RESIDENT = 1, COLD_SWAPPED = 2, COLD_STALE = 4, COLD_KNOWN = 8, COLD_LOCKED = 16, COLD_SEEN = 32
};

struct cold_sum {
    uint64_t owner, label, blocks, bytes, cold_blocks, cold_bytes, partly_bytes, known_bytes, resident_bytes,
        swapped_bytes, locked_bytes, unseen_bytes;
};

struct cold;
struct span;

#pragma GCC visibility push(default)

/* ---- find.py ---- */

void heapx_cold_free(struct cold *cold);
struct cold *heapx_cold_new(const struct graph *graph, const uint32_t *owners, const uint32_t *labels, const struct span *spans,
    uint64_t count, const uint8_t *kinds, uint64_t page_bytes);
int64_t heapx_cold_slice(struct cold *cold, double seconds);
uint64_t heapx_cold_found(const struct cold *cold, struct cold_sum *out, uint64_t room);
uint64_t heapx_cold_done(const struct cold *cold);

#pragma GCC visibility pop
