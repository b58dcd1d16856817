/* Lists followed together, in slices: fastbins, thread caches, bins. follow.c says what a list is; the rest is for those that jump about
   in memory. */
#include "links.h"

#include <stdlib.h>

#define RANGE_BYTES (UINT64_C(64) << 20)
/* Short lists are read link by link, long ones through pages, since neighbours in a list are often neighbours in memory. */
#define DIRECT_READS 32u
#define COLUMNS 8u

enum phase { PHASE_FOLLOW, PHASE_SCAN, PHASE_JOIN, PHASE_SEGMENTS, PHASE_MARKS, PHASE_COLLECT, PHASE_DONE };

void heapx_lists_free(struct lists *lists)
{
    if (!lists)
        return;
    scan_close(lists);
    join_close(lists);
    collect_close(lists);
    store_close(&lists->store);
    pages_close(&lists->pages);
    for (int way = 0; way < WAYS; way++)
        free(lists->segments[way].of_group);
    free(lists->entries.values);
    free(lists->mapped.values);
    free(lists->ranges);
    free(lists->items);
    free(lists);
}

/* The caller's ranges by pages, those that touch joined, cut at multiples of 64 MiB. With `ranges` NULL they are counted. */
static size_t cut_ranges(const uint64_t *given, size_t count, struct range *ranges)
{
    size_t made = 0;
    for (size_t i = 0; i < count;) {
        uint64_t begin = given[2 * i] & ~(uint64_t) (CACHE_PAGE - 1), end = given[2 * i + 1];
        for (i++; i < count && given[2 * i] <= end + CACHE_PAGE; i++)
            end = given[2 * i + 1] > end ? given[2 * i + 1] : end;
        end = end > ADDRESS_MASK ? ADDRESS_MASK & ~(uint64_t) (CACHE_PAGE - 1) : (end + CACHE_PAGE - 1) & ~(uint64_t) (CACHE_PAGE - 1);
        while (begin < end) {
            uint64_t beyond = (begin | (RANGE_BYTES - 1)) + 1;
            if (beyond > end)
                beyond = end;
            if (ranges)
                ranges[made] = (struct range) {begin, beyond, 0, 0, 0};
            made++;
            begin = beyond;
        }
    }
    return made;
}

static int set_ranges(struct lists *lists, const uint64_t *given, size_t count)
{
    lists->range_count = cut_ranges(given, count, NULL);
    lists->ranges = malloc(lists->range_count * sizeof *lists->ranges + 1);
    if (!lists->ranges)
        return 0;
    cut_ranges(given, count, lists->ranges);
    lists->may_scan = lists->range_count > 0;
    return 1;
}

static int set_lists(struct lists *lists, const uint64_t *heads, const uint64_t *kinds, const uint64_t *limits)
{
    lists->items = calloc(lists->count + 1, sizeof *lists->items);
    if (!lists->items)
        return 0;
    for (size_t i = 0; i < lists->count; i++) {
        struct list *list = &lists->items[i];
        list->head = list->first = list->entry = list->trap = heads[i];
        list->kind = (uint8_t) kinds[i];
        list->limit = limits[i];
        list->laps = 1;
        list->begun = list->kind != BIN;
        lists->has_bins |= list->kind == BIN;
    }
    return 1;
}

/* `columns`: the heads of all lists, then their kinds, then their limits. `ranges`: begin and end of memory where members may lie,
   sorted. */
struct lists *heapx_lists_new(const struct source *source, const struct geometry *geometry, const uint64_t *columns, uint64_t count,
                              const uint64_t *ranges, uint64_t range_count, const struct rules *rules, unsigned threads)
{
    struct lists *lists = calloc(1, sizeof *lists);
    if (!lists)
        return NULL;
    geometry_set(&lists->geometry, geometry);
    lists->source = source;
    pages_open(&lists->pages, source, DIRECT_READS);
    lists->count = (size_t) count;
    lists->mangled = rules->mangled != 0;
    lists->collect = rules->collect != 0;
    const uint64_t smallest = lists->geometry.min_chunk, most = (UINT64_C(1) << NODE_RAW_BITS) - lists->geometry.alignment;
    lists->largest = rules->largest_bytes < smallest ? smallest : rules->largest_bytes > most ? most : rules->largest_bytes;
    lists->patience = rules->patience_reads;
    lists->threads = threads > MAX_THREADS ? MAX_THREADS : threads ? threads : 1;
    if (!source_is_parallel(source))
        lists->threads = 1;
    if (!set_lists(lists, columns, columns + count, columns + 2 * count) || !set_ranges(lists, ranges, (size_t) range_count)) {
        heapx_lists_free(lists);
        return NULL;
    }
    return lists;
}

static size_t waiting(const struct lists *lists, int state, int way)
{
    size_t count = 0;
    for (size_t i = 0; i < lists->count; i++)
        count += lists->items[i].state == state && (way < 0 || way_of(lists->items[i].kind) == way);
    return count;
}

static void wake(struct lists *lists, int state)
{
    for (size_t i = 0; i < lists->count; i++)
        if (lists->items[i].state == state)
            lists->items[i].state = LIST_RUNNING;
}

/* No memory for a store: the lists are read. */
static void do_without(struct lists *lists)
{
    scan_close(lists);
    join_close(lists);
    lists->may_scan = 0;
    wake(lists, LIST_WAITS_FOR_SCAN);
    wake(lists, LIST_WAITS_FOR_SEGMENTS);
    lists->phase = PHASE_FOLLOW;
}

