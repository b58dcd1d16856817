/* Every chunk of a glibc heap as a stream of blocks: the steps of a walk, written out instead of counted, regions by their addresses. */
#include "../blocks/stream.h"
#include "chunk.h"

#include <stdlib.h>

#define LISTING_BLOCK (128u << 10)
#define SPLIT_LEAST (4u << 20)     /* bytes of a part */

/* A region that is open. More than one is where they overlap: behind damage a further region begins, and the damaged one keeps its end. */
struct lane {
    struct lane *next;              /* opened later */
    struct cursor cursor;
    struct window window;
    struct chunk chunk;             /* the next wanted one, if `ready` */
    uint64_t reads;
    uint64_t until;                 /* where another source begins */
    uint32_t arena;
    int ready, ended, stop;
    uint8_t bytes[LISTING_BLOCK];
};

struct listing {
    struct block_source source;     /* first: a listing is a block_source */
    struct chunk_geometry geometry;
    const struct source *memory;
    const struct listed *regions;   /* the caller's, sorted by begin */
    const uint64_t *specials;       /* the caller's */
    size_t region_count, next_region, special_count;
    struct block_wanted wanted;
    uint64_t from, until;           /* of a part: where it begins in its first region, and where it ends in the last; 0: with it */
    uint64_t next_part;             /* where that begins; 0: this is none, or the last */
    struct lane *lanes, *spare;
    uint64_t stop, at;              /* of the region that ended last */
};

static const uint8_t CLASS_OF[] = {
    [STATUS_USED] = CLASS_USED, [STATUS_FAST] = CLASS_CACHED, [STATUS_TCACHE] = CLASS_CACHED, [STATUS_TCACHE_STRUCT] = CLASS_OVERHEAD,
    [STATUS_FREE] = CLASS_FREE, [STATUS_TOP] = CLASS_RESERVE, [STATUS_FENCE] = CLASS_OVERHEAD,
};

static int is_wanted(const struct listing *listing, const struct chunk *chunk)
{
    const struct block_wanted *wanted = &listing->wanted;
    return (wanted->kinds >> chunk->status & 1) && chunk->size >= wanted->min_size && chunk->size <= wanted->max_size
        && chunk->address + listing->source.lead >= wanted->start;
}

/* Opens the next region; 0: no memory. */
static int open_lane(struct listing *listing)
{
    const struct listed *listed = &listing->regions[listing->next_region];
    const struct region *region = &listed->region;
    struct lane **last = &listing->lanes, *lane = listing->spare ? listing->spare : malloc(sizeof *lane);
    if (!lane)
        return 0;
    listing->spare = NULL;
    const uint64_t from = !listing->next_region++ && listing->from ? listing->from : region->begin;
    while (*last)
        last = &(*last)->next;
    *last = lane;
    lane->next = NULL;
    lane->arena = (uint32_t) listed->arena;
    lane->reads = 0;
    lane->ready = lane->ended = lane->stop = 0;
    lane->until = listing->next_region == listing->region_count && listing->until ? listing->until : UINT64_MAX;
    cursor_open(&lane->cursor, &listing->geometry, region, listing->specials, listing->special_count, from);
    window_open(&lane->window, listing->memory, lane->bytes, LISTING_BLOCK, region->begin, region->end);
    return 1;
}

static void close_lane(struct listing *listing, struct lane *lane)
{
    struct lane **place = &listing->lanes;
    while (*place != lane)
        place = &(*place)->next;
    *place = lane->next;
    listing->stop = (uint64_t) lane->stop;
    listing->at = lane->cursor.at;
    free(listing->spare);
    listing->spare = lane;
}

enum { LANE_READY, LANE_ENDED, LANE_PAUSED };

/* Goes on to the lane's next wanted chunk. */
static int lane_step(const struct listing *listing, struct lane *lane, double deadline)
{
    struct chunk *chunk = &lane->chunk;
    uint64_t first;
    while (!lane->ready) {
        if (lane->ended)
            return LANE_ENDED;
        if (lane->window.reads != lane->reads) {
            lane->reads = lane->window.reads;
            if (clock_now() > deadline)
                return LANE_PAUSED;
        }
        if (lane->cursor.at >= lane->until) {
            lane->ended = 1;
            continue;
        }
        lane->window.keep = listing->source.keeps ? lane->cursor.at : 0;
        const int stop = cursor_step(&lane->cursor, &lane->window, chunk, &first);
        if (stop == STEP_PAUSED)
            return LANE_PAUSED;
        if (stop != STEP_CHUNK) {
            chunk->address = lane->cursor.at;
            chunk->status = STATUS_TOP;
            lane->ended = !first;
            lane->stop = stop;
            if (first)
                cursor_enter(&lane->cursor, first);
            if (stop != STOP_TOP || !chunk->size)    /* a top of no bytes is damage, and no block */
                continue;
        }
        lane->ready = is_wanted(listing, chunk);
    }
    return LANE_READY;
}

/* All lanes at a chunk that is wanted, and none left closed that begins before one of them. LANE_PAUSED: not yet; or NO_MEMORY.
   `held`: bytes at hand are lent. */
