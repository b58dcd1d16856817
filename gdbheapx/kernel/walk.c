/* Several threads on one walk.

   Big regions are cut into pieces at places that look like chunk boundaries (split.c). A piece is valid if the piece before it lands exactly
   on its first chunk; otherwise it is thrown away and the piece before goes on through it. So the totals are those of
   one walk from the region's first chunk, whatever the number of threads and whatever the memory holds. */
#define _GNU_SOURCE
#include "walk.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#define MAX_THREADS 8u
#define BLOCK_BYTES (256u << 10)
#define BLOCK_BYTES_MANY (128u << 10)
#define PIECE_BYTES (4u << 20)
#define PIECES_PER_THREAD 4u
#define STACK_BYTES (256u << 10)

struct job {
    struct geometry geometry;
    const struct source *source;
    const uint64_t *specials;   /* the caller's, and so are the regions */
    size_t special_count;
    const uint64_t *regions;    /* begin, end, top of each */
    size_t region_count;
    struct piece *pieces;       /* in order of regions, then of addresses */
    size_t piece_count;
    struct worker *workers;
    unsigned threads;
    int pagemap_fd;
    int interrupted;
    double deadline;
    pthread_mutex_t lock;
};

struct start {
    struct job *job;
    struct worker *worker;
};

static struct piece *piece_after(const struct job *job, const struct piece *piece)
{
    const struct piece *end = job->pieces + job->piece_count;
    struct piece *next = (struct piece *) piece + 1;
    while (next < end && next->region == piece->region && next->state == PIECE_CANCELLED)
        next++;
    return next < end && next->region == piece->region ? next : NULL;
}

static void cancel(struct piece *piece)
{
    __atomic_store_n(&piece->cancelled, 1, __ATOMIC_RELAXED);
    if (piece->state != PIECE_RUNNING)
        piece->state = PIECE_CANCELLED;
}

