/* Objects that count references to them, and have none but from each other: what a collector of cycles would free. Its own rule
   (CPython's Modules/gcmodule.c: subtract_refs, move_unreachable), asked only of what no root leads to. */
#include "marks.h"

#define IS_GARBAGE 1u
#define SELF_WORDS 512u             /* of an object, in which it may refer to itself */
#define WINDOW_BYTES (64u << 10)    /* that many small objects share */

/* What is known of the objects of one label. */
struct counting {
    uint64_t owned, more, bodies;   /* by word: it owns, as own() was told; it is a counted reference, whether it owns or not; it leads to
                                       memory of the object's own that has some */
    uint64_t begin;                 /* where in its block the object begins, in words, plus 1; 0: it is none */
    uint64_t is_visited;            /* the collector knows what it refers to */
};

struct cycles {
    const struct graph *graph;
    const uint32_t *labels;
    const struct counting *countings;
    uint64_t label_count;
    uint16_t *places;               /* by edge the offset in its target, in words */
    int64_t *counts;                /* by block; of objects that are not reached */
    struct spread reached, bodies;
};

static const struct counting *counting_of(const struct cycles *cycles, uint32_t node)
{
    static const struct counting none = {0, 0, 0, 0, 0};
    if (node >= cycles->graph->index.blocks || cycles->labels[node] >= cycles->label_count)
        return &none;
    return &cycles->countings[cycles->labels[node]];
}

static int has_word(uint64_t mask, uint64_t slot)
{
    return (int) (mask >> (slot < LAST_OWNING_BIT ? slot : LAST_OWNING_BIT) & 1);
}

/* The edge leads to where the object begins. */
static int is_reference(const struct cycles *cycles, uint32_t edge)
{
    return cycles->places[edge] + UINT64_C(1) == counting_of(cycles, EDGE_ID(cycles->graph->to[edge]))->begin;
}

/* A collector's list leads to the head of two words before an object: nothing else does. */
static int is_collectors(const struct cycles *cycles, uint32_t edge)
{
    const uint64_t begin = counting_of(cycles, EDGE_ID(cycles->graph->to[edge]))->begin;
    return begin >= 3 && cycles->places[edge] + UINT64_C(3) == begin;
}

/* Marks all that can be reached from what waits. 0: no memory. */
static int reach(struct cycles *cycles)
{
    const struct graph *graph = cycles->graph;
    while (cycles->reached.depth) {
        const uint32_t node = cycles->reached.stack[--cycles->reached.depth];
        const struct counting *of = counting_of(cycles, node);
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            const int is_told = is_loose(graph, edge) && !has_word(of->more | of->bodies, slot_of(graph, edge));
            if (!is_marked(&cycles->reached, target) && !is_told && !is_collectors(cycles, edge)
                && !spread_push(&cycles->reached, target))
                return 0;
        }
    }
    return 1;
}

/* The count of one object less its references to itself, which no edge has. What cannot be read is held. */
static int64_t count_others(const struct cycles *cycles, struct window *window, uint32_t node, uint64_t address)
{
    const struct counting *of = counting_of(cycles, node);
    const uint64_t size = node_bytes(cycles->graph, node), itself = address + 8 * (of->begin - 1);
    const uint64_t count = size / 8 < SELF_WORDS ? size / 8 : SELF_WORDS;
    const uint8_t *words = count < of->begin ? NULL : window_at(window, address, 8 * count);
    if (!words)
        return UINT32_MAX;
    int64_t others = load_word(words + 8 * (of->begin - 1), 8, 0) & UINT32_MAX;
    for (uint64_t slot = 0; slot < count && of->is_visited; slot++)
        others -= load_word(words + 8 * slot, 8, 0) == itself && has_word(of->owned | of->more, slot);
    return others;
}

/* 0: no memory. */
static int read_counts(struct cycles *cycles)
{
    const struct index *index = &cycles->graph->index;
    uint8_t *buffer = malloc(WINDOW_BYTES);
    struct index_cursor cursor;
    struct window window;
    if (!buffer)
        return 0;
    index_seek(index, &cursor, 0);
    window_open(&window, cycles->graph->memory, buffer, WINDOW_BYTES, 0, UINT64_MAX);
    for (uint32_t node = 0; node < index->blocks; node++) {
        const uint64_t address = index_next(index, &cursor);
        if (counting_of(cycles, node)->begin && !is_marked(&cycles->reached, node))
            cycles->counts[node] = count_others(cycles, &window, node, address);
    }
    free(buffer);
    return 1;
}

/* Subtracts the references that a block has; those of memory of its own come later. */
static int subtract_block(struct cycles *cycles, uint32_t node, uint64_t more, uint64_t bodies)
{
    const struct graph *graph = cycles->graph;
    for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
        const uint32_t target = EDGE_ID(graph->to[edge]);
        if (target >= graph->index.blocks || is_marked(&cycles->reached, target))
            continue;
        if ((!is_loose(graph, edge) || has_word(more, slot_of(graph, edge))) && is_reference(cycles, edge))
            cycles->counts[target]--;
        else if (has_word(bodies, slot_of(graph, edge)) && !counting_of(cycles, target)->begin && !is_marked(&cycles->bodies, target)
                 && !spread_push(&cycles->bodies, target))
            return 0;
    }
    return 1;
}

