/* Chunks with a mapping of their own. They are in no list: only their number and bytes are known (mp_.n_mmaps, mp_.mmapped_mem).

   Such blocks often lie side by side, so the first pass hops from the start of each range from block to block. Only if that does not find
   all of them are pages looked at: first the two places where nearly all headers are, the page's first (a plain
   block) and its last bytes (memalign with more than a page), then the few other places that alignment allows
   (munmap_chunk: mem modulo the page size is a power of two, or 0). */
#include "heapx.h"

#include <stdlib.h>

#define PAGES_AT_ONCE 64u
#define MAX_PLACES 96u
#define SHAPE_BYTES 40u     /* a header at a page's end and the one at the next page's start */

struct hit {
    uint64_t chunk, size, block, total;
};

enum pass { PASS_HOP, PASS_EDGES, PASS_ALL, PASS_DONE };

struct mmapped {
    struct geometry geometry;
    const struct source *source;
    const uint64_t *ranges;
    size_t range_count, range;
    uint64_t place;             /* the next page to look at in ranges[range]; 0: not begun */
    uint64_t trailer;           /* bytes of a mapping behind its chunk: 2 words from glibc 2.43 on */
    uint64_t plain_offset;      /* of a plain block's header: where its memory is aligned */
    uint64_t wanted_chunks, wanted_bytes, bytes;
    struct hit *hits;           /* sorted by block */
    size_t count, room;
    int no_memory;
    enum pass pass;
};

EXPORT void heapx_mmapped_free(struct mmapped *scan)
{
    if (scan)
        free(scan->hits);
    free(scan);
}

/* `wanted`: has_trailer, chunks, bytes. The ranges (begin, end) stay the caller's. */
EXPORT struct mmapped *heapx_mmapped_new(const struct source *source, const uint64_t *geometry, const uint64_t *ranges, uint64_t range_count,
                                         const uint64_t *wanted)
{
    struct mmapped *scan = calloc(1, sizeof *scan);
    if (!scan)
        return NULL;
    geometry_set(&scan->geometry, geometry);
    scan->source = source;
    scan->ranges = ranges;
    scan->range_count = (size_t) range_count;
    scan->trailer = wanted[0] ? 2 * scan->geometry.word : 0;
    scan->plain_offset = scan->geometry.alignment - 2 * scan->geometry.word;
    scan->wanted_chunks = wanted[1];
    scan->wanted_bytes = wanted[2];
    scan->pass = wanted[1] ? PASS_HOP : PASS_DONE;
    return scan;
}

