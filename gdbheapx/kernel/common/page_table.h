/* The page table of a process, as the kernel writes it. */
#ifndef HEAPX_PAGE_TABLE_H
#define HEAPX_PAGE_TABLE_H

#include "words.h"

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

/* target.base.PageTable, opened. */
struct page_table {
    int pagemap_fd, flags_fd;       /* flags_fd: /proc/kpageflags, -1 if it may not be read */
    int scans, knows_huge_zero;
    const uint64_t *outside_rss;    /* begin and end of each range, sorted */
    size_t outside_count;
    uint64_t page, huge;
    const struct copy *copy;        /* of the pages as they were; NULL: they are asked for as they are */
};

/* What is known of a range that is read in ascending order: up to where it is to be read. Zeros at first. */
struct blanks {
    uint64_t from, until;
};

#endif
