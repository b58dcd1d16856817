/* Writes a graph as streams of bytes, one after the other. */
#include "packed.h"

#include <stdlib.h>


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