/* Index of the first hit whose block begins beyond `address`. */
static size_t hits_beyond(const struct mmapped *scan, uint64_t address)
{
    size_t low = 0, high = scan->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (scan->hits[middle].block <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* End of the hit that covers `address`, or 0. */
static uint64_t covered_until(const struct mmapped *scan, uint64_t address)
{
    size_t place = hits_beyond(scan, address);
    if (!place)
        return 0;
    const struct hit *hit = &scan->hits[place - 1];
    return address - hit->block < hit->total ? hit->block + hit->total : 0;
}

/* All are found. In 2.43 mp_.mmapped_mem grows by the trailer each time a block is moved or resized (mremap_chunk subtracts
   chunksize, which has no trailer, and adds the whole mapping), so there it may be ahead. base.adds_up says the same. */
static int is_complete(const struct mmapped *scan)
{
    if (scan->count != scan->wanted_chunks || scan->bytes > scan->wanted_bytes)
        return 0;
    uint64_t ahead = scan->wanted_bytes - scan->bytes;
    return !ahead || (scan->trailer && !(ahead % scan->trailer));
}

static int add(struct mmapped *scan, const struct hit *hit)
{
    size_t place = hits_beyond(scan, hit->block);
    if (place && hit->block - scan->hits[place - 1].block < scan->hits[place - 1].total)
        return 0;
    if (place < scan->count && scan->hits[place].block - hit->block < hit->total)
        return 0;
    if (scan->count == scan->room) {
        size_t room = scan->room ? 2 * scan->room : 64;
        struct hit *hits = realloc(scan->hits, room * sizeof *hits);
        if (!hits) {
            scan->no_memory = 1;
            scan->pass = PASS_DONE;
            return 0;
        }
        scan->hits = hits;
        scan->room = room;
    }
    memmove(scan->hits + place + 1, scan->hits + place, (scan->count - place) * sizeof *scan->hits);
    scan->hits[place] = *hit;
    scan->count++;
    scan->bytes += hit->total;
    if (is_complete(scan))
        scan->pass = PASS_DONE;
    return 1;
}

/* Whether the header of a chunk at `address` is that of an mmapped chunk within [begin, end). */
static int judge(const struct mmapped *scan, uint64_t address, const uint8_t *header, uint64_t begin, uint64_t end, struct hit *hit)
{
    const struct geometry *geometry = &scan->geometry;
    uint64_t offset = load_word(header, geometry->word, geometry->swap), mask = geometry->page - 1;
    uint64_t field = load_word(header + geometry->word, geometry->word, geometry->swap);
    if ((field & FLAGS) != FLAG_MMAPPED)
        return 0;
    if (scan->trailer)
        offset &= ~(uint64_t) 1;    /* 2.43: the block is of huge pages */
    hit->chunk = address;
    hit->size = field & ~(uint64_t) FLAGS;
    if (address < begin || offset > address - begin || ((address - offset) & mask) || (!(address & mask) && offset))
        return 0;
    hit->block = address - offset;
    if (hit->size < geometry->min_chunk || hit->size > end - address || end - address - hit->size < scan->trailer)
        return 0;
    hit->total = offset + hit->size + scan->trailer;
    return !(hit->total & mask);
}

/* Where the header of a block that begins at `block` can be: by ascending alignment of what memalign gave. */
static unsigned places_of(const struct mmapped *scan, uint64_t block, uint64_t end, uint64_t *places)
{
    const uint64_t head = 2 * scan->geometry.word;
    unsigned count = 0;
    for (uint64_t alignment = scan->geometry.alignment; alignment && alignment < end - block && count + 2 < MAX_PLACES; alignment <<= 1) {
        uint64_t place = ((block + head + alignment - 1) & ~(alignment - 1)) - head;
        if (place < block || place >= end)
            break;
        if (!count || places[count - 1] != place)
            places[count++] = place;
        /* _int_memalign: a gap too small for a chunk is made larger by one alignment. */
        uint64_t lead = place - (block + scan->plain_offset);
        if (lead && lead < scan->geometry.min_chunk && place + alignment < end)
            places[count++] = place + alignment;
    }
    return count;
}

/* memalign moves the header of a mapped block up and leaves the old one, a plain block's, as it was (_int_memalign): if the block has a
   header further in that tells the same block, that is its chunk. 0, or READ_INTERRUPTED. */
static int move_up(const struct mmapped *scan, struct hit *hit)
{
    uint64_t places[MAX_PLACES];
    uint8_t headers[MAX_PLACES * 16], got[MAX_PLACES];
    const unsigned size = 2 * scan->geometry.word;
    const uint64_t end = hit->block + hit->total;
    struct hit inner;
    if (hit->chunk != hit->block + scan->plain_offset)
        return 0;
    unsigned count = places_of(scan, hit->block, end, places);
    if (count > 1 && source_gather(scan->source, places + 1, count - 1, size, headers, got))
        return READ_INTERRUPTED;
    for (unsigned i = 1; i < count; i++)
        if (got[i - 1] && judge(scan, places[i], headers + (i - 1) * size, hit->block, end, &inner) && inner.block == hit->block
            && inner.total == hit->total) {
            *hit = inner;
            return 0;
        }
    return 0;
}

/* A block that begins exactly at `block`: its length, 0 if there is none, READ_INTERRUPTED. */
static int64_t try_block(struct mmapped *scan, uint64_t block, uint64_t begin, uint64_t end)
{
    uint64_t places[MAX_PLACES];
    uint8_t headers[MAX_PLACES * 16], got[MAX_PLACES];
    const unsigned size = 2 * scan->geometry.word;
    unsigned count = places_of(scan, block, end, places);
    struct hit hit;
    for (unsigned done = 0; done < count;) {
        unsigned now = done ? count - done : 1;     /* nearly always the first is it */
        if (source_gather(scan->source, places + done, now, size, headers, got))
            return READ_INTERRUPTED;
        for (unsigned i = 0; i < now; i++)
            if (got[i] && judge(scan, places[done + i], headers + i * size, begin, end, &hit) && hit.block == block) {
                if (move_up(scan, &hit))
                    return READ_INTERRUPTED;
                if (add(scan, &hit))
                    return (int64_t) hit.total;
            }
        done += now;
    }
    return 0;
}

/* From `block` on along adjacent blocks; READ_INTERRUPTED or 0. */
static int hop(struct mmapped *scan, uint64_t block, uint64_t begin, uint64_t end)
{
    while (block < end && scan->pass != PASS_DONE) {
        uint64_t known = covered_until(scan, block);
        int64_t length = known ? (int64_t) (known - block) : try_block(scan, block, begin, end);
        if (length <= 0)
            return (int) length;
        block += (uint64_t) length;
    }
    return 0;
}

/* One header that a scan of the pages came upon. */
static int meet(struct mmapped *scan, uint64_t address, const uint8_t *header, uint64_t begin, uint64_t end)
{
    struct hit hit;
    if (scan->pass == PASS_DONE || !judge(scan, address, header, begin, end, &hit))
        return 0;
    if (move_up(scan, &hit))
        return READ_INTERRUPTED;
    if (!add(scan, &hit))
        return 0;
    return hop(scan, hit.block + hit.total, begin, end);
}

/* The places of PASS_ALL within a page: powers of two below the page size, less the header. */
static unsigned inner_places(const struct mmapped *scan, uint64_t *offsets)
{
    unsigned count = 0;
    for (uint64_t power = scan->geometry.alignment * 2; power < scan->geometry.page; power <<= 1)
        offsets[count++] = power - 2 * scan->geometry.word;
    return count;
}

/* The headers on both sides of the start of each page. */
static int look_at_edges(struct mmapped *scan, const uint64_t *pages, unsigned count, uint64_t begin, uint64_t end)
{
    uint64_t starts[PAGES_AT_ONCE];
    uint8_t bytes[PAGES_AT_ONCE * SHAPE_BYTES], got[PAGES_AT_ONCE];
    const unsigned head = 2 * scan->geometry.word, size = head + (unsigned) scan->plain_offset + head;
    for (unsigned i = 0; i < count; i++)
        starts[i] = pages[i] - head;
    if (source_gather(scan->source, starts, count, size, bytes, got))
        return READ_INTERRUPTED;
    for (unsigned i = 0; i < count; i++) {
        uint8_t *shape = bytes + i * size, plain_got = got[i];
        uint64_t plain = pages[i] + scan->plain_offset;
        if (got[i] && meet(scan, starts[i], shape, begin, end))
            return READ_INTERRUPTED;
        /* Not read whole: a hole before the page, or behind it. */
        if (!got[i] && source_gather(scan->source, &plain, 1, head, shape + size - head, &plain_got))
            return READ_INTERRUPTED;
        if (plain_got && meet(scan, plain, shape + size - head, begin, end))
            return READ_INTERRUPTED;
    }
    return 0;
}

/* The other places within each page. */
static int look_inside(struct mmapped *scan, const uint64_t *pages, unsigned count, uint64_t begin, uint64_t end)
{
    uint64_t offsets[64], places[64];
    uint8_t bytes[64 * 16], got[64];
    const unsigned head = 2 * scan->geometry.word, inner = inner_places(scan, offsets);
    for (unsigned i = 0; i < count; i++) {
        for (unsigned k = 0; k < inner; k++)
            places[k] = pages[i] + offsets[k];
        if (source_gather(scan->source, places, inner, head, bytes, got))
            return READ_INTERRUPTED;
        for (unsigned k = 0; k < inner; k++)
            if (got[k] && meet(scan, places[k], bytes + k * head, begin, end))
                return READ_INTERRUPTED;
    }
    return 0;
}

static void next_range(struct mmapped *scan)
{
    scan->place = 0;
    if (++scan->range < scan->range_count)
        return;
    scan->range = 0;
    if (scan->pass != PASS_DONE)
        scan->pass++;
}

/* Gathers the next pages that no hit covers; moves scan->place behind them. */
static unsigned next_pages(struct mmapped *scan, uint64_t end, uint64_t *pages)
{
    unsigned count = 0;
    while (scan->place < end && count < PAGES_AT_ONCE) {
        uint64_t known = covered_until(scan, scan->place);
        if (!known)
            pages[count++] = scan->place;
        scan->place = known ? known : scan->place + scan->geometry.page;
    }
    return count;
}

/* One portion of the work: 0, or READ_INTERRUPTED with the portion to be done again. */
static int portion(struct mmapped *scan)
{
    const uint64_t begin = scan->ranges[2 * scan->range], end = scan->ranges[2 * scan->range + 1];
    uint64_t pages[PAGES_AT_ONCE], before;
    int failed = 0;
    if (!scan->place)
        scan->place = begin;
    before = scan->place;
    if (scan->pass == PASS_HOP) {
        failed = hop(scan, begin, begin, end);
        scan->place = end;
    } else {
        unsigned count = next_pages(scan, end, pages);
        if (count)
            failed = scan->pass == PASS_EDGES ? look_at_edges(scan, pages, count, begin, end)
                                              : look_inside(scan, pages, count, begin, end);
    }
    if (failed)
        scan->place = before;
    else if (scan->place >= end)
        next_range(scan);
    return failed;
}

/* Works for about `seconds`: 1 if there is more to do, 0 if done, READ_INTERRUPTED. */
EXPORT int64_t heapx_mmapped_slice(struct mmapped *scan, double seconds)
{
    double deadline = clock_now() + seconds;
    if (!scan->range_count)
        return 0;
    while (scan->pass != PASS_DONE) {
        if (portion(scan))
            return READ_INTERRUPTED;
        if (clock_now() > deadline)
            return scan->pass != PASS_DONE;
    }
    return 0;
}

/* Copies up to `room` hits (chunk, size, block, total of each); returns how many there are. */
EXPORT uint64_t heapx_mmapped_result(const struct mmapped *scan, uint64_t room, uint64_t *out)
{
    size_t count = room < scan->count ? (size_t) room : scan->count;
    if (count)
        memcpy(out, scan->hits, count * sizeof *scan->hits);
    return scan->count;
}
