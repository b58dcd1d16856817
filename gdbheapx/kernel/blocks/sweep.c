/* Sweeps: the rounds of mark.c, each by passes over memory in ascending order. */
#include "sweep_scan.h"

#include <stdlib.h>

#define LINES_AT_ONCE (1u << 16)
#define STEPS_AT_ONCE 1024u
#define GAP_BYTES 4096u             /* without a gray block: what is read at once ends there */
#define LITTLE 100u                 /* a pass that marks less than one in so many blocks is followed by one with a stack, */
#define DEEP_SHARE 64u              /* which scans at most one in so many blocks out of order, */
#define DEEP_LEAST 4096u            /* and so many more */

static size_t plane_bytes(const struct sweep *sweep)
{
    return ((size_t) sweep->nodes / 64 + 2) * 8;
}

static void forget(struct sweep *sweep)
{
    lazy_free(sweep->marked, plane_bytes(sweep));
    lazy_free(sweep->gray, plane_bytes(sweep));
    for (unsigned plane = 0; plane < SWEEP_LEVELS; plane++)
        lazy_free(sweep->levels[plane], plane_bytes(sweep));
    free(sweep->stack);
    free(sweep->pass.bytes);
    free(sweep->apart.bytes);
    free(sweep->referrers);
    sweep->marked = sweep->gray = NULL;
    memset(sweep->levels, 0, sizeof sweep->levels);
    sweep->stack = NULL;
    sweep->pass.bytes = sweep->apart.bytes = NULL;
    sweep->referrers = NULL;
}

void heapx_sweep_free(struct sweep *sweep)
{
    if (!sweep)
        return;
    forget(sweep);
    index_close(&sweep->index);
    free(sweep);
}

/* See heapx_graph_new. */
struct sweep *heapx_sweep_new(const struct source *memory, unsigned word, int little_endian, unsigned shift, const uint64_t *heaps,
                              uint64_t heap_count, const uint64_t *mappings, uint64_t mapping_count, uint64_t ignored)
{
    struct sweep *sweep = calloc(1, sizeof *sweep);
    if (!sweep)
        return NULL;
    sweep->memory = memory;
    sweep->word = word;
    sweep->swap = is_swapped((uint64_t) little_endian);
    sweep->mappings = mappings;
    sweep->mapping_count = mapping_count;
    const int is_open = index_open(&sweep->index, shift, heaps, heap_count, mappings, mapping_count);
    sieve_open(&sweep->sieve, word, sweep->swap, sweep->index.low, sweep->index.span, ignored);
    if (!is_open) {
        heapx_sweep_free(sweep);
        return NULL;
    }
    return sweep;
}

/* Begins: nodes from `roots_from` on are roots, and all of them are to be scanned; or (`wanted` not NO_NODE) every node is, for who points
   to that one, at most `room` of them. `parts` stay the caller's. 0: no memory. */
int heapx_sweep_open(struct sweep *sweep, uint32_t roots_from, uint32_t nodes, const struct part *parts, uint64_t part_count,
                     uint32_t wanted, uint64_t room)
{
    forget(sweep);
    sweep->nodes = nodes;
    sweep->roots_from = roots_from;
    sweep->parts = parts;
    sweep->part_count = part_count;
    sweep->wanted = wanted;
    sweep->referrer_room = room;
    sweep->referrer_count = sweep->round = sweep->grays = sweep->fresh = sweep->depth = sweep->next_part = 0;
    sweep->passes = sweep->bytes_read = sweep->unread_bytes = sweep->deep_left = sweep->slot = sweep->line = 0;
    sweep->stage = STAGE_PARTS;
    memset(&sweep->scanning, 0, sizeof sweep->scanning);
    sweep->pass.length = sweep->apart.length = 0;
    sweep->marked = lazy_alloc(plane_bytes(sweep));
    sweep->gray = lazy_alloc(plane_bytes(sweep));
    for (unsigned plane = 0; plane < SWEEP_LEVELS; plane++)
        sweep->levels[plane] = lazy_alloc(plane_bytes(sweep));
    sweep->stack = malloc(SWEEP_STACK * sizeof *sweep->stack);
    sweep->pass.bytes = malloc(SWEEP_READ);
    sweep->apart.bytes = malloc(SWEEP_READ);
    sweep->referrers = malloc((size_t) (room + 1) * sizeof *sweep->referrers);
    if (!sweep->marked || !sweep->gray || !sweep->levels[0] || !sweep->levels[1] || !sweep->levels[2] || !sweep->stack
        || !sweep->pass.bytes || !sweep->apart.bytes || !sweep->referrers)
        return 0;
    for (uint64_t node = wanted == NO_NODE ? roots_from : 0; node < nodes; node++)
        sweep_mark(sweep, (uint32_t) node);
    return 1;
}

