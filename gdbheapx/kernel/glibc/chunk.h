/* glibc's chunks: what the C files of this folder share. */
#ifndef HEAPX_CHUNK_H
#define HEAPX_CHUNK_H

#include "../common/heapx.h"
#include "gdbheapx_glibc.h"

/* What a step of a cursor gives beside a STOP_. */
enum {
    STEP_CHUNK = STOPS,     /* no stop: a chunk was met */
    STEP_PAUSED,            /* the reading call was interrupted; nothing has changed, the same step can be tried again */
    STEP_HANDOFF            /* the next piece's first chunk is reached or passed */
};

#define FLAG_PREV_INUSE 1u
#define FLAG_MMAPPED 2u
#define FLAG_NON_MAIN 4u
#define FLAGS 7u

/* ---- geometry: records.Geometry with what follows from it ---- */

struct chunk_geometry {
    unsigned word;          /* SIZE_SZ: 4 or 8 */
    unsigned alignment;
    unsigned shift;         /* log2(alignment) */
    unsigned min_chunk;
    unsigned chunk_struct;
    unsigned overhead;      /* what of a chunk the program may not use */
    unsigned swap;          /* the target's byte order is not this machine's */
    uint64_t page;
    uint64_t small_limit;   /* largest size that the fast loop counts: too small to hold a page that mtrim would give back */
};

/* Sizes up to this have a counter of their own in the fast loop: page-1 + sizeof(struct malloc_chunk) for 4 KiB pages. */
#define SMALL_LIMIT 4143u
#define SMALL_COUNTERS ((SMALL_LIMIT / 8 + 1) * 2)

void geometry_set(struct chunk_geometry *geometry, const struct geometry *given);

/* ---- one chunk after the other ---- */

struct cursor {
    const struct chunk_geometry *geometry;
    const uint64_t *specials;   /* sorted `chunk | kind` */
    size_t special, specials_end;
    uint64_t begin, end, top;
    int joined;                 /* pieces of the main arena may follow each other: records.Region.joined */
    uint64_t at;                /* the next chunk */
    uint64_t previous;          /* the chunk before it; 0 if none was met */
    int previous_was_quick;     /* `previous` was met by the fast loop, which does not look for fenceposts */
    uint64_t specials_met, missed_specials, missed_special;
};

struct chunk {
    uint64_t address, field, size;  /* field: the size field with its flags */
    uint64_t fd, bk;                /* 0 where they cannot be read */
    uint64_t previous;              /* the chunk before it; 0 if none */
    uint64_t repeated_size;         /* prev_size of the next chunk; meaningless unless free */
    int status;
};

void cursor_open(struct cursor *cursor, const struct chunk_geometry *geometry, const struct region *region,
                 const uint64_t *specials, size_t special_count, uint64_t from);

/* Meets the chunk at cursor->at and moves on. Returns STEP_CHUNK, STEP_PAUSED or a STOP_; at STOP_TOP and STOP_FENCE
   chunk->field and chunk->size hold what was read there, and *first is the first chunk of a further piece of the main arena that follows:
   cursor_enter() moves there. *first 0: none does. */
int cursor_step(struct cursor *cursor, struct window *window, struct chunk *chunk, uint64_t *first);

void cursor_enter(struct cursor *cursor, uint64_t first);

/* Settles the specials up to the end of the walk at cursor->at; at a handoff those before it, since the next piece meets the one there. */
void cursor_finish(struct cursor *cursor, int handoff);

size_t specials_from(const uint64_t *specials, size_t count, uint64_t address);

/* `count` words at `address`: 1, 0 if not all of them can be read, or INTERRUPTED. */
int read_words(const struct source *source, struct pages *pages, const struct chunk_geometry *geometry, uint64_t address, unsigned count,
               uint64_t *words);

/* Bytes of a region that a walk passes. */
static inline uint64_t region_bytes(const struct region *region)
{
    const uint64_t end = region->top > region->begin && region->top < region->end && !region->joined ? region->top : region->end;
    return end > region->begin ? end - region->begin : 0;
}

/* A chunk boundary beyond `near` where a second thread may begin, or 0: found by plausibility, proved by the walk before it. */
uint64_t find_split(const struct chunk_geometry *geometry, const struct source *source, uint8_t *buffer, uint64_t capacity,
                    const struct region *region, uint64_t near, const uint64_t *specials, size_t special_count);

/* The size in the field if it can be that of a chunk which has `room` bytes before it must end; else 0. */
static inline uint64_t plausible_size(const struct chunk_geometry *geometry, uint64_t field, uint64_t room)
{
    uint64_t size = field & ~(uint64_t) FLAGS;
    if (size < geometry->min_chunk || (size & (geometry->alignment - 1)) || (field & FLAG_MMAPPED) || size > room)
        return 0;
    return size;
}

#endif
