/* A walk that counts: big regions cut into pieces at places that look like chunk boundaries, each taken by one of several threads, and the
   pieces' totals put together again.

   A piece is valid if the piece before it lands exactly on its first chunk; otherwise it is thrown away and the piece before goes on
   through it. So the totals are those of one walk from the region's first chunk, whatever the number of threads and whatever the
   memory holds. */
#define _GNU_SOURCE
#include "chunk.h"

#include <pthread.h>
#include <stdlib.h>

#define PIECE_BYTES (4u << 20)
#define PIECES_PER_THREAD 4u
#define BLOCK_BYTES (256u << 10)
#define BLOCK_BYTES_MANY (128u << 10)   /* for each of more than four threads */

struct histogram_row {
    uint64_t used_chunks, used_bytes, free_chunks, free_bytes, tcache_chunks;
};

enum piece_state { PIECE_READY, PIECE_RUNNING, PIECE_DONE, PIECE_CANCELLED };

struct piece {
    size_t region;
    uint64_t begin;
    uint64_t until;         /* where the next piece begins; the region's end for the last */
    int cancelled;          /* set by another thread: the piece before went past `begin` */
    enum piece_state state;
    int stop;
    uint64_t run;           /* start of the open run of free and fast chunks, 0 if none */
    /* the first chunk is in a fastbin, and the run that it is in is still open: it may have begun before this piece */
    int leading;
    uint64_t lead_end;      /* end of that run; 0 if there was none, or it is open */
    struct cursor cursor;
    struct walk_result totals;
    struct histogram_row rows[WALK_CLASSES];
};

/* What one thread works with. */
struct worker {
    struct job *job;
    struct window window;
    struct page_window pages;
    uint32_t counters[SMALL_COUNTERS];
    uint8_t *bytes;
};

struct job {
    struct chunk_geometry geometry;
    const struct source *source;
    const uint64_t *specials;   /* the caller's, and so are the regions */
    size_t special_count;
    const struct region *regions;
    size_t region_count;
    struct piece *pieces;       /* in order of regions, then of addresses */
    size_t piece_count;
    struct worker *workers;
    unsigned threads;
    uint64_t block_bytes;       /* of the window of each */
    const struct page_table *pages; /* NULL: none */
    int interrupted;
    double deadline;
    pthread_mutex_t lock;
};

/* ---- what a walk counts ---- */

/* A run of free and fast chunks ends at `end`, which is not top: its whole pages are what mtrim would give back (malloc.c): of a free chunk
   the first sizeof(struct malloc_chunk) bytes and the partial pages stay. */
static void close_run(struct walk_result *totals, uint64_t *run, uint64_t end, const struct chunk_geometry *geometry,
                      struct page_window *pages)
{
    uint64_t start = *run, mask = geometry->page - 1;
    *run = 0;
    if (!start || end - start <= mask + geometry->chunk_struct)
        return;
    uint64_t first = (start + geometry->chunk_struct + mask) & ~mask;
    uint64_t bytes = (end - first) & ~mask;
    if (first >= end || !bytes)
        return;
    totals->interior_ranges++;
    totals->interior_bytes += bytes;
    if (pages->table) {
        struct residency sum = {0, 0, 0, 0, 0};
        page_window_add(pages, first, first + bytes, &sum);
        totals->interior_resident_bytes += sum.resident_bytes;
        totals->interior_exclusive_bytes += sum.exclusive_bytes;
        totals->interior_unsure_bytes += sum.unsure_bytes;
        totals->interior_huge_bytes += sum.huge_bytes;
    }
}