/* Words at hand of a root. */
void heapx_sweep_bytes(struct sweep *sweep, uint32_t node, const uint8_t *bytes, uint64_t size, uint64_t first_slot)
{
    struct scanning scanning = {.node = node};
    sweep->scanning = scanning;
    sweep_bytes(sweep, bytes, size, first_slot);
}

/* Of the line, its blocks that are gray: bit 0 is the first. */
static uint64_t gray_of(const struct sweep *sweep, const struct line *line)
{
    if (!line->bits)
        return 0;
    const unsigned count = bits_in(line->bits), shift = line->rank & 63;
    const uint64_t *word = &sweep->gray[line->rank >> 6];
    const uint64_t gray = word[0] >> shift | (shift ? word[1] << (64 - shift) : 0);
    return count == 64 ? gray : gray & ((1ull << count) - 1);
}

/* Where reading ends that begins in the line: gray blocks follow each other closely up to there. */
static uint64_t limit_of(const struct sweep *sweep, const struct slot *slot, uint32_t line)
{
    const uint64_t line_bytes = 64ull << sweep->index.shift;
    uint32_t last = line;
    for (uint32_t at = line + 1; at < slot->end && (at - last) * line_bytes <= GAP_BYTES && (at - line) * line_bytes < SWEEP_READ; at++)
        if (gray_of(sweep, &slot->lines[at]))
            last = at;
    return slot->begin + (last + 1) * line_bytes;
}

static void begin_block(struct sweep *sweep, uint32_t id, uint64_t address, uint64_t limit, struct view *view)
{
    const uint64_t size = index_size(&sweep->index, id);
    struct scanning scanning = {.node = id, .is_active = 1, .base = address, .at = address, .end = address + size, .own_bytes = size,
                                .limit = limit, .view = view};
    sweep->scanning = scanning;
    sweep->gray[id >> 6] &= ~(1ull << (id & 63));
    sweep->grays--;
}

/* The last one that waits on the stack. */
static void take_waiting(struct sweep *sweep)
{
    const struct waiting one = sweep->stack[--sweep->depth];
    if (!has_bit(sweep->gray, one.id))
        return;
    const uint64_t away = one.address - sweep->pass.begin;
    const int is_here = away < sweep->pass.length && index_size(&sweep->index, one.id) <= sweep->pass.length - away;
    if (!is_here) {
        if (!sweep->deep_left)
            return;
        sweep->deep_left--;
    }
    begin_block(sweep, one.id, one.address, 0, is_here ? &sweep->pass : &sweep->apart);
}

/* The next gray block by address. */
static void take_block(struct sweep *sweep)
{
    const struct index *index = &sweep->index;
    for (unsigned lines = 0; lines < LINES_AT_ONCE; lines++) {
        if (sweep->slot == index->slot_count) {
            sweep->stage = STAGE_PASS;
            return;
        }
        const struct slot *slot = index->in_order[sweep->slot];
        if (sweep->line < slot->first)
            sweep->line = slot->first;
        if (sweep->line >= slot->end) {
            sweep->slot++;
            sweep->line = 0;
            continue;
        }
        const struct line *line = &slot->lines[sweep->line];
        const uint64_t gray = gray_of(sweep, line);
        if (gray) {
            const unsigned place = (unsigned) __builtin_ctzll(gray);
            uint64_t bits = line->bits;
            for (unsigned i = 0; i < place; i++)
                bits &= bits - 1;
            sweep->here = slot->begin + (((uint64_t) sweep->line * 64 + (unsigned) __builtin_ctzll(bits)) << index->shift);
            begin_block(sweep, line->rank + place, sweep->here, limit_of(sweep, slot, sweep->line), &sweep->pass);
            return;
        }
        sweep->line++;
    }
}

