/* See contents.h. Equal ones are found in parts that fit into the CPU's cache, cut by the upper bits. */
#include "contents.h"

#include <stdlib.h>

#define PARTS 256u
#define PART_SHIFT 56

static int grow(struct contents *contents)
{
    const uint64_t before = contents->room, room = before ? before + before / 2 : 4096;
    uint32_t *ids = dense_grow(contents->ids, (size_t) before * sizeof *ids, (size_t) room * sizeof *ids);
    if (!ids)
        return 0;
    contents->ids = ids;
    uint64_t *hashes = dense_grow(contents->hashes, (size_t) before * sizeof *hashes, (size_t) room * sizeof *hashes);
    if (!hashes)
        return 0;
    contents->hashes = hashes;
    contents->room = room;
    return 1;
}

int contents_keep(struct contents *contents, uint32_t id, uint64_t hash)
{
    if (contents->count == contents->room && !grow(contents))
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
    lazy_free(contents->hashes, (size_t) contents->room * sizeof *contents->hashes);
    lazy_free(contents->ids, (size_t) contents->room * sizeof *contents->ids);
    memset(contents, 0, sizeof *contents);
}

struct parts {
    uint64_t *hashes;
    uint32_t *places;                   /* of each in `contents` */
    uint32_t *first;                    /* of each the place in its part of the one it is equal to */
    uint32_t *table;
    uint64_t table_places;
    uint64_t begins[PARTS + 1];
};

static void parts_free(struct parts *parts)
{
    free(parts->hashes);
    free(parts->places);
    free(parts->first);
    free(parts->table);
}

/* 0: no memory. */
static int parts_cut(struct parts *parts, const struct contents *contents)
{
    uint64_t next[PARTS] = {0}, most = 0;
    for (uint64_t i = 0; i < contents->count; i++)
        next[contents->hashes[i] >> PART_SHIFT] += contents->hashes[i] != 0;
    for (unsigned part = 0; part < PARTS; part++) {
        most = next[part] > most ? next[part] : most;
        parts->begins[part + 1] = parts->begins[part] + next[part];
        next[part] = parts->begins[part];
    }
    for (parts->table_places = 16; parts->table_places < 2 * most;)
        parts->table_places *= 2;
    parts->hashes = malloc(((size_t) contents->count + 1) * sizeof *parts->hashes);
    parts->places = malloc(((size_t) contents->count + 1) * sizeof *parts->places);
    parts->first = malloc(((size_t) most + 1) * 2 * sizeof *parts->first);
    parts->table = malloc((size_t) parts->table_places * sizeof *parts->table);
    if (!parts->hashes || !parts->places || !parts->first || !parts->table)
        return 0;
    for (uint64_t i = 0; i < contents->count; i++) {
        if (!contents->hashes[i])
            continue;
        const uint64_t to = next[contents->hashes[i] >> PART_SHIFT]++;
        parts->hashes[to] = contents->hashes[i];
        parts->places[to] = (uint32_t) i;
    }
    return 1;
}

/* What is asked of all contents, and told. */
struct asked {
    const struct contents *contents;
    const struct index *index;
    uint64_t least;
    struct copied *copied;
    uint32_t *groups;
};

static void group_part(struct parts *parts, unsigned part, const struct asked *asked)
{
    const uint64_t *hashes = parts->hashes + parts->begins[part];
    const uint32_t *places = parts->places + parts->begins[part];
    const uint32_t count = (uint32_t) (parts->begins[part + 1] - parts->begins[part]);
    uint32_t *first = parts->first, *equal = parts->first + count;
    struct copied *copied = asked->copied;
    memset(parts->table, 0, (size_t) parts->table_places * sizeof *parts->table);
    memset(equal, 0, count * sizeof *equal);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = hashes[i];
        uint32_t number;
        while ((number = parts->table[at & (parts->table_places - 1)]) && hashes[number - 1] != hashes[i])
            at++;
        if (!number)
            parts->table[at & (parts->table_places - 1)] = number = i + 1;
        first[i] = number - 1;
        equal[number - 1]++;
    }
    uint64_t large = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (equal[i] < 2)
            continue;
        const uint64_t size = index_size(asked->index, asked->contents->ids[places[i]]), bytes = equal[i] * size;
        if (equal[i] < LEAST_COPIES && bytes < LEAST_COPIED)
            continue;
        copied->contents++;
        copied->blocks += equal[i];
        copied->bytes += bytes;
        copied->spare += bytes - size;
        if (bytes < asked->least)
            continue;
        if (copied->count < MOST_SAME)
            copied->same[copied->count++] = (struct same) {asked->contents->ids[places[i]], equal[i]};
        equal[i] = UINT32_MAX;              /* marks it */
        large++;
    }
    for (uint32_t i = 0; large && i < count; i++)
        if (equal[first[i]] == UINT32_MAX)
            asked->groups[places[i]] = places[first[i]];
}

uint32_t *contents_groups(const struct contents *contents, const struct index *index, uint64_t least, struct copied *copied)
{
    struct parts parts = {0};
    const struct asked asked = {contents, index, least, copied, malloc(((size_t) contents->count + 1) * sizeof(uint32_t))};
    if (!asked.groups || !parts_cut(&parts, contents)) {
        free(asked.groups);
        parts_free(&parts);
        return NULL;
    }
    memset(asked.groups, 0xff, (size_t) contents->count * sizeof *asked.groups);
    for (unsigned part = 0; part < PARTS; part++)
        group_part(&parts, part, &asked);
    parts_free(&parts);
    return asked.groups;
}
