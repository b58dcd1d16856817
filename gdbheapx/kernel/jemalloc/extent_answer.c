/* The answer of a walk over jemalloc's extents, as flat numbers: binding.py makes records of them. */
#include "extent_totals.h"

/* `out`: done, at; nodes, leaf nodes, extents, unassociated, unparsed bytes, unreadable bytes; problems and details by code; cached
   pointers by reason; how many problems, details and cached pointers follow, and those. */
void heapx_extents_summary(const struct extents_job *job, uint64_t *out)
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
    memcpy(out, extents->details.counts, sizeof extents->details.counts);
    out += EXTENT_CODES;
    memcpy(out, job->cached_counts, sizeof job->cached_counts);
    out += CACHED_REASONS;
    *out++ = extents->problems.listed;
    *out++ = extents->details.listed;
    *out++ = job->cached_listed;
    memcpy(out, extents->problems.rows, sizeof extents->problems.rows);
    memcpy(out + MOST_PROBLEMS * 3, extents->details.rows, sizeof extents->details.rows);
    memcpy(out + MOST_PROBLEMS * 6, job->cached_rows, sizeof job->cached_rows);
}

/* Copies up to `room` ranges (begin, end); returns how many there are. */
uint64_t heapx_extents_ranges(const struct extents_job *job, uint64_t room, uint64_t *out)
{
    if (room && job->range_count)
        memcpy(out, job->ranges, (size_t) (room < job->range_count ? room : job->range_count) * sizeof *job->ranges);
    return job->range_count;
}

#define STATE_NUMBERS (sizeof(struct state_totals) / 8)

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

/* Writes STATE_NUMBERS for each of five states; how many bins, larges and classes follow; those, each after its number. 0: the arena has
   no extent. */
int heapx_extents_arena(const struct extents_job *job, uint64_t index, uint64_t *out)
{
    const struct arena_totals *arena = job->arenas[index];
    if (!arena)
        return 0;
    memcpy(out, arena->states, sizeof arena->states);
    uint64_t place = STATE_NUMBERS * STATES + 3;
    out[STATE_NUMBERS * STATES] = write_rows(out, &place, arena->bins, job->extents.nbins, 4);
    out[STATE_NUMBERS * STATES + 1] = write_rows(out, &place, arena->larges, job->extents.nsizes, 4);
    out[STATE_NUMBERS * STATES + 2] = write_rows(out, &place, arena->rows, EXTENT_CLASSES, 6);
    return 1;
}

/* How many numbers heapx_extents_summary and heapx_extents_arena may write. */
uint64_t heapx_extents_numbers(const struct extents_job *job)
{
    uint64_t summary = 11 + 2 * EXTENT_CODES + CACHED_REASONS + 8 * MOST_PROBLEMS;
    uint64_t arena = STATE_NUMBERS * STATES + 3 + 5 * (job->extents.nbins + job->extents.nsizes) + 7 * EXTENT_CLASSES;
    return summary > arena ? summary : arena;
}
