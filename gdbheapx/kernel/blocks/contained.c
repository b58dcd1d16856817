/* Answers about containers, by their numbers. */
#include "containers.h"
#include "links.h"

#include <stdlib.h>

void heapx_containers_free(struct containers *containers)
{
    if (containers)
        containers_close(containers);
    free(containers);
}

/* Containers of the graph, whose roots are split; NULL: no memory. */
struct containers *heapx_containers_new(const struct graph *graph, uint32_t locals_from, uint32_t weak_from)
{
    struct containers *found = calloc(1, sizeof *found);
    uint16_t *inside = dense_alloc((size_t) graph->edges * sizeof *inside + 8);
    int done = found && inside;
    if (done) {
        find_offsets(graph, inside);
        done = containers_find(graph, inside, weak_from, locals_from, found);
        if (found->ordered > UINT32_MAX - graph->edges)     /* their edges would have no numbers */
            found->count = 0;
    }
    lazy_free(inside, (size_t) graph->edges * sizeof *inside + 8);
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
void heapx_container_row(const struct graph *graph, const struct containers *containers, uint32_t number, struct container_row *out)
{
    const struct container *container = &containers->all[number];
    *out = (struct container_row) {.elements = container->members, .element_bytes = container->element_bytes, .entries = container->entries,
                                   .used_elements = container->used_members, .shape = container->shape, .sure = container->sure};
    for (uint32_t member = 0; member < container->members; member++)
        out->own_bytes += node_bytes(graph, containers->order[container->first + member]);
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
