/* The members of all lists, sorted: those that are marked in the store come in order, those that were read one by one are sorted and
   merged in. A chunk that stands on two lists, or twice on one, is given once, and told. */
#include "../common/sort.h"
#include "links.h"

#include <stdlib.h>

#define ENTRIES_BEYOND (UINT64_C(1) << 24)

enum { STEP_SORT, STEP_MERGE, STEP_CHECK, STEP_WAITS_FOR_MARKS, STEP_ANEW, STEP_DONE };

struct collection {
    int step;
    int without_store;          /* members in it were taken anew */
    uint64_t marked;            /* members given out of the store */
    uint64_t most;              /* STEP_ANEW: more entries are not kept */
    size_t list, range;         /* STEP_ANEW, STEP_MERGE: where it is */
    uint64_t done, entry;       /* entries of that list so far, and the next */
    uint64_t slab;              /* the number of the range's next slab, 0: its first */
    uint64_t *spare;
    struct sort sort;
    size_t taken;               /* of the sorted entries */
    uint64_t *found;            /* room for all that can be given */
    size_t count, room;
    struct entries twice;
    uint64_t last;              /* given last */
};

int collect_open(struct lists *lists)
{
    lists->collection = calloc(1, sizeof *lists->collection);
    if (!lists->collection)
        return 0;
    lists->collection->last = 1;    /* no chunk */
    return 1;
}

void collect_close(struct lists *lists)
{
    struct collection *collection = lists->collection;
    if (!collection)
        return;
    free(collection->spare);
    big_free(collection->found, collection->room * sizeof *collection->found);
    free(collection->twice.values);
    free(collection);
    lists->collection = NULL;
}

static uint64_t entries_met(const struct lists *lists)
{
    uint64_t met = 0;
    for (size_t i = 0; i < lists->count; i++)
        met += lists->items[i].tally.count;
    return met;
}

/* 0: no memory. */
static int start_sort(struct lists *lists)
{
    struct collection *collection = lists->collection;
    struct entries *entries = &lists->entries;
    for (size_t i = 0; i < lists->also_count; i++)
        if (!entries_add(entries, lists->also[i]))
            return 0;
    big_free(collection->found, collection->room * sizeof *collection->found);
    const uint64_t nodes = collection->without_store ? 0 : 2 * (uint64_t) lists->store.block_count * NODES_AT_ONCE,
            met = entries_met(lists);
    collection->room = (size_t) (met < nodes ? met : nodes) + entries->count + 1;
    collection->found = big_alloc(collection->room * sizeof *collection->found);
    if (!collection->found)
        return 0;
    collection->spare = malloc(entries->count * sizeof *collection->spare + 1);
    if (!collection->spare)
        return 0;
    sort_open(&collection->sort, entries->values, collection->spare, entries->count);
    return 1;
}

/* More were given than can be: what is no member led into a segment. Those beyond are counted alone, and check() sees that there are too
   many. */
static int give_twice(struct collection *collection, uint64_t chunk)
{
    const struct entries *twice = &collection->twice;
    return twice->count && twice->values[twice->count - 1] == chunk ? 1 : entries_add(&collection->twice, chunk);
}

static inline int give(struct collection *collection, uint64_t value)
{
    const uint64_t chunk = value & ~(uint64_t) FLAGS;
    if (chunk == collection->last)
        return give_twice(collection, chunk);
    collection->last = chunk;
    if (collection->count < collection->room)
        collection->found[collection->count++] = value;
    return 1;
}

/* The sorted entries below `until`. */
static inline int give_entries(struct collection *collection, uint64_t until)
{
    const uint64_t *values = collection->sort.values;
    const size_t count = collection->sort.count;
    while (collection->taken < count && values[collection->taken] < until)
        if (!give(collection, values[collection->taken++]))
            return 0;
    return 1;
}

/* The node is a member: it is marked, or the segment that came by last is part of a list. */
static inline int is_member(const struct lists *lists, const struct node *node, uint64_t bit, int way, unsigned shift)
{
    const uint64_t group = node->back >> shift & NODE_GROUP_MASK;
    if (node->back & bit)
        return 1;
    return !lists->has_marks && group && lists->segments[way].of_group[group - 1].used_by;
}

/* The members among one bucket's nodes, and the entries before them. 0: no memory. */
static inline int merge_bucket(struct lists *lists, const struct bucket *bucket, uint64_t base)
{
    struct collection *collection = lists->collection;
    const uint64_t tag = lists->has_bins ? 0 : SPECIAL_TCACHE;
    const struct node *node = store_node(&lists->store, bucket->first);
    for (uint64_t bits = bucket->bits; bits; bits &= bits - 1, node++) {
        const uint64_t slot = ones((bits & -bits) - 1), chunk = base + (slot << lists->store.slot_shift) - 2 * lists->geometry.word;
        if (is_member(lists, node, NODE_FAST_MEMBER, WAY_FAST, NODE_GROUP_BITS)) {
            collection->marked++;
            if (!give_entries(collection, chunk | SPECIAL_FAST) || !give(collection, chunk | SPECIAL_FAST))
                return 0;
        }
        if (is_member(lists, node, NODE_MEMBER, WAY_TCACHE, 0)) {
            collection->marked++;
            if (!give_entries(collection, chunk | tag) || !give(collection, chunk | tag))
                return 0;
        }
    }
    return 1;
}

