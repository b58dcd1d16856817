/* What C and Python both declare of query/: functions. */
#pragma once

#include "blocks/gdbheapx_blocks.h"

struct csv_words;

#pragma GCC visibility push(default)

/* ---- csv_rows.py ---- */

int64_t heapx_csv_rows(const uint64_t *addresses, const uint64_t *usable, const uint8_t *classes, const uint8_t *kinds,
    const uint32_t *arenas, const uint32_t *labels, uint64_t count, const struct csv_words *words, char *out);

#pragma GCC visibility pop
