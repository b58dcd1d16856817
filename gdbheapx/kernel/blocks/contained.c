/* Answers about containers, by their numbers; and who else points to their elements. */
#include "containers.h"

#include <stdlib.h>

void heapx_containers_free(struct containers *containers)
{
    if (containers)
        containers_close(containers);
    free(containers);
}

void heapx_groups_free(struct linked *linked)
{
    if (linked)
        linked_close(linked);
    free(linked);
}

/* What is linked in the graph, whatever its roots are; NULL: no memory, or `is_asked` has said to stop. */
struct linked *heapx_groups_new(const struct graph *graph, stop_call is_asked)
{
    struct pace pace = {.is_over = is_asked};
    struct linked *found = calloc(1, sizeof *found);
    const int done = found && linked_find(graph, &pace, found);
    if (!done)
        heapx_groups_free(found);
    return done ? found : NULL;
}

/* `of`: by block the number + 1 of the group that it is linked with. */
void heapx_groups_of(const struct linked *linked, uint32_t *of)
{
    if (linked->of)
        memcpy(of, linked->of, (size_t) linked->blocks * sizeof *of);
}

/* Containers of the graph with the roots that it has now; NULL as above. */
struct containers *heapx_containers_new(const struct graph *graph, const struct linked *linked, uint32_t locals_from, uint32_t weak_from,
                                        stop_call is_asked)
{
    struct pace pace = {.is_over = is_asked};
    struct containers *found = calloc(1, sizeof *found);
    const int done = found && containers_find(graph, linked, weak_from, locals_from, &pace, found);
    if (done && found->ordered > UINT32_MAX - graph->edges)     /* their edges would have no numbers */
        found->count = 0;
    if (!done)
        heapx_containers_free(found);
    return done ? found : NULL;
}

uint64_t heapx_containers_count(const struct containers *containers)
{
    return containers->count;
}

/* `of`: by block the number + 1 of its container. */
void heapx_containers_of(const struct containers *containers, uint32_t *of)
{
    if (containers->count)
        memcpy(of, containers->of, (size_t) containers->blocks * sizeof *of);
}

/* One container. */
void heapx_container_row(const struct graph *graph, struct containers *containers, uint32_t number, struct container_row *out)
{
    uint64_t sum = 0;
    struct container *container = &containers->all[number];
    for (uint32_t member = 0; !container->own_bytes && member < container->members; member++)
        sum += node_bytes(graph, containers->order[container->first + member]);
    container->own_bytes += sum;
    *out = (struct container_row) {.elements = container->members, .element_bytes = container->element_bytes, .entries = container->entries,
                                   .shape = container->shape, .sure = container->sure, .own_bytes = container->own_bytes};
}

/* (node, slot) of its entries, at most `room`. */
void heapx_container_entries(const struct graph *graph, const struct containers *containers, uint32_t number, uint64_t *out, uint64_t room)
{
    const struct container *container = &containers->all[number];
    for (uint32_t entry = 0; entry < container->entries && entry < room; entry++) {
        const struct outer *outer = &containers->entry_edges[container->first_entry + entry];
        out[2 * entry] = outer->node;
        out[2 * entry + 1] = slot_of(graph, outer->edge);
    }
}

/* Its elements from `first` on, in the order of its links: so many as there are, at most `room`. */
uint64_t heapx_container_members(const struct containers *containers, uint32_t number, uint64_t first, uint32_t *out, uint64_t room)
{
    const struct container *container = &containers->all[number];
    const uint64_t left = first < container->members ? container->members - first : 0, count = left < room ? left : room;
    if (count)
        memcpy(out, containers->order + container->first + first, (size_t) count * sizeof *out);
    return count;
}

/* ---- users ---- */

#define MOST_ABOVE 64u
#define MOST_STEPS 4096u

static int by_number(const void *one, const void *other)
{
    const uint32_t a = *(const uint32_t *) one, b = *(const uint32_t *) other;
    return (a > b) - (a < b);
}

/* Whose the pointer is: the topmost node that owns its source and not the container. NO_NODE: the container's, or its owner's. */
static uint32_t user_above(const uint32_t *owners, uint32_t container, const uint32_t *above, unsigned count, uint32_t node,
                           uint64_t *left)
{
    for (unsigned steps = 0; steps < MOST_STEPS && *left; steps++, --*left) {
        if (node == container || node == owners[container])
            return NO_NODE;
        const uint32_t up = owners[node];
        unsigned place = 0;
        while (place < count && above[place] != up && above[place] != node)
            place++;
        if (up == NO_NODE || place < count)
            return place < count && above[place] == node ? NO_NODE : node;
        node = up;
    }
    return node;
}

/* Who points to its elements beside those who hold it: (node, pointers), most first, at most `room`; `sums`: elements, their bytes, users.
   `owners`: of the tree, where it is `node`. `left`: steps up in it that all containers together may take. How many were written;
   NO_MEMORY; NOT_COUNTED: there were not enough steps left. */
int64_t heapx_container_users(const struct graph *graph, struct containers *found, uint32_t number, uint32_t node, const uint32_t *owners,
                              uint64_t *left, uint64_t *out, uint64_t room, uint64_t *sums)
{
    struct pace pace = {.is_over = NULL};
    if (!found->users.all && !pointers_list(graph, found->of, found->count, 0, &pace, &found->users))
        return NO_MEMORY;
    const struct outer *first = found->users.all + found->users.from[number], *end = found->users.all + found->users.from[number + 1];
    uint32_t *whose = malloc(2 * ((size_t) (end - first) + 1) * sizeof *whose), *used = whose + (end - first);
    uint32_t above[MOST_ABOVE], count = 0, last = NO_NODE, user = NO_NODE;
    unsigned ups = 0;
    uint64_t written = 0;
    if (!whose)
        return NO_MEMORY;
    for (uint32_t up = owners[node]; up != NO_NODE && ups < MOST_ABOVE; up = owners[up])
        above[ups++] = up;
    for (const struct outer *at = first; at < end; at++) {
        if (at->node != last)
            user = holds_container(found, number, at->node) ? NO_NODE : user_above(owners, node, above, ups, at->node, left);
        last = at->node;
        if (user != NO_NODE) {
            whose[count] = user;
            used[count++] = EDGE_ID(graph->to[at->edge]);
        }
    }
    if (!*left) {
        free(whose);
        return NOT_COUNTED;
    }
    qsort(whose, count, sizeof *whose, by_number);
    qsort(used, count, sizeof *used, by_number);
    for (uint32_t i = 0, pointers = 1; i < count; i++, pointers++) {
        if (!i || used[i] != used[i - 1]) {
            sums[0]++;
            sums[1] += node_bytes(graph, used[i]);
        }
        if (i + 1 < count && whose[i + 1] == whose[i])
            continue;
        sums[2]++;
        uint64_t place = written < room ? written++ : room;
        for (; place && out[2 * place - 1] < pointers; place--)
            if (place < room) {
                out[2 * place] = out[2 * place - 2];
                out[2 * place + 1] = out[2 * place - 1];
            }
        if (place < room) {
            out[2 * place] = whose[i];
            out[2 * place + 1] = pointers;
        }
        pointers = 0;
    }
    free(whose);
    return (int64_t) written;
}
