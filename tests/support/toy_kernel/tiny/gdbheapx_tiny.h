/* What C and Python both declare of tiny/: numbers, structs and functions. */
#pragma once

#include "common/gdbheapx.h"

/* ---- walker.py ---- */

enum { HEADER_BYTES = 16, FREED = 1 };

struct tiny_room {
    uint64_t start, end;
};

struct block_source;
struct block_wanted;
struct source;

#pragma GCC visibility push(default)

/* ---- walker.py ---- */

struct block_source *heapx_tiny_blocks(const struct source *memory, const struct tiny_room *room, const struct block_wanted *wanted);

#pragma GCC visibility pop
