/* Numbers in order; which words of memory may be addresses; which pages of it hold anything but zeros. */
#include "memory.h"
#include "source.h"

#include <stdlib.h>

/* ---- numbers in order: least significant digit first; digits that all numbers share are passed over, and so is what is in order ---- */

#define SORT_BITS 11u
#define SORT_DIGITS (1u << SORT_BITS)

/* The bits in which numbers differ; 0 if they are in order now, either way round before. */
static uint64_t bits_to_sort(uint64_t *values, uint64_t count)
{
    uint64_t bits = 0, rises = 0, falls = 0;
    for (uint64_t i = 1; i < count; i++) {
        bits |= values[i] ^ values[0];
        rises += values[i] > values[i - 1];
        falls += values[i] < values[i - 1];
    }
    for (uint64_t i = 0; falls && !rises && i < count / 2; i++) {
        const uint64_t value = values[i];
        values[i] = values[count - 1 - i];
        values[count - 1 - i] = value;
    }
    return rises && falls ? bits : 0;
}

static void sort_digit(const uint64_t *values, uint64_t *to, uint64_t count, unsigned shift)
{
    uint64_t starts[SORT_DIGITS] = {0}, sum = 0;
    for (uint64_t i = 0; i < count; i++)
        starts[values[i] >> shift & (SORT_DIGITS - 1)]++;
    for (unsigned digit = 0; digit < SORT_DIGITS; digit++) {
        const uint64_t here = starts[digit];
        starts[digit] = sum;
        sum += here;
    }
    for (uint64_t i = 0; i < count; i++)
        to[starts[values[i] >> shift & (SORT_DIGITS - 1)]++] = values[i];
}

/* Sorts the caller's numbers where they are, all at once: ten million take 0.1 s. 0: there is no memory for that. */
int heapx_sort(uint64_t *values, uint64_t count)
{
    const uint64_t bits = bits_to_sort(values, count);
    const size_t bytes = (size_t) count * sizeof *values;
    uint64_t *spare = bits ? big_alloc(bytes) : NULL, *from = values, *to = spare;
    unsigned shift = 0;
    if (!bits)
        return 1;
    if (!spare)
        return 0;
    while (!(bits >> shift & 1))
        shift++;    /* addresses are multiples of something */
    for (; shift < 64; shift += SORT_BITS) {
        if (!(bits >> shift & (SORT_DIGITS - 1)))
            continue;
        sort_digit(from, to, count, shift);
        uint64_t *sorted = to;
        to = from;
        from = sorted;
    }
    if (from != values)
        memcpy(values, from, bytes);
    big_free(spare, bytes);
    return 1;
}

/* ---- words that may be addresses: an object's writable data has millions, of which few lead to where a heap may lie ---- */

/* Writes the places of words that lie in one of the ranges and have none of the bits of `mask`: how many. `ranges`: begin and end of each,
   sorted, without overlap; `places` has room for all. */
uint64_t heapx_words_into(const uint64_t *words, uint64_t count, const uint64_t *ranges, uint64_t range_count, uint64_t mask,
                          uint64_t *places)
{
    const uint64_t low = range_count ? ranges[0] : 1, high = range_count ? ranges[2 * range_count - 1] : 0;
    uint64_t found = 0, near = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t word = words[i];
        if (word < low || word >= high || word & mask)
            continue;
        if (word < ranges[2 * near] || word >= ranges[2 * near + 1]) {
            near = rows_up_to(ranges, range_count, 2 * sizeof *ranges, word) - 1;
            if (word >= ranges[2 * near + 1])
                continue;
        }
        places[found++] = i;
    }
    return found;
}

/* ---- written pages: a core that gdb wrote, or that was copied without its holes, has pages of zeros
   where nothing was ever in memory: nothing in the file tells these from pages that a program has filled with zeros. ---- */

#define BLOCK_BYTES (256u << 10)    /* of a read: it stays in the L2 cache while it is looked at */

struct written {
    const struct source *source;
    const uint64_t *ranges;
    size_t range_count, range;
    uint64_t at, page;          /* at: the next byte to look at in ranges[range] */
    struct grown runs;          /* begin and end of each run of such pages */
    uint8_t *bytes;
};

void heapx_written_free(struct written *job)
{
    if (job) {
        free(job->runs.items);
        free(job->bytes);
    }
    free(job);
}

/* `ranges`: begin and end of each, sorted, without overlap; they stay the caller's. */
struct written *heapx_written_new(const struct source *source, const uint64_t *ranges, uint64_t range_count, uint64_t page)
{
    struct written *job = calloc(1, sizeof *job);
    if (!job || !(job->bytes = malloc(BLOCK_BYTES))) {
        free(job);
        return NULL;
    }
    job->source = source;
    job->ranges = ranges;
    job->range_count = (size_t) range_count;
    job->at = range_count ? ranges[0] : 0;
    job->page = page;
    return job;
}

/* One more run, joined to the last one where they touch. 0: no memory is left. */
static int add_written(struct written *job, uint64_t begin, uint64_t end)
{
    uint64_t *run = (uint64_t *) job->runs.items + 2 * job->runs.count;
    if (job->runs.count && run[-1] == begin) {
        run[-1] = end;
        return 1;
    }
    run = grown_add(&job->runs, 2 * sizeof *run);
    if (run) {
        run[0] = begin;
        run[1] = end;
    }
    return run != NULL;
}

/* Looks at `length` bytes that were read from job->at on, page by page. 0: no memory is left. */
static int look(struct written *job, uint64_t length)
{
    const uint64_t first = job->at;
    for (uint64_t done = 0; done < length;) {
        uint64_t here = job->page - (first + done) % job->page;
        if (here > length - done)
            here = length - done;
        const uint8_t *bytes = job->bytes + done;
        const int is_zero = !bytes[0] && !memcmp(bytes, bytes + 1, (size_t) here - 1);
        if (!is_zero && !add_written(job, first + done, first + done + here))
            return 0;
        done += here;
        job->at = first + done;
    }
    return 1;
}

/* Works for about so many seconds: 1 if something is left, 0 if all is done, INTERRUPTED, or NO_MEMORY. */
int64_t heapx_written_slice(struct written *job, double seconds)
{
    const double until = clock_now() + seconds;
    while (job->range < job->range_count) {
        const uint64_t end = job->ranges[2 * job->range + 1];
        if (job->at >= end) {
            if (++job->range < job->range_count)
                job->at = job->ranges[2 * job->range];
            continue;
        }
        /* up to a block's end, so that no page is looked at in two parts */
        uint64_t want = BLOCK_BYTES - job->at % BLOCK_BYTES;
        if (want > end - job->at)
            want = end - job->at;
        int64_t got = source_read(job->source, job->at, job->bytes, want);
        if (got < 0)
            return INTERRUPTED;
        if (!got) {     /* of what cannot be read it is not known: it counts as written */
            uint64_t next = (job->at / job->page + 1) * job->page;
            next = next > end || next < job->at ? end : next;
            if (!add_written(job, job->at, next))
                return NO_MEMORY;
            job->at = next;
        } else if (!look(job, (uint64_t) got)) {
            return NO_MEMORY;
        }
        if (clock_now() > until)
            return 1;
    }
    return 0;
}

/* The runs, at most `room` of them, into `out` (begin, end); their number. What was not looked at is no part of them: it begins at *at
   (UINT64_MAX: nothing). */
uint64_t heapx_written_result(const struct written *job, uint64_t room, uint64_t *out, uint64_t *at)
{
    *at = job->range < job->range_count ? job->at : UINT64_MAX;
    return grown_copy(&job->runs, 2 * sizeof *out, out, room);
}
