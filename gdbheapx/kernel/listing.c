/* Every chunk of a region, batch by batch: the steps of a walk, written out instead of counted. */
#include "heapx.h"

#include <stdlib.h>

#define LISTING_BLOCK (128u << 10)

struct listing {
    struct geometry geometry;
    struct cursor cursor;
    struct window window;
    uint64_t min_size, max_size, statuses;
    int ended, stop;
    uint8_t bytes[LISTING_BLOCK];
};

/* `numbers`: smallest and largest size wanted, one bit per wanted status. The specials stay the caller's. */
EXPORT struct listing *heapx_listing_new(const struct source *source, const uint64_t *geometry, const uint64_t *region,
                                         const uint64_t *specials, uint64_t special_count, const uint64_t *numbers)
{
    struct listing *listing = calloc(1, sizeof *listing);
    if (!listing)
        return NULL;
    geometry_set(&listing->geometry, geometry);
    cursor_open(&listing->cursor, &listing->geometry, region, specials, (size_t) special_count, region[0]);
    window_open(&listing->window, source, listing->bytes, LISTING_BLOCK, region[0], region[1]);
    listing->min_size = numbers[0];
    listing->max_size = numbers[1];
    listing->statuses = numbers[2];
    return listing;
}

EXPORT void heapx_listing_free(struct listing *listing)
{
    free(listing);
}

static int wanted(const struct listing *listing, uint64_t size, int status)
{
    return (listing->statuses >> status & 1) && size >= listing->min_size && size <= listing->max_size;
}

/* Writes up to `room` rows, for at most about `seconds`. Returns how many; heapx_listing_state says whether that was all. */
EXPORT int64_t heapx_listing_next(struct listing *listing, double seconds, uint64_t *chunks, uint64_t *sizes, uint8_t *statuses, uint64_t room)
{
    struct chunk chunk;
    uint64_t count = 0, reads = listing->window.reads, first;
    double deadline = clock_now() + seconds;
    listing->window.interrupted = 0;
    while (count < room && !listing->ended) {
        if (listing->window.reads != reads) {
            reads = listing->window.reads;
            if (clock_now() > deadline)
                break;
        }
        int stop = cursor_step(&listing->cursor, &listing->window, &chunk);
        int follows = cursor_follows(&listing->cursor, &listing->window, stop, &chunk, &first);
        if (stop == STEP_PAUSED || follows == STEP_PAUSED)
            break;
        if (stop != STEP_CHUNK) {
            chunk.address = listing->cursor.at;
            chunk.status = STATUS_TOP;
            listing->ended = !follows;
            listing->stop = stop;
            if (follows)
                cursor_enter(&listing->cursor, first);
            if (stop != STOP_TOP)
                continue;
        }
        if (!wanted(listing, chunk.size, chunk.status))
            continue;
        chunks[count] = chunk.address;
        sizes[count] = chunk.size;
        statuses[count] = (uint8_t) chunk.status;
        count++;
    }
    return (int64_t) count;
}

/* `out`: ended, stop, at. */
EXPORT void heapx_listing_state(const struct listing *listing, uint64_t *out)
{
    out[0] = (uint64_t) listing->ended;
    out[1] = (uint64_t) listing->stop;
    out[2] = listing->cursor.at;
}
