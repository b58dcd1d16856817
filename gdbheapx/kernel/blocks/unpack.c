/* Makes a graph of the streams of a file. The file is somebody's: no number in it is believed. */
#include <stdlib.h>

#include "marks.h"
#include "packed.h"

#define MOST_LINED (1u << 14)       /* slots in which blocks begin: a TiB of heaps */

struct stream {
    const uint8_t *at, *end;
    int failed;
};

static uint64_t take_number(struct stream *stream)
{
    uint64_t value = 0;
    for (unsigned shift = 0; stream->at < stream->end && shift < 63; shift += 7) {
        const uint8_t one = *stream->at++;
        value |= (uint64_t) (one & 127) << shift;
        if (!(one & 128))
            return value;
    }
    stream->failed = 1;
    return 0;
}

/* So many numbers stand there. */
static uint64_t count_numbers(const struct stream *stream)
{
    uint64_t count = 0;
    for (const uint8_t *at = stream->at; at < stream->end; at++)
        count += !(*at & 128);
    return count;
}

/* The slots of 64 MiB in which blocks begin, and those that they reach beyond, as ranges. */
struct ranges {
    uint64_t *bounds;
    uint64_t count, room, slots;
};

static int add_range(struct ranges *ranges, uint64_t begin, uint64_t end)
{
    begin = begin >> SLOT_SHIFT << SLOT_SHIFT;
    end = ((end - 1) >> SLOT_SHIFT << SLOT_SHIFT) + SLOT_BYTES;
    uint64_t *last = ranges->count ? ranges->bounds + 2 * ranges->count - 2 : NULL;
    if (last && begin >= last[0] && begin <= last[1]) {
        if (end > last[1]) {
            ranges->slots += (end - last[1]) >> SLOT_SHIFT;
            last[1] = end;
        }
        return 1;
    }
    uint64_t *bounds = with_room(ranges->bounds, ranges->count, &ranges->room, 2 * sizeof *bounds);
    if (!bounds)
        return 0;
    ranges->bounds = bounds;
    bounds[2 * ranges->count] = begin;
    bounds[2 * ranges->count++ + 1] = end;
    ranges->slots += (end - begin) >> SLOT_SHIFT;
    return 1;
}

static int mappings_are_right(const uint64_t *mappings, uint64_t count)
{
    uint64_t before = 0, slots = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (mappings[2 * i] < before || mappings[2 * i + 1] <= mappings[2 * i] || mappings[2 * i + 1] > HIGHEST)
            return 0;
        before = mappings[2 * i + 1];
        slots += ((before - 1) >> SLOT_SHIFT) - (mappings[2 * i] >> SLOT_SHIFT) + 1;
    }
    return slots <= MOST_SLOTS;
}

/* One block after the other: checks them, or adds them. 0, OUTSIDE, NO_MEMORY. */
static int each_block(struct graph *graph, const struct stream *streams, unsigned shift, struct ranges *begins, struct ranges *beyond)
{
    struct stream addresses = streams[PACKED_ADDRESSES], sizes = streams[PACKED_SIZES];
    uint64_t address = 0, end = 0, count = 0;
    while (addresses.at < addresses.end) {
        const uint64_t away = take_number(&addresses), size = 4 * take_number(&sizes);
        if (addresses.failed || sizes.failed || !away || away > HIGHEST >> shift || size > HIGHEST)
            return OUTSIDE;
        address += away << shift;
        if (address < end || !size || address + size > HIGHEST || ++count >= MOST_NODES)
            return OUTSIDE;
        end = address + size;
        if (begins) {
            if (!add_range(begins, address, address + 1) || !add_range(beyond, address, end))
                return NO_MEMORY;
            if (begins->slots > MOST_LINED || beyond->slots > MOST_SLOTS)
                return OUTSIDE;
            continue;
        }
        const int added = index_add_next(&graph->index, address, size);
        if (added != 1)
            return added ? NO_MEMORY : OUTSIDE;
    }
    return sizes.at == sizes.end ? 0 : OUTSIDE;
}

/* The index: blocks, and where mappings are. As each_block. */
static int unpack_blocks(struct graph *graph, const struct stream *streams, unsigned shift)
{
    struct ranges begins = {NULL, 0, 0, 0}, others = {NULL, 0, 0, 0};
    int failed = each_block(graph, streams, shift, &begins, &others);
    for (uint64_t i = 0; i < graph->mapping_count && !failed; i++)
        failed = add_range(&others, graph->mappings[2 * i], graph->mappings[2 * i + 1]) ? 0 : NO_MEMORY;
    if (!failed && !index_open(&graph->index, shift, begins.bounds, begins.count, others.bounds, others.count))
        failed = NO_MEMORY;
    if (!failed)
        failed = each_block(graph, streams, shift, NULL, NULL);
    if (!failed && !index_settle(&graph->index))
        failed = NO_MEMORY;
    free(begins.bounds);
    free(others.bounds);
    return failed;
}

