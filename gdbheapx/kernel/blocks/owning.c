/* Which edges own nothing: those of words that stale.h has notes of, as far as a better way leads where they do. */
#include "../common/heapx.h"
#include "marks.h"
#include "stale.h"

#include <stdlib.h>

#define SLACK 32u                       /* bytes that malloc may give beyond what was asked for; with size classes a fifth more */
#define CONTROL_GROUP 16u
#define FAR_WORDS UINT16_MAX            /* from so many words on all is taken to be live */

/* ---- edges that own nothing ---- */

/* The block that begins there and was made for so many bytes; NO_NODE: none. */
static uint32_t block_for(const struct graph *graph, uint64_t address, uint64_t room)
{
    const uint32_t id = index_begin(&graph->index, address);
    const uint64_t usable = id != NO_NODE ? index_size(&graph->index, id) : 0, rest = usable - room;
    return room <= usable && (rest < SLACK || rest <= usable / 5 + 16) ? id : NO_NODE;
}

static int set_unowning(struct graph *graph, uint64_t edge)
{
    if (!graph->unowning)
        graph->unowning = lazy_alloc((size_t) graph->edge_room / 8 + 1);
    if (graph->unowning)
        set_edge(graph->unowning, edge);
    return graph->unowning != NULL;
}

/* By block the first word that holds nothing + 1, as far as its owners agree that all behind it is so; FAR_WORDS: none. And whether it has
   ENTRIES. */
static void find_ends(const struct graph *graph, uint16_t *ends, struct spread *tables)
{
    for (uint64_t i = 0; i < graph->stale.bodies.count; i++) {
        const struct stale_body *body = (const struct stale_body *) graph->stale.bodies.items + i;
        const uint32_t id = block_for(graph, body->address, body->room);
        if (id == NO_NODE || graph->offsets[id] == graph->offsets[id + 1])
            continue;
        if (body->kind == ENTRIES)
            mark(tables, id);
        const int is_live = body->kind == CHARACTERS && slot_of(graph, graph->offsets[id]) < body->from;
        const uint16_t end = is_live || body->from >= FAR_WORDS ? FAR_WORDS : (uint16_t) (body->from + 1);
        ends[id] = end > ends[id] ? end : ends[id];
    }
}

static int mark_bodies(struct graph *graph, const uint16_t *ends)
{
    for (uint32_t id = 0; id < graph->index.blocks; id++)
        for (uint32_t edge = graph->offsets[id + 1]; ends[id] && ends[id] < FAR_WORDS && edge-- > graph->offsets[id];) {
            if (slot_of(graph, edge) + 1 < ends[id])
                break;
            if (!set_unowning(graph, edge))
                return 0;
        }
    return 1;
}

static int mark_words(struct graph *graph, const struct spread *tables)
{
    for (uint64_t i = 0; i < graph->stale.words.count; i++) {
        const struct stale_word *word = (const struct stale_word *) graph->stale.words.items + i;
        const int has_block = word->address != HOLE && word->address;
        if (has_block ? block_for(graph, word->address, word->room) == NO_NODE : word->address && !is_marked(tables, word->node))
            continue;
        /* looked up: a table may have as many words that own nothing as it has edges */
        uint64_t edge = graph->offsets[word->node];
        const uint64_t end = graph->offsets[word->node + 1];
        if (edge < end)
            edge += first_short_from(graph->slots + (edge - graph->first_slotted), end - edge, word->slot);
        for (; edge < end && slot_of(graph, edge) == word->slot; edge++)
            if (!set_unowning(graph, edge))
                return 0;
    }
    return 1;
}

/* ---- tables of Rust ---- */

/* Items from the block's begin on, then a control byte for each place, and 16 of them once more. */
static int is_table_in(const struct graph *graph, uint32_t id, uint64_t offset, uint64_t places)
{
    const uint64_t usable = index_size(&graph->index, id), need = offset + places + CONTROL_GROUP, rest = usable - need;
    return offset >= places && offset % places < CONTROL_GROUP && need <= usable && (rest < SLACK || rest <= usable / 5 + 16);
}

