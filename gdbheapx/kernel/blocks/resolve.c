/* Candidates become edges, by node in the order of their numbers. Several threads find what candidates point to, a batch of them at a time;
   one at a time, in order, makes edges of a batch, so that the graph is the same whatever their number. */
#define _GNU_SOURCE
#include "graph.h"

#include <pthread.h>
#include <stdlib.h>

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
