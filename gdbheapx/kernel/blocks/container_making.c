/* Containers are made of groups or of parts of them, and their elements put in order. */
#include "container_search.h"

#include <stdlib.h>

#define MOST_STARTS 8u                  /* entries from where members are put in order */
#define MOST_OWNERS 4u                  /* that are asked for a head among the elements */
#define SEVERAL_PERCENT 50u

struct container *new_container(struct containers *found)
{
    struct container *all = with_room(found->all, found->count, &found->room, sizeof *all);
    if (!all)
        return NULL;
    found->all = all;
    all[found->count] = (struct container) {.first = found->ordered, .first_entry = found->entry_count};
    return &all[found->count++];
}

int add_entry(struct containers *found, struct container *container, struct outer outer)
{
    struct outer *entries = with_room(found->entry_edges, found->entry_count, &found->entry_room, sizeof *entries);
    if (!entries)
        return 0;
    found->entry_edges = entries;
    entries[found->entry_count++] = outer;
    container->entries++;
    return 1;
}

void add_member(struct containers *found, uint32_t node)
{
    found->order[found->ordered++] = node;
    found->of[node] = found->count;
    found->all[found->count - 1].members++;
}

static uint8_t shape_of(const struct search *search, const struct cluster *group, const uint32_t *owners, uint32_t owner_count)
{
    unsigned several = 0, nested = 0;
    int has_table = 0;
    for (unsigned i = 0; i < search->system_count; i++) {
        several |= bits_of(search->systems[i].fields) > 1 && search->systems[i].has_two_below;
        nested += search->systems[i].firsts > group->members / 8 && bits_of(search->systems[i].fields) == 1;
    }
    for (uint32_t i = 0; i < owner_count; i++)
        has_table |= search->holders[owners[i]].is_table;
    if (has_table)
        return search->system_count > 2 ? SHAPE_LRU : SHAPE_HASH_TABLE;
    return several ? SHAPE_TREE : nested > 1 && search->system_count > 3 ? SHAPE_SKIP_LIST : SHAPE_LIST;
}

/* The holder's first pointer to a member of the last container that comes first by some of the links; where none does, to any. */
static uint32_t entry_of(const struct search *search, const struct holder *holder)
{
    uint32_t first = UINT32_MAX;
    for (uint32_t at = holder->first; at < holder->first + holder->pointers; at++) {
        const uint32_t target = EDGE_ID(search->graph->to[search->outer.all[at].edge]);
        if (search->found->of[target] != search->found->count)
            continue;
        first = first == UINT32_MAX ? at : first;
        for (unsigned i = 0; i < search->system_count; i++)
            if (!(search->linked.hit[target] & search->systems[i].fields))
                return at;
    }
    return first == UINT32_MAX ? holder->first : first;
}

/* As follow_links(), in the last container, if the node is one of it that was not met yet. */
static uint32_t follow_last(const struct search *search, const struct cluster *group, uint16_t fields, uint32_t node, uint32_t *out,
                            uint32_t count)
{
    struct system system = {.fields = fields};
    const int is_new = search->found->of[node] == search->found->count && !search->label[search->place[node]];
    return is_new ? follow_links(search, group, &system, search->found->of, search->place[node], 1, out, count) : count;
}

/* The same from all members to which the holder points, in their order in it. */
static uint32_t follow_all(const struct search *search, const struct cluster *group, uint16_t fields, const struct holder *holder,
                           uint32_t *out, uint32_t count)
{
    for (uint32_t at = holder->first; at < holder->first + holder->pointers; at++)
        count = follow_last(search, group, fields, EDGE_ID(search->graph->to[search->outer.all[at].edge]), out, count);
    return count;
}

/* The first of these that no such link leads to; the first of all where there is none, as in a ring. */
static uint32_t first_of(const struct search *search, const uint32_t *nodes, uint32_t count, uint16_t fields)
{
    for (uint32_t i = 0; i < count; i++)
        if (!(search->linked.hit[nodes[i]] & fields))
            return nodes[i];
    return *nodes;
}

static void forget(const struct search *search, const uint32_t *places, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        search->label[places[i]] = 0;
}

/* The last container's members in the order of its links: from where an entry leads, by those links by which most are met from there; where
   that is a guess, rather from one that comes first; where it leads not to half, as the pointers of a table do not, from all those of its
   first holder. The rest stand behind these. `owners`: of its entries. */
