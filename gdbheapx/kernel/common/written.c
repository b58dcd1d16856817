/* Which pages of some ranges hold anything but zeros. A core that gdb wrote, or that was copied without its holes, has pages of zeros
   where nothing was ever in memory: nothing in the file tells these from pages that a program has filled with zeros. */
#include "heapx.h"

#include <stdlib.h>

#define BLOCK_BYTES (256u << 10)    /* of a read: it stays in the L2 cache while it is looked at */

struct written {
    const struct source *source;
    const uint64_t *ranges;
    size_t range_count, range;
    uint64_t at, page;          /* at: the next byte to look at in ranges[range] */
    uint64_t *runs;             /* begin and end of each run of such pages */
    size_t count, room;
    uint8_t *bytes;
};

void heapx_written_free(struct written *job)
{
    if (job) {
        free(job->runs);
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

static int is_zero(const uint8_t *bytes, uint64_t length)
{
    return !bytes[0] && !memcmp(bytes, bytes + 1, (size_t) length - 1);
}

/* One more run, joined to the last one where they touch. 0: no memory is left. */
static int add(struct written *job, uint64_t begin, uint64_t end)
{
    if (job->count && job->runs[2 * job->count - 1] == begin) {
        job->runs[2 * job->count - 1] = end;
        return 1;
    }
    if (job->count == job->room) {
        size_t room = job->room ? 2 * job->room : 1024;
        uint64_t *runs = realloc(job->runs, room * 2 * sizeof *runs);
        if (!runs)
            return 0;
        job->runs = runs;
        job->room = room;
    }
    job->runs[2 * job->count] = begin;
    job->runs[2 * job->count++ + 1] = end;
    return 1;
}

/* Looks at `length` bytes that were read from job->at on, page by page. 0: no memory is left. */
static int look(struct written *job, uint64_t length)
{
    const uint64_t first = job->at;
    for (uint64_t done = 0; done < length;) {
        uint64_t here = job->page - (first + done) % job->page;
        if (here > length - done)
            here = length - done;
        if (!is_zero(job->bytes + done, here) && !add(job, first + done, first + done + here))
            return 0;
        done += here;
        job->at = first + done;
    }
    return 1;
}

/* Works for about so many seconds: 1 if something is left, 0 if all is done, INTERRUPTED, or -2: no memory. */
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
            if (!add(job, job->at, next))
                return -2;
            job->at = next;
        } else if (!look(job, (uint64_t) got)) {
            return -2;
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
    size_t count = job->count < room ? job->count : (size_t) room;
    if (count)
        memcpy(out, job->runs, count * 2 * sizeof *out);
    *at = job->range < job->range_count ? job->at : UINT64_MAX;
    return job->count;
}
