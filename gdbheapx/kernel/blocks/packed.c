/* Writes a graph as streams of bytes, one after the other. */
#include "graph.h"

#include <stdlib.h>

/* The streams, in the order in which they stand: numbers of blocks/packed.py.
   ADDRESSES: for each block how far it begins behind the one before, in units. SIZES: of each, in units of four bytes. DEGREES: edges
   of each node. EDGES: for each edge how far its target is from that of the edge before of the same node, at first from the node
   itself; zigzag. KINDS: one byte an edge, its rule, and LOOSE, SURE, UNOWNING. INSIDE: of each edge that leads_inside() the
   offset. SLOTS: for each edge whose slot is kept how far it is behind the one before of the same node. */
#define PACKED_MOST 10u         /* bytes of a number */

struct packer {
    const struct graph *graph;
    const uint64_t *moves;          /* the caller's: begin, end and new begin of each mapping, by address */
    uint64_t move_count, move;      /* the mapping of the block before */
    unsigned slots;                 /* those of blocks, too */
    struct index_cursor cursor;
    unsigned stream;                /* what follows is of this one */
    uint64_t node, edge, inside, before;
};

static uint8_t *put_number(uint8_t *to, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        *to++ = (uint8_t) (value | 128);
    *to++ = (uint8_t) value;
    return to;
}

static uint64_t zigzag(uint64_t to, uint64_t from)
{
    return to >= from ? (to - from) << 1 : ((from - to) << 1) - 1;
}

void heapx_packer_free(struct packer *packer)
{
    free(packer);
}

/* The graph is resolved, and stays the caller's. `slots`: those of blocks are written, too. NULL: no memory. */
struct packer *heapx_packer_new(const struct graph *graph, const uint64_t *moves, uint64_t move_count, unsigned slots)
{
    struct packer *packer = calloc(1, sizeof *packer);
    if (!packer)
        return NULL;
    *packer = (struct packer) {.graph = graph, .moves = moves, .move_count = move_count, .slots = slots && graph->all_slots};
    return packer;
}

/* Where the address is moved to; 0: nowhere. Addresses ascend. */
static uint64_t moved(struct packer *packer, uint64_t address)
{
    while (packer->move < packer->move_count && address >= packer->moves[3 * packer->move + 1])
        packer->move++;
    const uint64_t *move = packer->moves + 3 * packer->move;
    return packer->move < packer->move_count && address >= move[0] ? address - move[0] + move[2] : 0;
}

static int has_slot(const struct packer *packer, uint32_t node)
{
    return node >= packer->graph->index.blocks || packer->slots;
}

/* What this stream has of each edge. */
static uint8_t *put_edges(struct packer *packer, uint8_t *to, const uint8_t *end)
{
    const struct graph *graph = packer->graph;
    for (; packer->node < graph->nodes; packer->node++) {
        const uint32_t node = (uint32_t) packer->node;
        if (packer->edge == graph->offsets[node])
            packer->before = packer->stream == PACKED_EDGES ? node : 0;
        for (; packer->edge < graph->offsets[node + 1]; packer->edge++) {
            const uint32_t edge = graph->to[packer->edge];
            if (to > end)
                return to;
            if (packer->stream == PACKED_EDGES) {
                to = put_number(to, zigzag(EDGE_ID(edge), packer->before));
                packer->before = EDGE_ID(edge);
            } else if (packer->stream == PACKED_KINDS) {
                *to++ = (uint8_t) (EDGE_RULE(edge) | (is_loose(graph, packer->edge) ? PACKED_LOOSE : 0)
                                   | (is_sure(graph, packer->edge) ? PACKED_SURE : 0)
                                   | (is_unowning(graph, packer->edge) ? PACKED_UNOWNING : 0));
            } else if (packer->stream == PACKED_INSIDE) {
                if (leads_inside(edge))
                    to = put_number(to, graph->inside[packer->inside++]);
            } else if (has_slot(packer, node)) {
                const uint32_t slot = graph->slots[packer->edge - graph->first_slotted];
                to = put_number(to, slot - packer->before);
                packer->before = slot;
            }
        }
    }
    return to;
}

static uint8_t *put_blocks(struct packer *packer, uint8_t *to, const uint8_t *end, int *failed)
{
    const struct index *index = &packer->graph->index;
    for (; packer->node < index->blocks && to <= end; packer->node++) {
        if (packer->stream == PACKED_SIZES) {
            to = put_number(to, index_size(index, (uint32_t) packer->node) / 4);
            continue;
        }
        const uint64_t address = moved(packer, index_next(index, &packer->cursor));
        if (address <= packer->before) {
            *failed = OUTSIDE;
            return to;
        }
        to = put_number(to, (address - packer->before) >> index->shift);
        packer->before = address;
    }
    return to;
}

/* The next bytes of the stream, at most `room`, which is 64 or more. 0: it has ended, and the next call begins with the one behind it;
   OUTSIDE. */
int64_t heapx_packer_next(struct packer *packer, uint8_t *out, uint64_t room)
{
    const struct graph *graph = packer->graph;
    const uint8_t *end = out + room - PACKED_MOST;
    uint8_t *to = out;
    int failed = 0;
    if (packer->stream <= PACKED_SIZES)
        to = put_blocks(packer, to, end, &failed);
    else if (packer->stream == PACKED_DEGREES)
        for (; packer->node < graph->nodes && to <= end; packer->node++)
            to = put_number(to, graph->offsets[packer->node + 1] - graph->offsets[packer->node]);
    else
        to = put_edges(packer, to, end);
    if (failed)
        return failed;
    if (to == out) {
        packer->stream++;
        packer->node = packer->edge = packer->inside = packer->before = 0;
    }
    return to - out;
}

/* ---- from a file ---- */

/* Makes a graph of the streams of a file. The file is somebody's: no number in it is believed. */

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
    if (!has_room(&ranges->bounds, ranges->count, &ranges->room, 2 * sizeof *ranges->bounds))
        return 0;
    ranges->bounds[2 * ranges->count] = begin;
    ranges->bounds[2 * ranges->count++ + 1] = end;
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
    graph->edge_room = edges + 1;
    graph->slot_room = count_numbers(&streams[PACKED_SLOTS]) + 1;
    graph->inside_room = count_numbers(&streams[PACKED_INSIDE]) + 1;
    graph->loose = calloc((size_t) graph->edge_room / 64 + 1, sizeof *graph->loose);
    graph->sure = calloc((size_t) graph->edge_room / 64 + 1, sizeof *graph->sure);
    graph->unowning = lazy_alloc((size_t) graph->edge_room / 8 + 1);
    if (!graph_make_room(graph) || !graph->loose || !graph->sure || !graph->unowning)
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
