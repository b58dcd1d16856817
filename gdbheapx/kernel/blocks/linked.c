/* Links and what they hold together. A field is a word of blocks of one size that leads so far inside blocks of that size. It is a link
   where the same word of the target often leads on to a third such block. Elements of several sizes are told by strands: many blocks in a
   row by one word. What is linked is one group; then each group keeps the fields that lead to different blocks, or back to who leads. */
#include "linked.h"
#include "tally.h"

#include <stdlib.h>

#define LEAST_GOING_ON 4u
#define LEAST_SHARE 20u                 /* one of so many edges of a field goes on, */
#define LEAST_OF_KIND 50u               /* and one of so many edges between the like is the field's */
#define STRAND 16u                      /* blocks in a row */
#define LEAST_MUTUAL 32u                /* edges between blocks of several sizes, of which four in five lead back */
#define USERS_OF_USERS 4u
#define TABLE_SHARE 4u                  /* a table leads to one of so many elements */
#define MOST_LOOKED 64u                 /* words of it */
#define LEAST_OF_ARRAY 4u               /* pointers of an array of children */
#define ANY_SIZE (UINT64_C(1) << 63)
#define INTO (UINT64_C(1) << 62)         /* edges by a field to blocks of this size, of any size, that go on */
#define OF_KIND 0xffffu                 /* in place of a slot: all edges between blocks of this size */

/* Of an edge; what is asked of its target is looked up once. */
enum {
    MAY_LINK = 1,                       /* from a block to another one, by no word that a runtime tells of */
    SAME_SIZE = 2,                      /* of both */
    MUTUAL = 4,                         /* a word of the target leads back */
    GOES_ON = 8,                        /* its target has an edge by the same word, to a third block */
    ALIKE = 16,                         /* it goes on, and all three are of one size */
    IN_STRAND = 32,
};

struct field_sum {
    uint32_t edges, going_on, mutual;
};

struct finder {
    const struct graph *graph;
    const uint16_t *inside;
    struct pace *pace;
    struct tally numbers;               /* by field, its sum's number + 1 */
    struct field_sum *sums;
    uint32_t sum_count;
    uint64_t sum_room;
    uint8_t *edges;                     /* what is known of each */
    uint32_t *above;                    /* by block, for joining */
    uint8_t *is_array;                  /* one bit a block: of children */
};

static int may_link(const struct finder *finder, uint32_t node, uint32_t edge)
{
    const struct graph *graph = finder->graph;
    const uint32_t target = EDGE_ID(graph->to[edge]);
    return target < graph->index.blocks && target != node && slot_of(graph, edge) < MOST_LINK_SLOT && !has_edge(finder->is_array, node)
           && finder->inside[edge] < MOST_LINK_OFFSET && !is_loose(graph, edge) && !is_sure(graph, edge)
           && index_size(&graph->index, target) <= MOST_LINK_SIZE;
}

static int leads_to(const struct graph *graph, uint32_t node, uint32_t target)
{
    uint32_t edge = graph->offsets[node];
    const uint32_t end = graph->offsets[node + 1], last = end - edge > 64 ? edge + 64 : end;
    for (; edge < last; edge++)
        if (EDGE_ID(graph->to[edge]) == target)
            return 1;
    return 0;
}

/* It has several pointers to blocks that are as large as it is, of which none knows it, but one knows who has it: their parent. */
static int is_array_of_children(const struct graph *graph, uint32_t node)
{
    const uint64_t size = index_size(&graph->index, node);
    uint32_t children = 0;
    int has_parent = 0;
    for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
        const uint32_t child = EDGE_ID(graph->to[edge]);
        if (child >= graph->index.blocks || child == node || index_size(&graph->index, child) != size)
            continue;
        if (leads_to(graph, child, node))
            return 0;
        for (uint32_t up = graph->offsets[child]; up < graph->offsets[child + 1] && children < LEAST_OF_ARRAY && !has_parent; up++)
            has_parent = EDGE_ID(graph->to[up]) < graph->index.blocks && leads_to(graph, EDGE_ID(graph->to[up]), node);
        children++;
    }
    return children >= LEAST_OF_ARRAY && has_parent;
}