/* Counts one chunk. `run` is the start of the open run of free and fast chunks, 0 if none. */
static void count_chunk(struct walk_result *totals, struct histogram_row *rows, uint64_t *run, const struct chunk_geometry *geometry,
                        const struct chunk *chunk, struct page_window *pages)
{
    struct histogram_row *row = &rows[histogram_class(chunk->size, geometry->shift)];
    const int is_behind_free = !(chunk->field & FLAG_PREV_INUSE) && chunk->previous;
    if (chunk->status == STATUS_FREE) {
        totals->free_chunks++;
        totals->free_bytes += chunk->size;
        if (chunk->size > totals->largest_free_bytes)
            totals->largest_free_bytes = chunk->size;
        totals->free_sum += chunk->address;
        totals->fd_sum += chunk->fd;
        totals->bk_sum += chunk->bk;
        if (chunk->repeated_size != chunk->size && !totals->bad_prev_size_chunks++)
            totals->bad_prev_size = chunk->address;
        if (is_behind_free && !totals->bad_neighbour_chunks++)      /* free() would have merged the two */
            totals->bad_neighbour = chunk->address;
    } else if (chunk->status == STATUS_FAST) {
        totals->fast_chunks++;
        totals->fast_bytes += chunk->size;
    }
    if (chunk->status == STATUS_FREE || chunk->status == STATUS_FAST) {
        row->free_chunks++;
        row->free_bytes += chunk->size;
        if (!*run)  /* the fast loop opens no runs: a small free chunk right before this one begins it */
            *run = is_behind_free ? chunk->previous : chunk->address;
        return;
    }
    close_run(totals, run, chunk->address, geometry, pages);
    if (chunk->status == STATUS_TCACHE) {
        totals->tcache_chunks++;
        totals->tcache_bytes += chunk->size;
        row->tcache_chunks++;
    } else if (chunk->status == STATUS_TCACHE_STRUCT) {
        totals->tcache_struct_chunks++;
        totals->tcache_struct_bytes += chunk->size;
    } else if (chunk->status == STATUS_FENCE) {
        totals->fence_bytes += chunk->size;
    } else {
        totals->used_chunks++;
        totals->used_bytes += chunk->size;
        row->used_chunks++;
        row->used_bytes += chunk->size;
    }
}

/* Adds the fast loop's counters, [size >> shift][next chunk's PREV_INUSE], and clears them. */
static void add_small(struct walk_result *totals, struct histogram_row *rows, const struct chunk_geometry *geometry, uint32_t *counters)
{
    for (uint64_t size = geometry->min_chunk; size <= geometry->small_limit; size += geometry->alignment) {
        uint32_t *pair = counters + (size >> geometry->shift) * 2;
        if (!(pair[0] | pair[1]))
            continue;
        struct histogram_row *row = &rows[histogram_class(size, geometry->shift)];
        uint64_t free_bytes = pair[0] * size, used_bytes = pair[1] * size;
        totals->free_chunks += pair[0];
        totals->free_bytes += free_bytes;
        row->free_chunks += pair[0];
        row->free_bytes += free_bytes;
        totals->used_chunks += pair[1];
        totals->used_bytes += used_bytes;
        row->used_chunks += pair[1];
        row->used_bytes += used_bytes;
        if (pair[0] && size > totals->largest_free_bytes)
            totals->largest_free_bytes = size;
        pair[0] = pair[1] = 0;
    }
}

#define ADD(field) sum->field += part->field
#define FIRST(field) do { if (!sum->field) sum->field = part->field; } while (0)

static void add_totals(struct walk_result *sum, const struct walk_result *part)
{
    ADD(used_chunks); ADD(used_bytes); ADD(tcache_chunks); ADD(tcache_bytes);
    ADD(fast_chunks); ADD(fast_bytes); ADD(free_chunks); ADD(free_bytes);
    ADD(tcache_struct_chunks); ADD(tcache_struct_bytes); ADD(top_bytes); ADD(fence_bytes);
    if (part->largest_free_bytes > sum->largest_free_bytes)
        sum->largest_free_bytes = part->largest_free_bytes;
    ADD(interior_bytes); ADD(interior_resident_bytes); ADD(interior_exclusive_bytes); ADD(interior_unsure_bytes); ADD(interior_ranges);
    ADD(interior_huge_bytes);
    FIRST(top_run_start);
    ADD(free_sum); ADD(fd_sum); ADD(bk_sum);
    FIRST(bad_prev_size); ADD(bad_prev_size_chunks);
    FIRST(bad_neighbour); ADD(bad_neighbour_chunks); ADD(further_pieces);
}

