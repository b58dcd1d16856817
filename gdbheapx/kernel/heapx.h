/* What the C files of the kernel share. Plain C99 and pthreads; nothing here knows Python.

   Every address and size is a uint64_t, whatever the target's and this machine's word size. Reads give the readable
   prefix of a range; nothing trusts a number that came out of the target before it was compared with the bounds. */
#ifndef HEAPX_H
#define HEAPX_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Must equal ABI in library.py: raise both when a function or a layout of numbers changes. */
#define HEAPX_ABI 8

#define EXPORT __attribute__((visibility("default")))

/* Numbers of gdbheapx/kernel/api.py. */
enum { SPECIAL_FAST = 1, SPECIAL_TCACHE = 2, SPECIAL_TCACHE_STRUCT = 3 };
enum { STATUS_USED, STATUS_FAST, STATUS_TCACHE, STATUS_TCACHE_STRUCT, STATUS_FREE, STATUS_TOP, STATUS_FENCE };
enum {
    STOP_TOP, STOP_END, STOP_FENCE, STOP_SMALL, STOP_MISALIGNED, STOP_MMAPPED_BIT, STOP_OVERRUN, STOP_UNREADABLE, STOP_TIME,
    /* Only inside the kernel: */
    STEP_CHUNK,     /* no stop: a chunk was met */
    STEP_PAUSED,    /* the reading call was interrupted; nothing has changed, the same step can be tried again */
    STEP_HANDOFF    /* the next piece's first chunk is reached or passed */
};
enum { PROBLEM_NONE, PROBLEM_UNALIGNED, PROBLEM_UNREADABLE, PROBLEM_TOO_LONG, PROBLEM_BACK_LINK, PROBLEM_CYCLE, PROBLEM_CUT };

#define FLAG_PREV_INUSE 1u
#define FLAG_MMAPPED 2u
#define FLAG_NON_MAIN 4u
#define FLAGS 7u

/* ---- geometry: api.Geometry with what follows from it ---- */

struct geometry {
    unsigned word;          /* SIZE_SZ: 4 or 8 */
    unsigned alignment;
    unsigned shift;         /* log2(alignment) */
    unsigned min_chunk;
    unsigned chunk_struct;
    unsigned swap;          /* the target's byte order is not this machine's */
    uint64_t page;
    uint64_t small_limit;   /* largest size that the fast loop counts: too small to hold a page that mtrim would give back */
};

/* Sizes up to this have a counter of their own in the fast loop: page-1 + sizeof(struct malloc_chunk) for 4 KiB pages. */
#define SMALL_LIMIT 4143u
#define SMALL_COUNTERS ((SMALL_LIMIT / 8 + 1) * 2)

/* `numbers`: word, alignment, min_chunk, chunk_struct, page, little_endian. */
void geometry_set(struct geometry *geometry, const uint64_t *numbers);

static inline uint64_t load_word(const uint8_t *from, unsigned word, unsigned swap)
{
    if (word == 8) {
        uint64_t value;
        memcpy(&value, from, 8);
        return swap ? __builtin_bswap64(value) : value;
    } else {
        uint32_t value;
        memcpy(&value, from, 4);
        return swap ? __builtin_bswap32(value) : value;
    }
}

/* ---- source.c: where bytes come from ---- */

#define READ_INTERRUPTED (-1)

struct source;

/* Reads the readable prefix of [address, address + size) into `to`; returns its length or READ_INTERRUPTED. */
int64_t source_read(const struct source *source, uint64_t address, void *to, uint64_t size);

/* The same for a search: what is in swap stays there and reads as zeros. */
int64_t source_peek(const struct source *source, uint64_t address, void *to, uint64_t size);

/* Several threads may read at once. */
int source_is_parallel(const struct source *source);

/* ---- window.c: one block of target memory in a reused buffer ---- */

