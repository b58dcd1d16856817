/* Extent structures. They lie in jemalloc's base blocks, mostly in the order in which they were made, while the walk meets them in the
   order of the addresses that they describe: pages that were read stay, and a page that follows one of them brings more with it. */
#include "extents.h"

#include <stdlib.h>

static int load(struct extent_cache *cache, uint64_t page, unsigned slot)
{
    unsigned before = (slot + EXTENT_PAGES - 1) % EXTENT_PAGES, ahead = 1;
    if (cache->tags[before] == ((page - CACHE_PAGE) | 1))
        ahead = EXTENT_PAGES - slot < EXTENT_PAGES_AHEAD ? EXTENT_PAGES - slot : EXTENT_PAGES_AHEAD;
    ahead = (unsigned) (source_ahead(cache->source, page, CACHE_PAGE, (uint64_t) ahead * CACHE_PAGE) / CACHE_PAGE);
    int64_t got = source_read(cache->source, page, cache->bytes + (size_t) slot * CACHE_PAGE, (uint64_t) ahead * CACHE_PAGE);
    cache->reads++;
    for (unsigned i = 0; i < ahead; i++)
        cache->tags[slot + i] = 0;
    if (got < 0) {
        cache->interrupted = 1;
        return 0;
    }
    uint64_t left = (uint64_t) got;
    for (unsigned i = 0; i < ahead && (left || !i); i++) {
        cache->tags[slot + i] = (page + (uint64_t) i * CACHE_PAGE) | 1;
        cache->lengths[slot + i] = left < CACHE_PAGE ? (uint32_t) left : CACHE_PAGE;
        left -= cache->lengths[slot + i];
    }
    return 1;
}

static const uint8_t *read_direct(struct extent_cache *cache, uint64_t address, uint64_t size)
{
    int64_t got = source_read(cache->source, address, cache->whole, size);
    cache->reads++;
    if (got < 0)
        cache->interrupted = 1;
    return got == (int64_t) size ? cache->whole : NULL;
}

const uint8_t *extent_cache_at(struct extent_cache *cache, uint64_t address, uint64_t size)
{
    uint64_t done = 0;
    while (done < size) {
        uint64_t page = (address + done) & ~(uint64_t) (CACHE_PAGE - 1), offset = address + done - page;
        uint64_t want = CACHE_PAGE - offset < size - done ? CACHE_PAGE - offset : size - done;
        unsigned slot = (unsigned) (page / CACHE_PAGE) % EXTENT_PAGES;
        if (cache->tags[slot] != (page | 1) && !load(cache, page, slot))
            return NULL;
        if (cache->lengths[slot] < offset + want)   /* a page may begin in a hole */
            return read_direct(cache, address, size);
        const uint8_t *from = cache->bytes + (size_t) slot * CACHE_PAGE + offset;
        if (want == size)
            return from;
        memcpy(cache->whole + done, from, (size_t) want);
        done += want;
    }
    return cache->whole;
}
