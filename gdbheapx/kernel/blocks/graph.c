/* The graph: how it is made of candidates, its habits, and questions about its blocks and edges. */
#define _GNU_SOURCE
#include "graph.h"

#include <pthread.h>
#include <stdlib.h>

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

int graph_make_room(struct graph *graph)
{
    graph->first_slotted = UINT64_MAX;
    graph->offsets = dense_alloc(((size_t) graph->nodes + 2) * sizeof *graph->offsets);
    graph->weaker = lazy_alloc(((size_t) graph->nodes / 64 + 1) * sizeof *graph->weaker);
    graph->to = dense_alloc((size_t) graph->edge_room * sizeof *graph->to);
    graph->slots = dense_alloc((size_t) graph->slot_room * sizeof *graph->slots);
    graph->inside = lazy_alloc((size_t) graph->inside_room * sizeof *graph->inside);
    return graph->offsets && graph->weaker && graph->to && graph->slots && graph->inside;
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
    const int has_room = graph_make_room(graph), is_settled = index_settle(&graph->index);
    return is_cut && has_room && is_settled && graph->writer.candidates < UINT32_MAX ? 1 : NO_MEMORY;
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

/* ---- candidates become edges ---- */

/* By node in the order of their numbers. Several threads find what candidates point to, a batch of them at a time;
   one at a time, in order, makes edges of a batch, so that the graph is the same whatever their number. */

#define BATCH_LEAST 1024u           /* candidates, in whole segments */
#define BATCH_ROOM (BATCH_LEAST + SEGMENT_MOST + GROUP_MOST)
#define AT_ONCE 512u                /* their lines of the index come from memory side by side */
#define BATCHES_EACH 3u
#define ENOUGH (1u << 17)           /* candidates: fewer are one thread's */
#define BY_RUN (7u << ID_BITS)      /* to a block's start: the candidates before say by which rule */

struct batch {
    const struct segment *first, *end;
    unsigned count, owner;          /* owner: the thread that has it in its cache */
    int is_ready;
    uint32_t nodes[BATCH_ROOM], slots[BATCH_ROOM];
    uint64_t packed[BATCH_ROOM];
    uint32_t found[BATCH_ROOM];     /* what it points to, and the rule or BY_RUN; NO_NODE: nothing */
    uint16_t offsets[BATCH_ROOM];   /* of an edge that leads_inside() */
};

/* What the threads of one slice share. Batches are taken, get ready in any order, and are made edges of in order. */
struct resolution {
    struct graph *graph;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned waiting;
    int is_making;
    uint64_t taken, made, next_segment;
    double deadline;
    unsigned room;
    struct batch *ring;
};

static const uint8_t *decode_group(const struct graph *graph, uint32_t node, const uint8_t *from, uint64_t *slot, struct batch *batch)
{
    const int slotted = is_slotted(graph, node);
    const unsigned address_bytes = graph->writer.address_bytes, swap = graph->packed_swap, count = *from++;
    const uint64_t mask = UINT64_MAX >> (64 - 8 * address_bytes);
    for (unsigned at = batch->count; at < batch->count + count; at++) {
        if (slotted) {
            uint32_t away = *from++;
            if (away == 255) {
                memcpy(&away, from, 4);
                from += 4;
            }
            *slot += away;
            batch->slots[at] = *slot > UINT32_MAX ? UINT32_MAX : (uint32_t) *slot;
        }
        const uint64_t packed = load_word(from, 8, swap) & mask;
        from += address_bytes;
        __builtin_prefetch(&graph->index.lines[packed_line(&graph->index, packed)]);
        batch->nodes[at] = node;
        batch->packed[at] = packed;
    }
    batch->count += count;
    return from;
}

/* What the candidates from `from` on point to. */
static void find_some(const struct graph *graph, struct batch *batch, unsigned from)
{
    const struct index *index = &graph->index;
    const uint64_t roots_from = index->blocks + graph->mapping_count;
    for (unsigned at = from; at < batch->count; at++) {
        uint64_t offset = 0;
        const uint64_t packed = batch->packed[at];
        const uint32_t id = index_find_packed(index, packed, &offset);
        if (id == NO_NODE) {
            batch->found[at] = mapping_at(graph->mappings, graph->mapping_count, index, unpacked_address(index, packed));
        } else if (batch->nodes[at] >= roots_from && is_exact(batch->slots[at], batch->nodes[at], roots_from)) {
            batch->found[at] = id;
        } else if (offset) {
            const uint32_t rule = offset < graph->word ? RULE_TAG : rule_inside(heads_tell(&graph->heads, id, offset));
            batch->found[at] = id | rule << ID_BITS;
            batch->offsets[at] = offset < MOST_OFFSET ? (uint16_t) offset : MOST_OFFSET;
        } else {
            batch->found[at] = id | BY_RUN;
        }
    }
}

static void find_batch(const struct graph *graph, struct batch *batch)
{
    const struct segment *segment = batch->first;
    const uint8_t *from = NULL, *end = NULL;
    uint32_t node = 0;
    uint64_t slot = 0;
    batch->count = 0;
    while (from < end || segment < batch->end) {
        const unsigned done = batch->count;
        while (batch->count - done < AT_ONCE && (from < end || segment < batch->end)) {
            if (from == end) {
                from = segment->piece->bytes + segment->from;
                end = segment->piece->bytes + segment->end;
                node = segment->node;
                slot = segment->slot;
            }
            const unsigned count = *from;
            from = decode_group(graph, node, from, &slot, batch);
            if (from == end)
                piece_release(segment++->piece);
            if (count < GROUP_MOST) {
                node++;
                slot = 0;
            }
        }
        find_some(graph, batch, done);
    }
}

/* Of a pointer to a block, by those before it. */
static uint32_t rule_by_run(struct graph *graph, uint32_t id, uint64_t packed, int is_begin, uint32_t rule)
{
    const struct index *index = &graph->index;
    struct run *run = &graph->run;
    const int follows = is_begin && run->state && id == run->id + 1
        && unpacked_address(index, packed) - unpacked_address(index, run->address) == index_size(index, run->id);
    const unsigned ends = run_on(run, id, packed, is_begin, follows);
    if (ends == 2) {
        graph->to[graph->edges - 1] = id | RULE_END << ID_BITS;
        graph->by_rule[RULE_START]--;
        graph->by_rule[RULE_END]++;
    }
    return ends ? RULE_END : rule;
}

/* The nodes before `until` begin where they do. */
static void begin_nodes(struct graph *graph, uint64_t until)
{
    graph->run.state = RUN_NONE;
    while (graph->begun_nodes < until)
        graph->offsets[graph->begun_nodes++] = (uint32_t) graph->edges;
}

static void make_edges(struct graph *graph, const struct batch *batch)
{
    for (unsigned at = 0; at < batch->count; at++) {
        const uint32_t node = batch->nodes[at], found = batch->found[at], id = EDGE_ID(found);
        uint32_t rule = EDGE_RULE(found);
        if (graph->begun_nodes <= node)
            begin_nodes(graph, (uint64_t) node + 1);
        if (found == NO_NODE || id == node)
            continue;
        if (!rule)
            graph->run.state = RUN_NONE;
        else if (found >= BY_RUN)
            rule = rule_by_run(graph, id, batch->packed[at], 1, RULE_START);
        else if (graph->run.state)
            rule = rule_by_run(graph, id, batch->packed[at], 0, rule);
        if (is_slotted(graph, node)) {
            if (graph->first_slotted == UINT64_MAX)
                graph->first_slotted = graph->edges;
            graph->slots[graph->edges - graph->first_slotted] = batch->slots[at];
        }
        if (leads_inside(rule << ID_BITS))
            graph->inside[graph->inside_count++] = batch->offsets[at];
        if (rule != RULE_START)
            graph->weaker[node >> 6] |= 1ull << (node & 63);
        graph->by_rule[rule]++;
        graph->to[graph->edges++] = id | rule << ID_BITS;
    }
    graph->resolved_segments += (uint64_t) (batch->end - batch->first);
}

/* The batch that is next to be made edges of: if it is ready, and this thread's, or there is nothing else to do. */
static int may_make(const struct resolution *resolution, const struct batch *batch, unsigned number)
{
    const int has_room = resolution->next_segment < resolution->graph->segments.count
        && resolution->taken - resolution->made < resolution->room;
    return !resolution->is_making && resolution->made < resolution->taken && batch->is_ready && (batch->owner == number || !has_room);
}

/* The next segments, if there are some and it is not too late. */
static struct batch *take_batch(struct resolution *resolution)
{
    const struct segments *segments = &resolution->graph->segments;
    uint64_t next = resolution->next_segment, candidates = 0;
    if (next == segments->count || resolution->taken - resolution->made == resolution->room
        || (resolution->taken && clock_now() > resolution->deadline))
        return NULL;
    struct batch *batch = &resolution->ring[resolution->taken++ % resolution->room];
    batch->first = segments->all + next;
    while (next < segments->count && candidates < BATCH_LEAST)
        candidates += segments->all[next++].candidates;
    batch->end = segments->all + next;
    batch->is_ready = 0;
    resolution->next_segment = next;
    return batch;
}

struct worker {
    struct resolution *resolution;
    unsigned number;
};

static void *resolve(void *item)
{
    const struct worker *worker = item;
    struct resolution *resolution = worker->resolution;
    struct batch *batch;
    pthread_mutex_lock(&resolution->lock);
    for (;;) {
        batch = &resolution->ring[resolution->made % resolution->room];
        if (may_make(resolution, batch, worker->number)) {
            resolution->is_making = 1;
            pthread_mutex_unlock(&resolution->lock);
            make_edges(resolution->graph, batch);
            pthread_mutex_lock(&resolution->lock);
            resolution->is_making = 0;
            resolution->made++;
        } else if ((batch = take_batch(resolution))) {
            batch->owner = worker->number;
            pthread_mutex_unlock(&resolution->lock);
            find_batch(resolution->graph, batch);
            pthread_mutex_lock(&resolution->lock);
            batch->is_ready = 1;
        } else if (resolution->made < resolution->taken) {
            resolution->waiting++;
            pthread_cond_wait(&resolution->changed, &resolution->lock);
            resolution->waiting--;
            continue;
        } else {
            break;
        }
        if (resolution->waiting)
            pthread_cond_broadcast(&resolution->changed);
    }
    pthread_cond_broadcast(&resolution->changed);
    pthread_mutex_unlock(&resolution->lock);
    return NULL;
}

/* Makes edges of candidates. 1: there is more; 0: all are there; NO_MEMORY. */
int64_t heapx_graph_resolve(struct graph *graph, double seconds)
{
    struct resolution resolution = {.graph = graph, .next_segment = graph->resolved_segments, .deadline = clock_now() + seconds};
    struct worker items[MAX_THREADS];
    const unsigned threads = threads_for(graph, graph->writer.candidates, ENOUGH);
    resolution.room = threads > 1 ? threads * BATCHES_EACH : 1;
    resolution.ring = malloc(resolution.room * sizeof *resolution.ring);
    if (!resolution.ring)
        return NO_MEMORY;
    for (unsigned i = 0; i < threads; i++)
        items[i] = (struct worker) {&resolution, i};
    pthread_mutex_init(&resolution.lock, NULL);
    pthread_cond_init(&resolution.changed, NULL);
    threads_run(resolve, items, sizeof *items, threads);
    pthread_cond_destroy(&resolution.changed);
    pthread_mutex_destroy(&resolution.lock);
    free(resolution.ring);
    if (graph->resolved_segments < graph->segments.count)
        return 1;
    begin_nodes(graph, graph->nodes);
    graph->offsets[graph->nodes] = (uint32_t) graph->edges;
    segments_free(&graph->segments, graph->resolved_segments);
    graph->resolved_segments = 0;
    return 0;
}

/* How many of the candidates have become edges or not, in thousandths. Between two calls of heapx_graph_resolve. */
uint64_t heapx_graph_resolve_done(const struct graph *graph)
{
    return graph->segments.count ? graph->resolved_segments * UINT64_C(1000) / graph->segments.count : 0;
}

/* ---- habits ---- */

/* Offsets at which a program is in the habit of pointing into its blocks. */

#define HABIT_BLOCKS 1000u          /* an offset that so many blocks are pointed to at, */
#define HABIT_SHARE 100u            /* by one in so many of all references, is how this program points */
#define HABIT_OFFSETS MOST_OFFSET    /* below it */

/* Counts the distinct blocks that are pointed to at each of these offsets, whose numbers + 1 stand in `place` by offset. 0: no memory. */
static int count_blocks(const struct graph *graph, struct habit *habits, unsigned count, const uint8_t *place)
{
    const size_t bytes = (size_t) graph->index.blocks / 8 + 1;
    uint8_t *seen = calloc(count, bytes);
    uint64_t inside = 0;
    for (uint64_t edge = 0; seen && inside < graph->inside_count; edge++) {
        if (!leads_inside(graph->to[edge]))
            continue;
        const uint16_t offset = graph->inside[inside++];
        const uint32_t id = EDGE_ID(graph->to[edge]);
        if (offset >= HABIT_OFFSETS || !place[offset])
            continue;
        uint8_t *bits = seen + (size_t) (place[offset] - 1u) * bytes + (id >> 3);
        habits[place[offset] - 1].blocks += !(*bits >> (id & 7) & 1);
        *bits |= (uint8_t) (1u << (id & 7));
    }
    const int is_done = seen != NULL;
    free(seen);
    return is_done;
}

static unsigned likely_habits(const struct graph *graph, struct habit *habits)
{
    uint64_t *counts = calloc(HABIT_OFFSETS, sizeof *counts);
    unsigned found = 0;
    if (!counts)
        return 0;
    for (uint64_t i = 0; i < graph->inside_count; i++)
        if (graph->inside[i] < HABIT_OFFSETS)
            counts[graph->inside[i]]++;
    for (unsigned offset = 0; offset < HABIT_OFFSETS && found < MOST_HABITS; offset++)
        if (counts[offset] >= HABIT_BLOCKS && counts[offset] * HABIT_SHARE >= graph->edges) {
            struct habit habit = {offset, 0, counts[offset]};
            habits[found++] = habit;
        }
    free(counts);
    return found;
}

/* Offsets at which this program is in the habit of pointing into blocks, at most `room`. Returns how many. Edges at these
   offsets that were RULE_INSIDE are then of RULE_HABIT. */
uint64_t heapx_graph_habits(struct graph *graph, struct habit *out, uint64_t room)
{
    struct habit habits[MOST_HABITS];
    const unsigned likely = likely_habits(graph, habits);
    uint8_t place[HABIT_OFFSETS];
    uint64_t found = 0, inside = 0;
    memset(place, 0, sizeof place);
    for (unsigned i = 0; i < likely; i++)
        place[habits[i].offset] = (uint8_t) (i + 1);
    if (!likely || !count_blocks(graph, habits, likely, place))
        return 0;
    for (unsigned i = 0; i < likely; i++) {
        if (habits[i].blocks < HABIT_BLOCKS || found == room) {
            place[habits[i].offset] = 0;
            continue;
        }
        graph->habits[graph->habit_count++] = (uint16_t) habits[i].offset;
        out[found++] = habits[i];
    }
    for (uint64_t edge = 0; found && inside < graph->inside_count; edge++) {
        if (!leads_inside(graph->to[edge]))
            continue;
        const uint16_t offset = graph->inside[inside++];
        if (offset < HABIT_OFFSETS && place[offset] && EDGE_RULE(graph->to[edge]) == RULE_INSIDE) {
            graph->to[edge] = EDGE_ID(graph->to[edge]) | (uint32_t) RULE_HABIT << ID_BITS;
            graph->by_rule[RULE_HABIT]++;
            graph->by_rule[RULE_INSIDE]--;
        }
    }
    return found;
}

/* ---- blocks by place and size ---- */

/* Blocks by where they lie and how large they are: what a runtime cut from memory of its own, and what may have pages that were never
   touched. */

/* Adds to `out`, by label from 1 on, the bytes of the signed blocks that begin in these ranges: begin and end of each, sorted. */
void heapx_signer_within(const struct signer *signer, const struct graph *graph, const uint64_t *ranges, uint64_t count, uint64_t *out)
{
    struct index_cursor cursor = {0, 0, 0};
    uint64_t address;
    for (uint32_t id = 0; id < signer->blocks && (address = index_next(&graph->index, &cursor)); id++)
        if (signer->labels[id] != UNSIGNED && range_at(ranges, count, address))
            out[signer->labels[id] - 1] += index_size(&graph->index, id);
}

/* `out`: address and size of the blocks of at least so many bytes, by address, at most `room`. Returns how many there are. */
uint64_t heapx_graph_large(const struct graph *graph, uint64_t least, uint64_t *out, uint64_t room)
{
    struct index_cursor cursor = {0, 0, 0};
    uint64_t address, found = 0;
    for (uint32_t id = 0; (address = index_next(&graph->index, &cursor)); id++) {
        const uint64_t size = index_size(&graph->index, id);
        if (size >= least && found++ < room) {
            out[2 * found - 2] = address;
            out[2 * found - 1] = size;
        }
    }
    return found;
}

/* ---- labels ---- */

/* Labels of blocks: which blocks have one of some, and all of them by other numbers. */

/* Blocks whose label is `wanted`, the first `room` of them; `wanted`: by label 1, or 0. Returns how many were written. */
uint64_t heapx_labelled(const uint32_t *labels, uint64_t blocks, const uint8_t *wanted, uint64_t label_count, uint32_t *out, uint64_t room)
{
    uint64_t count = 0;
    for (uint64_t block = 0; block < blocks && count < room; block++)
        if (labels[block] < label_count && wanted[labels[block]])
            out[count++] = (uint32_t) block;
    return count;
}

/* `out`: of each block the number of its label, in `bytes` (1, 2 or 4), little endian. 0, or 1: a label has no number. */
int heapx_renumber(const uint32_t *labels, uint64_t blocks, const uint32_t *numbers, uint64_t label_count, unsigned bytes, uint8_t *out)
{
    for (uint64_t block = 0; block < blocks; block++) {
        if (labels[block] >= label_count)
            return 1;
        for (unsigned i = 0; i < bytes; i++)
            *out++ = (uint8_t) (numbers[labels[block]] >> 8 * i);
    }
    return 0;
}

/* ---- the split of roots ---- */

/* By node whether it has an edge of another rule than RULE_START, for as many nodes as there are offsets. NULL: no memory. */
static uint64_t *find_weaker(const struct graph *graph, const uint32_t *offsets, uint32_t nodes)
{
    uint64_t *weaker = lazy_alloc(((size_t) nodes / 64 + 1) * sizeof *weaker);
    for (uint32_t node = 0; weaker && node < nodes; node++)
        for (uint32_t edge = offsets[node]; edge < offsets[node + 1]; edge++)
            if (EDGE_RULE(graph->to[edge]) != RULE_START) {
                weaker[node >> 6] |= 1ull << (node & 63);
                break;
            }
    return weaker;
}

/* Splits roots: node i of `nodes` (ascending) begins a new root at each of its `slots`, which ascend. The graph has as many more nodes;
   marks are those of the nodes before. */
int heapx_graph_split(struct graph *graph, const uint32_t *nodes, const uint32_t *slots, uint32_t count)
{
    const size_t room = ((size_t) graph->nodes + count + 2) * sizeof(uint32_t);
    uint32_t *offsets = lazy_alloc(room), at = 0, made = 0;
    if (!offsets)
        return NO_MEMORY;
    for (uint32_t node = 0; node < graph->nodes; node++) {
        uint32_t edge = graph->offsets[node];
        offsets[made++] = edge;
        for (; at < count && nodes[at] == node; at++) {
            while (edge < graph->offsets[node + 1] && graph->slots[edge - graph->first_slotted] < slots[at])
                edge++;
            offsets[made++] = edge;
        }
    }
    offsets[made] = (uint32_t) graph->edges;
    uint64_t *weaker = find_weaker(graph, offsets, made);
    if (!weaker) {
        lazy_free(offsets, room);
        return NO_MEMORY;
    }
    lazy_free(graph->offsets, ((size_t) graph->nodes + 2) * sizeof *graph->offsets);
    lazy_free(graph->weaker, ((size_t) graph->nodes / 64 + 1) * sizeof *graph->weaker);
    graph->offsets = offsets;
    graph->weaker = weaker;
    graph->nodes = made;
    return 0;
}