struct window {
    const struct source *source;
    uint8_t *bytes;
    uint64_t capacity;
    uint64_t begin;         /* address of bytes[0] */
    uint64_t length;        /* valid bytes */
    uint64_t low, high;     /* never reads outside [low, high) */
    uint64_t next_read;     /* how much the next miss reads: grows while misses follow each other closely */
    uint64_t reads;         /* number of blocks read: the walker looks at its clock when it changes */
    int interrupted, peeks; /* peeks: by source_peek */
};

/* The caller's buffer becomes a window onto [low, high). */
void window_open(struct window *window, const struct source *source, uint8_t *bytes, uint64_t capacity, uint64_t low, uint64_t high);

const uint8_t *window_miss(struct window *window, uint64_t address, uint64_t size);

/* The `size` bytes at `address`, or NULL if they cannot all be read or lie outside [low, high). */
static inline const uint8_t *window_at(struct window *window, uint64_t address, uint64_t size)
{
    uint64_t offset = address - window->begin;
    if (offset < window->length && window->length - offset >= size)
        return window->bytes + offset;
    return window_miss(window, address, size);
}

/* ---- pages.c: small reads all over memory ---- */

#define CACHE_PAGE 4096u
#define CACHE_PAGES 128u

struct pages {
    const struct source *source;
    unsigned direct_reads;          /* so many reads are done without a page first */
    int interrupted;
    uint64_t reads;                 /* of the source, so far */
    uint64_t last_miss;             /* the page that was read last, and how many have been missed one after the other */
    unsigned in_row;
    uint8_t *bytes;
    uint64_t tags[CACHE_PAGES];     /* page address | 1; 0 if empty */
    uint32_t lengths[CACHE_PAGES];
};

void pages_open(struct pages *pages, const struct source *source, unsigned direct_reads);
void pages_close(struct pages *pages);

/* The bytes of the page around `address` if they are there: those of [begin, end). NULL if the source would have to be read. */
const uint8_t *pages_peek(const struct pages *pages, uint64_t address, uint64_t *begin, uint64_t *end);

/* The next pages_read of this will not read the source. */
int pages_has(const struct pages *pages, uint64_t address, uint64_t size);

/* 1 if all `size` bytes (at most a page) were read; else 0, with pages->interrupted if the reading call was interrupted. */
int pages_read(struct pages *pages, uint64_t address, uint8_t *to, uint64_t size);

/* Neither the first nor the last byte of the page of 4,096 bytes around `address` can be read. */
int pages_has_hole(struct pages *pages, uint64_t address);

/* ---- step.c: one chunk after the other ---- */

