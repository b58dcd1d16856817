/* What a walk over jemalloc's extents counts, by arena; and which pointers in thread caches are no allocated blocks. */
#include "extents.h"

#include <stdlib.h>

enum { STATE_ACTIVE, STATE_DIRTY, STATE_MUZZY, STATE_RETAINED, STATE_OTHER, STATES };
/* Classes of histogram_class for pages of at least 1,024 bytes. */
#define EXTENT_CLASSES (2 + 54 * 4)

struct state_totals {
    uint64_t extents, bytes, resident_bytes;
};

struct bin_totals {
    uint64_t slabs, regs, cached, nonfull;
};

struct large_totals {
    uint64_t extents, bytes, cached, cached_bytes;
};

struct arena_totals {
    struct state_totals states[STATES];
    uint64_t rows[EXTENT_CLASSES][6];   /* extents and bytes of dirty, muzzy, retained */
    struct bin_totals *bins;            /* both behind the struct */
    struct large_totals *larges;
};

struct extents_job {
    struct extents extents;
    struct geometry geometry;           /* only what histogram_class wants */
    struct resident_window resident;
    const uint64_t *cached;             /* the caller's */
    uint64_t cached_count, next_cached;
    uint64_t cached_counts[CACHED_REASONS];
    uint64_t cached_listed, cached_rows[MOST_PROBLEMS][2];
    uint64_t counted;
    int no_memory, done;
    struct arena_totals **arenas;
    struct range *ranges;
    uint64_t range_count, range_room;
};

EXPORT void heapx_extents_free(struct extents_job *job)
{
    if (!job)
        return;
    for (uint64_t i = 0; job->arenas && i < job->extents.narenas; i++)
        free(job->arenas[i]);
    free(job->arenas);
    free(job->ranges);
    extents_close(&job->extents);
    free(job);
}

/* `numbers` and `bins` as in extents_open; `bins` and `cached` (sorted) stay the caller's and must outlive the job. NULL: no memory. */
EXPORT struct extents_job *heapx_extents_new(const struct source *source, const uint64_t *numbers, const uint64_t *bins, const uint64_t *cached,
                                             uint64_t cached_count, int pagemap_fd)
{
    struct extents_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    int opened = extents_open(&job->extents, source, numbers, bins);
    job->cached = cached;
    job->cached_count = cached_count;
    job->geometry.shift = (unsigned) numbers[5];
    resident_open(&job->resident, pagemap_fd);
    job->arenas = calloc(job->extents.narenas ? (size_t) job->extents.narenas : 1, sizeof *job->arenas);
    if (!opened || !job->arenas) {
        heapx_extents_free(job);
        return NULL;
    }
    return job;
}

static struct arena_totals *arena_of(struct extents_job *job, uint64_t index)
{
    const struct extents *extents = &job->extents;
    if (job->arenas[index])
        return job->arenas[index];
    struct arena_totals *arena = calloc(1, sizeof *arena + (size_t) extents->nbins * sizeof *arena->bins + (size_t) extents->nsizes * sizeof *arena->larges);
    if (!arena) {
        job->no_memory = 1;
        return NULL;
    }
    arena->bins = (struct bin_totals *) (arena + 1);
    arena->larges = (struct large_totals *) (arena->bins + extents->nbins);
    return job->arenas[index] = arena;
}

static void misplaced(struct extents_job *job, uint64_t address, int reason)
{
    job->cached_counts[reason]++;
    if (job->cached_listed < MOST_PROBLEMS) {
        uint64_t *row = job->cached_rows[job->cached_listed++];
        row[0] = address;
        row[1] = (uint64_t) reason;
    }
}

/* The next cached pointer below `end`; one that was given before is counted and passed over. */
static int next_cached(struct extents_job *job, uint64_t end, uint64_t *address)
{
    while (job->next_cached < job->cached_count && job->cached[job->next_cached] < end) {
        uint64_t place = job->next_cached++;
        *address = job->cached[place];
        if (!place || job->cached[place - 1] != *address)
            return 1;
        misplaced(job, *address, CACHED_TWICE);
    }
    return 0;
}

