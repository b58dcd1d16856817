/* Answers about containers, by their numbers; and who else points to their elements. */
#include "containers.h"

#include <stdlib.h>

/* ---- how they are made ---- */

struct container *new_container(struct containers *found)
{
    if (!has_room(&found->all, found->count, &found->room, sizeof *found->all))
        return NULL;
    found->all[found->count] = (struct container) {.first = found->ordered, .first_entry = found->entry_count};
    return &found->all[found->count++];
}

int add_entry(struct containers *found, struct container *container, struct outer outer)
{
    if (!has_room(&found->entry_edges, found->entry_count, &found->entry_room, sizeof outer))
        return 0;
    found->entry_edges[found->entry_count++] = outer;
    container->entries++;
    return 1;
}

void add_member(struct containers *found, uint32_t node)
{
    found->order[found->ordered++] = node;
    found->of[node] = found->count;
    found->all[found->count - 1].members++;
}

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

void heapx_containers_free(struct containers *containers)
{
    if (!containers)
        return;
    free(containers->all);
    free(containers->entry_edges);
    pointers_close(&containers->users);
    free_numbers(containers->of, containers->blocks);
    free_numbers(containers->order, containers->blocks);
    lazy_free(containers->is_down, (size_t) containers->edges / 8 + 1);
    lazy_free(containers->is_use, (size_t) containers->edges / 8 + 1);
    free(containers);
}

/* ---- answers ---- */

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

#define MOST_BUCKETS 128u               /* words from an entry on, */
#define LEAST_BUCKETS 8u                /* of which so many lead to elements, too */

int is_bucket(const struct graph *graph, const struct containers *containers, uint32_t number, const struct outer *entry)
{
    const uint32_t end = graph->offsets[entry->node + 1], most = entry->edge + MOST_BUCKETS;
    uint32_t buckets = 0;
    for (uint32_t edge = entry->edge; edge < end && edge < most && containers->all[number].shape == SHAPE_HASH_TABLE; edge++) {
        const uint32_t target = EDGE_ID(graph->to[edge]);
        buckets += target < graph->index.blocks && containers->of[target] == number + 1;
    }
    return buckets >= LEAST_BUCKETS;
}

/* (node, slot) of its entries, at most `room`; of a bucket UINT32_MAX. */
void heapx_container_entries(const struct graph *graph, const struct containers *containers, uint32_t number, uint64_t *out, uint64_t room)
{
    const struct container *container = &containers->all[number];
    for (uint32_t entry = 0; entry < container->entries && entry < room; entry++) {
        const struct outer *outer = &containers->entry_edges[container->first_entry + entry];
        out[2 * entry] = outer->node;
        out[2 * entry + 1] = is_bucket(graph, containers, number, outer) ? UINT32_MAX : slot_of(graph, outer->edge);
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

/* Whose the pointer is: the topmost node that owns its source and not the container. NO_NODE: the container's, its owner's, or that of what
   hangs off the same block as the container, such as the other parts of an entry of a hash table. */
static uint32_t user_above(const struct containers *found, uint32_t number, const uint32_t *owners, uint32_t container,
                           const uint32_t *above, unsigned count, uint32_t node, uint64_t *left)
{
    for (unsigned steps = 0; steps < MOST_STEPS && *left; steps++, --*left) {
        if (node == container || node == owners[container])
            return NO_NODE;
        const uint32_t up = owners[node];
        unsigned place = 0;
        while (place < count && above[place] != up && above[place] != node)
            place++;
        if (up == NO_NODE || place < count)
            return place < count && (above[place] == node || holds_container(found, number, up)) ? NO_NODE : node;
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
            user = holds_container(found, number, at->node) ? NO_NODE : user_above(found, number, owners, node, above, ups, at->node, left);
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