/* They are no links between elements. */
static void find_arrays(struct finder *finder)
{
    const struct graph *graph = finder->graph;
    for (uint32_t node = 0; node < graph->index.blocks && !is_over(finder->pace, 1); node++)
        if (graph->offsets[node + 1] - graph->offsets[node] >= LEAST_OF_ARRAY && index_size(&graph->index, node) <= MOST_LINK_SIZE
            && is_array_of_children(graph, node))
            set_edge(finder->is_array, node);
}

static uint64_t field_key(const struct finder *finder, uint64_t size, uint32_t edge)
{
    return (size ? size << 32 : ANY_SIZE) | slot_of(finder->graph, edge) << 16 | finder->inside[edge];
}

static struct field_sum *sum_at(struct finder *finder, uint64_t key)
{
    uint32_t *number = tally_at(&finder->numbers, key);
    if (!number)
        return NULL;
    if (!*number) {
        if (!has_room(&finder->sums, finder->sum_count, &finder->sum_room, sizeof *finder->sums))
            return NULL;
        finder->sums[finder->sum_count] = (struct field_sum) {0};
        *number = ++finder->sum_count;
    }
    return &finder->sums[*number - 1];
}

static const struct field_sum *sum_of(const struct finder *finder, uint64_t key)
{
    const uint32_t *number = tally_find(&finder->numbers, key);
    return number ? &finder->sums[*number - 1] : NULL;
}

/* What edges that come later lead to, and on to. */
static inline void fetch_on(const struct finder *finder, uint64_t edge)
{
    const struct graph *graph = finder->graph;
    if (edge + 3 * AHEAD >= graph->edges)
        return;
    fetch_block(graph, EDGE_ID(graph->to[edge + 3 * AHEAD]));
    const uint32_t on = graph->offsets[EDGE_ID(graph->to[edge + 2 * AHEAD])];
    __builtin_prefetch(&graph->to[on]);
    __builtin_prefetch(&graph->slots[on]);
    __builtin_prefetch(&finder->inside[on]);
    fetch_block(graph, EDGE_ID(graph->to[graph->offsets[EDGE_ID(graph->to[edge + AHEAD])]]));
}

/* By the same word as the edge, from its target. */
static uint32_t edge_on(const struct finder *finder, uint32_t edge)
{
    return edge_by_field(finder->graph, finder->inside, EDGE_ID(finder->graph->to[edge]), (uint32_t) slot_of(finder->graph, edge),
                         finder->inside[edge]);
}

static uint8_t look_at(const struct finder *finder, uint32_t node, uint64_t size, uint32_t edge)
{
    const struct graph *graph = finder->graph;
    const uint32_t target = EDGE_ID(graph->to[edge]), next = edge_on(finder, edge);
    const uint32_t third = next == UINT32_MAX ? NO_NODE : EDGE_ID(graph->to[next]);
    unsigned flags = MAY_LINK | (index_size(&graph->index, target) == size ? SAME_SIZE : 0) | (leads_to(graph, target, node) ? MUTUAL : 0);
    if (third < graph->index.blocks && third != target && third != node)
        flags |= flags & SAME_SIZE && index_size(&graph->index, third) == size ? GOES_ON | ALIKE : GOES_ON;
    return (uint8_t) flags;
}

/* 0: no memory. */
static int count_edge(struct finder *finder, uint32_t node, uint64_t size, uint32_t edge)
{
    const uint8_t flags = finder->edges[edge] = look_at(finder, node, size, edge);
    const uint64_t there = flags & SAME_SIZE ? size : index_size(&finder->graph->index, EDGE_ID(finder->graph->to[edge]));
    const int goes_on = flags & GOES_ON;
    struct field_sum *sum = sum_at(finder, field_key(finder, there == size ? size : 0, edge));
    if (!sum)
        return 0;
    sum->edges++;
    sum->going_on += (flags & (there == size ? ALIKE : GOES_ON)) != 0;
    sum->mutual += there != size && goes_on && flags & MUTUAL;
    if (goes_on && !sum_at(finder, INTO | field_key(finder, there, edge)))
        return 0;
    if (there != size)
        return 1;
    struct field_sum *all = sum_at(finder, size << 32 | OF_KIND << 16);
    if (all)
        all->edges++;
    struct field_sum *any = all && goes_on ? sum_at(finder, field_key(finder, 0, edge)) : NULL;
    if (any)
        any->going_on++;
    return all && (any || !goes_on);
}

