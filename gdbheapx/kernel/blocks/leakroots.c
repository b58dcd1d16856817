/* Where leaks begin: one block for each group of leaked blocks that no other leaked block points to, in two passes.

   Pass 1 marks from leaked blocks that no leaked block points to, then from each that is still without a mark, and remembers every start.
   Pass 2 takes these starts in reverse order and marks anew: a start that has its mark by then is led to by a later one, and is none. What
   it marks from each start sums up to all that is leaked, each byte once.

   A container that is leaked as a whole is one node, by its first element: its links count for nothing, nor do pointers of users, who would
   lead to all of it. Who holds it leads to it. */
#include "containers.h"
#include "marks.h"
#include "tally.h"

enum { STEP_PREDECESSORS, STEP_FREE_STARTS, STEP_OTHER_STARTS, STEP_AGAIN, STEP_OVER };

#define IS_CYCLE (1u << 31)         /* beside the id */

struct leak_start {
    uint32_t id;
    uint32_t blocks;
    uint64_t bytes;                 /* itself and what hangs behind it */
};

struct leak_roots {
    struct spread spread;
    uint64_t *leaked, *pointed;     /* one bit a block: it is leaked; a leaked block points to it */
    const struct containers *containers;    /* those of which all is leaked are one node each, their first element; NULL: there are none */
    uint8_t *is_lost;               /* by container: all of it is leaked */
    uint8_t *left_out;              /* one bit an edge: of a user of such a container */
    /* spread.marked: at the end the bits of the roots */
    uint32_t *starts;
    uint64_t start_count, start_room;
    struct leak_start *roots;
    uint64_t root_count, root_room;
    unsigned step;
    uint64_t next;
    int draining;
    struct reached reached;
};

#define LEADS_BACK 2u                   /* of a container that is leaked: others of its elements lead to the first */

static void leak_roots_free(struct leak_roots *roots)
{
    spread_close(&roots->spread);
    free(roots->leaked);
    free(roots->is_lost);
    free(roots->left_out);
    free(roots->pointed);
    free(roots->starts);
    free(roots->roots);
    free(roots);
}

/* The container of which all is leaked and the block an element; NULL: there is none. */
static const struct container *lost_of(const struct leak_roots *roots, uint64_t id)
{
    const uint32_t number = roots->is_lost ? roots->containers->of[id] : 0;
    return number && roots->is_lost[number - 1] ? &roots->containers->all[number - 1] : NULL;
}

static int is_holder(const struct containers *containers, const struct container *container, uint32_t node)
{
    for (uint32_t i = 0; i < container->entries && container->sure <= SURE_LIKELY; i++)
        if (containers->entry_edges[container->first_entry + i].node == node)
            return 1;
    return 0;
}

/* 0: no memory. */
static int find_lost(const struct graph *graph, struct leak_roots *roots)
{
    const struct containers *containers = roots->containers;
    roots->is_lost = calloc((size_t) containers->count + 1, 1);
    roots->left_out = calloc((size_t) graph->edges / 8 + 1, 1);
    if (!roots->is_lost || !roots->left_out)
        return 0;
    for (uint32_t number = 0; number < containers->count; number++) {
        const struct container *container = &containers->all[number];
        uint32_t lost = 0;
        while (lost < container->members && has_bit(roots->leaked, containers->order[container->first + lost]))
            lost++;
        roots->is_lost[number] = lost == container->members;
    }
    for (uint32_t node = 0; node < graph->index.blocks; node++)
        for (uint32_t edge = has_bit(roots->leaked, node) ? graph->offsets[node] : UINT32_MAX; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            const struct container *lost = target < graph->index.blocks ? lost_of(roots, target) : NULL;
            if (lost && lost_of(roots, node) != lost && !is_holder(containers, lost, node))
                set_edge(roots->left_out, edge);
        }
    roots->spread.left_out = roots->left_out;
    return 1;
}

