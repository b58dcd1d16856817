/* Where a region begins whose start is stored nowhere: after foreign sbrk bytes, in a mapping, or after damage. */
#include "chunk.h"

#include <stdlib.h>

#define STEPS_BETWEEN_CLOCKS 256u

struct chain {
    struct chunk_geometry geometry;
    struct pages pages;
    const uint64_t *anchors;
    size_t anchor_count;
    uint64_t high, last;        /* candidates lie below `high`; `last` is the highest anchor */
    uint64_t first;             /* lowest candidate: bit 0 of `broken` */
    uint64_t candidate, at;     /* the chain that starts at `candidate` has come to `at` */
    uint64_t size_before;       /* size of the chunk before `at`; 0 at the candidate itself */
    uint64_t step;              /* from one candidate to the next */
    int strict, fences, done, found;
    uint8_t *broken;            /* one bit per alignment unit: chains through here lead nowhere */
    size_t broken_bytes;
};

void heapx_chain_free(struct chain *chain)
{
    if (!chain)
        return;
    lazy_free(chain->broken, chain->broken_bytes);
    pages_close(&chain->pages);
    free(chain);
}

/* The anchors (sorted, at least one) stay the caller's. */
struct chain *heapx_chain_new(const struct source *source, const struct geometry *geometry, uint64_t low, uint64_t high,
                              const uint64_t *anchors, uint64_t anchor_count, int strict, int fences, uint64_t step)
{
    struct chain *chain = calloc(1, sizeof *chain);
    if (!chain)
        return NULL;
    geometry_set(&chain->geometry, geometry);
    pages_open(&chain->pages, source, 0);
    chain->anchors = anchors;
    chain->anchor_count = (size_t) anchor_count;
    chain->high = high;
    chain->last = anchors[anchor_count - 1];
    chain->strict = strict;
    chain->fences = fences;
    chain->step = step;
    uint64_t mask = chain->geometry.alignment - 1;
    chain->first = low + ((0 - (low + 2 * chain->geometry.word)) & mask);
    chain->candidate = chain->at = chain->first;
    if (chain->first < low || chain->first > chain->last || chain->first >= high) {
        chain->done = 1;
        return chain;
    }
    chain->broken_bytes = (size_t) ((chain->last - chain->first) >> chain->geometry.shift) / 8 + 1;
    chain->broken = lazy_alloc(chain->broken_bytes);
    if (chain->broken)
        return chain;
    heapx_chain_free(chain);
    return NULL;
}

static int is_anchor(const struct chain *chain, uint64_t address)
{
    size_t place = specials_from(chain->anchors, chain->anchor_count, address);
    return place < chain->anchor_count && chain->anchors[place] == address;
}

/* Two fenceposts end a piece of the main arena: size fields of 2 words, PREV_INUSE of the first as the chunk before it (sysmalloc). */
static int is_fence_pair(struct chain *chain, uint64_t at, uint64_t field)
{
    const unsigned word = chain->geometry.word;
    uint8_t header[16];
    if (!chain->size_before || (field & ~(uint64_t) FLAG_PREV_INUSE) != 2 * word)
        return 0;
    if (!pages_read(&chain->pages, at + 2 * word, header, 2 * word))
        return 0;
    return load_word(header + word, word, chain->geometry.swap) == (2 * word | FLAG_PREV_INUSE);
}

enum { LINK_ON, LINK_BROKEN, LINK_ANCHOR, LINK_PAUSED };

/* What the chain does at chain->at: goes on (and moves), breaks, or is on an anchor. */
static int follow(struct chain *chain)
{
    const unsigned word = chain->geometry.word, swap = chain->geometry.swap;
    const uint64_t at = chain->at;
    uint64_t slot = (at - chain->first) >> chain->geometry.shift, field, size;
    uint8_t header[16];
    if (!chain->strict && is_anchor(chain, at))
        return LINK_ANCHOR;
    if (!pages_read(&chain->pages, at, header, 2 * word))
        return chain->pages.interrupted ? LINK_PAUSED : LINK_BROKEN;
    field = load_word(header + word, word, swap);
    /* A damaged field here is no fault of the chunks before: the place is not marked. */
    if (chain->strict && !(field & FLAG_PREV_INUSE) && (!chain->size_before || load_word(header, word, swap) != chain->size_before))
        return LINK_BROKEN;
    if (chain->strict && is_anchor(chain, at))
        return LINK_ANCHOR;
    if (chain->broken[slot / 8] & (1u << slot % 8))
        return LINK_BROKEN;
    if (chain->fences && is_fence_pair(chain, at, field))
        return LINK_ANCHOR;
    if (chain->pages.interrupted)
        return LINK_PAUSED;
    chain->broken[slot / 8] |= (uint8_t) (1u << slot % 8);
    size = plausible_size(&chain->geometry, field, chain->last - at);
    if (!size)
        return LINK_BROKEN;
    chain->size_before = size;
    chain->at = at + size;
    return LINK_ON;
}

static void next_candidate(struct chain *chain)
{
    uint64_t page = chain->candidate & ~(uint64_t) (CACHE_PAGE - 1), unit = chain->step;
    uint64_t next = chain->candidate + unit;
    if (next - page >= CACHE_PAGE && pages_has_hole(&chain->pages, next)) {
        /* Nothing here: on to the first candidate of the next page. */
        uint64_t beyond = (next & ~(uint64_t) (CACHE_PAGE - 1)) + CACHE_PAGE;
        next += (beyond - next + unit - 1) / unit * unit;
    }
    chain->done = next < chain->candidate || next >= chain->high || next > chain->last;
    chain->candidate = chain->at = next;
    chain->size_before = 0;
}

/* Works for about `seconds`: 1 if there is more to do, 0 if done, INTERRUPTED. */
int64_t heapx_chain_slice(struct chain *chain, double seconds)
{
    double deadline = clock_now() + seconds;
    chain->pages.interrupted = 0;
    for (unsigned steps = 1; !chain->done; steps++) {
        if (steps % STEPS_BETWEEN_CLOCKS == 0 && clock_now() > deadline)
            return 1;
        int link = follow(chain);
        if (link == LINK_PAUSED)
            return INTERRUPTED;
        if (link == LINK_ANCHOR) {
            chain->found = chain->done = 1;
        } else if (link == LINK_BROKEN) {
            next_candidate(chain);
            if (chain->pages.interrupted)
                return INTERRUPTED;
        }
    }
    return 0;
}

/* Whether a chain was found, and where it starts. */
int heapx_chain_found(const struct chain *chain, uint64_t *start)
{
    *start = chain->candidate;
    return chain->found;
}