static int count_edges(struct finder *finder)
{
    const struct graph *graph = finder->graph;
    for (uint32_t node = 0; node < graph->index.blocks; node++) {
        const uint64_t size = index_size(&graph->index, node);
        if (is_over(finder->pace, 1 + graph->offsets[node + 1] - graph->offsets[node]))
            return 0;
        if (size > MOST_LINK_SIZE)
            continue;
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            fetch_on(finder, edge);
            if (may_link(finder, node, edge) && !count_edge(finder, node, size, edge))
                return 0;
        }
    }
    return 1;
}

/* ---- joining ---- */

static uint32_t top_of(uint32_t *above, uint32_t node)
{
    while (above[node] != node)
        node = above[node] = above[above[node]];
    return node;
}

static void join(uint32_t *above, uint32_t one, uint32_t other)
{
    one = top_of(above, one);
    other = top_of(above, other);
    above[one > other ? one : other] = one > other ? other : one;   /* the same for every order of edges */
}

/* `table`: by block what is asked for first. */
static inline void fetch_joined(const struct finder *finder, const uint32_t *table, uint64_t edge)
{
    const struct graph *graph = finder->graph;
    if (edge + 2 * AHEAD >= graph->edges)
        return;
    const uint32_t later = EDGE_ID(graph->to[edge + 2 * AHEAD]), soon = EDGE_ID(graph->to[edge + AHEAD]);
    __builtin_prefetch(&table[later < graph->index.blocks ? later : 0]);
    if (table == finder->above && soon < graph->index.blocks)
        __builtin_prefetch(&finder->above[finder->above[soon]]);
}

/* The edge stands in a row of STRAND blocks by its word: all edges of the row that are looked at are marked. */
static int is_strand(struct finder *finder, uint32_t edge)
{
    uint32_t row[STRAND], count = 0;
    for (uint32_t at = edge; count < STRAND && at != UINT32_MAX && !(finder->edges[at] & IN_STRAND); count++) {
        row[count] = at;
        at = edge_on(finder, at);
        if (at == edge)                 /* a short ring */
            return 0;
        if (at != UINT32_MAX && finder->edges[at] & IN_STRAND) {
            count++;
            break;
        }
        if (count + 1 < STRAND && at == UINT32_MAX)
            return 0;
    }
    for (uint32_t i = 0; i < count; i++)
        finder->edges[row[i]] |= IN_STRAND;
    return 1;
}

static int is_link(struct finder *finder, uint64_t size, uint32_t edge)
{
    const uint8_t flags = finder->edges[edge];
    if (flags & ALIKE) {
        const struct field_sum *sum = sum_of(finder, field_key(finder, size, edge)), *all = sum_of(finder, size << 32 | OF_KIND << 16);
        if (sum->going_on >= LEAST_GOING_ON && sum->going_on * (uint64_t) LEAST_SHARE >= sum->edges
            && sum->edges * (uint64_t) LEAST_OF_KIND >= all->edges)
            return 1;
    }
    const struct field_sum *any = sum_of(finder, field_key(finder, 0, edge));
    if (!any || any->going_on < STRAND)
        return 0;
    if (!(flags & SAME_SIZE) && flags & GOES_ON && any->mutual >= LEAST_MUTUAL
        && 5 * (uint64_t) any->mutual >= 4 * (uint64_t) any->edges)
        return 1;
    if (!(flags & SAME_SIZE) && !sum_of(finder, INTO | field_key(finder, size, edge)))
        return 0;                       /* a block of a size to which none leads so: it holds the strand */
    return flags & IN_STRAND || (flags & GOES_ON && is_strand(finder, edge));
}

static void join_links(struct finder *finder)
{
    const struct graph *graph = finder->graph;
    for (uint32_t node = 0; node < graph->index.blocks; node++)
        finder->above[node] = node;
    for (uint32_t node = 0; node < graph->index.blocks && !is_over(finder->pace, 1); node++) {
        const uint64_t size = index_size(&graph->index, node);
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            fetch_joined(finder, finder->above, edge);
            if (finder->edges[edge] && is_link(finder, size, edge))
                join(finder->above, node, EDGE_ID(graph->to[edge]));
        }
    }
}

/* ---- groups ---- */

/* Numbers what is joined, in order of the lowest blocks, and puts blocks in order. A group that was whole before, and is as large now, is
   the same. 0: no memory. */