/* The marks are made. `containers`: of the graph, or NULL. 0: no memory. */
int heapx_leak_roots_open(struct graph *graph, const struct containers *containers)
{
    const size_t words = (size_t) graph->nodes / 64 + 1;
    struct leak_roots *roots = calloc(1, sizeof *roots);
    if (!roots)
        return 0;
    if (graph->marks->leak_roots)
        leak_roots_free(graph->marks->leak_roots);
    graph->marks->leak_roots = roots;
    graph->marks->free_leak_roots = leak_roots_free;
    roots->leaked = calloc(words, 8);
    roots->pointed = calloc(words, 8);
    if (!roots->leaked || !roots->pointed || !spread_open(&roots->spread, graph->nodes))
        return 0;
    for (size_t i = 0; i < words; i++)
        roots->leaked[i] = leaked_of(graph->marks, i);
    for (uint64_t node = graph->index.blocks; node < words * 64; node++)    /* only blocks */
        clear_bit(roots->leaked, node);
    roots->containers = containers && containers->count ? containers : NULL;
    return !roots->containers || find_lost(graph, roots);
}

static uint32_t first_of(const struct leak_roots *roots, const struct container *container)
{
    return roots->containers->order[container->first];
}

static void find_predecessors(const struct graph *graph, struct leak_roots *roots, uint64_t id)
{
    const struct container *from = lost_of(roots, id);
    for (uint32_t edge = graph->offsets[id]; edge < graph->offsets[id + 1]; edge++) {
        const uint32_t target = EDGE_ID(graph->to[edge]);
        const struct container *to = target < graph->index.blocks ? lost_of(roots, target) : NULL;
        if (to && to == from && target == first_of(roots, to))
            roots->is_lost[roots->containers->of[target] - 1] = LEADS_BACK;
        if (to && (to == from || has_edge(roots->left_out, edge)))
            continue;
        set_bit(roots->pointed, to ? first_of(roots, to) : target);
    }
}

static int add_start(struct leak_roots *roots, uint32_t id)
{
    if (!has_room(&roots->starts, roots->start_count, &roots->start_room, sizeof id))
        return 0;
    roots->starts[roots->start_count++] = id;
    return 1;
}

static int add_root(struct leak_roots *roots, uint32_t id)
{
    if (!has_room(&roots->roots, roots->root_count, &roots->root_room, sizeof *roots->roots))
        return 0;
    const struct container *lost = lost_of(roots, id);
    if (lost && id == first_of(roots, lost) && roots->is_lost[roots->containers->of[id] - 1] == LEADS_BACK)
        set_bit(roots->pointed, id);
    roots->roots[roots->root_count++] = (struct leak_start) {has_bit(roots->pointed, id) ? id | IS_CYCLE : id, 0, 0};
    return 1;
}

/* Marks what hangs behind what was pushed. 1: there is more; 0. */
static int go_on(const struct graph *graph, struct leak_roots *roots, double deadline)
{
    int more = spread_drain(graph, &roots->spread, RULES, roots->leaked, &roots->reached, deadline);
    if (!more && roots->step == STEP_AGAIN && roots->root_count) {
        roots->roots[roots->root_count - 1].blocks = (uint32_t) roots->reached.blocks;
        roots->roots[roots->root_count - 1].bytes = roots->reached.bytes;
    }
    roots->draining = more == 1;
    return more;
}

static int begin(const struct graph *graph, struct leak_roots *roots, uint32_t id, double deadline)
{
    const int is_again = roots->step == STEP_AGAIN;
    const struct container *lost = lost_of(roots, id);
    if (lost && !is_again && !is_marked(&roots->spread, first_of(roots, lost)))
        id = first_of(roots, lost);
    if (is_marked(&roots->spread, id))
        return 0;
    if (!(is_again ? add_root(roots, id) : add_start(roots, id)) || !spread_push(&roots->spread, id))
        return NO_MEMORY;
    for (uint32_t i = 0; lost && id == first_of(roots, lost) && i < lost->members; i++) {
        const uint32_t member = roots->containers->order[lost->first + i];
        if (!is_marked(&roots->spread, member) && !spread_push(&roots->spread, member))
            return NO_MEMORY;
    }
    memset(&roots->reached, 0, sizeof roots->reached);
    return go_on(graph, roots, deadline);
}

