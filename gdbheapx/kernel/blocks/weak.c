/* A second read for blocks that nothing leads to: pointers with their upper bits masked or packed, pointers that are not aligned, and
   pointers mangled with the guard of the thread's control block. Only pointers to the start of such a block count. */
#include "marks.h"

#define WEAK_READ (128u << 10)
#define ADDRESS_BITS 48u

enum { WEAK_MASKED, WEAK_UNALIGNED, WEAK_MANGLED, WEAK_RULES };

struct weak {
    const struct graph *graph;
    uint8_t *found;                 /* by node that is leaked: WEAK_ rule + 1, or 0 */
    uint64_t guard;
    unsigned turn;                  /* how far the C library rotates what it mangles; 0: no guard is known */
    struct index_cursor cursor;
    uint32_t next;                  /* block to be read */
    uint64_t at, end;               /* and what is left of it */
    struct spread spread;           /* what hangs behind */
    uint8_t *buffer;
    uint64_t begin, length;         /* what the buffer has */
};

static void hit(struct weak *weak, uint64_t value, unsigned rule)
{
    const struct graph *graph = weak->graph;
    const uint32_t number = slot_at(&graph->index, value);
    uint64_t offset;
    if (!number)
        return;
    const uint32_t id = index_find(&graph->index, number, value, &offset);
    if (id == NO_NODE || offset || !is_leaked(graph->marks, id))
        return;
    if (!weak->found[id] || weak->found[id] > rule + 1)
        weak->found[id] = (uint8_t) (rule + 1);
}

static inline uint64_t unmangled(const struct weak *weak, uint64_t value)
{
    return (value >> weak->turn | value << (-weak->turn & 63)) ^ weak->guard;
}

/* What may be a pointer in the word `value` by its upper bits or by the guard. */
static void look_at_word(struct weak *weak, uint64_t value)
{
    const uint64_t low = weak->graph->index.low, span = weak->graph->index.span;
    const uint64_t masked = value & ((1ull << ADDRESS_BITS) - 1), packed = value >> (64 - ADDRESS_BITS);
    if (masked != value && masked - low < span)
        hit(weak, masked & ~7ull, WEAK_MASKED);
    if (packed - low < span && packed != value)
        hit(weak, packed, WEAK_MASKED);
    if (weak->turn && unmangled(weak, value) - low < span)
        hit(weak, unmangled(weak, value), WEAK_MANGLED);
}

static void look_at_bytes(struct weak *weak, const uint8_t *bytes, uint64_t size)
{
    const struct graph *graph = weak->graph;
    for (uint64_t at = 1; at < 8 && at + 8 <= size; at++) {
        const uint64_t value = load_word(bytes + at, 8, graph->swap);
        if (value - graph->index.low < graph->index.span)
            hit(weak, value, WEAK_UNALIGNED);
    }
}

/* Nearly all words are none in any way: that is found out without a branch for each way. */
static int may_be_any(const struct weak *weak, uint64_t value, uint64_t next)
{
    const uint64_t low = weak->graph->index.low, span = weak->graph->index.span;
    const uint64_t masked = value & ((1ull << ADDRESS_BITS) - 1);
    unsigned any = (masked - low < span) & (masked != value);
    any |= (value >> (64 - ADDRESS_BITS)) - low < span;
    any |= (unmangled(weak, value) - low < span) & (weak->turn != 0);
    for (unsigned shift = 8; shift < 64; shift += 8)
        any |= (value >> shift | next << (64 - shift)) - low < span;
    return (int) any;
}

static void look_at(struct weak *weak, const uint8_t *bytes, uint64_t size)
{
    const unsigned swap = weak->graph->swap, is_plain = weak->graph->plain_words;
    for (uint64_t at = 0; at + 8 <= size; at += 8) {
        const uint64_t value = load_word(bytes + at, 8, swap), next = at + 16 <= size ? load_word(bytes + at + 8, 8, swap) : 0;
        if (is_plain && at + 16 <= size && !may_be_any(weak, value, next))
            continue;
        look_at_word(weak, value);
        look_at_bytes(weak, bytes + at, size - at);
    }
}

