/* Words that own nothing: what stands behind a string's length or a vector's end was left there by who had the memory before, and so was
   what stands in the inline buffer of a string that does not use it.

   While memory is read, what looks like a string or a vector is noted. Once all blocks are known it tells which edges are stale. Layouts:
   libstdc++ (basic_string.h, stl_vector.h); libc++ has the same vectors. A list of CPython has its length before its pointer
   (Include/cpython/listobject.h), and so have objects, arrays and tables of Ruby (include/ruby/internal/core/, include/ruby/st.h; of 3.1
   internal/hash.h). */
#ifndef HEAPX_STALE_H
#define HEAPX_STALE_H

#include "index.h"
#include <stdlib.h>

#define INLINE_BYTES 16u                /* of std::string (libstdc++, C++11 ABI): a pointer to it, a length, and this */
#define MOST_ROOM (1u << 30)            /* bytes of a string or vector: of larger ones all is taken to be live */

enum { WORDS, CHARACTERS, ENTRIES };    /* what a body has: CHARACTERS are no pointers; ENTRIES, of Ruby's, have holes */
#define HOLE 1u                         /* as a stale_word's address: it is so if its node has ENTRIES */

/* A block with a string or vector in it. */
struct stale_body {
    uint64_t address;
    uint32_t room;                      /* bytes it was made for */
    uint32_t from : 30;                 /* the first word that holds nothing */
    uint32_t kind : 2;
};

/* One word that holds nothing, if the string in the words before has its block. */
struct stale_word {
    uint64_t address;                   /* of that block; 0: its characters are inline */
    uint32_t room;
    uint32_t node, slot;
};

/* A table of Rust's HashMap (hashbrown), with 1 << power places: its control bytes stand behind its elements, and a word of the node leads
   there. */
struct stale_table {
    uint64_t control;
    uint32_t node, power;
};

/* The last word of a block that may be an object of CPython with a count of its items, and what that says. */
struct stale_tail {
    uint32_t node, slot;
    int32_t count;
};

struct stale {
    struct grown tails, tables, bodies, words;     /* of stale_tail and so on */
    int is_lost;                        /* there was no memory for all: then no word is called stale */
};

void stale_body(struct stale *stale, uint64_t address, uint64_t from, uint64_t room, unsigned kind);
void stale_word(struct stale *stale, uint64_t address, uint64_t room, uint64_t node, uint64_t slot);
void stale_table(struct stale *stale, uint64_t control, uint64_t mask, uint64_t node);
void stale_tail(struct stale *stale, uint64_t node, uint64_t slot, int32_t count);

/* All but the tails, about which a runtime is asked. */
static inline void stale_settle(struct stale *stale)
{
    free(stale->tables.items);
    free(stale->bodies.items);
    free(stale->words.items);
    *stale = (struct stale) {.tails = stale->tails};
}

static inline void stale_free(struct stale *stale)
{
    stale_settle(stale);
    free(stale->tails.items);
    memset(stale, 0, sizeof *stale);
}

/* Those of a part, whose first node has this number. */
void stale_join(struct stale *stale, const struct stale *part, uint64_t node);

