/* The blocks of the toy's reserve as a stream: each has a size before it, whose lowest bit says that it was freed. */
#include "blocks/stream.h"
#include "gdbheapx_tiny.h"

#include <stdlib.h>

#define BLOCK_BYTES (64u << 10)

struct tiny {
    struct block_source source;     /* first: a tiny is a block_source */
    struct tiny_room held;
    struct block_wanted wanted;
    struct window window;
    uint64_t at;
    uint8_t bytes[BLOCK_BYTES];
};

static int tiny_next(struct block_source *self, double seconds, struct block_rows *rows)
{
    struct tiny *tiny = (struct tiny *) self;
    const double deadline = clock_now() + seconds;
    while (tiny->at < tiny->held.end && rows->count < rows->room && clock_now() < deadline) {
        const uint8_t *header = window_at(&tiny->window, tiny->at, 8);
        const uint64_t field = header ? load_word(header, 8, 0) : 0, size = field & ~(uint64_t) FREED, address = tiny->at + HEADER_BYTES;
        const unsigned kind = field & FREED;
        if (!size)      /* interrupted, or nothing that the toy has written */
            tiny->at = header ? tiny->held.end : tiny->at;
        if (!size || size > tiny->held.end - address)
            return 0;
        if ((tiny->wanted.kinds >> kind & 1) && size + HEADER_BYTES >= tiny->wanted.min_size && size + HEADER_BYTES <= tiny->wanted.max_size
            && address >= tiny->wanted.start)
            rows_add(rows, address, size, kind ? CLASS_FREE : CLASS_USED, (int) kind, 0);
        tiny->at = address + size;
    }
    return 0;
}

static struct block_state tiny_state(const struct block_source *self)
{
    const struct tiny *tiny = (const struct tiny *) self;
    return (struct block_state) {tiny->at >= tiny->held.end, STOP_END, tiny->at};
}

static void tiny_free(struct block_source *self)
{
    free(self);
}

struct block_source *heapx_tiny_blocks(const struct source *memory, const struct tiny_room *room, const struct block_wanted *wanted)
{
    struct tiny *tiny = calloc(1, sizeof *tiny);
    if (!tiny)
        return NULL;
    tiny->source = (struct block_source) {HEADER_BYTES, tiny_next, tiny_state, tiny_free, NULL, 0};
    tiny->held = *room;
    tiny->wanted = *wanted;
    tiny->at = room->start;
    window_open(&tiny->window, memory, tiny->bytes, BLOCK_BYTES, room->start, room->end);
    return &tiny->source;
}
