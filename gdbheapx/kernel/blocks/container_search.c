/* Containers, and who holds each. What decides is not how many elements a pointer leads to, but that it leads to one that comes first in
   the order of the container's own links: a head, a root, a table of chains. All other pointers to elements belong to users.

   The fields of a group that lead to different elements are put together to systems, such as next, previous, or left and right. In each
   system an element that none of its fields leads to is a first; who points to firsts from where nine of ten elements are reached owns
   the container. Where several do, those lead that a first leads back to, that hold both ends, or that are tables. */
#include "container_group.h"

#include <stdlib.h>

#define LEAST_ALIKE 3u                  /* of one size, where links lead back */
#define MOST_STARTS 8u                  /* entries from where members are put in order */
#define MOST_OWNERS 4u                  /* that are asked for a head among the elements */
#define SEVERAL_PERCENT 50u

/* How many are set. */
static unsigned bits_of(uint16_t bits)
{
    return (unsigned) __builtin_popcount(bits);
}

static uint32_t member_of(const struct search *search, uint32_t place)
{
    return search->linked.order[search->group->first + place];
}

/* ---- links and systems ---- */

/* The members that each leads to. */
static void list_links(struct search *search)
{
    const struct graph *graph = search->graph;
    const struct cluster *group = search->group;
    const uint32_t *order = search->linked.order + group->first;
    memset(search->links, 0xff, (size_t) group->members * group->field_count * sizeof *search->links);
    for (uint32_t i = 0; i < group->members; i++)
        search->place[order[i]] = i;
    for (uint32_t i = 0; i < group->members && !is_over(search->pace, 1); i++) {
        fetch_members(graph, &search->linked, search->place, (uint64_t) group->first + i);
        for (uint32_t edge = graph->offsets[order[i]]; edge < graph->offsets[order[i] + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            const int field = group_at(search, target) == search->number ? field_in(graph, search->linked.inside, group, edge) : -1;
            if (field >= 0)
                search->links[(size_t) i * group->field_count + (unsigned) field] = search->place[target];
        }
    }
    for (unsigned i = 0; i < group->field_count; i++) {
        unsigned at = i;
        for (; at && group->fields[search->by_slot[at - 1]].slot > group->fields[i].slot; at--)
            search->by_slot[at] = search->by_slot[at - 1];
        search->by_slot[at] = (uint8_t) i;
    }
}

/* What the member's next link leads to, of these fields, that has no label; NO_NODE: no more does. `next`: 0 at first. */
static inline uint32_t next_link(const struct search *search, uint16_t fields, uint32_t place, unsigned *next)
{
    const uint32_t *links = search->links + (size_t) place * search->group->field_count;
    while (*next < search->group->field_count) {
        const unsigned field = search->by_slot[(*next)++];
        if (fields >> field & 1 && links[field] != NO_NODE && !search->label[links[field]])
            return links[field];
    }
    return NO_NODE;
}

static void find_systems(struct search *search)
{
    const struct cluster *group = search->group;
    uint32_t both[MOST_LINK_FIELDS][MOST_LINK_FIELDS] = {{0}};
    for (uint32_t i = 0; i < group->members; i++) {
        const uint16_t hit = search->linked.hit[member_of(search, i)];
        for (unsigned one = 0; hit >> one; one++)
            for (unsigned other = one + 1; hit >> one & 1 && hit >> other; other++)
                both[one][other] += hit >> other & 1;
    }
    search->system_count = 0;
    uint16_t taken = 0;
    for (unsigned one = 0; one < group->field_count && search->system_count < MOST_SYSTEMS; one++) {
        if (!group->fields[one].is_injective || taken >> one & 1)
            continue;
        uint16_t fields = (uint16_t) (1u << one);
        for (unsigned other = one + 1; other < group->field_count; other++) {
            int fits = group->fields[other].is_injective && !(taken >> other & 1);
            for (unsigned in = one; in < other && fits; in++) {
                const uint32_t a = group->fields[in].targets, b = group->fields[other].targets;
                fits = !(fields >> in & 1) || 20 * (uint64_t) both[in][other] <= (a < b ? a : b);
            }
            fields |= fits ? (uint16_t) (1u << other) : 0;
        }
        taken |= fields;
        search->systems[search->system_count++] = (struct system) {.fields = fields};
    }
}

/* From a member on by the system's fields, level by level: those of its container that have no label get this one, and stand behind `count`
   in `out`. `of`: by block its container; NULL: all of the group. Returns how many stand there then. */
static uint32_t follow_links(const struct search *search, struct system *system, const uint32_t *of, uint32_t place, uint32_t label,
                             uint32_t *out, uint32_t count)
{
    const uint32_t *order = search->linked.order + search->group->first, number = of ? of[order[place]] : 0;
    search->label[place] = label;
    out[count++] = place;
    for (uint32_t at = count - 1, end = count, level = 0; at < end; end = count, level++)
        for (; at < end && !is_over(search->pace, 1); at++) {
            const uint32_t before = count;
            unsigned next = 0;
            for (uint32_t below; (below = next_link(search, system->fields, out[at], &next)) != NO_NODE;) {
                if (of && of[order[below]] != number)
                    continue;
                __builtin_prefetch(&search->links[(size_t) below * search->group->field_count]);
                search->label[below] = label;
                out[count++] = below;
            }
            system->has_two_below |= count - before > 1;
            if (count > before)
                continue;
            system->leaf_least = level < system->leaf_least ? level : system->leaf_least;
            system->leaf_most = level > system->leaf_most ? level : system->leaf_most;
        }
    return count;
}

/* Walks a system's trees from their firsts: each element gets its tree's label; elements stand in `met` in the order that they are met in.
   Returns how many are reached. If it is stopped, some firsts have no label. */
static uint32_t walk_system(struct search *search, unsigned number)
{
    struct system *system = &search->systems[number];
    uint32_t count = 0;
    *system = (struct system) {.fields = system->fields, .leaf_least = UINT32_MAX};
    memset(search->label, 0, (size_t) search->group->members * sizeof *search->label);
    for (uint32_t first = 0; first < search->group->members && !is_over(search->pace, 1); first++) {
        if (search->linked.hit[member_of(search, first)] & system->fields)
            continue;
        const uint32_t before = count, label = ++system->firsts;
        count = follow_links(search, system, NULL, first, label, search->met, count);
        search->sizes[label - 1] = count - before;
    }
    return count;
}

/* ---- trees of objects ---- */

/* No field that leads back up does so more than twice to one element, and one does if the tree is deep: search trees and heaps. */
static int is_binary(struct search *search, const struct system *down, int is_deep)
{
    const struct cluster *group = search->group;
    int has_above = !is_deep;
    for (unsigned i = 0; i < group->field_count; i++) {
        if (down->fields >> i & 1 || 10 * (uint64_t) group->fields[i].mutual < 3 * (uint64_t) group->fields[i].edges)
            continue;
        has_above |= 2 * group->fields[i].mutual >= group->members;
        memset(search->label, 0, (size_t) group->members * sizeof *search->label);
        for (uint32_t one = 0; one < group->members; one++) {
            const uint32_t above = search->links[(size_t) one * group->field_count + i];
            if (above != NO_NODE && above != one && ++search->label[above] > 2)
                return 0;
        }
    }
    return has_above;
}

/* Elements that know what they are part of, in no search tree: each belongs to its parent, and all of them are no container. Returns the
   fields that lead down; 0: it is none. */
static uint16_t object_tree(struct search *search)
{
    unsigned best = 0, power = 0;
    int has_parents = 0;
    for (unsigned i = 0; i < search->group->field_count; i++)
        has_parents |= !search->group->fields[i].is_injective;
    for (unsigned i = 1; i < search->system_count; i++)
        if (bits_of(search->systems[i].fields) > bits_of(search->systems[best].fields))
            best = i;
    const struct system *down = &search->systems[best];
    if (!search->system_count || (bits_of(down->fields) == 1 && !has_parents))
        return 0;
    walk_system(search, best);
    if (!has_parents && down->firsts != 1)
        return 0;
    while (search->group->members >> power)
        power++;
    const int is_object = down->leaf_least != down->leaf_most && (has_parents || down->has_two_below)
                          && !(bits_of(down->fields) == 2 && is_binary(search, down, down->leaf_most > 2 * power + 3));
    return is_object ? down->fields : 0;
}

/* Objects belong to what leads down to them: other pointers to them own nothing, if who owns the tree is known. A block that an object
   points to, such as its array of children, is part of it. */
static void mark_uses(struct search *search, uint16_t down)
{
    const struct graph *graph = search->graph;
    const uint32_t blocks = (uint32_t) graph->index.blocks;
    if (!search->owner_count)
        return;
    for (uint32_t i = 0; i < search->holder_count; i++)
        if (search->holders[i].node < blocks)
            search->place[search->holders[i].node] = 0;
    for (uint32_t i = 0; i < search->group->members; i++) {
        const uint32_t node = member_of(search, i);
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            const int field = field_in(graph, search->linked.inside, search->group, edge);
            if (target >= blocks)
                continue;
            if (group_at(search, target) != group_at(search, node))
                search->place[target] = 1;
            else
                set_edge(field >= 0 && down >> field & 1 ? search->found->is_down : search->found->is_use, edge);
        }
    }
    for (uint32_t i = 0, next = 0; i < search->holder_count; i++) {
        const struct holder *holder = &search->holders[i];
        const int is_owner = next < search->owner_count && search->owners[next] == i;
        next += (uint32_t) is_owner;
        for (uint32_t at = holder->first; at < holder->first + holder->pointers; at++)
            if (is_owner || holder->node >= blocks || !search->place[holder->node])
                set_edge(is_owner ? search->found->is_down : search->found->is_use, search->outer.all[at].edge);
    }
}

