/* Who points to a node, and the shortest way to each node from a root. */
#include "marks.h"

/* The node whose edges the edge is among. */
static uint32_t source_of(const struct graph *graph, uint64_t edge)
{
    uint32_t low = 0, high = graph->nodes;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (graph->offsets[middle] <= edge)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Pointers to `node`, at most `room`, those that own nothing last. Returns how many. */
uint64_t heapx_graph_referrers(const struct graph *graph, uint32_t node, struct edge *out, uint64_t room)
{
    uint64_t count = 0;
    for (int is_owning = 1; is_owning >= 0; is_owning--)
        for (uint64_t edge = 0; edge < graph->edges && count < room; edge++)
            if (EDGE_ID(graph->to[edge]) == node && owns_nothing(graph, edge) != is_owning)
                out[count++] = (struct edge) {source_of(graph, edge), rule_of(graph, edge), slot_of(graph, edge)};
    return count;
}

/* `parents`: NO_NODE for every node; becomes the node before each on a shortest way from a root. Ways that a block's start is enough for
   come first, then others. 0, or NO_MEMORY. */
int heapx_graph_parents(const struct graph *graph, uint32_t roots_from, uint32_t *parents)
{
    uint32_t *queue = lazy_alloc((size_t) graph->nodes * sizeof *queue + 8);
    uint64_t begin = 0, end = 0;
    if (!queue)
        return NO_MEMORY;
    for (unsigned weak = 0; weak < 2; weak++) {
        const uint64_t known = end;
        begin = 0;
        for (uint32_t node = roots_from; !weak && node < graph->nodes; node++)
            queue[end++] = node;
        for (; begin < end; begin++) {
            const uint32_t node = queue[begin];
            for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
                const uint32_t target = EDGE_ID(graph->to[edge]);
                const int is_weak = rule_of(graph, edge) > RULE_HABIT;
                if (target >= roots_from || parents[target] != NO_NODE || (is_weak && !weak) || (!is_weak && weak && begin < known))
                    continue;
                parents[target] = node;
                queue[end++] = target;
            }
        }
    }
    lazy_free(queue, (size_t) graph->nodes * sizeof *queue + 8);
    return 0;
}
