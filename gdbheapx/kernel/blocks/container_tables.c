/* Tables: nodes with pointers to many blocks of one size, and the chains behind these. */
#include "container_group.h"

#include <stdlib.h>

#define LEAST_TABLE 16u                 /* elements, */
#define MOST_POINTERS 2u                /* and on average at most so many pointers to each */
#define SAMPLES 16u                     /* elements that are asked for a parent, */
#define MOST_WAYS 1024u                 /* and so many pointers of each parent's */

#define MOST_SAMPLED 4096u              /* pointers of a table */
#define MOST_SIZES 8u                   /* of what a table points to: each size that has a ninth of its pointers is seen */
#define MOST_RECORD_WORDS 16u
#define LEAST_RECORDS 8u

/* A node with pointers to many blocks of one size that are not linked with it. */
struct table {
    uint32_t node, pointers, bytes;     /* usable bytes of each */
    uint32_t rivals;                    /* pointers to its elements from tables that have other such, too, and are no second one of it */
};

static int in_table(const struct search *search, const struct table *table, uint32_t edge)
{
    const struct graph *graph = search->graph;
    const uint32_t target = EDGE_ID(graph->to[edge]), group = group_at(search, target);
    return target < graph->index.blocks && target != table->node && !owns_nothing(graph, edge) && !is_sure(graph, edge)
           && index_size(&graph->index, target) == table->bytes && (!group || group != group_at(search, table->node))
           && !has_edge(search->found->is_use, edge);
}

/* The element points to what holds it by another array, as a child does to its parent. */
static int is_child(const struct graph *graph, uint32_t table, uint32_t element)
{
    uint32_t ways = 0;
    for (uint32_t edge = graph->offsets[element]; edge < graph->offsets[element + 1]; edge++) {
        const uint32_t above = EDGE_ID(graph->to[edge]);
        for (uint32_t down = graph->offsets[above]; down < graph->offsets[above + 1]; down++) {
            const uint32_t array = EDGE_ID(graph->to[down]);
            if (array == element || array == table || array == above)
                continue;
            for (uint32_t at = graph->offsets[array]; at < graph->offsets[array + 1]; at++)
                if (EDGE_ID(graph->to[at]) == element)
                    return 1;
                else if (++ways == MOST_WAYS)
                    return 0;
        }
    }
    return 0;
}

/* Most of its elements, as far as is looked, belong to parents of their own: it knows them only. */
static int is_of_children(const struct search *search, const struct table *table)
{
    const struct graph *graph = search->graph;
    const uint32_t first = graph->offsets[table->node], end = graph->offsets[table->node + 1], step = (end - first) / SAMPLES;
    uint32_t elements = 0, children = 0;
    for (uint32_t edge = first; edge < end; edge += step)
        if (in_table(search, table, edge)) {
            elements++;
            children += (uint32_t) is_child(graph, table->node, EDGE_ID(graph->to[edge]));
        }
    return 2 * children > elements;
}

/* A table of places inside a few blocks, such as of items in slabs, has none. `seen`: room for a bit a block, none set. */
static int has_elements(const struct search *search, const struct table *table, uint8_t *seen)
{
    const struct graph *graph = search->graph;
    const uint32_t first = graph->offsets[table->node], end = graph->offsets[table->node + 1];
    uint32_t elements = 0;
    for (uint32_t edge = first; edge < end; edge++)
        if (in_table(search, table, edge) && !has_edge(seen, EDGE_ID(graph->to[edge]))) {
            set_edge(seen, EDGE_ID(graph->to[edge]));
            elements++;
        }
    for (uint32_t edge = first; edge < end; edge++)
        if (EDGE_ID(graph->to[edge]) < graph->index.blocks)
            seen[EDGE_ID(graph->to[edge]) >> 3] = 0;
    return elements >= LEAST_TABLE && MOST_POINTERS * (uint64_t) elements >= table->pointers;
}

/* A size of blocks that a node points to. */
struct usual {
    uint32_t bytes, votes, pointers;
};

