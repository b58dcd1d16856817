/* Who points into a group from outside, and which of them owns it. */
#include "container_group.h"

#define ANY_WORD (UINT64_C(1) << 63)    /* of a node */
#define OWNING_PERCENT 90u              /* of the elements that the firsts reach which an owner points to */

/* ---- holders ---- */

void find_holders(struct search *search)
{
    const uint32_t end = search->outer.from[search->number];
    uint32_t count = 0;
    for (uint32_t at = search->outer.from[search->number - 1]; at < end; at++) {
        const uint32_t node = search->outer.all[at].node;
        const uint8_t is_stale = owns_nothing(search->graph, search->outer.all[at].edge) != 0;
        if (count && search->holders[count - 1].node == node) {
            search->holders[count - 1].pointers++;
            search->holders[count - 1].is_stale &= is_stale;
            continue;
        }
        const int is_root = node >= search->locals_from;
        search->holders[count++] = (struct holder) {.node = node, .first = at, .pointers = 1,
            .is_stack = node >= search->weak_from, .is_local = (uint8_t) is_root, .is_stale = is_stale,
            .is_variable = !is_root && node >= search->graph->index.blocks + search->graph->mapping_count};
    }
    search->holder_count = count;
}

/* A word of the element leads back to who points to it. `group`: one where links stand: a ring's head lies there; NULL: any. */
static uint8_t leads_back(const struct graph *graph, const struct cluster *group, uint32_t element, uint32_t node)
{
    const uint32_t end = graph->offsets[element + 1];
    for (uint32_t edge = graph->offsets[element]; edge < end && slot_of(graph, edge) < MOST_LINK_SLOT; edge++) {
        if (EDGE_ID(graph->to[edge]) != node)
            continue;
        if (!group)
            return 1;
        for (unsigned i = 0; i < group->field_count; i++)
            if (group->fields[i].slot == slot_of(graph, edge))
                return 1;
    }
    return 0;
}

void reach_by(struct search *search, unsigned system)
{
    const struct graph *graph = search->graph;
    const uint16_t fields = search->systems[system].fields;
    const size_t bytes = (size_t) search->systems[system].firsts * sizeof *search->seen;
    uint32_t *heads = search->trees;        /* by label the node + 1 of the first's head */
    memset(search->seen, 0, bytes);
    memset(heads, 0, bytes);
    for (uint32_t i = 0; i < search->holder_count; i++) {
        const struct holder *holder = &search->holders[i];
        for (uint32_t at = holder->first; at < holder->first + holder->pointers; at++) {
            const uint32_t target = member_at(search, at);
            if (!(search->linked.hit[target] & fields) && leads_back(graph, search->group, target, holder->node))
                heads[search->label[search->place[target]] - 1] = holder->node + 1;
        }
    }
    for (uint32_t i = 0; i < search->holder_count; i++) {
        struct holder *holder = &search->holders[i];
        uint32_t reached = 0, to_firsts = 0;
        for (uint32_t at = holder->first; at < holder->first + holder->pointers; at++) {
            const uint32_t target = member_at(search, at);
            if (search->linked.hit[target] & fields)
                continue;
            const uint32_t label = search->label[search->place[target]] - 1;
            if (heads[label] && heads[label] != holder->node + 1)
                continue;
            to_firsts++;
            if (search->seen[label] != i + 1) {
                search->seen[label] = i + 1;
                reached += search->sizes[label];
                holder->is_led_back |= leads_back(graph, NULL, target, holder->node);
            }
        }
        holder->systems |= to_firsts ? (uint16_t) (1u << system) : 0;
        holder->to_firsts = to_firsts > holder->to_firsts ? to_firsts : holder->to_firsts;
        holder->reached = reached > holder->reached ? reached : holder->reached;
        holder->is_table = holder->pointers >= LEAST_MEMBERS && holder->pointers * (uint64_t) TABLE_SHARE >= search->group->members;
    }
}

/* A word of blocks of one size. */
static uint64_t kind_of(const struct graph *graph, uint32_t node, uint32_t edge)
{
    return ((index_size(&graph->index, node) << 24) | slot_of(graph, edge)) + 1;
}

int count_uses(struct search *search)
{
    const uint32_t blocks = (uint32_t) search->graph->index.blocks, end = search->outer.from[search->linked.count];
    if (!tally_open(&search->uses, 1024))
        return 0;
    for (uint32_t at = 0; at < end && !is_over(search->pace, 1); at++) {
        const struct outer outer = search->outer.all[at];
        if (outer.node >= blocks || group_at(search, outer.node))
            continue;
        const uint64_t keys[] = {ANY_WORD | outer.node, kind_of(search->graph, outer.node, outer.edge)};
        for (unsigned i = 0; i < 2; i++) {
            uint32_t *uses = tally_at(&search->uses, keys[i]);
            if (!uses)
                return 0;
            *uses += 1;
        }
    }
    return !is_over(search->pace, 0);
}

static uint32_t uses_of(const struct search *search, const struct holder *holder)
{
    const uint32_t *by_node = tally_find(&search->uses, ANY_WORD | holder->node);
    return by_node ? *by_node + *tally_find(&search->uses, kind_of(search->graph, holder->node, search->outer.all[holder->first].edge)) : 0;
}

