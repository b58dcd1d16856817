/* The answer of a walk over jemalloc's extents, as records. */
#include "extent_totals.h"

void heapx_extents_summary(const struct extents_job *job, struct extents_summary *out)
{
    const struct extents *extents = &job->extents;
    out->done = (uint64_t) job->done;
    out->at = extents_at(extents);
    out->nodes = extents->tree.nodes;
    out->leaf_nodes = extents->tree.leaf_nodes;
    out->extents = job->counted;
    out->unassociated_extents = extents->unassociated;
    out->unparsed_bytes = extents->unparsed_bytes;
    out->unreadable_bytes = extents->tree.unreadable_bytes;
    out->problems = extents->problems.listed;
    out->details = extents->details.listed;
    out->cached_problems = job->cached_listed;
}

/* By code and by reason how many there are, and of the first MOST_PROBLEMS each. */
void heapx_extents_problems(const struct extents_job *job, uint64_t *counts, uint64_t *detail_counts, uint64_t *cached_counts,
                            struct extent_problem *problems, struct extent_problem *details, struct cached_problem *cached)
{
    const struct extents *extents = &job->extents;
    memcpy(counts, extents->problems.counts, sizeof extents->problems.counts);
    memcpy(detail_counts, extents->details.counts, sizeof extents->details.counts);
    memcpy(cached_counts, job->cached_counts, sizeof job->cached_counts);
    memcpy(problems, extents->problems.rows, sizeof extents->problems.rows);
    memcpy(details, extents->details.rows, sizeof extents->details.rows);
    memcpy(cached, job->cached_rows, sizeof job->cached_rows);
}

/* Copies up to `room` ranges (begin, end); returns how many there are. */
uint64_t heapx_extents_ranges(const struct extents_job *job, uint64_t room, uint64_t *out)
{
    if (room && job->range_count)
        memcpy(out, job->ranges, (size_t) (room < job->range_count ? room : job->range_count) * sizeof *job->ranges);
    return job->range_count;
}

/* Those rows that have anything, each with its number in front. */
static uint64_t write_rows(uint64_t *out, const void *rows, uint64_t count, size_t numbers)
{
    const uint64_t *row = rows;
    uint64_t written = 0;
    for (uint64_t i = 0; i < count; i++, row += numbers) {
        uint64_t any = 0;
        for (size_t k = 1; k < numbers; k++)
            any |= row[k];
        if (any) {
            memcpy(out + written * numbers, row, numbers * 8);
            out[written++ * numbers] = i;
        }
    }
    return written;
}

/* There is room for as many bins and larges as the layout has, and for EXTENT_CLASSES. Writes how many of each there are. 0: the arena
   has no extent. */
int heapx_extents_arena(const struct extents_job *job, uint64_t index, struct state_totals *states, struct bin_totals *bins,
                        struct large_totals *larges, uint64_t *classes, uint64_t *counts, struct absent_totals *absent)
{
    const struct arena_totals *arena = job->arenas[index];
    if (!arena)
        return 0;
    memcpy(states, arena->states, sizeof arena->states);
    *absent = arena->absent;
    counts[0] = write_rows((uint64_t *) bins, arena->bins, job->extents.nbins, sizeof *bins / 8);
    counts[1] = write_rows((uint64_t *) larges, arena->larges, job->extents.nsizes, sizeof *larges / 8);
    counts[2] = write_rows(classes, arena->rows, EXTENT_CLASSES, 1 + UNUSED_NUMBERS);
    return 1;
}
