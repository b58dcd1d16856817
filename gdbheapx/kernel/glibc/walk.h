/* One walk cut into pieces (walk.c), which several threads take from one queue (queue.c), and the loop over a piece (chunks.c). */
#ifndef HEAPX_WALK_H
#define HEAPX_WALK_H

#include "chunk.h"

#include <pthread.h>

#define BLOCK_BYTES (256u << 10)
#define BLOCK_BYTES_MANY (128u << 10)   /* for each of more than four threads */

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
    struct histogram_row rows[HISTOGRAM_CLASSES];
};

/* What one thread works with. */
struct worker {
    struct window window;
    struct page_window pages;
    double deadline;
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
    const struct page_table *pages; /* NULL: none */
    int interrupted;
    double deadline;
    pthread_mutex_t lock;
};

/* Walks on from where the piece is: returns a STOP_, STEP_HANDOFF, or STEP_PAUSED (deadline, cancelled, reading interrupted). */
int piece_walk(struct piece *piece, struct worker *worker);

#endif
