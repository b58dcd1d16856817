/* Words that may be pointers, as they are kept until all blocks are known. */
#ifndef HEAPX_CANDIDATES_H
#define HEAPX_CANDIDATES_H

#include "index.h"

#define PIECE_BYTES ((2u << 20) - 16)  /* with the rest of a piece two MiB: a huge page */
#define GROUP_MOST 255u             /* candidates in one group; fewer: the node's last */
#define SEGMENT_MOST 2048u          /* a segment with so many ends with the group */

/* Candidates: for each node its groups, of each its count, then for each candidate the distance of its slot from the one before, in words
   (only for some nodes), and its address: number of the slot of the index, and the place in it. */
struct piece {
    uint32_t used;
    uint32_t users;                     /* segments that are not decoded yet, and who writes it */
    uint8_t bytes[PIECE_BYTES + 8];     /* read and written eight at a time */
};

/* Groups that are decoded one after the other; several threads write segments, and decode them. */
struct segment {
    struct piece *piece;
    uint32_t from, end;
    uint32_t node;                      /* of the first group */
    uint32_t candidates;
    uint64_t slot;                      /* of the candidate before, where the node began in the segment before; else 0 */
    int is_open;                        /* the last group is none of a node's last, whatever its count */
};

struct segments {
    struct segment *all;
    uint64_t count, room;
};

struct group {
    unsigned count, bytes;
    uint8_t room[GROUP_MOST * 11 + 16];
};

/* What one thread writes with. */
struct writer {
    unsigned address_bytes;
    struct segments *segments;      /* where they go */
    struct piece *piece;
    struct segment segment;         /* the one that is written; `end` is piece->used */
    struct group group;
    uint32_t node;                  /* the one that is written */
    uint64_t last_slot, group_slot; /* of the last candidate, and of the last one before this group */
    uint64_t candidates, slotted;
};

/* What follows goes to these segments; it begins in this node, behind `slot`. */
void writer_begin(struct writer *writer, struct segments *segments, uint64_t node, uint64_t slot);

/* So many bytes more fit into the piece. 0: no memory. */
int writer_room(struct writer *writer, uint32_t bytes);

/* 0, or NO_MEMORY. */
int writer_add(struct writer *writer, uint64_t slot, uint32_t number, uint64_t address, int slotted);

/* The node ends here. 0, or NO_MEMORY. */
int writer_end_node(struct writer *writer);

/* All that was written is in the segments; `is_open`: the node goes on. 0, or NO_MEMORY. */
int writer_cut(struct writer *writer, int is_open);

/* No more is written. */
void writer_close(struct writer *writer);

/* Those of `more`, which is empty then, follow. 0: no memory. */
int segments_append(struct segments *segments, struct segments *more);

/* Of all but the first `done`. */
void segments_free(struct segments *segments, uint64_t done);

/* A segment of it is decoded, or nothing more is written to it. */
void piece_release(struct piece *piece);

#endif