/* ---- the order of elements ---- */

/* As follow_links(), in the last container, if the node is one of it that was not met yet; what is met stands in `seen`. */
static uint32_t follow_last(const struct search *search, uint16_t fields, uint32_t node, uint32_t count)
{
    struct system system = {.fields = fields};
    const int is_new = search->found->of[node] == search->found->count && !search->label[search->place[node]];
    return is_new ? follow_links(search, &system, search->found->of, search->place[node], 1, search->seen, count) : count;
}

/* The same from all members to which the holder points, in their order in it. */
static uint32_t follow_all(const struct search *search, uint16_t fields, const struct holder *holder, uint32_t count)
{
    for (uint32_t at = holder->first; at < holder->first + holder->pointers; at++)
        count = follow_last(search, fields, member_at(search, at), count);
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

/* The last container's members in the order of its links: from where an entry leads, by those links by which most are met from there; where
   that is a guess, rather from one that comes first; where it leads not to half, as the pointers of a table do not, from all those of its
   first holder. The rest stand behind these. `owners`: of its entries. */
static void put_in_order(const struct search *search, const uint32_t *owners, uint32_t owner_count)
{
    const struct containers *found = search->found;
    const struct container *container = &found->all[found->count - 1];
    const struct outer *entries = found->entry_edges + container->first_entry;
    const struct holder *holder = owner_count ? &search->holders[*owners] : NULL;
    const uint32_t members = container->members, starts = owner_count < MOST_STARTS ? owner_count : MOST_STARTS;
    uint32_t *order = found->order + container->first, most = 0, count = 0, start = NO_NODE;
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
            count = from == NO_NODE ? follow_all(search, by, holder, 0) : follow_last(search, by, from, 0);
            for (uint32_t met = 0; met < count; met++)
                search->label[search->seen[met]] = 0;
            if (count > most) {
                most = count;
                fields = by;
                start = from;
            }
        }
    count = start == NO_NODE ? 0 : follow_last(search, fields, start, 0);
    count = holder ? follow_all(search, fields, holder, count) : count;
    for (int is_first = 1; is_first >= 0; is_first--)
        for (uint32_t i = 0; i < members && count < members; i++)
            if (!is_first || !(search->linked.hit[order[i]] & fields))
                count = follow_last(search, fields, order[i], count);
    for (uint32_t i = 0; i < count; i++)
        order[i] = member_of(search, search->seen[i]);
}

