/* What holds each block where there is no room for the graph: some bits a block, and memory is read again and again, in ascending order,
   until nothing more is found. A block that was reached and not yet scanned is gray. */
#ifndef HEAPX_SWEEP_SCAN_H
#define HEAPX_SWEEP_SCAN_H

#include "graph.h"

#define SWEEP_READ (256u << 10)
#define SWEEP_STACK (256u << 10)    /* blocks that wait to be scanned out of order; what finds no place there waits for the next pass */
#define SWEEP_LEVELS 3u
#define NO_RULE 7u                  /* of a node to which no pointer was seen */

enum { STAGE_PARTS, STAGE_BLOCKS, STAGE_PASS, STAGE_OVER };

/* Bytes at hand. */
struct view {
    uint8_t *bytes;
    uint64_t begin, length;
};

/* The node that is being scanned: what is left of it, and what was seen. */
struct scanning {
    uint32_t node;
    int is_active;
    uint64_t base, at, end;
    uint64_t own_bytes;             /* pointers into [base, base + own_bytes) say nothing */
    uint64_t limit;                 /* what is read at once ends here */
    struct view *view;
    struct run run;
    uint64_t run_slot;              /* of the candidate before */
};

struct waiting {
    uint64_t address;
    uint32_t id;
};

struct sweep {
    const struct source *memory;
    unsigned word, swap;
    struct sieve sieve;
    struct index index;
    const uint64_t *mappings;       /* the caller's: begin and end of each mapping that is a node, sorted */
    uint64_t mapping_count;
    uint64_t odd_blocks;
    uint64_t next_own;
    /* nodes: one bit each */
    uint32_t nodes, roots_from;
    uint64_t *marked, *gray;
    uint64_t *levels[SWEEP_LEVELS]; /* NO_RULE less its evidence, or less the best rule by which something that was scanned points there */
    const struct part *parts;       /* the caller's, by node */
    uint64_t part_count;
    /* the pass */
    unsigned round, stage;
    uint64_t next_part;
    uint32_t slot, line;            /* of the index: where the pass is */
    uint64_t here;                  /* the address */
    uint64_t grays, fresh;          /* how many are gray; how many this pass has marked */
    uint64_t deep_left;             /* so many may be scanned out of order */
    struct waiting *stack;
    uint64_t depth;
    struct scanning scanning;
    struct view pass, apart;
    uint64_t passes, bytes_read, unread_bytes, unread_at;
    /* a search for who points to one node */
    uint32_t wanted;                /* NO_NODE: none */
    struct referrer *referrers;
    uint64_t referrer_count, referrer_room;
};

static inline unsigned sweep_rule(const struct sweep *sweep, uint32_t node)
{
    unsigned level = 0;
    for (unsigned plane = 0; plane < SWEEP_LEVELS; plane++)
        level |= (unsigned) has_bit(sweep->levels[plane], node) << plane;
    return NO_RULE - level;
}

static inline void sweep_set_rule(struct sweep *sweep, uint32_t node, unsigned rule)
{
    for (unsigned plane = 0; plane < SWEEP_LEVELS; plane++) {
        const uint64_t bit = 1ull << (node & 63);
        uint64_t *word = &sweep->levels[plane][node >> 6];
        *word = (NO_RULE - rule) >> plane & 1 ? *word | bit : *word & ~bit;
    }
}

/* The node is reached. It is to be scanned. */
static inline void sweep_mark(struct sweep *sweep, uint32_t node)
{
    sweep->marked[node >> 6] |= 1ull << (node & 63);
    sweep->gray[node >> 6] |= 1ull << (node & 63);
    sweep_set_rule(sweep, node, sweep->round);
    sweep->grays++;
    sweep->fresh++;
}

/* Another part of the same node is scanned next. */
static inline int sweep_goes_on(const struct sweep *sweep)
{
    return sweep->stage == STAGE_PARTS && sweep->next_part && sweep->next_part < sweep->part_count
        && sweep->parts[sweep->next_part].node == sweep->parts[sweep->next_part - 1].node;
}

/* sweep_scan.c */

/* All words of the node that is being scanned. */
void sweep_bytes(struct sweep *sweep, const uint8_t *bytes, uint64_t size, uint64_t slot);

/* Scans on. 0: the node is scanned; 1: time is up; INTERRUPTED. */
int64_t sweep_scan(struct sweep *sweep, double deadline);

#endif
