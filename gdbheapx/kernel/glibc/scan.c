/* Memory looked through once, in order and by several threads, for words that may be links of lists.

   A single list's link stands behind the size field of its chunk and leads to a chunk's place in memory where lists may be. A chunk in a
   bin has two such words, and its size again where it ends. Chunks need not be followed for that: damage hides nothing, and threads can
   begin anywhere. */
#include "links.h"

#include <pthread.h>
#include <stdlib.h>

#define SCAN_BLOCK (256u << 10)
#define SCAN_BLOCK_MANY (128u << 10)    /* for each of more than four threads */
#define MARGIN 32u                      /* read beyond both ends of a block: headers and links that lie across */

struct scanner {
    struct lists *lists;
    uint8_t *bytes;
    uint64_t capacity;
    uint64_t from, to;          /* what is left of the slab in hand */
    struct node_block *block;
    uint32_t first, used;       /* number of the block's first node, how many of it are taken */
    int interrupted;
    struct page_entries entries;
};

struct scan {
    size_t range;               /* the next slab: in this range, */
    uint64_t next;              /* from here on; 0: its first */
    unsigned threads;
    int singles, bins;
    struct scanner scanners[MAX_THREADS];
    pthread_mutex_t lock;
};

static int next_slab(struct lists *lists, struct scanner *scanner)
{
    struct scan *scan = lists->scan;
    int found = 0;
    pthread_mutex_lock(&scan->lock);
    while (scan->range < lists->range_count && !found) {
        const struct range *range = &lists->ranges[scan->range];
        uint64_t from = scan->next ? scan->next : range->begin;
        if (!range->wanted || range->scanned || from >= range->end) {
            scan->range++;
            scan->next = 0;
            continue;
        }
        uint64_t beyond = (from | (SLAB_BYTES - 1)) + 1;
        scanner->from = from;
        scanner->to = scan->next = beyond < range->end && beyond ? beyond : range->end;
        found = 1;
    }
    pthread_mutex_unlock(&scan->lock);
    return found;
}

/* Room for the nodes of one bucket. */
static int has_room(struct scanner *scanner)
{
    uint32_t number;
    if (scanner->block && scanner->used + SLOTS <= NODES_AT_ONCE)
        return 1;
    scanner->block = store_block(&scanner->lists->store, &number);
    scanner->first = number << NODES_SHIFT;
    scanner->used = 0;
    return scanner->block != NULL;
}

static inline uint64_t rotate_right(uint64_t value, unsigned by)
{
    return value >> by | value << ((64 - by) & 63);
}

struct rule {
    const struct chunk_geometry *geometry;
    const struct store *store;
    uint64_t span;              /* of single lists' chunks: (largest - smallest) in units of the alignment */
    uint64_t bin_span;
    int singles, bins, mangled;
};

/* A chunk, or memory that malloc gave, can be there and lies where lists may be. */
static inline int leads_on(const struct rule *rule, uint64_t entry, unsigned alignment, unsigned header)
{
    if ((entry & (alignment - 1)) && ((entry + header) & (alignment - 1)))
        return 0;
    return entry <= ADDRESS_MASK && store_slab(rule->store, entry) != NULL;
}

/* A null link may be the end of a list. Where links are plain any zero looks so: there the word behind it must be a thread cache's key, a
   pointer (2.29). */
static inline __attribute__((always_inline)) int
ends_there(const struct rule *rule, const uint8_t *p, const uint8_t *end, const unsigned word, const unsigned swap,
        const unsigned alignment)
{
    return rule->mangled || ((size_t) (end - p) >= 2 * word && leads_on(rule, load_word(p + word, word, swap), alignment, 2 * word));
}

