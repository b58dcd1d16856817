/* What C and Python both declare of v8/: numbers, structs and functions. */
#pragma once

#include "common/gdbheapx.h"

/* ---- script_heap.py ---- */

enum { SIZE_BITS = 16, MOST_OBJECT_WORDS = 4096 };

struct size_rule {
    uint64_t head_bytes, unit_bytes, shift, mask, is_small_integer;
};

struct page_walk {
    uint64_t at, is_led, objects, proven_words, free_words, other_words, asks_for_rules;
};

#pragma GCC visibility push(default)

/* ---- script_heap.py ---- */

uint64_t heapx_v8_measure(const uint64_t *words, uint64_t count, uint64_t at, const uint64_t *maps, uint64_t slots,
    const struct size_rule *rules);
int heapx_v8_walk(const uint64_t *words, uint64_t count, struct page_walk *walk, const uint64_t *maps, uint64_t slots,
    const struct size_rule *rules, uint64_t free_rule, uint32_t *objects);
uint64_t heapx_v8_members(const uint64_t *words, uint64_t count, const uint64_t *set, uint64_t slots, uint32_t *places);
uint64_t heapx_v8_pointers(const uint64_t *words, uint64_t count, uint64_t low, uint64_t high, uint32_t *places);

#pragma GCC visibility pop