int mark_requests(struct search *search)
{
    struct tally *places = &search->places;
    int done = tally_clear(places, search->holder_count);
    for (int is_counting = 1; is_counting >= 0 && done; is_counting--)
        for (uint32_t i = 0; i < search->holder_count && done; i++) {
            struct holder *holder = &search->holders[i];
            for (uint32_t at = holder->first; at < holder->first + holder->pointers && holder->node < search->graph->index.blocks; at++) {
                const uint64_t slot = slot_of(search->graph, search->outer.all[at].edge);
                const uint64_t key = kind_of(search->graph, holder->node, search->outer.all[at].edge);
                uint32_t *times = is_counting ? tally_at(places, key) : tally_find(places, key);
                done = times != NULL;
                if (done && is_counting)
                    *times += at == holder->first || slot_of(search->graph, search->outer.all[at - 1].edge) != slot;
                else if (done)
                    holder->is_request |= *times > 1;
            }
        }
    return done;
}

/* ---- who owns ---- */

int has_role(const struct holder *holder)
{
    return holder->is_led_back || holder->is_table || (holder->systems & (holder->systems - 1));
}

/* By what one is rather an owner than another. NO_PART: what an element leads to and knows it, as do others of its kind with theirs, is a
   part: the root of a map that an element has. */
enum { GLOBAL = 1, NO_PART = 2, ROLE = 4, PURE = 8, SINGLE = 16, LASTING = 32, LIVE = 64, VARIABLE = 128 };

static unsigned traits_of(const struct holder *holder)
{
    return (holder->is_local ? 0 : GLOBAL)
           | (holder->is_led_back && holder->is_request ? 0 : NO_PART)
           | (has_role(holder) ? ROLE : 0)
           | (2 * holder->to_firsts >= holder->pointers ? PURE : 0)
           | (holder->is_request ? 0 : SINGLE)
           | (holder->is_stack ? 0 : LASTING)
           | (holder->is_stale ? 0 : LIVE)
           | (holder->is_variable ? VARIABLE : 0);
}

/* Keeps of the owners those that have the first trait, if some have; of these those that have the next one. */
static void prefer_owners(struct search *search, const uint8_t *traits, size_t trait_count)
{
    for (size_t trait = 0; trait < trait_count; trait++) {
        uint32_t having = 0, kept = 0;
        for (uint32_t i = 0; i < search->owner_count; i++)
            having += (traits_of(&search->holders[search->owners[i]]) & traits[trait]) != 0;
        for (uint32_t i = 0; i < search->owner_count && having; i++)
            if (traits_of(&search->holders[search->owners[i]]) & traits[trait])
                search->owners[kept++] = search->owners[i];
        search->owner_count = having ? kept : search->owner_count;
    }
}

void find_owners(struct search *search)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < search->holder_count; i++) {
        const uint64_t reached = search->holders[i].reached;
        if (reached && 100 * reached >= OWNING_PERCENT * (uint64_t) search->group->members)
            search->owners[all++] = i;
    }
    search->owner_count = all;
    static const uint8_t ROLES[] = {GLOBAL, NO_PART, ROLE, PURE, SINGLE, LASTING};
    prefer_owners(search, ROLES, sizeof ROLES);
    search->sure = search->owner_count > 1 ? SURE_SHARED : all > 1 ? SURE_LIKELY : SURE_CERTAIN;
}

/* An element knows it, such as the last one of a tree whose root is held by none. */
static int is_known(const struct search *search, const struct holder *holder)
{
    int is_known = 0;
    for (uint32_t at = holder->first; at < holder->first + holder->pointers && !holder->is_stack && !is_known; at++)
        is_known = leads_back(search->graph, NULL, member_at(search, at), holder->node);
    return is_known;
}

/* Of a ring: who has one pointer, to an element that lacks what nine of ten have. `edges`: of all elements. */
static int is_dummy(const struct search *search, const struct holder *holder, uint64_t edges)
{
    const uint32_t *from = search->graph->offsets + member_at(search, holder->first);
    const uint64_t here = from[1] - from[0];
    return !holder->is_stack && 10 * here * search->group->members <= 9 * edges - here;
}

/* Who works on elements does so often: those who point to what is linked least. */
static void keep_rarest(struct search *search)
{
    uint32_t least = UINT32_MAX, kept = 0;
    for (uint32_t i = 0; i < search->owner_count; i++) {
        const uint32_t uses = uses_of(search, &search->holders[search->owners[i]]);
        kept = uses < least ? 0 : kept;
        if (uses <= least)
            search->owners[kept++] = search->owners[i];
        least = uses < least ? uses : least;
    }
    search->owner_count = kept;
}

void guess_owners(struct search *search, int is_ring)
{
    const uint32_t *offsets = search->graph->offsets, *members = search->linked.order + search->group->first;
    uint64_t edges = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < search->holder_count; i++)
        if (is_known(search, &search->holders[i]))
            search->owners[count++] = i;
    for (uint32_t i = 0; i < search->group->members && !count && is_ring; i++)
        edges += offsets[members[i] + 1] - offsets[members[i]];
    for (uint32_t i = 0, none = !count && is_ring; i < search->holder_count && none; i++)
        if (is_dummy(search, &search->holders[i], edges))
            search->owners[count++] = i;
    const uint32_t likely = count;
    for (uint32_t i = 0; i < search->holder_count && !likely; i++)
        if (!is_ring || search->holders[i].pointers == 1)
            search->owners[count++] = i;
    search->owner_count = count;
    static const uint8_t SIGNS[] = {LASTING, GLOBAL, SINGLE, LIVE, VARIABLE};
    prefer_owners(search, SIGNS, sizeof SIGNS);
    keep_rarest(search);
    search->sure = search->owner_count > 1 ? SURE_SHARED : likely ? SURE_LIKELY : SURE_GUESS;
}
