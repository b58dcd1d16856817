/* Questions about who owns what, and the split of roots that comes before it. */
#include "marks.h"

/* Blocks and bytes that can be reached from each root alone, whatever else leads there: `bytes` and `blocks` by root. */
int heapx_graph_reached(const struct graph *graph, uint32_t first, uint32_t end, uint64_t *bytes, uint64_t *blocks)
{
    struct spread spread;
    struct reached reached = {0, 0};
    int more = NO_MEMORY;
    if (spread_open(&spread, graph->nodes)) {
        more = 0;
        for (uint32_t node = first; node < end && !more; node++)
            if (!is_marked(&spread, node))
                more = spread_push(&spread, node) ? spread_drain(graph, &spread, OWNED, NULL, &reached, 1e300) : NO_MEMORY;
    }
    spread_close(&spread);
    *bytes = reached.bytes;
    *blocks = reached.blocks;
    return more;
}

/* By node whether it has an edge of another rule than RULE_START, for as many nodes as there are offsets. NULL: no memory. */
static uint64_t *find_weaker(const struct graph *graph, const uint32_t *offsets, uint32_t nodes)
{
    uint64_t *weaker = lazy_alloc(((size_t) nodes / 64 + 1) * sizeof *weaker);
    for (uint32_t node = 0; weaker && node < nodes; node++)
        for (uint32_t edge = offsets[node]; edge < offsets[node + 1]; edge++)
            if (EDGE_RULE(graph->to[edge]) != RULE_START) {
                weaker[node >> 6] |= 1ull << (node & 63);
                break;
            }
    return weaker;
}

/* Splits roots: node i of `nodes` (ascending) begins a new root at each of its `slots`, which ascend. The graph has as many more nodes;
   marks are those of the nodes before. */
int heapx_graph_split(struct graph *graph, const uint32_t *nodes, const uint32_t *slots, uint32_t count)
{
    const size_t room = ((size_t) graph->nodes + count + 2) * sizeof(uint32_t);
    uint32_t *offsets = lazy_alloc(room), at = 0, made = 0;
    if (!offsets)
        return NO_MEMORY;
    for (uint32_t node = 0; node < graph->nodes; node++) {
        uint32_t edge = graph->offsets[node];
        offsets[made++] = edge;
        for (; at < count && nodes[at] == node; at++) {
            while (edge < graph->offsets[node + 1] && graph->slots[edge - graph->first_slotted] < slots[at])
                edge++;
            offsets[made++] = edge;
        }
    }
    offsets[made] = (uint32_t) graph->edges;
    uint64_t *weaker = find_weaker(graph, offsets, made);
    if (!weaker) {
        lazy_free(offsets, room);
        return NO_MEMORY;
    }
    lazy_free(graph->offsets, ((size_t) graph->nodes + 2) * sizeof *graph->offsets);
    lazy_free(graph->weaker, ((size_t) graph->nodes / 64 + 1) * sizeof *graph->weaker);
    graph->offsets = offsets;
    graph->weaker = weaker;
    graph->nodes = made;
    return 0;
}

/* By node the one that it owns which retains most: `heaviest`, NO_NODE for every node before. */
void heapx_tree_heaviest(const uint32_t *owners, const uint64_t *bytes, uint32_t nodes, uint32_t *heaviest)
{
    for (uint32_t node = 0; node < nodes; node++) {
        const uint32_t owner = owners[node];
        if (owner != NO_NODE && (heaviest[owner] == NO_NODE || bytes[node] > bytes[heaviest[owner]]))
            heaviest[owner] = node;
    }
}

/* Children one after the other, ascending: `first` by owner, at `nodes` for those that nobody owns, NO_NODE before; `next` by node. */
void heapx_tree_index(const uint32_t *owners, uint32_t nodes, uint32_t *first, uint32_t *next)
{
    for (uint32_t node = nodes; node-- > 0;) {
        uint32_t *head = &first[owners[node] == NO_NODE ? nodes : owners[node]];
        next[node] = *head;
        *head = node;
    }
}

/* One more of those that retain most. */
static void keep_largest(const uint64_t *bytes, uint32_t node, uint32_t *out, uint64_t room, uint64_t *kept)
{
    if (*kept == room && (!room || bytes[out[*kept - 1]] >= bytes[node]))
        return;
    uint64_t at = *kept < room ? (*kept)++ : *kept - 1;
    for (; at && bytes[out[at - 1]] < bytes[node]; at--)
        out[at] = out[at - 1];
    out[at] = node;
}

/* The nodes below `end` that `owner` owns directly, or nobody, if it is NO_NODE: those that retain most first, at most `room`. `begin`:
   where they begin, and `next`, of heapx_tree_index; NULL: all nodes are looked at. Returns how many there are. */
uint64_t heapx_tree_children(const uint32_t *owners, const uint64_t *bytes, uint32_t begin, const uint32_t *next, uint32_t end,
                             uint32_t owner, uint32_t *out, uint64_t room)
{
    uint64_t count = 0, kept = 0;
    for (uint32_t node = begin; node < end; node = next ? next[node] : node + 1)
        if (owners[node] == owner && bytes[node]) {
            count++;
            keep_largest(bytes, node, out, room, &kept);
        }
    return count;
}