/* A pointer to the middle of such a table is the one that holds and owns it. */
static void mark_tables(struct graph *graph)
{
    for (uint64_t i = 0; i < graph->stale.tables.count; i++) {
        const struct stale_table *table = (const struct stale_table *) graph->stale.tables.items + i;
        uint64_t offset = 0;
        const uint32_t id = index_at(&graph->index, table->control, &offset);
        if (id == NO_NODE || !is_table_in(graph, id, offset, UINT64_C(1) << table->power))
            continue;
        for (uint32_t edge = graph->offsets[table->node]; edge < graph->offsets[table->node + 1]; edge++) {
            const uint32_t rule = EDGE_RULE(graph->to[edge]);
            if (EDGE_ID(graph->to[edge]) != id || (rule != RULE_INSIDE && rule != RULE_HABIT))
                continue;
            graph->to[edge] = id | (uint32_t) RULE_BASE << ID_BITS;
            graph->by_rule[rule]--;
            graph->by_rule[RULE_BASE]++;
        }
    }
}

/* A stale word is told only to who has a better one: edges that alone lead somewhere are none. 0: no memory. */
static int keep_only_ways(struct graph *graph)
{
    struct spread live;
    uint64_t left = 0;
    int done = spread_open(&live, graph->nodes);
    for (uint64_t node = graph->index.blocks + graph->mapping_count; node < graph->nodes && done; node++)
        done = is_marked(&live, (uint32_t) node) || (spread_push(&live, (uint32_t) node)
                                                     && !spread_drain(graph, &live, OWNED, NULL, NULL, 1e300));
    for (uint64_t edge = 0; edge < graph->edges && done; edge++) {
        if (!is_unowning(graph, edge))
            edge |= graph->unowning[edge >> 3] ? 0 : 7;
        else if (!is_marked(&live, EDGE_ID(graph->to[edge])))
            graph->unowning[edge >> 3] &= (uint8_t) ~(1u << (edge & 7));
        else
            left++;
    }
    spread_close(&live);
    if (!left) {
        lazy_free(graph->unowning, (size_t) graph->edge_room / 8 + 1);
        graph->unowning = NULL;
    }
    return done;
}

/* All edges are there: which of them hold nothing. What was noted is not needed any more; a part of it would blame the wrong one. 0, or
   NO_MEMORY. */
int heapx_graph_find_unowning(struct graph *graph)
{
    struct spread tables;
    mark_tables(graph);
    if (graph->stale.is_lost) {
        stale_free(&graph->stale);
        return 0;
    }
    int done = spread_open(&tables, graph->nodes);
    if (done && graph->stale.bodies.count) {
        uint16_t *ends = lazy_alloc((size_t) graph->index.blocks * sizeof *ends + 8);
        done = ends != NULL;
        if (done) {
            find_ends(graph, ends, &tables);
            done = mark_bodies(graph, ends);
        }
        lazy_free(ends, (size_t) graph->index.blocks * sizeof *ends + 8);
    }
    done = done && mark_words(graph, &tables) && (!graph->unowning || keep_only_ways(graph));
    spread_close(&tables);
    stale_settle(&graph->stale);
    return done ? 0 : NO_MEMORY;
}

/* ---- by runtimes ---- */

/* What of a block owns what it points to, as its runtime tells: links of a collector's lists and weak references do not. */

static void own_words(struct graph *graph, uint32_t node, uint64_t mask)
{
    for (uint32_t edge = graph->offsets[node]; mask != OWNS_ALL && edge < graph->offsets[node + 1]; edge++) {
        const uint64_t slot = slot_of(graph, edge);
        const int is_owned = mask >> (slot < LAST_OWNING_BIT ? slot : LAST_OWNING_BIT) & 1;
        set_bit(is_owned ? graph->sure : graph->loose, edge);
        clear_bit(is_owned ? graph->loose : graph->sure, edge);
    }
}

/* A pointer to where the object begins in its block is as good as one to the block's start, but for stale words, such as those in a list's
   slack. `begins`: of each label, 0: at the start. */
