/* One block of target memory in a buffer that is used again, and small reads all over memory through pages that are kept. */
#ifndef HEAPX_WINDOW_H
#define HEAPX_WINDOW_H

#include "source.h"

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

#endif
