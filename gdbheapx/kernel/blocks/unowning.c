/* Which edges own nothing: those of words that stale.h has notes of, as far as a better way leads where they do. */
#include "marks.h"

#define SLACK 32u                       /* bytes that malloc may give beyond what was asked for; with size classes a fifth more */
#define CONTROL_GROUP 16u
#define FAR_WORDS UINT16_MAX            /* from so many words on all is taken to be live */

static uint32_t block_at(const struct graph *graph, uint64_t address)
{
    const uint32_t number = slot_at(&graph->index, address);
    uint64_t offset = 0;
    const uint32_t id = number ? index_find(&graph->index, number, address, &offset) : NO_NODE;
    return offset ? NO_NODE : id;
}

/* The block that begins there and was made for so many bytes; NO_NODE: none. */
static uint32_t block_for(const struct graph *graph, uint64_t address, uint64_t room)
{
    const uint32_t id = block_at(graph, address);
    const uint64_t usable = id != NO_NODE ? index_size(&graph->index, id) : 0, rest = usable - room;
    return room <= usable && (rest < SLACK || rest <= usable / 5 + 16) ? id : NO_NODE;
}

static int set_unowning(struct graph *graph, uint64_t edge)
{
    if (!graph->unowning)
        graph->unowning = lazy_alloc((size_t) graph->edge_room / 8 + 1);
    if (graph->unowning)
        graph->unowning[edge >> 3] |= (uint8_t) (1u << (edge & 7));
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
        const uint32_t number = slot_at(&graph->index, table->control);
        uint64_t offset = 0;
        const uint32_t id = number ? index_find(&graph->index, number, table->control, &offset) : NO_NODE;
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

/* ---- nodes of containers ---- */

struct members {
    struct graph *graph;
    uint32_t *of;                       /* by block its container's number + 1; 0: none */
    uint8_t *several;                   /* by container: another one seems to have the same nodes */
    uint32_t number, met;               /* of the one that is followed, and of another that has some of its nodes */
    uint64_t steps_left;
};

/* The block to whose begin the word at this place points; NO_NODE: none. */
static uint32_t block_in(const struct graph *graph, uint32_t node, uint32_t slot)
{
    for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1] && slot_of(graph, edge) <= slot; edge++)
        if (slot_of(graph, edge) == slot) {
            const uint32_t rule = EDGE_RULE(graph->to[edge]), target = EDGE_ID(graph->to[edge]);
            return (rule == RULE_START || rule == RULE_END) && target < graph->index.blocks ? target : NO_NODE;
        }
    return NO_NODE;
}

/* The word at this place of a node at an end leads to the header; where that is in a root, it leads to no block. */
static int leads_back(const struct graph *graph, uint32_t node, uint32_t slot, const struct stale_container *container)
{
    for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1] && slot_of(graph, edge) <= slot; edge++)
        if (slot_of(graph, edge) == slot)
            return EDGE_ID(graph->to[edge]) == container->node;
    return container->node >= graph->index.blocks;
}

/* Its first and last nodes, and for a CHAINED one its table, are there: all others are looked at after that. */
static int has_ends(const struct graph *graph, const struct stale_container *container)
{
    const uint32_t first = block_at(graph, container->first);
    if (first == NO_NODE)
        return 0;
    if (container->kind == CHAINED)
        return block_for(graph, container->table, 8 * (uint64_t) container->buckets) != NO_NODE;
    if (container->kind == TREED)
        return leads_back(graph, first, 1, container);
    const uint32_t last = block_at(graph, container->table);
    return last != NO_NODE && leads_back(graph, first, 1, container) && leads_back(graph, last, 0, container);
}

/* The block is one of container number - 1, if all others are. 0: it is too late. */
static int join_one(struct members *members, uint32_t id)
{
    if (!members->steps_left)
        return 0;
    members->steps_left--;
    if (!members->of[id])
        members->of[id] = members->number;
    else if (members->of[id] != members->number)
        members->met = members->of[id];
    return 1;
}

/* From node to node by the first word, in a RINGED container back by the second: as many as it says. */
static int follow_chain(struct members *members, const struct stale_container *container)
{
    const struct graph *graph = members->graph;
    uint32_t node = block_at(graph, container->first), before = NO_NODE;
    for (uint32_t left = container->count; left; left--) {
        if (node == NO_NODE || (before != NO_NODE && container->kind == RINGED && block_in(graph, node, 1) != before)
            || !join_one(members, node))
            return 0;
        before = node;
        node = block_in(graph, node, 0);
    }
    return container->kind == CHAINED ? node == NO_NODE : before == block_at(graph, container->table);
}