static void own_objects(struct graph *graph, const uint32_t *labels, const uint64_t *begins, uint64_t label_count)
{
    uint64_t inside = 0;
    for (uint64_t edge = 0; edge < graph->offsets[graph->index.blocks]; edge++) {
        if (!leads_inside(graph->to[edge]))
            continue;
        const uint16_t offset = graph->inside[inside++];
        const uint32_t target = EDGE_ID(graph->to[edge]);
        if (target < graph->index.blocks && labels[target] < label_count && begins[labels[target]] == offset
            && !owns_nothing(graph, edge))
            set_bit(graph->sure, edge);
    }
}

/* The words of a block from this slot to before that one own nothing, whatever its label says. */
void heapx_graph_loosen(struct graph *graph, uint32_t node, uint64_t first, uint64_t end)
{
    for (uint32_t edge = graph->offsets[node]; graph->loose && edge < graph->offsets[node + 1]; edge++)
        if (slot_of(graph, edge) >= first && slot_of(graph, edge) < end) {
            set_bit(graph->loose, edge);
            clear_bit(graph->sure, edge);
        }
}

/* No way leads by this word of a block. Owners do not depend on it: which words are tried depends on which paths were asked for. */
void heapx_graph_pass_by(struct graph *graph, uint32_t node, uint64_t slot)
{
    if (!graph->passed)
        graph->passed = calloc((size_t) graph->edges / 64 + 1, sizeof *graph->passed);
    for (uint32_t edge = graph->offsets[node]; graph->passed && edge < graph->offsets[node + 1]; edge++)
        if (slot_of(graph, edge) == slot)
            set_bit(graph->passed, edge);
}

/* Behind its last item an object owns nothing. `ends`: of each label where its items begin, in bytes, << 8, and how long each is; 0: it
   has none, or no count of them. */
static void end_objects(struct graph *graph, const uint32_t *labels, const uint64_t *ends, uint64_t label_count)
{
    for (uint64_t i = 0; i < graph->stale.tails.count; i++) {
        const struct stale_tail *tail = (const struct stale_tail *) graph->stale.tails.items + i;
        const uint64_t end = tail->node < graph->index.blocks && labels[tail->node] < label_count ? ends[labels[tail->node]] : 0;
        const uint64_t count = (uint64_t) (tail->count < 0 ? -(int64_t) tail->count : tail->count);
        if (end && 8 * (uint64_t) tail->slot >= (end >> 8) + (end & 0xff) * count)
            heapx_graph_loosen(graph, tail->node, tail->slot, tail->slot + UINT64_C(1));
    }
}

/* `labels`: of each block, `masks` of each label, 0 first: bit n is its word n, the last one all behind; OWNS_ALL: nothing is known.
   `nothing`: nodes that own nothing, whatever they are. `starts`: blocks that have a name by themselves, the first
   `first_count` of which give names to all that they lead to before the others. 0, or NO_MEMORY. */
int heapx_graph_own(struct graph *graph, const uint32_t *labels, const uint64_t *masks, const uint64_t *begins, const uint64_t *ends,
                    uint64_t label_count, const uint32_t *nothing, uint64_t nothing_count, const uint32_t *starts, uint64_t start_count,
                    uint64_t first_count)
{
    const size_t room = (size_t) graph->edges / 64 + 1;
    if (!graph->loose) {
        graph->loose = calloc(room, sizeof *graph->loose);
        graph->sure = calloc(room, sizeof *graph->sure);
    }
    free(graph->starts);
    graph->starts = malloc((size_t) start_count * sizeof *graph->starts + 8);
    graph->start_count = graph->first_starts = 0;
    if (!graph->loose || !graph->sure || !graph->starts)
        return NO_MEMORY;
    for (uint32_t node = 0; node < graph->index.blocks; node++)
        if (labels[node] < label_count)
            own_words(graph, node, masks[labels[node]]);
    graph->is_told = 1;
    own_objects(graph, labels, begins, label_count);
    end_objects(graph, labels, ends, label_count);
    for (uint64_t i = 0; i < nothing_count; i++)
        if (nothing[i] < graph->nodes)
            own_words(graph, nothing[i], 0);
    for (uint64_t i = 0; i < start_count; i++)
        if (starts[i] < graph->index.blocks) {
            graph->starts[graph->start_count++] = starts[i];
            graph->first_starts += i < first_count;
        }
    return 0;
}