struct cursor {
    const struct geometry *geometry;
    const uint64_t *specials;   /* sorted `chunk | kind` */
    size_t special, specials_end;
    uint64_t begin, end, top;
    int joined;                 /* pieces of the main arena may follow each other: api.Region.joined */
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

void cursor_open(struct cursor *cursor, const struct geometry *geometry, const uint64_t *region,
                 const uint64_t *specials, size_t special_count, uint64_t from);

/* Meets the chunk at cursor->at and moves on. Returns STEP_CHUNK, STEP_PAUSED or a STOP_; at STOP_TOP and STOP_FENCE
   chunk->field and chunk->size hold what was read there. */
int cursor_step(struct cursor *cursor, struct window *window, struct chunk *chunk);

/* After STOP_FENCE or STOP_TOP: STEP_CHUNK if a further piece of the main arena follows, with its first chunk in `first`, else 0; or STEP_PAUSED.
   Nothing has moved: cursor_enter() does. */
int cursor_follows(struct cursor *cursor, struct window *window, int stop, const struct chunk *chunk, uint64_t *first);

void cursor_enter(struct cursor *cursor, uint64_t first);

/* Settles the specials up to the end of the walk at cursor->at; at a handoff those before it, since the next piece meets the one there. */
void cursor_finish(struct cursor *cursor, int handoff);

size_t specials_from(const uint64_t *specials, size_t count, uint64_t address);

/* ---- totals.c: what a walk counts ---- */

#define HISTOGRAM_EXACT_BYTES 1024u
#define HISTOGRAM_CLASSES (HISTOGRAM_EXACT_BYTES / 8 + 1 + 54 * 4)

struct histogram_row {
    uint64_t used_chunks, used_bytes, free_chunks, free_bytes, tcache_chunks;
};

/* Order and names as in api.WalkResult, without stop and at; door.py reads them by place. */
struct totals {
    uint64_t used_chunks, used_bytes, tcache_chunks, tcache_bytes, fast_chunks, fast_bytes, free_chunks, free_bytes;
    uint64_t tcache_struct_chunks, tcache_struct_bytes, top_bytes, fence_bytes, largest_free_bytes;
    uint64_t interior_bytes, interior_resident_bytes, interior_exclusive_bytes, interior_unsure_bytes, interior_ranges, top_run_start;
    uint64_t free_sum, fd_sum, bk_sum;
    uint64_t bad_prev_size, bad_prev_size_chunks, bad_neighbour, bad_neighbour_chunks, further_pieces;
};
#define TOTALS_NUMBERS (sizeof(struct totals) / sizeof(uint64_t))

unsigned histogram_class(uint64_t size, const struct geometry *geometry);

struct page_window;

/* Counts one chunk. `run` is the start of the open run of free and fast chunks, 0 if none. */
void totals_count(struct totals *totals, struct histogram_row *rows, uint64_t *run, const struct geometry *geometry,
                  const struct chunk *chunk, struct page_window *pages);

/* The run ends at `end`, which is not top: its whole pages are what mtrim would give back. */
void totals_close_run(struct totals *totals, uint64_t *run, uint64_t end, const struct geometry *geometry,
                      struct page_window *pages);

/* Adds the fast loop's counters, [size >> shift][next chunk's PREV_INUSE], and clears them. */
void totals_add_small(struct totals *totals, struct histogram_row *rows, const struct geometry *geometry, uint32_t *counters);

void totals_add(struct totals *sum, const struct totals *part);

/* ---- pagemap.c ---- */

#define WINDOW_PAGES 2048u
#define FIRST_PAGES 64u

/* base.PageTable, opened. */
struct page_table {
    int pagemap_fd, flags_fd;       /* flags_fd: /proc/kpageflags, -1 if it may not be read */
    int scans, knows_huge_zero;
    const uint64_t *outside_rss;    /* begin and end of each range, sorted */
    size_t outside_count;
    uint64_t page, huge;
};

/* A window onto the page table for ranges that ascend. */
struct page_window {
    const struct page_table *table; /* NULL: none */
    uint64_t first, count;          /* pages that kinds[] describes */
    uint64_t next;                  /* how many the next miss loads: grows while misses follow each other */
    uint8_t kinds[WINDOW_PAGES];
};

/* Order and names as in base.Residency; door.py reads it by place. */
struct residency {
    uint64_t resident_bytes, exclusive_bytes, swapped_bytes, huge_bytes, unsure_bytes;
};

void page_window_open(struct page_window *window, const struct page_table *table);
void page_window_add(struct page_window *window, uint64_t begin, uint64_t end, struct residency *sum);

/* The page is in RAM, or it may be. */
int page_is_resident(struct page_window *window, uint64_t address);
int page_is_swapped(struct page_window *window, uint64_t address);

/* ---- split.c ---- */

/* A chunk boundary beyond `near` where a second thread may begin, or 0: found by plausibility, proved by the walk before it. */
uint64_t find_split(const struct geometry *geometry, const struct source *source, uint8_t *buffer, uint64_t capacity,
                    const uint64_t *region, uint64_t near);

/* The size in the field if it can be that of a chunk which has `room` bytes before it must end; else 0. */
static inline uint64_t plausible_size(const struct geometry *geometry, uint64_t field, uint64_t room)
{
    uint64_t size = field & ~(uint64_t) FLAGS;
    if (size < geometry->min_chunk || (size & (geometry->alignment - 1)) || (field & FLAG_MMAPPED) || size > room)
        return 0;
    return size;
}

/* ---- clock ---- */

double clock_now(void);

#endif
