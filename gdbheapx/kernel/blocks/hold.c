/* Which edges count for who owns a node. A conservative graph has false edges, and one of them takes a whole tree from its owner. So edges
   are strong or weak, and roots are of three levels: variables, thread-local ones, stacks. What is reached from variables by strong edges
   loses all others to it; then what is reached by weak ones; then from thread-local storage, and at last from stacks. Each level takes
   nothing from those before. Words that hold nothing (stale.h) are left out. */
#include "hold.h"

#include <stdlib.h>

#define ROOTS 3u

/* What is reached, level by level. */
struct levels {
    struct spread spread;
    uint64_t *before;               /* what was reached before this level */
    uint8_t *of;                    /* by node its level; 0: nothing leads there */
    const struct containers *containers;
    uint8_t *whole;                 /* by container: all of it is reached */
    uint8_t strengths[ROOTS * LOOSE + 2];   /* by level the weakest edges that count there */
    unsigned count;
};

static void find_strengths(const struct graph *graph, struct hold *hold)
{
    for (uint64_t edge = 0; edge < graph->edges; edge++) {
        if (is_sure(graph, edge))
            continue;
        if (owns_nothing(graph, edge))
            weaken(hold, edge, is_unowning(graph, edge) ? STRENGTHS : LOOSE);
        else if (EDGE_RULE(graph->to[edge]) > RULE_HABIT)
            weaken(hold, edge, BY_RULE);
    }
}

/* ---- containers ---- */

static void strengthen(struct hold *hold, uint64_t edge)
{
    for (unsigned one = 0; one < STRENGTHS; one++)
        hold->weaker[one][edge >> 3] &= (uint8_t) ~(1u << (edge & 7));
}

/* Links between members do not count, nor what leads from them to who holds them; their users hold where nothing better does. A word that
   holds a container owns it, even if it was taken for a stale one. Few users that are no variables come after all that holds, a stack, too:
   their words may be stale. 0: no memory. */
static int hold_containers(const struct graph *graph, struct hold *hold)
{
    const struct containers *containers = hold->containers;
    uint32_t *uses = calloc((size_t) containers->count + 1, sizeof *uses);
    for (uint32_t node = 0; node < graph->nodes && uses; node++)
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t to = container_of(graph, hold, EDGE_ID(graph->to[edge]));
            uses[to] += to && to != container_of(graph, hold, node) && !holds_container(containers, to - 1, node);
        }
    for (uint32_t node = 0; node < graph->nodes && uses; node++) {
        const uint32_t from = container_of(graph, hold, node);
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]), to = container_of(graph, hold, target);
            if (from && (from == to || holds_container(containers, from - 1, target)))
                weaken(hold, edge, STRENGTHS);
            else if (to || has_edge(containers->is_use, edge))
                weaken(hold, edge, to && containers->all[to - 1].entries && 2 * uses[to] < containers->all[to - 1].members
                                   && (node < hold->roots_from || node >= hold->locals_from) ? LOOSE : USE);
            else if (has_edge(containers->is_down, edge))
                strengthen(hold, edge);
        }
    }
    for (uint32_t entry = 0; entry < containers->entry_count; entry++)
        strengthen(hold, containers->entry_edges[entry].edge);
    free(uses);
    return uses != NULL;
}

/* ---- levels ---- */

static unsigned level_of(const struct hold *hold, uint32_t root)
{
    return root >= hold->weak_from && root < hold->weak_until ? 2 : root >= hold->locals_from && root < hold->weak_from;
}

static int push(struct levels *levels, uint32_t node)
{
    return is_marked(&levels->spread, node) || spread_push(&levels->spread, node);
}

/* What edges of just this strength lead to from what is reached. 0: no memory. */
static int push_targets(const struct graph *graph, const struct hold *hold, struct levels *levels, unsigned strength)
{
    const uint8_t *weaker = hold->weaker[strength - 1], *still = hold->weaker[strength];
    uint32_t node = 0;
    for (uint64_t edge = 0; edge < graph->edges; edge++) {
        if (weaker[edge >> 3] == still[edge >> 3]) {
            edge |= 7;
            continue;
        }
        if (!has_edge(weaker, edge) || has_edge(still, edge) || is_marked(&levels->spread, EDGE_ID(graph->to[edge])))
            continue;
        while (graph->offsets[node + 1] <= edge)
            node++;
        if (is_marked(&levels->spread, node) && !spread_push(&levels->spread, EDGE_ID(graph->to[edge])))
            return 0;
    }
    return 1;
}

