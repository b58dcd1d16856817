/* Small reads all over memory, through pages that are kept while one question is answered: a live process may run before the next. */
#include "heapx.h"

#include <stdlib.h>

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
    int64_t got = source_read(pages->source, address, to, size);
    pages->reads++;
    if (got < 0)
        pages->interrupted = 1;
    return got == (int64_t) size;
}

/* Loads the page if it is not there; its readable prefix's bytes, or NULL if nothing of it can be kept. */
static const uint8_t *page_bytes(struct pages *pages, uint64_t page, uint32_t *length)
{
    if (!pages->bytes && !(pages->bytes = malloc(CACHE_PAGES * CACHE_PAGE)))
        return NULL;
    unsigned slot = (unsigned) (page / CACHE_PAGE) % CACHE_PAGES;
    uint8_t *bytes = pages->bytes + (size_t) slot * CACHE_PAGE;
    if (pages->tags[slot] != (page | 1)) {
        int64_t got = source_read(pages->source, page, bytes, CACHE_PAGE);
        pages->reads++;
        pages->tags[slot] = got >= 0 ? page | 1 : 0;
        pages->lengths[slot] = got >= 0 ? (uint32_t) got : 0;
        if (got < 0) {
            pages->interrupted = 1;
            return NULL;
        }
    }
    *length = pages->lengths[slot];
    return bytes;
}

int pages_has(const struct pages *pages, uint64_t address, uint64_t size)
{
    uint64_t page = address & ~(uint64_t) (CACHE_PAGE - 1);
    unsigned slot = (unsigned) (page / CACHE_PAGE) % CACHE_PAGES;
    return !pages->direct_reads && pages->tags[slot] == (page | 1) && pages->lengths[slot] >= address - page + size;
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
