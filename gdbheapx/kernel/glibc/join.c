/* Many lists, or parts of one, followed through the store side by side.

   Each step along a list waits for memory twice, for the bucket and for the node. So each thread has some dozens of walkers in hand and
   moves one after the other by half a step, after it asked for what the next half will need. One long list has no other beside it: it is
   cut into segments. Each group of 256 nodes has one at which a segment begins; the part from there to the next such node is followed for
   all of them, and the list itself then goes from segment to segment (follow.c). Segments of what is no member of any list are followed
   in vain and never taken. */
#include "links.h"

#include <stdlib.h>

#define WALKERS 32u
#define ROUNDS_BETWEEN_CLOCKS 256u
#define ITEMS_AT_ONCE 64u
#define LIST_STEPS 1024u        /* beyond them a list is long: it wants segments */
#define SEGMENT_STEPS 8192u     /* a segment that meets no other start by then is cut there */

enum { WALKER_IDLE, WALKER_HAS_NODE, WALKER_HAS_BUCKET };

struct walker {
    int state;
    uint32_t node, group;
    uint32_t steps, most;       /* entries so far, entries at most */
    const struct bucket *bucket;
    uint64_t entry, previous;
    uint64_t offset;            /* from an entry to its link */
    uint64_t kind_bit;          /* NODE_IN_BIN or NODE_SINGLE */
    uint8_t kind;
    struct tally tally;
    struct list *list;          /* of JOIN_LISTS */
    struct segment *segment;    /* of the others */
};

struct joiner {
    struct lists *lists;
    size_t next, until;         /* items that this thread has taken */
    struct walker walkers[WALKERS];
};

struct join {
    int what, way;
    size_t next, count;         /* lists or groups that nobody has taken yet */
    unsigned threads;
    struct joiner joiners[MAX_THREADS];
};

/* Walker at a list's next entry, which must be in the store; 0 if it is not. */
static int place(struct lists *lists, struct walker *walker, int kind, uint64_t entry)
{
    const struct chunk_geometry *geometry = &lists->geometry;
    walker->kind = (uint8_t) kind;
    walker->kind_bit = kind == BIN ? NODE_IN_BIN : NODE_SINGLE;
    walker->offset = link_offset(geometry, kind);
    walker->entry = entry;
    walker->steps = 0;
    memset(&walker->tally, 0, sizeof walker->tally);
    uint64_t key = (entry + walker->offset) & word_mask(geometry);
    walker->bucket = entry && !(key & (geometry->alignment - 1)) ? store_bucket(&lists->store, key) : NULL;
    if (!walker->bucket)
        return 0;
    __builtin_prefetch(walker->bucket);
    walker->state = WALKER_HAS_BUCKET;
    return 1;
}

/* A list that waited for the scan. */
static int begin_list(struct lists *lists, struct walker *walker, struct list *list)
{
    if (list->state != LIST_WAITS_FOR_SCAN || way_of(list->kind) != lists->join->way)
        return 0;
    list->state = LIST_RUNNING;
    if (!place(lists, walker, list->kind, list->entry))
        return 0;
    uint64_t left = list->limit - list->tally.count;
    walker->list = list;
    walker->previous = list->tally.count ? list->tally.last : list->head;
    walker->most = left < LIST_STEPS ? (uint32_t) left : LIST_STEPS;
    return walker->most > 0;
}

/* The segment of a group: from its start; from where it ended before, if memory was looked through since; or once more, to mark its
   members. */
static int begin_segment(struct lists *lists, struct walker *walker, uint32_t group)
{
    const struct join *join = lists->join;
    struct segment *segment = &lists->segments[join->way].of_group[group];
    const int kind = join->way == WAY_BIN ? BIN : join->way == WAY_FAST ? FAST : TCACHE, marks = join->what == JOIN_MARKS;
    const uint64_t start = store_start(&lists->store, group), goes_on = !marks && segment->tally.count;
    if (!start || (marks ? !segment->used_by : segment->used_by))   /* what a list has taken stays as it was then */
        return 0;
    if (!place(lists, walker, kind, goes_on ? segment->next : (start - link_offset(&lists->geometry, kind)) & word_mask(&lists->geometry)))
        return 0;
    walker->segment = segment;
    walker->group = group;
    walker->list = NULL;
    walker->previous = 0;
    walker->most = marks ? (uint32_t) segment->tally.count : SEGMENT_STEPS;
    if (goes_on) {
        walker->tally = segment->tally;
        walker->previous = segment->tally.last;
        return 1;
    }
    walker->node = group_start(group);
    walker->state = WALKER_HAS_NODE;
    __builtin_prefetch(store_node(&lists->store, walker->node));
    return 1;
}

static void end_walk(struct lists *lists, struct walker *walker)
{
    walker->state = WALKER_IDLE;
    if (walker->list) {
        tally_add(&walker->list->tally, &walker->tally);
        walker->list->entry = walker->entry;
        return;
    }
    if (lists->join->what == JOIN_SEGMENTS) {
        walker->segment->tally = walker->tally;
        walker->segment->next = walker->entry;
    }
}