/* ---- the loop over the chunks of one piece

   Nearly every chunk is small, is no special and contradicts nothing: quick() counts those with one compare for the size, one for
   the place, one branch-free increment and the sums of a free chunk. Whatever is unusual leaves it and is met by cursor_step(). ---- */

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
        piece->totals.top_run_start = piece->begin;     /* close_piece() puts in where it begins */
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

/* Walks on from where the piece is: returns a STOP_, STEP_HANDOFF, or STEP_PAUSED (deadline, cancelled, reading interrupted). */
static int walk_on(struct piece *piece, struct worker *worker)
{
    struct cursor *cursor = &piece->cursor;
    struct chunk chunk;
    uint64_t reads = worker->window.reads, first, before;
    for (;;) {
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
            if (__atomic_load_n(&piece->cancelled, __ATOMIC_RELAXED) || clock_now() > worker->job->deadline)
                return STEP_PAUSED;
        }
        const int stop = cursor_step(cursor, &worker->window, &chunk, &first);
        if (stop == STEP_CHUNK) {
            uint64_t lead = piece->begin;
            if (chunk.status != STATUS_FREE && chunk.status != STATUS_FAST)
                end_lead(piece, chunk.address);
            count_chunk(&piece->totals, piece->rows, piece->leading ? &lead : &piece->run, cursor->geometry, &chunk, &worker->pages);
            continue;
        }
        if (stop == STOP_TOP)
            settle_top(piece, &chunk);
        else if (stop == STOP_FENCE)
            settle_fence(piece, &chunk);
        if (stop == STEP_PAUSED || !first)
            return stop;
        /* on to a further piece of the main arena */
        const uint64_t end = stop == STOP_TOP ? cursor->at + chunk.size : cursor->at;
        end_lead(piece, end);
        close_run(&piece->totals, &piece->run, end, cursor->geometry, &worker->pages);
        piece->totals.fence_bytes += first - end;
        piece->totals.further_pieces++;
        cursor_enter(cursor, first);
    }
}

/* ---- several threads on one walk ---- */

static void cancel(struct piece *piece)
{
    __atomic_store_n(&piece->cancelled, 1, __ATOMIC_RELAXED);
    if (piece->state != PIECE_RUNNING)
        piece->state = PIECE_CANCELLED;
}

/* What follows from the end of a piece, with the lock held. Returns the piece if it must go on. */
static struct piece *settle(struct job *job, struct piece *piece, int stop)
{
    if (piece->cancelled) {
        piece->state = PIECE_CANCELLED;
        return NULL;
    }
    if (stop == STEP_PAUSED) {
        piece->state = PIECE_READY;
        return NULL;
    }
    struct piece *next = piece + 1, *end = job->pieces + job->piece_count;
    if (stop != STEP_HANDOFF) {
        for (; next < end && next->region == piece->region; next++)
            cancel(next);
        piece->stop = stop;
        piece->state = PIECE_DONE;
        return NULL;
    }
    for (; next < end && next->region == piece->region; next++) {
        if (next->cancelled)
            continue;
        if (next->begin >= piece->cursor.at)
            break;
        cancel(next);
    }
    if (next == end || next->region != piece->region) {
        piece->until = UINT64_MAX;
        return piece;
    }
    if (next->begin > piece->cursor.at) {
        piece->until = next->begin;
        return piece;
    }
    piece->stop = stop;
    piece->state = PIECE_DONE;
    return NULL;
}

