/* Who points to whom. Nodes are numbered: used blocks by address, then mappings outside every heap, then roots. Memory is read once, in
   ascending order, into candidates; when all are there they are resolved into edges. */
#ifndef HEAPX_GRAPH_H
#define HEAPX_GRAPH_H

#include "index.h"
#include "stream.h"

#define GRAPH_NO_MEMORY (-2)

/* What an edge rests on: numbers of blocks/graph_records.py. An edge is its target with the rule in the upper bits. */
enum { RULE_START, RULE_TAG, RULE_BASE, RULE_HABIT, RULE_INSIDE, RULE_END, RULES };

#define ID_BITS 29u
#define MOST_NODES ((1u << ID_BITS) - 1)
#define EDGE_ID(edge) ((edge) & MOST_NODES)
#define EDGE_RULE(edge) ((edge) >> ID_BITS)

/* The edge leads to the inside of a block, and inside[] has its offset. */
static inline int leads_inside(uint32_t edge)
{
    const uint32_t rule = EDGE_RULE(edge);
    return rule == RULE_INSIDE || rule == RULE_HABIT || rule == RULE_BASE;
}

#define PIECE_BYTES (1u << 20)
#define GROUP_MOST 255u             /* candidates in one group; fewer: the node's last */
#define MOST_OFFSET 65535u

/* Candidates: for each node its groups, of each its count, then for each candidate the distance of its slot from the one before, in words
   (only for some nodes), and its address: number of the slot of the index, and the place in it. */
struct piece {
    struct piece *next;
    uint32_t used;
    uint8_t bytes[PIECE_BYTES + 8];     /* read and written eight at a time */
};

struct group {
    unsigned count, bytes;
    uint8_t room[GROUP_MOST * 11 + 16];
};

/* What was seen of the candidates of one node: whether a pointer is the end of an array. */
struct run {
    uint64_t address;               /* of the candidate before */
    uint32_t id;                    /* its block, where it points to a block's begin */
    unsigned length;                /* blocks side by side that were pointed to one after the other */
    uint64_t edge;                  /* that of the second of them */
};

struct graph {
    const struct source *memory;
    unsigned word, swap;
    unsigned packed_swap;
    unsigned plain_words;           /* words of eight bytes in this machine's order */
    unsigned all_slots;             /* the slots of blocks' edges are kept, too */
    struct index index;
    const uint64_t *mappings;       /* the caller's: begin and end of each mapping that is a node, sorted */
    uint64_t mapping_count;
    /* reading */
    unsigned address_bytes;
    struct group group;
    uint64_t last_slot;             /* of the node that is read */
    struct piece *first, *last;
    uint64_t candidates, nodes_read, slotted_candidates;
    uint8_t *buffer;
    uint64_t buffer_begin, buffer_length;
    uint64_t unread_bytes, unread_at, odd_blocks;
    uint64_t bytes_read;
    /* edges */
    uint32_t nodes;
    uint64_t edges, edge_room;
    uint32_t *offsets;              /* by node: its first edge; one more than nodes */
    uint32_t *to;
    uint32_t *slots;                /* by edge from first_slotted on: where in the node it stands, in words */
    uint64_t first_slotted, slot_room;
    uint16_t *inside;               /* by edge that leads_inside(), in order: the offset in the target, at most MOST_OFFSET */
    uint64_t inside_count, inside_room;
    uint64_t resolved_nodes, begun_nodes;
    struct run run;                 /* of the node whose edges are being made */
    uint64_t by_rule[RULES];
    /* marks */
    struct marks *marks;
};

/* gather.c */
int group_add(struct graph *graph, uint64_t slot, uint32_t number, uint64_t address, int slotted);
int group_end(struct graph *graph);

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

void marks_free(struct marks *marks);

#endif