/* ---- a container of a whole group ---- */

static uint8_t shape_of(const struct search *search)
{
    unsigned several = 0, nested = 0;
    int has_table = 0;
    for (unsigned i = 0; i < search->system_count; i++) {
        several |= bits_of(search->systems[i].fields) > 1 && search->systems[i].has_two_below;
        nested += search->systems[i].firsts > search->group->members / 8 && bits_of(search->systems[i].fields) == 1;
    }
    for (uint32_t i = 0; i < search->owner_count; i++)
        has_table |= search->holders[search->owners[i]].is_table;
    if (has_table)
        return search->system_count > 2 ? SHAPE_LRU : SHAPE_HASH_TABLE;
    return several ? SHAPE_TREE : nested > 1 && search->system_count > 3 ? SHAPE_SKIP_LIST : SHAPE_LIST;
}

/* The holder's first pointer to a member of the last container that comes first by some of the links; where none does, to any. 0: no
   memory. */
static int enter_by(const struct search *search, struct container *container, const struct holder *holder)
{
    uint32_t first = UINT32_MAX;
    int is_first = 0;
    for (uint32_t at = holder->first; at < holder->first + holder->pointers && !is_first; at++) {
        const uint32_t target = member_at(search, at);
        if (search->found->of[target] != search->found->count)
            continue;
        for (unsigned i = 0; i < search->system_count; i++)
            is_first |= !(search->linked.hit[target] & search->systems[i].fields);
        first = first == UINT32_MAX || is_first ? at : first;
    }
    return add_entry(search->found, container, search->outer.all[first == UINT32_MAX ? holder->first : first]);
}

