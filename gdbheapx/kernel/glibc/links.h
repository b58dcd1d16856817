/* Lists that are followed together: what lists.c, follow.c, store.c, scan.c, join.c and collect.c share.

   A list whose members are neighbours in memory is followed through a few cached pages. One that jumps about costs a read per member:
   where that happens, the memory around is looked through once, in order, and every word that may be such a link is noted in a store.
   From then on links come out of the store. A noted link is what a read of its place gives, nothing else: what is noted in vain changes
   no answer, and what was not noted is read. */
#ifndef HEAPX_LINKS_H
#define HEAPX_LINKS_H

#include "../common/threads.h"
#include "chunk.h"

#include <stdlib.h>

#define ADDRESS_BITS 48u
#define ADDRESS_MASK ((UINT64_C(1) << ADDRESS_BITS) - 1)

/* ---- store.c ---- */

#define SLAB_SHIFT 20u              /* the store is filled by pieces of 1 MiB */
#define SLAB_BYTES (UINT64_C(1) << SLAB_SHIFT)
#define SLOTS 64u                   /* places of one bucket at which a link can stand, an alignment unit each */
#define NODES_SHIFT 17u             /* nodes come in blocks of 131,072: 2 MiB, a huge page */
#define NODES_AT_ONCE (1u << NODES_SHIFT)
#define MAX_BLOCKS (1u << 13)
#define NO_NODE UINT32_MAX

/* One noted link. Of chunks up to 2^28 bytes only: larger ones are read. */
struct node {
    uint64_t next;          /* 48 bits: the link, demangled; above them the low half of the size field */
    /* 48 bits: bk of a chunk in a bin, or the segments that came by; 12 bits of the size field; the four bits below */
    uint64_t back;
};

#define NODE_IN_BIN (UINT64_C(1) << 63)         /* may be a chunk in a bin */
#define NODE_SINGLE (UINT64_C(1) << 62)         /* may be on a single list */
#define NODE_FAST_MEMBER (UINT64_C(1) << 61)    /* is on a fastbin */
#define NODE_MEMBER (UINT64_C(1) << 60)         /* is in a thread cache, or in a bin */
#define NODE_RAW_BITS 28u

/* Where no bins are followed: the segment that came by last, 1 + number of its group, of thread caches in the low half and of fastbins
   above. */
#define NODE_GROUP_BITS 24u
#define NODE_GROUP_MASK ((UINT64_C(1) << NODE_GROUP_BITS) - 1)

static inline uint64_t node_raw(const struct node *node)
{
    return node->next >> 48 | (node->back >> 48 & 0xfff) << 16;
}

/* Every 256 nodes, a group, have one at which segments of lists begin and end. */
#define GROUP_SHIFT 8u
#define GROUPS_IN_BLOCK (NODES_AT_ONCE >> GROUP_SHIFT)

static inline uint32_t group_start(uint32_t group)
{
    return group << GROUP_SHIFT | (group * 0x9E3779B1u >> (32 - GROUP_SHIFT));
}

static inline int is_group_start(uint32_t node)
{
    return node == group_start(node >> GROUP_SHIFT);
}

struct node_block {
    struct node *nodes;
    uint64_t starts[GROUPS_IN_BLOCK];   /* of each group's start: where its link stands; 0 if no node has that number */
};

/* The links of 64 slots: which of them have one, and the number of the first one's node; those of the others follow. */
struct bucket {
    uint64_t bits;
    uint32_t first;
};

struct slab {
    uint64_t number;        /* address >> SLAB_SHIFT; UINT64_MAX: the place in the table is free */
    struct bucket *buckets; /* NULL until it is scanned */
};

/* Memory in which lists may lie, at most 64 MiB of it. */
struct range {
    uint64_t begin, end;
    uint64_t reads;         /* pages read in it so far to follow lists */
    int wanted, scanned;
};

struct store {
    unsigned slot_shift;        /* log2 of the bytes of a slot */
    unsigned hash_shift;
    size_t table_size, slab_count;
    struct slab *table;         /* every slab of every range */
    struct bucket **pools;      /* for each scan one */
    size_t *pool_bytes;
    size_t pool_count;
    struct node_block *blocks[MAX_BLOCKS];
    unsigned block_count;
    int no_memory;
};

/* A block of nodes, its number in `number`; NULL if there is no memory. Several threads may ask. */
struct node_block *store_block(struct store *store, uint32_t *number);

int store_open(struct store *store, const struct chunk_geometry *geometry, const struct range *ranges, size_t count);
void store_close(struct store *store);

/* Buckets for the slabs of the ranges that are wanted; 0 if there is no memory. */
int store_make_room(struct store *store, const struct range *ranges, size_t count);

static inline struct slab *store_slab(const struct store *store, uint64_t key)
{
    const uint64_t number = key >> SLAB_SHIFT;
    size_t place = (size_t) (number * UINT64_C(0x9E3779B97F4A7C15) >> store->hash_shift);
    while (store->table[place].number != number) {
        if (store->table[place].number == UINT64_MAX)
            return NULL;
        place = (place + 1) & (store->table_size - 1);
    }
    return &store->table[place];
}

