/* The graph: candidates become edges, by node in the order of their numbers. */
#include "graph.h"

#include <stdlib.h>

#define NODES_AT_ONCE 16384u
#define DECODED 1024u

/* This machine is: candidates are packed from the low end of a word. */
/* `mappings` and `ranges` stay the caller's. `heaps`: where blocks may be. `images`: where vtables are read, NULL for none; `ranges`: what
   of it may hold any. NULL: no memory. */
struct graph *heapx_graph_new(const struct source *memory, unsigned word, int little_endian, unsigned shift, unsigned all_slots,
                              const uint64_t *heaps, uint64_t heap_count, const uint64_t *mappings, uint64_t mapping_count,
                              const struct source *images, const uint64_t *ranges, uint64_t range_count)
{
    struct graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return NULL;
    graph->memory = memory;
    graph->word = word;
    graph->swap = is_swapped((uint64_t) little_endian);
    graph->packed_swap = is_swapped(1);
    graph->plain_words = word == 8 && !graph->swap && !graph->packed_swap;
    graph->all_slots = all_slots;
    graph->mappings = mappings;
    graph->mapping_count = mapping_count;
    graph->buffer = malloc(128u << 10);
    if (!graph->buffer || !index_open(&graph->index, shift, heaps, heap_count, mappings, mapping_count)
        || !heads_open(&graph->heads, word, graph->swap, images, ranges, range_count)) {
        index_close(&graph->index);
        heads_close(&graph->heads);
        free(graph->buffer);
        free(graph);
        return NULL;
    }
    graph->at_hand = graph->buffer;
    sieve_open(&graph->sieve, word, graph->swap, graph->index.low, graph->index.span);
    graph->address_bytes = graph->index.slot_count < 1u << (40 - SLOT_SHIFT) ? 5 : 7;
    return graph;
}

static void free_pieces(struct graph *graph)
{
    while (graph->first) {
        struct piece *next = graph->first->next;
        big_free(graph->first, sizeof *graph->first);
        graph->first = next;
    }
    graph->last = NULL;
}

void heapx_graph_free(struct graph *graph)
{
    if (!graph)
        return;
    free_pieces(graph);
    if (graph->marks)
        graph->free_marks(graph->marks);
    lazy_free(graph->offsets, ((size_t) graph->nodes + 2) * sizeof *graph->offsets);
    lazy_free(graph->weaker, ((size_t) graph->nodes / 64 + 1) * sizeof *graph->weaker);
    lazy_free(graph->to, (size_t) graph->edge_room * sizeof *graph->to);
    lazy_free(graph->slots, (size_t) graph->slot_room * sizeof *graph->slots);
    lazy_free(graph->inside, (size_t) graph->inside_room * sizeof *graph->inside);
    lazy_free(graph->links, (size_t) graph->edge_room / 8 + 1);
    index_close(&graph->index);
    heads_close(&graph->heads);
    free(graph->buffer);
    free(graph);
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
    graph->edge_room = graph->inside_room = graph->candidates + 1;
    graph->slot_room = graph->slotted_candidates + 1;
    graph->first_slotted = UINT64_MAX;
    graph->offsets = dense_alloc(((size_t) graph->nodes + 2) * sizeof *graph->offsets);
    graph->weaker = lazy_alloc(((size_t) graph->nodes / 64 + 1) * sizeof *graph->weaker);
    graph->to = dense_alloc((size_t) graph->edge_room * sizeof *graph->to);
    graph->slots = dense_alloc((size_t) graph->slot_room * sizeof *graph->slots);
    graph->inside = lazy_alloc((size_t) graph->inside_room * sizeof *graph->inside);
    const int is_settled = index_settle(&graph->index);
    return graph->offsets && graph->weaker && graph->to && graph->slots && graph->inside && is_settled && graph->candidates < UINT32_MAX
        ? 1 : NO_MEMORY;
}

/* A vector's end is the address of the block behind it. Two blocks side by side are taken for that, three for an array of pointers. */
static uint32_t rule_of_start(struct graph *graph, struct run *run, uint32_t id, uint64_t packed)
{
    const struct index *index = &graph->index;
    if (run->length && id == run->id)
        return run->length == 2 ? RULE_END : RULE_START;
    const int follows = run->length && id == run->id + 1
                        && unpacked_address(index, packed) - unpacked_address(index, run->address) == index_size(index, run->id);
    run->length = follows ? run->length + 1 : 1;
    run->id = id;
    run->address = packed;
    if (run->length == 2)
        run->edge = graph->edges;
    if (run->length == 3)
        for (uint64_t edge = run->edge; edge < graph->edges; edge++)
            if (EDGE_RULE(graph->to[edge]) == RULE_END) {
                graph->to[edge] = EDGE_ID(graph->to[edge]);
                graph->by_rule[RULE_END]--;
                graph->by_rule[RULE_START]++;
            }
    return run->length == 2 ? RULE_END : RULE_START;
}

