/* Who points into a group from outside, and which of them owns it. */
#include "container_search.h"

#include <stdlib.h>

#define ANY_WORD (UINT64_C(1) << 63)    /* of a node */
#define OWNING_PERCENT 90u              /* of the elements that the firsts reach which an owner points to */

/* ---- outside ---- */

int pointers_list(const struct graph *graph, const uint32_t *of, uint32_t groups, int with_stale, struct pace *pace,
                  struct pointers *pointers)
{
    *pointers = (struct pointers) {NULL, lazy_alloc(((size_t) groups + 2) * sizeof *pointers->from), groups};
    for (int is_counting = 1; pointers->from && is_counting >= 0; is_counting--) {
        for (uint32_t node = 0; node < graph->nodes && !is_over(pace, 1 + graph->offsets[node + 1] - graph->offsets[node]); node++)
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
    return pointers->from && !is_over(pace, 0);
}

void pointers_close(struct pointers *pointers)
{
    if (pointers->all)
        lazy_free(pointers->all, ((size_t) pointers->from[pointers->groups + 1] + 1) * sizeof *pointers->all);
    if (pointers->from)
        lazy_free(pointers->from, ((size_t) pointers->groups + 2) * sizeof *pointers->from);
    memset(pointers, 0, sizeof *pointers);
}

/* ---- holders ---- */


int find_holders(struct search *search, uint32_t number, uint32_t *count)
{
    const uint32_t end = search->outer.from[number];
    *count = 0;
    for (uint32_t at = outer_begin(search, number); at < end; at++) {
        const uint32_t node = search->outer.all[at].node;
        const uint8_t is_stale = owns_nothing(search->graph, search->outer.all[at].edge) != 0;
        if (*count && search->holders[*count - 1].node == node) {
            search->holders[*count - 1].pointers++;
            search->holders[*count - 1].is_stale &= is_stale;
            continue;
        }
        struct holder *holders = with_room(search->holders, *count, &search->holder_room, sizeof *holders);
        if (!holders)
            return 0;
        search->holders = holders;
        const int is_root = node >= search->locals_from;
        holders[(*count)++] = (struct holder) {.node = node, .first = at, .pointers = 1,
            .is_stack = node >= search->weak_from, .is_local = (uint8_t) is_root, .is_stale = is_stale,
            .is_variable = !is_root && node >= search->graph->index.blocks + search->graph->mapping_count};
    }
    return 1;
}

/* A word of the element where links stand leads back to who points to it: a ring's head lies there. */
static int is_headed_by(const struct graph *graph, const struct cluster *group, uint32_t element, uint32_t node)
{
    const uint32_t end = graph->offsets[element + 1];
    for (uint32_t edge = graph->offsets[element]; edge < end && slot_of(graph, edge) < MOST_LINK_SLOT; edge++)
        for (unsigned i = 0; EDGE_ID(graph->to[edge]) == node && i < group->field_count; i++)
            if (group->fields[i].slot == slot_of(graph, edge))
                return 1;
    return 0;
}

static uint8_t leads_back(const struct graph *graph, uint32_t element, uint32_t node)
{
    for (uint32_t edge = graph->offsets[element]; edge < graph->offsets[element + 1] && slot_of(graph, edge) < MOST_LINK_SLOT; edge++)
        if (EDGE_ID(graph->to[edge]) == node)
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

void reach_by(struct search *search, const struct cluster *group, unsigned system, uint32_t count)
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
                holder->is_led_back |= leads_back(graph, target, holder->node);
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

int count_uses(struct search *search)
{
    const uint32_t blocks = (uint32_t) search->graph->index.blocks, end = search->outer.from[search->linked.count];
    int done = tally_open(&search->uses, 1024);
    for (uint32_t at = 0; at < end && done; at++) {
        done = !is_over(search->pace, 1);
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

int mark_requests(struct search *search, uint32_t count)
{
    struct tally *places = &search->places;
    int done = tally_clear(places, count);
    for (int is_counting = 1; is_counting >= 0 && done; is_counting--)
        for (uint32_t i = 0; i < count && done; i++) {
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

static int is_live(const struct holder *holder)
{
    return !holder->is_stale;
}

static int is_variable(const struct holder *holder)
{
    return holder->is_variable;
}

uint32_t prefer_owners(const struct holder *holders, uint32_t *owners, uint32_t count, trait has)
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

uint32_t find_owners(const struct search *search, const struct cluster *group, uint32_t holder_count, uint32_t *owners, uint8_t *sure)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < holder_count; i++)
        if (search->holders[i].reached && 100 * (uint64_t) search->holders[i].reached >= OWNING_PERCENT * (uint64_t) group->members)
            owners[count++] = i;
    const uint32_t all = count;
    static const trait ROLES[] = {is_global, is_no_part, has_role, is_pure, is_single, is_lasting};
    for (unsigned i = 0; i < sizeof ROLES / sizeof *ROLES; i++)
        count = prefer_owners(search->holders, owners, count, ROLES[i]);
    *sure = count > 1 ? SURE_SHARED : all > 1 ? SURE_LIKELY : SURE_CERTAIN;
    return count;
}

/* Those of which an element knows, such as the last one of a tree whose root is held by none. */
static uint32_t find_known(const struct search *search, uint32_t holder_count, uint32_t *owners)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < holder_count; i++) {
        const struct holder *holder = &search->holders[i];
        int is_known = 0;
        for (uint32_t at = holder->first; at < holder->first + holder->pointers && !holder->is_stack && !is_known; at++)
            is_known = leads_back(search->graph, EDGE_ID(search->graph->to[search->outer.all[at].edge]), holder->node);
        if (is_known)
            owners[count++] = i;
    }
    return count;
}

/* Of a ring: who has one pointer, to an element that lacks what nine of ten have. */
static uint32_t find_dummies(const struct search *search, const struct cluster *group, uint32_t holder_count, uint32_t *owners)
{
    const struct graph *graph = search->graph;
    uint64_t edges = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < group->members; i++) {
        const uint32_t node = search->linked.order[group->first + i];
        edges += graph->offsets[node + 1] - graph->offsets[node];
    }
    for (uint32_t i = 0; i < holder_count; i++) {
        const uint32_t target = EDGE_ID(graph->to[search->outer.all[search->holders[i].first].edge]);
        const uint64_t here = graph->offsets[target + 1] - graph->offsets[target];
        if (!search->holders[i].is_stack && 10 * here * group->members <= 9 * edges - here)
            owners[count++] = i;
    }
    return count;
}

uint32_t guess_owners(const struct search *search, const struct cluster *group, uint32_t holder_count, int is_ring, uint32_t *owners,
                      uint8_t *sure)
{
    uint32_t count = find_known(search, holder_count, owners);
    if (!count && is_ring)
        count = find_dummies(search, group, holder_count, owners);
    const uint32_t likely = count;
    for (uint32_t i = 0; i < holder_count && !likely; i++)
        if (!is_ring || search->holders[i].pointers == 1)
            owners[count++] = i;
    static const trait SIGNS[] = {is_lasting, is_global, is_single, is_live, is_variable};
    for (unsigned i = 0; i < sizeof SIGNS / sizeof *SIGNS; i++)
        count = prefer_owners(search->holders, owners, count, SIGNS[i]);
    count = keep_rarest(search, owners, count);
    *sure = count > 1 ? SURE_SHARED : likely ? SURE_LIKELY : SURE_GUESS;
    return count;
}