static int merge_slab(struct lists *lists, const struct range *range, uint64_t number)
{
    const struct store *store = &lists->store;
    const struct slab *slab = store_slab(store, number << SLAB_SHIFT);
    const uint64_t bytes = UINT64_C(1) << (store->slot_shift + 6), from = number << SLAB_SHIFT, to = (number + 1) << SLAB_SHIFT;
    if (!slab || !slab->buckets)
        return 1;
    for (uint64_t base = from > range->begin ? from : range->begin; base < to && base < range->end; base += bytes) {
        const struct bucket *bucket = slab->buckets + ((base & (SLAB_BYTES - 1)) >> (store->slot_shift + 6));
        if (bucket->bits && !merge_bucket(lists, bucket, base))
            return 0;
    }
    return 1;
}

/* One slab after the other. 1: more to do. */
static int merge(struct lists *lists)
{
    struct collection *collection = lists->collection;
    while (lists->has_store && !collection->without_store && collection->range < lists->range_count) {
        const struct range *range = &lists->ranges[collection->range];
        const uint64_t number = collection->slab ? collection->slab : range->begin >> SLAB_SHIFT;
        if (range->scanned && !merge_slab(lists, range, number)) {
            lists->no_memory = 1;
            return 0;
        }
        collection->slab = number + 1;
        if (!range->scanned || collection->slab > (range->end - 1) >> SLAB_SHIFT) {
            collection->range++;
            collection->slab = 0;
        }
        if (clock_now() > lists->deadline)
            return 1;
    }
    lists->no_memory |= !give_entries(collection, UINT64_MAX);
    collection->step = collection->without_store ? STEP_DONE : STEP_CHECK;
    return 0;
}

/* From the first slab on, with what is sorted already. */
void collect_again(struct lists *lists)
{
    struct collection *collection = lists->collection;
    collection->step = STEP_MERGE;
    collection->range = collection->taken = 0;
    collection->slab = collection->marked = 0;
    collection->twice.count = collection->count = 0;
    collection->last = 1;       /* no chunk */
}

/* Every entry was given once, unless what is no member led into a segment, which marks tell; or unless lists share some: then all are
   taken anew. */
static void check(struct lists *lists)
{
    struct collection *collection = lists->collection;
    const uint64_t kept = lists->entries.count - lists->also_count + lists->mapped.count;
    collection->step = STEP_DONE;
    if (!lists->collect_anew && entries_met(lists) == collection->marked + kept)
        return;
    if (!lists->has_marks) {
        collection->step = STEP_WAITS_FOR_MARKS;
        return;
    }
    collect_again(lists);
    collection->step = STEP_ANEW;
    collection->without_store = 1;
    lists->may_scan = 0;        /* no list waits any more: what was not noted is read */
    collection->most = lists->store.block_count * (uint64_t) NODES_AT_ONCE + kept + ENTRIES_BEYOND;
    collection->entry = lists->count ? lists->items[0].first : 0;
    lists->entries.count = lists->mapped.count = 0;
    free(collection->spare);
    collection->spare = NULL;
}

/* All lists once more, one entry after the other. 1: more to do. */
static int collect_anew(struct lists *lists)
{
    struct collection *collection = lists->collection;
    for (unsigned steps = 1; collection->list < lists->count; steps++) {
        const struct list *list = &lists->items[collection->list];
        struct link link;
        if (steps % 256 == 0 && clock_now() > lists->deadline)
            return 1;
        int loaded = LOAD_UNREADABLE;
        if (collection->done < list->tally.count && lists->entries.count < collection->most)
            loaded = load(lists, list, collection->entry, &link);
        if (loaded == LOAD_PAUSED)
            return 1;
        if (loaded != LOAD_DONE) {
            collection->done = 0;
            if (++collection->list < lists->count)
                collection->entry = list[1].first;
            continue;
        }
        link.node = NO_NODE;
        if (!keep(lists, list, collection->entry, &link)) {
            lists->no_memory = 1;
            return 0;
        }
        collection->entry = link.next;
        collection->done++;
    }
    collection->step = STEP_SORT;
    return 0;
}

static int sort_entries(struct lists *lists)
{
    struct collection *collection = lists->collection;
    if (!collection->spare && !start_sort(lists)) {
        lists->no_memory = 1;
        return 0;
    }
    if (sort_slice(&collection->sort, lists->deadline))
        return 1;
    collection->step = STEP_MERGE;
    return 0;
}

int collect_slice(struct lists *lists)
{
    struct collection *collection = lists->collection;
    while (collection->step != STEP_DONE && !lists->no_memory) {
        if (collection->step == STEP_WAITS_FOR_MARKS)
            return COLLECT_WANTS_MARKS;
        int more = 0;
        switch (collection->step) {
        case STEP_SORT:
            more = sort_entries(lists);
            break;
        case STEP_MERGE:
            more = merge(lists);
            break;
        case STEP_CHECK:
            check(lists);
            break;
        default:
            more = collect_anew(lists);
        }
        if (more || lists->pages.interrupted || clock_now() > lists->deadline)
            return collection->step == STEP_DONE ? COLLECT_DONE : COLLECT_MORE;
    }
    return COLLECT_DONE;
}

uint64_t collect_twice(const struct lists *lists, const uint64_t **values)
{
    const struct collection *collection = lists->collection;
    if (!collection || collection->step != STEP_DONE)
        return 0;
    *values = collection->twice.values;
    return collection->twice.count;
}

uint64_t collect_take(struct lists *lists, uint64_t **values, uint64_t *bytes)
{
    struct collection *collection = lists->collection;
    if (!collection || collection->step != STEP_DONE)
        return 0;
    *values = collection->found;
    *bytes = collection->room * sizeof *collection->found;
    collection->found = NULL;
    return collection->count;
}
