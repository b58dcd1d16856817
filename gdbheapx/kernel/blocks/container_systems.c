/* Links of a group, and the systems that its fields make together: walks over their trees, and whether these are objects. */
#include "container_search.h"

/* ---- links ---- */

void list_links(struct search *search, uint32_t number, const struct cluster *group)
{
    const struct graph *graph = search->graph;
    const uint32_t *order = search->linked.order + group->first;
    memset(search->links, 0xff, (size_t) group->members * group->field_count * sizeof *search->links);
    for (uint32_t i = 0; i < group->members; i++)
        search->place[order[i]] = i;
    for (uint32_t i = 0; i < group->members && !is_over(search->pace, 1); i++) {
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

void find_systems(struct search *search, const struct cluster *group)
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

uint32_t follow_links(const struct search *search, const struct cluster *group, struct system *system, const uint32_t *of, uint32_t place,
                      uint32_t label, uint32_t *out, uint32_t count)
{
    const uint32_t *order = search->linked.order + group->first, number = of ? of[order[place]] : 0;
    search->label[place] = label;
    out[count++] = place;
    for (uint32_t at = count - 1, end = count, level = 0; at < end; end = count, level++)
        for (; at < end && !is_over(search->pace, 1); at++) {
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

uint32_t walk_system(struct search *search, const struct cluster *group, struct system *system, uint32_t *met)
{
    uint32_t count = 0;
    *system = (struct system) {.fields = system->fields, .leaf_least = UINT32_MAX};
    memset(search->label, 0, (size_t) group->members * sizeof *search->label);
    for (uint32_t first = 0; first < group->members && !is_over(search->pace, 1); first++) {
        if (search->linked.hit[search->linked.order[group->first + first]] & system->fields)
            continue;
        const uint32_t before = count, label = ++system->firsts;
        count = follow_links(search, group, system, NULL, first, label, met, count);
        search->sizes[label - 1] = count - before;
    }
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

uint16_t object_tree(struct search *search, const struct cluster *group, uint32_t *queue)
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
