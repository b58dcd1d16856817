/* The search for containers: what its files share. container_search.c calls the others for each group in turn. */
#ifndef HEAPX_CONTAINER_SEARCH_H
#define HEAPX_CONTAINER_SEARCH_H

#include "containers.h"
#include "tally.h"

#define LEAST_MEMBERS 8u
#define MOST_SYSTEMS 8u
#define TABLE_SHARE 4u                  /* a table points to one of so many elements */

struct system {
    uint16_t fields;                    /* one bit each */
    uint32_t firsts;
    uint32_t leaf_least, leaf_most;     /* depths */
    uint8_t has_two_below;
};

/* Who points into the group from outside. */
struct holder {
    uint32_t node, first, pointers;     /* of outer[] */
    uint32_t reached;                   /* elements, by its best system */
    uint32_t to_firsts;                 /* pointers */
    uint16_t systems;                   /* one bit for each of which it has a first */
    uint8_t is_led_back, is_table, is_stack, is_local, is_variable, is_request, is_stale;
};

struct search {
    const struct graph *graph;
    const uint16_t *inside;
    struct linked linked;
    uint32_t weak_from, locals_from;
    struct pace *pace;
    struct containers *found;
    struct pointers outer;              /* to groups */
    uint32_t *place;                    /* by block: its place in its group */
    uint32_t *links;                    /* of the group at hand, by place and field: the place that this leads to; NO_NODE: none */
    uint64_t link_room;
    uint8_t by_slot[MOST_LINK_FIELDS];  /* its fields as they stand in a member */
    uint32_t *label;                    /* by place: in the system at hand its first's place in sizes + 1 */
    uint32_t *sizes, *trees, *seen;     /* by place of a first; places */
    uint64_t scratch_room;
    struct holder *holders;
    uint64_t holder_room;
    struct tally uses;                  /* by node, and by kind of word */
    struct tally places;                /* of the group at hand: by kind of word its holders */
    struct system systems[MOST_SYSTEMS + 1];    /* behind them one of all their fields, if it is needed */
    unsigned system_count;
};

typedef int (*trait)(const struct holder *holder);

static inline uint32_t group_at(const struct search *search, uint32_t node)
{
    return node < search->graph->index.blocks ? search->linked.of[node] : 0;
}

static inline uint32_t outer_begin(const struct search *search, uint32_t number)
{
    return search->outer.from[number - 1];
}

/* How many are set. */
static inline unsigned bits_of(uint16_t bits)
{
    unsigned count = 0;
    for (; bits; bits &= (uint16_t) (bits - 1))
        count++;
    return count;
}

/* ---- container_systems.c ---- */

/* The members that each leads to. */
void list_links(struct search *search, uint32_t number, const struct cluster *group);
void find_systems(struct search *search, const struct cluster *group);

/* From a member on by the system's fields, level by level: those of its container that have no label get this one, and stand behind `count`
   in `out`. `of`: by block its container; NULL: all of the group. Returns how many stand there then. */
uint32_t follow_links(const struct search *search, const struct cluster *group, struct system *system, const uint32_t *of, uint32_t place,
                      uint32_t label, uint32_t *out, uint32_t count);

/* Walks a system's trees from their firsts: each element gets its tree's label; elements in the order that they are met in `met`.
   Returns how many are reached. If it is stopped, some firsts have no label. */
uint32_t walk_system(struct search *search, const struct cluster *group, struct system *system, uint32_t *met);

/* Elements that know what they are part of, in no search tree: each belongs to its parent, and all of them are no container. Returns the
   fields that lead down; 0: it is none. */
uint16_t object_tree(struct search *search, const struct cluster *group, uint32_t *queue);

/* ---- container_holders.c ---- */

/* Into search->holders; `count`: how many. 0: no memory. */
int find_holders(struct search *search, uint32_t number, uint32_t *count);

/* By one system: what each holder's firsts reach. A first with a head comes second to all others. */
void reach_by(struct search *search, const struct cluster *group, unsigned system, uint32_t count);

/* How often blocks, and words of their kinds, point to what is linked. 0: no memory, or it was stopped. */
int count_uses(struct search *search);

/* A pointer at the same place of several blocks of this size leads to members: requests have that, and iterators. */
int mark_requests(struct search *search, uint32_t count);

int has_role(const struct holder *holder);

/* Keeps of the owners those that have it, if some have. */
uint32_t prefer_owners(const struct holder *holders, uint32_t *owners, uint32_t count, trait has);

/* Of those that reach enough. `owners`: room for all holders. */
uint32_t find_owners(const struct search *search, const struct cluster *group, uint32_t holder_count, uint32_t *owners, uint8_t *sure);

/* Of what nobody holds by a first, as a ring, which has none: of whom an element knows; of a ring, who holds one that differs, else who has
   one pointer; else all, but rather who points to least of what is linked. */
uint32_t guess_owners(const struct search *search, const struct cluster *group, uint32_t holder_count, int is_ring, uint32_t *owners,
                      uint8_t *sure);

/* ---- container_making.c ---- */

/* NULL: no memory. */
struct container *new_container(struct containers *found);

/* 0: no memory. */
int add_entry(struct containers *found, struct container *container, struct outer outer);

/* To the container that is made last. */
void add_member(struct containers *found, uint32_t node);

/* One container of the whole group. */
int make_whole(struct search *search, const struct cluster *group, uint32_t *owners, uint32_t owner_count, uint8_t sure);

/* Several lists that something connects: each first's tree goes to who holds the first. Returns 0 for no memory, 1, or 2: too few have a
   holder. `labels` are those of the system. */
int make_parts(struct search *search, const struct cluster *group, const struct system *system, uint32_t holder_count,
               const uint32_t *met, uint32_t met_count);

/* Objects belong to what leads down to them: other pointers to them own nothing, if who owns the tree is known. A block that an object
   points to, such as its array of children, is part of it. */
void mark_uses(struct search *search, const struct cluster *group, uint16_t down, uint32_t holder_count, const uint32_t *owners,
               uint32_t owner_count);

/* ---- container_tables.c ---- */

/* 0: no memory, or it was stopped. */
int settle_tables(struct search *search);

#endif
