/* Containers: blocks that links of their own hold together, or a table, and the pointer by which each is held. */
#ifndef HEAPX_CONTAINERS_H
#define HEAPX_CONTAINERS_H

#include "linked.h"

enum container_shape { SHAPE_LIST, SHAPE_TREE, SHAPE_HASH_TABLE, SHAPE_SKIP_LIST, SHAPE_ARRAY, SHAPE_LRU };
#define MOST_HOLDERS 8u                 /* of a container, that are looked at */

enum container_sure { SURE_CERTAIN, SURE_LIKELY, SURE_GUESS, SURE_SHARED };

struct container {
    uint32_t first, members;            /* order[first] on: as links lead from its entry; trees level by level */
    uint32_t first_entry, entries;      /* of entry_edges */
    uint32_t element_bytes;             /* usable; 0: of several sizes */
    uint8_t shape, sure;                /* container_shape, container_sure */
    uint64_t own_bytes;                 /* 0: not added up yet */
};

/* A pointer from outside to a member. */
struct outer {
    uint32_t node, edge;
};

/* Pointers to members of groups from elsewhere, by group in the order of their sources: those of number n, from 1 on, from from[n - 1] to
   from[n]. */
struct pointers {
    struct outer *all;
    uint32_t *from, groups;
};

struct containers {
    struct container *all;
    uint32_t count;
    uint64_t room;
    uint32_t *of;                       /* by block its container's number + 1; 0: none */
    uint32_t *order;
    uint32_t ordered;                   /* of order */
    struct outer *entry_edges;
    uint32_t entry_count;
    uint64_t entry_room;
    uint8_t *is_down;                   /* one bit an edge: leads down in a tree of objects, or to its root: it owns */
    struct pointers users;              /* made when they are asked for */
    uint8_t *is_use;                    /* the same: to an object of a tree, not from what it is part of */
    uint64_t blocks, edges;
    uint32_t locals_from;               /* roots of threads begin here */
};

/* NULL: no memory. */
struct container *new_container(struct containers *found);

/* 0: no memory. */
int add_entry(struct containers *found, struct container *container, struct outer outer);

/* To the container that is made last. */
void add_member(struct containers *found, uint32_t node);

/* `of`: by block its group's number; `with_stale`: also words that own nothing for another reason than that a runtime says so. 0: no
   memory, or it was stopped. */
int pointers_list(const struct graph *graph, const uint32_t *of, uint32_t groups, int with_stale, struct pace *pace,
                  struct pointers *pointers);
void pointers_close(struct pointers *pointers);

/* The node has an entry of the container. */
static inline int holds_container(const struct containers *containers, uint32_t number, uint32_t node)
{
    const struct container *container = &containers->all[number];
    for (uint32_t entry = 0; entry < container->entries && entry < MOST_HOLDERS; entry++)
        if (containers->entry_edges[container->first_entry + entry].node == node)
            return 1;
    return 0;
}

/* The entry is one of many pointers that its node has to a hash table's elements: which of them stands first says nothing. */
int is_bucket(const struct graph *graph, const struct containers *containers, uint32_t number, const struct outer *entry);

#endif
