/* Numbers by keys. */
#ifndef HEAPX_TALLY_H
#define HEAPX_TALLY_H

#include "../common/heapx.h"

/* No key is 0. */
struct tally {
    uint64_t *keys;
    uint32_t *numbers;
    uint32_t room, used;                /* room: a power of two */
};

static inline int tally_open(struct tally *tally, uint32_t room)
{
    tally->room = room;
    tally->used = 0;
    tally->keys = lazy_alloc((size_t) room * sizeof *tally->keys);
    tally->numbers = lazy_alloc((size_t) room * sizeof *tally->numbers);
    return tally->keys && tally->numbers;
}

static inline void tally_close(struct tally *tally)
{
    lazy_free(tally->keys, (size_t) tally->room * sizeof *tally->keys);
    lazy_free(tally->numbers, (size_t) tally->room * sizeof *tally->numbers);
    tally->keys = NULL;
    tally->numbers = NULL;
}

static inline uint64_t mixed(uint64_t key)
{
    key = (key ^ key >> 31) * UINT64_C(0x9e3779b97f4a7c15);
    return key ^ key >> 29;
}

/* The key's number; NULL where it has none. */
static inline uint32_t *tally_find(const struct tally *tally, uint64_t key)
{
    uint32_t at = (uint32_t) mixed(key) & (tally->room - 1);
    for (; tally->keys[at]; at = (at + 1) & (tally->room - 1))
        if (tally->keys[at] == key)
            return &tally->numbers[at];
    return NULL;
}

static inline uint32_t *tally_place(struct tally *tally, uint64_t key)
{
    uint32_t at = (uint32_t) mixed(key) & (tally->room - 1);
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
