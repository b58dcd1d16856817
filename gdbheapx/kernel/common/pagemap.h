/* What pages of a process are, range by range. */
#ifndef HEAPX_PAGEMAP_H
#define HEAPX_PAGEMAP_H

#include "page_table.h"

/* The next regions from arg->start on, at most `count`; -1: it cannot be asked for (before Linux 6.7). */
int scan_pages(int pagemap_fd, struct scan_arg *arg, struct scan_region *regions, uint64_t count);

#define WINDOW_PAGES 2048u
#define FIRST_PAGES 64u

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

#endif