/* Misra and Gries' frequent items: a size that is not here gives each of the others a vote less, once there are MOST_SIZES of them. */
static void vote(struct usual *sizes, uint32_t bytes)
{
    unsigned place = 0;
    for (unsigned i = MOST_SIZES; i-- > 0;)
        if (!sizes[i].votes)
            place = i + 1;
    for (unsigned i = 0; i < MOST_SIZES; i++)
        if (sizes[i].votes && sizes[i].bytes == bytes)
            place = i + 1;
    if (place)
        sizes[place - 1] = (struct usual) {bytes, sizes[place - 1].votes + 1, 0};
    for (unsigned i = 0; i < MOST_SIZES && !place; i++)
        sizes[i].votes--;
}

/* The size of most of the blocks that the node points to, in whichever order: a hash table gets another one when it grows. Where an entry
   has a key and a value, there are as many of the one as of the other, but for a few: of sizes that have nearly as many pointers as the
   one that has most, and together half or more, the largest. 0: there is none. */
static uint32_t usual_bytes(const struct graph *graph, uint32_t node)
{
    struct usual sizes[MOST_SIZES] = {{0}};
    uint32_t all = 0, most = 0, near = 0, largest = 0;
    for (int is_counting = 0; is_counting <= 1; is_counting++)
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            const uint64_t bytes = target < graph->index.blocks ? index_size(&graph->index, target) : 0;
            if (!is_counting && bytes && bytes < UINT32_MAX)
                vote(sizes, (uint32_t) bytes);
            all += is_counting && bytes;
            for (unsigned i = 0; i < MOST_SIZES && is_counting; i++)
                sizes[i].pointers += sizes[i].votes && sizes[i].bytes == bytes;
        }
    for (unsigned i = 0; i < MOST_SIZES; i++)
        most = sizes[i].pointers > most ? sizes[i].pointers : most;
    for (unsigned i = 0; i < MOST_SIZES; i++)
        if (8 * (uint64_t) sizes[i].pointers > 7 * (uint64_t) most) {
            near += sizes[i].pointers;
            largest = sizes[i].bytes > largest ? sizes[i].bytes : largest;
        }
    return 2 * (uint64_t) near >= all ? largest : 0;
}

/* Many of its pointers lead to blocks of one size; a variable's stand close together. */
static int is_table(const struct search *search, struct table *table, uint8_t *seen)
{
    const struct graph *graph = search->graph;
    const uint32_t first = graph->offsets[table->node], end = graph->offsets[table->node + 1];
    if (end - first < LEAST_TABLE)
        return 0;
    table->bytes = usual_bytes(graph, table->node);
    uint64_t low = UINT64_MAX, high = 0;
    for (uint32_t edge = first; edge < end; edge++)
        if (in_table(search, table, edge) && (edge == first || graph->to[edge] != graph->to[edge - 1])) {
            low = slot_of(graph, edge) < low ? slot_of(graph, edge) : low;
            high = slot_of(graph, edge);
            table->pointers++;
        }
    return table->pointers >= LEAST_TABLE && has_elements(search, table, seen) && !is_of_children(search, table)
           && (table->node < graph->index.blocks || TABLE_SHARE * (uint64_t) table->pointers > high - low);
}

static int by_pointers(const void *one, const void *other)
{
    const struct table *a = one, *b = other;
    return a->pointers != b->pointers ? (a->pointers < b->pointers ? 1 : -1) : (a->node > b->node) - (a->node < b->node);
}

static int find_tables(const struct search *search, uint8_t *seen, struct table **tables, uint32_t *count)
{
    uint64_t room = 0;
    for (uint32_t node = 0; node < search->graph->nodes; node++) {
        struct table table = {.node = node};
        if (is_over(search->pace, 1))
            return 0;
        if (node >= search->locals_from || !is_table(search, &table, seen))
            continue;
        if (!has_room(tables, *count, &room, sizeof table))
            return 0;
        (*tables)[(*count)++] = table;
    }
    if (*count)
        qsort(*tables, *count, sizeof **tables, by_pointers);
    return 1;
}

