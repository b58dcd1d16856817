/* Marks on the nodes of a graph, and the stack that spreads them. */
#ifndef HEAPX_MARKS_H
#define HEAPX_MARKS_H

#include "graph.h"

#include <stdlib.h>

#define PLANES 4u
#define QUEUE 16u
#define CHECK_CLOCK 8192u           /* nodes between two looks at it */

struct spread {
    uint64_t *marked;               /* one bit a node */
    uint32_t *stack;
    uint64_t depth, room;
    const uint8_t *left_out;        /* one bit an edge that is not followed; NULL: there is none */
    int (*entered)(struct spread *spread, uint32_t node);   /* called before its edges are followed: 0: no memory; NULL: nobody is */
};

static inline int spread_open(struct spread *spread, uint32_t nodes)
{
    memset(spread, 0, sizeof *spread);
    spread->marked = calloc((size_t) nodes / 64 + 1, 8);
    return spread->marked != NULL;
}

/* Nothing is waiting. */
static inline void spread_shrink(struct spread *spread)
{
    lazy_free(spread->stack, (size_t) spread->room * sizeof *spread->stack);
    spread->stack = NULL;
    spread->depth = spread->room = 0;
}

static inline void spread_close(struct spread *spread)
{
    free(spread->marked);
    spread->marked = NULL;
    spread_shrink(spread);
}

static inline int is_marked(const struct spread *spread, uint32_t node)
{
    return (int) (spread->marked[node >> 6] >> (node & 63) & 1);
}

static inline void mark(struct spread *spread, uint32_t node)
{
    spread->marked[node >> 6] |= 1ull << (node & 63);
}

/* Marks and remembers that its edges are to be followed. 0: no memory. */
int spread_push(struct spread *spread, uint32_t node);

/* What is told of each node that is reached. */
struct reached {
    uint64_t blocks, bytes;
};

#define OWNED (RULES + 1)               /* any rule, but none of words that own nothing */

/* Follows edges of at most this rule from all that was pushed until nothing is left, or the deadline: 1 then, else 0, NO_MEMORY.
   `only`: where not NULL, no node that lacks this mark is entered. */
int spread_drain(const struct graph *graph, struct spread *spread, unsigned rule, const uint64_t *only, struct reached *reached,
                 double deadline);

enum { PHASE_SEEDS, PHASE_DRAIN, PHASE_DONE };

struct marks {
    struct spread spread;
    uint64_t *planes[PLANES];            /* bit by bit what leads to each node: a rule, FROM_MAPPING or LEAKED */
    uint32_t roots_from;            /* nodes from here on are roots */
    unsigned round, phase;
    uint32_t next;
    struct leak_roots *leak_roots;
    void (*free_leak_roots)(struct leak_roots *roots);
};

static inline unsigned evidence_of(const struct marks *marks, uint32_t node)
{
    const uint32_t word = node >> 6, bit = node & 63;
    uint64_t evidence = 0;
    for (unsigned plane = 0; plane < PLANES; plane++)
        evidence |= (marks->planes[plane][word] >> bit & 1) << plane;
    return (unsigned) evidence;
}

/* Of a node that nothing leads to by now. */
static inline void set_evidence(struct marks *marks, uint32_t node, unsigned evidence)
{
    for (unsigned plane = 0; plane < PLANES; plane++)
        if (!(evidence >> plane & 1))
            clear_bit(marks->planes[plane], node);
}

/* Of 64 nodes those that nothing leads to. */
static inline uint64_t leaked_of(const struct marks *marks, size_t word)
{
    return marks->planes[0][word] & marks->planes[1][word] & marks->planes[2][word] & marks->planes[3][word];
}

static inline int is_leaked(const struct marks *marks, uint32_t node)
{
    return (int) (leaked_of(marks, node >> 6) >> (node & 63) & 1);
}

#endif