static int settle(struct listing *listing, int held, double deadline)
{
    uint64_t lowest;
    for (;;) {
        lowest = UINT64_MAX;
        for (struct lane *lane = listing->lanes, *next; lane; lane = next) {
            next = lane->next;
            int state = lane_step(listing, lane, deadline);
            if (state == LANE_PAUSED || (state == LANE_ENDED && held))
                return LANE_PAUSED;
            if (state == LANE_ENDED)
                close_lane(listing, lane);
            else if (lane->chunk.address < lowest)
                lowest = lane->chunk.address;
        }
        if (listing->next_region == listing->region_count)
            return LANE_READY;
        const struct region *region = &listing->regions[listing->next_region].region;
        if (region->end <= listing->wanted.start)
            listing->next_region++;
        else if (listing->lanes && region->begin > lowest)
            return LANE_READY;
        else if (!open_lane(listing))
            return NO_MEMORY;
    }
}

/* The lane with the lowest chunk, and up to where it is that. */
static struct lane *lowest_lane(const struct listing *listing, uint64_t *limit)
{
    struct lane *found = listing->lanes;
    *limit = listing->next_region < listing->region_count ? listing->regions[listing->next_region].region.begin : UINT64_MAX;
    for (struct lane *lane = listing->lanes; lane; lane = lane->next)
        if (lane->chunk.address < found->chunk.address)
            found = lane;
    for (struct lane *lane = listing->lanes; lane; lane = lane->next)
        if (lane != found && lane->chunk.address < *limit)
            *limit = lane->chunk.address;
    return found;
}

/* Used chunks that follow each other in the bytes at hand, with nothing to be asked of lists, as long as there is room for rows. What is
   not so plain is left to lane_step. */
static void quick_rows(const struct listing *listing, struct lane *lane, struct block_rows *rows, uint64_t limit)
{
    const struct chunk_geometry *geometry = &listing->geometry;
    const struct block_wanted *wanted = &listing->wanted;
    struct cursor *cursor = &lane->cursor;
    const uint8_t *bytes = lane->window.bytes;
    const uint64_t begin = lane->window.begin, length = lane->window.length;
    const uint64_t unlike = FLAG_MMAPPED | ((geometry->alignment - 1) & ~(uint64_t) FLAGS);
    uint64_t p = cursor->at, until = cursor->top > p && cursor->top < cursor->end ? cursor->top : cursor->end;
    if (geometry->word != 8 || geometry->swap || !(wanted->kinds >> STATUS_USED & 1) || p - begin >= length)
        return;
    if (limit < until)
        until = limit;
    if (lane->until < until)
        until = lane->until;
    if (cursor->special < cursor->specials_end && (cursor->specials[cursor->special] & ~(uint64_t) FLAGS) < until)
        until = cursor->specials[cursor->special] & ~(uint64_t) FLAGS;
    if (begin + length - 16 < until)
        until = begin + length - 16;
    uint64_t field = p < until ? load_word(bytes + (p - begin) + 8, 8, 0) : 0;
    while (p < until && rows->count < rows->room) {
        const uint64_t size = field & ~(uint64_t) FLAGS;
        if (size < geometry->min_chunk || (field & unlike) || size >= until - p)
            break;
        const uint64_t next = p + size, next_field = load_word(bytes + (next - begin) + 8, 8, 0);
        if (!(next_field & FLAG_PREV_INUSE) || next_field == FLAG_PREV_INUSE)
            break;
        if (size >= wanted->min_size && size <= wanted->max_size && p + 16 >= wanted->start)
            rows_add(rows, p + 16, size - geometry->overhead, CLASS_USED, STATUS_USED, lane->arena);
        cursor->previous = p;
        p = next;
        field = next_field;
    }
    if (p != cursor->at)
        cursor->previous_was_quick = 0;
    cursor->at = p;
}

static int listing_next(struct block_source *self, double seconds, struct block_rows *rows)
{
    struct listing *listing = (struct listing *) self;
    const unsigned lead = listing->source.lead, overhead = listing->geometry.overhead;
    double deadline = clock_now() + seconds;
    const uint64_t before = rows->count;
    for (struct lane *lane = listing->lanes; lane; lane = lane->next)
        lane->window.interrupted = lane->window.held = 0;
    while (rows->count < rows->room) {
        const int held = listing->source.keeps && rows->count > before;
        int state = settle(listing, held, deadline);
        if (state != LANE_READY)
            return state == LANE_PAUSED ? 0 : state;
        uint64_t limit;
        struct lane *lane = lowest_lane(listing, &limit);
        if (!lane)
            break;
        for (struct lane *any = listing->lanes; any; any = any->next)
            any->window.held = listing->source.keeps;
        do {
            const struct chunk *chunk = &lane->chunk;
            rows_add(rows, chunk->address + lead, chunk->size - overhead, CLASS_OF[chunk->status], chunk->status, lane->arena);
            lane->ready = 0;
            quick_rows(listing, lane, rows, limit);
        } while (rows->count < rows->room && lane_step(listing, lane, deadline) == LANE_READY && lane->chunk.address < limit);
    }
    return 0;
}

