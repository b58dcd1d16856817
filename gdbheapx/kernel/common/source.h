/* Where bytes come from. */
#ifndef HEAPX_SOURCE_H
#define HEAPX_SOURCE_H

#include "page_table.h"

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

double clock_now(void);

#endif
