/* Which edges count for who owns a node. A conservative graph has false edges, and one of them takes a whole tree from its owner. So edges
   are strong or weak, and roots are of three levels: variables, thread-local ones, stacks. What is reached from variables by strong edges
   loses all others to it; then what is reached by weak ones; then from thread-local storage, and at last from stacks. Each level takes
   nothing from those before. Words that hold nothing (stale.h) are left out. */
#include "hold.h"
#include "tally.h"

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

/* ---- edges that are weak by what they are ---- */

/* Edges that are weak by what they are: pointers that many have, that lead to what a variable holds itself, back to who holds, and to the
   inside or the begin of what is held as a whole. A field is a word of blocks of one size that leads to one offset. */

#define MOST_SIZE 65536u                /* blocks that may have fields */
#define MOST_SLOT 512u
#define MANY 16u                        /* edges by one field to one block */
#define SLAB_PLACES 5u                  /* of 8 that are told apart, of a block with so many places inside */
#define MOST_FIELDS (1u << 14)
#define SAMPLES 24u                     /* of a field */
#define LEAST_BACK 4u                   /* edges of a field that leads back */
#define MOST_BELOW 32u                  /* blocks looked at for a way back, */
#define MOST_WAYS 256u                  /* and edges; as many of a parent */

/* What is told of each block by the pointers to it. */
struct told {
    uint8_t *times;                     /* pointers of blocks, at most MANY */
    uint8_t *places;                    /* one bit for some offsets inside that pointers lead to */
    uint64_t *by_variable;              /* a variable holds it */
    uint64_t *by_begin;                 /* something holds its begin */
};

/* The edge's field, to blocks of the same size or to others; 0: it has none. */
static uint64_t field_of(const struct graph *graph, const struct hold *hold, uint32_t node, uint64_t edge)
{
    const uint64_t size = index_size(&graph->index, node), slot = slot_of(graph, edge);
    const uint32_t target = EDGE_ID(graph->to[edge]);
    const uint64_t is_alike = target < graph->index.blocks && index_size(&graph->index, target) == size;
    return size > MOST_SIZE || slot >= MOST_SLOT || is_sure(graph, edge) || has_edge(hold->weaker[WEAK], edge)
        ? 0 : (is_alike << 28 | size) << 32 | slot << 16 | hold->inside[edge];
}

/* A field and a block that it leads to. */
static uint64_t field_to(uint64_t field, uint32_t target)
{
    return UINT64_C(1) << 63 | mixed(field) << ID_BITS | target;
}

static void note(const struct graph *graph, const struct hold *hold, struct told *told, uint32_t node, uint32_t edge)
{
    const uint32_t target = EDGE_ID(graph->to[edge]);
    const int is_inside = leads_inside(graph->to[edge]) && hold->inside[edge];
    if (target >= graph->index.blocks || has_edge(hold->weaker[WEAK], edge))
        return;
    if (node < graph->index.blocks)
        told->times[target] += told->times[target] < MANY;
    else if (node >= hold->roots_from && node < hold->locals_from && !has_edge(hold->weaker[FIRM], edge))
        set_bit(told->by_variable, target);
    if (is_inside)
        told->places[target] |= (uint8_t) (1u << (hold->inside[edge] * 0x9e37u >> 8 & 7));
    else if (is_lasting(hold, node) && !has_edge(hold->weaker[FIRM], edge))
        set_bit(told->by_begin, target);
}

/* ---- what many have, and what a variable holds ---- */

static int is_counted(const struct told *told, uint32_t target)
{
    return told->times[target] >= (has_bit(told->by_variable, target) ? 2 : MANY);
}

