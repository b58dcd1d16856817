/* Who points to a node, and the shortest way to each node from a root. */
#include "marks.h"

/* The node whose edges the edge is among. */
static uint32_t source_of(const struct graph *graph, uint64_t edge)
{
    return (uint32_t) first_short_from(graph->offsets, graph->nodes + UINT64_C(1), (uint32_t) edge + 1) - 1;
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

/* ---- ways that own ---- */

static int is_no_way(const struct graph *graph, uint64_t edge)
{
    return owns_nothing(graph, edge) || (graph->passed && has_bit(graph->passed, edge));
}

/* The first pointer from one node to another by which a way may lead: one that owns, where there is one. 0: there is none. */
int heapx_graph_edge_to(const struct graph *graph, uint32_t node, uint32_t target, struct edge *out)
{
    uint32_t found = graph->offsets[node + 1];
    for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++)
        if (EDGE_ID(graph->to[edge]) == target && (found == graph->offsets[node + 1] || !is_no_way(graph, edge))) {
            found = edge;
            if (!is_no_way(graph, edge))
                break;
        }
    if (found == graph->offsets[node + 1])
        return 0;
    *out = (struct edge) {target, rule_of(graph, found), slot_of(graph, found)};
    return 1;
}

/* `holders`: of each node the only one from which words lead there, whether they own or not; NO_NODE: none, or several. */
void heapx_graph_only_holders(const struct graph *graph, uint32_t *holders)
{
    const uint32_t several = NO_NODE - 1;
    memset(holders, 0xff, (size_t) graph->nodes * sizeof *holders);
    for (uint32_t node = 0; node < graph->nodes; node++)
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            uint32_t *holder = &holders[EDGE_ID(graph->to[edge])];
            if (EDGE_ID(graph->to[edge]) != node && *holder != node)
                *holder = *holder == NO_NODE ? node : several;
        }
    for (uint32_t node = 0; node < graph->nodes; node++)
        if (holders[node] == several)
            holders[node] = NO_NODE;
}

/* Nodes that have a way already, and those whose edges are followed next. */
struct ways {
    const struct graph *graph;
    uint32_t roots_from, data;
    int is_any, is_begun;               /* the phase is */
    unsigned phase;                     /* see begin_phase; PHASES: all ways are known */
    uint32_t *parents, *queue;
    uint64_t begin, end;
    uint64_t *known;                    /* one bit a node */
};
#define PHASES 5u

static void begin_at(struct ways *ways, uint32_t node)
{
    if (has_bit(ways->known, node))
        return;
    set_bit(ways->known, node);
    ways->queue[ways->end++] = node;
}

/* Until there is a way to this node, and all edges of the node before it were followed; NO_NODE: all. */
static void follow(struct ways *ways, unsigned most_rule, uint32_t until)
{
    const struct graph *graph = ways->graph;
    for (; ways->begin < ways->end && (until == NO_NODE || !has_bit(ways->known, until)); ways->begin++) {
        const uint32_t node = ways->queue[ways->begin];
        if (ways->begin + 2 * AHEAD < ways->end) {
            __builtin_prefetch(&graph->offsets[ways->queue[ways->begin + 2 * AHEAD]]);
            __builtin_prefetch(&graph->to[graph->offsets[ways->queue[ways->begin + AHEAD]]]);
        }
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            if (target >= ways->roots_from || has_bit(ways->known, target) || is_no_way(graph, edge)
                || (EDGE_RULE(graph->to[edge]) > most_rule && !is_sure(graph, edge)))
                continue;
            ways->parents[target] = node;
            begin_at(ways, target);
        }
    }
}

/* From what has a name by itself, in its order: 0, 1; else from a root, variables first: 2, by pointers that are enough to hold a block: 3;
   else by any: 4. */
static void begin_phase(struct ways *ways)
{
    const struct graph *graph = ways->graph;
    const uint64_t first = graph->first_starts < graph->start_count ? graph->first_starts : graph->start_count;
    if (ways->phase < 2)
        for (uint64_t i = ways->phase ? first : 0; i < (ways->phase ? graph->start_count : first); i++)
            begin_at(ways, graph->starts[i]);
    if (ways->phase == 4 || (ways->phase == 3 && ways->is_any))
        ways->begin = 0;
    for (uint32_t node = ways->roots_from; ways->phase >= 2 && node < graph->nodes; node++)
        if (ways->phase > 2 || node < ways->roots_from + ways->data)
            begin_at(ways, node);
}

void heapx_ways_free(struct ways *ways)
{
    if (ways) {
        lazy_free(ways->queue, (size_t) ways->graph->nodes * sizeof *ways->queue + 8);
        free(ways->known);
    }
    free(ways);
}

/* `parents`: NO_NODE for every node; becomes the node before each on a shortest way by words that own: from what has a name by itself, in
   its order; else from a root, by pointers that are enough to hold a block; else by any. `is_any`: from whichever is nearest. The first
   roots, so many as `data`, come before the others: variables have names. NULL: there is no memory. */
struct ways *heapx_ways_new(const struct graph *graph, uint32_t roots_from, uint32_t data, int is_any, uint32_t *parents)
{
    struct ways *ways = calloc(1, sizeof *ways);
    if (!ways)
        return NULL;
    *ways = (struct ways) {.graph = graph, .roots_from = roots_from, .data = data, .is_any = is_any, .parents = parents};
    ways->queue = lazy_alloc((size_t) graph->nodes * sizeof *ways->queue + 8);
    ways->known = calloc((size_t) graph->nodes / 64 + 1, sizeof *ways->known);
    if (!ways->queue || !ways->known) {
        heapx_ways_free(ways);
        return NULL;
    }
    return ways;
}

/* Goes on until there is a way to this node, or it is sure that there is none; NO_NODE: to all. */
void heapx_ways_to(struct ways *ways, uint32_t node)
{
    while (ways->phase < PHASES && (node == NO_NODE || !has_bit(ways->known, node))) {
        if (!ways->is_begun)
            begin_phase(ways);
        ways->is_begun = 1;
        if (ways->phase < 2 ? !ways->is_any : ways->phase > 2 || ways->data)
            follow(ways, ways->phase == 2 || ways->phase == 3 ? RULE_HABIT : RULES, node);
        if (node == NO_NODE || !has_bit(ways->known, node)) {
            ways->phase++;
            ways->is_begun = 0;
        }
    }
}