/* The bucket for a link at `key`, NULL if there was no scan. */
static inline struct bucket *store_bucket(const struct store *store, uint64_t key)
{
    const struct slab *slab = store_slab(store, key);
    return slab && slab->buckets ? slab->buckets + ((key & (SLAB_BYTES - 1)) >> (store->slot_shift + 6)) : NULL;
}

static inline unsigned ones(uint64_t bits)
{
    bits -= bits >> 1 & UINT64_C(0x5555555555555555);
    bits = (bits & UINT64_C(0x3333333333333333)) + (bits >> 2 & UINT64_C(0x3333333333333333));
    return (unsigned) (((bits + (bits >> 4)) & UINT64_C(0x0F0F0F0F0F0F0F0F)) * UINT64_C(0x0101010101010101) >> 56);
}

/* Number of the node of the link at `key`, NO_NODE if none was noted there. */
static inline uint32_t bucket_node(const struct store *store, const struct bucket *bucket, uint64_t key)
{
    const unsigned slot = (unsigned) (key >> store->slot_shift) & (SLOTS - 1);
    if (!(bucket->bits >> slot & 1))
        return NO_NODE;
    return bucket->first + ones(bucket->bits & ((UINT64_C(1) << slot) - 1));
}

static inline struct node *store_node(const struct store *store, uint32_t number)
{
    return store->blocks[number >> NODES_SHIFT]->nodes + (number & (NODES_AT_ONCE - 1));
}

/* Where the link of a group's start stands; 0 if no node has its number. */
static inline uint64_t store_start(const struct store *store, uint32_t group)
{
    const struct node_block *block = store->blocks[group >> (NODES_SHIFT - GROUP_SHIFT)];
    return block ? block->starts[group & (GROUPS_IN_BLOCK - 1)] : 0;
}

/* Several threads may set the bit of one kind; bits of other kinds are not set meanwhile. */
static inline void node_mark(struct node *node, int kind)
{
    uint64_t back = __atomic_load_n(&node->back, __ATOMIC_RELAXED), bit = kind == FAST ? NODE_FAST_MEMBER : NODE_MEMBER;
    if (!(back & bit))
        __atomic_store_n(&node->back, back | bit, __ATOMIC_RELAXED);
}

static inline void node_set_group(struct node *node, int kind, uint32_t group)
{
    const unsigned shift = kind == FAST ? NODE_GROUP_BITS : 0;
    uint64_t back = __atomic_load_n(&node->back, __ATOMIC_RELAXED) & ~(NODE_GROUP_MASK << shift);
    __atomic_store_n(&node->back, back | (uint64_t) (group + 1) << shift, __ATOMIC_RELAXED);
}

/* ---- lists ---- */

enum { LIST_RUNNING, LIST_ENDED, LIST_WAITS_FOR_SCAN, LIST_WAITS_FOR_SEGMENTS };

/* What stands on a list, or on a part of it. */
struct tally {
    uint64_t count, bytes, raw_bytes, raw_min, raw_max, last;
};

static inline void tally_one(struct tally *tally, uint64_t entry, uint64_t raw)
{
    tally->bytes += raw & ~(uint64_t) FLAGS;
    tally->raw_bytes += raw;
    if (!tally->count || raw < tally->raw_min)
        tally->raw_min = raw;
    if (raw > tally->raw_max)
        tally->raw_max = raw;
    tally->count++;
    tally->last = entry;
}

static inline void tally_add(struct tally *sum, const struct tally *part)
{
    if (!part->count)
        return;
    if (!sum->count || part->raw_min < sum->raw_min)
        sum->raw_min = part->raw_min;
    if (part->raw_max > sum->raw_max)
        sum->raw_max = part->raw_max;
    sum->bytes += part->bytes;
    sum->raw_bytes += part->raw_bytes;
    sum->count += part->count;
    sum->last = part->last;
}

/* What is done with a list that seems endless, to tell where it comes back to: endless.c. */
enum { EXACT_NO, EXACT_MEET, EXACT_AHEAD, EXACT_START, EXACT_COUNT };

struct list {
    uint64_t head;          /* first entry; of a bin the address of its header */
    uint64_t first;         /* first entry */
    uint64_t entry;         /* the next one */
    uint64_t limit;
    uint64_t at;            /* the address that caused `problem` */
    uint64_t trap;          /* an entry that was passed; it moves on after 1, 2, 4, ... entries (Brent) */
    uint64_t lap, laps;     /* entries since then, and after how many it moves on */
    uint64_t other, steps;  /* endless.c */
    struct tally tally;
    uint8_t kind, problem, state, exact, begun;
};

/* A part of a list between two places that were chosen beforehand: join.c. */
struct segment {
    struct tally tally;     /* count 0: there is none */
    uint64_t next;          /* what its last entry links to */
    uint32_t used_by;       /* 1 + number of the list that took it last */
};