/* Counts pointers by field to each such block, or calls those weak that are so many. 0: no memory. */
static int each_to_many(const struct graph *graph, struct hold *hold, const struct told *told, struct tally *tally, int is_marking)
{
    const uint32_t blocks = (uint32_t) graph->index.blocks;
    for (uint32_t node = 0; node < blocks; node++)
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            const uint64_t field = target < blocks && is_counted(told, target) ? field_of(graph, hold, node, edge) : 0;
            if (!field)
                continue;
            uint32_t *count = is_marking ? tally_find(tally, field_to(field, target)) : tally_at(tally, field_to(field, target));
            if (!count)
                return 0;
            if (!is_marking)
                *count += 1;
            else if (*count >= (!has_bit(told->by_variable, target) ? MANY : told->times[target] < MANY ? 2 : 1))
                weaken(hold, edge, WEAK);
        }
    return 1;
}

static int weaken_to_many(const struct graph *graph, struct hold *hold, const struct told *told)
{
    struct tally tally;
    int done = tally_open(&tally, 1024) && each_to_many(graph, hold, told, &tally, 0);
    done = done && (!tally.used || each_to_many(graph, hold, told, &tally, 1));
    tally_close(&tally);
    return done;
}

/* ---- parts of what is held as a whole ---- */

/* Pointers to the inside of what something holds by its begin; and to the begin of a slab, of who points to more places inside. */
static void weaken_parts(const struct graph *graph, struct hold *hold, const struct told *told)
{
    const uint32_t blocks = (uint32_t) graph->index.blocks;
    for (uint32_t node = 0; node < graph->nodes; node++) {
        uint32_t within = 0, begins = 0;
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]), rule = EDGE_RULE(graph->to[edge]);
            if (target >= blocks || is_sure(graph, edge))
                continue;
            const int is_inside = leads_inside(graph->to[edge]) && hold->inside[edge];
            if (is_inside && rule != RULE_BASE && has_bit(told->by_begin, target))
                weaken(hold, edge, WEAK);
            if ((unsigned) __builtin_popcount(told->places[target]) >= SLAB_PLACES)
                *(is_inside ? &within : &begins) += 1;
        }
        for (uint32_t edge = begins && within > begins ? graph->offsets[node] : UINT32_MAX; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            if (target < blocks && !is_sure(graph, edge) && !(leads_inside(graph->to[edge]) && hold->inside[edge])
                && (unsigned) __builtin_popcount(told->places[target]) >= SLAB_PLACES)
                weaken(hold, edge, WEAK);
        }
    }
}

/* ---- back to who holds ---- */

struct field {
    uint64_t key;
    uint32_t count, kept;
    uint32_t from[SAMPLES], edges[SAMPLES];
    int is_up;
};

struct fields {
    struct tally numbers;               /* by key: its number + 1 */
    struct field *all;
    uint32_t count;
};

/* Some of the field's edges, evenly. */
static void keep_sample(struct field *field, uint32_t node, uint32_t edge)
{
    uint32_t step = 1;
    while (field->count / step >= SAMPLES)
        step *= 2;
    if (field->count % step == 0) {
        if (field->kept == SAMPLES)     /* every second one goes */
            for (field->kept = 0; field->kept < SAMPLES / 2; field->kept++) {
                field->from[field->kept] = field->from[2 * field->kept];
                field->edges[field->kept] = field->edges[2 * field->kept];
            }
        field->from[field->kept] = node;
        field->edges[field->kept++] = edge;
    }
    field->count++;
}

/* 0: no memory. */
static int find_fields(const struct graph *graph, const struct hold *hold, struct fields *fields)
{
    for (uint32_t node = 0; node < graph->index.blocks; node++)
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint64_t key = EDGE_ID(graph->to[edge]) < graph->index.blocks ? field_of(graph, hold, node, edge) : 0;
            if (!key)
                continue;
            uint32_t *number = fields->count < MOST_FIELDS ? tally_at(&fields->numbers, key) : tally_find(&fields->numbers, key);
            if (!number && fields->count < MOST_FIELDS)
                return 0;
            if (number && !*number) {
                *number = ++fields->count;
                fields->all[*number - 1].key = key;
            }
            if (number)
                keep_sample(&fields->all[*number - 1], node, edge);
        }
    return 1;
}