static inline uint64_t plain_word(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

#define LEAST_ADDRESS 65536u

/* Places less one, how many elements more it may get, and how many it has: of 8 places 7 are used at most. */
static inline int is_hash_table(uint64_t mask, uint64_t growth, uint64_t items)
{
    return mask - 3 < MOST_ROOM && !(mask & (mask + 1)) && items - 1 < mask && growth <= mask
        && growth + items <= (mask < 8 ? mask : (mask + 1) / 8 * 7);
}

/* As stale_look, of what holds and owns: {control, mask, growth, items}, and in older releases {mask, control, growth, items}. */
static inline void stale_look_table(struct stale *stale, const uint8_t *at, uint64_t before, uint64_t words, uint64_t node, uint64_t value)
{
    if (value % 16 || words < 3)
        return;
    const uint64_t second = plain_word(at + 8), third = plain_word(at + 16);
    if (words > 3 && second < MOST_ROOM && is_hash_table(second, third, plain_word(at + 24)))
        stale_table(stale, value, second, node);
    else if (before && third < MOST_ROOM && is_hash_table(plain_word(at - 8), second, third))
        stale_table(stale, value, plain_word(at - 8), node);
}

#define OBJECT_TYPE 0x1fu               /* of flags, which come before the class of an object of Ruby */
#define OF_VARIABLES 1u
#define ARRAY_TYPE 7u
#define HASH_TYPE 8u
#define STRUCT_TYPE 9u
#define NOT_ITS_OWN 0x1006000u          /* elements in the slot, or shared */
#define HAS_TABLE 0x8000u
#define PAIRS 8u

static inline int begins_object(const uint8_t *at, uint64_t type)
{
    const uint64_t flags = plain_word(at), class = plain_word(at + 8);
    return (flags & OBJECT_TYPE) == type && flags <= UINT32_MAX && class >= LEAST_ADDRESS && !(class & 7);
}

/* As stale_look, with two words in front of it at least. */
static inline void stale_look_ruby(struct stale *stale, const uint8_t *at, uint64_t before, uint64_t node, uint64_t slot, uint64_t value)
{
    const uint64_t flags = plain_word(at - 16), bound = flags >> 20 & 15;
    if (begins_object(at - 16, HASH_TYPE) && !(flags & HAS_TABLE) && bound <= PAIRS && (flags >> 16 & 15) <= bound)
        stale_body(stale, value, 2 * bound, 16 * PAIRS, WORDS);         /* {flags, class, pairs} */
    if ((slot % 3 == 1 && plain_word(at - 8) == UINT64_MAX) || (slot % 3 == 2 && flags == UINT64_MAX))
        stale_word(stale, HOLE, 0, node, slot);                         /* {hash, key, value}: the hash says that there is none */
    const uint64_t length = flags, capacity = plain_word(at - 8);
    if (before > 2 && capacity < MOST_ROOM / 8 && (begins_object(at - 24, OF_VARIABLES) || begins_object(at - 24, STRUCT_TYPE)))
        stale_body(stale, value, capacity, 8 * capacity, WORDS);        /* {flags, class, length, elements} */
    if (before < 4)
        return;
    if (length <= capacity && capacity < MOST_ROOM / 8 && begins_object(at - 32, ARRAY_TYPE) && !(plain_word(at - 32) & NOT_ITS_OWN))
        stale_body(stale, value, length, 8 * capacity, WORDS);          /* {flags, class, length, capacity, elements} */
    if (before < 6)
        return;
    const uint64_t power = plain_word(at - 48) & 0xff, type = plain_word(at - 40), count = plain_word(at - 32);
    const uint64_t start = length, end = capacity;
    if (power < 26 && type >= LEAST_ADDRESS && !(type & 7) && end <= UINT64_C(1) << power && start <= end && count <= end - start)
        stale_body(stale, value, 3 * end, UINT64_C(24) << power, ENTRIES);     /* {powers, type, count, bins, start, end, entries} */
}

#define COUNT_WORD 4u                   /* {the collector's two, counts, type, number of items}: Include/cpython/object.h, PyVarObject */
#define LEAST_ITEM 4
#define MOST_TAIL 65535u                /* words in front of a last one that is looked at */

/* As stale_look, of a block's last word: it may stand behind the last item. Of a number's digits the sign is the count's. */
static inline void stale_look_tail(struct stale *stale, const uint8_t *at, uint64_t before, uint64_t node, uint64_t slot)
{
    if (before != slot || slot <= COUNT_WORD)
        return;
    const uint8_t *begin = at - 8 * slot;
    const uint64_t counts = plain_word(begin + 16), type = plain_word(begin + 24);
    const int64_t count = (int64_t) plain_word(begin + 8 * COUNT_WORD), room = (int64_t) (8 * (slot - COUNT_WORD - 1) / LEAST_ITEM);
    if ((uint32_t) counts && type >= LEAST_ADDRESS && !(type & 7) && count <= room && count >= -room)
        stale_tail(stale, node, slot, (int32_t) count);
}

/* The candidate `value`, in words of eight bytes in this machine's order, that stands at the address `here` in its node's slot; `before`
   words are at hand in front of it, and `words` from it on. */
static inline void stale_look(struct stale *stale, const uint8_t *at, uint64_t before, uint64_t words, uint64_t node, uint64_t slot,
                              uint64_t here, uint64_t value)
{
    if (words == 1 && slot <= MOST_TAIL)
        stale_look_tail(stale, at, before, node, slot);
    if (words > 2) {
        const uint64_t second = plain_word(at + 8), third = plain_word(at + 16);
        if (second <= third && third - INLINE_BYTES < MOST_ROOM)
            stale_body(stale, value, second / 8, third + 1, CHARACTERS);        /* {block, length, capacity} */
        if (second >= value && second <= third && third - value - 1 < MOST_ROOM)
            stale_body(stale, value, (second - value + 7) / 8, third - value, WORDS);  /* {begin, end, end of the capacity} */
    }
    if (before > 2 && words > 1) {
        const uint64_t counts = plain_word(at - 24), type = plain_word(at - 16), length = plain_word(at - 8), capacity = plain_word(at + 8);
        if (length && length <= capacity && capacity < MOST_ROOM / 8 && counts - 1 < UINT32_MAX && type >= LEAST_ADDRESS && !(type & 7))
            stale_body(stale, value, length, 8 * capacity, WORDS);      /* PyListObject: {count, type, length, block, capacity} */
    }
    if (before < 2)
        return;
    stale_look_ruby(stale, at, before, node, slot, value);
    const uint64_t first = before > 2 ? plain_word(at - 24) : 0, second = plain_word(at - 16), third = plain_word(at - 8);
    if ((second == here && third < INLINE_BYTES) || (first == here - 8 && second < INLINE_BYTES))
        stale_word(stale, 0, 0, node, slot);                            /* characters */
    else if (first && second <= third && third - INLINE_BYTES < MOST_ROOM)
        stale_word(stale, first, third + 1, node, slot);
}

#endif
