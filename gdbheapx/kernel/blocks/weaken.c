/* Edges that are weak by what they are: pointers that many have, that lead to what a variable holds itself, back to who holds, and to the
   inside or the begin of what is held as a whole. A field is a word of blocks of one size that leads to one offset. */
#include "hold.h"
#include "tally.h"

#include <stdlib.h>

#define MOST_SIZE 65536u                /* blocks that may have fields */
#define MOST_SLOT 512u
#define MANY 16u                        /* edges by one field to one block */
#define SLAB_PLACES 5u                  /* of 8 that are told apart, of a block with so many places inside */
#define MOST_FIELDS (1u << 14)
#define SAMPLES 24u                     /* of a field */
#define LEAST_BACK 4u                   /* edges of a field that leads back */
#define MOST_BELOW 32u                  /* blocks looked at for a way back, */
#define MOST_WAYS 256u                  /* and edges */

/* What is told of each block by the pointers to it. */
struct told {
    uint8_t *times;                     /* pointers of blocks, at most MANY */
    uint8_t *places;                    /* one bit for some offsets inside that pointers lead to */
    uint64_t *by_variable;              /* a variable holds it */
    uint64_t *by_begin;                 /* something holds its begin */
};

/* The edge's field; 0: it has none. */
static uint64_t field_of(const struct graph *graph, const struct hold *hold, uint32_t node, uint64_t edge)
{
    const uint64_t size = index_size(&graph->index, node), slot = slot_of(graph, edge);
    return size > MOST_SIZE || slot >= MOST_SLOT || is_sure(graph, edge) || has_edge(hold->weaker[WEAK], edge)
        ? 0 : size << 32 | slot << 16 | hold->inside[edge];
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
        told->by_variable[target >> 6] |= UINT64_C(1) << (target & 63);
    if (is_inside)
        told->places[target] |= (uint8_t) (1u << (hold->inside[edge] * 0x9e37u >> 8 & 7));
    else if (is_lasting(hold, node) && !has_edge(hold->weaker[FIRM], edge))
        told->by_begin[target >> 6] |= UINT64_C(1) << (target & 63);
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
    unsigned is_back;
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

/* Four of five of its edges lead to blocks below which they stand. */
static int leads_up(const struct graph *graph, const struct hold *hold, const struct field *field)
{
    uint32_t left_out = 0;
    for (uint32_t i = 0; i < field->kept && 5 * left_out <= field->kept; i++)
        left_out += !is_below(graph, hold, field, EDGE_ID(graph->to[field->edges[i]]), field->from[i]);
    return field->count >= LEAST_BACK && 5 * left_out <= field->kept;
}

#define OF_ANY_SIZE UINT32_MAX          /* of a field: children of several sizes have one parent */

/* Counts by word and block the edges of fields that lead up, to those of the samples; or calls the edges of those weak that lead several
   times to one: children to their parent, and not a parent to its child. */
static void each_back(const struct graph *graph, struct hold *hold, const struct fields *fields, struct tally *counts)
{
    for (uint32_t node = 0; node < graph->index.blocks; node++)
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint64_t key = EDGE_ID(graph->to[edge]) < graph->index.blocks ? field_of(graph, hold, node, edge) : 0;
            const uint32_t *number = key ? tally_find(&fields->numbers, key) : NULL;
            if (!number || !*number || !fields->all[*number - 1].is_back)
                continue;
            uint32_t *count = counts ? tally_find(counts, field_to(key & OF_ANY_SIZE, EDGE_ID(graph->to[edge]))) : NULL;
            if (count)
                *count += 1;
            else if (!counts)
                weaken(hold, edge, WEAK);
        }
}

static int weaken_back(const struct graph *graph, struct hold *hold, struct fields *fields)
{
    struct tally counts;
    int done = tally_open(&counts, 1024), some = 0;
    for (uint32_t i = 0; i < fields->count && done; i++) {
        struct field *field = &fields->all[i];
        field->is_back = leads_up(graph, hold, field);
        some |= field->is_back;
        for (uint32_t one = 0; one < field->kept && field->is_back && done; one++)
            done = tally_at(&counts, field_to(field->key & OF_ANY_SIZE, EDGE_ID(graph->to[field->edges[one]]))) != NULL;
    }
    if (done && some) {
        each_back(graph, hold, fields, &counts);
        for (uint32_t i = 0; i < fields->count; i++) {
            struct field *field = &fields->all[i];
            uint64_t sum = 0;
            for (uint32_t one = 0; one < field->kept && field->is_back; one++)
                sum += *tally_find(&counts, field_to(field->key & OF_ANY_SIZE, EDGE_ID(graph->to[field->edges[one]])));
            field->is_back = field->is_back && 2 * sum >= 3 * (uint64_t) field->kept;
        }
        each_back(graph, hold, fields, NULL);
    }
    tally_close(&counts);
    return done;
}

static int find_back(const struct graph *graph, struct hold *hold)
{
    struct fields fields = {.count = 0};
    const size_t room = MOST_FIELDS * sizeof *fields.all;
    fields.all = lazy_alloc(room);
    int done = tally_open(&fields.numbers, 1024) && fields.all;
    done = done && find_fields(graph, hold, &fields) && weaken_back(graph, hold, &fields);
    tally_close(&fields.numbers);
    lazy_free(fields.all, room);
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
