/* What of a block owns what it points to, as its runtime tells: links of a collector's lists and weak references do not. */
#include "marks.h"

static void own_words(struct graph *graph, uint32_t node, uint64_t mask)
{
    for (uint32_t edge = graph->offsets[node]; mask != OWNS_ALL && edge < graph->offsets[node + 1]; edge++) {
        const uint64_t slot = slot_of(graph, edge);
        const int is_owned = mask >> (slot < LAST_OWNING_BIT ? slot : LAST_OWNING_BIT) & 1;
        set_bit(is_owned ? graph->sure : graph->loose, edge);
        clear_bit(is_owned ? graph->loose : graph->sure, edge);
    }
}

/* A pointer to where the object begins in its block is as good as one to the block's start, but for stale words, such as those in a list's
   slack. `begins`: of each label, 0: at the start. */
static void own_objects(struct graph *graph, const uint32_t *labels, const uint64_t *begins, uint64_t label_count)
{
    uint64_t inside = 0;
    for (uint64_t edge = 0; edge < graph->offsets[graph->index.blocks]; edge++) {
        if (!leads_inside(graph->to[edge]))
            continue;
        const uint16_t offset = graph->inside[inside++];
        const uint32_t target = EDGE_ID(graph->to[edge]);
        if (target < graph->index.blocks && labels[target] < label_count && begins[labels[target]] == offset
            && !owns_nothing(graph, edge))
            set_bit(graph->sure, edge);
    }
}

/* The words of a block from this slot to before that one own nothing, whatever its label says. */
void heapx_graph_loosen(struct graph *graph, uint32_t node, uint64_t first, uint64_t end)
{
    for (uint32_t edge = graph->offsets[node]; graph->loose && edge < graph->offsets[node + 1]; edge++)
        if (slot_of(graph, edge) >= first && slot_of(graph, edge) < end) {
            set_bit(graph->loose, edge);
            clear_bit(graph->sure, edge);
        }
}

/* No way leads by this word of a block. Owners do not depend on it: which words are tried depends on which paths were asked for. */
void heapx_graph_pass_by(struct graph *graph, uint32_t node, uint64_t slot)
{
    if (!graph->passed)
        graph->passed = calloc((size_t) graph->edges / 64 + 1, sizeof *graph->passed);
    for (uint32_t edge = graph->offsets[node]; graph->passed && edge < graph->offsets[node + 1]; edge++)
        if (slot_of(graph, edge) == slot)
            set_bit(graph->passed, edge);
}

static int is_no_way(const struct graph *graph, uint64_t edge)
{
    return owns_nothing(graph, edge) || (graph->passed && has_bit(graph->passed, edge));
}

/* Behind its last item an object owns nothing. `ends`: of each label where its items begin, in bytes, << 8, and how long each is; 0: it
   has none, or no count of them. */
static void end_objects(struct graph *graph, const uint32_t *labels, const uint64_t *ends, uint64_t label_count)
{
    for (uint64_t i = 0; i < graph->stale.tail_count; i++) {
        const struct stale_tail *tail = &graph->stale.tails[i];
        const uint64_t end = tail->node < graph->index.blocks && labels[tail->node] < label_count ? ends[labels[tail->node]] : 0;
        const uint64_t count = (uint64_t) (tail->count < 0 ? -(int64_t) tail->count : tail->count);
        if (end && 8 * (uint64_t) tail->slot >= (end >> 8) + (end & 0xff) * count)
            heapx_graph_loosen(graph, tail->node, tail->slot, tail->slot + UINT64_C(1));
    }
}

/* `labels`: of each block, `masks` of each label, 0 first: bit n is its word n, the last one all behind; OWNS_ALL: nothing is known.
   `nothing`: nodes that own nothing, whatever they are. `starts`: blocks that have a name by themselves, the first
   `first_count` of which give names to all that they lead to before the others. 0, or NO_MEMORY. */
int heapx_graph_own(struct graph *graph, const uint32_t *labels, const uint64_t *masks, const uint64_t *begins, const uint64_t *ends,
                    uint64_t label_count, const uint32_t *nothing, uint64_t nothing_count, const uint32_t *starts, uint64_t start_count,
                    uint64_t first_count)
{
    const size_t room = (size_t) graph->edges / 64 + 1;
    if (!graph->loose) {
        graph->loose = calloc(room, sizeof *graph->loose);
        graph->sure = calloc(room, sizeof *graph->sure);
    }
    free(graph->starts);
    graph->starts = malloc((size_t) start_count * sizeof *graph->starts + 8);
    graph->start_count = graph->first_starts = 0;
    if (!graph->loose || !graph->sure || !graph->starts)
        return NO_MEMORY;
    for (uint32_t node = 0; node < graph->index.blocks; node++)
        if (labels[node] < label_count)
            own_words(graph, node, masks[labels[node]]);
    graph->is_told = 1;
    own_objects(graph, labels, begins, label_count);
    end_objects(graph, labels, ends, label_count);
    for (uint64_t i = 0; i < nothing_count; i++)
        if (nothing[i] < graph->nodes)
            own_words(graph, nothing[i], 0);
    for (uint64_t i = 0; i < start_count; i++)
        if (starts[i] < graph->index.blocks) {
            graph->starts[graph->start_count++] = starts[i];
            graph->first_starts += i < first_count;
        }
    return 0;
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
