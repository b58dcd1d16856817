/* Who owns what: dominators of the graph by the Semi-NCA algorithm (Georgiadis: Linear-Time Algorithms for Dominators and Related
   Problems, 2005), after the edges that mislead were left out.

   What has a name by itself, such as a module of Python, belongs to nobody: only the virtual root owns it. */
#include "hold.h"

struct solver {
    uint32_t count;                     /* nodes reached, the virtual root among them: numbers of the search, from 0 */
    uint32_t *seen;                     /* by node two: its number, and how many edges not of the search lead there, then their place */
    uint32_t *semi, *label;             /* in the room of `seen`, when all nodes have their predecessors */
    uint32_t *vertex, *parent, *dominator;
    uint32_t *before, *predecessors;    /* by number: where its predecessors begin, but for the parent; one more */
    uint32_t *stack;
};

static int is_dropped(const struct hold *hold, uint64_t edge)
{
    return has_edge(hold->weaker[FIRM], edge);
}

static uint32_t all_nodes(const struct graph *graph, const struct hold *hold)
{
    return graph->nodes + (hold->containers ? hold->containers->count : 0);
}

/* ---- the algorithm ---- */

static void solver_close(struct solver *solver, uint64_t nodes)
{
    if (solver->predecessors)
        free_numbers(solver->predecessors, solver->before[solver->count]);
    uint32_t *by_node[] = {solver->vertex, solver->parent, solver->dominator, solver->before, solver->stack};
    for (unsigned i = 0; i < sizeof by_node / sizeof *by_node; i++)
        free_numbers(by_node[i], nodes + 2);
    free_numbers(solver->seen, 2 * (nodes + 2));
}

static int solver_open(struct solver *solver, uint64_t nodes)
{
    uint32_t **by_node[] = {&solver->vertex, &solver->parent, &solver->dominator, &solver->before, &solver->stack};
    int all = (solver->seen = dense_numbers(2 * (nodes + 2))) != NULL;
    for (unsigned i = 0; i < sizeof by_node / sizeof *by_node; i++)
        all &= (*by_node[i] = dense_numbers(nodes + 2)) != NULL;
    return all;
}

/* The virtual root's children: what has a name by itself, then roots. */
static uint32_t top_node(const struct graph *graph, uint32_t roots_from, uint32_t number)
{
    return number < graph->start_count ? graph->starts[number] : roots_from + number - (uint32_t) graph->start_count;
}

/* The node is next; its edges wait. While the search lasts, dominator[] and before[] say by depth where they go on and end. */
static void enter(const struct graph *graph, const struct hold *hold, struct solver *solver, uint32_t node, uint32_t parent, uint32_t depth)
{
    const uint32_t edge = edge_begin(graph, hold, node), end = edge_end(graph, hold, node);
    for (uint32_t one = edge; node < graph->nodes && one < end && one < edge + AHEAD; one++) {
        __builtin_prefetch(&solver->seen[2 * (size_t) EDGE_ID(graph->to[one])]);
        __builtin_prefetch(&graph->offsets[EDGE_ID(graph->to[one])]);
    }
    solver->seen[2 * (size_t) node] = solver->count;
    solver->vertex[solver->count] = node;
    solver->parent[solver->count] = parent;
    solver->stack[depth] = solver->count++;
    solver->dominator[depth] = edge;
    solver->before[depth] = end;
}

/* Edges at which the search goes on when it is back there. */
static void fetch_above(const struct graph *graph, const struct solver *solver, uint32_t depth)
{
    if (depth < AHEAD || solver->dominator[depth - AHEAD] >= graph->edges || solver->dominator[depth - AHEAD / 2] >= graph->edges)
        return;
    __builtin_prefetch(&graph->to[solver->dominator[depth - AHEAD]]);
    __builtin_prefetch(&solver->seen[2 * (size_t) EDGE_ID(graph->to[solver->dominator[depth - AHEAD / 2]])]);
}

/* Numbers nodes in the order of a depth-first search from a root above all roots, which also leads to all that has a name by itself. An
   edge to a node that has no number is the search's own, and dropped: the node's parent tells of it. */
static void number_nodes(const struct graph *graph, struct hold *hold, struct solver *solver, uint32_t roots_from)
{
    uint32_t depth = 0;
    solver->count = 1;
    for (uint32_t top = 0; top < graph->start_count + graph->nodes - roots_from; top++) {
        const uint32_t root = top_node(graph, roots_from, top);
        solver->seen[2 * (size_t) root + 1] += top < graph->start_count;
        if (solver->seen[2 * (size_t) root])
            continue;
        enter(graph, hold, solver, root, 0, depth++);
        while (depth) {
            const uint32_t edge = solver->dominator[depth - 1];
            if (edge == solver->before[depth - 1]) {
                fetch_above(graph, solver, --depth);
                continue;
            }
            solver->dominator[depth - 1]++;
            if (is_dropped(hold, edge))
                continue;
            const uint32_t target = edge_target(graph, hold, edge);
            if (solver->seen[2 * (size_t) target]) {
                solver->seen[2 * (size_t) target + 1]++;
                continue;
            }
            set_edge(hold->weaker[FIRM], edge);
            enter(graph, hold, solver, target, solver->stack[depth - 1], depth);
            depth++;
        }
    }
}

/* What is filled for edges that come later. */
static inline void fetch_places(const struct graph *graph, const struct hold *hold, const struct solver *solver, uint64_t edge)
{
    if (edge + 2 * AHEAD >= graph->edges)
        return;
    if (!is_dropped(hold, edge + 2 * AHEAD))
        __builtin_prefetch(&solver->seen[2 * (size_t) EDGE_ID(graph->to[edge + 2 * AHEAD]) + 1]);
    if (!is_dropped(hold, edge + AHEAD))
        __builtin_prefetch(&solver->predecessors[solver->seen[2 * (size_t) EDGE_ID(graph->to[edge + AHEAD]) + 1]]);
}

