/* A walk: big regions cut into pieces at places that look like chunk boundaries (split.c), the pieces' totals put together again. */
#include "walk.h"

#include <stdlib.h>

#define PIECE_BYTES (4u << 20)
#define PIECES_PER_THREAD 4u

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

static uint64_t piece_bytes(const struct job *job)
{
    uint64_t total = 0, size;
    for (size_t i = 0; i < job->region_count; i++)
        total += region_bytes(job->regions + i);
    size = total / (job->threads * PIECES_PER_THREAD);
    return size < PIECE_BYTES ? PIECE_BYTES : size;
}

static size_t pieces_of(const struct job *job, size_t region, uint64_t size)
{
    return job->threads > 1 ? 1 + (size_t) (region_bytes(job->regions + region) / (size + size / 2)) : 1;
}

static void open_pieces(struct job *job, uint64_t size)
{
    for (size_t i = 0; i < job->region_count; i++) {
        const struct region *region = job->regions + i;
        size_t count = pieces_of(job, i, size);
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

static int allocate(struct job *job)
{
    job->workers = calloc(job->threads, sizeof *job->workers);
    if (!job->workers)
        return 0;
    for (unsigned i = 0; i < job->threads; i++) {
        job->workers[i].bytes = malloc(job->threads > 4 ? BLOCK_BYTES_MANY : BLOCK_BYTES);
        if (!job->workers[i].bytes)
            return 0;
    }
    uint64_t size = piece_bytes(job);
    size_t count = 0;
    for (size_t i = 0; i < job->region_count; i++)
        count += pieces_of(job, i, size);
    job->pieces = calloc(count ? count : 1, sizeof *job->pieces);
    if (!job->pieces)
        return 0;
    open_pieces(job, size);
    return 1;
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
    job->threads = threads > MAX_THREADS ? MAX_THREADS : threads ? threads : 1;
    if (!source_is_parallel(source))
        job->threads = 1;
    pthread_mutex_init(&job->lock, NULL);
    if (!allocate(job)) {
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
        totals_close_run(&piece->totals, &piece->run, at, &job->geometry, pages);
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
        totals_close_run(&piece->totals, &lead, piece->leading ? at : piece->lead_end ? piece->lead_end : piece->begin, &job->geometry,
                pages);
    *carry = piece->stop == STEP_HANDOFF ? piece->run : 0;
}

static struct piece *piece_after(const struct job *job, const struct piece *piece)
{
    const struct piece *end = job->pieces + job->piece_count;
    struct piece *next = (struct piece *) piece + 1;
    while (next < end && next->region == piece->region && next->state == PIECE_CANCELLED)
        next++;
    return next < end && next->region == piece->region ? next : NULL;
}

/* Writes the totals and, for each non-empty class, its number and struct histogram_row. Returns the number of classes. */
uint64_t heapx_walk_result(struct job *job, uint64_t region, struct walk_result *out, uint64_t *classes)
{
    struct histogram_row rows[HISTOGRAM_CLASSES];
    memset(out, 0, sizeof *out);
    memset(rows, 0, sizeof rows);
    struct piece *piece = job->pieces;
    uint64_t carry = 0;
    while (piece->region != region)
        piece++;
    for (; piece; piece = piece_after(job, piece)) {
        close_piece(job, piece, &carry);
        totals_add(out, &piece->totals);
        out->specials_met += piece->cursor.specials_met;
        out->missed_specials += piece->cursor.missed_specials;
        if (!out->missed_special)
            out->missed_special = piece->cursor.missed_special;
        for (size_t i = 0; i < HISTOGRAM_CLASSES * 5; i++)
            ((uint64_t *) rows)[i] += ((const uint64_t *) piece->rows)[i];
        out->stop = (uint64_t) piece->stop;
        out->at = piece->cursor.at;
        if (piece->stop != STEP_HANDOFF)
            break;
    }
    uint64_t count = 0;
    for (uint64_t i = 0; i < HISTOGRAM_CLASSES; i++) {
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

/* How many classes there may be. */
uint64_t heapx_walk_classes(void)
{
    return HISTOGRAM_CLASSES;
}