static int subtract(struct cycles *cycles)
{
    for (uint32_t node = 0; node < cycles->graph->index.blocks; node++) {
        const struct counting *of = counting_of(cycles, node);
        if (of->begin && of->is_visited && !is_marked(&cycles->reached, node) && !subtract_block(cycles, node, of->more, of->bodies))
            return 0;
    }
    while (cycles->bodies.depth)
        if (!subtract_block(cycles, cycles->bodies.stack[--cycles->bodies.depth], 0, UINT64_MAX))
            return 0;
    return 1;
}

/* What has references from elsewhere is held, and all behind it; so is what has more than it counts: that is not understood. */
static int hold(struct cycles *cycles)
{
    for (uint32_t node = 0; node < cycles->graph->index.blocks; node++)
        if (counting_of(cycles, node)->begin && !is_marked(&cycles->reached, node) && cycles->counts[node]
            && !spread_push(&cycles->reached, node))
            return 0;
    return reach(cycles);
}

/* Garbage is what is left, and the memory that it alone has. */
static int tell(struct cycles *cycles, uint8_t *state)
{
    const struct graph *graph = cycles->graph;
    for (uint32_t node = 0; node < graph->index.blocks; node++)
        if (counting_of(cycles, node)->begin && !is_marked(&cycles->reached, node) && !spread_push(&cycles->reached, node))
            return 0;
    while (cycles->reached.depth) {
        const uint32_t node = cycles->reached.stack[--cycles->reached.depth];
        state[node] = IS_GARBAGE;
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            if (target < graph->index.blocks && !is_marked(&cycles->reached, target) && !is_loose(graph, edge)
                && !spread_push(&cycles->reached, target))
                return 0;
        }
    }
    return 1;
}

/* After own(), while memory is as it was. Roots from `first` to before `end` are looked at: stacks have what is there no more, and
   what they hold is counted. `countings`: by label, 0 first. `state`: zeros, by block; garbage becomes 1. 0, or NO_MEMORY. */
int heapx_cycles_find(const struct graph *graph, uint32_t first, uint32_t end, const uint32_t *labels, const uint64_t *countings,
                      uint64_t label_count, uint8_t *state)
{
    struct cycles cycles = {graph, labels, (const struct counting *) countings, label_count, NULL, NULL, {0}, {0}};
    cycles.places = malloc((size_t) graph->edges * sizeof *cycles.places + 8);
    cycles.counts = calloc((size_t) graph->index.blocks + 1, sizeof *cycles.counts);
    int is_room = spread_open(&cycles.reached, graph->nodes);
    is_room = spread_open(&cycles.bodies, graph->nodes) && is_room && cycles.places && cycles.counts;
    if (is_room)
        find_offsets(graph, cycles.places);
    for (uint32_t node = first; node < end && node < graph->nodes && is_room; node++)
        is_room = spread_push(&cycles.reached, node);
    is_room = is_room && reach(&cycles) && read_counts(&cycles) && subtract(&cycles) && hold(&cycles) && tell(&cycles, state);
    spread_close(&cycles.reached);
    spread_close(&cycles.bodies);
    free(cycles.places);
    free(cycles.counts);
    return is_room ? 0 : NO_MEMORY;
}

static int is_asked(const uint32_t *asked, uint64_t asked_count, uint32_t label)
{
    for (uint64_t i = 0; i < asked_count; i++)
        if (asked[i] == label)
            return 1;
    return 0;
}

/* Blocks and bytes of garbage that can be reached from that of these labels. 0, or NO_MEMORY. */
int heapx_cycles_behind(const struct graph *graph, const uint8_t *state, const uint32_t *labels, const uint32_t *asked,
                        uint64_t asked_count, uint64_t *out)
{
    struct spread spread;
    int is_room = spread_open(&spread, graph->nodes);
    out[0] = out[1] = 0;
    for (uint32_t node = 0; node < graph->index.blocks && is_room; node++)
        if (state[node] == IS_GARBAGE && is_asked(asked, asked_count, labels[node]) && !is_marked(&spread, node))
            is_room = spread_push(&spread, node);
    while (is_room && spread.depth) {
        const uint32_t node = spread.stack[--spread.depth];
        out[0]++;
        out[1] += node_bytes(graph, node);
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1] && is_room; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            if (target < graph->index.blocks && state[target] == IS_GARBAGE && !is_loose(graph, edge) && !is_marked(&spread, target))
                is_room = spread_push(&spread, target);
        }
    }
    spread_close(&spread);
    return is_room ? 0 : NO_MEMORY;
}