/* Kinds whose segments differ: entries of fastbins are chunks, of thread caches memory. */
enum { WAY_TCACHE, WAY_FAST, WAY_BIN, WAYS };

struct segments {
    struct segment *of_group;
    uint32_t groups;        /* of the groups below this the segments are known, */
    unsigned scans;         /* as they are after so many scans: a later one may lengthen them */
};

/* Entries in the order in which they were read one by one; those that came out of the store are marked there instead. */
struct entries {
    uint64_t *values;
    size_t count, room;
};

struct lists {
    struct chunk_geometry geometry;
    const struct source *source;
    struct pages pages;
    struct list *items;
    size_t count, at;
    struct range *ranges;
    size_t range_count;
    struct store store;
    uint64_t plain_entries; /* entries met one by one */
    uint64_t store_steps;   /* those of them that were in the store */
    int has_store, may_scan, mangled, collect, has_bins, no_memory;
    int has_marks;          /* members in segments are marked; before, their nodes tell the segment that came by last */
    int collect_anew;       /* a list came back to itself, or two lists share members: what is marked and kept is too much */
    uint64_t largest;       /* size of the largest chunk on a single list */
    uint64_t patience;      /* pages of a range that are read before it is looked through */
    unsigned threads;
    unsigned scans;         /* how often memory was looked through */
    double deadline;
    struct segments segments[WAYS];
    const uint64_t *also;   /* the caller's: given among the members */
    size_t also_count;
    struct entries entries; /* chunk | SPECIAL_x of members that were read one by one */
    struct entries mapped;  /* chunks with a mapping of their own */
    int phase, way;
    struct scan *scan;
    struct join *join;
    struct collection *collection;
};

static inline int way_of(int kind)
{
    return kind == BIN ? WAY_BIN : kind == FAST ? WAY_FAST : WAY_TCACHE;
}

/* From an entry to where its link stands. */
static inline uint64_t link_offset(const struct chunk_geometry *geometry, int kind)
{
    return kind == FAST || kind == BIN ? 2 * geometry->word : 0;
}

static inline uint64_t word_mask(const struct chunk_geometry *geometry)
{
    return geometry->word == 8 ? UINT64_MAX : UINT32_MAX;
}

static inline int entries_grow(struct entries *entries)
{
    size_t room = entries->room ? entries->room + entries->room / 2 : 1024;
    uint64_t *values = realloc(entries->values, room * sizeof *values);
    if (!values)
        return 0;
    entries->values = values;
    entries->room = room;
    return 1;
}

/* 0: no memory. */
static inline int entries_add(struct entries *entries, uint64_t value)
{
    if (entries->count == entries->room && !entries_grow(entries))
        return 0;
    entries->values[entries->count++] = value;
    return 1;
}

/* ---- entry.c, follow.c ---- */

enum { LOAD_DONE, LOAD_UNREADABLE, LOAD_WAIT, LOAD_PAUSED };
enum { FOLLOW_DONE, FOLLOW_TIME, FOLLOW_PAUSED };

struct link {
    uint64_t next, back, raw;
    uint32_t node;          /* NO_NODE: it was read */
};

/* What stands at an entry of the list. Of a chunk in a bin 4 words are read, of a sized list's entry the size field and the link, else
   the link alone. */
int load(struct lists *lists, const struct list *list, uint64_t entry, struct link *link);

void end_list(struct list *list, int problem, uint64_t at);

/* Keeps a member for collect.c, or marks it in the store; 0 if there is no memory. */
int keep(struct lists *lists, const struct list *list, uint64_t entry, const struct link *link);

/* Follows one list until it has ended or must wait for something. */
int follow(struct lists *lists, struct list *list);

/* ---- endless.c: lists that do not end ---- */

void endless_begin(struct list *list);
int endless_step(struct lists *lists, struct list *list);

/* ---- scan.c: notes links in the ranges that are wanted ---- */

int scan_open(struct lists *lists);
int scan_slice(struct lists *lists);        /* 1: more to do */
void scan_close(struct lists *lists);

/* ---- join.c: many lists, or parts of them, followed through the store side by side ---- */

enum { JOIN_LISTS, JOIN_SEGMENTS, JOIN_MARKS };

int join_open(struct lists *lists, int what, int way);
int join_slice(struct lists *lists);        /* 1: more to do */
void join_close(struct lists *lists);

/* ---- collect.c: the members of all lists, sorted ---- */

int collect_open(struct lists *lists);
enum { COLLECT_DONE, COLLECT_MORE, COLLECT_WANTS_MARKS };
int collect_slice(struct lists *lists);
void collect_again(struct lists *lists);    /* now there are marks */

/* The members, sorted: how many, where they are, and the bytes of that memory, which is the caller's from now on (big_free). */
uint64_t collect_take(struct lists *lists, uint64_t **values, uint64_t *bytes);

/* Chunks that stand on more than one place, sorted. */
uint64_t collect_twice(const struct lists *lists, const uint64_t **values);
void collect_close(struct lists *lists);

#endif
