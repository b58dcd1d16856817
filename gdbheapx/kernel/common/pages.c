/* Small reads all over memory, through pages that are kept while one question is answered: a live process may run before the next. */
#include "heapx.h"

#include <stdlib.h>

#define ROW_PAGES 2u        /* pages missed in a row before more are read than are asked for */
#define AHEAD_PAGES 8u

void pages_open(struct pages *pages, const struct source *source, unsigned direct_reads)
{
    memset(pages, 0, sizeof *pages);
    pages->source = source;
    pages->direct_reads = direct_reads;
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
