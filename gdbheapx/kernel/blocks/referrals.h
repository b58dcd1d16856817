/* Blocks that get a name from what points to them: what labels.c and those who look for containers know of them. */
#ifndef HEAPX_REFERRALS_H
#define HEAPX_REFERRALS_H

#include "containers.h"

#define PAGE 4096u
#define SMALL_SIZES 1024u               /* in steps of four bytes, as the index has sizes */
#define LEAST_MAPPED (128u << 10)       /* a block of this size may be a mapping of its own, of whole pages */

/* What is known while the blocks of a Rust program are looked for. */
struct rust {
    uint64_t *layouts;                  /* of trait objects: vtable, size, alignment; by vtable */
    uint64_t layout_count;
    uint64_t votes[VEC_ORDERS];
    uint64_t *places;                   /* one bit for each hash of an owner's place where a Vec was found */
    uint32_t *pointers;                 /* to each block that begins with counts, the second one 1 */
};

struct referrals {
    struct graph *graph;
    struct signer *signer;
    uint8_t *known;                     /* by label: KNOWN: it has a name; BY_CONTENT: better than a size alone */
    uint32_t known_count;
    unsigned most_depth;
    int has_classes;                    /* blocks come in size classes, a fifth of one may be unused; else the rest is small */
    int containers;                     /* whose are looked for */
    uint32_t tree_label;                /* of blocks that begin as a node of a tree would; 0: none */
    uint32_t roots_from;
    const struct containers *linked;    /* NULL: elements of containers are told as all others are */
    uint64_t least_same;                /* bytes of blocks with the same content that are told as such */
    uint64_t *seen, *seen_inside, *several, *mine;  /* one bit a block: a node points there; only to a place inside; more than one node;
                                                       the node that is looked at was the first */
    int counts_inside;                  /* all pointers are noted but those to any place inside */
    uint32_t sized[SMALL_SIZES];        /* labels of blocks that are known by their size alone; 0: not yet made */
    uint32_t *stack;
    uint64_t depth, room;
    uint64_t walks_left;                /* steps along chains that may turn out to be none */
    uint64_t next;
    unsigned step;
    struct rust rust;
};

static inline uint32_t label_of(const struct referrals *work, uint32_t node)
{
    return work->signer->labels[node];
}

/* What the label is worth; one that was given meanwhile is a name. */
static inline unsigned worth_of(const struct referrals *work, uint32_t label)
{
    return label > work->known_count ? KNOWN : work->known[label];
}

static inline int is_known(const struct referrals *work, uint32_t label)
{
    return worth_of(work, label) == KNOWN || worth_of(work, label) == BY_BEGIN;
}

/* So many bytes were asked for when the block was made, as far as its size tells. */
static inline int fits_block(uint64_t usable, uint64_t bytes, int has_classes)
{
    const uint64_t rest = usable - bytes;
    return bytes <= usable && (rest < 32 || usable == 24 || (has_classes && rest <= usable / 5 + 16)
                               || (usable >= LEAST_MAPPED && rest < 2 * PAGE));
}

static inline int may_hold(const struct referrals *work, uint64_t usable, uint64_t bytes)
{
    return fits_block(usable, bytes, work->has_classes);
}

/* The block that begins there and may be a container's; NO_NODE: none. */
static inline uint32_t nameless_at(const struct referrals *work, uint64_t address)
{
    const uint32_t id = index_begin(&work->graph->index, address);
    return id == NO_NODE || worth_of(work, label_of(work, id)) == KNOWN ? NO_NODE : id;
}

/* The block to whose begin the word at this place points, for whatever reason; NO_NODE: none. */
static inline uint32_t block_at_slot(const struct graph *graph, uint32_t node, uint32_t slot)
{
    for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1] && slot_of(graph, edge) <= slot; edge++) {
        const uint32_t rule = EDGE_RULE(graph->to[edge]), target = EDGE_ID(graph->to[edge]);
        if (slot_of(graph, edge) == slot)
            return (rule == RULE_START || rule == RULE_END) && target < graph->index.blocks ? target : NO_NODE;
    }
    return NO_NODE;
}

/* The block has this name from now on; `kind`: one of the rows beyond the caller's. 0: no memory. */
static inline int give(struct referrals *work, uint32_t id, uint64_t kind, uint64_t key, uint64_t depth)
{
    const uint32_t label = signer_key(work->signer, work->signer->row_count + kind, key);
    if (label)
        work->signer->keys[label - 1].depth = depth;
    return signer_relabel(work->signer, &work->graph->index, id, label);
}

/* rust.c: the steps that look for what Rust has. 0: no memory. */
enum { RUST_POINTERS, RUST_DYNS, RUST_BTREES, RUST_VECS, RUST_SMALL_VECS, RUST_COUNTED, RUST_STEPS };
int rust_open(struct referrals *work, const uint64_t *layouts, uint64_t count);
void rust_free(struct referrals *work);
int rust_some(struct referrals *work, unsigned step, uint32_t next, uint32_t until);
uint64_t rust_end(const struct referrals *work, unsigned step);

#endif