static int make_groups(const struct finder *finder, struct linked *linked)
{
    const uint32_t blocks = (uint32_t) finder->graph->index.blocks;
    uint32_t *above = finder->above, *numbers = linked->order, count = 0, place = 0;
    memset(numbers, 0, (size_t) blocks * sizeof *numbers);
    for (uint32_t node = 0; node < blocks; node++)      /* the top of each group is its lowest block */
        if (top_of(above, node) != node && !numbers[above[node]])
            numbers[above[node]] = ++count;
    struct cluster *before = linked->groups, *groups = calloc((size_t) count + 1, sizeof *groups);
    if (!groups)
        return 0;
    for (uint32_t node = 0; node < blocks; node++) {
        const uint32_t number = numbers[above[node]], old = linked->of[node];
        linked->of[node] = number;
        if (number && !groups[number - 1].members++ && old && before[old - 1].is_whole)
            groups[number - 1].first = old;     /* for now */
    }
    linked->groups = groups;
    linked->count = count;
    for (uint32_t i = 0; i < count; i++) {
        const struct cluster *old = groups[i].first ? &before[groups[i].first - 1] : NULL;
        if (old && old->members == groups[i].members)
            groups[i] = *old;
        groups[i].first = place;
        place += groups[i].members;
        groups[i].members = 0;
    }
    for (uint32_t node = 0; node < blocks; node++)
        if (linked->of[node]) {
            struct cluster *group = &linked->groups[linked->of[node] - 1];
            const uint32_t size = (uint32_t) index_size(&finder->graph->index, node);
            group->element_bytes = !group->members || group->element_bytes == size ? size : 0;
            linked->order[group->first + group->members++] = node;
        }
    free(before);
    return 1;
}

/* Of the group's edges between members; NULL: it has no room for another field. */
static struct link_field *field_of(const struct finder *finder, struct cluster *group, uint32_t edge)
{
    const int at = field_in(finder->graph, finder->inside, group, edge);
    if (at >= 0)
        return &group->fields[at];
    if (group->field_count == MOST_LINK_FIELDS)
        return NULL;
    struct link_field *field = &group->fields[group->field_count++];
    *field = (struct link_field) {(uint16_t) slot_of(finder->graph, edge), finder->inside[edge], 0, 0, 0, 0, 0};
    return field;
}

static int is_kept(const struct cluster *group, struct link_field *field)
{
    const uint32_t least = group->members / 4 < LEAST_GOING_ON ? group->members / 4 : LEAST_GOING_ON;
    field->is_injective = 10 * (uint64_t) field->targets >= 7 * (uint64_t) field->edges;
    const int is_mutual = 5 * (uint64_t) field->mutual >= 4 * (uint64_t) field->edges
                          || (field->edges >= LEAST_MUTUAL && 10 * (uint64_t) field->mutual >= 3 * (uint64_t) field->edges);
    return field->going_on >= (least ? least : 1) && field->going_on * (uint64_t) LEAST_SHARE >= field->edges
           && (field->is_injective || is_mutual);
}

/* Leaves out fields that make no links; their bits, too. `is_all`: the fields are all that there are. `before`: those of the
   group when it was larger, whose room is used again. */
static void keep_fields(struct linked *linked, struct cluster *group, struct link_field *before, uint16_t before_count, int is_all)
{
    uint16_t places[MOST_LINK_FIELDS], count = 0;
    struct link_field kept_fields[MOST_LINK_FIELDS];
    for (unsigned i = 0; i < group->field_count; i++) {
        places[i] = MOST_LINK_FIELDS;
        if (is_kept(group, &group->fields[i])) {
            kept_fields[count] = group->fields[i];
            places[i] = count++;
        }
    }
    group->is_whole = is_all && count == group->field_count;
    for (uint32_t i = 0; i < group->members && !group->is_whole; i++) {
        uint16_t *hit = &linked->hit[linked->order[group->first + i]], kept = 0;
        for (unsigned one = 0; one < group->field_count; one++)
            if (*hit >> one & 1 && places[one] < MOST_LINK_FIELDS)
                kept |= (uint16_t) (1u << places[one]);
        *hit = kept;
    }
    if (count > before_count && linked->field_count + count <= linked->field_room / sizeof *before) {
        before = &linked->fields[linked->field_count];
        linked->field_count += count;
        before_count = count;
    }
    group->fields = before;
    group->is_whole &= count <= before_count;
    group->field_count = count < before_count ? count : before_count;
    memcpy(before, kept_fields, group->field_count * sizeof *before);
}