/* One edge: 0 where it is none. */
static int unpack_edge(struct graph *graph, struct stream *streams, uint32_t node, uint64_t *target, uint32_t *slot)
{
    const uint64_t zigzag = take_number(&streams[PACKED_EDGES]), kind = *streams[PACKED_KINDS].at++;
    const uint32_t rule = kind & 7;
    *target += zigzag & 1 ? 0 - ((zigzag >> 1) + 1) : zigzag >> 1;
    if (streams[PACKED_EDGES].failed || *target >= graph->index.blocks + graph->mapping_count || *target == node || rule >= RULES
        || kind > (7 | PACKED_LINK | PACKED_LOOSE | PACKED_SURE | PACKED_UNOWNING))
        return 0;
    if (kind & PACKED_LOOSE)
        graph->loose[graph->edges >> 6] |= 1ull << (graph->edges & 63);
    if (kind & PACKED_SURE)
        graph->sure[graph->edges >> 6] |= 1ull << (graph->edges & 63);
    if (kind & PACKED_UNOWNING)
        set_edge(graph->unowning, graph->edges);
    if (leads_inside(rule << ID_BITS)) {
        const uint64_t offset = take_number(&streams[PACKED_INSIDE]);
        if (streams[PACKED_INSIDE].failed || offset > MOST_OFFSET)
            return 0;
        graph->inside[graph->inside_count++] = (uint16_t) offset;
    }
    if (is_slotted(graph, node)) {
        const uint64_t away = take_number(&streams[PACKED_SLOTS]);
        if (streams[PACKED_SLOTS].failed || away > UINT32_MAX - *slot)
            return 0;
        *slot += (uint32_t) away;
        if (graph->first_slotted == UINT64_MAX)
            graph->first_slotted = graph->edges;
        graph->slots[graph->edges - graph->first_slotted] = *slot;
    }
    if (rule != RULE_START)
        graph->weaker[node >> 6] |= 1ull << (node & 63);
    graph->by_rule[rule]++;
    graph->to[graph->edges++] = (uint32_t) *target | rule << ID_BITS;
    return 1;
}

static int unpack_edges(struct graph *graph, struct stream *streams)
{
    const uint64_t edges = (uint64_t) (streams[PACKED_KINDS].end - streams[PACKED_KINDS].at);
    const uint64_t nodes = count_numbers(&streams[PACKED_DEGREES]);
    if (nodes < graph->index.blocks + graph->mapping_count || nodes >= MOST_NODES || edges >= UINT32_MAX)
        return OUTSIDE;
    graph->nodes = (uint32_t) nodes;
    graph->nodes_read = nodes;
    graph->first_slotted = UINT64_MAX;
    graph->edge_room = edges + 1;
    graph->slot_room = count_numbers(&streams[PACKED_SLOTS]) + 1;
    graph->inside_room = count_numbers(&streams[PACKED_INSIDE]) + 1;
    graph->offsets = dense_alloc(((size_t) nodes + 2) * sizeof *graph->offsets);
    graph->weaker = lazy_alloc(((size_t) nodes / 64 + 1) * sizeof *graph->weaker);
    graph->to = dense_alloc((size_t) graph->edge_room * sizeof *graph->to);
    graph->slots = dense_alloc((size_t) graph->slot_room * sizeof *graph->slots);
    graph->inside = lazy_alloc((size_t) graph->inside_room * sizeof *graph->inside);
    graph->loose = calloc((size_t) graph->edge_room / 64 + 1, sizeof *graph->loose);
    graph->sure = calloc((size_t) graph->edge_room / 64 + 1, sizeof *graph->sure);
    graph->unowning = lazy_alloc((size_t) graph->edge_room / 8 + 1);
    if (!graph->offsets || !graph->weaker || !graph->to || !graph->slots || !graph->inside || !graph->loose || !graph->sure
        || !graph->unowning)
        return NO_MEMORY;
    for (uint32_t node = 0; node < graph->nodes; node++) {
        uint64_t degree = take_number(&streams[PACKED_DEGREES]), target = node;
        uint32_t slot = 0;
        graph->offsets[node] = (uint32_t) graph->edges;
        if (streams[PACKED_DEGREES].failed || degree > edges - graph->edges)
            return OUTSIDE;
        for (; degree; degree--)
            if (!unpack_edge(graph, streams, node, &target, &slot))
                return OUTSIDE;
    }
    graph->offsets[graph->nodes] = (uint32_t) graph->edges;
    for (unsigned i = PACKED_DEGREES; i < PACKED_STREAMS; i++)
        if (streams[i].at != streams[i].end)
            return OUTSIDE;
    return 0;
}

/* `streams`: for each where it begins and its length; they may go when this returns. `mappings` stay the caller's. `slots`: those of
   blocks are there, too. `habits`: offsets. NULL: *why is OUTSIDE or NO_MEMORY. */
struct graph *heapx_graph_unpack(unsigned word, unsigned shift, unsigned slots, const uint64_t *mappings, uint64_t mapping_count,
                                 const uint64_t *streams, const uint16_t *habits, uint64_t habit_count, int *why)
{
    struct stream opened[PACKED_STREAMS];
    struct graph *graph = calloc(1, sizeof *graph);
    *why = graph ? OUTSIDE : NO_MEMORY;
    if (!graph)
        return NULL;
    *graph = (struct graph) {.word = word, .all_slots = slots, .mappings = mappings, .mapping_count = mapping_count};
    for (unsigned i = 0; i < PACKED_STREAMS; i++) {
        const uint8_t *at = (const uint8_t *) (uintptr_t) streams[2 * i];
        opened[i] = (struct stream) {at, at + streams[2 * i + 1], 0};
    }
    if (shift <= 12 && habit_count <= MOST_HABITS && mappings_are_right(mappings, mapping_count)) {
        *why = unpack_blocks(graph, opened, shift);
        if (!*why)
            *why = unpack_edges(graph, opened);
    }
    if (*why) {
        heapx_graph_free(graph);
        return NULL;
    }
    for (; graph->habit_count < habit_count; graph->habit_count++)
        graph->habits[graph->habit_count] = habits[graph->habit_count];
    return graph;
}

/* Evidence that was found elsewhere, after heapx_marks_slice: of nodes that nothing leads to. */
void heapx_marks_set(struct graph *graph, const uint32_t *nodes, const uint8_t *evidence, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (nodes[i] < graph->index.blocks && is_leaked(graph->marks, nodes[i]))
            set_evidence(graph->marks, nodes[i], evidence[i]);
}
