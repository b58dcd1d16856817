/* Containers, and who holds each. What decides is not how many elements a pointer leads to, but that it leads to one that comes first in
   the order of the container's own links: a head, a root, a table of chains. All other pointers to elements belong to users.

   The fields of a group that lead to different elements are put together to systems, such as next, previous, or left and right. In each
   system an element that none of its fields leads to is a first; who points to firsts from where nine of ten elements are reached owns
   the container. Where several do, those lead that a first leads back to, that hold both ends, or that are tables. */
#include "containers.h"
#include "linked.h"
#include "tally.h"

#include <stdlib.h>

#define LEAST_MEMBERS 8u
#define LEAST_ALIKE 3u                  /* of one size, where links lead back */
#define MOST_SYSTEMS 8u
#define OWNING_PERCENT 90u              /* of the elements that the firsts reach which an owner points to */
#define SEVERAL_PERCENT 50u
#define TABLE_SHARE 4u                  /* a table points to one of so many elements */
#define LEAST_TABLE 16u
#define MOST_STARTS 8u                  /* entries from where members are put in order */
#define ANY_WORD (UINT64_C(1) << 63)    /* of a node */
#define MOST_OWNERS 4u                  /* that are asked for a head among the elements */

struct system {
    uint16_t fields;                    /* one bit each */
    uint32_t firsts;
    uint32_t leaf_least, leaf_most;     /* depths */
    uint8_t has_two_below;
};

/* Who points into the group from outside. */
struct holder {
    uint32_t node, first, pointers;     /* of outer[] */
    uint32_t reached;                   /* elements, by its best system */
    uint32_t to_firsts;                 /* pointers */
    uint16_t systems;                   /* one bit for each of which it has a first */
    uint8_t is_led_back, is_table, is_stack, is_local, is_variable, is_request;
};

struct search {
    const struct graph *graph;
    const uint16_t *inside;
    struct linked linked;
    uint32_t weak_from, locals_from;
    struct containers *found;
    struct pointers outer;              /* to groups */
    uint32_t *place;                    /* by block: its place in its group */
    uint32_t *links;                    /* of the group at hand, by place and field: the place that this leads to; NO_NODE: none */
    uint64_t link_room;
    uint8_t by_slot[MOST_LINK_FIELDS];  /* its fields as they stand in a member */
    uint32_t *label;                    /* by place: in the system at hand its first's place in sizes + 1 */
    uint32_t *sizes, *trees, *seen;     /* by place of a first; places */
    uint64_t scratch_room;
    struct holder *holders;
    uint32_t holder_room;
    struct tally uses;                  /* by node, and by kind of word */
    struct system systems[MOST_SYSTEMS];
    unsigned system_count;
};

/* ---- outside ---- */

static uint32_t group_at(const struct search *search, uint32_t node)
{
    return node < search->graph->index.blocks ? search->linked.of[node] : 0;
}

int pointers_list(const struct graph *graph, const uint32_t *of, uint32_t groups, int with_stale, struct pointers *pointers)
{
    *pointers = (struct pointers) {NULL, lazy_alloc(((size_t) groups + 2) * sizeof *pointers->from), groups};
    for (int is_counting = 1; pointers->from && is_counting >= 0; is_counting--) {
        for (uint32_t node = 0; node < graph->nodes; node++)
            for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
                if (edge + AHEAD < graph->edges)
                    __builtin_prefetch(&of[EDGE_ID(graph->to[edge + AHEAD])]);
                const uint32_t target = EDGE_ID(graph->to[edge]), group = target < graph->index.blocks ? of[target] : 0;
                if (!group || (node < graph->index.blocks && of[node] == group)
                    || (with_stale ? is_loose(graph, edge) : owns_nothing(graph, edge)))
                    continue;
                if (is_counting)
                    pointers->from[group + 1]++;
                else
                    pointers->all[pointers->from[group]++] = (struct outer) {node, edge};
            }
        for (uint32_t i = 1; is_counting && i <= groups + 1; i++)
            pointers->from[i] += pointers->from[i - 1];
        if (is_counting)
            pointers->all = dense_alloc(((size_t) pointers->from[groups + 1] + 1) * sizeof *pointers->all);
        if (!pointers->all)
            return 0;
    }
    return pointers->from != NULL;
}

