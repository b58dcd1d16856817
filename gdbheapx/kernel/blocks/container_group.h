/* A group of linked blocks while its containers are searched for, and what each step asks of the others. */
#ifndef HEAPX_CONTAINER_GROUP_H
#define HEAPX_CONTAINER_GROUP_H

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
    struct linked linked;
    uint32_t weak_from, locals_from;
    struct pace *pace;
    struct containers *found;
    struct pointers outer;              /* to groups */
    uint32_t *place;                    /* by block: its place in its group */
    struct tally uses;                  /* by node, and by kind of word */
    /* of the group at hand */
    const struct cluster *group;
    uint32_t number;
    uint32_t *links;                    /* by place and field: the place that this leads to; NO_NODE: none */
    uint8_t by_slot[MOST_LINK_FIELDS];  /* its fields as they stand in a member */
    uint32_t *label;                    /* by place: in the system at hand its first's place in sizes + 1 */
    uint32_t *sizes, *trees, *seen;     /* by place of a first; places */
    uint32_t *met;                      /* places, as a walk meets them */
    struct holder *holders;
    uint32_t holder_count;
    uint32_t *owners, owner_count;      /* of holders; in the room of `trees` */
    uint8_t sure;                       /* container_sure, of the owners */
    uint64_t link_room, place_room, holder_room;    /* for each group in turn */
    struct tally places;                /* by kind of word its holders */
    struct system systems[MOST_SYSTEMS + 1];    /* behind them one of all their fields, if it is needed */
    unsigned system_count;
};

static inline uint32_t group_at(const struct search *search, uint32_t node)
{
    return node < search->graph->index.blocks ? search->linked.of[node] : 0;
}

/* The member to which the pointer leads. */
static inline uint32_t member_at(const struct search *search, uint32_t at)
{
    return EDGE_ID(search->graph->to[search->outer.all[at].edge]);
}

/* ---- container_owners.c ---- */

/* How often blocks, and words of their kinds, point to what is linked. 0: no memory, or it was stopped. */
int count_uses(struct search *search);

/* Into search->holders. */
void find_holders(struct search *search);

/* By one system: what each holder's firsts reach. A first with a head comes second to all others. */
void reach_by(struct search *search, unsigned system);

/* A pointer at the same place of several blocks of this size leads to members: requests have that, and iterators. 0: no memory. */
int mark_requests(struct search *search);

int has_role(const struct holder *holder);

/* Of those that reach enough. */
void find_owners(struct search *search);

/* Of what nobody holds by a first, as a ring, which has none: of whom an element knows; of a ring, who holds one that differs, else who has
   one pointer; else all, but rather who points to least of what is linked. */
void guess_owners(struct search *search, int is_ring);

/* ---- container_tables.c ---- */

/* 0: no memory, or it was stopped. */
int settle_tables(struct search *search);

#endif
