/* Several threads on one walk.

   A piece is valid if the piece before it lands exactly on its first chunk; otherwise it is thrown away and the piece before goes on
   through it. So the totals are those of one walk from the region's first chunk, whatever the number of threads and whatever the
   memory holds. */
#define _GNU_SOURCE
#include "walk.h"

struct start {
    struct job *job;
    struct worker *worker;
};

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
    const struct region *region = job->regions + piece->region;
    uint64_t capacity = job->threads > 4 ? BLOCK_BYTES_MANY : BLOCK_BYTES;
    window_open(&worker->window, job->source, worker->bytes, capacity, region->begin, region->end);
    page_window_open(&worker->pages, job->pages);
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

/* Works for about `seconds`. Returns the number of pieces that are not finished, or INTERRUPTED. */
int64_t heapx_walk_slice(struct job *job, double seconds)
{
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
    threads_run(work, starts, sizeof *starts, helpers + 1);
    return job->interrupted ? INTERRUPTED : (int64_t) ready_pieces(job);
}
