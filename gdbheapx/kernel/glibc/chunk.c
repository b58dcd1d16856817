/* One chunk after the other: what a size field means, what a chunk is, and where a second thread may begin in the middle of a heap.

   A chunk is free if PREV_INUSE of its successor is clear (malloc.c: inuse_bit_at_offset). Chunks in fastbins and tcaches look used
   in memory; the caller names them as specials. A special whose successor says free is counted as free: two statements
   contradict each other, and the header is the one that malloc itself would act on. */
#include "chunk.h"

void geometry_set(struct chunk_geometry *geometry, const struct geometry *given)
{
    geometry->word = (unsigned) given->word_bytes;
    geometry->alignment = (unsigned) given->alignment_bytes;
    geometry->min_chunk = (unsigned) given->min_chunk_bytes;
    geometry->chunk_struct = (unsigned) given->chunk_struct_bytes;
    geometry->page = given->page_bytes;
    geometry->swap = is_swapped(given->little_endian);
    geometry->overhead = geometry->word * (given->is_tagged ? 2 : 1);
    geometry->shift = 0;
    while ((1u << geometry->shift) < geometry->alignment)
        geometry->shift++;
    uint64_t limit = geometry->page - 1 + geometry->chunk_struct;
    if (limit > SMALL_LIMIT)
        limit = SMALL_LIMIT;
    geometry->small_limit = limit & ~(uint64_t) (geometry->alignment - 1);
}

int read_words(const struct source *source, struct pages *pages, const struct chunk_geometry *geometry, uint64_t address, unsigned count,
               uint64_t *words)
{
    const unsigned word = geometry->word;
    uint8_t bytes[6 * 8];
    const uint8_t *from = source_at(source, address, count * word);
    if (!from) {
        if (!pages_read(pages, address, bytes, count * word))
            return pages->interrupted ? INTERRUPTED : 0;
        from = bytes;
    }
    for (unsigned i = 0; i < count; i++)
        words[i] = load_word(from + i * word, word, geometry->swap);
    return 1;
}

size_t specials_from(const uint64_t *specials, size_t count, uint64_t address)
{
    return address ? (size_t) rows_up_to(specials, count, sizeof *specials, address - 1) : 0;
}

void cursor_open(struct cursor *cursor, const struct chunk_geometry *geometry, const struct region *region,
                 const uint64_t *specials, size_t special_count, uint64_t from)
{
    memset(cursor, 0, sizeof *cursor);
    cursor->geometry = geometry;
    cursor->specials = specials;
    cursor->special = specials_from(specials, special_count, from);
    cursor->specials_end = specials_from(specials, special_count, region->end);
    cursor->begin = region->begin;
    cursor->end = region->end;
    cursor->top = region->top;
    cursor->joined = region->joined != 0;
    cursor->at = from;
}

/* Passes the specials up to `address`: those at it are met, those below it lie on no boundary. Returns the first kind met, else 0. */
static int take_specials(struct cursor *cursor, uint64_t address)
{
    int kind = 0;
    while (cursor->special < cursor->specials_end) {
        uint64_t special = cursor->specials[cursor->special], place = special & ~(uint64_t) FLAGS;
        if (place > address)
            break;
        if (place == address) {
            cursor->specials_met++;
            if (!kind)
                kind = (int) (special & FLAGS);
        } else if (!cursor->missed_specials++) {
            cursor->missed_special = special;
        }
        cursor->special++;
    }
    return kind;
}

void cursor_finish(struct cursor *cursor, int handoff)
{
    take_specials(cursor, cursor->at - (handoff != 0));
}

/* What the size field at cursor->at says: STEP_CHUNK or the STOP_ that it means. */
static int judge(const struct cursor *cursor, struct chunk *chunk)
{
    const struct chunk_geometry *geometry = cursor->geometry;
    uint64_t p = cursor->at, room = cursor->end - p, size = chunk->size, plain = chunk->field & ~(uint64_t) FLAG_PREV_INUSE;
    if (p == cursor->top)
        return size > room ? STOP_OVERRUN : STOP_TOP;
    if (plain == 0 || plain == 2 * geometry->word)
        return STOP_FENCE;
    if (size < geometry->min_chunk)
        return STOP_SMALL;
    if (size & (geometry->alignment - 1))
        return STOP_MISALIGNED;
    if (chunk->field & FLAG_MMAPPED)
        return STOP_MMAPPED_BIT;
    if (size > room || (p < cursor->top && size > cursor->top - p))
        return STOP_OVERRUN;
    return STEP_CHUNK;
}

/* The status by the successor's size field, and by the specials where that says "in use". `next_field` 0 with no header there: used. */
static int status_of(struct cursor *cursor, const struct chunk *chunk, int has_next, uint64_t next_field)
{
    const struct chunk_geometry *geometry = cursor->geometry;
    int kind = take_specials(cursor, chunk->address);
    if (has_next && !(next_field & FLAG_PREV_INUSE))
        return STATUS_FREE;
    if (kind >= SPECIAL_FAST && kind <= SPECIAL_TCACHE_STRUCT)
        return kind;
    /* sysmalloc, old top too small to be freed: the old top itself becomes the fencepost, before a terminator of size 0|PREV_INUSE. */
    if (has_next && chunk->size == geometry->min_chunk && next_field == FLAG_PREV_INUSE && chunk->address + chunk->size != cursor->top)
        return STATUS_FENCE;
    return STATUS_USED;
}