/* What may be a link at `key`, whose bytes are at `p`, noted in `node`: 0 if it is none. [begin, end) are the bytes that were read. */
static inline __attribute__((always_inline)) int
judge(const struct rule *rule, const uint8_t *p, const uint8_t *end, uint64_t key, struct node *node, const unsigned word,
        const unsigned swap,
      const unsigned shift, const unsigned min_chunk)
{
    const uint64_t raw = load_word(p - word, word, swap);
    const uint64_t units = rotate_right((raw & ~(uint64_t) 5) - min_chunk, shift);
    const unsigned alignment = 1u << shift;
    if (units > rule->bin_span)     /* too small, misaligned, IS_MMAPPED, or too large: one compare for nearly every slot */
        return 0;
    const uint64_t stored = load_word(p, word, swap);
    const uint64_t size_high = (raw >> 16 & 0xfff) << 48, size_low = raw << 48;
    if (rule->bins && (size_t) (end - p) >= 2 * word && leads_on(rule, stored, alignment, 2 * word)) {
        const uint64_t back = load_word(p + word, word, swap), size = raw & ~(uint64_t) FLAGS;
        const uint8_t *after = p - 2 * word + size;
        if (leads_on(rule, back, alignment, 2 * word) && (size > (uint64_t) (end - p) || load_word(after, word, swap) == size)) {
            node->next = stored | size_low;
            node->back = back | size_high | NODE_IN_BIN | (rule->singles && !rule->mangled ? NODE_SINGLE : 0);
            return 1;
        }
    }
    if (!rule->singles || units > rule->span)
        return 0;
    const uint64_t link = (rule->mangled ? stored ^ key >> 12 : stored) & (word == 8 ? UINT64_MAX : UINT32_MAX);
    if (!(link ? leads_on(rule, link, alignment, 2 * word) : ends_there(rule, p, end, word, swap, alignment)))
        return 0;
    node->next = link | size_low;
    node->back = size_high | NODE_SINGLE;
    return 1;
}

/* The links of a bucket that begins at `base` are its block's next nodes. */
static void fill(struct scanner *scanner, struct bucket *bucket, uint64_t bits, unsigned count, uint64_t base)
{
    const uint32_t first = scanner->first + scanner->used, last = first + count - 1;
    bucket->bits = bits;
    bucket->first = first;
    for (uint32_t group = first >> GROUP_SHIFT; group <= last >> GROUP_SHIFT; group++) {
        uint32_t start = group_start(group), slot = 0;
        if (start < first || start > last)
            continue;
        uint64_t left = bits;
        for (uint32_t skip = start - first; skip; skip--)
            left &= left - 1;
        while (!(left >> slot & 1))
            slot++;
        scanner->block->starts[group & (GROUPS_IN_BLOCK - 1)] = base + ((uint64_t) slot << scanner->lists->store.slot_shift);
    }
    scanner->used += count;
}

static inline __attribute__((always_inline)) int
note_all(struct scanner *scanner, const struct rule *rule, const uint8_t *bytes, uint64_t length, uint64_t begin, uint64_t from,
        uint64_t to,
         const unsigned word, const unsigned swap, const unsigned shift, const unsigned min_chunk)
{
    const uint64_t unit = UINT64_C(1) << shift, whole = unit * SLOTS;
    const uint8_t *end = bytes + length;
    uint64_t key = (from + unit - 1) & ~(unit - 1);
    if (key < begin + word)
        key += unit;
    while (key < to && key - begin < length) {
        const uint64_t base = key & ~(whole - 1);
        uint64_t stop = base + whole < to ? base + whole : to, bits = 0;
        if (!has_room(scanner))
            return 0;
        struct node *nodes = scanner->block->nodes + scanner->used;
        unsigned count = 0;
        struct bucket *bucket = store_bucket(rule->store, key);
        for (; key < stop; key += unit) {
            const uint8_t *p = bytes + (key - begin);
            if (key - begin + word > length)
                break;
            if (!judge(rule, p, end, key, nodes + count, word, swap, shift, min_chunk))
                continue;
            bits |= UINT64_C(1) << ((key >> shift) & (SLOTS - 1));
            count++;
        }
        key = stop;
        if (count)
            fill(scanner, bucket, bits, count, base);
    }
    return 1;
}

