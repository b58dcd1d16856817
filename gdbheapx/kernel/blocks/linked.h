/* Blocks that links hold together: a link is a word of many blocks that leads to the like, from where the same word leads on. */
#ifndef HEAPX_LINKED_H
#define HEAPX_LINKED_H

#include "graph.h"

#define MOST_LINK_SLOT 512u
#define MOST_LINK_OFFSET 512u           /* words inside a target */
#define MOST_LINK_SIZE 65536u           /* bytes of a block that has links */
#define MOST_LINK_FIELDS 16u            /* of one group */
#define NEAR 8u                         /* members from here: what they need is asked of memory now */

#define STEPS_AT_ONCE 65536u            /* between two looks at the clock */
#define LEAST_SECONDS 0.05              /* between two questions */

/* Long work in one call, of which Python is asked now and then whether it is to go on. */
struct pace {
    stop_call is_over;                  /* NULL: nobody stops it */
    double next;
    uint64_t steps;
    int is_stopped;                     /* what is made by then is of no use */
};

/* So many steps more were done. 1: it is over, from now on. */
static inline int is_over(struct pace *pace, uint64_t steps)
{
    pace->steps += steps;
    if (pace->steps < STEPS_AT_ONCE || !pace->is_over)
        return pace->is_stopped;
    pace->steps = 0;
    const double now = clock_now();
    if (now >= pace->next) {
        pace->is_stopped |= pace->is_over();
        pace->next = now + LEAST_SECONDS;
    }
    return pace->is_stopped;
}

struct cluster {
    uint32_t first, members;            /* of order[] */
    uint32_t element_bytes;             /* 0: of several sizes */
    uint16_t field_count;
    uint8_t is_whole;                   /* each edge between its members is of one of the fields */
    struct link_field {
        uint16_t slot, inside;
        uint32_t edges, going_on, mutual, targets;
        uint8_t is_injective;
    } *fields;
};

struct linked {
    struct cluster *groups;
    uint32_t count;
    uint32_t *of;                       /* by block its group's number + 1; 0: none */
    uint32_t *order;                    /* blocks by group */
    uint16_t *inside;                   /* by edge the offset in its target, in words */
    uint16_t *hit;                      /* by block the fields of its group that lead to it, one bit each */
    struct link_field *fields;          /* of all groups: each has an edge at least */
    uint64_t field_count;
    size_t field_room;                  /* bytes */
    uint64_t blocks, edges;
};

/* The node's edge that stands in this slot and leads so many words inside its target; UINT32_MAX: there is none. */
static inline uint32_t edge_by_field(const struct graph *graph, const uint16_t *inside, uint32_t node, uint32_t slot, uint32_t place)
{
    uint32_t low = graph->offsets[node], high = graph->offsets[node + 1];
    const uint32_t end = high;
    while (high - low > 8) {
        const uint32_t middle = low + (high - low) / 2;
        if (slot_of(graph, middle) < slot)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < end && slot_of(graph, low) <= slot; low++)
        if (slot_of(graph, low) == slot && inside[low] == place)
            return low;
    return UINT32_MAX;
}

/* A block that is looked at soon: where its edges are, and its size. */
static inline void fetch_block(const struct graph *graph, uint32_t node)
{
    __builtin_prefetch(&graph->offsets[node]);
    __builtin_prefetch(&graph->index.sizes[node]);
}

/* What members that come later lead to, of this group or the next; and what a table by block has of that. */
static inline void fetch_members(const struct graph *graph, const struct linked *linked, const uint32_t *table, uint64_t place)
{
    const uint32_t *node = &linked->order[place];
    if (place + 3 * NEAR >= linked->blocks)
        return;
    fetch_block(graph, node[3 * NEAR]);
    __builtin_prefetch(&graph->to[graph->offsets[node[2 * NEAR]]]);
    for (uint32_t edge = graph->offsets[node[NEAR / 2]], end = graph->offsets[node[NEAR / 2] + 1]; edge < end; edge++)
        __builtin_prefetch(&graph->to[graph->offsets[EDGE_ID(graph->to[edge])]]);
    for (uint32_t edge = graph->offsets[node[NEAR]], end = graph->offsets[node[NEAR] + 1]; edge < end; edge++) {
        const uint32_t target = EDGE_ID(graph->to[edge]);
        fetch_block(graph, target);
        if (target < linked->blocks) {
            __builtin_prefetch(&linked->of[target]);
            __builtin_prefetch(&linked->hit[target]);
            __builtin_prefetch(&table[target]);
        }
    }
}

/* The field of the group that the edge is; -1: none. */
static inline int field_in(const struct graph *graph, const uint16_t *inside, const struct cluster *group, uint32_t edge)
{
    const uint64_t slot = slot_of(graph, edge);
    for (unsigned i = 0; i < group->field_count; i++)
        if (group->fields[i].slot == slot && group->fields[i].inside == inside[edge])
            return (int) i;
    return -1;
}

#endif
