/* What holds each block: round by round, from the strongest evidence to the weakest. */
#include "marks.h"

int spread_push(struct spread *spread, uint32_t node)
{
    if (!has_dense_room(&spread->stack, spread->depth, &spread->room, sizeof node))
        return 0;
    mark(spread, node);
    spread->stack[spread->depth++] = node;
    return 1;
}

/* Nodes wait in the first queue until the place of their edges has come from memory, in the second until the edges have. */
struct queue {
    uint32_t nodes[QUEUE];
    unsigned begin, count;
};

static void put(struct queue *queue, uint32_t node)
{
    queue->nodes[(queue->begin + queue->count++) % QUEUE] = node;
}

static uint32_t take(struct queue *queue)
{
    const uint32_t node = queue->nodes[queue->begin];
    queue->begin = (queue->begin + 1) % QUEUE;
    queue->count--;
    return node;
}

static int enter(const struct graph *graph, struct spread *spread, uint32_t node, unsigned rule, const uint64_t *only)
{
    const uint32_t *edge = graph->to + graph->offsets[node], *end = graph->to + graph->offsets[node + 1];
    const int is_owned = rule == OWNED;
    for (const uint32_t *one = edge; one < end && one < edge + 64; one++)
        __builtin_prefetch(&spread->marked[EDGE_ID(*one) >> 6]);
    for (; edge < end; edge++) {
        const uint32_t target = EDGE_ID(*edge);
        if (EDGE_RULE(*edge) > rule || is_marked(spread, target) || (only && !has_bit(only, target)))
            continue;
        const uint64_t number = (uint64_t) (edge - graph->to);
        if ((is_owned && owns_nothing(graph, number)) || (spread->left_out && has_edge(spread->left_out, number)))
            continue;
        if (!spread_push(spread, target))
            return 0;
    }
    return 1;
}

static void count_node(const struct graph *graph, uint32_t node, struct reached *reached)
{
    if (node < graph->index.blocks) {
        reached->blocks++;
        reached->bytes += index_size(&graph->index, node);
    }
}

static int give_back(struct spread *spread, struct queue *queue)
{
    while (queue->count)
        if (!spread_push(spread, take(queue)))
            return 0;
    return 1;
}

int spread_drain(const struct graph *graph, struct spread *spread, unsigned rule, const uint64_t *only, struct reached *reached,
                 double deadline)
{
    struct queue near = {{0}, 0, 0}, ready = {{0}, 0, 0};
    for (unsigned since = 0;; since++) {
        if (spread->depth && near.count < QUEUE) {
            const uint32_t node = spread->stack[--spread->depth];
            __builtin_prefetch(&graph->offsets[node]);
            put(&near, node);
        } else if (near.count && ready.count < QUEUE) {
            const uint32_t node = take(&near);
            __builtin_prefetch(&graph->to[graph->offsets[node]]);
            put(&ready, node);
        } else if (ready.count) {
            const uint32_t node = take(&ready);
            if (reached)
                count_node(graph, node, reached);
            if ((spread->entered && !spread->entered(spread, node)) || !enter(graph, spread, node, rule, only))
                return NO_MEMORY;
        } else {
            return 0;
        }
        if (since == 4 * CHECK_CLOCK) {
            since = 0;
            if (clock_now() > deadline)
                return give_back(spread, &near) && give_back(spread, &ready) ? 1 : NO_MEMORY;
        }
    }
}

static void marks_free(struct marks *marks)
{
    spread_close(&marks->spread);
    for (unsigned plane = 0; plane < PLANES; plane++)
        free(marks->planes[plane]);
    if (marks->leak_roots)
        marks->free_leak_roots(marks->leak_roots);
    free(marks);
}

/* Begins: nodes from `roots_from` on are roots. 0: no memory. */
int heapx_marks_open(struct graph *graph, uint32_t roots_from)
{
    const size_t words = (size_t) graph->nodes / 64 + 1;
    struct marks *marks = calloc(1, sizeof *marks);
    if (!marks)
        return 0;
    if (graph->marks)
        marks_free(graph->marks);
    graph->marks = marks;
    graph->free_marks = marks_free;
    marks->roots_from = roots_from;
    for (unsigned plane = 0; plane < PLANES; plane++) {
        marks->planes[plane] = malloc(words * 8);
        if (!marks->planes[plane])
            return 0;
        memset(marks->planes[plane], 0xff, words * 8);
    }
    return spread_open(&marks->spread, graph->nodes);
}

/* Where this round's edges lead from one marked node. 0: no memory. */
static int seed_targets(const struct graph *graph, struct marks *marks, uint32_t node)
{
    struct spread *spread = &marks->spread;
    for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++)
        if (EDGE_RULE(graph->to[edge]) == marks->round && !is_marked(spread, EDGE_ID(graph->to[edge]))
            && !spread_push(spread, EDGE_ID(graph->to[edge])))
            return 0;
    return 1;
}

/* Nodes from which this round begins, by the edges of marked nodes, 64 of these at a time. 1: there are more; 0: it was all. */
static int seeds_by_edges(const struct graph *graph, struct marks *marks, double deadline)
{
    for (uint32_t count = 0; marks->next < graph->nodes; marks->next += 64, count++) {
        uint64_t left = marks->spread.marked[marks->next >> 6] & graph->weaker[marks->next >> 6];
        for (; left; left &= left - 1)
            if (!seed_targets(graph, marks, marks->next + (unsigned) __builtin_ctzll(left)))
                return NO_MEMORY;
        if (count == CHECK_CLOCK / 64) {
            count = 0;
            if (clock_now() > deadline) {
                marks->next += 64;
                return 1;
            }
        }
    }
    return 0;
}

