/* The loop over the chunks of one piece.

   Nearly every chunk is small, is no special and contradicts nothing: quick() counts those with one compare for the size, one for
   the place, one branch-free increment and the sums of a free chunk. Whatever is unusual leaves it and is met by cursor_step(). */
#include "walk.h"

static inline uint64_t rotate_right(uint64_t value, unsigned by)
{
    return value >> by | value << ((64 - by) & 63);
}

static inline uint64_t limit_below(uint64_t limit, uint64_t bound, uint64_t margin)
{
    uint64_t place = bound > margin ? bound - margin : 0;
    return place < limit ? place : limit;
}

/* The first address at which quick() must leave the word to cursor_step(). */
static uint64_t quick_end(const struct piece *piece, const struct window *window, unsigned word, uint64_t small_limit)
{
    const struct cursor *cursor = &piece->cursor;
    uint64_t limit = piece->until, margin = small_limit + 4 * word;
    limit = limit_below(limit, window->begin + window->length, margin);
    limit = limit_below(limit, cursor->end, margin);
    if (cursor->top >= cursor->at && cursor->top)
        limit = limit_below(limit, cursor->top, small_limit);
    if (cursor->special < cursor->specials_end)
        limit = limit_below(limit, cursor->specials[cursor->special] & ~(uint64_t) FLAGS, 0);
    return limit;
}

static inline __attribute__((always_inline)) void
quick_loop(struct piece *piece, struct worker *worker, const unsigned word, const unsigned swap, const unsigned shift,
           const unsigned min_chunk, const uint64_t small_limit)
{
    struct cursor *cursor = &piece->cursor;
    const struct window *window = &worker->window;
    const uint8_t *p = window->bytes + (cursor->at - window->begin);
    const uint64_t end = quick_end(piece, window, word, small_limit);
    if (end <= cursor->at)
        return;
    const uint8_t *const first = p, *const last = window->bytes + (end - window->begin);
    const uint8_t *previous = p;
    uint32_t *const counters = worker->counters;
    uint64_t free_sum = 0, free_chunks = 0, fd_sum = 0, bk_sum = 0;
    const uint64_t span = (small_limit - min_chunk) >> shift;
    uint64_t field = load_word(p + word, word, swap);
    do {
        /* One compare for: below MINSIZE, misaligned, IS_MMAPPED, too large for the counters. */
        if (rotate_right((field & ~(uint64_t) 5) - min_chunk, shift) > span)
            break;
        const uint64_t size = field & ~(uint64_t) FLAGS;
        const uint8_t *next = p + size;
        const uint64_t next_field = load_word(next + word, word, swap);
        const uint64_t used = next_field & FLAG_PREV_INUSE, mask = used - 1;
        /* A free chunk must have its size repeated behind it and a used one before it. */
        if (((load_word(next, word, swap) ^ size) | (~field & FLAG_PREV_INUSE)) & mask)
            break;
        counters[(size >> shift) * 2 + used]++;
        free_sum += (uint64_t) (p - first) & mask;
        free_chunks -= mask;
        fd_sum += load_word(p + 2 * word, word, swap) & mask;
        bk_sum += load_word(p + 3 * word, word, swap) & mask;
        previous = p;
        p = next;
        field = next_field;
    } while (p < last);
    if (p == first)
        return;
    piece->totals.free_sum += free_sum + free_chunks * cursor->at;
    piece->totals.fd_sum += fd_sum;
    piece->totals.bk_sum += bk_sum;
    cursor->previous = cursor->at + (uint64_t) (previous - first);
    cursor->previous_was_quick = 1;
    cursor->at += (uint64_t) (p - first);
}

/* Runs are followed by the slow way only: while one is open, quick() must not be used. */
static void quick(struct piece *piece, struct worker *worker)
{
    const struct chunk_geometry *geometry = piece->cursor.geometry;
    if (piece->cursor.at - worker->window.begin >= worker->window.length)
        return;
    if (geometry->word == 8 && geometry->alignment == 16 && geometry->min_chunk == 32 && !geometry->swap)
        quick_loop(piece, worker, 8, 0, 4, 32, geometry->small_limit);
    else
        quick_loop(piece, worker, geometry->word, geometry->swap, geometry->shift, geometry->min_chunk, geometry->small_limit);
}

/* Counts usual chunks of fastbins and thread caches as long as one follows the other; what is unusual is left to cursor_step(). A fast
   chunk opens a run or goes on with one; a cached one would end it, which is the slow way's. */
