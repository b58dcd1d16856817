/* One walk cut into pieces that several threads take from one queue (walk.c), and the loop over a piece (chunks.c). */
#ifndef HEAPX_WALK_H
#define HEAPX_WALK_H

#include "heapx.h"

enum piece_state { PIECE_READY, PIECE_RUNNING, PIECE_DONE, PIECE_CANCELLED };

struct piece {
    size_t region;
    uint64_t begin;
    uint64_t until;         /* where the next piece begins; the region's end for the last */
    int cancelled;          /* set by another thread: the piece before went past `begin` */
    enum piece_state state;
    int stop;
    uint64_t run;           /* start of the open run of free and fast chunks, 0 if none */
    struct cursor cursor;
    struct totals totals;
    struct histogram_row rows[HISTOGRAM_CLASSES];
};

/* What one thread works with. */
struct worker {
    struct window window;
    struct resident_window resident;
    double deadline;
    uint32_t counters[SMALL_COUNTERS];
    uint8_t *bytes;
};

/* Walks on from where the piece is: returns a STOP_, STEP_HANDOFF, or STEP_PAUSED (deadline, cancelled, reading interrupted). */
int piece_walk(struct piece *piece, struct worker *worker);

#endif
