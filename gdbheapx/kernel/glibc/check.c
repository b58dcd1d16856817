/* The checks of single chunks, in one pass over all regions: what malloc would trip over when it meets them.

   Members of bins come as sorted addresses, like the specials: a chunk that is free by its successor must be among them, and no other
   chunk may. */
#include "chunk.h"

#include <stdlib.h>

#define CHECK_BLOCK (256u << 10)

struct checker {
    struct chunk_geometry geometry;
    const struct source *source;
    const struct checked *regions;              /* the caller's, and so are the next two */
    const uint64_t *specials, *members;
    size_t region_count, special_count, member_count;
    size_t region, member, astray;
    int open, before;               /* before: STATUS_ of the cursor's previous chunk */
    uint64_t flags, reads;
    struct cursor cursor;
    struct window window;
    uint64_t counts[BROKEN_RULES];
    struct broken *rows;
    size_t row_count;
    uint8_t bytes[CHECK_BLOCK];
};

static void tell(struct checker *checker, unsigned rule, uint64_t address, uint64_t value)
{
    if (checker->counts[rule]++ >= MOST_ROWS && rule != BROKEN_STOP)
        return;
    const struct broken row = {rule, address, value, checker->cursor.previous, (uint64_t) checker->before};
    checker->rows[checker->row_count++] = row;
}

static void open_region(struct checker *checker)
{
    const struct region *region = &checker->regions[checker->region].region;
    cursor_open(&checker->cursor, &checker->geometry, region, checker->specials, checker->special_count, region->begin);
    window_open(&checker->window, checker->source, checker->bytes, CHECK_BLOCK, region->begin, region->end);
    checker->member = specials_from(checker->members, checker->member_count, region->begin);
    checker->astray = checker->cursor.special;
    checker->flags = checker->regions[checker->region].flags;
    checker->before = STATUS_USED;
    checker->open = 1;
    checker->reads = 0;
}

static uint64_t next_member(const struct checker *checker)
{
    return checker->member < checker->member_count ? checker->members[checker->member] : UINT64_MAX;
}

/* Entries of lists that lie below `address` and were met on no boundary. */
static void pass_astray(struct checker *checker, uint64_t address)
{
    const struct cursor *cursor = &checker->cursor;
    if (checker->astray < cursor->special)
        checker->astray = cursor->special;
    while (checker->astray < cursor->specials_end && (checker->specials[checker->astray] & ~(uint64_t) FLAGS) < address)
        tell(checker, BROKEN_LISTED_ASTRAY, checker->specials[checker->astray++] & ~(uint64_t) FLAGS, 0);
    while (next_member(checker) < address)
        tell(checker, BROKEN_BINNED_ASTRAY, checker->members[checker->member++], 0);
}

static void judge(struct checker *checker, const struct chunk *chunk, int is_listed)
{
    const uint64_t at = chunk->address, field = chunk->field;
    const int is_member = next_member(checker) == at;
    checker->member += is_member;
    if (!(field & FLAG_PREV_INUSE) && !chunk->previous && (checker->flags & REGION_FIRST))
        tell(checker, BROKEN_FIRST, at, field);
    if (chunk->status == STATUS_FREE) {
        if (chunk->repeated_size != chunk->size)
            tell(checker, BROKEN_PREV_SIZE, at, chunk->repeated_size);
        if (!(field & FLAG_PREV_INUSE) && chunk->previous)
            tell(checker, BROKEN_FREE_NEIGHBOURS, at, chunk->previous);
        if (field & FLAG_NON_MAIN)
            tell(checker, BROKEN_FREE_FLAGS, at, field);
        if (is_listed)
            tell(checker, BROKEN_LISTED_FREE, at, chunk->size);
        else if (!is_member && (checker->flags & REGION_BINS_KNOWN))
            tell(checker, BROKEN_NOT_BINNED, at, chunk->size);
        return;
    }
    if (is_member)
        tell(checker, BROKEN_BINNED_USED, at, field);
    if (chunk->status <= STATUS_TCACHE_STRUCT && !(field & FLAG_NON_MAIN) != !!(checker->flags & REGION_MAIN))
        tell(checker, BROKEN_NON_MAIN, at, field);
}

/* One more chunk, or the end of the region. STEP_CHUNK, STEP_PAUSED, or a STOP_. */
static int step(struct checker *checker)
{
    struct cursor *cursor = &checker->cursor;
    struct chunk chunk;
    uint64_t first;
    const uint64_t previous = cursor->previous, met = cursor->specials_met;
    const int stop = cursor_step(cursor, &checker->window, &chunk);
    const int follows = cursor_follows(cursor, &checker->window, stop, &chunk, &first);
    if (stop == STEP_PAUSED || follows == STEP_PAUSED)
        return STEP_PAUSED;
    if (stop == STEP_CHUNK) {
        cursor->previous = previous;    /* while it is judged, the chunk before it is the suspect */
        judge(checker, &chunk, cursor->specials_met != met);
        cursor->previous = chunk.address;
        checker->before = chunk.status;
        pass_astray(checker, cursor->at);
        return STEP_CHUNK;
    }
    if (follows) {
        cursor_enter(cursor, first);
        checker->before = STATUS_USED;
        return STEP_CHUNK;
    }
    tell(checker, BROKEN_STOP, cursor->at, (uint64_t) stop);
    return stop;
}

void heapx_check_free(struct checker *checker)
{
    if (checker)
        free(checker->rows);
    free(checker);
}

/* `members`: chunks in bins, sorted. They, the regions and the specials stay the caller's. NULL: no memory. */
struct checker *heapx_check_new(const struct source *source, const struct geometry *geometry, const struct checked *regions,
                                uint64_t region_count, const uint64_t *specials, uint64_t special_count, const uint64_t *members,
                                uint64_t member_count)
{
    struct checker *checker = calloc(1, sizeof *checker);
    if (!checker)
        return NULL;
    checker->rows = calloc(BROKEN_RULES * MOST_ROWS + (size_t) region_count, sizeof *checker->rows);
    if (!checker->rows) {
        free(checker);
        return NULL;
    }
    geometry_set(&checker->geometry, geometry);
    checker->source = source;
    checker->regions = regions;
    checker->region_count = (size_t) region_count;
    checker->specials = specials;
    checker->special_count = (size_t) special_count;
    checker->members = members;
    checker->member_count = (size_t) member_count;
    return checker;
}

/* Works for about so many seconds. 0: all is done; 1: not yet; INTERRUPTED. */
int64_t heapx_check_slice(struct checker *checker, double seconds)
{
    const double deadline = clock_now() + seconds;
    checker->window.interrupted = 0;
    while (checker->region < checker->region_count) {
        if (!checker->open)
            open_region(checker);
        if (checker->window.reads != checker->reads) {
            checker->reads = checker->window.reads;
            if (clock_now() > deadline)
                return 1;
        }
        const int stop = step(checker);
        if (stop == STEP_PAUSED)
            return INTERRUPTED;
        if (stop != STEP_CHUNK) {
            checker->open = 0;
            checker->region++;
        }
    }
    return 0;
}

/* Writes how many there are of each rule, and as many struct broken as there is room for. Returns how many there are. */
uint64_t heapx_check_result(const struct checker *checker, uint64_t room, uint64_t *counts, struct broken *rows)
{
    memcpy(counts, checker->counts, sizeof checker->counts);
    if (room)
        memcpy(rows, checker->rows, (size_t) (room < checker->row_count ? room : checker->row_count) * sizeof *rows);
    return checker->row_count;
}
