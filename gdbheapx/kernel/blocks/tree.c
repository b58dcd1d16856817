/* Questions about who owns what, and the split of roots that comes before it. */
#include "marks.h"

/* The next node below `top` in the tree of heapx_tree_index, each before those that it owns; NO_NODE: that was all. */
static uint32_t next_below(const uint32_t *owners, const uint32_t *first, const uint32_t *next, uint32_t top, uint32_t at)
{
    if (first[at] != NO_NODE)
        return first[at];
    while (at != top && next[at] == NO_NODE)
        at = owners[at];
    return at == top ? NO_NODE : next[at];
}

/* Blocks and bytes that can be reached from a node by words that own something, whatever else leads there; and, where it has a tree, from
   what it keeps: some by words that own nothing, where nothing else leads there. `first`, `next`: of heapx_tree_index, NULL without. */
int heapx_graph_reached(const struct graph *graph, uint32_t node, const uint32_t *owners, const uint32_t *first, const uint32_t *next,
                        uint64_t *bytes, uint64_t *blocks)
{
    struct spread spread;
    struct reached reached = {0, 0};
    int more = NO_MEMORY;
    if (spread_open(&spread, graph->nodes)) {
        more = 0;
        for (uint32_t at = node; at != NO_NODE && !more; at = first ? next_below(owners, first, next, node, at) : NO_NODE)
            if (at < graph->nodes && !is_marked(&spread, at))
                more = spread_push(&spread, at) ? spread_drain(graph, &spread, OWNED, NULL, &reached, 1e300) : NO_MEMORY;
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

/* What else leads to what each of these owners keeps: so many pointers from the roots [weak_from, weak_until), so many that own nothing,
   and so many others. `under`: of heapx_tree_under for them. After the marks. */
void heapx_tree_others(const struct graph *graph, const uint32_t *under, const uint32_t *asked, uint32_t weak_from, uint32_t weak_until,
                       struct others *out)
{
    for (uint32_t node = 0; node < graph->nodes; node++) {
        if (node < graph->marks->roots_from && is_leaked(graph->marks, node))
            continue;
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]), place = under[target];
            __builtin_prefetch(&under[EDGE_ID(graph->to[edge + AHEAD < graph->edges ? edge + AHEAD : edge])]);
            if (!place || place == under[node] || is_loose(graph, edge) || target == asked[place - 1])
                continue;                           /* who leads to the owner itself holds it */
            struct others *others = &out[place - 1];
            if (node >= weak_from && node < weak_until)
                others->stacks++;
            else if (is_unowning(graph, edge))
                others->unowning++;
            else
                others->weak++;
        }
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

/* `under`: number + 1 of each node that is asked for, 0 of the others; becomes that of the nearest of them at or above each node, or stays
   0. `owners`: of the tree. */
void heapx_tree_under(const uint32_t *owners, uint32_t nodes, uint32_t *under)
{
    for (uint32_t node = 0; node < nodes; node++) {
        uint32_t top = node;
        if (node + AHEAD < nodes && owners[node + AHEAD] != NO_NODE)
            __builtin_prefetch(&under[owners[node + AHEAD]]);
        while (!under[top] && owners[top] != NO_NODE)
            top = owners[top];
        const uint32_t number = under[top] ? under[top] : UINT32_MAX;
        for (uint32_t at = node; !under[at]; at = owners[at]) {
            under[at] = number;
            if (owners[at] == NO_NODE)
                break;
        }
    }
    for (uint32_t node = 0; node < nodes; node++)
        under[node] = under[node] == UINT32_MAX ? 0 : under[node];
}

/* Blocks and bytes of each label under each of `tops` nodes (0: none of them), for `out` with four numbers of each: which, label, blocks,
   bytes. `labels`: of each block, below `label_count`. Returns how many rows there are, at most `room` of them written, or NO_MEMORY. */
int64_t heapx_tree_classes(const struct graph *graph, const uint32_t *under, uint32_t tops, const uint32_t *labels, uint32_t label_count,
                           uint64_t *out, uint64_t room)
{
    const uint32_t blocks = (uint32_t) graph->index.blocks;
    uint64_t *begins = calloc((size_t) tops + 2, sizeof *begins), *sums = calloc((size_t) label_count, 2 * sizeof *sums);
    uint32_t *ids = lazy_alloc((size_t) blocks * sizeof *ids + 8);
    int64_t rows = begins && sums && ids ? 0 : NO_MEMORY;
    for (uint32_t id = 0; !rows && id < blocks; id++)
        begins[under[id] + 1]++;
    for (uint32_t top = 0; !rows && top <= tops; top++)
        begins[top + 1] += begins[top];
    for (uint32_t id = 0; !rows && id < blocks; id++)
        ids[begins[under[id]]++] = id;              /* each begin becomes the next one's */
    for (uint32_t top = 0; rows >= 0 && top <= tops; top++) {
        const uint64_t from = top ? begins[top - 1] : 0;
        for (uint64_t at = from; at < begins[top]; at++) {
            sums[2 * labels[ids[at]]]++;
            sums[2 * labels[ids[at]] + 1] += index_size(&graph->index, ids[at]);
        }
        for (uint64_t at = from; at < begins[top]; at++) {
            const uint32_t label = labels[ids[at]];
            if (!sums[2 * label])
                continue;
            if ((uint64_t) rows < room)
                memcpy(out + 4 * rows, (uint64_t[]) {top, label, sums[2 * label], sums[2 * label + 1]}, 32);
            sums[2 * label] = sums[2 * label + 1] = 0;
            rows++;
        }
    }
    free(begins);
    free(sums);
    lazy_free(ids, (size_t) blocks * sizeof *ids + 8);
    return rows;
}