/* All members of a container of which one is reached. 0: no memory. */
static int push_members(struct spread *spread, uint32_t node)
{
    const struct levels *levels = (const struct levels *) spread;   /* its first member */
    const struct containers *containers = levels->containers;
    const uint32_t number = node < containers->blocks ? containers->of[node] : 0;
    if (!number || levels->whole[number - 1])
        return 1;
    levels->whole[number - 1] = 1;
    const struct container *container = &containers->all[number - 1];
    for (uint32_t member = container->first; member < container->first + container->members; member++)
        if (!is_marked(spread, containers->order[member]) && !spread_push(spread, containers->order[member]))
            return 0;
    return 1;
}

/* One level: what waits, and what edges up to this strength lead to from there. 0: no memory. */
static int reach(const struct graph *graph, const struct hold *hold, struct levels *levels, unsigned strength)
{
    levels->spread.left_out = hold->weaker[strength];
    if (spread_drain(graph, &levels->spread, RULES, NULL, NULL, 1e300))
        return 0;
    levels->strengths[++levels->count] = (uint8_t) strength;
    for (size_t word = 0; word < (size_t) graph->nodes / 64 + 1; word++) {
        for (uint64_t more = levels->spread.marked[word] & ~levels->before[word]; more; more &= more - 1)
            levels->of[64 * word + (unsigned) __builtin_ctzll(more)] = (uint8_t) levels->count;
        levels->before[word] = levels->spread.marked[word];
    }
    return 1;
}

static int find_levels(const struct graph *graph, const struct hold *hold, struct levels *levels)
{
    levels->containers = hold->containers;
    levels->spread.entered = hold->containers ? push_members : NULL;
    for (uint64_t i = 0; i < graph->start_count; i++)
        if (!push(levels, graph->starts[i]))
            return 0;
    for (unsigned level = 0; level < ROOTS; level++) {
        for (uint32_t root = hold->roots_from; root < graph->nodes; root++)
            if (level_of(hold, root) == level && !push(levels, root))
                return 0;
        for (unsigned strength = FIRM; strength < LOOSE; strength++)
            if ((strength && !push_targets(graph, hold, levels, strength)) || !reach(graph, hold, levels, strength))
                return 0;
    }
    return push_targets(graph, hold, levels, LOOSE) && reach(graph, hold, levels, LOOSE);
}

/* The first level's strong edges count, whatever they lead to. */
static void leave_out(const struct graph *graph, struct hold *hold, const struct levels *levels)
{
    for (uint32_t node = 0; node < graph->nodes; node++) {
        const unsigned level = levels->of[node];
        for (uint32_t edge = level ? graph->offsets[node] : UINT32_MAX; edge < graph->offsets[node + 1]; edge++) {
            const int is_weak = has_edge(hold->weaker[FIRM], edge);
            if (level == 1 && !is_weak)
                continue;
            const unsigned there = levels->of[EDGE_ID(graph->to[edge])];
            const int counts = level <= there && !has_edge(hold->weaker[levels->strengths[there]], edge);
            if (counts == is_weak)
                hold->weaker[FIRM][edge >> 3] ^= (uint8_t) (1u << (edge & 7));
        }
    }
}

/* Bytes of one bit for each edge. */
static size_t room_of(const struct graph *graph, const struct hold *hold)
{
    return ((size_t) graph->edges + (hold->containers ? hold->containers->ordered : 0)) / 8 + 1;
}

void hold_close(const struct graph *graph, struct hold *hold, unsigned from)
{
    for (unsigned one = from; one < STRENGTHS; one++) {
        lazy_free(hold->weaker[one], room_of(graph, hold));
        hold->weaker[one] = NULL;
    }
}

int hold_open(const struct graph *graph, struct hold *hold)
{
    struct levels levels = {.count = 0};
    const size_t words = (size_t) graph->nodes / 64 + 1;
    int done = (hold->inside = dense_alloc((size_t) graph->edges * sizeof *hold->inside)) != NULL;
    for (unsigned one = 0; one < STRENGTHS; one++)
        done &= (hold->weaker[one] = lazy_alloc(room_of(graph, hold))) != NULL;
    if (done) {
        find_offsets(graph, hold->inside);
        find_strengths(graph, hold);
        done = hold_weaken(graph, hold);
        if (hold->containers)
            done &= hold_containers(graph, hold);
    }
    lazy_free(hold->inside, (size_t) graph->edges * sizeof *hold->inside);
    hold->inside = NULL;
    levels.whole = calloc(hold->containers ? (size_t) hold->containers->count + 1 : 1, 1);
    levels.before = calloc(words, 8);
    levels.of = lazy_alloc(64 * words);
    done = done && levels.before && levels.of && levels.whole && spread_open(&levels.spread, graph->nodes)
           && find_levels(graph, hold, &levels);
    if (done)
        leave_out(graph, hold, &levels);
    hold_close(graph, hold, BY_RULE);
    free(levels.before);
    free(levels.whole);
    lazy_free(levels.of, 64 * words);
    spread_close(&levels.spread);
    return done;
}