/* The one member that points to who holds the others, such as their table: a head that is as large as they are. NO_NODE: there is none. */
static uint32_t head_among(const struct search *search, const struct holder *holder)
{
    const struct graph *graph = search->graph;
    uint32_t head = NO_NODE;
    for (uint32_t i = 0; i < search->group->members; i++) {
        const uint32_t node = member_of(search, i);
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++)
            if (EDGE_ID(graph->to[edge]) == holder->node && node != head) {
                if (head != NO_NODE)
                    return NO_NODE;
                head = node;
            }
    }
    for (uint32_t at = holder->first; at < holder->first + holder->pointers && !holder->is_table; at++)
        if (member_at(search, at) == head)
            return NO_NODE;             /* an element that leads back */
    return head;
}

/* A head among the members is none, and holds the others with what it points to: its pointer to one of them; NO_NODE: there is none. */
static struct outer cut_head(struct search *search)
{
    const struct graph *graph = search->graph;
    struct outer head = {NO_NODE, 0};
    for (uint32_t i = 0; i < search->owner_count && i < MOST_OWNERS && head.node == NO_NODE; i++)
        if ((head.node = head_among(search, &search->holders[search->owners[i]])) != NO_NODE) {
            search->owners[0] = search->owners[i];
            search->owner_count = 1;
        }
    if (head.node == NO_NODE || !search->linked.of[head.node])
        return head;
    for (uint32_t edge = graph->offsets[head.node]; edge < graph->offsets[head.node + 1] && !head.edge; edge++)
        if (group_at(search, EDGE_ID(graph->to[edge])) == search->linked.of[head.node])
            head.edge = edge;
    search->linked.of[head.node] = 0;
    return head;
}

/* 0: no memory. */
static int make_whole(struct search *search)
{
    struct containers *found = search->found;
    struct container *container = new_container(found);
    if (!container)
        return 0;
    container->element_bytes = search->group->element_bytes;
    container->sure = search->sure;
    container->shape = shape_of(search);
    const struct outer head = cut_head(search);
    for (uint32_t i = 0; i < search->group->members; i++)
        if (!found->of[member_of(search, i)] && member_of(search, i) != head.node)
            add_member(found, member_of(search, i));
    for (uint32_t i = 0; i < search->owner_count; i++)
        if (!enter_by(search, container, &search->holders[search->owners[i]]))
            return 0;
    if (head.node != NO_NODE && !add_entry(found, container, head))
        return 0;
    put_in_order(search, search->owners, search->owner_count);
    return 1;
}

/* ---- several containers ---- */

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

/* Several lists that something connects: each first's tree goes to who holds the first. Returns 0 for no memory, 1, or 2: too few have a
   holder. `labels` are those of the system; so many members are met by it. */