void pointers_close(struct pointers *pointers)
{
    if (pointers->all)
        lazy_free(pointers->all, ((size_t) pointers->from[pointers->groups + 1] + 1) * sizeof *pointers->all);
    if (pointers->from)
        lazy_free(pointers->from, ((size_t) pointers->groups + 2) * sizeof *pointers->from);
    memset(pointers, 0, sizeof *pointers);
}

/* ---- links ---- */

/* The members that each leads to. */
static void list_links(struct search *search, uint32_t number, const struct cluster *group)
{
    const struct graph *graph = search->graph;
    const uint32_t *order = search->linked.order + group->first;
    memset(search->links, 0xff, (size_t) group->members * group->field_count * sizeof *search->links);
    for (uint32_t i = 0; i < group->members; i++)
        search->place[order[i]] = i;
    for (uint32_t i = 0; i < group->members; i++) {
        fetch_members(graph, &search->linked, search->place, (uint64_t) group->first + i);
        for (uint32_t edge = graph->offsets[order[i]]; edge < graph->offsets[order[i] + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            const int field = group_at(search, target) == number ? field_in(graph, search->inside, group, edge) : -1;
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
static inline uint32_t next_link(const struct search *search, const struct cluster *group, uint16_t fields, uint32_t place, unsigned *next)
{
    const uint32_t *links = search->links + (size_t) place * group->field_count;
    while (*next < group->field_count) {
        const unsigned field = search->by_slot[(*next)++];
        if (fields >> field & 1 && links[field] != NO_NODE && !search->label[links[field]])
            return links[field];
    }
    return NO_NODE;
}

/* ---- systems ---- */

static void find_systems(struct search *search, const struct cluster *group)
{
    uint32_t both[MOST_LINK_FIELDS][MOST_LINK_FIELDS] = {{0}};
    for (uint32_t i = 0; i < group->members; i++) {
        const uint16_t hit = search->linked.hit[search->linked.order[group->first + i]];
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
static uint32_t follow(const struct search *search, const struct cluster *group, struct system *system, const uint32_t *of, uint32_t place,
                       uint32_t label, uint32_t *out, uint32_t count)
{
    const uint32_t *order = search->linked.order + group->first, number = of ? of[order[place]] : 0;
    search->label[place] = label;
    out[count++] = place;
    for (uint32_t at = count - 1, end = count, level = 0; at < end; end = count, level++)
        for (; at < end; at++) {
            const uint32_t before = count;
            unsigned next = 0;
            for (uint32_t below; (below = next_link(search, group, system->fields, out[at], &next)) != NO_NODE;) {
                if (of && of[order[below]] != number)
                    continue;
                __builtin_prefetch(&search->links[(size_t) below * group->field_count]);
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

static void forget(const struct search *search, const uint32_t *places, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        search->label[places[i]] = 0;
}

/* Walks a system's trees from their firsts: each element gets its tree's label; elements in the order that they are met in `met`.
   Returns how many are reached. */
static uint32_t walk_system(struct search *search, const struct cluster *group, struct system *system, uint32_t *met)
{
    uint32_t count = 0;
    *system = (struct system) {.fields = system->fields, .leaf_least = UINT32_MAX};
    memset(search->label, 0, (size_t) group->members * sizeof *search->label);
    for (uint32_t first = 0; first < group->members; first++) {
        if (search->linked.hit[search->linked.order[group->first + first]] & system->fields)
            continue;
        const uint32_t before = count, label = ++system->firsts;
        count = follow(search, group, system, NULL, first, label, met, count);
        search->sizes[label - 1] = count - before;
    }
    return count;
}

static unsigned bits_of(uint16_t bits)
{
    unsigned count = 0;
    for (; bits; bits &= (uint16_t) (bits - 1))
        count++;
    return count;
}

/* No field that leads back up does so more than twice to one element, and one does if the tree is deep: search trees and heaps. */
static int is_binary(struct search *search, const struct cluster *group, const struct system *down, int is_deep)
{
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
static uint16_t object_tree(struct search *search, const struct cluster *group, uint32_t *queue)
{
    struct system *down = NULL;
    int has_parents = 0;
    for (unsigned i = 0; i < group->field_count; i++)
        has_parents |= !group->fields[i].is_injective;
    for (unsigned i = 0; i < search->system_count; i++)
        if (bits_of(search->systems[i].fields) > 1 && (!down || bits_of(search->systems[i].fields) > bits_of(down->fields)))
            down = &search->systems[i];
    if (!down) {
        down = has_parents && search->system_count ? &search->systems[0] : NULL;
        if (!down)
            return 0;
    }
    walk_system(search, group, down, queue);
    if (!has_parents && down->firsts != 1)
        return 0;
    uint32_t power = 0;
    while (group->members >> power)
        power++;
    const int is_object = down->leaf_least != down->leaf_most && (has_parents || down->has_two_below)
                          && !(bits_of(down->fields) == 2 && is_binary(search, group, down, down->leaf_most > 2 * power + 3));
    return is_object ? down->fields : 0;
}

/* ---- holders ---- */

static uint32_t outer_begin(const struct search *search, uint32_t number)
{
    return search->outer.from[number - 1];
}

static int find_holders(struct search *search, uint32_t number, uint32_t *count)
{
    const uint32_t end = search->outer.from[number];
    *count = 0;
    for (uint32_t at = outer_begin(search, number); at < end; at++) {
        const uint32_t node = search->outer.all[at].node;
        if (*count && search->holders[*count - 1].node == node) {
            search->holders[*count - 1].pointers++;
            continue;
        }
        if (*count == search->holder_room) {
            const uint32_t room = search->holder_room ? 2 * search->holder_room : 1024;
            struct holder *more = realloc(search->holders, room * sizeof *more);
            if (!more)
                return 0;
            search->holders = more;
            search->holder_room = room;
        }
        const int is_root = node >= search->locals_from;
        search->holders[(*count)++] = (struct holder) {.node = node, .first = at, .pointers = 1,
            .is_stack = node >= search->weak_from, .is_local = (uint8_t) is_root,
            .is_variable = !is_root && node >= search->graph->index.blocks + search->graph->mapping_count};
    }
    return 1;
}

/* A word of the element where links stand leads back to who points to it: a ring's head lies there. */
static int is_headed_by(const struct graph *graph, const struct cluster *group, uint32_t element, uint32_t node)
{
    for (uint32_t edge = graph->offsets[element]; edge < graph->offsets[element + 1]; edge++)
        for (unsigned i = 0; EDGE_ID(graph->to[edge]) == node && i < group->field_count; i++)
            if (group->fields[i].slot == slot_of(graph, edge))
                return 1;
    return 0;
}

/* By one system: the heads of the holders' firsts, by label the node + 1. */
static void find_heads(const struct search *search, const struct cluster *group, const struct system *system, uint32_t count,
                       uint32_t *heads)
{
    const struct graph *graph = search->graph;
    memset(heads, 0, (size_t) system->firsts * sizeof *heads);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t at = search->holders[i].first; at < search->holders[i].first + search->holders[i].pointers; at++) {
            const uint32_t target = EDGE_ID(graph->to[search->outer.all[at].edge]);
            if (!(search->linked.hit[target] & system->fields) && is_headed_by(graph, group, target, search->holders[i].node))
                heads[search->label[search->place[target]] - 1] = search->holders[i].node + 1;
        }
}

/* By one system: what each holder's firsts reach. A first with a head comes second to all others. */
static void reach_by(struct search *search, const struct cluster *group, unsigned system, uint32_t count)
{
    const struct graph *graph = search->graph;
    const uint16_t fields = search->systems[system].fields;
    uint32_t *heads = search->trees;
    memset(search->seen, 0, (size_t) search->systems[system].firsts * sizeof *search->seen);
    find_heads(search, group, &search->systems[system], count, heads);
    for (uint32_t i = 0; i < count; i++) {
        struct holder *holder = &search->holders[i];
        uint32_t reached = 0, to_firsts = 0;
        for (uint32_t at = holder->first; at < holder->first + holder->pointers; at++) {
            const uint32_t target = EDGE_ID(graph->to[search->outer.all[at].edge]);
            if (search->linked.hit[target] & fields)
                continue;
            const uint32_t label = search->label[search->place[target]] - 1;
            if (heads[label] && heads[label] != holder->node + 1)
                continue;
            to_firsts++;
            if (search->seen[label] != i + 1) {
                search->seen[label] = i + 1;
                reached += search->sizes[label];
                for (uint32_t edge = graph->offsets[target]; edge < graph->offsets[target + 1] && !holder->is_led_back; edge++) {
                    if (slot_of(graph, edge) >= MOST_LINK_SLOT)
                        break;
                    holder->is_led_back = EDGE_ID(graph->to[edge]) == holder->node;
                }
            }
        }
        holder->systems |= to_firsts ? (uint16_t) (1u << system) : 0;
        holder->to_firsts = to_firsts > holder->to_firsts ? to_firsts : holder->to_firsts;
        holder->reached = reached > holder->reached ? reached : holder->reached;
        holder->is_table = holder->pointers >= LEAST_MEMBERS && holder->pointers * (uint64_t) TABLE_SHARE >= group->members;
    }
}

/* A word of blocks of one size. */
static uint64_t kind_of(const struct graph *graph, uint32_t node, uint32_t edge)
{
    return ((index_size(&graph->index, node) << 24) | slot_of(graph, edge)) + 1;
}

/* How often blocks, and words of their kinds, point to what is linked. 0: no memory. */
static int count_uses(struct search *search)
{
    const uint32_t blocks = (uint32_t) search->graph->index.blocks, end = search->outer.from[search->linked.count];
    int done = tally_open(&search->uses, 1024);
    for (uint32_t at = 0; at < end && done; at++) {
        const struct outer outer = search->outer.all[at];
        for (unsigned of_kind = 0; of_kind <= 1 && outer.node < blocks && !group_at(search, outer.node) && done; of_kind++) {
            uint32_t *uses = tally_at(&search->uses, of_kind ? kind_of(search->graph, outer.node, outer.edge) : ANY_WORD | outer.node);
            done = uses != NULL;
            if (done)
                *uses += 1;
        }
    }
    return done;
}

static uint32_t uses_of(const struct search *search, const struct holder *holder)
{
    const uint32_t *by_node = tally_find(&search->uses, ANY_WORD | holder->node);
    return by_node ? *by_node + *tally_find(&search->uses, kind_of(search->graph, holder->node, search->outer.all[holder->first].edge)) : 0;
}

/* Who works on elements does so often: those who point to what is linked least. */
static uint32_t keep_rarest(const struct search *search, uint32_t *owners, uint32_t count)
{
    uint32_t least = UINT32_MAX, kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t uses = uses_of(search, &search->holders[owners[i]]);
        kept = uses < least ? 0 : kept;
        if (uses <= least)
            owners[kept++] = owners[i];
        least = uses < least ? uses : least;
    }
    return kept;
}

/* A pointer at the same place of several blocks of this size leads to members: requests have that, and iterators. */
static int mark_requests(struct search *search, uint32_t count)
{
    struct tally places;
    int done = tally_open(&places, 64);
    for (int is_counting = 1; is_counting >= 0 && done; is_counting--)
        for (uint32_t i = 0; i < count && done; i++) {
            struct holder *holder = &search->holders[i];
            for (uint32_t at = holder->first; at < holder->first + holder->pointers && holder->node < search->graph->index.blocks; at++) {
                const uint64_t slot = slot_of(search->graph, search->outer.all[at].edge);
                const uint64_t key = (index_size(&search->graph->index, holder->node) << 24 | slot) + 1;
                uint32_t *times = is_counting ? tally_at(&places, key) : tally_find(&places, key);
                done = times != NULL;
                if (done && is_counting)
                    *times += at == holder->first || slot_of(search->graph, search->outer.all[at - 1].edge) != slot;
                else if (done)
                    holder->is_request |= *times > 1;
            }
        }
    tally_close(&places);
    return done;
}

/* ---- who owns ---- */

typedef int (*trait)(const struct holder *holder);

static int has_role(const struct holder *holder)
{
    return holder->is_led_back || holder->is_table || (holder->systems & (holder->systems - 1));
}

/* What an element leads to and knows it, as do others of its kind with theirs, is a part: the root of a map that an element has. */
static int is_no_part(const struct holder *holder)
{
    return !(holder->is_led_back && holder->is_request);
}

static int is_pure(const struct holder *holder)
{
    return 2 * holder->to_firsts >= holder->pointers;
}

static int is_single(const struct holder *holder)
{
    return !holder->is_request;
}

static int is_lasting(const struct holder *holder)
{
    return !holder->is_stack;
}

static int is_global(const struct holder *holder)
{
    return !holder->is_local;
}

static int is_variable(const struct holder *holder)
{
    return holder->is_variable;
}

/* Keeps of the owners those that have it, if some have. */
static uint32_t prefer(const struct holder *holders, uint32_t *owners, uint32_t count, trait has)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        kept += (uint32_t) (has(&holders[owners[i]]) != 0);
    if (!kept || kept == count)
        return count;
    kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (has(&holders[owners[i]]))
            owners[kept++] = owners[i];
    return kept;
}

/* Of those that reach enough. `owners`: room for all holders. */
static uint32_t find_owners(const struct search *search, const struct cluster *group, uint32_t holder_count, uint32_t *owners,
                            uint8_t *sure)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < holder_count; i++)
        if (search->holders[i].reached && 100 * (uint64_t) search->holders[i].reached >= OWNING_PERCENT * (uint64_t) group->members)
            owners[count++] = i;
    const uint32_t all = count;
    static const trait ROLES[] = {is_global, is_no_part, has_role, is_pure, is_single, is_lasting};
    for (unsigned i = 0; i < sizeof ROLES / sizeof *ROLES; i++)
        count = prefer(search->holders, owners, count, ROLES[i]);
    *sure = count > 1 ? SURE_SHARED : all > 1 ? SURE_LIKELY : SURE_CERTAIN;
    return count;
}

/* Of a ring, which has no first: who has one pointer, to an element that lacks what nine of ten have; else who has one. */
static uint32_t find_ring_owners(const struct search *search, const struct cluster *group, uint32_t holder_count, uint32_t *owners,
                                 uint8_t *sure)
{
    const struct graph *graph = search->graph;
    uint64_t edges = 0;
    for (uint32_t i = 0; i < group->members; i++) {
        const uint32_t node = search->linked.order[group->first + i];
        edges += graph->offsets[node + 1] - graph->offsets[node];
    }
    uint32_t count = 0, dummies = 0;
    for (int is_dummy = 1; is_dummy >= 0 && !count; is_dummy--)
        for (uint32_t i = 0; i < holder_count; i++) {
            const struct holder *holder = &search->holders[i];
            const uint32_t target = EDGE_ID(graph->to[search->outer.all[holder->first].edge]);
            const uint64_t here = graph->offsets[target + 1] - graph->offsets[target];
            if (holder->is_stack || (!is_dummy && holder->pointers > 1) || (is_dummy && 10 * here * group->members > 9 * edges - here))
                continue;
            owners[count++] = i;
            dummies += (uint32_t) is_dummy;
        }
    count = prefer(search->holders, owners, count, is_global);
    count = prefer(search->holders, owners, count, is_single);
    count = prefer(search->holders, owners, count, is_variable);
    count = keep_rarest(search, owners, count);
    *sure = count == 1 && dummies ? SURE_LIKELY : SURE_GUESS;
    return count;
}

/* ---- making them ---- */

static struct container *new_container(struct containers *found)
{
    if (found->count == found->room) {
        const uint32_t room = found->room ? 2 * found->room : 256;
        struct container *more = realloc(found->all, room * sizeof *more);
        if (!more)
            return NULL;
        found->all = more;
        found->room = room;
    }
    struct container *container = &found->all[found->count++];
    memset(container, 0, sizeof *container);
    container->first = found->ordered;
    container->first_entry = found->entry_count;
    return container;
}

static int add_entry(struct containers *found, struct container *container, struct outer outer)
{
    if (found->entry_count == found->entry_room) {
        const uint32_t room = found->entry_room ? 2 * found->entry_room : 256;
        struct outer *more = realloc(found->entry_edges, room * sizeof *more);
        if (!more)
            return 0;
        found->entry_edges = more;
        found->entry_room = room;
    }
    found->entry_edges[found->entry_count++] = outer;
    container->entries++;
    return 1;
}

static void add_member(struct containers *found, uint32_t node)
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

/* As follow(), in the last container, if the node is one of it that was not met yet. */
static uint32_t follow_last(const struct search *search, const struct cluster *group, uint16_t fields, uint32_t node, uint32_t *out,
                            uint32_t count)
{
    struct system system = {.fields = fields};
    const int is_new = search->found->of[node] == search->found->count && !search->label[search->place[node]];
    return is_new ? follow(search, group, &system, search->found->of, search->place[node], 1, out, count) : count;
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

/* One container of the whole group. */
static int make_whole(struct search *search, const struct cluster *group, uint32_t *owners, uint32_t owner_count, uint8_t sure)
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

/* Several lists that something connects: each first's tree goes to who holds the first. Returns 0 for no memory, 1, or 2: too few have a
   holder. `labels` are those of the system. */
static int make_parts(struct search *search, const struct cluster *group, const struct system *system, uint32_t holder_count,
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

/* Objects belong to what leads down to them: other pointers to them own nothing, if who owns the tree is known. A block that an object
   points to, such as its array of children, is part of it. */
static void mark_uses(struct search *search, const struct cluster *group, uint16_t down, uint32_t holder_count, const uint32_t *owners,
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

static int has_room(struct search *search, const struct cluster *group, uint32_t holders)
{
    const uint64_t need = (uint64_t) group->members + holders + 16, links = (uint64_t) group->members * group->field_count;
    uint32_t **all[] = {&search->label, &search->sizes, &search->trees, &search->seen};
    for (unsigned i = 0; need > search->scratch_room && i < 4; i++) {
        free(*all[i]);
        *all[i] = malloc((size_t) (need + need / 8) * sizeof **all[i]);
        if (!*all[i])
            return 0;
    }
    search->scratch_room = need > search->scratch_room ? need + need / 8 : search->scratch_room;
    if (links > search->link_room) {
        lazy_free(search->links, (size_t) search->link_room * sizeof *search->links);
        search->links = dense_alloc((size_t) links * sizeof *search->links);
        search->link_room = search->links ? links : 0;
    }
    return search->links != NULL;
}

static int is_large_enough(const struct cluster *group)
{
    int is_mutual = 0;
    for (unsigned i = 0; i < group->field_count; i++)
        is_mutual |= 5 * (uint64_t) group->fields[i].mutual >= 4 * (uint64_t) group->fields[i].edges;
    return group->field_count && (group->members >= LEAST_MEMBERS || (group->members >= LEAST_ALIKE && group->element_bytes && is_mutual));
}

/* A few blocks that others lead to by the same field are no list of their own. */
static int is_apart(const struct search *search, uint32_t number)
{
    const struct cluster *group = &search->linked.groups[number - 1];
    for (uint32_t at = outer_begin(search, number); group->members < LEAST_MEMBERS && at < search->outer.from[number]; at++)
        if (search->outer.all[at].node < search->graph->index.blocks
            && field_in(search->graph, search->inside, group, search->outer.all[at].edge) >= 0)
            return 0;
    return 1;
}

/* 0: no memory. */
static int settle_group(struct search *search, uint32_t number, uint32_t *met)
{
    const struct cluster *group = &search->linked.groups[number - 1];
    uint32_t holder_count, best = 0, most = 0;
    uint8_t sure;
    if (!find_holders(search, number, &holder_count) || !has_room(search, group, holder_count))
        return 0;
    list_links(search, number, group);
    find_systems(search, group);
    const uint16_t down = object_tree(search, group, met);
    for (unsigned i = 0; i < search->system_count; i++) {
        const uint32_t count = walk_system(search, group, &search->systems[i], met);
        reach_by(search, group, i, holder_count);
        if (count > most) {
            most = count;
            best = i;
        }
    }
    if (!mark_requests(search, holder_count))
        return 0;
    uint32_t *owners = search->trees, owner_count = find_owners(search, group, holder_count, owners, &sure);
    if (down) {
        mark_uses(search, group, down, holder_count, owners, owner_count);
        return 1;
    }
    if (!owner_count && 2 * most >= group->members) {
        walk_system(search, group, &search->systems[best], met);
        const int done = make_parts(search, group, &search->systems[best], holder_count, met, most);
        if (done < 2)
            return done;
    } else if (!owner_count) {
        owner_count = find_ring_owners(search, group, holder_count, owners, &sure);
    }
    if (!owner_count) {                 /* nobody knows: who points into it holds it */
        for (; owner_count < holder_count; owner_count++)
            owners[owner_count] = owner_count;
        owner_count = prefer(search->holders, owners, owner_count, is_lasting);
        owner_count = prefer(search->holders, owners, owner_count, is_global);
        sure = owner_count > 1 ? SURE_SHARED : SURE_GUESS;
    }
    return make_whole(search, group, owners, owner_count, sure);
}

static int settle_groups(struct search *search)
{
    uint32_t *met = lazy_alloc((size_t) search->graph->index.blocks * sizeof *met + 8);
    int done = met != NULL;
    for (uint32_t number = 1; number <= search->linked.count && done; number++)
        if (is_large_enough(&search->linked.groups[number - 1]) && is_apart(search, number))
            done = settle_group(search, number, met);
    lazy_free(met, (size_t) search->graph->index.blocks * sizeof *met + 8);
    return done;
}

/* ---- tables ---- */

/* A node with pointers to many blocks of one size that are not linked with it. */
struct table {
    uint32_t node, pointers, bytes;     /* usable bytes of each */
};

static uint32_t in_table(const struct search *search, const struct table *table, uint32_t edge)
{
    const struct graph *graph = search->graph;
    const uint32_t target = EDGE_ID(graph->to[edge]), group = group_at(search, target);
    return target < graph->index.blocks && target != table->node && !owns_nothing(graph, edge) && !is_sure(graph, edge)
           && index_size(&graph->index, target) == table->bytes && (!group || group != group_at(search, table->node))
           && !has_edge(search->found->is_use, edge);
}

/* The size of most of the blocks that the node points to, if there are enough; a variable's pointers stand close together. */
static int is_table(const struct search *search, struct table *table)
{
    const struct graph *graph = search->graph;
    uint32_t votes = 0, first = graph->offsets[table->node], end = graph->offsets[table->node + 1];
    if (end - first < LEAST_TABLE)
        return 0;
    for (uint32_t edge = first; edge < end; edge++) {
        const uint32_t target = EDGE_ID(graph->to[edge]);
        if (target >= graph->index.blocks)
            continue;
        const uint64_t size = index_size(&graph->index, target);
        if (!votes)
            table->bytes = (uint32_t) (size < UINT32_MAX ? size : 0);
        votes += size == table->bytes ? 1 : UINT32_MAX;
    }
    uint64_t low = UINT64_MAX, high = 0;
    for (uint32_t edge = first; edge < end; edge++)
        if (in_table(search, table, edge)) {
            low = slot_of(graph, edge) < low ? slot_of(graph, edge) : low;
            high = slot_of(graph, edge);
            table->pointers++;
        }
    return table->pointers >= LEAST_TABLE && (table->node < graph->index.blocks || TABLE_SHARE * (uint64_t) table->pointers > high - low);
}

static int by_pointers(const void *one, const void *other)
{
    const struct table *a = one, *b = other;
    return a->pointers != b->pointers ? (a->pointers < b->pointers ? 1 : -1) : (a->node > b->node) - (a->node < b->node);
}

static int find_tables(const struct search *search, struct table **tables, uint32_t *count)
{
    uint32_t room = 0;
    for (uint32_t node = 0; node < search->graph->nodes; node++) {
        struct table table = {node, 0, 0};
        if ((node >= search->locals_from) || !is_table(search, &table))
            continue;
        if (*count == room) {
            room = room ? 2 * room : 256;
            struct table *more = realloc(*tables, room * sizeof *more);
            if (!more)
                return 0;
            *tables = more;
        }
        (*tables)[(*count)++] = table;
    }
    if (*count)
        qsort(*tables, *count, sizeof **tables, by_pointers);
    return 1;
}

static uint32_t chain_length(const struct search *search, uint32_t node)
{
    const uint32_t number = search->linked.of[node];
    return number ? search->linked.groups[number - 1].members : 1;
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
            const uint32_t here = chain_length(search, EDGE_ID(graph->to[edge]));
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
                && field_in(graph, search->inside, links, edge) >= 0)
                add_member(found, target);
        }
    for (uint32_t i = 0; number && i < search->linked.groups[number - 1].members; i++) {
        const uint32_t chained = search->linked.order[search->linked.groups[number - 1].first + i];
        if (!found->of[chained])
            add_member(found, chained);
    }
}

/* Those of its elements that no larger one has are one container; it is the second holder of one that has the same. 0: no memory. */
static int settle_table(struct search *search, const struct table *table)
{
    const struct graph *graph = search->graph;
    struct containers *found = search->found;
    uint32_t fresh = 0, other = 0, same = 0, to_fresh = 0, to_same = 0;
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
    const int are_objects = fresh >= LEAST_TABLE && are_alike(search, table);
    if (fresh >= LEAST_TABLE && 2 * fresh >= table->pointers) {
        struct container *container = new_container(found);
        if (!container || !add_entry(found, container, (struct outer) {table->node, to_fresh}))
            return 0;
        container->element_bytes = table->bytes;
        const uint64_t words = table->node < graph->index.blocks ? index_size(&graph->index, table->node) / graph->word : 0;
        const uint32_t number = found->count;
        const struct cluster *links = are_objects ? NULL : chain_of(search, table);
        for (uint32_t edge = graph->offsets[table->node]; edge < graph->offsets[table->node + 1]; edge++)
            if (in_table(search, table, edge) && !found->of[EDGE_ID(graph->to[edge])])
                add_chain(search, EDGE_ID(graph->to[edge]), links);
        container = &found->all[number - 1];
        container->sure = SURE_CERTAIN;
        const int is_hash = container->members > table->pointers || 4 * (uint64_t) table->pointers < 3 * words;
        container->shape = is_hash ? SHAPE_HASH_TABLE : SHAPE_ARRAY;
        return 1;
    }
    struct container *container = same ? &found->all[other - 1] : NULL;
    if (!container || container->first_entry + container->entries != found->entry_count || container->shape < SHAPE_HASH_TABLE
        || 10 * (uint64_t) same < 9 * (uint64_t) table->pointers || 10 * (uint64_t) same < 9 * (uint64_t) container->members)
        return 1;
    container->sure = SURE_SHARED;
    return add_entry(found, container, (struct outer) {table->node, to_same});
}

static int settle_tables(struct search *search)
{
    struct table *tables = NULL;
    uint32_t count = 0;
    int done = find_tables(search, &tables, &count);
    for (uint32_t i = 0; i < count && done; i++)
        done = settle_table(search, &tables[i]);
    free(tables);
    return done;
}

int containers_find(const struct graph *graph, const uint16_t *inside, uint32_t weak_from, uint32_t locals_from, struct containers *found)
{
    struct search search = {.graph = graph, .inside = inside, .weak_from = weak_from, .locals_from = locals_from, .found = found};
    const size_t blocks = (size_t) graph->index.blocks;
    memset(found, 0, sizeof *found);
    found->blocks = graph->index.blocks;
    found->edges = graph->edges;
    found->locals_from = locals_from;
    if (!graph->all_slots || !blocks)
        return 1;
    found->of = dense_alloc(blocks * 4 + 8);
    found->order = lazy_alloc(blocks * 4 + 8);
    found->is_down = lazy_alloc((size_t) graph->edges / 8 + 1);
    found->is_use = lazy_alloc((size_t) graph->edges / 8 + 1);
    search.place = dense_alloc(blocks * 4 + 8);
    int done = found->of && found->order && found->is_down && found->is_use && search.place && linked_find(graph, inside, &search.linked);
    done = done && pointers_list(graph, search.linked.of, search.linked.count, 1, &search.outer);
    done = done && count_uses(&search) && settle_groups(&search) && settle_tables(&search);
    pointers_close(&search.outer);
    lazy_free(search.place, blocks * 4 + 8);
    lazy_free(search.links, (size_t) search.link_room * sizeof *search.links);
    free(search.label);
    free(search.sizes);
    free(search.trees);
    free(search.seen);
    free(search.holders);
    tally_close(&search.uses);
    linked_close(&search.linked);
    return done;
}

void containers_close(struct containers *containers)
{
    const size_t blocks = (size_t) containers->blocks;
    free(containers->all);
    free(containers->entry_edges);
    pointers_close(&containers->users);
    if (containers->of)
        lazy_free(containers->of, blocks * 4 + 8);
    if (containers->order)
        lazy_free(containers->order, blocks * 4 + 8);
    if (containers->is_down)
        lazy_free(containers->is_down, (size_t) containers->edges / 8 + 1);
    if (containers->is_use)
        lazy_free(containers->is_use, (size_t) containers->edges / 8 + 1);
}