/* Those below `end` lie in no active extent. */
static void judge_outside(struct extents_job *job, uint64_t end)
{
    uint64_t address;
    while (next_cached(job, end, &address))
        misplaced(job, address, range_has(&job->extents.unknown, address) ? CACHED_UNKNOWN : CACHED_OUTSIDE);
}

static void count_slab(struct extents_job *job, struct bin_totals *totals, const struct extent *extent)
{
    const struct bin *bin = &job->extents.bins[extent->szind];
    uint64_t address;
    totals->slabs++;
    totals->regs += bin->nregs - extent->nfree;
    totals->nonfull += extent->nfree != 0;
    while (next_cached(job, extent->end, &address)) {
        uint64_t offset = address - extent->begin;
        if (offset % bin->reg_size || offset / bin->reg_size >= bin->nregs)
            misplaced(job, address, CACHED_NOT_START);
        else if (region_is_free(extent, offset / bin->reg_size))
            misplaced(job, address, CACHED_FREE);
        else
            totals->cached++;
    }
}

static void count_large(struct extents_job *job, struct large_totals *totals, const struct extent *extent)
{
    uint64_t address, bytes = extent->end - extent->begin;
    totals->extents++;
    totals->bytes += bytes;
    while (next_cached(job, extent->end, &address)) {
        if (address != extent->address) {
            misplaced(job, address, CACHED_NOT_START);
        } else {
            totals->cached++;
            totals->cached_bytes += bytes;
        }
    }
}

static int state_of(const struct extents *extents, uint64_t state)
{
    if (state == extents->active)
        return STATE_ACTIVE;
    if (state == extents->dirty)
        return STATE_DIRTY;
    if (state == extents->muzzy)
        return STATE_MUZZY;
    return state == extents->retained ? STATE_RETAINED : STATE_OTHER;
}

static void count_inactive(struct extents_job *job, struct arena_totals *arena, int state, const struct extent *extent)
{
    uint64_t bytes = extent->end - extent->begin;
    if (state != STATE_OTHER) {
        uint64_t *pair = &arena->rows[histogram_class(bytes, &job->geometry)][2 * (state - STATE_DIRTY)];
        pair[0]++;
        pair[1] += bytes;
    }
    if (job->resident.fd >= 0 && (state == STATE_DIRTY || state == STATE_MUZZY)) {
        struct residency sum = {0, 0, 0};
        resident_add(&job->resident, extent->begin, extent->end, &sum);
        arena->states[state].resident_bytes += sum.exclusive_bytes;
    }
    judge_outside(job, extent->end);
}

/* Of what is counted, joined where it touches. */
static void join(struct extents_job *job, uint64_t begin, uint64_t end)
{
    struct range *last = job->ranges + job->range_count - 1;
    if (job->range_count && (last->end == begin || job->range_count == MOST_RANGES)) {
        last->end = end;
        return;
    }
    if (job->range_count == job->range_room) {
        uint64_t room = job->range_room ? 2 * job->range_room : 64;
        struct range *ranges = realloc(job->ranges, (size_t) room * sizeof *ranges);
        if (!ranges) {
            job->no_memory = 1;
            return;
        }
        job->ranges = ranges;
        job->range_room = room;
    }
    job->ranges[job->range_count].begin = begin;
    job->ranges[job->range_count++].end = end;
}

static void count(struct extents_job *job, const struct extent *extent)
{
    struct range *unknown = &job->extents.unknown;
    struct arena_totals *arena = arena_of(job, extent->arena);
    if (!arena)
        return;
    int state = state_of(&job->extents, extent->state);
    job->counted++;
    join(job, extent->begin, extent->end);
    arena->states[state].extents++;
    arena->states[state].bytes += extent->end - extent->begin;
    judge_outside(job, extent->begin);
    if (unknown->begin < extent->end)   /* what is known now */
        unknown->begin = unknown->end > extent->end ? extent->end : unknown->end;
    if (state != STATE_ACTIVE)
        count_inactive(job, arena, state, extent);
    else if (extent->slab)
        count_slab(job, &arena->bins[extent->szind], extent);
    else
        count_large(job, &arena->larges[extent->szind], extent);
}

