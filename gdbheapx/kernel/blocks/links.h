/* Links of doubly linked lists: pointers that lead to neighbours, and not to parts. */
#ifndef HEAPX_LINKS_H
#define HEAPX_LINKS_H

#include "graph.h"

/* The pointer in slot s leads to t, and the word behind t leads back to s; or t itself leads to the word before s. */
static inline int is_list_link(const struct graph *graph, const uint16_t *inside, uint32_t node, uint32_t edge)
{
    if (graph->links)
        return graph->links[edge >> 3] >> (edge & 7) & 1;
    const uint32_t target = EDGE_ID(graph->to[edge]), place = inside[edge];
    if (target >= graph->index.blocks || EDGE_RULE(graph->to[edge]) == RULE_TAG)
        return 0;
    const uint32_t end = graph->offsets[target + 1];
    uint32_t low = graph->offsets[target], high = place ? end : low;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (slot_of(graph, middle) < place)
            low = middle + 1;
        else
            high = middle;
    }
    for (uint32_t back = low; back < end && back < low + 2; back++)     /* those in slots place and place + 1 */
        if (EDGE_ID(graph->to[back]) == node) {
            const uint64_t slot = slot_of(graph, edge), there = slot_of(graph, back) - place;
            if (there <= 1 && inside[back] + UINT64_C(1) == slot + there)
                return 1;
        }
    return 0;
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
