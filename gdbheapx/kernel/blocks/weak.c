/* A second read for blocks that nothing leads to: pointers with their upper bits masked or packed, pointers that are not aligned, and
   pointers mangled with the guard of the thread's control block. Only pointers to the start of such a block count. What is found so is
   read, too, as what hangs behind it may hang on such pointers alone. */
#include "marks.h"

#define WEAK_READ (128u << 10)
#define WEAK_BLOCKS 65536u          /* one thread reads so many before it takes others */
#define NO_GROUP UINT64_MAX
#define PIECES_EACH 16u             /* of few blocks it takes fewer, so that no thread waits for another */

enum { WEAK_MASKED, WEAK_UNALIGNED, WEAK_MANGLED, WEAK_RULES };

/* What one thread reads at a time. */
struct weak_part {
    struct weak *weak;
    struct index_cursor cursor;
    uint32_t next, last;            /* blocks to be read */
    uint64_t at, end;               /* what is left of the one before */
    uint8_t *buffer;
    uint64_t begin, length;         /* what the buffer has */
    uint64_t group, bits;           /* of its words those of this group that may be addresses; NO_GROUP: it is not known of any */
    double deadline;
    int is_taken, has_ended;        /* in this slice by a thread; no blocks are left */
    int failed;
};

struct weak {
    const struct graph *graph;
    uint8_t *found;                 /* by node that is leaked: WEAK_ rule + 1, or 0 */
    struct weak_sieve sieve;
    uint32_t next, at_once;         /* blocks that no part has yet */
    unsigned threads;
    struct weak_part parts[MAX_THREADS];
    uint64_t ignorable;             /* bits of a pointer that the processor may ignore in this process: nobody knows */
    uint64_t tagged;                /* words that lead to a leaked block where it does */
    struct spread spread;           /* what hangs behind */
    unsigned rule;                  /* of what is being settled */
    uint32_t seed;                  /* the next block that may have been found by it */
    int is_settling, is_full;       /* full: there was no memory to remember a block */
};

