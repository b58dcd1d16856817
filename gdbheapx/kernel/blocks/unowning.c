/* Which edges own nothing: those of words that stale.h has notes of, as far as a better way leads where they do. */
#include "marks.h"

#define SLACK 32u                       /* bytes that malloc may give beyond what was asked for; with size classes a fifth more */
#define CONTROL_GROUP 16u
#define FAR_WORDS UINT16_MAX            /* from so many words on all is taken to be live */

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
    for (uint64_t i = 0; i < graph->stale.body_count; i++) {
        const struct stale_body *body = &graph->stale.bodies[i];
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

/* The node's first edge of that slot or a later one: a table may have as many words that own nothing as it has edges. */
static uint32_t edge_from(const struct graph *graph, uint32_t node, uint32_t slot)
{
    uint32_t first = graph->offsets[node], end = graph->offsets[node + 1];
    while (first < end) {
        const uint32_t middle = first + (end - first) / 2;
        if (slot_of(graph, middle) < slot)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

static int mark_words(struct graph *graph, const struct spread *tables)
{
    for (uint64_t i = 0; i < graph->stale.word_count; i++) {
        const struct stale_word *word = &graph->stale.words[i];
        const int has_block = word->address != HOLE && word->address;
        if (has_block ? block_for(graph, word->address, word->room) == NO_NODE : word->address && !is_marked(tables, word->node))
            continue;
        const uint32_t end = graph->offsets[word->node + 1];
        for (uint32_t edge = edge_from(graph, word->node, word->slot); edge < end && slot_of(graph, edge) == word->slot; edge++)
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
    for (uint64_t i = 0; i < graph->stale.table_count; i++) {
        const struct stale_table *table = &graph->stale.tables[i];
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
    if (done && graph->stale.body_count) {
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