/* A way leads from the block back to `node`, not by the field. */
static int is_below(const struct graph *graph, const struct hold *hold, const struct field *field, uint32_t block, uint32_t node)
{
    uint32_t waiting[MOST_BELOW], count = 1, ways = 0;
    waiting[0] = block;
    for (uint32_t next = 0; next < count; next++)
        for (uint32_t edge = graph->offsets[waiting[next]]; edge < graph->offsets[waiting[next] + 1] && ways++ < MOST_WAYS; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            if (target >= graph->index.blocks || field_of(graph, hold, waiting[next], edge) == field->key)
                continue;
            if (target == node)
                return 1;
            uint32_t met = 0;
            while (met < count && waiting[met] != target)
                met++;
            if (met == count && count < MOST_BELOW)
                waiting[count++] = target;
        }
    return 0;
}

/* Most of its edges lead to blocks below which they stand. */
static void look_up(const struct graph *graph, const struct hold *hold, struct field *field)
{
    uint32_t below = 0;
    for (uint32_t i = 0; i < field->kept && field->count >= LEAST_BACK; i++)
        below += (uint32_t) is_below(graph, hold, field, EDGE_ID(graph->to[field->edges[i]]), field->from[i]);
    field->is_up = field->count >= LEAST_BACK && 2 * below >= field->kept;
}

#define OF_ANY_SIZE UINT32_MAX          /* of a field: children of several sizes have one parent */
#define SEVERAL 2u

/* What leads up: from children to their parent, of which a parent has several. */
struct rise {
    const struct graph *graph;
    struct hold *hold;
    struct fields fields;
    struct tally counts;                /* by word and block the edges of fields that lead up, to those of the samples */
    uint8_t *edges;                     /* one bit each: it leads up */
    uint32_t *above;                    /* by block its parent */
    uint8_t *children;                  /* by block how many lead up to it, at most SEVERAL */
};

/* Counts all edges of fields that lead up, or marks those to blocks that have several children. */
static void for_each_up(struct rise *rise, int is_marking)
{
    const struct graph *graph = rise->graph;
    for (uint32_t node = 0; node < graph->index.blocks; node++)
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            const uint64_t key = target < graph->index.blocks ? field_of(graph, rise->hold, node, edge) : 0;
            const uint32_t *number = key ? tally_find(&rise->fields.numbers, key) : NULL;
            if (!number || !*number || !rise->fields.all[*number - 1].is_up)
                continue;
            uint32_t *count = is_marking ? NULL : tally_find(&rise->counts, field_to(key & OF_ANY_SIZE, target));
            if (count)
                *count += 1;
            if (!is_marking) {
                rise->children[target] += rise->children[target] < SEVERAL;
            } else if (rise->children[target] == SEVERAL) {
                set_edge(rise->edges, edge);
                rise->above[node] = target;
            }
        }
}

/* A parent has several children that lead to it: else its child may be what leads up. */
static int is_crowded(const struct rise *rise, const struct field *field)
{
    for (uint32_t one = 0; one < field->kept && field->is_up; one++)
        if (*tally_find(&rise->counts, field_to(field->key & OF_ANY_SIZE, EDGE_ID(rise->graph->to[field->edges[one]]))) > 1)
            return 1;
    return 0;
}

static int leads_to(const struct rise *rise, uint32_t from, uint32_t node)
{
    const struct graph *graph = rise->graph;
    const uint32_t of = container_of(graph, rise->hold, node), part = of ? graph->nodes + of - 1 : node, first = graph->offsets[from];
    const uint32_t end = graph->offsets[from + 1] - first > MOST_WAYS ? first + MOST_WAYS : graph->offsets[from + 1];
    for (uint32_t edge = first; edge < end; edge++)
        if (edge_target(graph, rise->hold, edge) == part)
            return 1;
    return 0;
}