static int one(const struct graph *graph, struct leak_roots *roots, double deadline)
{
    const uint64_t next = roots->next++;
    const struct container *lost = has_bit(roots->leaked, next) && roots->step == STEP_FREE_STARTS ? lost_of(roots, next) : NULL;
    if (lost && first_of(roots, lost) != next)
        return 0;
    switch (roots->step) {
    case STEP_PREDECESSORS:
        if (has_bit(roots->leaked, next))
            find_predecessors(graph, roots, next);
        return 0;
    case STEP_FREE_STARTS:
        return has_bit(roots->leaked, next) && !has_bit(roots->pointed, next) ? begin(graph, roots, (uint32_t) next, deadline) : 0;
    case STEP_OTHER_STARTS:
        return has_bit(roots->leaked, next) ? begin(graph, roots, (uint32_t) next, deadline) : 0;
    default:
        return begin(graph, roots, roots->starts[roots->start_count - 1 - next], deadline);
    }
}

static void close_search(const struct graph *graph, struct leak_roots *roots)
{
    free(roots->starts);
    roots->starts = NULL;
    spread_shrink(&roots->spread);
    memset(roots->spread.marked, 0, ((size_t) graph->nodes / 64 + 1) * 8);
    for (uint64_t i = 0; 2 * i + 1 < roots->root_count; i++) {      /* the last start was asked first: by address, cycles last */
        const struct leak_start root = roots->roots[i];
        roots->roots[i] = roots->roots[roots->root_count - 1 - i];
        roots->roots[roots->root_count - 1 - i] = root;
    }
    for (uint64_t i = 0; i < roots->root_count; i++)
        mark(&roots->spread, roots->roots[i].id & ~IS_CYCLE);
}

/* Goes on. 1: there is more; 0: done; NO_MEMORY. */
int64_t heapx_leak_roots_slice(struct graph *graph, double seconds)
{
    struct leak_roots *roots = graph->marks->leak_roots;
    const double deadline = clock_now() + seconds;
    for (unsigned since = 0; roots->step < STEP_OVER; since++) {
        const uint64_t end = roots->step == STEP_AGAIN ? roots->start_count : graph->index.blocks;
        while (roots->step < STEP_AGAIN && !roots->draining && !(roots->next & 63) && roots->next < end && !roots->leaked[roots->next >> 6])
            roots->next += 64;
        int more = roots->draining ? go_on(graph, roots, deadline) : roots->next < end ? one(graph, roots, deadline) : 0;
        if (more)
            return more;
        if (!roots->draining && roots->next >= end) {
            roots->step++;
            roots->next = 0;
            if (roots->step == STEP_AGAIN)
                memset(roots->spread.marked, 0, ((size_t) graph->nodes / 64 + 1) * 8);
        }
        if (roots->step == STEP_OVER)
            close_search(graph, roots);
        if (since >= CHECK_CLOCK) {
            since = 0;
            if (clock_now() > deadline)
                return 1;
        }
    }
    return 0;
}

/* Each root, at most `room`. Returns how many there are in all. */
uint64_t heapx_leak_roots_result(const struct graph *graph, struct leak_root *out, uint64_t room)
{
    const struct leak_roots *roots = graph->marks->leak_roots;
    for (uint64_t i = 0; i < roots->root_count && i < room; i++) {
        const struct leak_start *root = &roots->roots[i];
        out[i] = (struct leak_root) {root->id & ~IS_CYCLE, (root->id & IS_CYCLE) != 0, root->blocks, root->bytes, i};
    }
    return roots->root_count;
}

