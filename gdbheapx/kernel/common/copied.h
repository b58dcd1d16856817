/* What a copy of a process's memory holds: copy.c takes it, copied.c reads it. */
#ifndef HEAPX_COPIED_H
#define HEAPX_COPIED_H

#include "page_table.h"

struct room {
    uint64_t address, size;
    uint8_t *bytes;     /* as far from a multiple of 2 MiB as the address */
    uint8_t *kinds;     /* of each page */
    uint64_t *frames;   /* see keep_unmarked() */
    uint8_t *mapped;
};

struct copied_range {
    uint64_t begin, end, takes;
    const struct room *room;
};

struct copy {
    struct page_table table;
    int memory_fd;
    size_t room_count, range_count;
    int is_followed;                /* what was copied is what is not written to since */
    int is_marked;                  /* the same, told by the kernel's marks of what was written to */
    uint64_t unread_from;           /* there was no time for what lies here and behind */
    struct room *rooms;             /* sorted */
    struct copied_range *ranges;    /* sorted */
    struct worker *workers;         /* MAX_THREADS of them: what was used once is present in the stop */
};

static inline uint8_t *kinds_at(const struct copy *copy, const struct copied_range *range, uint64_t address)
{
    return range->room->kinds + (address - range->room->address) / copy->table.page;
}

/* ---- what others ask of it ---- */

/* COPIED_...: what the pages at the address are, and in *bytes for how many of so many bytes that holds. `with_swapped`: what was in swap
   is wanted. */
int copy_run(const struct copy *copy, uint64_t address, uint64_t *bytes, const uint8_t **held, int with_swapped);

/* The first page from a number on, below `last`, that was touched; or where the copy ends. */
uint64_t copy_next(const struct copy *copy, uint64_t first, uint64_t last);

/* As source_skip's blanks, of memory that the copy has. 0: it has not. */
int copy_touched(const struct copy *copy, uint64_t address, uint64_t end, struct blanks *blanks);

#endif
