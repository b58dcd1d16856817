/* The graph: candidates become edges, by node in the order of their numbers. */
#include "graph.h"

#include <stdlib.h>

/* This machine is: candidates are packed from the low end of a word. */
/* `mappings` and `ranges` stay the caller's. `heaps`: where blocks may be. `images`: where vtables are read, NULL for none; `ranges`: what
   of it may hold any. `ignored`: bits of a pointer that are no address. NULL: no memory. */
struct graph *heapx_graph_new(const struct source *memory, unsigned word, int little_endian, unsigned shift, unsigned all_slots,
                              const uint64_t *heaps, uint64_t heap_count, const uint64_t *mappings, uint64_t mapping_count,
                              const struct source *images, const uint64_t *ranges, uint64_t range_count, uint64_t ignored,
                              unsigned threads)
{
    struct graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return NULL;
    const unsigned swap = is_swapped((uint64_t) little_endian), packed_swap = is_swapped(1);
    *graph = (struct graph) {
        .memory = memory, .word = word, .swap = swap, .packed_swap = packed_swap, .plain_words = word == 8 && !swap && !packed_swap,
        .all_slots = all_slots, .threads = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads,
        .mappings = mappings, .mapping_count = mapping_count, .buffer = malloc(128u << 10),
    };
    if (!graph->buffer || !index_open(&graph->index, shift, heaps, heap_count, mappings, mapping_count)
        || !heads_open(&graph->heads, word, graph->swap, images, ranges, range_count)) {
        index_close(&graph->index);
        heads_close(&graph->heads);
        free(graph->buffer);
        free(graph);
        return NULL;
    }
    graph->at_hand = graph->buffer;
    sieve_open(&graph->sieve, word, graph->swap, graph->index.low, graph->index.span, ignored);
    graph->writer.address_bytes = graph->index.slot_count < 1u << (40 - SLOT_SHIFT) ? 5 : 7;
    writer_begin(&graph->writer, &graph->segments, 0, 0);
    return graph;
}

void heapx_graph_free(struct graph *graph)
{
    if (!graph)
        return;
    writer_close(&graph->writer);
    segments_free(&graph->segments, graph->resolved_segments);
    if (graph->marks)
        graph->free_marks(graph->marks);
    lazy_free(graph->offsets, ((size_t) graph->nodes + 2) * sizeof *graph->offsets);
    lazy_free(graph->weaker, ((size_t) graph->nodes / 64 + 1) * sizeof *graph->weaker);
    lazy_free(graph->to, (size_t) graph->edge_room * sizeof *graph->to);
    lazy_free(graph->slots, (size_t) graph->slot_room * sizeof *graph->slots);
    lazy_free(graph->inside, (size_t) graph->inside_room * sizeof *graph->inside);
    free(graph->loose);
    free(graph->sure);
    free(graph->passed);
    free(graph->starts);
    lazy_free(graph->unowning, (size_t) graph->edge_room / 8 + 1);
    stale_free(&graph->stale);
    index_close(&graph->index);
    heads_close(&graph->heads);
    free(graph->buffer);
    free(graph);
}

/* What tells of words that own nothing is noted from now on, where it can be. */
void heapx_graph_note_unowning(struct graph *graph)
{
    graph->notes_stale = graph->all_slots && graph->plain_words;
}

/* Every block that is gathered from now on is signed. */
void heapx_graph_sign(struct graph *graph, struct signer *signer)
{
    graph->signer = signer;
}

/* Everything is read: no more of the process is needed. 1, or NO_MEMORY. */
int64_t heapx_graph_settle(struct graph *graph)
{
    free(graph->buffer);
    graph->buffer = NULL;
    graph->at_hand = NULL;
    graph->nodes = (uint32_t) graph->nodes_read;
    const int is_cut = !writer_cut(&graph->writer, 0);
    writer_close(&graph->writer);
    graph->edge_room = graph->inside_room = graph->writer.candidates + 1;
    graph->slot_room = graph->writer.slotted + 1;
    graph->first_slotted = UINT64_MAX;
    graph->offsets = dense_alloc(((size_t) graph->nodes + 2) * sizeof *graph->offsets);
    graph->weaker = lazy_alloc(((size_t) graph->nodes / 64 + 1) * sizeof *graph->weaker);
    graph->to = dense_alloc((size_t) graph->edge_room * sizeof *graph->to);
    graph->slots = dense_alloc((size_t) graph->slot_room * sizeof *graph->slots);
    graph->inside = lazy_alloc((size_t) graph->inside_room * sizeof *graph->inside);
    const int is_settled = index_settle(&graph->index);
    return is_cut && graph->offsets && graph->weaker && graph->to && graph->slots && graph->inside && is_settled
        && graph->writer.candidates < UINT32_MAX ? 1 : NO_MEMORY;
}

void heapx_graph_numbers(const struct graph *graph, struct graph_numbers *out, uint64_t *by_rule)
{
    *out = (struct graph_numbers) {
        .blocks = graph->index.blocks, .nodes = graph->nodes_read, .edges = graph->edges, .candidates = graph->writer.candidates,
        .unread_bytes = graph->unread_bytes, .unread_at = graph->unread_at, .odd_blocks = graph->odd_blocks,
        .bytes_read = graph->bytes_read,
    };
    memcpy(by_rule, graph->by_rule, sizeof graph->by_rule);
}

/* The node that holds the address, and how far inside; NO_NODE if none does. */
uint32_t heapx_graph_find(const struct graph *graph, uint64_t address, uint64_t *offset)
{
    *offset = 0;
    if (!slot_at(&graph->index, address))
        return NO_NODE;
    const uint32_t id = index_at(&graph->index, address, offset);
    if (id != NO_NODE)
        return id;
    const uint32_t mapping = mapping_at(graph->mappings, graph->mapping_count, &graph->index, address);
    *offset = mapping == NO_NODE ? 0 : address - graph->mappings[2 * (mapping - graph->index.blocks)];
    return mapping;
}

/* Addresses and sizes of blocks. */
void heapx_graph_blocks(const struct graph *graph, const uint32_t *ids, uint64_t count, uint64_t *addresses, uint64_t *sizes)
{
    for (uint64_t i = 0; i < count; i++) {
        addresses[i] = index_address(&graph->index, ids[i]);
        sizes[i] = index_size(&graph->index, ids[i]);
    }
}

/* The edges of one node, at most `room`. Returns how many it has. */
uint64_t heapx_graph_edges(const struct graph *graph, uint32_t node, struct edge *out, uint64_t room)
{
    const uint32_t begin = graph->offsets[node], end = graph->offsets[node + 1];
    for (uint32_t edge = begin; edge < end && edge - begin < room; edge++)
        out[edge - begin] = (struct edge) {EDGE_ID(graph->to[edge]), rule_of(graph, edge), slot_of(graph, edge)};
    return end - begin;
}
