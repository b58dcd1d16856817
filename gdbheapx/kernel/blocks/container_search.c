/* Containers, and who holds each. What decides is not how many elements a pointer leads to, but that it leads to one that comes first in
   the order of the container's own links: a head, a root, a table of chains. All other pointers to elements belong to users.

   The fields of a group that lead to different elements are put together to systems, such as next, previous, or left and right. In each
   system an element that none of its fields leads to is a first; who points to firsts from where nine of ten elements are reached owns
   the container. Where several do, those lead that a first leads back to, that hold both ends, or that are tables. */
#include "container_search.h"

#include <stdlib.h>

#define LEAST_ALIKE 3u                  /* of one size, where links lead back */

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

/* Behind the systems, one of all their fields: a list of lists begins with what none of them leads to. */
static void join_systems(struct search *search)
{
    struct system *all = &search->systems[search->system_count];
    all->fields = 0;
    for (const struct system *one = search->systems; one < all; one++)
        all->fields |= one->fields;
}

/* 0: no memory, or it was stopped. */
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
        if (is_over(search->pace, group->members))
            return 0;
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
    if (!owner_count) {
        join_systems(search);
        walk_system(search, group, &search->systems[search->system_count], met);
        if (is_over(search->pace, group->members))
            return 0;
        reach_by(search, group, search->system_count, holder_count);
        owner_count = find_owners(search, group, holder_count, owners, &sure);
    }
    if (!owner_count && 2 * most >= group->members) {
        walk_system(search, group, &search->systems[best], met);
        if (is_over(search->pace, group->members))
            return 0;
        const int done = make_parts(search, group, &search->systems[best], holder_count, met, most);
        if (done < 2)
            return done;
    }
    if (!owner_count)
        owner_count = guess_owners(search, group, holder_count, 2 * most < group->members, owners, &sure);
    return make_whole(search, group, owners, owner_count, sure);
}

static int settle_groups(struct search *search)
{
    uint32_t *met = lazy_alloc((size_t) search->graph->index.blocks * sizeof *met + 8);
    int done = met != NULL;
    for (uint32_t number = 1; number <= search->linked.count && done && !is_over(search->pace, 1); number++)
        if (is_large_enough(&search->linked.groups[number - 1]) && is_apart(search, number))
            done = settle_group(search, number, met);
    lazy_free(met, (size_t) search->graph->index.blocks * sizeof *met + 8);
    return done && !is_over(search->pace, 0);
}

int containers_find(const struct graph *graph, const struct linked *linked, uint32_t weak_from, uint32_t locals_from, struct pace *pace,
                    struct containers *found)
{
    struct search search = {.graph = graph, .inside = linked->inside, .linked = *linked, .weak_from = weak_from,
                            .locals_from = locals_from, .pace = pace, .found = found};
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
    search.linked.of = dense_alloc(blocks * 4 + 8);     /* heads among the members are taken out */
    int done = found->of && found->order && found->is_down && found->is_use && search.place && search.linked.of;
    if (done)
        memcpy(search.linked.of, linked->of, blocks * 4);
    done = done && pointers_list(graph, search.linked.of, search.linked.count, 1, pace, &search.outer);
    done = done && tally_open(&search.places, LEAST_TALLY) && count_uses(&search) && settle_groups(&search) && settle_tables(&search);
    pointers_close(&search.outer);
    lazy_free(search.place, blocks * 4 + 8);
    lazy_free(search.links, (size_t) search.link_room * sizeof *search.links);
    free(search.label);
    free(search.sizes);
    free(search.trees);
    free(search.seen);
    free(search.holders);
    tally_close(&search.uses);
    tally_close(&search.places);
    lazy_free(search.linked.of, blocks * 4 + 8);
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