static void put_in_order(const struct search *search, const struct cluster *group, const uint32_t *owners, uint32_t owner_count)
{
    const struct containers *found = search->found;
    const struct container *container = &found->all[found->count - 1];
    const struct outer *entries = found->entry_edges + container->first_entry;
    const struct holder *holder = owner_count ? &search->holders[*owners] : NULL;
    const uint32_t members = container->members, starts = owner_count < MOST_STARTS ? owner_count : MOST_STARTS;
    uint32_t *out = search->seen, *order = found->order + container->first, most = 0, count = 0, start = NO_NODE;
    const int is_guess = !holder || container->sure >= SURE_GUESS;
    uint16_t fields = 0;
    for (uint32_t i = 0; i < members; i++)
        search->label[search->place[order[i]]] = 0;
    for (uint32_t i = 0; i <= starts + 1; i++)
        for (unsigned one = 0; one < search->system_count; one++) {
            if (i < starts ? 10 * (uint64_t) most >= 9 * (uint64_t) members
                           : i == starts ? !is_guess || most == members : !holder || 2 * most >= members)
                break;
            const uint16_t by = search->systems[one].fields;
            const uint32_t from = i > starts ? NO_NODE : i < starts ? EDGE_ID(search->graph->to[entries[i].edge])
                                                                    : first_of(search, order, members, by);
            count = from == NO_NODE ? follow_all(search, group, by, holder, out, 0) : follow_last(search, group, by, from, out, 0);
            forget(search, out, count);
            if (count > most) {
                most = count;
                fields = by;
                start = from;
            }
        }
    count = start == NO_NODE ? 0 : follow_last(search, group, fields, start, out, 0);
    count = holder ? follow_all(search, group, fields, holder, out, count) : count;
    for (int is_first = 1; is_first >= 0; is_first--)
        for (uint32_t i = 0; i < members && count < members; i++)
            if (!is_first || !(search->linked.hit[order[i]] & fields))
                count = follow_last(search, group, fields, order[i], out, count);
    for (uint32_t i = 0; i < count; i++)
        order[i] = search->linked.order[group->first + out[i]];
}

/* The one member that points to who holds the others, such as their table: a head that is as large as they are. NO_NODE: there is none. */
static uint32_t head_among(const struct search *search, const struct cluster *group, const struct holder *holder)
{
    const struct graph *graph = search->graph;
    uint32_t head = NO_NODE;
    for (uint32_t i = 0; i < group->members; i++) {
        const uint32_t node = search->linked.order[group->first + i];
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++)
            if (EDGE_ID(graph->to[edge]) == holder->node && node != head) {
                if (head != NO_NODE)
                    return NO_NODE;
                head = node;
            }
    }
    for (uint32_t at = holder->first; at < holder->first + holder->pointers && !holder->is_table; at++)
        if (EDGE_ID(graph->to[search->outer.all[at].edge]) == head)
            return NO_NODE;             /* an element that leads back */
    return head;
}

/* A head among the members is none, and holds the others with what it points to: its pointer to one of them; NO_NODE: there is none. */
static struct outer cut_head(struct search *search, const struct cluster *group, uint32_t *owners, uint32_t *owner_count)
{
    const struct graph *graph = search->graph;
    struct outer head = {NO_NODE, 0};
    for (uint32_t i = 0; i < *owner_count && i < MOST_OWNERS && head.node == NO_NODE; i++)
        if ((head.node = head_among(search, group, &search->holders[owners[i]])) != NO_NODE) {
            owners[0] = owners[i];
            *owner_count = 1;
        }
    const uint32_t number = head.node == NO_NODE ? 0 : search->linked.of[head.node];
    for (uint32_t edge = number ? graph->offsets[head.node] : UINT32_MAX; edge < graph->offsets[head.node + 1]; edge++)
        if (!head.edge && group_at(search, EDGE_ID(graph->to[edge])) == number)
            head.edge = edge;
    if (number)
        search->linked.of[head.node] = 0;
    return head;
}

int make_whole(struct search *search, const struct cluster *group, uint32_t *owners, uint32_t owner_count, uint8_t sure)
{
    struct containers *found = search->found;
    struct container *container = new_container(found);
    if (!container)
        return 0;
    container->element_bytes = group->element_bytes;
    container->sure = sure;
    container->shape = shape_of(search, group, owners, owner_count);
    const struct outer head = cut_head(search, group, owners, &owner_count);
    for (uint32_t i = 0; i < group->members; i++)
        if (!found->of[search->linked.order[group->first + i]] && search->linked.order[group->first + i] != head.node)
            add_member(found, search->linked.order[group->first + i]);
    for (uint32_t i = 0; i < owner_count; i++)
        if (!add_entry(found, container, search->outer.all[entry_of(search, &search->holders[owners[i]])]))
            return 0;
    if (head.node != NO_NODE && !add_entry(found, container, head))
        return 0;
    put_in_order(search, group, owners, owner_count);
    return 1;
}