static void add_edge(struct graph *graph, uint32_t node, uint64_t packed, uint32_t slot, struct run *run)
{
    uint64_t offset = 0;
    uint32_t id = index_find_packed(&graph->index, packed, &offset), rule = RULE_START;
    if (id == NO_NODE) {
        id = mapping_at(graph->mappings, graph->mapping_count, &graph->index, unpacked_address(&graph->index, packed));
        offset = 0;
    } else if (is_exact(slot, node, graph->index.blocks + graph->mapping_count)) {
        offset = 0;
    } else if (offset) {
        rule = offset < graph->word ? RULE_TAG : rule_inside(heads_tell(&graph->heads, id, offset));
    } else {
        rule = rule_of_start(graph, run, id, packed);
    }
    if (id == NO_NODE || id == node)
        return;
    if (is_slotted(graph, node)) {
        if (graph->first_slotted == UINT64_MAX)
            graph->first_slotted = graph->edges;
        graph->slots[graph->edges - graph->first_slotted] = slot;
    }
    if (leads_inside(rule << ID_BITS))
        graph->inside[graph->inside_count++] = offset < MOST_OFFSET ? (uint16_t) offset : MOST_OFFSET;
    if (rule != RULE_START)
        graph->weaker[node >> 6] |= 1ull << (node & 63);
    graph->by_rule[rule]++;
    graph->to[graph->edges++] = id | rule << ID_BITS;
}

/* Candidates that are decoded, whose lines of the index are on their way from memory. */
struct decoded {
    unsigned count;
    uint32_t nodes[DECODED], slots[DECODED];
    uint64_t packed[DECODED];
};

/* Where the next group stands. */
static const uint8_t *group_at(struct graph *graph, const uint8_t *from)
{
    while ((uint32_t) (from - graph->first->bytes) == graph->first->used) {
        struct piece *next = graph->first->next;
        big_free(graph->first, sizeof *graph->first);
        graph->first = next;
        from = next->bytes;
    }
    return from;
}

static const uint8_t *decode_group(const struct graph *graph, uint32_t node, const uint8_t *from, uint64_t *slot, struct decoded *decoded)
{
    const int slotted = is_slotted(graph, node);
    const uint64_t mask = UINT64_MAX >> (64 - 8 * graph->address_bytes);
    const unsigned count = *from++;
    for (unsigned i = 0; i < count; i++) {
        uint64_t packed;
        if (slotted) {
            uint32_t away = *from++;
            if (away == 255) {
                memcpy(&away, from, 4);
                from += 4;
            }
            *slot += away;
        }
        packed = load_word(from, 8, graph->packed_swap) & mask;
        from += graph->address_bytes;
        __builtin_prefetch(&graph->index.lines[packed_line(&graph->index, packed)]);
        decoded->nodes[decoded->count] = node;
        decoded->slots[decoded->count] = *slot > UINT32_MAX ? UINT32_MAX : (uint32_t) *slot;
        decoded->packed[decoded->count++] = packed;
    }
    return from;
}

/* Edges of decoded candidates; the nodes up to `until` begin where they do. */
static void add_decoded(struct graph *graph, struct decoded *decoded, uint64_t until)
{
    for (unsigned i = 0; i < decoded->count; i++) {
        while (graph->begun_nodes <= decoded->nodes[i]) {
            graph->offsets[graph->begun_nodes++] = (uint32_t) graph->edges;
            memset(&graph->run, 0, sizeof graph->run);
        }
        add_edge(graph, decoded->nodes[i], decoded->packed[i], decoded->slots[i], &graph->run);
    }
    while (graph->begun_nodes < until) {
        graph->offsets[graph->begun_nodes++] = (uint32_t) graph->edges;
        memset(&graph->run, 0, sizeof graph->run);
    }
    decoded->count = 0;
}

/* Makes edges of candidates. 1: there is more; 0: all are there. */
int64_t heapx_graph_resolve(struct graph *graph, uint64_t *place, double seconds)
{
    const double deadline = clock_now() + seconds;
    struct decoded decoded;
    decoded.count = 0;
    const uint8_t *from = graph->first ? graph->first->bytes + *place : NULL;
    for (unsigned since = 1; graph->resolved_nodes < graph->nodes; since++) {
        unsigned count;
        uint64_t slot = 0;
        do {
            if (decoded.count + GROUP_MOST > DECODED)
                add_decoded(graph, &decoded, 0);
            from = group_at(graph, from);
            count = *from;
            from = decode_group(graph, (uint32_t) graph->resolved_nodes, from, &slot, &decoded);
        } while (count == GROUP_MOST);
        graph->resolved_nodes++;
        if (!(since % NODES_AT_ONCE) && clock_now() > deadline)
            break;
    }
    add_decoded(graph, &decoded, graph->resolved_nodes);
    if (graph->resolved_nodes < graph->nodes) {
        *place = (uint64_t) (from - graph->first->bytes);
        return 1;
    }
    graph->offsets[graph->nodes] = (uint32_t) graph->edges;
    free_pieces(graph);
    return 0;
}

void heapx_graph_numbers(const struct graph *graph, struct graph_numbers *out, uint64_t *by_rule)
{
    out->blocks = graph->index.blocks;
    out->nodes = graph->nodes_read;
    out->edges = graph->edges;
    out->candidates = graph->candidates;
    out->unread_bytes = graph->unread_bytes;
    out->unread_at = graph->unread_at;
    out->odd_blocks = graph->odd_blocks;
    out->bytes_read = graph->bytes_read;
    memcpy(by_rule, graph->by_rule, sizeof graph->by_rule);
}

/* The node that holds the address, and how far inside; NO_NODE if none does. */
uint32_t heapx_graph_find(const struct graph *graph, uint64_t address, uint64_t *offset)
{
    const uint32_t number = slot_at(&graph->index, address);
    *offset = 0;
    if (!number)
        return NO_NODE;
    const uint32_t id = index_find(&graph->index, number, address, offset);
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
        out[edge - begin] = (struct edge) {EDGE_ID(graph->to[edge]), EDGE_RULE(graph->to[edge]), slot_of(graph, edge)};
    return end - begin;
}
