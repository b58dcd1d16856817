/* What blocks say at their begin about pointers to their inside. */
#include "heads.h"

#include <stdlib.h>

#define CLUSTER_GAP (16u << 20)
#define AHEAD_BYTES 8192u           /* of a vtable: the second ones of its class follow it */
#define SLACK 16u                   /* what malloc may give beyond what was asked for: of a small block, */
#define LARGE_BYTES 65536u
#define LARGE_SLACK 4096u           /* and of one that may be a mapping, the rest of a page */

static int in_ranges(const struct heads *heads, uint64_t address, uint64_t *begin, uint64_t *end)
{
    const uint64_t place = range_at(heads->ranges, heads->range_count, address);
    if (!place)
        return 0;
    *begin = heads->ranges[2 * place - 2];
    *end = heads->ranges[2 * place - 1];
    return 1;
}

static void find_clusters(struct heads *heads)
{
    for (uint64_t i = 0; i < heads->range_count; i++) {
        const uint64_t begin = heads->ranges[2 * i], end = heads->ranges[2 * i + 1];
        const unsigned last = heads->clusters - 1;
        if (heads->clusters && (heads->clusters == HEAD_CLUSTERS || begin - (heads->low[last] + heads->span[last]) < CLUSTER_GAP)) {
            heads->span[last] = end - heads->low[last];
            continue;
        }
        heads->low[heads->clusters] = begin;
        heads->span[heads->clusters++] = end - begin;
    }
}

int heads_open(struct heads *heads, unsigned word, unsigned swap, const struct source *images, const uint64_t *ranges, uint64_t count)
{
    heads->word = word;
    heads->swap = swap;
    heads->images = images;
    heads->ranges = ranges;
    heads->range_count = images ? count : 0;
    if (!heads->range_count)
        return 1;
    heads->values = calloc(HEAD_VALUES, sizeof *heads->values);
    heads->classes = malloc(MOST_HEAD_VALUES * sizeof *heads->classes);
    heads->bases = malloc(MOST_HEAD_BASES * sizeof *heads->bases);
    heads->bytes = malloc(AHEAD_BYTES + 16);
    find_clusters(heads);
    return heads->values && heads->classes && heads->bases && heads->bytes;
}

void heads_close(struct heads *heads)
{
    free(heads->values);
    free(heads->classes);
    free(heads->bases);
    free(heads->bytes);
    free(heads->bits);
    free(heads->objects);
    free(heads->numbers);
    memset(heads, 0, sizeof *heads);
}

static uint64_t image_word(const struct heads *heads, uint64_t place)
{
    return load_word(heads->bytes + place * heads->word, heads->word, heads->swap);
}

/* The vtables of a class follow each other, and before each stands how far its base is from the object's begin, as a negative number, and
   the class's type_info (Itanium C++ ABI, 2.5.2). 1: it has second ones, 0: none, or it is no vtable; INTERRUPTED. */
static int learn(struct heads *heads, uint64_t value)
{
    const unsigned word = heads->word;
    const uint64_t most = word == 8 ? UINT64_MAX : UINT32_MAX;
    uint64_t begin, end;
    if (value % word || !in_ranges(heads, value, &begin, &end) || value - begin < 2 * word)
        return 0;
    const uint64_t from = value - 2 * word, left = end - from, size = left < AHEAD_BYTES ? left : AHEAD_BYTES;
    const int64_t read = source_read_near(heads->images, NULL, from, heads->bytes, size, 1);
    if (read < 0)
        return INTERRUPTED;
    const uint64_t words = (uint64_t) read / word, type_info = words < 2 ? 0 : image_word(heads, 1);
    if (!type_info || type_info % word || image_word(heads, 0))
        return 0;
    struct head_class class = {heads->base_count, 0};
    for (uint64_t place = 2; place + 1 < words && class.count < MOST_BASES_OF_ONE && heads->base_count < MOST_HEAD_BASES; place++) {
        const uint64_t offset = (0 - image_word(heads, place)) & most;
        if (image_word(heads, place + 1) != type_info || !offset || offset >= MOST_OFFSET || offset % word)
            continue;
        struct head_base base = {value + place * word, (uint32_t) offset};
        heads->bases[heads->base_count++] = base;
        class.count++;
    }
    if (!class.count)
        return 0;
    heads->classes[heads->class_count++] = class;
    return 1;
}