static void *walk_rows(void *given)
{
    struct worker *worker = given;
    struct job *job = worker->job;
    pthread_mutex_lock(&job->lock);
    while (!job->interrupted && clock_now() < job->deadline) {
        struct piece *piece = job->pieces, *end = piece + job->piece_count;
        while (piece < end && piece->state != PIECE_READY)
            piece++;
        if (piece == end)
            break;
        piece->state = PIECE_RUNNING;
        pthread_mutex_unlock(&job->lock);
        const struct region *region = job->regions + piece->region;
        window_open(&worker->window, job->source, worker->bytes, job->block_bytes, region->begin, region->end);
        page_window_open(&worker->pages, job->pages);
        while (piece) {
            const int stop = walk_on(piece, worker);
            add_small(&piece->totals, piece->rows, piece->cursor.geometry, worker->counters);
            if (stop != STEP_PAUSED && stop != STEP_HANDOFF) {
                close_run(&piece->totals, &piece->run, piece->cursor.at, piece->cursor.geometry, &worker->pages);
                cursor_finish(&piece->cursor, 0);
            }
            pthread_mutex_lock(&job->lock);
            job->interrupted |= worker->window.interrupted;
            piece = settle(job, piece, stop);
            if (piece)
                pthread_mutex_unlock(&job->lock);
        }
    }
    pthread_mutex_unlock(&job->lock);
    return NULL;
}

static size_t ready_pieces(const struct job *job)
{
    size_t count = 0;
    for (size_t i = 0; i < job->piece_count; i++)
        count += job->pieces[i].state == PIECE_READY;
    return count;
}

/* Works for about `seconds`. Returns the number of pieces that are not finished, or INTERRUPTED. */
int64_t heapx_walk_slice(struct job *job, double seconds)
{
    size_t ready = ready_pieces(job);
    job->deadline = clock_now() + seconds;
    job->interrupted = 0;
    threads_run(walk_rows, job->workers, sizeof *job->workers, ready < job->threads ? ready ? (unsigned) ready : 1 : job->threads);
    return job->interrupted ? INTERRUPTED : (int64_t) ready_pieces(job);
}

/* ---- the walk ---- */

static void open_piece(struct job *job, size_t region, uint64_t begin)
{
    struct piece *piece = &job->pieces[job->piece_count++];
    piece->region = region;
    piece->begin = begin;
    piece->until = UINT64_MAX;
    piece->state = PIECE_READY;
    cursor_open(&piece->cursor, &job->geometry, job->regions + region, job->specials, job->special_count, begin);
    const struct cursor *cursor = &piece->cursor;
    piece->leading = begin != cursor->begin && cursor->special < cursor->specials_end
            && cursor->specials[cursor->special] == (begin | SPECIAL_FAST);
}

static size_t pieces_of(const struct job *job, size_t region, uint64_t size)
{
    return job->threads > 1 ? 1 + (size_t) (region_bytes(job->regions + region) / (size + size / 2)) : 1;
}

/* 0: no memory. */
static int open_pieces(struct job *job)
{
    uint64_t size = 0;
    size_t all = 0;
    for (size_t i = 0; i < job->region_count; i++)
        size += region_bytes(job->regions + i);
    size /= job->threads * PIECES_PER_THREAD;
    size = size < PIECE_BYTES ? PIECE_BYTES : size;
    for (size_t i = 0; i < job->region_count; i++)
        all += pieces_of(job, i, size);
    job->pieces = calloc(all ? all : 1, sizeof *job->pieces);
    for (size_t i = 0; job->pieces && i < job->region_count; i++) {
        const struct region *region = job->regions + i;
        const size_t count = pieces_of(job, i, size);
        uint64_t step = region_bytes(region) / count, last = region->begin;
        open_piece(job, i, region->begin);
        for (size_t k = 1; k < count; k++) {
            uint64_t near = region->begin + k * step;
            uint64_t begin = near > last ? find_split(&job->geometry, job->source, job->workers[0].bytes, BLOCK_BYTES_MANY, region, near,
                    job->specials, job->special_count) : 0;
            if (!begin || begin <= last)
                continue;
            job->pieces[job->piece_count - 1].until = begin;
            open_piece(job, i, begin);
            last = begin;
        }
    }
    return job->pieces != NULL;
}

void heapx_walk_free(struct job *job)
{
    if (!job)
        return;
    for (unsigned i = 0; job->workers && i < job->threads; i++)
        free(job->workers[i].bytes);
    free(job->workers);
    free(job->pieces);
    pthread_mutex_destroy(&job->lock);
    free(job);
}

/* `regions`, `specials` and `pages` (may be NULL) stay the caller's and must outlive the job. NULL: no
   memory. */