/* Several threads may find the same block: the strongest rule stays, whoever comes first. */
static void note(uint8_t *found, unsigned rule)
{
    uint8_t before = __atomic_load_n(found, __ATOMIC_RELAXED);
    while ((!before || before > rule + 1)
           && !__atomic_compare_exchange_n(found, &before, (uint8_t) (rule + 1), 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

static void hit(struct weak *weak, uint64_t value, unsigned rule)
{
    const struct graph *graph = weak->graph;
    const uint32_t id = index_begin(&graph->index, value);
    if (id == NO_NODE || !is_leaked(graph->marks, id))
        return;
    note(&weak->found[id], rule);
    if (weak->is_settling && rule <= weak->rule && !is_marked(&weak->spread, id))
        weak->is_full |= !spread_push(&weak->spread, id);
}

/* A word that is a pointer without the bits that may be ignored. */
static void count_tagged(struct weak *weak, uint64_t address)
{
    const uint32_t id = index_begin(&weak->graph->index, address);
    if (id != NO_NODE && is_leaked(weak->graph->marks, id))
        __atomic_add_fetch(&weak->tagged, 1, __ATOMIC_RELAXED);
}

/* What may be a pointer in the word `value` by its upper bits or by the guard. */
static void look_at_word(struct weak *weak, uint64_t value)
{
    const struct weak_sieve *sieve = &weak->sieve;
    const uint64_t masked = value & (UINT64_MAX >> (64 - ADDRESS_BITS)), packed = value >> (64 - ADDRESS_BITS);
    if (masked != value && weak_is_in(sieve, masked)) {
        if ((value & ~weak->ignorable) == masked)
            count_tagged(weak, masked);
        hit(weak, masked & ~7ull, WEAK_MASKED);
    }
    if (weak_is_in(sieve, packed))
        hit(weak, packed, WEAK_MASKED);
    if (sieve->turn && weak_is_in(sieve, weak_unmangled(sieve, value)))
        hit(weak, weak_unmangled(sieve, value), WEAK_MANGLED);
}

static void look_at_bytes(struct weak *weak, const uint8_t *bytes, uint64_t size)
{
    const struct graph *graph = weak->graph;
    for (uint64_t at = 1; at < 8 && at + 8 <= size; at++) {
        const uint64_t value = load_word(bytes + at, 8, graph->swap) & ~weak->sieve.ignored;
        if (weak_is_in(&weak->sieve, value))
            hit(weak, value, WEAK_UNALIGNED);
    }
}

/* Bytes of the part's buffer. Where their words are this machine's, few are looked at. */
static void look_at(struct weak_part *part, const uint8_t *bytes, uint64_t size)
{
    struct weak *weak = part->weak;
    const uint64_t away = (uint64_t) (bytes - part->buffer), end = (away + size) / 8;
    const int is_plain = weak->graph->plain_words && away % 8 == 0;
    for (uint64_t word = away / 8, next; is_plain && word < end; word = next) {
        if (part->group != word / WEAK_GROUP) {
            part->group = word / WEAK_GROUP;
            part->bits = weak_sieve_words(&weak->sieve, part->buffer + 8 * WEAK_GROUP * part->group);
        }
        next = (part->group + 1) * WEAK_GROUP < end ? (part->group + 1) * WEAK_GROUP : end;
        uint64_t left = part->bits >> word % WEAK_GROUP << word % WEAK_GROUP;
        left &= next % WEAK_GROUP ? (1ull << next % WEAK_GROUP) - 1 : UINT64_MAX;
        for (; left; left &= left - 1) {
            const uint64_t at = 8 * (part->group * WEAK_GROUP + (unsigned) __builtin_ctzll(left)) - away;
            look_at_word(weak, load_word(bytes + at, 8, 0));
            look_at_bytes(weak, bytes + at, size - at);
        }
    }
    for (uint64_t at = 0; !is_plain && at + 8 <= size; at += 8) {
        look_at_word(weak, load_word(bytes + at, 8, weak->graph->swap));
        look_at_bytes(weak, bytes + at, size - at);
    }
}

/* Some block that begins in the slot is leaked. */
static int has_leaked(const struct graph *graph, const struct slot *slot)
{
    for (uint32_t id = slot->rank_before; id < slot->rank_after; id = (id | 63) + 1) {
        uint64_t some = leaked_of(graph->marks, id >> 6) >> (id & 63);
        if (slot->rank_after - id < 64 - (id & 63))
            some &= (1ull << (slot->rank_after - id)) - 1;
        if (some)
            return 1;
    }
    return 0;
}

/* The ranges are those where leaked blocks may begin: two, with the widest gap of all between them. */
static void find_ranges(const struct graph *graph, struct weak_sieve *sieve)
{
    const struct index *index = &graph->index;
    uint64_t first = 0, last = 0, below = 0, above = 0;
    for (uint32_t i = 0; i < index->slot_count; i++) {
        const struct slot *slot = index->in_order[i];
        if (slot->rank_before == slot->rank_after || !has_leaked(graph, slot))
            continue;
        const uint64_t begin = slot->begin + ((uint64_t) slot->first << (index->shift + 6));
        if (!last) {
            first = begin;
        } else if (begin - last > above - below) {
            below = last;
            above = begin;
        }
        last = slot->begin + ((uint64_t) slot->end << (index->shift + 6));
    }
    if (last)
        weak_sieve_add(sieve, first, above ? below : last);
    if (above)
        weak_sieve_add(sieve, above, last);
}

/* After the marks were made, of a graph of 64-bit words. `turn`: 64: a whole one; 0: no guard is known. `ignorable`: bits of a pointer of
   which it is not known whether they are ignored. NULL: no memory. */
struct weak *heapx_weak_new(const struct graph *graph, uint64_t guard, unsigned turn, uint64_t ignorable, unsigned threads)
{
    struct weak *weak = calloc(1, sizeof *weak);
    if (!weak)
        return NULL;
    *weak = (struct weak) {.graph = graph, .ignorable = ignorable,
                           .sieve = {.guard = guard, .turn = turn, .is_wide = graph->sieve.is_wide}};
    weak_sieve_ignore(&weak->sieve, graph->sieve.ignored);
    find_ranges(graph, &weak->sieve);
    weak->threads = threads < 1 || !source_is_parallel(graph->memory) ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
    const uint64_t at_once = graph->index.blocks / (PIECES_EACH * weak->threads) + 1;
    weak->at_once = at_once < WEAK_BLOCKS ? (uint32_t) at_once : WEAK_BLOCKS;
    weak->found = calloc((size_t) graph->index.blocks + 1, 1);
    for (unsigned i = 0; i < weak->threads; i++)
        weak->parts[i] = (struct weak_part) {.weak = weak, .group = NO_GROUP, .buffer = calloc(WEAK_READ + WEAK_SLACK, 1)};
    return weak;
}

void heapx_weak_free(struct weak *weak)
{
    if (weak) {
        spread_close(&weak->spread);
        free(weak->found);
        for (unsigned i = 0; i < weak->threads; i++)
            free(weak->parts[i].buffer);
    }
    free(weak);
}

/* The bytes from `at` on, up to `end`, with one read that may go on to the blocks behind. NULL: unreadable, or interrupted. */
static const uint8_t *bytes_at(struct weak_part *part, uint64_t at, uint64_t end, uint64_t *got, int *interrupted)
{
    const struct source *memory = part->weak->graph->memory;
    if (!(at - part->begin < part->length && part->length - (at - part->begin) >= (end - at < 16 ? end - at : 16))) {
        const uint64_t asked = end - at < WEAK_READ ? end - at : WEAK_READ;
        const uint64_t size = source_ahead(memory, at, asked, WEAK_READ);
        const int64_t read = source_read(memory, at, part->buffer, size);
        *interrupted = read < 0;
        part->group = NO_GROUP;
        part->begin = at;
        part->length = read > 0 ? (uint64_t) read : 0;
    }
    *got = part->length - (at - part->begin);
    if (*got > end - at)
        *got = end - at;
    return at - part->begin < part->length ? part->buffer + (at - part->begin) : NULL;
}

static int weak_range(struct weak_part *part, uint64_t *at, uint64_t end, double deadline)
{
    struct weak *weak = part->weak;
    if (!weak->found || !part->buffer)
        return NO_MEMORY;
    struct blanks blanks = {0, 0};
    while (*at < end) {
        uint64_t got = source_skip(weak->graph->memory, &blanks, *at, end);
        int interrupted = 0;
        *at = got < end && got > *at ? got - 8 : got;     /* a pointer may begin in the zeros */
        if (*at == end)
            break;
        got = 0;
        const uint8_t *bytes = bytes_at(part, *at, end, &got, &interrupted);
        if (interrupted)
            return INTERRUPTED;
        if (bytes)
            look_at(part, bytes, got);
        if (!bytes)                         /* a hole: on with the next page */
            *at = (*at | 4095) + 1;
        else                                /* a pointer may lie across two reads */
            *at += *at + got < end && got > 8 ? (got - 7) & ~7ull : got;
        if (*at < end && clock_now() > deadline)
            return 1;
    }
    return 0;
}

/* Reads a range that something leads to: 1: there is more of it, from *at on; 0; or INTERRUPTED, NO_MEMORY. */
int64_t heapx_weak_scan(struct weak *weak, uint64_t *at, uint64_t end, double seconds)
{
    return weak_range(&weak->parts[0], at, end, clock_now() + seconds);
}

/* Blocks that no part has yet. 0: there are none. */
static int take_blocks(struct weak_part *part)
{
    struct weak *weak = part->weak;
    const uint32_t blocks = (uint32_t) weak->graph->index.blocks;
    uint32_t next = __atomic_load_n(&weak->next, __ATOMIC_RELAXED), last;
    do {
        last = blocks - next < weak->at_once ? blocks : next + weak->at_once;
        if (next == last)
            return 0;
    } while (!__atomic_compare_exchange_n(&weak->next, &next, last, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    part->next = next;
    part->last = last;
    index_seek(&weak->graph->index, &part->cursor, next);
    return 1;
}

/* As heapx_weak_blocks. */
static int read_blocks(struct weak_part *part)
{
    const struct graph *graph = part->weak->graph;
    for (unsigned since = 1;; since++) {
        if (part->at < part->end) {
            const int more = weak_range(part, &part->at, part->end, part->deadline);
            if (more)
                return more;
        }
        if (part->next == part->last && !take_blocks(part))
            return 0;
        const uint32_t id = part->next++;
        part->at = index_next(&graph->index, &part->cursor);
        part->end = is_leaked(graph->marks, id) ? part->at : part->at + index_size(&graph->index, id);
        if (!(since & 4095) && clock_now() > part->deadline)
            return 1;
    }
}

/* A thread goes on with one part after the other: where fewer threads could be made than there are parts, none is forgotten. */
static void *read_parts(void *first)
{
    struct weak *weak = ((struct weak_part *) first)->weak;
    for (unsigned i = 0; i < weak->threads; i++) {
        struct weak_part *part = &weak->parts[i];
        if (__atomic_exchange_n(&part->is_taken, 1, __ATOMIC_RELAXED) || part->has_ended)
            continue;
        const int more = read_blocks(part);
        part->has_ended = !more;
        part->failed = more;
    }
    return NULL;
}

/* Reads all blocks that something leads to. As above. */
int64_t heapx_weak_blocks(struct weak *weak, double seconds)
{
    const double deadline = clock_now() + seconds;
    int more = 0;
    for (unsigned i = 0; i < weak->threads; i++) {
        weak->parts[i].deadline = deadline;
        weak->parts[i].is_taken = weak->parts[i].failed = 0;
    }
    threads_run(read_parts, weak->parts, sizeof *weak->parts, weak->threads);
    for (unsigned i = 0; i < weak->threads; i++) {
        if (weak->parts[i].failed < 0)
            return weak->parts[i].failed;
        more |= !weak->parts[i].has_ended;
    }
    return more;
}

/* The node is held by the rule that is being settled; so is what its edges lead to. Its words are looked at next. 0: no memory. */
static int settle_node(struct weak *weak, uint32_t node)
{
    const struct graph *graph = weak->graph;
    set_evidence(graph->marks, node, MASKED + weak->rule);
    for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
        const uint32_t target = EDGE_ID(graph->to[edge]);
        if (!is_marked(&weak->spread, target) && is_leaked(graph->marks, target) && !spread_push(&weak->spread, target))
            return 0;
    }
    if (node < graph->index.blocks) {
        weak->parts[0].at = index_address(&graph->index, node);
        weak->parts[0].end = weak->parts[0].at + index_size(&graph->index, node);
    }
    return 1;
}

/* What hangs behind blocks that were found so is found so, too. What is left is leaked. `seconds` 0: no more is read for that. 1: there is
   more; 0; or INTERRUPTED, NO_MEMORY. */
int64_t heapx_weak_settle(struct weak *weak, double seconds)
{
    const int reads = seconds > 0;
    const double deadline = clock_now() + seconds;
    struct spread *spread = &weak->spread;
    struct weak_part *part = &weak->parts[0];
    if (!weak->found || (!spread->marked && !spread_open(spread, weak->graph->nodes)))
        return NO_MEMORY;
    if (!weak->is_settling)
        part->at = part->end = 0;
    weak->is_settling = 1;
    for (; weak->rule < WEAK_RULES; weak->rule++, weak->seed = 0)
        for (; weak->seed < weak->graph->index.blocks; weak->seed++) {
            if (weak->found[weak->seed] == weak->rule + 1 && !is_marked(spread, weak->seed) && !spread_push(spread, weak->seed))
                return NO_MEMORY;
            for (unsigned since = 1; spread->depth || (reads && part->at < part->end); since++) {
                const int more = reads && part->at < part->end ? weak_range(part, &part->at, part->end, deadline) : 0;
                if (more)
                    return more;
                if (weak->is_full || (spread->depth && !settle_node(weak, spread->stack[--spread->depth])))
                    return NO_MEMORY;
                if (reads && !(since & 1023) && clock_now() > deadline)
                    return 1;
            }
        }
    return 0;
}

/* Words that lead to blocks nothing else leads to, where the bits are ignored of which that is not known. */
uint64_t heapx_weak_tagged(const struct weak *weak)
{
    return weak->tagged;
}