/* Every list has ended or waits: what they wait for is next. */
static void after_follow(struct lists *lists)
{
    lists->at = 0;
    if (waiting(lists, LIST_WAITS_FOR_SCAN, -1)) {
        if (!lists->has_store)
            lists->has_store = store_open(&lists->store, &lists->geometry, lists->ranges, lists->range_count);
        lists->phase = PHASE_SCAN;
        if (!lists->has_store || !scan_open(lists))
            do_without(lists);
        return;
    }
    for (int way = 0; way < WAYS; way++) {
        if (!waiting(lists, LIST_WAITS_FOR_SEGMENTS, way))
            continue;
        lists->phase = PHASE_SEGMENTS;
        if (!join_open(lists, JOIN_SEGMENTS, way))
            do_without(lists);
        return;
    }
    lists->way = 0;
    lists->phase = !lists->collect ? PHASE_DONE : lists->has_bins ? PHASE_MARKS : PHASE_COLLECT;
}

static void collect(struct lists *lists)
{
    if (!lists->collection && !collect_open(lists)) {
        lists->no_memory = 1;
        return;
    }
    int found = collect_slice(lists);
    if (found == COLLECT_DONE)
        lists->phase = PHASE_DONE;
    else if (found == COLLECT_WANTS_MARKS)
        lists->phase = PHASE_MARKS;
}

static void follow_all(struct lists *lists)
{
    while (lists->at < lists->count) {
        struct list *list = &lists->items[lists->at];
        if (list->state == LIST_RUNNING && follow(lists, list) != FOLLOW_DONE)
            return;
        lists->at++;
    }
    after_follow(lists);
}

/* What is done for one way after the other, so that only one kind of members is marked at a time. 1: all are done. */
static int way_by_way(struct lists *lists, int what)
{
    while (lists->way < WAYS) {
        int any = what == JOIN_LISTS ? waiting(lists, LIST_WAITS_FOR_SCAN, lists->way) > 0 : lists->segments[lists->way].groups > 0;
        if (!lists->join && any && !join_open(lists, what, lists->way)) {
            lists->no_memory = what == JOIN_MARKS;  /* without the other the lists are followed one by one */
            return !lists->no_memory;
        }
        if (lists->join && join_slice(lists))
            return 0;
        join_close(lists);
        lists->way++;
    }
    return 1;
}

static void work_on(struct lists *lists)
{
    switch (lists->phase) {
    case PHASE_FOLLOW:
        follow_all(lists);
        break;
    case PHASE_SCAN:
        if (!scan_slice(lists)) {
            scan_close(lists);
            lists->way = 0;
            lists->phase = PHASE_JOIN;
        }
        break;
    case PHASE_JOIN:
        if (way_by_way(lists, JOIN_LISTS)) {
            wake(lists, LIST_WAITS_FOR_SCAN);
            lists->phase = PHASE_FOLLOW;
        }
        break;
    case PHASE_SEGMENTS:
        if (!join_slice(lists)) {
            join_close(lists);
            wake(lists, LIST_WAITS_FOR_SEGMENTS);
            lists->phase = PHASE_FOLLOW;
        }
        break;
    case PHASE_MARKS:
        if (way_by_way(lists, JOIN_MARKS)) {
            lists->has_marks = 1;
            lists->phase = PHASE_COLLECT;
            if (lists->collection)
                collect_again(lists);
        }
        break;
    default:
        collect(lists);
    }
}

/* Works for about `seconds`: 1 if there is more to do, 0 if not, INTERRUPTED, or NO_MEMORY. */
int64_t heapx_lists_slice(struct lists *lists, double seconds)
{
    lists->deadline = clock_now() + seconds;
    lists->pages.interrupted = 0;
    while (lists->phase != PHASE_DONE) {
        work_on(lists);
        if (lists->no_memory)
            return NO_MEMORY;
        if (lists->pages.interrupted)
            return INTERRUPTED;
        if (lists->phase != PHASE_DONE && clock_now() > lists->deadline)
            return 1;
    }
    return 0;
}

/* `out`: for each list, one column after the other: count, problem, at, last, bytes, raw_bytes, raw_min, raw_max. The last four only
   where sizes were read: of bins and sized lists. */
void heapx_lists_result(const struct lists *lists, uint64_t *out)
{
    const size_t n = lists->count;
    for (size_t i = 0; i < n; i++) {
        const struct list *list = &lists->items[i];
        const int sized = list->kind == BIN || list->kind == TCACHE_SIZED;
        const uint64_t row[COLUMNS] = {
            list->tally.count, list->state == LIST_ENDED ? list->problem : CUT, list->at, list->tally.last,
            sized ? list->tally.bytes : 0, sized ? list->tally.raw_bytes : 0, sized ? list->tally.raw_min : 0, sized
            ? list->tally.raw_max : 0,
        };
        for (unsigned column = 0; column < COLUMNS; column++)
            out[column * n + i] = row[column];
    }
}

/* What shall stand among the members; the numbers stay the caller's. */
void heapx_lists_also(struct lists *lists, const uint64_t *values, uint64_t count)
{
    lists->also = values;
    lists->also_count = (size_t) count;
}

/* The members of all lists, sorted, as collect_take() gives them. None where `collect` was not asked for or it did not come so far. */
uint64_t heapx_lists_take(struct lists *lists, uint64_t **values, uint64_t *bytes)
{
    return collect_take(lists, values, bytes);
}

void heapx_numbers_free(uint64_t *values, uint64_t bytes)
{
    big_free(values, (size_t) bytes);
}

/* How many numbers there are; they themselves are at `values` as long as the job is. With `mapped` chunks that have a mapping of their
   own, else those that stand on more than one place. */
uint64_t heapx_lists_apart(const struct lists *lists, int mapped, const uint64_t **values)
{
    if (!mapped)
        return collect_twice(lists, values);
    *values = lists->mapped.values;
    return lists->mapped.count;
}
