/* What the C files of the kernel share. Plain C99 and pthreads; nothing here knows Python.

   Every address and size is a uint64_t, whatever the target's and this machine's word size. Reads give the readable
   prefix of a range; nothing trusts a number that came out of the target before it was compared with the bounds. */
#ifndef HEAPX_H
#define HEAPX_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "gdbheapx.h"

/* Words of a target are not in this machine's order. */
static inline unsigned is_swapped(uint64_t little_endian)
{
    const uint16_t probe = 1;
    return *(const uint8_t *) &probe != (little_endian != 0);
}

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

/* How many rows begin with a number up to `limit`; they are sorted by it. */
static inline uint64_t rows_up_to(const void *rows, uint64_t count, size_t row_bytes, uint64_t limit)
{
    uint64_t low = 0, high = count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (*(const uint64_t *) ((const uint8_t *) rows + row_bytes * middle) <= limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Where the first of these sorted numbers stands that is not below `least`; `count`: none. */
static inline uint64_t first_short_from(const uint32_t *numbers, uint64_t count, uint32_t least)
{
    uint64_t low = 0;
    while (low < count) {
        const uint64_t middle = low + (count - low) / 2;
        if (numbers[middle] < least)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

/* The range that holds the address: its place + 1; 0: none does. `ranges`: begin and end of each, sorted, without overlap. */
static inline uint64_t range_at(const uint64_t *ranges, uint64_t count, uint64_t address)
{
    const uint64_t low = rows_up_to(ranges, count, 2 * sizeof *ranges, address);
    return low && address < ranges[2 * low - 1] ? low : 0;
}

/* ---- the page table of a process ---- */

/* linux/fs.h since Linux 6.7; older headers lack it. */
struct scan_region {
    uint64_t start, end, categories;
};
struct scan_arg {
    uint64_t size, flags, start, end, walk_end, regions, region_count, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN_IOCTL _IOWR('f', 16, struct scan_arg)
#define SCAN_PROTECTS 1ull                  /* flags: what is found is protected again at once */
#define SCAN_WANTS_FOLLOWED 2ull            /* it fails where a userfaultfd does not tell what is written to */
#define CATEGORY_FOLLOWED (1ull << 0)       /* a userfaultfd tells what is written to */
#define CATEGORY_WRITTEN (1ull << 1)
#define CATEGORY_FILE (1ull << 2)
#define CATEGORY_PRESENT (1ull << 3)
#define CATEGORY_SWAPPED (1ull << 4)
#define CATEGORY_ZERO_PAGE (1ull << 5)
#define CATEGORY_HUGE (1ull << 6)

/* The next regions from arg->start on, at most `count`; -1: it cannot be asked for (before Linux 6.7). */
int scan_pages(int pagemap_fd, struct scan_arg *arg, struct scan_region *regions, uint64_t count);

/* Entries of /proc/PID/pagemap. */
#define ENTRY_PRESENT (1ull << 63)
#define ENTRY_SWAPPED (1ull << 62)
#define ENTRY_FILE (1ull << 61)         /* of a mapped file, or shared */
#define ENTRY_GUARD (1ull << 58)        /* MADV_GUARD_INSTALL: looks swapped, holds nothing */
#define ENTRY_PROTECTED (1ull << 57)    /* by a userfaultfd */
#define ENTRY_EXCLUSIVE (1ull << 56)    /* mapped once: by this process alone */
#define ENTRY_MARKED (1ull << 55)       /* written to since all marks were cleared, or never cleared (soft-dirty) */
#define ENTRY_FRAME ((1ull << 55) - 1)  /* 0 without CAP_SYS_ADMIN */
#define ENTRY_TYPE 31ull                /* of what looks swapped; told with CAP_SYS_ADMIN */

/* It looks swapped, and was never touched: protected it is no page, but a mark, the last type of swap; as such it may also be left where it
   was moved while it was protected (mremap, until Linux 6.13). */
static inline int entry_is_mark(uint64_t entry)
{
    return (entry >> 62) == 1 && (entry & ENTRY_PROTECTED) && (entry & ENTRY_TYPE) == ENTRY_TYPE;
}

/* ---- source.c: where bytes come from ---- */

#define HELD_PAGES 512u

/* Entries of pagemap that one reader has read in a stop. Zeros at first. */
struct page_entries {
    double until;               /* of which stop they are */
    uint64_t first, count;      /* pages */
    uint64_t missed;            /* where a read missed them last */
    uint64_t entries[HELD_PAGES];
};

/* Reads the readable prefix of [address, address + size) into `to`; returns its length or INTERRUPTED. `held`: for reads that are often
   near each other; NULL: they are not. `peeks`: for a search: what is in swap stays there and reads as zeros. */
int64_t source_read_near(const struct source *source, struct page_entries *held, uint64_t address, void *to, uint64_t size, int peeks);

static inline int64_t source_read(const struct source *source, uint64_t address, void *to, uint64_t size)
{
    return source_read_near(source, NULL, address, to, size, 0);
}

/* How many bytes, `size` to `most`, a read at `address` may take to have what may be asked for next: of a process no more than lies in the
   same private anonymous memory. A page of a file that nobody asked for would come into its memory. */
uint64_t source_ahead(const struct source *source, uint64_t address, uint64_t size, uint64_t most);

#define BLANK_WORTH (128u << 10)    /* bytes: less is read as fast as it is asked for */

/* What is known of a range that is read in ascending order: up to where it is to be read. Zeros at first. */
struct blanks {
    uint64_t from, until;
};

/* The first address from `address` on, below `end`, where anything but zeros may stand; or `end`. What is known to be zeros without a
   look at each page is passed: memory that a process has never touched, and what a core left out. */
uint64_t source_skip(const struct source *source, struct blanks *blanks, uint64_t address, uint64_t end);

/* Maps a core, for many small reads all over it: those that ascend are faster by source_read. */
void source_map(const struct source *source);

/* The `size` bytes at `address` of a core that is mapped, where one segment of the file holds them all, or of the copy of a process; else
   NULL. */
const uint8_t *source_at(const struct source *source, uint64_t address, uint64_t size);

/* As pread(2), as often as it takes. */
uint64_t read_at(int fd, uint8_t *to, uint64_t size, uint64_t offset);

/* How many of these pages in swap may be read; they count as read. */
uint64_t source_bring_in(const struct source *source, uint64_t pages);

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
    int interrupted, peeks; /* peeks: see source_read_near */
    int held;               /* a miss reads nothing and counts as interrupted: the bytes at hand are lent */
    uint64_t keep;          /* a miss a little beyond this address reads from it on; 0: none */
    struct page_entries entries;
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

#define JUMP_READ 256u          /* a header: what a page more costs is waiting for its memory */
#define JUMP_BYTES (16u << 10)  /* about what is copied in the time that one more read takes */

/* `address` follows what is `bytes` long and was looked at last: behind a large chunk a miss wants its header, not a block. How far a miss
   is from the block read last does not tell: of chunks of 64 KiB a block of 256 KiB always ends a little before one. */
static inline void window_jump(struct window *window, uint64_t address, uint64_t bytes)
{
    if (bytes > JUMP_BYTES && address - window->begin >= window->length)
        window->next_read = JUMP_READ;
}

/* ---- small reads all over memory, through pages that are kept ---- */

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
    struct page_entries entries;
};

void pages_open(struct pages *pages, const struct source *source, unsigned direct_reads);
void pages_close(struct pages *pages);

/* 1 if all `size` bytes (at most a page) were read; else 0, with pages->interrupted if the reading call was interrupted. */
int pages_read(struct pages *pages, uint64_t address, uint8_t *to, uint64_t size);

/* Neither the first nor the last byte of the page of 4,096 bytes around `address` can be read. */
int pages_has_hole(struct pages *pages, uint64_t address);

/* ---- pagemap.c ---- */

#define WINDOW_PAGES 2048u
#define FIRST_PAGES 64u

/* target.base.PageTable, opened. */
struct page_table {
    int pagemap_fd, flags_fd;       /* flags_fd: /proc/kpageflags, -1 if it may not be read */
    int scans, knows_huge_zero;
    const uint64_t *outside_rss;    /* begin and end of each range, sorted */
    size_t outside_count;
    uint64_t page, huge;
    const struct copy *copy;        /* of the pages as they were; NULL: they are asked for as they are */
};

/* The first page from `number` on, below `last`, that may be in RAM or in swap: a heap's reserve has thousands that never were. */
uint64_t pages_jump(const struct page_table *table, uint64_t number, uint64_t last);

/* A window onto the page table for ranges that ascend. */
struct page_window {
    const struct page_table *table; /* NULL: none */
    uint64_t first, count;          /* pages that kinds[] describes */
    uint64_t next;                  /* how many the next miss loads: grows while misses follow each other */
    uint8_t kinds[WINDOW_PAGES];
};

void page_window_open(struct page_window *window, const struct page_table *table);
void page_window_add(struct page_window *window, uint64_t begin, uint64_t end, struct residency *sum);

/* KIND_... of the page; 0: nothing is known. */
uint8_t page_kind(struct page_window *window, uint64_t address);

/* The first page from `address` on that may be in RAM, or one before which none is; `end` if there is none below. */
uint64_t page_next_resident(struct page_window *window, uint64_t address, uint64_t end);

/* ---- copy.c: what others ask of a copy of a process's memory ---- */

/* COPIED_...: what the pages at the address are, and in *bytes for how many of so many bytes that holds. `with_swapped`: what was in swap
   is wanted. */
int copy_run(const struct copy *copy, uint64_t address, uint64_t *bytes, const uint8_t **held, int with_swapped);

/* The first page from a number on, below `last`, that was touched; or where the copy ends. */
uint64_t copy_next(const struct copy *copy, uint64_t first, uint64_t last);

/* As source_skip's blanks, of memory that the copy has. 0: it has not. */
int copy_touched(const struct copy *copy, uint64_t address, uint64_t end, struct blanks *blanks);

/* ---- histograms ---- */

/* records.histogram_class: exact to 1,024 bytes, above that four steps per power of two, upper bound included. */
static inline unsigned histogram_class(uint64_t size, unsigned shift)
{
    if (size <= HISTOGRAM_EXACT_BYTES)
        return (unsigned) (size >> shift);
    unsigned power = 63u - (unsigned) __builtin_clzll(size - 1);
    unsigned step = (unsigned) ((size - 1) >> (power - 2)) & 3u;
    return (HISTOGRAM_EXACT_BYTES >> shift) + 1 + (power - 10) * 4 + step;
}

/* ---- clock ---- */

double clock_now(void);

/* ---- numbers in texts ---- */

/* 0: it has something else than digits. No strtoull: since 2023 some headers make a call of it that other C libraries lack. */
static inline uint64_t number_in(const char *text)
{
    uint64_t number = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        number = 10 * number + (uint64_t) (*text - '0');
    return *text ? 0 : number;
}

/* ---- memory.c: zeroed memory in huge pages where there are some, since it is read at random; NULL if there is none ---- */

void *big_alloc(size_t bytes);
void big_free(void *memory, size_t bytes);

/* The same for tables of which maybe only a part is used: what is never touched takes nothing. */
void *lazy_alloc(size_t bytes);

/* The same for tables that are filled from the begin on: huge pages. lazy_free() frees it. */
void *dense_alloc(size_t bytes);
void lazy_free(void *memory, size_t bytes);

/* More of dense_alloc(), which may move, without a copy. NULL: no memory, and it stays. */
void *dense_grow(void *memory, size_t before, size_t bytes);

/* `room` becomes larger, and the items to which the pointer at `at` leads may move. 0: no memory, and all stays. */
int grow_room(void *at, uint64_t *room, size_t size);
int grow_dense_room(void *at, uint64_t *room, size_t size);

/* The pointer at `at` leads to items with room for one more. 0: no memory, and they stay. */
static inline int has_room(void *at, uint64_t count, uint64_t *room, size_t size)
{
    return count < *room || grow_room(at, room, size);
}

/* The same of what there may be millions of, in dense_alloc(). */
static inline int has_dense_room(void *at, uint64_t count, uint64_t *room, size_t size)
{
    return count < *room || grow_dense_room(at, room, size);
}

/* Items that become more. */
struct grown {
    void *items;
    uint64_t count, room;
};

/* A place for one more of `size` bytes; NULL: no memory, and all stays. */
void *grown_add(struct grown *grown, size_t size);

/* Copies as many items as there is room for; how many there are. */
uint64_t grown_copy(const struct grown *grown, size_t size, void *to, uint64_t room);

/* Addresses but 0, by hash. */
struct address_set {
    uint64_t *slots, room, count;
};

/* 1: it was not there; 0: it was; NO_MEMORY. */
int address_set_add(struct address_set *set, uint64_t address);

/* ---- threads for the length of one slice of work ---- */

#define MAX_THREADS 8u

typedef void *(*thread_work)(void *item);

/* Calls work(item) for each of `count` items side by side, the first of them here; returns when all are done. Where a thread cannot be
   made its item is not worked on: whoever calls takes up the rest in the next slice. */
void threads_run(thread_work work, void *items, size_t item_bytes, unsigned count);

#endif
