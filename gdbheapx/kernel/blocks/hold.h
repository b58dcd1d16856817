/* What holds each node: which edges count for who owns it. */
#ifndef HEAPX_HOLD_H
#define HEAPX_HOLD_H

#include "marks.h"

/* How strong an edge is: weak by its rule alone, as those inside blocks are; weak by what it is, such as a parent's; one of a word that
   owns nothing, as its runtime says. What is weaker counts only where nothing better leads. */
enum { FIRM, BY_RULE, WEAK, LOOSE, STRENGTHS };

struct hold {
    uint8_t *weaker[STRENGTHS];     /* one bit an edge: it is weaker than this; the last one: it never counts */
    uint16_t *inside;               /* by edge the offset in its target, in words */
    uint32_t roots_from, locals_from, weak_from, weak_until;    /* roots: variables, thread-local ones, and stacks and registers */
};

static inline int has_edge(const uint8_t *bits, uint64_t edge)
{
    return bits[edge >> 3] >> (edge & 7) & 1;
}

static inline void set_edge(uint8_t *bits, uint64_t edge)
{
    bits[edge >> 3] |= (uint8_t) (1u << (edge & 7));
}

static inline void weaken(struct hold *hold, uint64_t edge, unsigned strength)
{
    for (unsigned one = 0; one < strength; one++)
        set_edge(hold->weaker[one], edge);
}

/* It is no stack and no register. */
static inline int is_lasting(const struct hold *hold, uint32_t node)
{
    return node < hold->weak_from || node >= hold->weak_until;
}

/* weaken.c: edges that are weak by what they are. 0: no memory. */
int hold_weaken(const struct graph *graph, struct hold *hold);

/* hold.c: weaker[FIRM] becomes all edges that do not count. 0: no memory. */
int hold_open(const struct graph *graph, struct hold *hold, int list_links);
void hold_close(const struct graph *graph, struct hold *hold);

#endif