/* The next part of a mapping or root that is gray. */
static void take_part(struct sweep *sweep)
{
    while (sweep->next_part < sweep->part_count) {
        const struct part *part = &sweep->parts[sweep->next_part++];
        const uint32_t node = (uint32_t) part->node;
        if (!has_bit(sweep->gray, node))
            continue;
        struct scanning scanning = {.node = node, .is_active = 1, .base = part->base, .at = part->begin, .end = part->end,
                                    .view = &sweep->apart};
        if (sweep->next_part > 1 && part[-1].node == node)
            scanning.run = sweep->scanning.run;
        sweep->scanning = scanning;
        if (!sweep_goes_on(sweep)) {
            sweep->gray[node >> 6] &= ~(1ull << (node & 63));
            sweep->grays--;
        }
        return;
    }
    sweep->stage = STAGE_BLOCKS;
    sweep->slot = sweep->line = 0;
    sweep->fresh = 0;
}

/* What a weaker pointer leads to than those of the rounds before, or a mapping to which none does. */
static void seed(struct sweep *sweep)
{
    if (sweep->round == FROM_MAPPING) {
        for (uint64_t node = sweep->index.blocks; node < sweep->roots_from; node++)
            if (!has_bit(sweep->marked, (uint32_t) node))
                sweep_mark(sweep, (uint32_t) node);
        return;
    }
    const unsigned level = NO_RULE - sweep->round;
    for (uint64_t i = 0; i <= sweep->nodes / 64; i++) {
        uint64_t bits = ~sweep->marked[i];
        for (unsigned plane = 0; plane < SWEEP_LEVELS; plane++)
            bits &= level >> plane & 1 ? sweep->levels[plane][i] : ~sweep->levels[plane][i];
        for (; bits; bits &= bits - 1)
            sweep_mark(sweep, (uint32_t) (i * 64 + (unsigned) __builtin_ctzll(bits)));
    }
}

/* All that was gray when the pass began is scanned. */
static void end_pass(struct sweep *sweep)
{
    int is_little = sweep->fresh * LITTLE < sweep->index.blocks;
    sweep->passes++;
    sweep->depth = 0;
    while (!sweep->grays && sweep->round < FROM_MAPPING && sweep->wanted == NO_NODE) {
        sweep->round++;
        seed(sweep);
        is_little = sweep->grays * LITTLE < sweep->index.blocks;
    }
    sweep->deep_left = is_little ? sweep->index.blocks / DEEP_SHARE + DEEP_LEAST : 0;
    sweep->stage = sweep->grays ? STAGE_PARTS : STAGE_OVER;
    sweep->next_part = 0;
}

/* Goes on. 1: there is more; 0: every node has its evidence; INTERRUPTED. */
int64_t heapx_sweep_slice(struct sweep *sweep, double seconds)
{
    const double deadline = clock_now() + seconds;
    for (unsigned steps = 1;; steps++) {
        if (sweep->scanning.is_active) {
            const int64_t more = sweep_scan(sweep, deadline);
            if (more)
                return more;
        } else if (sweep->depth && sweep->stage != STAGE_PARTS) {
            take_waiting(sweep);
        } else if (sweep->stage == STAGE_PARTS) {
            take_part(sweep);
        } else if (sweep->stage == STAGE_BLOCKS) {
            take_block(sweep);
        } else if (sweep->stage == STAGE_PASS) {
            end_pass(sweep);
        } else {
            return 0;
        }
        if (!(steps % STEPS_AT_ONCE) && clock_now() > deadline)
            return 1;
    }
}
