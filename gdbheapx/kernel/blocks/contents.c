/* See contents.h. Equal ones are found in parts that fit into the CPU's cache, cut by the upper bits. */
#include "contents.h"

#include <stdlib.h>

#define PARTS 256u
#define PART_SHIFT 56

int contents_keep(struct contents *contents, uint32_t id, uint64_t hash)
{
    if (!has_dense_room(&contents->ids, contents->count, &contents->id_room, sizeof id)
        || !has_dense_room(&contents->hashes, contents->count, &contents->hash_room, sizeof hash))
        return 0;
    contents->hashes[contents->count] = hash;
    contents->ids[contents->count++] = id;
    return 1;
}

int contents_join(struct contents *contents, const struct contents *more, uint64_t id)
{
    for (uint64_t i = 0; i < more->count; i++)
        if (!contents_keep(contents, (uint32_t) (more->ids[i] + id), more->hashes[i]))
            return 0;
    return 1;
}

void contents_free(struct contents *contents)
{
    lazy_free(contents->hashes, (size_t) contents->hash_room * sizeof *contents->hashes);
    lazy_free(contents->ids, (size_t) contents->id_room * sizeof *contents->ids);
    memset(contents, 0, sizeof *contents);
}

/* Contents with their places, sorted by their upper bits: each part's equal ones are found by a table of its own. */
struct grouping {
    const struct contents *contents;
    const struct index *index;
    uint64_t least;
    struct copied *copied;
    uint32_t *groups;                   /* what is told */
    uint64_t *hashes;
    uint32_t *places;                   /* of each in `contents` */
    uint32_t *first;                    /* of each the place in its part of the one it is equal to */
    uint32_t *table;
    uint64_t table_places;
    uint64_t begins[PARTS + 1];
};

/* 0: no memory. */
static int cut_parts(struct grouping *grouping)
{
    const uint64_t *hashes = grouping->contents->hashes, count = grouping->contents->count;
    uint64_t next[PARTS] = {0}, most = 0;
    for (uint64_t i = 0; i < count; i++)
        next[hashes[i] >> PART_SHIFT] += hashes[i] != 0;
    for (unsigned part = 0; part < PARTS; part++) {
        most = next[part] > most ? next[part] : most;
        grouping->begins[part + 1] = grouping->begins[part] + next[part];
        next[part] = grouping->begins[part];
    }
    for (grouping->table_places = 16; grouping->table_places < 2 * most;)
        grouping->table_places *= 2;
    grouping->hashes = malloc(((size_t) count + 1) * sizeof *grouping->hashes);
    grouping->places = malloc(((size_t) count + 1) * sizeof *grouping->places);
    grouping->first = malloc(((size_t) most + 1) * 2 * sizeof *grouping->first);
    grouping->table = malloc((size_t) grouping->table_places * sizeof *grouping->table);
    if (!grouping->hashes || !grouping->places || !grouping->first || !grouping->table)
        return 0;
    for (uint64_t i = 0; i < count; i++)
        if (hashes[i]) {
            const uint64_t to = next[hashes[i] >> PART_SHIFT]++;
            grouping->hashes[to] = hashes[i];
            grouping->places[to] = (uint32_t) i;
        }
    return 1;
}

static void group_part(struct grouping *grouping, unsigned part)
{
    const uint64_t *hashes = grouping->hashes + grouping->begins[part], mask = grouping->table_places - 1;
    const uint32_t *places = grouping->places + grouping->begins[part], *ids = grouping->contents->ids;
    const uint32_t count = (uint32_t) (grouping->begins[part + 1] - grouping->begins[part]);
    uint32_t *first = grouping->first, *equal = first + count, *table = grouping->table;
    struct copied *copied = grouping->copied;
    memset(table, 0, (size_t) grouping->table_places * sizeof *table);
    memset(equal, 0, count * sizeof *equal);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = hashes[i];
        uint32_t number;
        while ((number = table[at & mask]) && hashes[number - 1] != hashes[i])
            at++;
        if (!number)
            table[at & mask] = number = i + 1;
        first[i] = number - 1;
        equal[number - 1]++;
    }
    uint64_t large = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (equal[i] < 2)
            continue;
        const uint64_t size = index_size(grouping->index, ids[places[i]]), bytes = equal[i] * size;
        if (equal[i] < LEAST_COPIES && bytes < LEAST_COPIED)
            continue;
        copied->contents++;
        copied->blocks += equal[i];
        copied->bytes += bytes;
        copied->spare += bytes - size;
        if (bytes < grouping->least)
            continue;
        if (copied->count < MOST_SAME)
            copied->same[copied->count++] = (struct same) {ids[places[i]], equal[i]};
        equal[i] = UINT32_MAX;              /* marks it */
        large++;
    }
    for (uint32_t i = 0; large && i < count; i++)
        if (equal[first[i]] == UINT32_MAX)
            grouping->groups[places[i]] = places[first[i]];
}

uint32_t *contents_groups(const struct contents *contents, const struct index *index, uint64_t least, struct copied *copied)
{
    struct grouping grouping = {.contents = contents, .index = index, .least = least, .copied = copied};
    uint32_t *groups = grouping.groups = malloc(((size_t) contents->count + 1) * sizeof *groups);
    const int done = groups && cut_parts(&grouping);
    if (done)
        memset(groups, 0xff, (size_t) contents->count * sizeof *groups);
    for (unsigned part = 0; part < PARTS && done; part++)
        group_part(&grouping, part);
    free(grouping.hashes);
    free(grouping.places);
    free(grouping.first);
    free(grouping.table);
    if (!done)
        free(groups);
    return done ? groups : NULL;
}
