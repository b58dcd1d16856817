/* Links of doubly linked lists: pointers that lead to neighbours, and not to parts. */
#ifndef HEAPX_LINKS_H
#define HEAPX_LINKS_H

#include "graph.h"

/* Some edge of `node` stands in this slot and points to `target` at this offset. */
static inline int has_edge(const struct graph *graph, const uint16_t *inside, uint32_t node, uint32_t slot, uint32_t target,
                           uint32_t offset)
{
    uint32_t low = graph->offsets[node], high = graph->offsets[node + 1];
    const uint32_t end = high;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (graph->slots[middle - graph->first_slotted] < slot)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && graph->slots[low - graph->first_slotted] == slot && EDGE_ID(graph->to[low]) == target
        && inside[low] == offset;
}

/* The pointer in slot s leads to t, and the word behind t leads back to s; or t itself leads to the word before s. */
static inline int is_list_link(const struct graph *graph, const uint16_t *inside, uint32_t node, uint32_t edge)
{
    if (graph->links)
        return graph->links[edge >> 3] >> (edge & 7) & 1;
    const uint32_t target = EDGE_ID(graph->to[edge]), slot = graph->slots[edge - graph->first_slotted], place = inside[edge];
    if (target >= graph->index.blocks || EDGE_RULE(graph->to[edge]) == RULE_TAG)
        return 0;
    return has_edge(graph, inside, target, place + 1, node, slot) || (slot && has_edge(graph, inside, target, place, node, slot - 1));
}

/* By edge the offset in its target, in words. */
static inline void find_offsets(const struct graph *graph, uint16_t *words)
{
    uint64_t inside = 0;
    for (uint64_t edge = 0; edge < graph->edges; edge++) {
        words[edge] = 0;
        if (leads_inside(graph->to[edge])) {
            const uint16_t offset = graph->inside[inside++];
            words[edge] = offset == MOST_OFFSET ? MOST_OFFSET : (uint16_t) (offset / graph->word);
        }
    }
}

#endif
