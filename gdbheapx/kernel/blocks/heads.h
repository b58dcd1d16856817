/* What blocks say at their begin about pointers to their inside: judged while they are read, because a living process runs on before
   it is known who points where. Four bits a block, and six bytes for each object of a class with several vtables. */
#ifndef HEAPX_HEADS_H
#define HEAPX_HEADS_H

#include "../common/heapx.h"

#define HEAD_CLUSTERS 8u            /* parts of the address space where images lie close together */
#define HEAD_WORDS 3u
#define HEAD_BITS 16u
#define HEAD_VALUES (1u << HEAD_BITS)    /* places for what first words were; */
#define MOST_HEAD_VALUES (1u << 15) /* more are not looked at */
#define MOST_HEAD_BASES 65535u
#define MOST_BASES_OF_ONE 64u
#define NO_CLASS UINT16_MAX
#define MOST_OFFSET 65535u

enum { HEAD_AT_1 = 1, HEAD_AT_2 = 2, HEAD_AT_3 = 4, HEAD_BASES = 8 };      /* of pointers to the second word, the third, the fourth */

enum { HEAD_TELLS_NOTHING, HEAD_TELLS_CONTAINER, HEAD_TELLS_BASE };

/* Where a class keeps its second vtables: base[first] to base[first + count - 1]. */
struct head_class {
    uint32_t first, count;
};

struct head_base {
    uint64_t vtable;                /* what stands there */
    uint32_t offset;
};

struct head_value {
    uint64_t value;                 /* 0: no value yet */
    uint16_t number;                /* of the class, or NO_CLASS */
};

struct heads {
    unsigned word, swap;
    const struct source *images;    /* NULL: none */
    const uint64_t *ranges;         /* the caller's: begin and end of each part of an image that may hold vtables, sorted */
    uint64_t range_count;
    uint64_t low[HEAD_CLUSTERS], span[HEAD_CLUSTERS];
    unsigned clusters;
    struct head_value *values;
    uint32_t value_count;
    struct head_class *classes;
    struct head_base *bases;
    uint32_t class_count, base_count;
    uint8_t *bytes;                 /* of an image */
    /* of a part of the blocks: who learns for all of them; NULL: it learns itself */
    uint16_t (*ask)(const struct heads *heads, uint64_t value);
    void *asked;
    /* by block */
    uint8_t *bits;                  /* two blocks a byte; none beyond bit_bytes */
    uint64_t bit_bytes;
    uint32_t *objects;              /* blocks with HEAD_BASES, ascending; numbers[] are their classes */
    uint16_t *numbers;
    uint64_t object_count, object_room;
};

/* What was seen of the block that is read. */
struct head {
    uint64_t words[HEAD_WORDS];
    uint32_t found;                 /* vtables that stand where its class has them */
    uint16_t number;                /* of the class, where has_class */
    uint16_t has_class;
};

/* 0: no memory. `ranges` stay the caller's. */
int heads_open(struct heads *heads, unsigned word, unsigned swap, const struct source *images, const uint64_t *ranges, uint64_t count);
void heads_close(struct heads *heads);

/* Nothing is known of any value. */
void heads_forget(struct heads *heads);

/* Of blocks that are read apart; `ask` says what a value is that is not known yet. */
void heads_open_part(struct heads *part, const struct heads *heads, uint16_t (*ask)(const struct heads *heads, uint64_t value),
                     void *asked);
void heads_close_part(struct heads *part);

/* Those of a part, whose first block has this id. 0: no memory. */
int heads_join(struct heads *heads, const struct heads *part, uint64_t id);

/* More values are not looked at, or no more bases: which of them are known depends on the order in which blocks are read. */
static inline int heads_are_full(const struct heads *heads)
{
    return heads->value_count == MOST_HEAD_VALUES || heads->base_count == MOST_HEAD_BASES;
}

/* The class whose vtable is at `value`, if it has second vtables; else NO_CLASS. */
uint16_t heads_class(struct heads *heads, uint64_t value);

/* How many of its second vtables these words have, which begin at the block's slot'th. */
uint32_t heads_find_bases(const struct heads *heads, uint16_t number, uint64_t slot, const uint8_t *bytes, uint64_t words);

/* 0: no memory. */
int heads_note(struct heads *heads, uint64_t id, unsigned bits, uint16_t number);

/* What the block tells of a pointer to that offset. */
unsigned heads_tell(const struct heads *heads, uint32_t id, uint64_t offset);

unsigned heads_containers(const struct heads *heads, const uint64_t *words, uint64_t size);

static inline uint32_t head_place(uint64_t value)
{
    return (uint32_t) ((value >> 3) * 0x9E3779B97F4A7C15ull >> (64 - HEAD_BITS));
}

static inline uint16_t head_class_of(struct heads *heads, uint64_t value)
{
    int is_near = 0;
    for (unsigned i = 0; i < heads->clusters; i++)
        is_near |= value - heads->low[i] < heads->span[i];
    if (!is_near)
        return NO_CLASS;
    const struct head_value *one = &heads->values[head_place(value)];
    /* another thread may just be told what it is */
    return __atomic_load_n(&one->value, __ATOMIC_ACQUIRE) == value ? one->number : heads_class(heads, value);
}

/* Some words of the block, from its slot'th on. */
static inline void head_look(struct heads *heads, struct head *head, uint64_t slot, const uint8_t *bytes, uint64_t size)
{
    const uint64_t words = size / heads->word;
    for (uint64_t i = slot; i < HEAD_WORDS && i - slot < words; i++)
        head->words[i] = load_word(bytes + (i - slot) * heads->word, heads->word, heads->swap);
    if (!slot && words) {
        head->number = head_class_of(heads, head->words[0]);
        head->has_class = head->number != NO_CLASS;
    }
    if (head->has_class)
        head->found += heads_find_bases(heads, head->number, slot, bytes, words);
}

/* One of these is no larger than the block: it may be a number of elements, or a length; or its last byte is how many bytes they are. */
static inline int heads_may_count(const uint64_t *words, uint64_t size)
{
    return words[0] - 1 < size || words[1] - 1 < size || words[0] >> 56 == 8 || words[1] >> 56 == 16 || words[2] >> 56 == 24;
}

/* The block is read. 0: no memory. */
static inline int head_end(struct heads *heads, const struct head *head, uint64_t id, uint64_t size)
{
    unsigned bits = heads_may_count(head->words, size) ? heads_containers(heads, head->words, size) : 0;
    if (head->has_class && head->found == heads->classes[head->number].count)
        bits |= HEAD_BASES;
    return !bits || heads_note(heads, id, bits, head->number);
}

/* The same of a whole block, of words of eight bytes in this machine's order. */
static inline int head_whole(struct heads *heads, const uint8_t *bytes, uint64_t id, uint64_t size)
{
    uint64_t words[HEAD_WORDS] = {0};
    memcpy(words, bytes, size < sizeof words ? size & ~7ull : sizeof words);
    const uint16_t number = head_class_of(heads, words[0]);
    unsigned bits = heads_may_count(words, size) ? heads_containers(heads, words, size) : 0;
    if (number != NO_CLASS && heads_find_bases(heads, number, 0, bytes, size / 8) == heads->classes[number].count)
        bits |= HEAD_BASES;
    return !bits || heads_note(heads, id, bits, number);
}

#endif
