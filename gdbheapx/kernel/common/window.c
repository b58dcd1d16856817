/* Reads that are kept while one question is answered: one block of memory in a reused buffer, or pages all over it.

   The block must stay within the L2 cache: copying 128 to 256 KiB at a time and counting there is faster than a loop over the
   mapped core, which waits for DRAM at every chunk. Larger blocks cost twice as much. */
#include "window.h"

#include <stdlib.h>

#define PAGE_MASK 4095u
#define JUMP_MASK 63u
#define FIRST_READ 8192u
#define ROW_PAGES 2u        /* pages missed in a row before more are read than are asked for */
#define AHEAD_PAGES 8u

void window_open(struct window *window, const struct source *source, uint8_t *bytes, uint64_t capacity, uint64_t low, uint64_t high)
{
    *window = (struct window) {.source = source, .bytes = bytes, .capacity = capacity, .low = low, .high = high, .next_read = capacity};
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

/* ---- pages ---- */

void pages_open(struct pages *pages, const struct source *source, unsigned direct_reads)
{
    *pages = (struct pages) {.source = source, .direct_reads = direct_reads};
}

void pages_close(struct pages *pages)
{
    free(pages->bytes);
    pages->bytes = NULL;
}

static int read_direct(struct pages *pages, uint64_t address, uint8_t *to, uint64_t size)
{
    int64_t got = source_read_near(pages->source, &pages->entries, address, to, size, 0);
    pages->reads++;
    if (got < 0)
        pages->interrupted = 1;
    return got == (int64_t) size;
}

/* Reads the page into its slot, and where pages are missed one after the other, upwards or downwards, some more in the same read. 0:
   interrupted. */
static int load_pages(struct pages *pages, uint64_t page)
{
    const uint64_t slot = page / CACHE_PAGE % CACHE_PAGES;
    const int up = page == pages->last_miss + CACHE_PAGE, down = page + CACHE_PAGE == pages->last_miss;
    pages->in_row = up || down ? pages->in_row + 1 : 0;
    uint64_t before = 0, behind = 0;
    if (pages->in_row >= ROW_PAGES && up)
        behind = AHEAD_PAGES - 1 < CACHE_PAGES - 1 - slot ? AHEAD_PAGES - 1 : CACHE_PAGES - 1 - slot;
    else if (pages->in_row >= ROW_PAGES && down)
        before = AHEAD_PAGES - 1 < slot ? AHEAD_PAGES - 1 : slot;
    if (before > page / CACHE_PAGE)
        before = page / CACHE_PAGE;
    behind = source_ahead(pages->source, page, CACHE_PAGE, (behind + 1) * CACHE_PAGE) / CACHE_PAGE - 1;
    const uint64_t all = (before + 1) * CACHE_PAGE;
    if (before && source_ahead(pages->source, page + CACHE_PAGE - all, CACHE_PAGE, all) != all)
        before = 0;
    uint64_t first = page - before * CACHE_PAGE, count = before + 1 + behind;
    uint8_t *to = pages->bytes + (size_t) slot * CACHE_PAGE;
    int64_t got = source_read_near(pages->source, &pages->entries, first, to - before * CACHE_PAGE, count * CACHE_PAGE, 0);
    if (got >= 0 && (uint64_t) got <= before * CACHE_PAGE) {    /* it ends before the page that is wanted */
        pages->in_row = count = before = behind = 0;
        first = page;
        count = 1;
        got = source_read_near(pages->source, &pages->entries, page, to, CACHE_PAGE, 0);
    }
    pages->reads++;
    pages->last_miss = up || !down ? page + behind * CACHE_PAGE : first;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t here = slot - before + i, begin = i * CACHE_PAGE;
        const uint64_t length = got < 0 || (uint64_t) got <= begin ? 0 : (uint64_t) got - begin;
        pages->lengths[here] = (uint32_t) (length < CACHE_PAGE ? length : CACHE_PAGE);
        pages->tags[here] = got < 0 || (!length && first + begin != page) ? 0 : (first + begin) | 1;
    }
    pages->interrupted |= got < 0;
    return got >= 0;
}

/* Loads the page if it is not there; its readable prefix's bytes, or NULL if nothing of it can be kept. */
static const uint8_t *page_bytes(struct pages *pages, uint64_t page, uint32_t *length)
{
    if (!pages->bytes && !(pages->bytes = malloc(CACHE_PAGES * CACHE_PAGE)))
        return NULL;
    const unsigned slot = (unsigned) (page / CACHE_PAGE) % CACHE_PAGES;
    if (pages->tags[slot] != (page | 1) && !load_pages(pages, page))
        return NULL;
    *length = pages->lengths[slot];
    return pages->bytes + (size_t) slot * CACHE_PAGE;
}

int pages_read(struct pages *pages, uint64_t address, uint8_t *to, uint64_t size)
{
    uint64_t page = address & ~(uint64_t) (CACHE_PAGE - 1), offset = address - page;
    uint32_t length = 0;
    if (pages->direct_reads || offset + size > CACHE_PAGE) {
        pages->direct_reads -= pages->direct_reads != 0;
        return read_direct(pages, address, to, size);
    }
    const uint8_t *bytes = page_bytes(pages, page, &length);
    if (pages->interrupted)
        return 0;
    if (!bytes || length < offset + size)   /* a page may begin in a hole */
        return read_direct(pages, address, to, size);
    memcpy(to, bytes + offset, (size_t) size);
    return 1;
}

int pages_has_hole(struct pages *pages, uint64_t address)
{
    uint64_t page = address & ~(uint64_t) (CACHE_PAGE - 1);
    uint32_t length = 0;
    uint8_t last;
    const uint8_t *bytes = page_bytes(pages, page, &length);
    return bytes && !length && !read_direct(pages, page + CACHE_PAGE - 1, &last, 1) && !pages->interrupted;
}