/* The node is here: its entry is counted, and the bucket of the next asked for. */
static void leave_node(struct lists *lists, struct walker *walker)
{
    const struct chunk_geometry *geometry = &lists->geometry;
    struct node *node = store_node(&lists->store, walker->node);
    const uint64_t next = node->next & ADDRESS_MASK;
    if (!(node->back & walker->kind_bit)
        || (walker->kind == BIN && walker->previous && (node->back & ADDRESS_MASK) != walker->previous)) {
        end_walk(lists, walker);        /* follow() looks at it itself */
        return;
    }
    tally_one(&walker->tally, walker->entry, node_raw(node));
    if (lists->collect && lists->join->what != JOIN_SEGMENTS)
        node_mark(node, walker->kind);
    else if (lists->collect && !lists->has_bins)
        node_set_group(node, walker->kind, walker->group);
    walker->steps++;
    walker->previous = walker->entry;
    walker->entry = next;
    const uint64_t key = (next + walker->offset) & word_mask(geometry);
    if (walker->steps >= walker->most || !next || (key & (geometry->alignment - 1))
        || !(walker->bucket = store_bucket(&lists->store, key))) {
        end_walk(lists, walker);
        return;
    }
    walker->state = WALKER_HAS_BUCKET;
    __builtin_prefetch(walker->bucket);
}

/* The bucket is here: the node is asked for. */
static void leave_bucket(struct lists *lists, struct walker *walker)
{
    const uint64_t key = (walker->entry + walker->offset) & word_mask(&lists->geometry);
    walker->node = bucket_node(&lists->store, walker->bucket, key);
    if (walker->node == NO_NODE || (!walker->list && is_group_start(walker->node))) {
        end_walk(lists, walker);
        return;
    }
    walker->state = WALKER_HAS_NODE;
    __builtin_prefetch(store_node(&lists->store, walker->node));
}

/* Gives an idle walker the next item; 0 if there is none. */
static int take(struct joiner *joiner, struct walker *walker)
{
    struct lists *lists = joiner->lists;
    struct join *join = lists->join;
    for (;;) {
        if (joiner->next == joiner->until) {
            joiner->next = __atomic_fetch_add(&join->next, ITEMS_AT_ONCE, __ATOMIC_RELAXED);
            joiner->until = joiner->next + ITEMS_AT_ONCE < join->count ? joiner->next + ITEMS_AT_ONCE : join->count;
            if (joiner->next >= join->count) {
                joiner->next = joiner->until = 0;
                return 0;
            }
        }
        size_t item = joiner->next++;
        if (join->what == JOIN_LISTS ? begin_list(lists, walker, &lists->items[item]) : begin_segment(lists, walker, (uint32_t) item))
            return 1;
    }
}

static void *walk_on(void *given)
{
    struct joiner *joiner = given;
    struct lists *lists = joiner->lists;
    unsigned busy = 1;
    for (unsigned rounds = 1; busy; rounds++) {
        if (rounds % ROUNDS_BETWEEN_CLOCKS == 0 && clock_now() > lists->deadline)
            break;
        busy = 0;
        for (unsigned i = 0; i < WALKERS; i++) {
            struct walker *walker = &joiner->walkers[i];
            if (walker->state == WALKER_IDLE && !take(joiner, walker))
                continue;
            busy = 1;
            if (walker->state == WALKER_HAS_NODE)
                leave_node(lists, walker);
            else
                leave_bucket(lists, walker);
        }
    }
    return NULL;
}

int join_open(struct lists *lists, int what, int way)
{
    struct join *join = lists->join = calloc(1, sizeof *join);
    struct segments *segments = &lists->segments[way];
    if (!join)
        return 0;
    join->what = what;
    join->way = way;
    join->threads = lists->threads;
    join->count = what == JOIN_LISTS ? lists->count : segments->groups;
    for (unsigned i = 0; i < join->threads; i++)
        join->joiners[i].lists = lists;
    if (what != JOIN_SEGMENTS)
        return 1;
    uint32_t groups = lists->store.block_count * GROUPS_IN_BLOCK;
    struct segment *grown = realloc(segments->of_group, groups * sizeof *grown);
    if (!grown)
        return 0;
    memset(grown + segments->groups, 0, (groups - segments->groups) * sizeof *grown);
    join->count = groups;
    segments->of_group = grown;
    return 1;
}

int join_slice(struct lists *lists)
{
    struct join *join = lists->join;
    threads_run(walk_on, join->joiners, sizeof *join->joiners, join->threads);
    for (unsigned i = 0; i < join->threads; i++) {
        const struct joiner *joiner = &join->joiners[i];
        for (unsigned k = 0; k < WALKERS; k++)
            if (joiner->walkers[k].state != WALKER_IDLE)
                return 1;
        if (joiner->next < joiner->until)
            return 1;
    }
    if (join->next < join->count)
        return 1;
    if (join->what == JOIN_SEGMENTS) {
        lists->segments[join->way].groups = (uint32_t) join->count;
        lists->segments[join->way].scans = lists->scans;
    }
    return 0;
}

void join_close(struct lists *lists)
{
    free(lists->join);
    lists->join = NULL;
}