/* Nodes from which this round begins: roots, mappings that nothing points to, or what edges of the round lead to. As seeds_by_edges. */
static int seeds(const struct graph *graph, struct marks *marks, double deadline)
{
    const int are_roots = !marks->round;
    if (!are_roots && marks->round != FROM_MAPPING)
        return seeds_by_edges(graph, marks, deadline);
    const uint32_t end = are_roots ? graph->nodes : marks->roots_from;
    for (uint32_t node = are_roots ? marks->roots_from : (uint32_t) graph->index.blocks; node < end; node++)
        if (!is_marked(&marks->spread, node) && !spread_push(&marks->spread, node))
            return NO_MEMORY;
    return 0;
}

/* What this round has reached gets its evidence. */
static void settle_round(const struct graph *graph, struct marks *marks)
{
    for (size_t i = 0; i < (size_t) graph->nodes / 64 + 1; i++) {
        const uint64_t fresh = marks->spread.marked[i] & leaked_of(marks, i);
        for (unsigned plane = 0; plane < PLANES; plane++)
            if (!(marks->round >> plane & 1))
                marks->planes[plane][i] &= ~fresh;
    }
}

static int round_is_empty(const struct graph *graph, const struct marks *marks)
{
    return marks->round && marks->round < RULES && !graph->by_rule[marks->round];
}

/* Goes on. 1: there is more; 0: every node has its evidence; NO_MEMORY. */
int64_t heapx_marks_slice(struct graph *graph, double seconds)
{
    struct marks *marks = graph->marks;
    const double deadline = clock_now() + seconds;
    for (; marks->round <= FROM_MAPPING; marks->round++) {
        if (round_is_empty(graph, marks))
            continue;
        const unsigned rule = marks->round < RULES ? marks->round : RULES;
        int more = marks->phase == PHASE_SEEDS ? seeds(graph, marks, deadline) : 0;
        if (more)
            return more;
        marks->phase = PHASE_DRAIN;
        more = spread_drain(graph, &marks->spread, rule, NULL, NULL, deadline);
        if (more)
            return more;
        settle_round(graph, marks);
        marks->phase = PHASE_SEEDS;
        marks->next = 0;
    }
    spread_shrink(&marks->spread);
    return 0;
}

/* Of 64 nodes some are reached by other than pointers to their start, or not at all. */
static int any_weaker(const struct marks *marks, uint32_t word)
{
    return (marks->planes[0][word] | marks->planes[1][word] | marks->planes[2][word] | marks->planes[3][word]) != 0;
}

/* Blocks and bytes of each evidence: two numbers for each of 0 to LEAKED. */
void heapx_marks_sums(const struct graph *graph, struct sum *out)
{
    const uint32_t blocks = (uint32_t) graph->index.blocks;
    memset(out, 0, (LEAKED + 1) * sizeof *out);
    for (uint32_t first = 0; first < blocks; first += 64) {
        const int all_alike = !any_weaker(graph->marks, first >> 6);
        for (uint32_t id = first; id < blocks && id - first < 64; id++) {
            const unsigned evidence = all_alike ? RULE_START : evidence_of(graph->marks, id);
            out[evidence].blocks++;
            out[evidence].bytes += index_size(&graph->index, id);
        }
    }
}

unsigned heapx_marks_evidence(const struct graph *graph, uint32_t node)
{
    return evidence_of(graph->marks, node);
}

/* Nodes of [from, end) with one of these kinds of evidence (a bit each): at most `room`. Returns how many; *next is where to go on. */
uint64_t heapx_marks_list(const struct graph *graph, unsigned kinds, uint32_t from, uint32_t end, uint32_t *out, uint8_t *evidence,
                          uint64_t room, uint32_t *next)
{
    uint64_t count = 0;
    for (; from < end && count < room; from++) {
        const unsigned one = evidence_of(graph->marks, from);
        if (kinds >> one & 1) {
            evidence[count] = (uint8_t) one;
            out[count++] = from;
        }
    }
    *next = from;
    return count;
}

/* Offsets at which reached nodes point into blocks that have no better evidence than that: `counts` by offset, up to `room`, the last one
   for all beyond. */
void heapx_marks_offsets(const struct graph *graph, uint64_t *counts, uint64_t room)
{
    uint64_t inside = 0;
    for (uint64_t edge = 0; edge < graph->edges; edge++) {
        const uint32_t rule = EDGE_RULE(graph->to[edge]);
        if (!leads_inside(graph->to[edge]))
            continue;
        const uint16_t offset = graph->inside[inside++];
        if (rule == RULE_INSIDE && evidence_of(graph->marks, EDGE_ID(graph->to[edge])) == RULE_INSIDE)
            counts[offset < room ? offset : room - 1]++;
    }
}

/* Evidence that was found elsewhere, after heapx_marks_slice: of nodes that nothing leads to. */
void heapx_marks_set(struct graph *graph, const uint32_t *nodes, const uint8_t *evidence, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (nodes[i] < graph->index.blocks && is_leaked(graph->marks, nodes[i]))
            set_evidence(graph->marks, nodes[i], evidence[i]);
}