static int make_parts(struct search *search, const struct system *system, uint32_t met_count)
{
    uint64_t held = 0;
    memset(search->seen, 0, (size_t) system->firsts * sizeof *search->seen);
    for (uint32_t i = 0; i < search->holder_count; i++) {
        const struct holder *holder = &search->holders[i];
        for (uint32_t at = holder->first; at < holder->first + holder->pointers; at++) {
            const uint32_t target = member_at(search, at);
            if (search->linked.hit[target] & system->fields)
                continue;
            const uint32_t label = search->label[search->place[target]] - 1;
            uint32_t *best = &search->seen[label];
            held += *best ? 0 : search->sizes[label];
            if (!*best || is_better(holder, &search->holders[*best - 1]))
                *best = i + 1;
        }
    }
    if (100 * held < SEVERAL_PERCENT * (uint64_t) search->group->members)
        return 2;
    uint32_t *heads = search->trees, *next = search->trees + search->holder_count;      /* by holder its trees; by tree the next */
    memset(heads, 0, (size_t) search->holder_count * sizeof *heads);
    for (uint32_t first = system->firsts; first-- > 0;)
        if (search->seen[first]) {
            next[first] = heads[search->seen[first] - 1];
            heads[search->seen[first] - 1] = first + 1;
        }
    for (uint32_t first = 0, place = 0; first < system->firsts; first++) {      /* where each tree begins in met[] */
        const uint32_t size = search->sizes[first];
        search->sizes[first] = place;
        place += size;
    }
    for (uint32_t i = 0; i < search->holder_count; i++) {
        struct container *container = heads[i] ? new_container(search->found) : NULL;
        if (!heads[i])
            continue;
        if (!container)
            return 0;
        container->element_bytes = search->group->element_bytes;
        container->sure = SURE_LIKELY;
        container->shape = search->holders[i].is_table ? SHAPE_HASH_TABLE : system->has_two_below ? SHAPE_TREE : SHAPE_LIST;
        for (uint32_t first = heads[i]; first; first = next[first - 1]) {
            const uint32_t end = first < system->firsts ? search->sizes[first] : met_count;
            for (uint32_t at = search->sizes[first - 1]; at < end; at++)
                add_member(search->found, member_of(search, search->met[at]));
        }
        if (!enter_by(search, container, &search->holders[i]))
            return 0;
        put_in_order(search, &i, 1);
    }
    return 1;
}

/* ---- group by group ---- */

/* A few blocks that others lead to by the same field are no list of their own. */
static int is_list(const struct search *search, uint32_t number)
{
    const struct cluster *group = &search->linked.groups[number - 1];
    int is_mutual = 0;
    for (unsigned i = 0; i < group->field_count; i++)
        is_mutual |= 5 * (uint64_t) group->fields[i].mutual >= 4 * (uint64_t) group->fields[i].edges;
    if (group->members >= LEAST_MEMBERS)
        return group->field_count != 0;
    if (group->members < LEAST_ALIKE || !group->element_bytes || !is_mutual)
        return 0;
    for (uint32_t at = search->outer.from[number - 1]; at < search->outer.from[number]; at++)
        if (search->outer.all[at].node < search->graph->index.blocks
            && field_in(search->graph, search->linked.inside, group, search->outer.all[at].edge) >= 0)
            return 0;
    return 1;
}

/* Walks a system, and what holders reach by it. `count`: how many elements are reached. 0: it was stopped. */
static int try_system(struct search *search, unsigned number, uint32_t *count)
{
    *count = walk_system(search, number);
    if (is_over(search->pace, search->group->members))
        return 0;
    reach_by(search, number);
    return 1;
}

/* 0: no memory, or it was stopped. */
static int settle_group(struct search *search, uint32_t number)
{
    uint32_t best = 0, most = 0, count;
    search->group = &search->linked.groups[number - 1];
    search->number = number;
    find_holders(search);
    list_links(search);
    find_systems(search);
    const uint16_t down = object_tree(search);
    for (unsigned i = 0; i < search->system_count; i++) {
        if (!try_system(search, i, &count))
            return 0;
        best = count > most ? i : best;
        most = count > most ? count : most;
    }
    if (!mark_requests(search))
        return 0;
    find_owners(search);
    if (down) {
        mark_uses(search, down);
        return 1;
    }
    if (!search->owner_count) {         /* by all fields: a list of lists begins with what none of them leads to */
        uint16_t *all = &search->systems[search->system_count].fields;
        *all = 0;
        for (unsigned i = 0; i < search->system_count; i++)
            *all |= search->systems[i].fields;
        if (!try_system(search, search->system_count, &count))
            return 0;
        find_owners(search);
    }
    if (!search->owner_count && 2 * most >= search->group->members) {
        walk_system(search, best);
        const int done = is_over(search->pace, search->group->members) ? 0 : make_parts(search, &search->systems[best], most);
        if (done < 2)
            return done;
    }
    if (!search->owner_count)
        guess_owners(search, 2 * most < search->group->members);
    return make_whole(search);
}

