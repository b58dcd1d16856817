/* Who points to whom. Nodes are numbered: used blocks by address, then mappings outside every heap, then roots. Memory is read once, in
   ascending order, into candidates; when all are there they are resolved into edges. */
#ifndef HEAPX_GRAPH_H
#define HEAPX_GRAPH_H

#include "candidates.h"
#include "heads.h"
#include "index.h"
#include "sieve.h"
#include "signatures.h"
#include "stale.h"
#include "stream.h"

/* An edge is its target with the rule in the upper bits. */
#define ID_BITS 29u
#define MOST_NODES ((1u << ID_BITS) - 1)
#define EDGE_ID(edge) ((edge) & MOST_NODES)
#define EDGE_RULE(edge) ((edge) >> ID_BITS)

#define AHEAD 16u                       /* edges or nodes from here: what they need is asked of memory now */

/* The edge leads to the inside of a block, and inside[] has its offset. */
static inline int leads_inside(uint32_t edge)
{
    const uint32_t rule = EDGE_RULE(edge);
    return rule == RULE_INSIDE || rule == RULE_HABIT || rule == RULE_BASE;
}

/* Of a pointer to the inside, by what the block tells. */
static inline uint32_t rule_inside(unsigned told)
{
    return told == HEAD_TELLS_BASE ? RULE_BASE : told == HEAD_TELLS_CONTAINER ? RULE_HABIT : RULE_INSIDE;
}

/* Of a root's words: from EXACT_SLOT on whatever points to a block counts as a pointer to its start. */
static inline int is_exact(uint64_t slot, uint64_t node, uint64_t roots_from)
{
    return slot >= EXACT_SLOT && slot < UINT32_MAX && node >= roots_from;
}

/* What was seen of the candidates of one node: whether one leads to the end of an array. Where blocks have no header, the end of one is
   the begin of the next, and a pointer there is that block's: two blocks side by side are an entry's key and value more often than begin
   and end. But a vector {begin, end of what is in it, end of its room} shows what it is: a pointer to its inside stands between those to
   begin and end, or the end stands there twice. Emptied, it has its begin twice; so have many objects that are no vector. */
struct run {
    uint64_t address;               /* where its block begins; packed, where candidates are */
    uint32_t id;                    /* the block of the candidate before */
    enum {
        RUN_NONE,
        RUN_BEGIN,                  /* that led to the block's begin, */
        RUN_BEHIND,                 /* and the one before it to the begin of the block before; */
        RUN_TWICE,                  /* as did the one before it; */
        RUN_WITHIN,                 /* it led inside, after one to the begin */
    } state;
};

/* The next candidate leads to this block; `follows`: to its begin, where run->id ends. Returns how many of the last candidates lead to
   the end of an array: 0, 1 or 2. */
static inline unsigned run_on(struct run *run, uint32_t id, uint64_t address, int is_begin, int follows)
{
    unsigned ends = 0;
    if (run->state && id == run->id) {
        ends = is_begin && run->state == RUN_BEHIND ? 2 : 0;
        run->state = ends ? RUN_NONE : is_begin ? RUN_TWICE : RUN_WITHIN;
    } else {
        ends = follows && run->state == RUN_WITHIN;
        run->state = !is_begin || (follows && run->state >= RUN_TWICE) ? RUN_NONE : follows ? RUN_BEHIND : RUN_BEGIN;
        run->id = id;
        run->address = address;
    }
    return ends;
}

/* Words at hand, those that may be pointers picked out before it is known whose they are. */
struct tile {
    const uint8_t *from;
    unsigned words;
    unsigned next;                  /* those before are behind what is read */
    uint64_t found[SIEVE_ROOM];
    uint16_t places[SIEVE_ROOM];    /* in ascending order, UINT16_MAX behind the last */
};

struct graph {
    const struct source *memory;
    struct sieve sieve;
    unsigned word, swap;
    unsigned packed_swap;
    unsigned plain_words;           /* words of eight bytes in this machine's order */
    unsigned all_slots;             /* the slots of blocks' edges are kept, too */
    unsigned threads;
    struct index index;
    struct heads heads;
    const uint64_t *mappings;       /* the caller's: begin and end of each mapping that is a node, sorted */
    uint64_t mapping_count;
    /* reading */
    struct writer writer;
    struct segments segments;
    uint64_t nodes_read;
    uint8_t *buffer;
    const uint8_t *at_hand;         /* the buffer, or what the stream of blocks lends until it goes on */
    uint64_t hand_begin, hand_length;
    struct tile tile;
    uint64_t unread_bytes, unread_at, odd_blocks;
    uint64_t bytes_read;
    struct signer *signer;          /* the caller's; NULL: none */
    unsigned notes_stale;           /* what tells of words that own nothing is noted while memory is read */
    struct stale stale;
    /* edges */
    uint32_t nodes;
    uint64_t edges, edge_room;
    uint32_t *offsets;              /* by node: its first edge; one more than nodes */
    uint32_t *to;
    uint64_t *weaker;               /* one bit a node: it has an edge of another rule than RULE_START */
    uint32_t *slots;                /* by edge from first_slotted on: where in the node it stands, in words */
    uint64_t first_slotted, slot_room;
    uint16_t *inside;               /* by edge that leads_inside(), in order: the offset in the target, at most MOST_OFFSET */
    uint64_t inside_count, inside_room;
    uint64_t *loose, *sure;         /* one bit an edge: it owns nothing, or it does, as a runtime tells; NULL: nobody told */
    uint64_t *passed;               /* one bit an edge: no way leads by it; owners are found as before. NULL: none is so */
    unsigned is_told;               /* a runtime has told */
    uint32_t *starts;               /* blocks that have a name by themselves */
    uint64_t start_count, first_starts; /* of them those whose ways are looked for first */
    uint8_t *unowning;              /* one bit an edge: its word owns nothing, a better way leads there; NULL: none is so */
    uint64_t resolved_segments, begun_nodes;
    struct run run;                 /* of the node whose edges are being made */
    uint64_t by_rule[RULES];
    uint16_t habits[MOST_HABITS];   /* offsets */
    unsigned habit_count;
    /* marks */
    struct marks *marks;
    void (*free_marks)(struct marks *marks);
};

