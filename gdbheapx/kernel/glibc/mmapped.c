/* Chunks with a mapping of their own. They are in no list: only their number and bytes are known (mp_.n_mmaps, mp_.mmapped_mem).

   Such blocks often lie side by side, so the first pass hops from the start of each range from block to block.
   Only if that does not find all of them are pages looked at, those alone that are in RAM, where a header must be: first the two places
   where nearly all headers are, the page's first (a plain block) and its last bytes (memalign with more than a page), then the few other
   places that alignment allows (munmap_chunk: mem modulo the page size is a power of two, or 0). */
#include "chunk.h"

#include <stdlib.h>

#define PAGES_AT_ONCE 64u
#define MAX_PLACES 96u
#define BLOCK_BYTES (64u << 10)

#define MOST_DOUBTED 4096u      /* of which pairs are tried */

struct hit {
    uint64_t block, chunk, size, total;
    int is_doubted;             /* come upon page by page: anything may look like a header */
};

enum pass { PASS_HOP, PASS_EDGES, PASS_ALL, PASS_DONE };

struct mmapped {
    struct chunk_geometry geometry;
    struct window window;       /* onto ranges[range] */
    struct page_window pages;
    const uint64_t *ranges, *data;
    size_t range_count, data_count, range;
    uint64_t place;             /* the next page to look at in ranges[range]; 0: not begun */
    uint64_t pages_left;        /* to look at */
    uint64_t trailer;           /* bytes of a mapping behind its chunk: 2 words from glibc 2.43 on */
    uint64_t plain_offset;      /* of a plain block's header: where its memory is aligned */
    uint64_t wanted_chunks, wanted_bytes, bytes;
    struct hit *hits;           /* sorted by block */
    uint64_t count, room;
    enum pass pass;
    uint8_t *bytes_of_window;
};

void heapx_mmapped_free(struct mmapped *scan)
{
    if (scan) {
        free(scan->hits);
        free(scan->bytes_of_window);
    }
    free(scan);
}

/* The caller keeps: the ranges (begin, end, how far a block may reach that begins there), `pages` (may be NULL), and `data`, the
   ranges (sorted) outside which nothing but zeros lies (none: anywhere something may). */
struct mmapped *heapx_mmapped_new(const struct source *source, const struct geometry *geometry, const uint64_t *ranges,
                                  uint64_t range_count, const uint64_t *data, uint64_t data_count, int has_trailer,
                                  uint64_t wanted_chunks, uint64_t wanted_bytes, uint64_t most_pages, const struct page_table *pages)
{
    struct mmapped *scan = calloc(1, sizeof *scan);
    if (!scan || !(scan->bytes_of_window = malloc(BLOCK_BYTES))) {
        free(scan);
        return NULL;
    }
    geometry_set(&scan->geometry, geometry);
    window_open(&scan->window, source, scan->bytes_of_window, BLOCK_BYTES, 0, 0);
    scan->window.peeks = 1;
    page_window_open(&scan->pages, pages);
    scan->ranges = ranges;
    scan->range_count = (size_t) range_count;
    scan->data = data;
    scan->data_count = (size_t) data_count;
    scan->trailer = has_trailer ? 2 * scan->geometry.word : 0;
    scan->plain_offset = scan->geometry.alignment - 2 * scan->geometry.word;
    scan->wanted_chunks = wanted_chunks;
    scan->wanted_bytes = wanted_bytes;
    scan->pages_left = most_pages;
    scan->pass = wanted_chunks ? PASS_HOP : PASS_DONE;
    return scan;
}

enum { HEADER_NONE, HEADER_READ, HEADER_PAUSED };

/* The first page from `page` on that has data, or `end` where none follows. */
static uint64_t next_data(const struct mmapped *scan, uint64_t page, uint64_t end)
{
    const uint64_t low = scan->data_count ? rows_up_to(scan->data + 1, scan->data_count, 2 * sizeof *scan->data, page) : 0;
    if (low == scan->data_count || scan->data[2 * low] >= end)
        return end;
    uint64_t begin = scan->data[2 * low] & ~(scan->geometry.page - 1);
    return begin > page ? begin : page;
}

