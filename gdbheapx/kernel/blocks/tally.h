/* Numbers by keys. */
#ifndef HEAPX_TALLY_H
#define HEAPX_TALLY_H

#include "../common/heapx.h"

#define LEAST_TALLY 64u

/* No key is 0. Keys come from the target, which may have chosen them: where the first probe is depends on where the table happens to lie in
   memory. */
struct tally {
    uint64_t *keys;
    uint32_t *numbers;
    uint64_t secret;
    uint32_t room, used;                /* room: a power of two, LEAST_TALLY at least */
    unsigned shift;                     /* so that what is left of 64 bits is a place */
};

static inline uint64_t mixed(uint64_t key)
{
    key = (key ^ key >> 31) * UINT64_C(0x9e3779b97f4a7c15);
    return key ^ key >> 29;
}

static inline int tally_open(struct tally *tally, uint32_t room)
{
    tally->room = room;
    tally->used = 0;
    tally->keys = lazy_alloc((size_t) room * sizeof *tally->keys);
    tally->numbers = lazy_alloc((size_t) room * sizeof *tally->numbers);
    tally->secret = mixed((uintptr_t) tally->keys) | 1;
    for (tally->shift = 64; room > 1; room /= 2)
        tally->shift--;
    return tally->keys && tally->numbers;
}

static inline void tally_close(struct tally *tally)
{
    lazy_free(tally->keys, (size_t) tally->room * sizeof *tally->keys);
    lazy_free(tally->numbers, (size_t) tally->room * sizeof *tally->numbers);
    tally->keys = NULL;
    tally->numbers = NULL;
}

/* A large one is not cleared for what is much smaller: it is made anew. 0: no memory. */
static inline int tally_clear(struct tally *tally, uint32_t keys)
{
    if (tally->room / 8 > keys && tally->room > LEAST_TALLY) {
        tally_close(tally);
        return tally_open(tally, LEAST_TALLY);
    }
    memset(tally->keys, 0, (size_t) tally->room * sizeof *tally->keys);
    memset(tally->numbers, 0, (size_t) tally->room * sizeof *tally->numbers);
    tally->used = 0;
    return 1;
}

static inline uint32_t first_probe(const struct tally *tally, uint64_t key)
{
    return (uint32_t) ((key ^ key >> 32) * tally->secret >> tally->shift);
}

/* The key's number; NULL where it has none. */
static inline uint32_t *tally_find(const struct tally *tally, uint64_t key)
{
    uint32_t at = first_probe(tally, key);
    for (; tally->keys[at]; at = (at + 1) & (tally->room - 1))
        if (tally->keys[at] == key)
            return &tally->numbers[at];
    return NULL;
}

static inline uint32_t *tally_place(struct tally *tally, uint64_t key)
{
    uint32_t at = first_probe(tally, key);
    while (tally->keys[at] && tally->keys[at] != key)
        at = (at + 1) & (tally->room - 1);
    tally->used += !tally->keys[at];
    tally->keys[at] = key;
    return &tally->numbers[at];
}

/* The same, made where it has none; NULL: no memory. */
static inline uint32_t *tally_at(struct tally *tally, uint64_t key)
{
    if (2 * tally->used >= tally->room) {
        struct tally more;
        if (!tally_open(&more, 2 * tally->room)) {
            tally_close(&more);
            return NULL;
        }
        for (uint32_t i = 0; i < tally->room; i++)
            if (tally->keys[i])
                *tally_place(&more, tally->keys[i]) = tally->numbers[i];
        tally_close(tally);
        *tally = more;
    }
    return tally_place(tally, key);
}

#endif
