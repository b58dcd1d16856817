/* One block of target memory in a reused buffer.

   The block must stay within the L2 cache: copying 128 to 256 KiB at a time and counting there is faster than a loop over the
   mapped core, which waits for DRAM at every chunk. Larger blocks cost twice as much. */
#include "heapx.h"

#define PAGE_MASK 4095u
#define JUMP_MASK 63u
#define FIRST_READ 8192u

void window_open(struct window *window, const struct source *source, uint8_t *bytes, uint64_t capacity, uint64_t low, uint64_t high)
{
    memset(window, 0, sizeof *window);
    window->source = source;
    window->bytes = bytes;
    window->capacity = capacity;
    window->low = low;
    window->high = high;
    window->next_read = capacity;
}

static int fill(struct window *window, uint64_t from, uint64_t size)
{
    if (size > window->high - from)
        size = window->high - from;
    window->begin = from;
    window->length = 0;
    window->reads++;
    int64_t got = source_read_near(window->source, &window->entries, from, window->bytes, size, window->peeks);
    if (got < 0) {
        window->interrupted = 1;
        return 0;
    }
    window->length = (uint64_t) got;
    return 1;
}

const uint8_t *window_miss(struct window *window, uint64_t address, uint64_t size)
{
    if (address < window->low || address > window->high || window->high - address < size || size > FIRST_READ / 2)
        return NULL;
    if (window->held) {
        window->interrupted = 1;
        return NULL;
    }
    const int keeps = window->keep && address - window->keep < window->capacity / 2;
    /* A jump beyond the block read last wants a header, not a block. */
    uint64_t known = window->begin + window->length;
    if (window->reads && address > known && address - known > JUMP_BYTES)
        window->next_read = JUMP_READ;
    const uint64_t mask = window->next_read == JUMP_READ ? JUMP_MASK : PAGE_MASK;
    uint64_t from = (keeps ? window->keep : address) & ~mask, want = window->next_read;
    if (from < window->low)
        from = window->low;
    if (want < address - from + size)
        want = address - from + FIRST_READ;
    if (!fill(window, from, want))
        return NULL;
    uint64_t offset = address - from;
    if (from < address && (window->length < offset + size) && !fill(window, address, window->next_read))
        return NULL;
    window->next_read = window->next_read * 4 > window->capacity ? window->capacity : window->next_read * 4;
    offset = address - window->begin;
    return window->length >= offset + size ? window->bytes + offset : NULL;
}