/* Predecessors of number i: from before[i] to before[i + 1]. 0: no memory. */
static int find_predecessors(const struct graph *graph, const struct hold *hold, struct solver *solver)
{
    uint32_t sum = 0;
    for (uint32_t i = 1; i < solver->count; i++) {
        uint32_t *here = &solver->seen[2 * (size_t) solver->vertex[i] + 1];
        __builtin_prefetch(&solver->seen[2 * (size_t) solver->vertex[i + AHEAD < solver->count ? i + AHEAD : i] + 1], 1);
        solver->before[i] = sum;
        sum += *here;
        *here = solver->before[i];
    }
    solver->before[solver->count] = sum;
    solver->predecessors = dense_numbers(sum);
    if (!solver->predecessors)
        return 0;
    for (uint32_t node = 0; node < all_nodes(graph, hold); node++) {
        const uint32_t number = solver->seen[2 * (size_t) node], end = edge_end(graph, hold, node);
        for (uint32_t edge = number ? edge_begin(graph, hold, node) : end; edge < end; edge++) {
            fetch_places(graph, hold, solver, edge);
            if (!is_dropped(hold, edge))
                solver->predecessors[solver->seen[2 * (size_t) edge_target(graph, hold, edge) + 1]++] = number;
        }
    }
    for (uint64_t i = 0; i < graph->start_count; i++)
        solver->predecessors[solver->seen[2 * (size_t) graph->starts[i] + 1]++] = 0;
    return 1;
}

/* The number with the least semi on the way from `number` up to, and without, what was linked last; the way becomes shorter. */
static uint32_t least(struct solver *solver, uint32_t number, uint32_t linked, uint32_t *ancestor)
{
    uint32_t depth = 0, *stack = solver->stack;
    for (uint32_t at = number; ancestor[at] >= linked; at = ancestor[at])
        stack[depth++] = at;
    while (depth) {
        const uint32_t at = stack[--depth], above = ancestor[at];
        if (solver->semi[solver->label[above]] < solver->semi[solver->label[at]])
            solver->label[at] = solver->label[above];
        ancestor[at] = ancestor[above];
    }
    return solver->label[number];
}

static void solve(struct solver *solver)
{
    uint32_t *ancestor = solver->dominator;
    solver->semi = solver->seen;
    solver->label = solver->seen + solver->count;
    for (uint32_t i = 0; i < solver->count; i++) {
        solver->semi[i] = i;
        solver->label[i] = i;
        ancestor[i] = solver->parent[i];
    }
    for (uint32_t i = solver->count; --i > 0;) {
        uint32_t semi = solver->parent[i];
        for (uint32_t at = solver->before[i]; at < solver->before[i + 1]; at++) {
            const uint32_t from = solver->predecessors[at];         /* up to i, semi is each number itself */
            const uint32_t found = from <= i ? from : solver->semi[least(solver, from, i + 1, ancestor)];
            if (found < semi)
                semi = found;
        }
        solver->semi[i] = semi;
    }
    for (uint32_t i = 1; i < solver->count; i++) {
        uint32_t above = solver->parent[i];
        while (above > solver->semi[i])
            above = solver->dominator[above];
        solver->dominator[i] = above;
    }
}

static void add_up(const struct graph *graph, const struct solver *solver, uint32_t *owners, uint64_t *bytes, uint32_t *blocks)
{
    for (uint32_t i = solver->count; --i > 0;) {
        const uint32_t node = solver->vertex[i], above = solver->dominator[i], later = solver->vertex[i > AHEAD ? i - AHEAD : 0];
        __builtin_prefetch(&graph->index.sizes[later]);
        __builtin_prefetch(&bytes[later]);
        __builtin_prefetch(&blocks[later]);
        __builtin_prefetch(&owners[later]);
        if (node < graph->index.blocks) {
            bytes[node] += index_size(&graph->index, node);
            blocks[node]++;
        }
        if (above) {
            const uint32_t owner = solver->vertex[above];
            owners[node] = owner;
            bytes[owner] += bytes[node];
            blocks[owner] += blocks[node];
        }
    }
}

/* Roots: variables, thread-local ones from `locals_from` on, and [weak_from, weak_until), which are stacks and registers. `owners`: NO_NODE
   for every node, the others 0; with `containers` there are as many more. 0, or NO_MEMORY. */
int heapx_graph_dominators(const struct graph *graph, uint32_t roots_from, uint32_t locals_from, uint32_t weak_from, uint32_t weak_until,
                           const struct containers *containers, uint32_t *owners, uint64_t *bytes, uint32_t *blocks)
{
    struct hold hold = {.roots_from = roots_from, .locals_from = locals_from, .weak_from = weak_from, .weak_until = weak_until};
    hold.containers = containers && containers->of ? containers : NULL;
    struct solver solver;
    memset(&solver, 0, sizeof solver);
    int done = hold_open(graph, &hold) && solver_open(&solver, all_nodes(graph, &hold));
    if (done) {
        number_nodes(graph, &hold, &solver, roots_from);
        done = find_predecessors(graph, &hold, &solver);
    }
    if (done) {
        solve(&solver);
        add_up(graph, &solver, owners, bytes, blocks);
    }
    solver_close(&solver, all_nodes(graph, &hold));
    hold_close(graph, &hold, FIRM);
    return done ? 0 : NO_MEMORY;
}