static struct block_state listing_state(const struct block_source *self)
{
    const struct listing *listing = (const struct listing *) self;
    const struct block_state ended = {1, listing->stop, listing->next_part && !listing->until ? listing->next_part : listing->at};
    if (!listing->lanes && listing->next_region == listing->region_count)
        return ended;
    struct block_state state = {0, 0, UINT64_MAX};
    if (listing->next_region < listing->region_count)
        state.at = listing->regions[listing->next_region].region.begin;
    for (const struct lane *lane = listing->lanes; lane; lane = lane->next) {
        const uint64_t at = lane->ready ? lane->chunk.address : lane->cursor.at;
        if (at < state.at)
            state.at = at;
    }
    if (state.at < listing->wanted.start)
        state.at = listing->wanted.start;
    return state;
}

static const uint8_t *listing_lend(const struct block_source *self, uint64_t address, uint64_t *length)
{
    const struct listing *listing = (const struct listing *) self;
    for (const struct lane *lane = listing->lanes; lane; lane = lane->next) {
        const uint64_t away = address - lane->window.begin;
        if (away < lane->window.length) {
            *length = lane->window.length - away;
            return lane->window.bytes + away;
        }
    }
    return NULL;
}

static void listing_free(struct block_source *self)
{
    struct listing *listing = (struct listing *) self;
    for (struct lane *lane = listing->lanes, *next; lane; lane = next) {
        next = lane->next;
        free(lane);
    }
    free(listing->spare);
    free(listing);
}

/* Regions of damaged heaps may overlap. */
static int is_plain(const struct listing *listing)
{
    for (size_t i = 1; i < listing->region_count; i++)
        if (listing->regions[i].region.begin < listing->regions[i - 1].region.end)
            return 0;
    return !listing->lanes && !listing->next_region && !listing->wanted.start && source_is_parallel(listing->memory);
}

/* Parts that begin in this region, one each `step` bytes, the first `*skip` bytes behind its begin. 0: no memory. */
static int split_region(const struct listing *listing, size_t region, uint64_t *skip, uint64_t step, struct block_source **out,
                        uint64_t *begins, int *count, uint8_t *buffer)
{
    const struct region *one = &listing->regions[region].region;
    const uint64_t bytes = region_bytes(one);
    uint64_t at = *skip, last = 0;
    for (; at < bytes; at += step) {
        const uint64_t near = one->begin + at;
        const uint64_t begin = at ? find_split(&listing->geometry, listing->memory, buffer, LISTING_BLOCK, one, near,
                    listing->specials, listing->special_count) : near;
        if (begin <= last)          /* none was found */
            continue;
        struct listing *part = malloc(sizeof *part);
        if (!part)
            return 0;
        *part = *listing;
        part->regions += region;
        part->region_count -= region;
        part->from = begin;
        out[*count] = &part->source;
        begins[(*count)++] = last = begin;
    }
    *skip = at - bytes;
    return 1;
}

static int listing_split(const struct block_source *self, unsigned most, struct block_source **out, uint64_t *begins)
{
    const struct listing *listing = (const struct listing *) self;
    uint64_t total = 0, skip = 0;
    int count = 0;
    for (size_t i = 0; i < listing->region_count; i++)
        total += region_bytes(&listing->regions[i].region);
    if (total / SPLIT_LEAST < most)
        most = (unsigned) (total / SPLIT_LEAST);
    uint8_t *buffer = most > 1 && is_plain(listing) ? malloc(LISTING_BLOCK) : NULL;
    int is_whole = 1;
    for (size_t i = 0; buffer && is_whole && i < listing->region_count; i++)
        is_whole = split_region(listing, i, &skip, total / most + 1, out, begins, &count, buffer);
    free(buffer);
    if (!is_whole) {
        while (count)
            free(out[--count]);
        return NO_MEMORY;
    }
    for (int i = 0; i + 1 < count; i++) {   /* each part ends where the next begins */
        struct listing *part = (struct listing *) out[i], *next = (struct listing *) out[i + 1];
        const int is_within = begins[i + 1] > next->regions->region.begin;
        part->region_count -= next->region_count - (size_t) is_within;
        part->until = is_within ? begins[i + 1] : 0;
        part->next_part = begins[i + 1];
    }
    return count;
}

/* `regions`: sorted; they and the specials stay the caller's. NULL: no memory. */
struct block_source *heapx_chunk_blocks(const struct source *memory, const struct geometry *geometry, const struct listed *regions,
                                        uint64_t region_count, const uint64_t *specials, uint64_t special_count,
                                        const struct block_wanted *wanted)
{
    struct listing *listing = calloc(1, sizeof *listing);
    if (!listing)
        return NULL;
    geometry_set(&listing->geometry, geometry);
    struct block_source source = {2 * listing->geometry.word, listing_next, listing_state, listing_free, listing_lend, 0, listing_split};
    listing->source = source;
    listing->memory = memory;
    listing->regions = regions;
    listing->region_count = (size_t) region_count;
    listing->specials = specials;
    listing->special_count = (size_t) special_count;
    listing->wanted = *wanted;
    listing->stop = STOP_END;
    return &listing->source;
}