/* Works for about `seconds`. Returns 1 if there is more to do, 0 if not, READ_INTERRUPTED, or -2: no memory. */
EXPORT int64_t heapx_extents_slice(struct extents_job *job, double seconds)
{
    const struct extent *extent;
    int state = EXTENTS_ONE;
    extents_resume(&job->extents, seconds);
    while (!job->done && (state = extents_next(&job->extents, &extent)) == EXTENTS_ONE) {
        count(job, extent);
        if (job->no_memory)
            break;
    }
    if (job->no_memory || job->extents.tree.no_memory)
        return -2;
    if (extents_interrupted(&job->extents))
        return READ_INTERRUPTED;
    if (!job->done && state == EXTENTS_END) {
        judge_outside(job, UINT64_MAX);
        job->done = 1;
    }
    return !job->done;
}

/* `out`: done, at; nodes, leaf nodes, extents, unassociated, unparsed bytes, unreadable bytes; problems by code; cached pointers by reason; how many
   problems and cached pointers follow, and those. */
EXPORT void heapx_extents_summary(const struct extents_job *job, uint64_t *out)
{
    const struct extents *extents = &job->extents;
    const uint64_t fixed[] = {
        (uint64_t) job->done, extents_at(extents), extents->tree.nodes, extents->tree.leaf_nodes, job->counted, extents->unassociated,
        extents->unparsed_bytes, extents->tree.unreadable_bytes,
    };
    memcpy(out, fixed, sizeof fixed);
    out += sizeof fixed / 8;
    memcpy(out, extents->problems.counts, sizeof extents->problems.counts);
    out += EXTENT_CODES;
    memcpy(out, job->cached_counts, sizeof job->cached_counts);
    out += CACHED_REASONS;
    *out++ = extents->problems.listed;
    *out++ = job->cached_listed;
    memcpy(out, extents->problems.rows, sizeof extents->problems.rows);
    memcpy(out + MOST_PROBLEMS * 3, job->cached_rows, sizeof job->cached_rows);
}

/* Copies up to `room` ranges (begin, end); returns how many there are. */
EXPORT uint64_t heapx_extents_ranges(const struct extents_job *job, uint64_t room, uint64_t *out)
{
    if (room && job->range_count)
        memcpy(out, job->ranges, (size_t) (room < job->range_count ? room : job->range_count) * sizeof *job->ranges);
    return job->range_count;
}

static uint64_t write_rows(uint64_t *out, uint64_t *place, const void *rows, uint64_t count, size_t numbers)
{
    const uint64_t *row = rows;
    uint64_t written = 0;
    for (uint64_t i = 0; i < count; i++, row += numbers) {
        uint64_t any = 0;
        for (size_t k = 0; k < numbers; k++)
            any |= row[k];
        if (!any)
            continue;
        out[(*place)++] = i;
        memcpy(out + *place, row, numbers * 8);
        *place += numbers;
        written++;
    }
    return written;
}

/* Writes three numbers for each of five states; how many bins, larges and classes follow; those, each after its number. 0: the arena has no extent. */
EXPORT int heapx_extents_arena(const struct extents_job *job, uint64_t index, uint64_t *out)
{
    const struct arena_totals *arena = job->arenas[index];
    if (!arena)
        return 0;
    memcpy(out, arena->states, sizeof arena->states);
    uint64_t place = 3 * STATES + 3;
    out[3 * STATES] = write_rows(out, &place, arena->bins, job->extents.nbins, 4);
    out[3 * STATES + 1] = write_rows(out, &place, arena->larges, job->extents.nsizes, 4);
    out[3 * STATES + 2] = write_rows(out, &place, arena->rows, EXTENT_CLASSES, 6);
    return 1;
}

/* How many numbers heapx_extents_summary and heapx_extents_arena may write. */
EXPORT uint64_t heapx_extents_numbers(const struct extents_job *job)
{
    uint64_t summary = 10 + EXTENT_CODES + CACHED_REASONS + 5 * MOST_PROBLEMS;
    uint64_t arena = 3 * STATES + 3 + 5 * (job->extents.nbins + job->extents.nsizes) + 7 * EXTENT_CLASSES;
    return summary > arena ? summary : arena;
}