uint16_t heads_class(struct heads *heads, uint64_t value)
{
    if (heads->ask)
        return heads->ask(heads, value);
    uint32_t place = head_place(value);
    while (heads->values[place].value && heads->values[place].value != value)
        place = (place + 1) % HEAD_VALUES;
    struct head_value *one = &heads->values[place];
    if (!one->value) {
        if (heads->value_count == MOST_HEAD_VALUES)
            return NO_CLASS;
        const int found = learn(heads, value);
        if (found == INTERRUPTED)
            return NO_CLASS;
        one->number = found ? (uint16_t) (heads->class_count - 1) : NO_CLASS;
        __atomic_store_n(&one->value, value, __ATOMIC_RELEASE);
        heads->value_count++;
    }
    return one->number;
}

uint32_t heads_find_bases(const struct heads *heads, uint16_t number, uint64_t slot, const uint8_t *bytes, uint64_t words)
{
    const struct head_class *class = &heads->classes[number];
    uint32_t found = 0;
    for (uint32_t i = class->first; i < class->first + class->count; i++) {
        const uint64_t place = heads->bases[i].offset / heads->word - slot;
        found += place < words && load_word(bytes + place * heads->word, heads->word, heads->swap) == heads->bases[i].vtable;
    }
    return found;
}

/* The elements behind their number, as new[] keeps it for classes with destructors (Itanium C++ ABI, 2.7): elements of one size fill the
   rest, and there are two at least. */
static int is_array(uint64_t count, uint64_t room, unsigned word)
{
    if (count < 2 || count > room || count * word > room)      /* room is a block's: no product here is too large */
        return 0;
    return room - count * (room / count & ~(uint64_t) (word - 1)) < SLACK;
}

/* The size class of so many bytes where there are steps of 16 up to 128, then four to a doubling. */
static uint64_t class_bytes(uint64_t asked)
{
    const unsigned step = asked <= 128 ? 4 : 61 - (unsigned) __builtin_clzll(asked - 1);
    return (asked + ((uint64_t) 1 << step) - 1) >> step << step;
}

/* What was asked for, behind its own length: wrappers of malloc keep it so, SQLite's among them. */
static int is_counted(uint64_t length, uint64_t size, uint64_t offset)
{
    const uint64_t slack = size < LARGE_BYTES ? SLACK : LARGE_SLACK;
    if (!length || length > size)
        return 0;
    return size - length < slack || size - offset - length < slack || size == class_bytes(length + offset);
}

/* The characters behind length, capacity and count of references (libstdc++'s std::string before GCC 5: _Rep). */
static int is_string(const uint64_t *words, uint64_t size, unsigned word)
{
    const uint64_t length = words[0], capacity = words[1];
    return capacity && length <= capacity && capacity < size && size - (capacity + 3 * word + 1) < 2 * SLACK;
}

/* An instance's attributes in CPython 3.11 and 3.12: the byte before the first says how far it is from the begin, the one before that how
   many are set, and those before, backwards, in which order. `place`: of the first, in words. */
static int is_values(const uint64_t *words, uint64_t size, unsigned place)
{
    const unsigned prefix = place * 8;
    const uint64_t room = size / 8 - place;
    uint32_t seen = 0;
    uint8_t bytes[8 * HEAD_WORDS];
    for (unsigned i = 0; i < prefix; i++)
        bytes[i] = (uint8_t) (words[i / 8] >> i % 8 * 8);
    const unsigned count = bytes[prefix - 2];
    if (bytes[prefix - 1] != prefix || !count || count > prefix - 2 || count > room)
        return 0;
    for (unsigned i = 3; i < 3 + count; i++) {
        const unsigned number = bytes[prefix - i];
        if (number >= room || number >= 32 || seen >> number & 1)
            return 0;
        seen |= 1u << number;
    }
    return 1;
}

static unsigned values_bits(const struct heads *heads, const uint64_t *words, uint64_t size)
{
    for (unsigned place = 1; place <= HEAD_WORDS && heads->word == 8 && size > 8 * place; place++)
        if (is_values(words, size, place))
            return HEAD_AT_1 << (place - 1);
    return 0;
}