/* A number for each of so many, 0 at first: huge pages, or only what is touched. */
static inline uint32_t *dense_numbers(uint64_t count)
{
    return dense_alloc((size_t) count * sizeof(uint32_t) + 8);
}

static inline uint32_t *lazy_numbers(uint64_t count)
{
    return lazy_alloc((size_t) count * sizeof(uint32_t) + 8);
}

static inline void free_numbers(uint32_t *numbers, uint64_t count)
{
    lazy_free(numbers, (size_t) count * sizeof *numbers + 8);
}

static inline int has_bit(const uint64_t *bits, uint64_t at)
{
    return (int) (bits[at >> 6] >> (at & 63) & 1);
}

static inline void set_bit(uint64_t *bits, uint64_t at)
{
    bits[at >> 6] |= 1ull << (at & 63);
}

static inline void clear_bit(uint64_t *bits, uint64_t at)
{
    bits[at >> 6] &= ~(1ull << (at & 63));
}

/* Of one bit an edge. */
static inline int has_edge(const uint8_t *bits, uint64_t edge)
{
    return bits[edge >> 3] >> (edge & 7) & 1;
}

static inline void set_edge(uint8_t *bits, uint64_t edge)
{
    bits[edge >> 3] |= (uint8_t) (1u << (edge & 7));
}

/* The edge owns nothing, or it does: as its runtime tells. */
static inline int is_loose(const struct graph *graph, uint64_t edge)
{
    return graph->loose && has_bit(graph->loose, edge);
}

static inline int is_sure(const struct graph *graph, uint64_t edge)
{
    return graph->sure && has_bit(graph->sure, edge);
}

static inline int is_slotted(const struct graph *graph, uint64_t node)
{
    return graph->all_slots || node >= graph->index.blocks;
}

static inline uint64_t node_bytes(const struct graph *graph, uint32_t node)
{
    if (node < graph->index.blocks)
        return index_size(&graph->index, node);
    return 0;
}

static inline int is_unowning(const struct graph *graph, uint64_t edge)
{
    return graph->unowning && has_edge(graph->unowning, edge);
}

/* Its runtime says so, or its word is stale and no runtime knows better. */
static inline int owns_nothing(const struct graph *graph, uint64_t edge)
{
    return is_loose(graph, edge) || (is_unowning(graph, edge) && !is_sure(graph, edge));
}

/* As it is told: UNOWNING is no rule of an edge by itself; and a word that owns, as its runtime says, leads to where an object begins. */
static inline uint32_t rule_of(const struct graph *graph, uint64_t edge)
{
    return owns_nothing(graph, edge) ? UNOWNING : is_sure(graph, edge) ? RULE_START : EDGE_RULE(graph->to[edge]);
}

/* Where in its node the edge stands, in words; UINT32_MAX: that was not kept. */
static inline uint64_t slot_of(const struct graph *graph, uint64_t edge)
{
    return edge >= graph->first_slotted ? graph->slots[edge - graph->first_slotted] : UINT32_MAX;
}

/* By edge the offset in its target, in words. */
static inline void find_offsets(const struct graph *graph, uint16_t *words)
{
    uint64_t inside = 0;
    for (uint64_t edge = 0; edge < graph->edges; edge++) {
        words[edge] = 0;
        if (leads_inside(graph->to[edge])) {
            const uint16_t offset = graph->inside[inside++];
            words[edge] = offset == MOST_OFFSET ? MOST_OFFSET : (uint16_t) (offset / graph->word);
        }
    }
}

/* Each takes so many threads where there is work for them. */
static inline unsigned threads_for(const struct graph *graph, uint64_t work, uint64_t enough)
{
    return work < enough ? 1 : graph->threads;
}

/* Room for `nodes`, and edges as many as edge_room and the like say. 0: no memory. */
int graph_make_room(struct graph *graph);

#endif
