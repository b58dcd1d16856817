/* What a block is by what stands in it: rows of conditions, as signatures.py has them, and how many blocks meet each. */
#ifndef HEAPX_SIGNATURES_H
#define HEAPX_SIGNATURES_H

#include "contents.h"
#include "rowfilter.h"
#include "stream.h"

struct signed_key {
    uint64_t row, key, blocks, bytes, sample;
    uint64_t least, most;               /* usable bytes of the smallest and the largest */
    uint64_t depth;                     /* of REFERRED: how many referrers lie between it and a block that a row knows */
};

/* What a row's key was the last time: neighbours are often alike. */
struct last_key {
    uint64_t key;
    uint32_t label;                     /* 0: there was none yet */
};

/* Words side by side that begin with a pointer and may be a container's: what its block would have to hold. Of a LIST and of a CHAIN
   `bytes` is the number of nodes; a CHAIN stands behind its BUCKETS. BUFFERS stands behind its DEQUE, with the first and last place in that
   as `address`. Of HASHES, a table of Rust's, `address` is that of its control bytes, and `bytes` what stands from there on. Of DYNS
   `bytes` is the vtable; of VECS what hint_vec() has put together. */
struct hint {
    uint64_t address;
    uint64_t bytes : 56, kind : 8;
};

struct signer {
    unsigned word, swap;
    const struct condition *conditions; /* the caller's, and so are the rows */
    const struct row_numbers *rows;
    uint64_t row_count;
    struct row_filter *filters;
    struct last_key *last;              /* by row, those beyond the caller's too */
    struct number_set *sets;
    uint64_t set_count;
    struct signed_key *keys;
    uint32_t *places;                   /* by hash: number of the key + 1, or 0 */
    uint64_t key_count, place_count;
    struct signed_key rest;             /* of blocks without a label, as they were signed */
    uint32_t *labels;                   /* of each block, in order: number of the key + 1, or UNSIGNED */
    uint64_t blocks, room;
    int keeps_labels, keeps_contents, needs_contents;
    struct hint *hints;
    uint64_t hint_count, hint_room;
    int lost_hints;                     /* there was no memory for all */
    struct contents contents;           /* if they are kept */
    struct copied copied;
    struct contents weak;               /* of blocks that met a weak row: BEGINS_TEXT, ONLY_ZEROS or NUMBERS */
    struct number_set constants;        /* where vtables of trait objects may lie; empty: nothing of Rust is looked for */
    uint8_t *foreign;                   /* by row: its blocks are another language's, and so are their words */
};

/* Of blocks that are read apart; it asks the same, which stays open longer. NULL: no memory. */
struct signer *signer_open_part(const struct signer *signer);
void signer_close_part(struct signer *part);

/* It has signed nothing, and what it keeps of a block does not depend on the number of that. */
int signer_may_have_parts(const struct signer *signer);

/* Keys of a part, before anything else of any part is joined. 0: they are so many that which of them there are depends on the order of
   blocks, or there is no memory. */
int signer_join_keys(struct signer *signer, struct signer *part);

/* What is kept of the part's blocks, which follow those that are there. 0: no memory. */
int signer_join(struct signer *signer, struct signer *part);

/* It has signed nothing again. */
void signer_clear(struct signer *signer);

/* The number of the row's key, + 1; 0: no memory. */
uint32_t signer_key(struct signer *signer, uint64_t row, uint64_t key);

/* The block has this label from now on. 0: there is none, since there was no memory. */
int signer_relabel(struct signer *signer, const struct index *index, uint32_t id, uint32_t label);

static inline void count_block(struct signed_key *found, uint64_t address, uint64_t usable)
{
    found->sample = found->blocks ? found->sample : address;
    found->least = !found->blocks || usable < found->least ? usable : found->least;
    found->most = usable > found->most ? usable : found->most;
    found->blocks++;
    found->bytes += usable;
}

static inline void signer_count(struct signer *signer, uint32_t label, uint64_t address, uint64_t usable)
{
    count_block(&signer->keys[label - 1], address, usable);
}

#define PAGE 4096u
#define LEAST_MAPPED (128u << 10)       /* a block of this size may be a mapping of its own, of whole pages */

/* So many bytes were asked for when the block was made, as far as its size tells. */
static inline int fits_block(uint64_t usable, uint64_t bytes, int has_classes)
{
    const uint64_t rest = usable - bytes;
    return bytes <= usable && (rest < 32 || usable == 24 || (has_classes && rest <= usable / 5 + 16)
                               || (usable >= LEAST_MAPPED && rest < 2 * PAGE));
}

#define LEAST_CAPACITY 16u              /* of a string with a block of its own: a shorter one lies in its owner (libstdc++, C++11 ABI) */
#define MOST_CONTAINER_BYTES (1ull << 40)

void signer_hint(struct signer *signer, uint64_t address, uint64_t bytes, unsigned kind);

#define CAPACITY_BITS 32u
#define PLACE_BITS 22u                  /* the lowest: it is an array that has it */
#define OF_ARRAY (1ull << 62)           /* in a place */
#define OF_ROOT (1ull << 63)

/* Of VECS: the capacity, whether the length is the same (and not beside it once more), the order, and of the owner's place so many bits of
   its hash. */
static inline uint64_t vec_capacity(const struct hint *hint)
{
    return hint->bytes & UINT32_MAX;
}

static inline int vec_is_full(const struct hint *hint)
{
    return hint->bytes >> CAPACITY_BITS & 1;
}

static inline unsigned vec_order(const struct hint *hint)
{
    return hint->bytes >> (CAPACITY_BITS + 1) & 1;
}

static inline uint32_t vec_place(const struct hint *hint)
{
    return (uint32_t) (hint->bytes >> (CAPACITY_BITS + 2));
}

/* What stands beside a pointer as in a trait object or a Vec. `before` and `words`: so many before it, and from it on; `place`: where the
   owner has it. */
void signer_look_rust(struct signer *signer, const uint8_t *at, uint64_t before, uint64_t words, uint64_t place);

/* `words`: so many from the pointer on, which are those of a table or of a deque if they are a container's. */
void signer_look_far(struct signer *signer, const uint8_t *words, uint64_t count);

/* {block, length, capacity} or {begin, end, end of the capacity}. */
static inline void signer_look(struct signer *signer, uint64_t pointer, uint64_t second, uint64_t third)
{
    if (second <= third && third - LEAST_CAPACITY < UINT32_MAX)
        signer_hint(signer, pointer, third + (second < third), STRING);  /* a buffer of V8, which is always full, has no byte behind */
    else if (second >= pointer && second <= third && third - pointer - 1 < MOST_CONTAINER_BYTES)
        signer_hint(signer, pointer, third - pointer, VECTOR);
    else if (third - 2 < UINT32_MAX && second > third && pointer != second && !((pointer | second) & 7))
        signer_hint(signer, pointer, third, LIST);      /* {first, last, number} */
}

/* {block, number of pointers in it, address}: of more words behind them it depends what that is. */
static inline int signer_may_see_far(uint64_t second, uint64_t third)
{
    return second - 2 < UINT32_MAX && ((third > second && third >= 1u << 16) || (!(second & (second + 1)) && third <= second));
}

/* Reads what the signer wants of a block that begins with these bytes. 0, or NO_MEMORY. */
int signer_sign(struct signer *signer, uint64_t address, uint64_t usable, const uint8_t *bytes, uint64_t length);

#endif