unsigned heads_containers(const struct heads *heads, const uint64_t *words, uint64_t size)
{
    const uint64_t word = heads->word;
    unsigned bits = values_bits(heads, words, size);
    if (size < 2 * word)
        return 0;
    if (is_array(words[0], size - word, heads->word) || is_counted(words[0], size, word))
        bits |= HEAD_AT_1;
    if (size >= 3 * word && (is_array(words[1], size - 2 * word, heads->word) || is_counted(words[0], size, 2 * word)))
        bits |= HEAD_AT_2;
    if (size >= 4 * word && is_string(words, size, heads->word))
        bits |= HEAD_AT_3;
    return bits;
}

/* So that there are `wanted` bytes, zeros behind those that were there. */
static int bits_grow(struct heads *heads, uint64_t wanted)
{
    const uint64_t room = wanted < 4096 ? 4096 : wanted + wanted / 2;
    uint8_t *more = realloc(heads->bits, (size_t) room);
    if (!more)
        return 0;
    memset(more + heads->bit_bytes, 0, (size_t) (room - heads->bit_bytes));
    heads->bits = more;
    heads->bit_bytes = room;
    return 1;
}

static int objects_grow(struct heads *heads)
{
    const uint64_t room = heads->object_room ? heads->object_room + heads->object_room / 2 : 4096;
    uint32_t *objects = realloc(heads->objects, (size_t) room * sizeof *objects);
    heads->objects = objects ? objects : heads->objects;
    uint16_t *numbers = realloc(heads->numbers, (size_t) room * sizeof *numbers);
    heads->numbers = numbers ? numbers : heads->numbers;
    heads->object_room = objects && numbers ? room : heads->object_room;
    return objects && numbers;
}

int heads_note(struct heads *heads, uint64_t id, unsigned bits, uint16_t number)
{
    if (id >> 1 >= heads->bit_bytes && !bits_grow(heads, (id >> 1) + 1))
        return 0;
    heads->bits[id >> 1] |= (uint8_t) (bits << (id & 1) * 4);
    if (!(bits & HEAD_BASES))
        return 1;
    if (heads->object_count == heads->object_room && !objects_grow(heads))
        return 0;
    heads->objects[heads->object_count] = (uint32_t) id;
    heads->numbers[heads->object_count++] = number;
    return 1;
}

void heads_forget(struct heads *heads)
{
    if (heads->values)
        memset(heads->values, 0, HEAD_VALUES * sizeof *heads->values);
    heads->value_count = heads->class_count = heads->base_count = 0;
}

void heads_open_part(struct heads *part, const struct heads *heads, uint16_t (*ask)(const struct heads *heads, uint64_t value),
                     void *asked)
{
    *part = *heads;
    part->bits = NULL;
    part->objects = NULL;
    part->numbers = NULL;
    part->bit_bytes = part->object_count = part->object_room = 0;
    part->ask = ask;
    part->asked = asked;
}

void heads_close_part(struct heads *part)
{
    part->values = NULL;
    part->classes = NULL;
    part->bases = NULL;
    part->bytes = NULL;
    heads_close(part);
}

int heads_join(struct heads *heads, const struct heads *part, uint64_t id)
{
    uint64_t object = 0;
    for (uint64_t i = 0; i < 2 * part->bit_bytes; i++) {
        const unsigned bits = part->bits[i >> 1] >> (i & 1) * 4 & 15u;
        if (!part->bits[i >> 1])
            i |= 1;
        else if (bits && !heads_note(heads, id + i, bits, bits & HEAD_BASES ? part->numbers[object++] : NO_CLASS))
            return 0;
    }
    return 1;
}

static int is_base(const struct heads *heads, uint32_t id, uint64_t offset)
{
    const struct head_class *class = &heads->classes[heads->numbers[first_short_from(heads->objects, heads->object_count, id)]];
    for (uint32_t i = class->first; i < class->first + class->count; i++)
        if (heads->bases[i].offset == offset)
            return 1;
    return 0;
}

unsigned heads_tell(const struct heads *heads, uint32_t id, uint64_t offset)
{
    const unsigned bits = id >> 1 < heads->bit_bytes ? heads->bits[id >> 1] >> (id & 1) * 4 & 15u : 0;
    offset += offset % heads->word == heads->word - 1;      /* CPython 3.12 tags a pointer to values so */
    if (!bits || offset % heads->word)
        return HEAD_TELLS_NOTHING;
    const uint64_t place = offset / heads->word;
    if (place <= 3 && bits >> (place - 1) & 1)
        return HEAD_TELLS_CONTAINER;
    return bits & HEAD_BASES && is_base(heads, id, offset) ? HEAD_TELLS_BASE : HEAD_TELLS_NOTHING;
}