static struct piece *take(struct job *job)
{
    for (size_t i = 0; i < job->piece_count; i++) {
        if (job->pieces[i].state == PIECE_READY) {
            job->pieces[i].state = PIECE_RUNNING;
            return &job->pieces[i];
        }
    }
    return NULL;
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

static void enter(const struct job *job, struct worker *worker, const struct piece *piece)
{
    const uint64_t *region = job->regions + 3 * piece->region;
    uint64_t capacity = job->threads > 4 ? BLOCK_BYTES_MANY : BLOCK_BYTES;
    window_open(&worker->window, job->source, worker->bytes, capacity, region[0], region[1]);
    resident_open(&worker->resident, job->pagemap_fd);
    worker->deadline = job->deadline;
}

static void *work(void *given)
{
    const struct start *start = given;
    struct job *job = start->job;
    struct worker *worker = start->worker;
    pthread_mutex_lock(&job->lock);
    while (!job->interrupted && clock_now() < job->deadline) {
        struct piece *piece = take(job);
        if (!piece)
            break;
        pthread_mutex_unlock(&job->lock);
        enter(job, worker, piece);
        while (piece) {
            int stop = piece_walk(piece, worker);
            pthread_mutex_lock(&job->lock);
            if (worker->window.interrupted)
                job->interrupted = 1;
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

/* Starts threads that take no signal: all of them stay with the program's own threads. */
static unsigned start_threads(pthread_t *threads, struct start *starts, unsigned count)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    unsigned started = 0;
    if (!count || pthread_attr_init(&attributes))
        return 0;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < count && !pthread_create(&threads[started], &attributes, work, &starts[started]))
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

/* Works for about `seconds`. Returns the number of pieces that are not finished, or READ_INTERRUPTED. */
EXPORT int64_t heapx_walk_slice(struct job *job, double seconds)
{
    pthread_t threads[MAX_THREADS];
    struct start starts[MAX_THREADS];
    size_t ready = ready_pieces(job);
    unsigned helpers = job->threads - 1;
    if (ready <= helpers)
        helpers = ready ? (unsigned) ready - 1 : 0;
    job->deadline = clock_now() + seconds;
    job->interrupted = 0;
    for (unsigned i = 0; i < job->threads; i++) {
        starts[i].job = job;
        starts[i].worker = &job->workers[i];
    }
    unsigned started = start_threads(threads, starts + 1, helpers);
    work(&starts[0]);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return job->interrupted ? READ_INTERRUPTED : (int64_t) ready_pieces(job);
}

static void open_piece(struct job *job, size_t region, uint64_t begin)
{
    struct piece *piece = &job->pieces[job->piece_count++];
    piece->region = region;
    piece->begin = begin;
    piece->until = UINT64_MAX;
    piece->state = PIECE_READY;
    cursor_open(&piece->cursor, &job->geometry, job->regions + 3 * region, job->specials, job->special_count, begin);
}

static uint64_t region_bytes(const uint64_t *region)
{
    uint64_t end = region[2] > region[0] && region[2] < region[1] ? region[2] : region[1];
    return end > region[0] ? end - region[0] : 0;
}

static uint64_t piece_bytes(const struct job *job)
{
    uint64_t total = 0, size;
    for (size_t i = 0; i < job->region_count; i++)
        total += region_bytes(job->regions + 3 * i);
    size = total / (job->threads * PIECES_PER_THREAD);
    return size < PIECE_BYTES ? PIECE_BYTES : size;
}

static size_t pieces_of(const struct job *job, size_t region, uint64_t size)
{
    return job->threads > 1 ? 1 + (size_t) (region_bytes(job->regions + 3 * region) / (size + size / 2)) : 1;
}

static void open_pieces(struct job *job, uint64_t size)
{
    for (size_t i = 0; i < job->region_count; i++) {
        const uint64_t *region = job->regions + 3 * i;
        size_t count = pieces_of(job, i, size);
        uint64_t step = region_bytes(region) / count, last = region[0];
        open_piece(job, i, region[0]);
        for (size_t k = 1; k < count; k++) {
            uint64_t near = region[0] + k * step;
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

EXPORT void heapx_walk_free(struct job *job)
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

/* `regions` (begin, end, top of each) and `specials` stay the caller's and must outlive the job. NULL: no memory. */
EXPORT struct job *heapx_walk_new(const struct source *source, const uint64_t *geometry, const uint64_t *regions, uint64_t region_count,
                                  const uint64_t *specials, uint64_t special_count, int pagemap_fd, unsigned threads)
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
    job->pagemap_fd = pagemap_fd;
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

/* What a piece does not settle itself: it was handed off to the next, whose first chunk is in use and no special, so that an open run ends
   there; or the time is up before it was finished, and what it has is what the region's answer ends with. */
static void close_piece(const struct job *job, struct piece *piece)
{
    if (piece->state == PIECE_DONE && piece->stop != STEP_HANDOFF)
        return;
    struct resident_window *resident = &job->workers[0].resident;
    resident_open(resident, job->pagemap_fd);
    totals_close_run(&piece->totals, &piece->run, piece->cursor.at, &job->geometry, resident);
    cursor_finish(&piece->cursor);
    if (piece->state != PIECE_DONE)
        piece->stop = STOP_TIME;
    piece->state = PIECE_DONE;
}

struct answer {
    uint64_t stop, at;
    struct totals totals;
    uint64_t specials_met, missed_special, missed_specials;
};

/* Writes struct answer and then, for each non-empty class, its number and struct histogram_row. Returns the number of classes. */
EXPORT uint64_t heapx_walk_result(struct job *job, uint64_t region, uint64_t *out)
{
    struct answer answer;
    struct histogram_row rows[HISTOGRAM_CLASSES];
    memset(&answer, 0, sizeof answer);
    memset(rows, 0, sizeof rows);
    struct piece *piece = job->pieces;
    while (piece->region != region)
        piece++;
    for (; piece; piece = piece_after(job, piece)) {
        close_piece(job, piece);
        totals_add(&answer.totals, &piece->totals);
        answer.specials_met += piece->cursor.specials_met;
        answer.missed_specials += piece->cursor.missed_specials;
        if (!answer.missed_special)
            answer.missed_special = piece->cursor.missed_special;
        for (size_t i = 0; i < HISTOGRAM_CLASSES * 5; i++)
            ((uint64_t *) rows)[i] += ((const uint64_t *) piece->rows)[i];
        answer.stop = (uint64_t) piece->stop;
        answer.at = piece->cursor.at;
        if (piece->stop != STEP_HANDOFF)
            break;
    }
    memcpy(out, &answer, sizeof answer);
    uint64_t *to = out + sizeof answer / 8, count = 0;
    for (uint64_t i = 0; i < HISTOGRAM_CLASSES; i++) {
        const struct histogram_row *row = &rows[i];
        if (!(row->used_chunks | row->free_chunks | row->tcache_chunks))
            continue;
        *to++ = i;
        memcpy(to, row, sizeof *row);
        to += 5;
        count++;
    }
    return count;
}

/* How many numbers heapx_walk_result may write. */
EXPORT uint64_t heapx_walk_numbers(void)
{
    return sizeof(struct answer) / 8 + HISTOGRAM_CLASSES * 6;
}