/* So many blocks are chained to 95 % of the elements: these are objects of several blocks, no chains of a hash table. */
static int are_alike(const struct search *search, const struct table *table)
{
    const struct graph *graph = search->graph;
    uint32_t length = 0, votes = 0, alike = 0;
    for (int is_counting = 0; is_counting <= 1; is_counting++)
        for (uint32_t edge = graph->offsets[table->node]; edge < graph->offsets[table->node + 1]; edge++) {
            if (!in_table(search, table, edge))
                continue;
            const uint32_t number = search->linked.of[EDGE_ID(graph->to[edge])];
            const uint32_t here = number ? search->linked.groups[number - 1].members : 1;
            alike += (uint32_t) is_counting && here == length;
            if (!is_counting && !votes)
                length = here;
            votes += is_counting ? 0 : here == length ? 1 : UINT32_MAX;
        }
    return length > 1 && 20 * (uint64_t) alike >= 19 * (uint64_t) table->pointers;
}

/* The links of the first chain behind a table; NULL: there is none. */
static const struct cluster *chain_of(const struct search *search, const struct table *table)
{
    const struct graph *graph = search->graph;
    for (uint32_t edge = graph->offsets[table->node]; edge < graph->offsets[table->node + 1]; edge++) {
        const uint32_t number = in_table(search, table, edge) ? search->linked.of[EDGE_ID(graph->to[edge])] : 0;
        if (number && search->linked.groups[number - 1].field_count)
            return &search->linked.groups[number - 1];
    }
    return NULL;
}

/* An element, and what is chained to it, in the order of the chain, which may be too short to be told by itself. `links`: of longer ones;
   NULL: there are no chains. */
