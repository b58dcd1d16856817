/* Blocks with the same content: a number for each, made of all its words as they pass by. */
#ifndef HEAPX_CONTENTS_H
#define HEAPX_CONTENTS_H

#include "index.h"

#define LEAST_CONTENT 64u               /* bytes: smaller blocks are often equal by chance */
#define LEAST_COPIES 4u                 /* fewer are a group only if they are large */
#define LEAST_COPIED (64u << 10)        /* bytes of a group of two or three */

#define CONTENT_LANES 4u                /* words side by side do not wait for each other */
#define CONTENT_PRIME 0x9e3779b97f4a7c15ull

struct content {
    uint64_t lanes[CONTENT_LANES], any; /* any: the bits of all words */
    uint64_t words;
    int is_partial;                     /* a part could not be read */
};

/* Of many blocks, by id. 0 stands for nothing but zeros. */
struct contents {
    uint64_t *hashes;
    uint32_t *ids;
    uint64_t count, id_room, hash_room;
};

/* Zeros only multiply the lane, so that many of them are passed at once. */
static inline uint64_t content_step(uint64_t lane, uint64_t word)
{
    word = (word ^ word >> 32) * CONTENT_PRIME;
    return lane * CONTENT_PRIME + (word ^ word >> 29);
}

static inline void content_add(struct content *content, const uint8_t *bytes, uint64_t words, unsigned word)
{
    uint64_t i = 0;
    if (word == 8 && !(content->words % CONTENT_LANES))
        for (; i + CONTENT_LANES <= words; i += CONTENT_LANES) {
            uint64_t four[CONTENT_LANES];
            memcpy(four, bytes + 8 * i, sizeof four);
            for (unsigned lane = 0; lane < CONTENT_LANES; lane++) {
                content->lanes[lane] = content_step(content->lanes[lane], four[lane]);
                content->any |= four[lane];
            }
        }
    content->words += i;
    for (; i < words; i++, content->words++) {
        uint64_t one = 0;
        memcpy(&one, bytes + word * i, word);
        content->lanes[content->words % CONTENT_LANES] = content_step(content->lanes[content->words % CONTENT_LANES], one);
        content->any |= one;
    }
}

/* As content_add, of so many words of zeros. */
static inline void content_add_zeros(struct content *content, uint64_t words)
{
    for (unsigned lane = 0; lane < CONTENT_LANES; lane++) {
        uint64_t left = words / CONTENT_LANES + ((lane - content->words) % CONTENT_LANES < words % CONTENT_LANES), power = CONTENT_PRIME;
        for (; left; left >>= 1, power *= power)
            content->lanes[lane] *= left & 1 ? power : 1;
    }
    content->words += words;
}

static inline uint64_t content_hash(const struct content *content)
{
    uint64_t hash = content->words;
    for (unsigned lane = 0; lane < CONTENT_LANES; lane++)
        hash = content_step(hash ^ hash >> 32, content->lanes[lane]);
    hash ^= hash >> 29;
    return content->any ? hash | !hash : 0;
}

/* The content of one more block. 0: no memory. */
int contents_keep(struct contents *contents, uint32_t id, uint64_t hash);

void contents_free(struct contents *contents);

/* Those of blocks that are numbered from `id` on. 0: no memory. */
int contents_join(struct contents *contents, const struct contents *more, uint64_t id);

/* Contents that several blocks have. */
struct copied {
    uint64_t contents, blocks, bytes;   /* of all together */
    uint64_t spare;                     /* bytes, if each content were there once */
    uint64_t count;
    struct same {
        uint64_t first, blocks;         /* the first block that has it, and how many have it */
    } same[MOST_SAME];                  /* those with most bytes, in no order */
};

/* For each of `contents`, in order: the place of the first one that is equal, where such blocks have `least` bytes or more together; else
   UINT32_MAX. The caller frees it. NULL: no memory. Ids stand in ascending order. */
uint32_t *contents_groups(const struct contents *contents, const struct index *index, uint64_t least, struct copied *copied);

#endif
