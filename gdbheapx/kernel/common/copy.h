/* What others ask of a copy of a process's memory. */
#ifndef HEAPX_COPY_H
#define HEAPX_COPY_H

#include "heapx.h"

/* COPIED_...: what the pages at the address are, and in *bytes for how many of so many bytes that holds. `with_swapped`: what was in swap
   is wanted. */
int copy_run(const struct copy *copy, uint64_t address, uint64_t *bytes, const uint8_t **held, int with_swapped);

/* KIND_... of pages from a number on: of how many there are any. */
uint64_t copy_kinds(const struct copy *copy, uint64_t first, uint64_t count, uint8_t *kinds);

/* The first page from a number on, below `last`, that was touched; or where the copy ends. */
uint64_t copy_next(const struct copy *copy, uint64_t first, uint64_t last);

/* As source_skip's blanks, of memory that the copy has. 0: it has not. */
int copy_touched(const struct copy *copy, uint64_t address, uint64_t end, struct blanks *blanks);

#endif