/* One read's worth of the slab in hand: 0 if the call that reads was interrupted or memory ran out. */
static int scan_block(struct scanner *scanner)
{
    struct lists *lists = scanner->lists;
    const struct chunk_geometry *geometry = &lists->geometry;
    const struct scan *scan = lists->scan;
    const uint64_t from = scanner->from, begin = from >= MARGIN ? from - MARGIN : from;
    uint64_t to = (from + scanner->capacity - 2 * MARGIN) & ~(uint64_t) (CACHE_PAGE - 1);     /* no bucket is cut */
    if (to > scanner->to)
        to = scanner->to;
    int64_t got = source_read_near(lists->source, &scanner->entries, begin, scanner->bytes, to - begin + MARGIN, 1);
    if (got < 0) {
        scanner->interrupted = 1;
        return 0;
    }
    if (got == 0 && begin < from) {     /* nothing before it */
        got = source_read_near(lists->source, &scanner->entries, from, scanner->bytes + (from - begin), to - from + MARGIN, 1);
        if (got < 0) {
            scanner->interrupted = 1;
            return 0;
        }
        memset(scanner->bytes, 0, (size_t) (from - begin));
        got += got ? (int64_t) (from - begin) : 0;
    }
    const struct rule rule = {
        geometry, &lists->store, (lists->largest - geometry->min_chunk) >> geometry->shift,
        scan->bins ? ((UINT64_C(1) << NODE_RAW_BITS) - 1 - geometry->min_chunk) >> geometry->shift
                   : (lists->largest - geometry->min_chunk) >> geometry->shift,
        scan->singles, scan->bins, lists->mangled,
    };
    int done;
    if (geometry->word == 8 && geometry->shift == 4 && !geometry->swap)
        done = note_all(scanner, &rule, scanner->bytes, (uint64_t) got, begin, from, to, 8, 0, 4, 32);
    else
        done = note_all(scanner, &rule, scanner->bytes, (uint64_t) got, begin, from, to, geometry->word, geometry->swap, geometry->shift,
                        geometry->min_chunk);
    if (!done)
        return 0;
    uint64_t seen = begin + (uint64_t) got;
    /* What cannot be read is passed by pages. */
    scanner->from = seen >= to ? to : ((seen > from ? seen : from) | (CACHE_PAGE - 1)) + 1;
    return 1;
}

static void *look_through(void *given)
{
    struct scanner *scanner = given;
    struct lists *lists = scanner->lists;
    while (!lists->store.no_memory && clock_now() < lists->deadline) {
        if (scanner->from >= scanner->to && !next_slab(lists, scanner))
            break;
        if (!scan_block(scanner))
            break;
    }
    return NULL;
}

int scan_open(struct lists *lists)
{
    struct scan *scan = lists->scan = calloc(1, sizeof *scan);
    if (!scan)
        return 0;
    pthread_mutex_init(&scan->lock, NULL);
    scan->threads = lists->threads;
    for (size_t i = 0; i < lists->count; i++) {
        scan->bins |= lists->items[i].kind == BIN;
        scan->singles |= lists->items[i].kind != BIN;
    }
    for (unsigned i = 0; i < scan->threads; i++) {
        struct scanner *scanner = &scan->scanners[i];
        scanner->lists = lists;
        scanner->capacity = scan->threads > 4 ? SCAN_BLOCK_MANY : SCAN_BLOCK;
        if (!(scanner->bytes = malloc(scanner->capacity)))
            return 0;
    }
    return store_make_room(&lists->store, lists->ranges, lists->range_count);
}

int scan_slice(struct lists *lists)
{
    struct scan *scan = lists->scan;
    int more = 0;
    threads_run(look_through, scan->scanners, sizeof *scan->scanners, scan->threads);
    for (unsigned i = 0; i < scan->threads; i++) {
        lists->pages.interrupted |= scan->scanners[i].interrupted;
        scan->scanners[i].interrupted = 0;
        more |= scan->scanners[i].from < scan->scanners[i].to;
    }
    if (lists->store.block_count > MAX_BLOCKS)
        lists->store.block_count = MAX_BLOCKS;
    return !lists->store.no_memory && (more || scan->range < lists->range_count);
}

void scan_close(struct lists *lists)
{
    struct scan *scan = lists->scan;
    if (!scan)
        return;
    for (unsigned i = 0; i < scan->threads; i++)
        free(scan->scanners[i].bytes);
    pthread_mutex_destroy(&scan->lock);
    free(scan);
    lists->scan = NULL;
    lists->scans++;
    for (size_t i = 0; i < lists->range_count; i++)
        lists->ranges[i].scanned |= lists->ranges[i].wanted;
}
