/* Roots of leaks by size and by what they are: there may be millions of them. */
#include "leakroots.h"

#define FIRST_PLACES 256u

struct leak_group_row {
    struct leak_group group;
    uint64_t samples[LEAK_SAMPLES]; /* the first ones, NO_NODE behind the last */
};

struct leak_groups {
    struct leak_group_row *rows;
    uint32_t *places;               /* by hash: number of the row + 1, or 0 */
    uint64_t count, place_count;    /* place_count: a power of two, at least twice the count */
};

static uint64_t hash_of(const struct leak_group *group)
{
    return ((group->size_bytes * 2 + group->is_cycle) * 0x9e3779b97f4a7c15ull + group->label) * 0x9e3779b97f4a7c15ull >> 20;
}

static void enter(struct leak_groups *groups, uint32_t row)
{
    uint64_t place = hash_of(&groups->rows[row].group);
    while (groups->places[place & (groups->place_count - 1)])
        place++;
    groups->places[place & (groups->place_count - 1)] = row + 1;
}

static int grow(struct leak_groups *groups)
{
    const uint64_t places = groups->place_count ? 2 * groups->place_count : FIRST_PLACES;
    struct leak_group_row *rows = realloc(groups->rows, (size_t) (places / 2) * sizeof *rows);
    uint32_t *table = calloc((size_t) places, sizeof *table);
    groups->rows = rows ? rows : groups->rows;
    if (!rows || !table) {
        free(table);
        return 0;
    }
    free(groups->places);
    groups->places = table;
    groups->place_count = places;
    for (uint32_t row = 0; row < groups->count; row++)
        enter(groups, row);
    return 1;
}

/* The group of roots of this size and label; NULL: no memory. */
static struct leak_group_row *group_of(struct leak_groups *groups, const struct leak_group *key)
{
    const struct leak_group_row fresh = {*key, {NO_NODE, NO_NODE, NO_NODE, NO_NODE, NO_NODE}};
    if (2 * (groups->count + 1) > groups->place_count && !grow(groups))
        return NULL;
    for (uint64_t place = hash_of(key);; place++) {
        const uint32_t number = groups->places[place & (groups->place_count - 1)];
        if (!number)
            break;
        const struct leak_group *group = &groups->rows[number - 1].group;
        if (group->size_bytes == key->size_bytes && group->is_cycle == key->is_cycle && group->label == key->label)
            return &groups->rows[number - 1];
    }
    groups->rows[groups->count] = fresh;
    enter(groups, (uint32_t) groups->count);
    return &groups->rows[groups->count++];
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
    struct leak_groups groups = {NULL, NULL, 0, 0};
    int64_t count = 0;
    for (uint64_t i = 0; i < roots->root_count; i++) {
        const struct leak_start *root = &roots->roots[i];
        const uint32_t id = root->id & ~IS_CYCLE;
        const uint64_t size = index_size(&graph->index, id);
        const struct leak_group key = {.size_bytes = size, .is_cycle = (root->id & IS_CYCLE) != 0, .label = labels ? labels[i] : 0};
        struct leak_group_row *row = group_of(&groups, &key);
        if (!row) {
            count = NO_MEMORY;
            break;
        }
        if (row->group.roots < LEAK_SAMPLES)
            row->samples[row->group.roots] = id;
        row->group.roots++;
        row->group.blocks_behind += root->blocks - 1;
        row->group.bytes_behind += root->bytes - size;
    }
    if (!count) {
        count = (int64_t) groups.count;
        if (room)
            memcpy(out, groups.rows, (size_t) (room < groups.count ? room : groups.count) * sizeof *out);
    }
    free(groups.rows);
    free(groups.places);
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