/* Anything but zeros can be in this page. */
static int may_hold(struct mmapped *scan, uint64_t page)
{
    if (scan->pages.table)
        return page_kind(&scan->pages, page) & (KIND_RESIDENT | KIND_UNSURE);
    return !scan->data_count || next_data(scan, page, page + scan->geometry.page) == page;
}

/* The two words at `address`. What was never touched holds no header; a swapped page is brought in only where a header is likely. */
static int header_at(struct mmapped *scan, uint64_t address, uint8_t *header)
{
    const unsigned size = 2 * scan->geometry.word;
    if (!may_hold(scan, address & ~(scan->geometry.page - 1))) {
        if (!scan->pages.table || scan->pass > PASS_HOP || !(page_kind(&scan->pages, address) & KIND_SWAPPED))
            return HEADER_NONE;
        return source_read(scan->window.source, address, header, size) == (int64_t) size ? HEADER_READ : HEADER_NONE;
    }
    /* any page may be one that was never touched: no more of them than needed */
    if (!scan->pages.table && !scan->data_count && scan->pass <= PASS_HOP) {
        const int64_t got = source_read(scan->window.source, address, header, size);
        scan->window.interrupted |= got == INTERRUPTED;
        return got == (int64_t) size ? HEADER_READ : scan->window.interrupted ? HEADER_PAUSED : HEADER_NONE;
    }
    const uint8_t *bytes = window_at(&scan->window, address, size);
    if (bytes)
        memcpy(header, bytes, size);
    return bytes ? HEADER_READ : scan->window.interrupted ? HEADER_PAUSED : HEADER_NONE;
}

