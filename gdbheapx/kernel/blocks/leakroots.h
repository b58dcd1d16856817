/* Where leaks begin, as far as that is known: leakroots.c finds it, leakgroups.c sums it up. */
#ifndef HEAPX_LEAKROOTS_H
#define HEAPX_LEAKROOTS_H

#include "containers.h"
#include "marks.h"

enum { STEP_PREDECESSORS, STEP_FREE_STARTS, STEP_OTHER_STARTS, STEP_AGAIN, STEP_OVER };

#define IS_CYCLE (1u << 31)         /* beside the id */

struct leak_start {
    uint32_t id;
    uint32_t blocks;
    uint64_t bytes;                 /* itself and what hangs behind it */
};

struct leak_roots {
    struct spread spread;
    uint64_t *leaked, *pointed;     /* one bit a block: it is leaked; a leaked block points to it */
    const struct containers *containers;    /* those of which all is leaked are one node each, their first element; NULL: there are none */
    uint8_t *is_lost;               /* by container: all of it is leaked */
    uint8_t *left_out;              /* one bit an edge: of a user of such a container */
    /* spread.marked: at the end the bits of the roots */
    uint32_t *starts;
    uint64_t start_count, start_room;
    struct leak_start *roots;
    uint64_t root_count, root_room;
    unsigned step;
    uint64_t next;
    int draining;
    struct reached reached;
};

#endif
