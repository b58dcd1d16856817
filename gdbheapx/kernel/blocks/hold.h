/* What holds each node: which edges count for who owns it. */
#ifndef HEAPX_HOLD_H
#define HEAPX_HOLD_H

#include "containers.h"
#include "marks.h"

/* How strong an edge is: weak by its rule alone, as those inside blocks are; weak by what it is, such as a parent's; of who uses an element
   of a container or a child of another; of a word that owns nothing, as its runtime says. What is weaker counts only where nothing better
   leads. */
enum { FIRM, BY_RULE, WEAK, USE, LOOSE, STRENGTHS };

struct hold {
    uint8_t *weaker[STRENGTHS];     /* one bit an edge: it is weaker than this; the last one: it never counts */
    uint16_t *inside;               /* by edge the offset in its target, in words; while hold_open() lasts */
    uint32_t roots_from, locals_from, weak_from, weak_until;    /* roots: variables, thread-local ones, and stacks and registers */
    const struct containers *containers;    /* NULL: there are none */
};

/* The number + 1 of the container whose member the node is; 0: of none. */
static inline uint32_t container_of(const struct graph *graph, const struct hold *hold, uint32_t node)
{
    return hold->containers && node < graph->index.blocks ? hold->containers->of[node] : 0;
}

/* Each container is a node behind those of the graph, and leads to its members by edges behind those of the graph. */
static inline uint32_t edge_begin(const struct graph *graph, const struct hold *hold, uint32_t node)
{
    return node < graph->nodes ? graph->offsets[node] : (uint32_t) graph->edges + hold->containers->all[node - graph->nodes].first;
}

static inline uint32_t edge_end(const struct graph *graph, const struct hold *hold, uint32_t node)
{
    return node < graph->nodes ? graph->offsets[node + 1]
        : edge_begin(graph, hold, node) + hold->containers->all[node - graph->nodes].members;
}

/* Who points to a member points to its container. */
static inline uint32_t edge_target(const struct graph *graph, const struct hold *hold, uint32_t edge)
{
    if (edge >= graph->edges)
        return hold->containers->order[edge - graph->edges];
    const uint32_t target = EDGE_ID(graph->to[edge]), number = container_of(graph, hold, target);
    return number ? graph->nodes + number - 1 : target;
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
int hold_open(const struct graph *graph, struct hold *hold);
void hold_close(const struct graph *graph, struct hold *hold, unsigned from);    /* FIRM: all */

#endif