static int meet_chunk(struct cursor *cursor, struct window *window, struct chunk *chunk)
{
    const struct chunk_geometry *geometry = cursor->geometry;
    const unsigned word = geometry->word, swap = geometry->swap;
    const uint64_t p = cursor->at;
    if (p >= cursor->end)
        return STOP_END;
    if (cursor->end - p < 2 * word)
        return STOP_OVERRUN;
    const uint8_t *header = window_at(window, p, 4 * word);
    int has_links = header != NULL;
    if (!header && !window->interrupted)
        header = window_at(window, p, 2 * word);
    if (!header)
        return window->interrupted ? STEP_PAUSED : STOP_UNREADABLE;
    chunk->address = p;
    chunk->field = load_word(header + word, word, swap);
    chunk->size = chunk->field & ~(uint64_t) FLAGS;
    int verdict = judge(cursor, chunk);
    if (verdict != STEP_CHUNK)
        return verdict;
    chunk->fd = has_links ? load_word(header + 2 * word, word, swap) : 0;
    chunk->bk = has_links ? load_word(header + 3 * word, word, swap) : 0;

    const uint64_t next = p + chunk->size;
    window_jump(window, next, chunk->size);
    const uint8_t *after = cursor->end - next >= 2 * word ? window_at(window, next, 2 * word) : NULL;
    if (window->interrupted)
        return STEP_PAUSED;
    chunk->repeated_size = after ? load_word(after, word, swap) : 0;
    chunk->status = status_of(cursor, chunk, after != NULL, after ? load_word(after + word, word, swap) : 0);
    chunk->previous = cursor->previous;
    cursor->previous = p;
    cursor->previous_was_quick = 0;
    cursor->at = next;
    return STEP_CHUNK;
}

#define PROVEN_CHUNKS 16u

/* The two or three fenceposts of 2 words at `at` that end a piece (sysmalloc): where the piece ends, 0 if that is not what stands there.
   Where the alignment exceeds 2 words, less than one unit of it lies between. */
static uint64_t fences_end(const struct chunk_geometry *geometry, struct window *window, uint64_t at)
{
    const unsigned word = geometry->word;
    unsigned count = 0;
    while (count < 3) {
        const uint8_t *header = window_at(window, at + 2 * word * count, 2 * word);
        if (!header || (load_word(header + word, word, geometry->swap) & ~(uint64_t) FLAGS) != 2 * word)
            break;
        count++;
    }
    const uint64_t mask = geometry->alignment - 1;
    return count >= 2 ? (at + 2 * word * count + mask) & ~mask : 0;
}

/* The chunk at `at` ends the look: the top chunk, one that a list names, or fenceposts that end with a page. */
static int is_goal(const struct cursor *cursor, struct window *window, uint64_t at, size_t special)
{
    if (at == cursor->top)
        return 1;
    if (special < cursor->specials_end && (cursor->specials[special] & ~(uint64_t) FLAGS) == at)
        return 1;
    const uint64_t end = fences_end(cursor->geometry, window, at);
    return end && !(end & (cursor->geometry->page - 1));
}

/* Chunks of the main arena stand from `first` on: as many as prove it follow each other without contradiction, or lead onto something
   known. */
static int begins_piece(const struct cursor *cursor, struct window *window, uint64_t first)
{
    const struct chunk_geometry *geometry = cursor->geometry;
    const unsigned word = geometry->word, swap = geometry->swap;
    uint64_t at = first, before = 0;
    for (unsigned count = 0; count < PROVEN_CHUNKS; count++) {
        if (cursor->end - at < 2 * word)
            return 0;
        size_t special = specials_from(cursor->specials, cursor->specials_end, at);
        if (count && is_goal(cursor, window, at, special))
            return 1;
        const uint8_t *header = window_at(window, at, 2 * word);
        if (!header)
            return 0;
        const uint64_t field = load_word(header + word, word, swap), size = plausible_size(geometry, field, cursor->end - at);
        if (!size || (field & FLAG_NON_MAIN))
            return 0;
        if (!(field & FLAG_PREV_INUSE) && (!before || load_word(header, word, swap) != before))
            return 0;
        if (at == cursor->top)
            return 1;
        before = size;
        at += size;
    }
    return 1;
}

int cursor_step(struct cursor *cursor, struct window *window, struct chunk *chunk, uint64_t *first)
{
    const struct chunk_geometry *geometry = cursor->geometry;
    const int stop = meet_chunk(cursor, window, chunk);
    *first = 0;
    if (!cursor->joined || (stop != STOP_FENCE && stop != STOP_TOP))
        return stop;
    const uint64_t end = stop == STOP_TOP ? cursor->at + chunk->size : fences_end(geometry, window, cursor->at);
    const uint64_t next = end + ((0 - (end + 2 * geometry->word)) & (geometry->alignment - 1));
    if (end && !(end & (geometry->page - 1)) && next < cursor->end && begins_piece(cursor, window, next))
        *first = next;
    return window->interrupted ? STEP_PAUSED : stop;
}

void cursor_enter(struct cursor *cursor, uint64_t first)
{
    cursor->at = first;
    cursor->previous = 0;
    cursor->previous_was_quick = 0;
}

/* ---- where a second thread may begin ---- */

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
            if (before && before - guess->begin >= guess->length / 2) {
                const size_t place = specials_from(guess->specials, guess->special_count, before);
                if (place == guess->special_count || (guess->specials[place] & ~(uint64_t) FLAGS) != before)
                    lone = before;
            }
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