/* Counts its fields, and keeps those that make links. */
static void find_fields(const struct finder *finder, struct linked *linked, struct cluster *group)
{
    const struct graph *graph = finder->graph;
    const uint32_t number = linked->of[linked->order[group->first]];
    struct link_field fields[MOST_LINK_FIELDS], *before = group->fields;
    const uint16_t before_count = group->field_count;
    int is_all = 1;
    group->fields = fields;
    group->field_count = 0;
    for (uint32_t i = 0; i < group->members && !is_over(finder->pace, 1); i++) {
        const uint32_t node = linked->order[group->first + i];
        fetch_members(graph, linked, linked->of, (uint64_t) group->first + i);
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            struct link_field *field;
            if (!finder->edges[edge] || linked->of[target] != number)
                continue;
            if (!(field = field_of(finder, group, edge))) {
                is_all = 0;
                continue;
            }
            const uint16_t bit = (uint16_t) (1u << (field - group->fields));
            field->edges++;
            field->going_on += (finder->edges[edge] & GOES_ON) != 0;
            field->mutual += (finder->edges[edge] & MUTUAL) != 0;
            field->targets += !(linked->hit[target] & bit);
            linked->hit[target] |= bit;
        }
    }
    keep_fields(linked, group, before, before_count, is_all);
}

/* Of a group whose fields were all kept: they are known if it stays as it is. */
static int is_whole_at(const struct linked *linked, uint32_t node)
{
    return linked->of[node] && linked->groups[linked->of[node] - 1].is_whole;
}

static void settle_groups(const struct finder *finder, struct linked *linked)
{
    for (uint32_t node = 0; node < linked->blocks; node++)
        if (!is_whole_at(linked, node))
            linked->hit[node] = 0;
    for (uint32_t i = 0; i < linked->count; i++)
        if (!linked->groups[i].is_whole)
            find_fields(finder, linked, &linked->groups[i]);
}

/* Joins again, by the fields that each group has kept, now with blocks from where none leads on: leaves, and ends of chains. */
static void join_kept(struct finder *finder, const struct linked *linked)
{
    const struct graph *graph = finder->graph;
    for (uint32_t node = 0; node < linked->blocks; node++)
        if (!is_whole_at(linked, node))
            finder->above[node] = node;
    for (uint32_t node = 0; node < linked->blocks && !is_over(finder->pace, 1); node++) {
        const struct cluster *group = linked->of[node] ? &linked->groups[linked->of[node] - 1] : NULL;
        for (uint32_t edge = group && group->field_count ? graph->offsets[node] : UINT32_MAX; edge < graph->offsets[node + 1]; edge++) {
            fetch_joined(finder, linked->of, edge);
            const uint32_t target = EDGE_ID(graph->to[edge]);
            const uint8_t needed = group->element_bytes ? MAY_LINK | SAME_SIZE : MAY_LINK;
            if ((finder->edges[edge] & needed) != needed || field_in(graph, finder->inside, group, edge) < 0
                || (group->is_whole && linked->of[target] == linked->of[node]))
                continue;
            join(finder->above, node, target);
            uint32_t on = edge, steps = linked->of[target] ? 0 : 2 * STRAND;     /* to the end of a strand that was looked at from there */
            for (; steps && (on = edge_on(finder, on)) != UINT32_MAX && EDGE_ID(graph->to[on]) < graph->index.blocks; steps--)
                if (!group->element_bytes || index_size(&graph->index, EDGE_ID(graph->to[on])) == group->element_bytes)
                    join(finder->above, node, EDGE_ID(graph->to[on]));
        }
    }
}

/* A word of it leads to a table of the group's elements: as far as is looked, most of what that has are such. */
static int leads_to_table(const struct graph *graph, const struct linked *linked, const struct cluster *group, uint32_t node)
{
    const uint32_t number = linked->of[node];
    for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
        const uint32_t table = EDGE_ID(graph->to[edge]);
        if (table >= graph->index.blocks || linked->hit[table]
            || (graph->offsets[table + 1] - graph->offsets[table]) * (uint64_t) TABLE_SHARE < group->members)
            continue;
        uint32_t at = graph->offsets[table], end = graph->offsets[table + 1], elements = 0;
        const uint32_t last = end - at > MOST_LOOKED ? at + MOST_LOOKED : end;
        for (end = last - at; at < last; at++)
            elements += EDGE_ID(graph->to[at]) < graph->index.blocks && linked->of[EDGE_ID(graph->to[at])] == number;
        if (2 * elements > end)
            return 1;
    }
    return 0;
}