/* The node is part of what `up` is: itself, one of its other children, or what it leads to, such as its array of children. */
static int is_part(const struct rise *rise, uint32_t up, uint32_t node)
{
    return node < rise->graph->index.blocks && (node == up || rise->above[node] == up || leads_to(rise, up, node));
}

/* Edges that lead up, and to children from elsewhere than their parent, unless their runtime says that they own. */
static void weaken_up(struct rise *rise)
{
    const struct graph *graph = rise->graph;
    for (uint32_t node = 0; node < graph->nodes; node++)
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]), up = target < graph->index.blocks ? rise->above[target] : NO_NODE;
            if (is_sure(graph, edge))
                continue;
            if (up != NO_NODE && !is_part(rise, up, node))
                weaken(rise->hold, edge, USE);
            else if (has_edge(rise->edges, edge))
                weaken(rise->hold, edge, WEAK);
        }
}

/* Which fields lead up, as far as samples tell. 0: no memory. */
static int find_rising(struct rise *rise)
{
    int done = find_fields(rise->graph, rise->hold, &rise->fields);
    for (uint32_t i = 0; i < rise->fields.count && done; i++) {
        struct field *field = &rise->fields.all[i];
        look_up(rise->graph, rise->hold, field);
        for (uint32_t one = 0; one < field->kept && field->is_up && done; one++)
            done = tally_at(&rise->counts, field_to(field->key & OF_ANY_SIZE, EDGE_ID(rise->graph->to[field->edges[one]]))) != NULL;
    }
    return done;
}

static int find_back(const struct graph *graph, struct hold *hold)
{
    struct rise rise = {.graph = graph, .hold = hold};
    const size_t room = MOST_FIELDS * sizeof *rise.fields.all, bits = (size_t) graph->edges / 8 + 1;
    const size_t blocks = (size_t) graph->index.blocks + 1;
    int some = 0;
    rise.fields.all = lazy_alloc(room);
    rise.children = lazy_alloc(blocks);
    rise.edges = lazy_alloc(bits);
    rise.above = dense_alloc(blocks * sizeof *rise.above);
    int done = tally_open(&rise.fields.numbers, 1024) && tally_open(&rise.counts, 1024) && rise.fields.all && rise.children && rise.edges
               && rise.above && find_rising(&rise);
    if (done && rise.counts.used)
        for_each_up(&rise, 0);
    for (uint32_t i = 0; i < rise.fields.count && done; i++)
        some |= rise.fields.all[i].is_up = is_crowded(&rise, &rise.fields.all[i]);
    if (some) {
        memset(rise.above, 0xff, blocks * sizeof *rise.above);
        for_each_up(&rise, 1);
        weaken_up(&rise);
    }
    tally_close(&rise.fields.numbers);
    tally_close(&rise.counts);
    lazy_free(rise.fields.all, room);
    lazy_free(rise.children, blocks);
    lazy_free(rise.edges, bits);
    lazy_free(rise.above, blocks * sizeof *rise.above);
    return done;
}

int hold_weaken(const struct graph *graph, struct hold *hold)
{
    const size_t blocks = (size_t) graph->index.blocks, words = blocks / 64 + 1;
    struct told told = {lazy_alloc(blocks + 8), lazy_alloc(blocks + 8), calloc(words, 8), calloc(words, 8)};
    int done = told.times && told.places && told.by_variable && told.by_begin;
    for (uint32_t node = 0; done && node < graph->nodes; node++)
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            if (edge + AHEAD < graph->edges)
                __builtin_prefetch(&told.times[EDGE_ID(graph->to[edge + AHEAD])]);
            note(graph, hold, &told, node, edge);
        }
    if (done) {
        weaken_parts(graph, hold, &told);
        done = weaken_to_many(graph, hold, &told) && (!graph->all_slots || find_back(graph, hold));
    }
    lazy_free(told.times, blocks + 8);
    lazy_free(told.places, blocks + 8);
    free(told.by_variable);
    free(told.by_begin);
    return done;
}