/* After the marks were made, of a graph of 64-bit words. `turn`: 0: no guard is known. NULL: no memory. */
struct weak *heapx_weak_new(const struct graph *graph, uint64_t guard, unsigned turn)
{
    struct weak *weak = calloc(1, sizeof *weak);
    if (!weak)
        return NULL;
    weak->graph = graph;
    weak->guard = guard;
    weak->turn = turn;
    weak->found = calloc((size_t) graph->index.blocks + 1, 1);
    weak->buffer = malloc(WEAK_READ);
    return weak;
}

void heapx_weak_free(struct weak *weak)
{
    if (weak) {
        spread_close(&weak->spread);
        free(weak->found);
        free(weak->buffer);
    }
    free(weak);
}

/* The bytes from `at` on, up to `end`, with one read that may go on to the blocks behind. NULL: unreadable, or interrupted. */
static const uint8_t *bytes_at(struct weak *weak, uint64_t at, uint64_t end, uint64_t *got, int *interrupted)
{
    if (!(at - weak->begin < weak->length && weak->length - (at - weak->begin) >= (end - at < 16 ? end - at : 16))) {
        const uint64_t asked = end - at < WEAK_READ ? end - at : WEAK_READ;
        const uint64_t size = source_ahead(weak->graph->memory, at, asked, WEAK_READ);
        const int64_t read = source_read(weak->graph->memory, at, weak->buffer, size);
        *interrupted = read < 0;
        weak->begin = at;
        weak->length = read > 0 ? (uint64_t) read : 0;
    }
    *got = weak->length - (at - weak->begin);
    if (*got > end - at)
        *got = end - at;
    return at - weak->begin < weak->length ? weak->buffer + (at - weak->begin) : NULL;
}

static int64_t weak_range(struct weak *weak, uint64_t *at, uint64_t end, double deadline)
{
    if (!weak->found || !weak->buffer)
        return NO_MEMORY;
    struct blanks blanks = {0, 0};
    while (*at < end) {
        uint64_t got = source_skip(weak->graph->memory, &blanks, *at, end);
        int interrupted = 0;
        *at = got < end && got > *at ? got - 8 : got;     /* a pointer may begin in the zeros */
        if (*at == end)
            break;
        got = 0;
        const uint8_t *bytes = bytes_at(weak, *at, end, &got, &interrupted);
        if (interrupted)
            return INTERRUPTED;
        if (bytes)
            look_at(weak, bytes, got);
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
    return weak_range(weak, at, end, clock_now() + seconds);
}

/* Reads all blocks that something leads to. As above. */
int64_t heapx_weak_blocks(struct weak *weak, double seconds)
{
    const struct graph *graph = weak->graph;
    const double deadline = clock_now() + seconds;
    for (unsigned since = 1;; since++) {
        if (weak->at < weak->end) {
            int64_t more = weak_range(weak, &weak->at, weak->end, deadline);
            if (more)
                return more;
        }
        if (weak->next == graph->index.blocks)
            return 0;
        const uint32_t id = weak->next++;
        weak->at = index_next(&graph->index, &weak->cursor);
        weak->end = is_leaked(graph->marks, id) ? weak->at : weak->at + index_size(&graph->index, id);
        if (!(since & 4095) && clock_now() > deadline)
            return 1;
    }
}

static void set_evidence(const struct graph *graph, uint32_t node, unsigned evidence)
{
    for (unsigned plane = 0; plane < PLANES; plane++)
        if (!(evidence >> plane & 1))
            graph->marks->planes[plane][node >> 6] &= ~(1ull << (node & 63));
}

/* What hangs behind blocks that were found so is found so, too. What is left is leaked. 0, or NO_MEMORY. */
int heapx_weak_settle(struct weak *weak)
{
    const struct graph *graph = weak->graph;
    struct spread *spread = &weak->spread;
    if (!spread_open(spread, graph->nodes))
        return NO_MEMORY;
    for (unsigned rule = 0; rule < WEAK_RULES; rule++)
        for (uint32_t id = 0; id < graph->index.blocks; id++) {
            if (weak->found[id] == rule + 1 && !is_marked(spread, id) && !spread_push(spread, id))
                return NO_MEMORY;
            while (spread->depth) {
                const uint32_t node = spread->stack[--spread->depth];
                set_evidence(graph, node, MASKED + rule);
                for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
                    const uint32_t target = EDGE_ID(graph->to[edge]);
                    if (!is_marked(spread, target) && is_leaked(graph->marks, target) && !spread_push(spread, target))
                        return NO_MEMORY;
                }
            }
        }
    return 0;
}