/* What only holds the others: the one block of another size, one of a size to which no link leads, or the one that has a table of them,
   too, as a cache has whose ring begins in it. */
static int cut_holders(const struct graph *graph, struct linked *linked, struct cluster *group, struct tally *sizes)
{
    if (!tally_clear(sizes, group->members))
        return 0;
    uint64_t least = UINT64_MAX, most = 0;
    uint32_t at_least = 0, at_most = 0, at_none = 0;
    for (uint32_t i = 0; i < group->members; i++) {
        const uint64_t size = index_size(&graph->index, linked->order[group->first + i]);
        at_least = size < least ? 1 : at_least + (size == least);
        least = size < least ? size : least;
        at_most = size > most ? 1 : at_most + (size == most);
        most = size > most ? size : most;
        uint32_t *hits = linked->hit[linked->order[group->first + i]] ? tally_at(sizes, size) : &at_none;
        if (!hits)
            return 0;
        *hits += 1;
    }
    const int has_odd = at_least + at_most == group->members && (at_least == 1 || at_most == 1) && group->members > 2;
    const uint64_t odd = !has_odd ? UINT64_MAX : at_least == 1 ? least : most;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < group->members; i++) {
        const uint32_t node = linked->order[group->first + i];
        const uint64_t size = index_size(&graph->index, node);
        const uint32_t *hits = tally_find(sizes, size);
        if (size == odd || (!linked->hit[node] && !hits)
            || (linked->hit[node] && *hits == 1 && group->members >= STRAND && leads_to_table(graph, linked, group, node)))
            linked->of[node] = 0;
        else
            linked->order[group->first + kept++] = node;
    }
    group->members = kept;
    return 1;
}

/* Its links again, when some blocks have left it. */
static void settle_again(const struct finder *finder, struct linked *linked, struct cluster *group)
{
    for (uint32_t i = 0; i < group->members; i++)
        linked->hit[linked->order[group->first + i]] = 0;
    if (group->members)
        find_fields(finder, linked, group);
    else
        group->field_count = 0;
}

/* The size that nine of ten have; 0: there is none. */
static uint32_t common_size(const struct graph *graph, const struct linked *linked, const struct cluster *group)
{
    uint64_t size = 0;
    uint32_t votes = 0, times = 0;
    for (uint32_t i = 0; i < group->members; i++) {
        const uint64_t here = index_size(&graph->index, linked->order[group->first + i]);
        size = votes ? size : here;
        votes += here == size ? 1 : UINT32_MAX;
    }
    for (uint32_t i = 0; i < group->members; i++)
        times += index_size(&graph->index, linked->order[group->first + i]) == size;
    return 10 * (uint64_t) times >= 9 * (uint64_t) group->members ? (uint32_t) size : 0;
}

/* What no link leads to is no element if it has none itself, as what was joined by a field that was not kept; where links lead back, also
   if it has but one, and none from there: a request of the same size, or one removed. */
static void cut_users(const struct finder *finder, struct linked *linked, struct cluster *group)
{
    const struct graph *graph = finder->graph;
    uint32_t kept = 0;
    int is_mutual = 0;
    for (unsigned i = 0; i < group->field_count; i++)
        is_mutual |= 10 * (uint64_t) group->fields[i].mutual >= 9 * (uint64_t) group->fields[i].edges;
    for (uint32_t i = 0; i < group->members; i++) {
        const uint32_t node = linked->order[group->first + i];
        uint32_t links = 0;
        int stays = linked->hit[node] != 0 || !group->field_count;
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1] && !stays; edge++)
            if (field_in(graph, finder->inside, group, edge) >= 0)
                stays = ++links > 1 || !is_mutual || leads_to(graph, EDGE_ID(graph->to[edge]), node);
        if (stays)
            linked->order[group->first + kept++] = node;
        else
            linked->of[node] = 0;
    }
    group->members = kept;
}