/* ---- groups ---- */

/* Roots by size and by what they are: there may be millions of them. */
struct leak_group_row {
    struct leak_group group;
    uint64_t samples[LEAK_SAMPLES]; /* the first ones, NO_NODE behind the last */
};

struct leak_groups {
    struct tally sizes;             /* by size and whether it is a cycle, + 1: a number */
    struct tally numbers;           /* by that number and a label: the row + 1 */
    struct grown rows;
};

/* The group of roots like this one; NULL: no memory. */
static struct leak_group_row *group_of(struct leak_groups *groups, const struct leak_group *key)
{
    uint32_t *size = tally_at(&groups->sizes, (key->size_bytes << 1 | key->is_cycle) + 1);
    if (!size)
        return NULL;
    *size = *size ? *size : groups->sizes.used;
    uint32_t *number = tally_at(&groups->numbers, (uint64_t) *size << 32 | key->label);
    if (!number)
        return NULL;
    if (*number)
        return (struct leak_group_row *) groups->rows.items + *number - 1;
    struct leak_group_row *row = grown_add(&groups->rows, sizeof *row);
    if (row)
        *row = (struct leak_group_row) {*key, {NO_NODE, NO_NODE, NO_NODE, NO_NODE, NO_NODE}};
    *number = (uint32_t) groups->rows.count;
    return row;
}

/* The roots are found: their ids, of at most `room`. Returns how many there are. */
uint64_t heapx_leak_root_ids(const struct graph *graph, uint32_t *out, uint64_t room)
{
    const struct leak_roots *roots = graph->marks->leak_roots;
    for (uint64_t i = 0; i < roots->root_count && i < room; i++)
        out[i] = roots->roots[i].id & ~IS_CYCLE;
    return roots->root_count;
}

/* `labels`: what each root is, in the order of heapx_leak_root_ids; NULL: not known. `out`: of at most `room`
   groups. Returns how many there are, or NO_MEMORY. */
int64_t heapx_leak_groups(const struct graph *graph, const uint32_t *labels, struct leak_group_row *out, uint64_t room)
{
    const struct leak_roots *roots = graph->marks->leak_roots;
    struct leak_groups groups = {.rows = {NULL, 0, 0}};
    int done = tally_open(&groups.sizes, LEAST_TALLY) & tally_open(&groups.numbers, LEAST_TALLY);
    for (uint64_t i = 0; i < roots->root_count && done; i++) {
        const struct leak_start *root = &roots->roots[i];
        const uint32_t id = root->id & ~IS_CYCLE;
        const uint64_t size = index_size(&graph->index, id);
        const struct leak_group key = {.size_bytes = size, .is_cycle = (root->id & IS_CYCLE) != 0, .label = labels ? labels[i] : 0};
        struct leak_group_row *row = group_of(&groups, &key);
        done = row != NULL;
        if (!done)
            break;
        if (row->group.roots < LEAK_SAMPLES)
            row->samples[row->group.roots] = id;
        row->group.roots++;
        row->group.blocks_behind += root->blocks - 1;
        row->group.bytes_behind += root->bytes - size;
    }
    const int64_t count = done ? (int64_t) grown_copy(&groups.rows, sizeof *out, out, room) : NO_MEMORY;
    free(groups.rows.items);
    tally_close(&groups.sizes);
    tally_close(&groups.numbers);
    return count;
}

/* Of each block: 0: it is no root, 1: a root, 2: one to which blocks behind it lead. */
void heapx_leak_kinds(const struct graph *graph, const uint32_t *ids, uint64_t count, uint8_t *out)
{
    const struct leak_roots *roots = graph->marks->leak_roots;
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t id = ids[i];
        out[i] = !is_marked(&roots->spread, id) ? 0 : has_bit(roots->pointed, id) ? 2 : 1;
    }
}