struct job *heapx_walk_new(const struct source *source, const struct geometry *geometry, const struct region *regions,
                           uint64_t region_count, const uint64_t *specials, uint64_t special_count, const struct page_table *pages,
                           unsigned threads)
{
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    geometry_set(&job->geometry, geometry);
    job->source = source;
    job->regions = regions;
    job->region_count = (size_t) region_count;
    job->specials = specials;
    job->special_count = (size_t) special_count;
    job->pages = pages;
    job->threads = !threads || !source_is_parallel(source) ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
    job->block_bytes = job->threads > 4 ? BLOCK_BYTES_MANY : BLOCK_BYTES;
    pthread_mutex_init(&job->lock, NULL);
    job->workers = calloc(job->threads, sizeof *job->workers);
    int is_whole = job->workers != NULL;
    for (unsigned i = 0; is_whole && i < job->threads; i++) {
        job->workers[i].job = job;
        job->workers[i].bytes = malloc((size_t) job->block_bytes);
        is_whole = job->workers[i].bytes != NULL;
    }
    if (!is_whole || !open_pieces(job)) {
        heapx_walk_free(job);
        return NULL;
    }
    return job;
}

/* What a piece does not settle itself: it was handed off to the next, or the time is up before it was finished, and what it has is what
   the region's answer ends with. `carry`: start of the run that is open where it begins, 0 if none, and then of the one that is open
   where it was handed off. */
static void close_piece(const struct job *job, struct piece *piece, uint64_t *carry)
{
    struct page_window *pages = &job->workers[0].pages;
    const uint64_t at = piece->cursor.at;
    uint64_t lead = *carry ? *carry : piece->begin;
    page_window_open(pages, job->pages);
    if (piece->state != PIECE_DONE) {
        piece->stop = STOP_TIME;
        piece->state = PIECE_DONE;
        close_run(&piece->totals, &piece->run, at, &job->geometry, pages);
        cursor_finish(&piece->cursor, 0);
    } else if (piece->stop == STEP_HANDOFF) {
        cursor_finish(&piece->cursor, 1);
    }
    if (piece->leading && piece->stop == STEP_HANDOFF) {
        *carry = lead;
        return;
    }
    if (piece->leading && piece->stop == STOP_TOP)
        piece->totals.top_run_start = lead;
    else if (piece->leading || piece->lead_end || *carry)
        close_run(&piece->totals, &lead, piece->leading ? at : piece->lead_end ? piece->lead_end : piece->begin, &job->geometry, pages);
    *carry = piece->stop == STEP_HANDOFF ? piece->run : 0;
}

/* Writes the totals and, for each non-empty class, its number and struct histogram_row. Returns the number of classes. */
uint64_t heapx_walk_result(struct job *job, uint64_t region, struct walk_result *out, uint64_t *classes)
{
    struct histogram_row rows[WALK_CLASSES];
    memset(out, 0, sizeof *out);
    memset(rows, 0, sizeof rows);
    uint64_t carry = 0;
    for (struct piece *piece = job->pieces; piece < job->pieces + job->piece_count; piece++) {
        if (piece->region != region || piece->state == PIECE_CANCELLED)
            continue;
        close_piece(job, piece, &carry);
        add_totals(out, &piece->totals);
        out->specials_met += piece->cursor.specials_met;
        out->missed_specials += piece->cursor.missed_specials;
        if (!out->missed_special)
            out->missed_special = piece->cursor.missed_special;
        for (size_t i = 0; i < WALK_CLASSES * 5; i++)
            ((uint64_t *) rows)[i] += ((const uint64_t *) piece->rows)[i];
        out->stop = (uint64_t) piece->stop;
        out->at = piece->cursor.at;
        if (piece->stop != STEP_HANDOFF)
            break;
    }
    uint64_t count = 0;
    for (uint64_t i = 0; i < WALK_CLASSES; i++) {
        const struct histogram_row *row = &rows[i];
        if (!(row->used_chunks | row->free_chunks | row->tcache_chunks))
            continue;
        *classes++ = i;
        memcpy(classes, row, sizeof *row);
        classes += 5;
        count++;
    }
    return count;
}
