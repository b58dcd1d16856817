/* Passes over the ranges of a copy by several threads, in pieces of at most PIECE_PAGES: copy.c makes those of a stop; who copies a process
   while it runs makes others. */
#ifndef HEAPX_COPY_PASSES_H
#define HEAPX_COPY_PASSES_H

#include "copied.h"
#include "pagemap.h"
#include "source.h"

#include <pthread.h>

#define HUGE_BYTES (2ull << 20)
#define PIECE_PAGES 2048u
#define REGIONS 512u

struct pass;
struct worker {
    struct pass *pass;
    struct copy_taken taken;
    uint64_t entries[PIECE_PAGES];
    uint8_t kinds[PIECE_PAGES];
    struct scan_region regions[REGIONS];
};

struct pass {
    const struct copy *copy;
    void (*work)(struct worker *worker, const struct copied_range *range, uint64_t begin, uint64_t pages);
    const struct source *swap;      /* says what may be brought in from swap */
    const double *until;
    int looks;                      /* all pages of a piece are looked at beforehand */
    int leaves;                     /* what is passed over holds nothing any more */
    int notes_frames;
    pthread_mutex_t lock;
    size_t range;
    uint64_t at, unread_from;
};

/* Runs the pass from its `range` and `at` on; `out`: sums of what its workers took. */
void copy_run_pass(struct pass *pass, unsigned threads, struct copy_taken *out);

/* Copies a piece, of which worker->entries and worker->kinds tell what there is. */
void copy_take_piece(struct worker *worker, const struct copied_range *range, uint64_t begin, uint64_t pages);

/* Nothing is known of these pages any more. */
void copy_forget(const struct copy *copy, const struct copied_range *range, uint64_t begin, uint64_t end);

#endif
