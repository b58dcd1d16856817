/* The stream of blocks: whatever the allocator, the same columns in ascending address order. Allocators write sources; who reads blocks
   knows no allocator. */
#ifndef HEAPX_STREAM_H
#define HEAPX_STREAM_H

#include "../common/heapx.h"
#include "gdbheapx_blocks.h"

/* One block in each place: the address that malloc gave, the bytes that are usable there, a CLASS_, the allocator's own number for its
   status. */
struct block_rows {
    uint64_t *addresses, *usable;
    uint8_t *classes, *kinds;
    uint32_t *arenas;
    uint64_t count, room;
};

#define ROWS_AT_ONCE 512u

/* Rows and their room. */
struct row_buffer {
    struct block_rows rows;
    uint64_t addresses[ROWS_AT_ONCE], usable[ROWS_AT_ONCE];
    uint32_t arenas[ROWS_AT_ONCE];
    uint8_t classes[ROWS_AT_ONCE], kinds[ROWS_AT_ONCE];
};

/* No rows, and room for ROWS_AT_ONCE. */
static inline void rows_open(struct row_buffer *buffer)
{
    buffer->rows = (struct block_rows) {buffer->addresses, buffer->usable, buffer->classes, buffer->kinds, buffer->arenas, 0, ROWS_AT_ONCE};
}

static inline void rows_add(struct block_rows *rows, uint64_t address, uint64_t usable, int class, int kind, uint32_t arena)
{
    rows->addresses[rows->count] = address;
    rows->usable[rows->count] = usable;
    rows->classes[rows->count] = (uint8_t) class;
    rows->kinds[rows->count] = (uint8_t) kind;
    rows->arenas[rows->count] = arena;
    rows->count++;
}

/* What an allocator writes. */
struct block_source {
    unsigned lead;                  /* bytes of a block before its address */
    /* Adds rows for at most about `seconds`; fewer than there is room for where time is up or the reading call was interrupted. 0, or
       NO_MEMORY. */
    int (*next)(struct block_source *self, double seconds, struct block_rows *rows);
    struct block_state (*state)(const struct block_source *self);
    void (*free)(struct block_source *self);
    /* What the source has at hand of memory from `address` on, `*length` bytes of it, NULL if nothing; this itself NULL: it reads no
       blocks. */
    const uint8_t *(*lend)(const struct block_source *self, uint64_t address, uint64_t *length);
    int keeps;                      /* the reader's wish: what lies at hand when a row is added stays so until `next` is called again */
    /* Before the first row is read: at most `most` sources that have its rows one after the other, and where each begins. They are what
       they seem if each ends where the next begins. How many; 0 or 1: it is not split; NO_MEMORY. NULL: never. */
    int (*split)(const struct block_source *self, unsigned most, struct block_source **out, uint64_t *begins);
};

#endif