/* As large as the largest group needs it. 0: no memory. */
static int make_room(struct search *search)
{
    const struct linked *linked = &search->linked;
    for (uint32_t i = 0; i < linked->count; i++) {
        const uint64_t members = linked->groups[i].members, links = members * linked->groups[i].field_count;
        const uint64_t pointers = search->outer.from[i + 1] - search->outer.from[i];
        search->place_room = members + pointers > search->place_room ? members + pointers : search->place_room;
        search->link_room = links > search->link_room ? links : search->link_room;
        search->holder_room = pointers > search->holder_room ? pointers : search->holder_room;
    }
    search->label = lazy_numbers(search->place_room);
    search->sizes = lazy_numbers(search->place_room);
    search->trees = search->owners = lazy_numbers(search->place_room);
    search->seen = lazy_numbers(search->place_room);
    search->met = lazy_numbers(search->graph->index.blocks);
    search->links = dense_alloc((size_t) search->link_room * sizeof *search->links);
    search->holders = lazy_alloc((size_t) search->holder_room * sizeof *search->holders);
    return search->label && search->sizes && search->trees && search->seen && search->met && search->links && search->holders;
}

/* 0: no memory, or it was stopped. */
static int settle_groups(struct search *search)
{
    int done = make_room(search);
    for (uint32_t number = 1; number <= search->linked.count && done && !is_over(search->pace, 1); number++)
        if (is_list(search, number))
            done = settle_group(search, number);
    free_numbers(search->label, search->place_room);
    free_numbers(search->sizes, search->place_room);
    free_numbers(search->trees, search->place_room);
    free_numbers(search->seen, search->place_room);
    free_numbers(search->met, search->graph->index.blocks);
    lazy_free(search->links, (size_t) search->link_room * sizeof *search->links);
    lazy_free(search->holders, (size_t) search->holder_room * sizeof *search->holders);
    return done && !is_over(search->pace, 0);
}

/* Containers of the graph with the roots that it has now: thread-local ones from locals_from, stacks and registers from weak_from. Without
   slots there are none. NULL: no memory, or `is_asked` has said to stop. */
struct containers *heapx_containers_new(const struct graph *graph, const struct linked *linked, uint32_t locals_from, uint32_t weak_from,
                                        stop_call is_asked)
{
    struct pace pace = {.is_over = is_asked};
    struct containers *found = calloc(1, sizeof *found);
    struct search search = {.graph = graph, .linked = *linked, .weak_from = weak_from, .locals_from = locals_from, .pace = &pace,
                            .found = found};
    const uint64_t blocks = graph->index.blocks;
    if (!found)
        return NULL;
    found->blocks = blocks;
    found->edges = graph->edges;
    found->locals_from = locals_from;
    if (!graph->all_slots || !blocks)
        return found;
    found->of = dense_numbers(blocks);
    found->order = lazy_numbers(blocks);
    found->is_down = lazy_alloc((size_t) graph->edges / 8 + 1);
    found->is_use = lazy_alloc((size_t) graph->edges / 8 + 1);
    search.place = dense_numbers(blocks);
    search.linked.of = dense_numbers(blocks);     /* heads among the members are taken out */
    int done = found->of && found->order && found->is_down && found->is_use && search.place && search.linked.of;
    if (done)
        memcpy(search.linked.of, linked->of, (size_t) blocks * sizeof *linked->of);
    done = done && pointers_list(graph, search.linked.of, search.linked.count, 1, &pace, &search.outer)
           && tally_open(&search.places, LEAST_TALLY) && count_uses(&search) && settle_groups(&search) && settle_tables(&search);
    pointers_close(&search.outer);
    free_numbers(search.place, blocks);
    tally_close(&search.uses);
    tally_close(&search.places);
    free_numbers(search.linked.of, blocks);
    if (done && found->ordered > UINT32_MAX - graph->edges)     /* their edges would have no numbers */
        found->count = 0;
    if (!done)
        heapx_containers_free(found);
    return done ? found : NULL;
}