/* And who leads to users, in turn. */
static void cut_all_users(const struct finder *finder, struct linked *linked, struct cluster *group)
{
    uint32_t before = group->members + 1;
    for (unsigned round = 0; round < USERS_OF_USERS && group->members < before; round++) {
        before = group->members;
        cut_users(finder, linked, group);
        if (group->members < before)
            settle_again(finder, linked, group);
    }
}

static int cut_all_holders(const struct finder *finder, struct linked *linked)
{
    struct tally sizes;
    int done = tally_open(&sizes, LEAST_TALLY);
    for (uint32_t i = 0; i < linked->count && done && !is_over(finder->pace, linked->groups[i].members); i++) {
        struct cluster *group = &linked->groups[i];
        const uint32_t before = group->members;
        if (!group->element_bytes)
            done = cut_holders(finder->graph, linked, group, &sizes);
        if (group->members < before)
            settle_again(finder, linked, group);
        cut_all_users(finder, linked, group);
        if (!group->element_bytes)
            group->element_bytes = common_size(finder->graph, linked, group);
    }
    tally_close(&sizes);
    return done;
}

static int find_groups(struct finder *finder, struct linked *linked)
{
    find_arrays(finder);
    if (!count_edges(finder))
        return 0;
    join_links(finder);
    if (is_over(finder->pace, 0) || !make_groups(finder, linked))
        return 0;
    settle_groups(finder, linked);
    join_kept(finder, linked);
    if (is_over(finder->pace, 0) || !make_groups(finder, linked))
        return 0;
    settle_groups(finder, linked);
    return !is_over(finder->pace, 0) && cut_all_holders(finder, linked) && !is_over(finder->pace, 0);
}

void heapx_groups_free(struct linked *linked)
{
    if (!linked)
        return;
    free(linked->groups);
    free_numbers(linked->of, linked->blocks);
    free_numbers(linked->order, linked->blocks);
    lazy_free(linked->hit, (size_t) linked->blocks * sizeof *linked->hit + 8);
    lazy_free(linked->inside, (size_t) linked->edges * sizeof *linked->inside + 8);
    lazy_free(linked->fields, linked->field_room);
    free(linked);
}

/* What is linked in the graph, whatever its roots are; without slots nothing. NULL: no memory, or `is_asked` has said to stop. */
struct linked *heapx_groups_new(const struct graph *graph, stop_call is_asked)
{
    struct pace pace = {.is_over = is_asked};
    struct finder finder = {.graph = graph, .pace = &pace};
    const size_t edges = (size_t) graph->edges, blocks = (size_t) graph->index.blocks;
    struct linked *linked = calloc(1, sizeof *linked);
    if (!linked)
        return NULL;
    linked->blocks = graph->index.blocks;
    linked->edges = graph->edges;
    if (!graph->all_slots || !blocks)
        return linked;
    finder.inside = linked->inside = dense_alloc(edges * sizeof *linked->inside + 8);
    finder.edges = dense_alloc(edges + 1);
    finder.above = dense_numbers(blocks);
    finder.is_array = lazy_alloc(blocks / 8 + 1);
    linked->of = dense_numbers(blocks);
    linked->order = dense_numbers(blocks);
    linked->hit = dense_alloc(blocks * sizeof *linked->hit + 8);
    linked->field_room = (3 * graph->edges + MOST_LINK_FIELDS) * sizeof *linked->fields;
    linked->fields = lazy_alloc(linked->field_room);
    int done = tally_open(&finder.numbers, 1024) && finder.edges && finder.above && finder.is_array && linked->of && linked->order
               && linked->hit && linked->fields && linked->inside;
    if (done)
        find_offsets(graph, linked->inside);
    done = done && find_groups(&finder, linked);
    tally_close(&finder.numbers);
    free(finder.sums);
    lazy_free(finder.edges, edges + 1);
    free_numbers(finder.above, blocks);
    lazy_free(finder.is_array, blocks / 8 + 1);
    if (!done)
        heapx_groups_free(linked);
    return done ? linked : NULL;
}

/* `of`: by block the number + 1 of the group that it is linked with. */
void heapx_groups_of(const struct linked *linked, uint32_t *of)
{
    if (linked->of)
        memcpy(of, linked->of, (size_t) linked->blocks * sizeof *of);
}
