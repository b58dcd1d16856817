/* Where a second thread may begin in the middle of a heap. */
#include "chunk.h"

#define MIN_STEPS 8u
#define MOST_READS 256u     /* of headers behind the window: a heap's contents may look like many */

struct guess {
    const struct chunk_geometry *geometry;
    const struct source *source;
    const uint8_t *bytes;
    unsigned reads;
    uint64_t begin, length, end, top;
    const uint64_t *specials;
    size_t special_count;
};

static int is_special(const struct guess *guess, uint64_t address)
{
    const size_t place = specials_from(guess->specials, guess->special_count, address);
    return place < guess->special_count && (guess->specials[place] & ~(uint64_t) FLAGS) == address;
}

/* The size field of the chunk at bytes[offset]. Of large chunks a few lie behind the window and are read one by one. 0: it is not looked
   at. */
static int read_field(struct guess *guess, uint64_t offset, unsigned steps, uint64_t *field)
{
    const unsigned word = guess->geometry->word;
    const uint8_t *at = guess->bytes + offset;
    uint8_t header[16];
    if (offset > guess->length || guess->length - offset < 2 * word) {
        if (!steps || steps > MIN_STEPS || guess->reads == MOST_READS || guess->end - (guess->begin + offset) < 2 * word)
            return 0;
        guess->reads++;
        if (source_read(guess->source, guess->begin + offset, header, 2 * word) != 2 * (int64_t) word)
            return 0;
        at = header;
    }
    *field = load_word(at + word, word, guess->geometry->swap);
    return 1;
}

/* Follows plausible sizes from bytes[offset] to the end of the window, of large chunks beyond it. Returns the last chunk on the way that
   looks in use and has a chunk before it that does, so that no check of neighbours crosses it; a run crosses it only where it is in a
   fastbin (walk.c). Where no two in use follow each other: the last one in use, which no list names, behind a free one: a run ends before
   it. 0 if the chain breaks. `seen`: places of chains that broke before, so that the search is linear in the window. */
static uint64_t follow(struct guess *guess, uint64_t offset, uint8_t *seen)
{
    const struct chunk_geometry *geometry = guess->geometry;
    uint64_t found = 0, lone = 0, candidate = 0, before = 0;
    unsigned steps = 0;
    for (;;) {
        uint64_t address = guess->begin + offset, slot = offset / 8, field;
        if (address == guess->top)
            break;
        if (offset < guess->length) {
            if (seen[slot / 8] & (1u << slot % 8))
                return 0;
            seen[slot / 8] |= (uint8_t) (1u << slot % 8);
        }
        if (!read_field(guess, offset, steps, &field))
            break;
        uint64_t size = plausible_size(geometry, field, guess->end - address);
        if (!size && candidate && (field & ~(uint64_t) FLAGS) == 2 * geometry->word)
            break;      /* a fencepost, the end of a piece of the main arena */
        if (!size)
            return 0;
        if (field & FLAG_PREV_INUSE) {
            found = candidate ? candidate : found;
            if (before && before - guess->begin >= guess->length / 2 && !is_special(guess, before))
                lone = before;
        }
        candidate = (field & FLAG_PREV_INUSE) ? address : 0;
        before = address;
        steps++;
        offset += size;
    }
    /* A stale header inside a merged free chunk has joined the true chain by the second half of the window. */
    if (steps < MIN_STEPS)
        return 0;
    return found && found - guess->begin >= guess->length / 2 ? found : lone;
}

uint64_t find_split(const struct chunk_geometry *geometry, const struct source *source, uint8_t *buffer, uint64_t capacity,
                    const struct region *region, uint64_t near, const uint64_t *specials, size_t special_count)
{
    /* The last part of the buffer holds one bit per 8 bytes of the window. */
    uint64_t length = capacity / 66 * 64;
    uint8_t *seen = buffer + length;
    struct guess guess = {.geometry = geometry, .source = source, .bytes = buffer, .end = region->end, .top = region->top};
    guess.specials = specials;
    guess.special_count = special_count;
    uint64_t past = (near - region->begin) & (geometry->alignment - 1);
    guess.begin = past ? near + (geometry->alignment - past) : near;
    if (guess.begin >= region->end)
        return 0;
    if (length > region->end - guess.begin)
        length = region->end - guess.begin;
    int64_t got = source_read(source, guess.begin, buffer, length);
    if (got < (int64_t) (MIN_STEPS * geometry->min_chunk))
        return 0;
    guess.length = (uint64_t) got;
    memset(seen, 0, (size_t) (length / 64 + 1));
    for (uint64_t offset = 0; offset < guess.length / 2; offset += geometry->alignment) {
        uint64_t found = follow(&guess, offset, seen);
        if (found)
            return found;
    }
    return 0;
}
