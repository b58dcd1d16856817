/* What keeps free memory: places that have used blocks and free ones, and groups of blocks that are alike. */
#ifndef HEAPX_PINGROUPS_H
#define HEAPX_PINGROUPS_H

#include "graph.h"

/* What makes blocks alike. */
struct pin_key {
    uint64_t size;                  /* where nothing else is known of them, and of rooms */
    uint32_t label, top;
    uint8_t status;
};

struct pin {
    uint64_t begin, end;            /* of the allocator's unit */
    uint64_t address, usable, ordinal;
    struct pin_key key;             /* looked up once its place has free bytes */
    uint8_t class, counted;         /* counted: one bit a situation in which it is in its group already */
};

struct pin_sums {
    struct pin_key key;
    uint32_t arena;
    uint8_t situation;
    uint64_t kept, alone, places, blocks, bytes, least, most, sample;
};

struct place {
    uint64_t begin, end, size;      /* size: of a room's regions */
    uint64_t bytes[SITUATIONS];
    uint64_t count, room;
    struct pin *pins;
    uint32_t arena;
    int after_last;                 /* free memory of it begins where `last` ends */
};

struct free_run {
    uint64_t begin, end, listed;    /* begin 0: none */
    uint32_t arena;
};

struct pins {
    struct pin_numbers shape;
    uint64_t overheads[MOST_KINDS];     /* by kind, modulo 2**64 */
    const uint64_t *rooms;          /* size of regions, bytes of a room: sorted; all arrays but `tops` are the caller's */
    uint64_t room_count;
    const uint64_t *spans;          /* begin, end, size of regions: of each room, sorted, where sizes do not tell rooms */
    uint64_t span_count, span;      /* span: the first that does not end before the row at hand */
    const uint64_t *own;
    uint64_t own_count;
    const struct graph *graph;      /* NULL: labels are by the order of used blocks */
    const uint32_t *labels;
    uint64_t label_count;
    const uint64_t *apart;          /* arenas of which all that is kept is one situation, sorted */
    uint64_t apart_count;
    uint32_t *tops;                 /* a copy of each node's owner, shortened on the way; NULL: not known */
    uint64_t top_count;
    const uint64_t *retained;       /* by node: bytes that it keeps alive */
    uint64_t least_retained;        /* a block that several own and that keeps so much is told as an owner itself */
    uint64_t ordinal;
    struct place place;
    struct free_run run;
    struct pin last;                /* the unit in use before; end 0: none */
    uint64_t returned;
    struct pin_sums *groups;
    uint32_t *slots;                /* by hash: group + 1 */
    uint64_t group_count, slot_count;
    int no_memory;
};

/* ---- pingroups.c ---- */

struct pin_key pin_key_of(struct pins *pins, const struct pin *pin);

static inline int pins_alike(const struct pin_key *one, const struct pin_key *other)
{
    return one->size == other->size && one->label == other->label && one->top == other->top && one->status == other->status;
}

/* NULL: no memory. */
struct pin_sums *pin_group_at(struct pins *pins, struct pin_key key, unsigned situation, uint32_t arena);

/* The block is one of the group, once. */
void pin_count(struct pins *pins, struct pin_sums *group, struct pin *pin);

#endif