static void add_chain(struct search *search, uint32_t node, const struct cluster *links)
{
    struct containers *found = search->found;
    const struct graph *graph = search->graph;
    const uint32_t number = links ? search->linked.of[node] : 0;
    uint32_t at = found->ordered;
    add_member(found, node);
    for (; links && at < found->ordered; at++)
        for (uint32_t edge = graph->offsets[found->order[at]]; edge < graph->offsets[found->order[at] + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            if (target < graph->index.blocks && !found->of[target] && search->linked.of[target] == number && !is_loose(graph, edge)
                && index_size(&graph->index, target) == index_size(&graph->index, node)
                && field_in(graph, search->linked.inside, links, edge) >= 0)
                add_member(found, target);
        }
    for (uint32_t i = 0; number && i < search->linked.groups[number - 1].members; i++) {
        const uint32_t chained = search->linked.order[search->linked.groups[number - 1].first + i];
        if (!found->of[chained])
            add_member(found, chained);
    }
}

/* The pointers stand at the same words of nearly every record of that length. `slots`: of the pointers, from the first one on. */
static int are_records(const uint32_t *slots, uint32_t count, uint32_t length)
{
    uint32_t times[MOST_RECORD_WORDS] = {0}, in_all = 0;
    const uint32_t records = slots[count - 1] / length + 1;
    for (uint32_t i = 0; i < count; i++)
        times[slots[i] % length]++;
    for (uint32_t word = 0; word < length; word++)
        in_all += 20 * (times[word] + 1) >= 19 * records ? times[word] : 0;
    return records >= LEAST_RECORDS && 20 * in_all >= 19 * count;
}

/* From its first pointer to the last most words have one, or the same words of each record: behind these, and between the ends of a ring,
   there may be room for more. What a hash spreads has gaps everywhere. */
static int is_array(const struct search *search, const struct table *table)
{
    const struct graph *graph = search->graph;
    uint32_t slots[MOST_SAMPLED], count = 0, gap = 1;
    uint64_t first = 0;
    const uint32_t end = graph->offsets[table->node + 1];
    for (uint32_t edge = graph->offsets[table->node]; edge < end && count < MOST_SAMPLED; edge++) {
        if (!in_table(search, table, edge))
            continue;
        first = count ? first : slot_of(graph, edge);
        slots[count] = (uint32_t) (slot_of(graph, edge) - first);
        gap = count && slots[count] - slots[count - 1] > gap ? slots[count] - slots[count - 1] : gap;
        count++;
    }
    int is_one = count && 4 * (uint64_t) count >= 3 * ((uint64_t) slots[count - 1] + 2 - gap);
    for (uint32_t length = 2; length <= MOST_RECORD_WORDS && count && !is_one; length++)
        is_one = are_records(slots, count, length);
    return is_one;
}

/* Those of its elements that no larger one has are one container; it is the second holder of one that has the same. 0: no memory. */
static int settle_table(struct search *search, const struct table *table)
{
    const struct graph *graph = search->graph;
    struct containers *found = search->found;
    uint32_t fresh = 0, other = 0, same = 0, to_fresh = 0, to_same = 0;
    if (2 * (uint64_t) table->rivals > table->pointers)
        return 1;
    for (uint32_t edge = graph->offsets[table->node]; edge < graph->offsets[table->node + 1]; edge++) {
        if (!in_table(search, table, edge))
            continue;
        const uint32_t of = found->of[EDGE_ID(graph->to[edge])];
        if (!of && !fresh++)
            to_fresh = edge;
        other = of && !same ? of : other;
        if (of && of == other && !same++)
            to_same = edge;
    }
    if (fresh >= LEAST_TABLE && 2 * fresh >= table->pointers) {
        struct container *container = new_container(found);
        if (!container || !add_entry(found, container, (struct outer) {table->node, to_fresh}))
            return 0;
        container->element_bytes = table->bytes;
        const struct cluster *links = are_alike(search, table) ? NULL : chain_of(search, table);
        for (uint32_t edge = graph->offsets[table->node]; edge < graph->offsets[table->node + 1]; edge++)
            if (in_table(search, table, edge) && !found->of[EDGE_ID(graph->to[edge])])
                add_chain(search, EDGE_ID(graph->to[edge]), links);
        container->sure = SURE_CERTAIN;
        container->shape = container->members > table->pointers || !is_array(search, table) ? SHAPE_HASH_TABLE : SHAPE_ARRAY;
        return 1;
    }
    struct container *container = same ? &found->all[other - 1] : NULL;
    if (!container || container->first_entry + container->entries != found->entry_count || container->shape < SHAPE_HASH_TABLE
        || 10 * (uint64_t) same < 9 * (uint64_t) table->pointers || 10 * (uint64_t) same < 9 * (uint64_t) container->members)
        return 1;
    container->sure = SURE_SHARED;
    return add_entry(found, container, (struct outer) {table->node, to_same});
}

/* Two maps of one set of objects that are cut into shards, each by its own hash, own these together: no shard has nearly all that another
   one has, and by size the one or the other would come first. Larger tables come first here. 0: no memory. */
static int find_rivals(const struct search *search, struct table *tables, uint32_t count)
{
    const struct graph *graph = search->graph;
    uint32_t *first = search->place, *hits = calloc((size_t) count + 1, sizeof *hits);      /* by block: the first of them + 1 */
    if (!hits)
        return 0;
    memset(first, 0, (size_t) graph->index.blocks * sizeof *first);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t in_others = 0, most = 0;
        const uint32_t begin = graph->offsets[tables[i].node], end = graph->offsets[tables[i].node + 1];
        for (uint32_t edge = begin; edge < end && !is_over(search->pace, 1); edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            if (!in_table(search, &tables[i], edge) || search->found->of[target])
                continue;
            first[target] = first[target] ? first[target] : i + 1;
            if (first[target] == i + 1)
                continue;
            in_others++;
            most = ++hits[first[target] - 1] > most ? hits[first[target] - 1] : most;
        }
        const int are_rivals = 10 * (uint64_t) most < 9 * (uint64_t) in_others;
        tables[i].rivals += are_rivals ? in_others : 0;
        for (uint32_t edge = begin; edge < end && in_others; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]), other = target < graph->index.blocks ? first[target] : 0;
            if (!other || other == i + 1)
                continue;
            tables[other - 1].rivals += are_rivals ? hits[other - 1] : 0;
            hits[other - 1] = 0;
        }
    }
    free(hits);
    return 1;
}

int settle_tables(struct search *search)
{
    struct table *tables = NULL;
    uint32_t count = 0;
    uint8_t *seen = calloc((size_t) search->graph->index.blocks / 8 + 1, 1);
    int done = seen && find_tables(search, seen, &tables, &count) && find_rivals(search, tables, count);
    for (uint32_t i = 0; i < count && done; i++)
        done = !is_over(search->pace, tables[i].pointers) && settle_table(search, &tables[i]);
    free(seen);
    free(tables);
    return done;
}