/* Index of the first hit whose block begins beyond `address`. */
static size_t hits_beyond(const struct mmapped *scan, uint64_t address)
{
    return (size_t) rows_up_to(scan->hits, scan->count, sizeof *scan->hits, address);
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

/* So many would be all. In 2.43 mp_.mmapped_mem grows by the trailer each time a block is moved or resized (mremap_chunk subtracts
   chunksize, which has no trailer, and adds the whole mapping), so there it may be ahead. */
static int adds_up(const struct mmapped *scan, uint64_t count, uint64_t bytes)
{
    if (count != scan->wanted_chunks || bytes > scan->wanted_bytes)
        return 0;
    uint64_t ahead = scan->wanted_bytes - bytes;
    return !ahead || (scan->trailer && !(ahead % scan->trailer));
}

static void drop(struct mmapped *scan, size_t place)
{
    scan->bytes -= scan->hits[place].total;
    scan->count--;
    memmove(scan->hits + place, scan->hits + place + 1, (scan->count - place) * sizeof *scan->hits);
}

/* One or two too many, that a program's own data looks like: they go where one choice alone adds up without them. 0: nothing is known. */
static int drop_strangers(struct mmapped *scan)
{
    size_t found = 0, first = 0, second = 0;
    const uint64_t extra = scan->count - scan->wanted_chunks;
    if (scan->count <= scan->wanted_chunks || extra > 2 || scan->count > MOST_DOUBTED)
        return 0;
    for (size_t i = 0; i < scan->count && found < 2; i++) {
        const uint64_t left = scan->bytes - scan->hits[i].total;
        if (!scan->hits[i].is_doubted)
            continue;
        for (size_t j = i + 1; extra == 2 && j < scan->count && found < 2; j++)
            if (scan->hits[j].is_doubted && adds_up(scan, scan->count - 2, left - scan->hits[j].total)) {
                found++;
                first = i;
                second = j;
            }
        if (extra == 1 && adds_up(scan, scan->count - 1, left)) {
            found++;
            first = i;
        }
    }
    if (found != 1)
        return 0;
    if (second)
        drop(scan, second);
    drop(scan, first);
    return 1;
}

static int add(struct mmapped *scan, const struct hit *hit)
{
    size_t place = hits_beyond(scan, hit->block);
    if (place && hit->block - scan->hits[place - 1].block < scan->hits[place - 1].total)
        return 0;
    if (place < scan->count && scan->hits[place].block - hit->block < hit->total)
        return 0;
    if (!has_room(&scan->hits, scan->count, &scan->room, sizeof *scan->hits)) {
        scan->pass = PASS_DONE;
        return 0;
    }
    memmove(scan->hits + place + 1, scan->hits + place, (scan->count - place) * sizeof *scan->hits);
    scan->hits[place] = *hit;
    scan->count++;
    scan->bytes += hit->total;
    if (adds_up(scan, scan->count, scan->bytes) || drop_strangers(scan))
        scan->pass = PASS_DONE;
    return 1;
}

/* Whether the header of a chunk at `address` is that of an mmapped chunk within [begin, end). */
static int judge(const struct mmapped *scan, uint64_t address, const uint8_t *header, uint64_t begin, uint64_t end, struct hit *hit)
{
    const struct chunk_geometry *geometry = &scan->geometry;
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
    hit->is_doubted = scan->pass > PASS_HOP;
    return !(hit->total & mask);
}

/* Where the header of a block that begins at `block` can be: by ascending alignment of what memalign gave. (A gap too small for a chunk is
   made larger by one alignment, see _int_memalign: that is the place of twice the alignment.) */
static unsigned places_of(const struct mmapped *scan, uint64_t block, uint64_t end, uint64_t *places)
{
    const uint64_t head = 2 * scan->geometry.word;
    unsigned count = 0;
    for (uint64_t alignment = scan->geometry.alignment; alignment && alignment < end - block && count < MAX_PLACES; alignment <<= 1) {
        uint64_t place = ((block + head + alignment - 1) & ~(alignment - 1)) - head;
        if (place < block || place >= end)
            break;
        if (!count || places[count - 1] != place)
            places[count++] = place;
    }
    return count;
}

/* memalign moves the header of a mapped block up and leaves the old one, a plain block's, as it was (_int_memalign): if the block has a
   header further in that tells where it begins, that is its chunk. realloc changes its size alone (mremap_chunk): what the old one says
   may be less than the block has, or reach over others. 0, or INTERRUPTED. */
static int move_up(struct mmapped *scan, uint64_t end, struct hit *hit)
{
    uint64_t places[MAX_PLACES];
    uint8_t header[16];
    struct hit inner;
    if (hit->chunk != hit->block + scan->plain_offset)
        return 0;
    unsigned count = places_of(scan, hit->block, hit->block + hit->total, places);
    for (unsigned i = 1; i < count; i++) {
        int got = header_at(scan, places[i], header);
        if (got == HEADER_PAUSED)
            return INTERRUPTED;
        if (got == HEADER_READ && judge(scan, places[i], header, hit->block, end, &inner) && inner.block == hit->block) {
            *hit = inner;
            return 0;
        }
    }
    return 0;
}

/* The header that may be at `address` becomes a hit: its end, 0 if there is none, INTERRUPTED. */
static int64_t take(struct mmapped *scan, uint64_t address, uint64_t block, uint64_t begin, uint64_t end)
{
    uint8_t header[16];
    struct hit hit;
    int got = scan->pass == PASS_DONE ? HEADER_NONE : header_at(scan, address, header);
    if (got == HEADER_PAUSED)
        return INTERRUPTED;
    if (got == HEADER_NONE || !judge(scan, address, header, begin, end, &hit) || (block && hit.block != block))
        return 0;
    if (move_up(scan, end, &hit))
        return INTERRUPTED;
    return add(scan, &hit) ? (int64_t) (hit.block + hit.total) : 0;
}

/* From `block` on along adjacent blocks; INTERRUPTED or 0. */
static int hop(struct mmapped *scan, uint64_t block, uint64_t begin, uint64_t end)
{
    uint64_t places[MAX_PLACES];
    while (block < end && scan->pass != PASS_DONE) {
        int64_t until = (int64_t) covered_until(scan, block);
        const unsigned count = until ? 0 : places_of(scan, block, end, places);
        for (unsigned i = 0; !until && i < count; i++)
            until = take(scan, places[i], block, begin, end);
        if (until <= 0)
            return (int) until;
        block = (uint64_t) until;
    }
    return 0;
}

/* A header that may be at `address`, and the blocks behind its own; INTERRUPTED or 0. */
static int meet(struct mmapped *scan, uint64_t address, uint64_t begin, uint64_t end)
{
    int64_t until = take(scan, address, 0, begin, end);
    return until > 0 ? hop(scan, (uint64_t) until, begin, end) : (int) until;
}

/* The headers on both sides of the start of a page, or, in the last pass, at the other places within it: powers of two below its size, less
   the header. */
static int look_at_page(struct mmapped *scan, uint64_t page, uint64_t begin, uint64_t end)
{
    const uint64_t head = 2 * scan->geometry.word;
    int failed = 0;
    if (scan->pass == PASS_EDGES)
        return meet(scan, page - head, begin, end) || meet(scan, page + scan->plain_offset, begin, end) ? INTERRUPTED : 0;
    for (uint64_t power = scan->geometry.alignment * 2; !failed && power < scan->geometry.page; power <<= 1)
        failed = meet(scan, page + power - head, begin, end);
    return failed;
}

/* Some pages from scan->place on, which moves behind them; INTERRUPTED or 0. */
static int look_at_pages(struct mmapped *scan, uint64_t begin, uint64_t end, uint64_t limit)
{
    for (unsigned count = 0; scan->place < end && count < PAGES_AT_ONCE && scan->pass != PASS_DONE; count++) {
        uint64_t page = scan->place, known = covered_until(scan, page);
        if (!known && scan->data_count && !scan->pages.table) {  /* a core may have a terabyte of holes */
            page = next_data(scan, page, end);
            if (page != scan->place) {
                scan->place = page;
                continue;
            }
        }
        if (!known && may_hold(scan, page)) {
            if (!scan->pages_left) {
                scan->pass = PASS_DONE;
                return 0;
            }
            if (look_at_page(scan, page, begin, limit))
                return INTERRUPTED;
            scan->pages_left--;
        }
        scan->place = known ? known : page + scan->geometry.page;
        /* a reserve is passed by its page table, not page by page: it may have millions that were never touched */
        if (scan->pages.table && scan->place < end)
            scan->place = page_next_resident(&scan->pages, scan->place, end);
    }
    return 0;
}

/* One portion of the work: 0, or INTERRUPTED with the rest of the portion to be done again. */
static int portion(struct mmapped *scan)
{
    const uint64_t *range = scan->ranges + 3 * scan->range, begin = range[0], end = range[1], limit = range[2];
    int failed;
    if (!scan->place) {
        scan->place = begin;
        scan->window.low = begin;
        scan->window.high = limit;
        scan->window.length = 0;
    }
    scan->window.interrupted = 0;
    if (scan->pass > PASS_HOP) {
        failed = look_at_pages(scan, begin, end, limit);
    } else {
        failed = hop(scan, begin, begin, limit);
        scan->place = failed ? begin : end;
    }
    if (failed || scan->place < end)
        return failed;
    scan->place = 0;
    scan->range = (scan->range + 1) % scan->range_count;
    if (!scan->range && scan->pass != PASS_DONE)
        scan->pass++;
    return 0;
}

/* Works for about `seconds`: 1 if there is more to do, 0 if done, INTERRUPTED. */
int64_t heapx_mmapped_slice(struct mmapped *scan, double seconds)
{
    double deadline = clock_now() + seconds;
    if (!scan->range_count)
        return 0;
    while (scan->pass != PASS_DONE) {
        if (portion(scan))
            return INTERRUPTED;
        if (clock_now() > deadline)
            return scan->pass != PASS_DONE;
    }
    return 0;
}

/* Copies up to `room` hits (chunk, size, block, total of each); returns how many there are. */
uint64_t heapx_mmapped_result(const struct mmapped *scan, uint64_t room, uint64_t *out)
{
    for (size_t i = 0; i < scan->count && i < room; i++) {
        const struct hit *hit = &scan->hits[i];
        const uint64_t words[] = {hit->chunk, hit->size, hit->block, hit->total};
        memcpy(out + 4 * i, words, sizeof words);
    }
    return scan->count;
}

/* The chunks that were found are all. */
int heapx_mmapped_complete(const struct mmapped *scan)
{
    return adds_up(scan, scan->count, scan->bytes);
}