/* It was none: what has been called its nodes, so many of them, is not. */
static void leave_chain(struct members *members, const struct stale_container *container, uint64_t joined)
{
    const struct graph *graph = members->graph;
    uint32_t node = block_at(graph, container->first);
    for (; joined && node != NO_NODE; joined--, node = block_in(graph, node, 0))
        if (members->of[node] == members->number)
            members->of[node] = 0;
}

#define MOST_DEPTH 128u

/* From the root down: colour, parent, left, right. `leaves`: so many nodes, which have joined, are left again. */
static int follow_tree(struct members *members, const struct stale_container *container, uint64_t leaves)
{
    const struct graph *graph = members->graph;
    uint32_t stack[MOST_DEPTH + 2], depth = 0, count = 0;
    stack[depth++] = block_at(graph, container->first);
    while (depth) {
        const uint32_t node = stack[--depth];
        if (++count > container->count || depth >= MOST_DEPTH || (leaves ? count > leaves : !join_one(members, node)))
            return 0;
        if (leaves && members->of[node] == members->number)
            members->of[node] = 0;
        for (uint32_t slot = 2; slot <= 3; slot++) {
            const uint32_t child = block_in(graph, node, slot);
            if (child != NO_NODE && block_in(graph, child, 1) != node)
                return 0;
            if (child != NO_NODE)
                stack[depth++] = child;
        }
    }
    return count == container->count;
}

static void follow(struct members *members, const struct stale_container *container)
{
    const uint64_t before = members->steps_left;
    members->met = 0;
    if (container->kind == TREED ? follow_tree(members, container, 0) : follow_chain(members, container)) {
        if (container->kind == CHAINED)
            join_one(members, block_at(members->graph, container->table));
        if (members->met)
            members->several[members->met - 1] = members->several[members->number - 1] = 1;
    } else if (container->kind == TREED && before > members->steps_left) {
        follow_tree(members, container, before - members->steps_left);
    } else {
        leave_chain(members, container, before - members->steps_left);
    }
}

/* A node of a list begins as the header of one does, before any number: what may be that is looked at when all others are known. */
static int turn_of(const struct graph *graph, const struct stale_container *container)
{
    return container->node < graph->index.blocks && container->kind == RINGED && !container->slot;
}

static void find_members(struct members *members, int turn)
{
    const struct graph *graph = members->graph;
    for (uint64_t i = 0; i < graph->stale.container_count; i++) {
        const struct stale_container *container = &graph->stale.containers[i];
        members->number = (uint32_t) i + 1;
        if (turn_of(graph, container) == turn && !(turn && members->of[container->node]) && has_ends(graph, container))
            follow(members, container);
    }
}

/* Pointers to nodes that come neither from the container's header nor from its other nodes. 0: no memory. */
static int mark_foreign(const struct members *members)
{
    struct graph *graph = members->graph;
    for (uint32_t node = 0; node < graph->nodes; node++)
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]), number = target < graph->index.blocks ? members->of[target] : 0;
            if (!number || members->several[number - 1] || (node < graph->index.blocks && members->of[node] == number))
                continue;
            const struct stale_container *container = &graph->stale.containers[number - 1];
            if (node == container->node && slot_of(graph, edge) - container->slot < HEADER_WORDS)
                continue;
            if (!set_unowning(graph, edge))
                return 0;
        }
    return 1;
}

static int mark_containers(struct graph *graph)
{
    struct members members = {graph, NULL, NULL, 0, 0, 8 * (uint64_t) graph->index.blocks + 1000000};
    if (!graph->stale.container_count)
        return 1;
    members.of = lazy_alloc((size_t) graph->index.blocks * sizeof *members.of + 8);
    members.several = lazy_alloc((size_t) graph->stale.container_count + 8);
    int done = members.of && members.several;
    if (done) {
        find_members(&members, 0);
        find_members(&members, 1);
        done = mark_foreign(&members);
    }
    lazy_free(members.of, (size_t) graph->index.blocks * sizeof *members.of + 8);
    lazy_free(members.several, (size_t) graph->stale.container_count + 8);
    return done;
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
    done = done && mark_words(graph, &tables) && mark_containers(graph) && (!graph->unowning || keep_only_ways(graph));
    spread_close(&tables);
    stale_settle(&graph->stale);
    return done ? 0 : NO_MEMORY;
}