/* Better: led back to, a table, more pointers. */
static int is_better(const struct holder *one, const struct holder *other)
{
    if (one->is_stack != other->is_stack)
        return !one->is_stack;
    if (one->is_request != other->is_request)
        return !one->is_request;
    if (has_role(one) != has_role(other))
        return has_role(one);
    return one->pointers > other->pointers;
}

int make_parts(struct search *search, const struct cluster *group, const struct system *system, uint32_t holder_count,
               const uint32_t *met, uint32_t met_count)
{
    const struct graph *graph = search->graph;
    struct containers *found = search->found;
    uint64_t held = 0;
    memset(search->seen, 0, (size_t) system->firsts * sizeof *search->seen);
    for (uint32_t i = 0; i < holder_count; i++) {
        const struct holder *holder = &search->holders[i];
        for (uint32_t at = holder->first; at < holder->first + holder->pointers; at++) {
            const uint32_t target = EDGE_ID(graph->to[search->outer.all[at].edge]);
            if (search->linked.hit[target] & system->fields)
                continue;
            const uint32_t label = search->label[search->place[target]] - 1;
            uint32_t *best = &search->seen[label];
            held += *best ? 0 : search->sizes[label];
            if (!*best || is_better(holder, &search->holders[*best - 1]))
                *best = i + 1;
        }
    }
    if (100 * held < SEVERAL_PERCENT * (uint64_t) group->members)
        return 2;
    uint32_t *heads = search->trees, *next = search->trees + holder_count;      /* by holder its trees; by tree the next */
    memset(heads, 0, (size_t) holder_count * sizeof *heads);
    for (uint32_t first = system->firsts; first-- > 0;)
        if (search->seen[first]) {
            next[first] = heads[search->seen[first] - 1];
            heads[search->seen[first] - 1] = first + 1;
        }
    uint32_t place = 0;                 /* where each tree begins in met[] */
    for (uint32_t first = 0; first < system->firsts; first++) {
        const uint32_t size = search->sizes[first];
        search->sizes[first] = place;
        place += size;
    }
    for (uint32_t i = 0; i < holder_count; i++) {
        if (!heads[i])
            continue;
        struct container *container = new_container(found);
        if (!container)
            return 0;
        container->element_bytes = group->element_bytes;
        container->sure = SURE_LIKELY;
        container->shape = search->holders[i].is_table ? SHAPE_HASH_TABLE : system->has_two_below ? SHAPE_TREE : SHAPE_LIST;
        for (uint32_t first = heads[i]; first; first = next[first - 1]) {
            const uint32_t end = first < system->firsts ? search->sizes[first] : met_count;
            for (uint32_t at = search->sizes[first - 1]; at < end; at++)
                add_member(found, search->linked.order[group->first + met[at]]);
        }
        if (!add_entry(found, container, search->outer.all[entry_of(search, &search->holders[i])]))
            return 0;
        put_in_order(search, group, &i, 1);
    }
    return 1;
}

void mark_uses(struct search *search, const struct cluster *group, uint16_t down, uint32_t holder_count, const uint32_t *owners,
               uint32_t owner_count)
{
    const struct graph *graph = search->graph;
    const uint32_t blocks = (uint32_t) graph->index.blocks;
    for (uint32_t i = 0; i < holder_count && owner_count; i++)
        if (search->holders[i].node < blocks)
            search->place[search->holders[i].node] = 0;
    for (uint32_t i = 0; i < group->members && owner_count; i++) {
        const uint32_t node = search->linked.order[group->first + i];
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            const int field = field_in(graph, search->inside, group, edge);
            if (target >= blocks)
                continue;
            if (group_at(search, target) != group_at(search, node))
                search->place[target] = 1;
            else
                set_edge(field >= 0 && down >> field & 1 ? search->found->is_down : search->found->is_use, edge);
        }
    }
    for (uint32_t i = 0, next = 0; i < holder_count && owner_count; i++) {
        const struct holder *holder = &search->holders[i];
        const int is_owner = next < owner_count && owners[next] == i;
        next += (uint32_t) is_owner;
        for (uint32_t at = holder->first; at < holder->first + holder->pointers; at++)
            if (is_owner || holder->node >= blocks || !search->place[holder->node])
                set_edge(is_owner ? search->found->is_down : search->found->is_use, search->outer.all[at].edge);
    }
}
