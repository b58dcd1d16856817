/* What a signer asks of a block: rows of conditions. */
#ifndef HEAPX_CONDITIONS_H
#define HEAPX_CONDITIONS_H

#include "../common/heapx.h"
#include "declared_blocks.h"

struct condition {
    uint64_t offset, width, mask, op;
    uint64_t base, operand;             /* what it is compared with; of IN_SET and IN_RANGES the operand is the set */
    uint64_t other;                     /* FIELD: where the other word stands, of the same width */
};

struct signature_row {
    uint64_t least, most;               /* usable bytes */
    uint64_t key_offset, key_width, key_mask;   /* key_width 0: none */
    uint64_t first, end;                /* its conditions */
    uint64_t is_sized;                  /* the key has the usable bytes in it */
    uint64_t is_weak;                   /* what meets it may turn out to be nothing: its content is told then */
};

/* Numbers, by hash; or ranges, sorted. */
struct number_set {
    uint64_t *numbers;
    uint64_t count, places;             /* places: a power of two; 0: ranges */
    uint64_t low, high;
};

/* All rows of a signer. */
struct asked_rows {
    const struct condition *conditions;
    const struct signature_row *rows;
    uint64_t row_count;
    const struct number_set *sets;
    unsigned swap;
};

#endif