static void quick_specials(struct piece *piece, struct worker *worker)
{
    struct cursor *cursor = &piece->cursor;
    const struct chunk_geometry *geometry = cursor->geometry;
    const struct window *window = &worker->window;
    const unsigned word = geometry->word, swap = geometry->swap;
    const uint64_t margin = HISTOGRAM_EXACT_BYTES + 2 * word, span = (HISTOGRAM_EXACT_BYTES - geometry->min_chunk) >> geometry->shift;
    uint64_t limit = limit_below(piece->until, window->begin + window->length, margin);
    limit = limit_below(limit, cursor->end, margin);
    if (cursor->top >= cursor->at && cursor->top)
        limit = limit_below(limit, cursor->top, HISTOGRAM_EXACT_BYTES);
    while (cursor->special < cursor->specials_end && cursor->at < limit && cursor->at >= window->begin) {
        const uint64_t special = cursor->specials[cursor->special], kind = special & FLAGS;
        if ((special ^ kind) != cursor->at || kind > SPECIAL_TCACHE || !kind || (kind == SPECIAL_TCACHE && (piece->run || piece->leading)))
            break;
        if (cursor->special + 1 < cursor->specials_end && (cursor->specials[cursor->special + 1] & ~(uint64_t) FLAGS) == cursor->at)
            break;
        const uint8_t *p = window->bytes + (cursor->at - window->begin);
        const uint64_t field = load_word(p + word, word, swap), size = field & ~(uint64_t) FLAGS;
        if (rotate_right((field & ~(uint64_t) 5) - geometry->min_chunk, geometry->shift) > span
            || !(load_word(p + size + word, word, swap) & FLAG_PREV_INUSE))
            break;
        struct histogram_row *row = &piece->rows[size >> geometry->shift];
        if (kind == SPECIAL_FAST) {
            piece->totals.fast_chunks++;
            piece->totals.fast_bytes += size;
            row->free_chunks++;
            row->free_bytes += size;
            if (!piece->run && !piece->leading)
                piece->run = !(field & FLAG_PREV_INUSE) && cursor->previous ? cursor->previous : cursor->at;
        } else {
            piece->totals.tcache_chunks++;
            piece->totals.tcache_bytes += size;
            row->tcache_chunks++;
        }
        cursor->special++;
        cursor->specials_met++;
        cursor->previous = cursor->at;
        cursor->previous_was_quick = 0;
        cursor->at += size;
    }
}

/* sysmalloc, old top too small to be freed: a MINSIZE chunk directly before the terminator 0|PREV_INUSE is the fencepost itself. */
static void settle_fence(struct piece *piece, const struct chunk *chunk)
{
    const struct cursor *cursor = &piece->cursor;
    const struct chunk_geometry *geometry = cursor->geometry;
    if (chunk->field == FLAG_PREV_INUSE && cursor->previous_was_quick && cursor->at - cursor->previous == geometry->min_chunk) {
        struct histogram_row *row = &piece->rows[histogram_class(geometry->min_chunk, geometry->shift)];
        /* The chunk may have been counted in an earlier slice: take it out of the totals, where the counters will be added. */
        piece->totals.used_chunks--;
        piece->totals.used_bytes -= geometry->min_chunk;
        row->used_chunks--;
        row->used_bytes -= geometry->min_chunk;
        piece->totals.fence_bytes += geometry->min_chunk;
    }
}

static void settle_top(struct piece *piece, const struct chunk *chunk)
{
    const struct cursor *cursor = &piece->cursor;
    piece->totals.top_bytes = chunk->size;
    if (piece->leading)
        piece->totals.top_run_start = piece->begin;     /* walk.c puts in where it begins */
    else if (piece->run)
        piece->totals.top_run_start = piece->run;
    else if (!(chunk->field & FLAG_PREV_INUSE))
        piece->totals.top_run_start = cursor->previous;
    piece->run = 0;
}

static void end_lead(struct piece *piece, uint64_t end)
{
    if (piece->leading)
        piece->lead_end = end;
    piece->leading = 0;
}

/* On to a further piece of the main arena, whose first chunk is `first`; `end`: where the last chunk of this one ends. */
static void enter_piece(struct piece *piece, struct worker *worker, uint64_t first, uint64_t end)
{
    end_lead(piece, end);
    totals_close_run(&piece->totals, &piece->run, end, piece->cursor.geometry, &worker->pages);
    piece->totals.fence_bytes += first - end;
    piece->totals.further_pieces++;
    cursor_enter(&piece->cursor, first);
}

static void count(struct piece *piece, struct worker *worker, const struct chunk *chunk)
{
    uint64_t lead = piece->begin;
    int goes_on = chunk->status == STATUS_FREE || chunk->status == STATUS_FAST;
    if (!goes_on)
        end_lead(piece, chunk->address);
    totals_count(&piece->totals, piece->rows, piece->leading ? &lead : &piece->run, piece->cursor.geometry, chunk, &worker->pages);
}

static int walk_on(struct piece *piece, struct worker *worker)
{
    struct cursor *cursor = &piece->cursor;
    struct chunk chunk;
    uint64_t reads = worker->window.reads, first;
    for (;;) {
        uint64_t before;
        do {
            before = cursor->at;
            if (!piece->run && !piece->leading)
                quick(piece, worker);
            quick_specials(piece, worker);
        } while (cursor->at != before);
        if (cursor->at >= piece->until)
            return STEP_HANDOFF;
        if (worker->window.reads != reads) {
            reads = worker->window.reads;
            if (__atomic_load_n(&piece->cancelled, __ATOMIC_RELAXED) || clock_now() > worker->deadline)
                return STEP_PAUSED;
        }
        int stop = cursor_step(cursor, &worker->window, &chunk), follows = cursor_follows(cursor, &worker->window, stop, &chunk, &first);
        if (follows == STEP_PAUSED)
            return STEP_PAUSED;
        if (stop == STOP_TOP)
            settle_top(piece, &chunk);
        else if (stop == STOP_FENCE)
            settle_fence(piece, &chunk);
        if (follows) {
            enter_piece(piece, worker, first, stop == STOP_TOP ? cursor->at + chunk.size : cursor->at);
            continue;
        }
        if (stop != STEP_CHUNK)
            return stop;
        count(piece, worker, &chunk);
    }
}

int piece_walk(struct piece *piece, struct worker *worker)
{
    int stop = walk_on(piece, worker);
    totals_add_small(&piece->totals, piece->rows, piece->cursor.geometry, worker->counters);
    if (stop != STEP_PAUSED && stop != STEP_HANDOFF) {
        totals_close_run(&piece->totals, &piece->run, piece->cursor.at, piece->cursor.geometry, &worker->pages);
        cursor_finish(&piece->cursor, 0);
    }
    return stop;
}
