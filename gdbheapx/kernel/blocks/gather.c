/* The one read: every word of every used block, and of what lies outside the heaps, that may point into a heap. */
#include "graph.h"

#include <stdlib.h>

#define ROWS 512u
#define READ_BYTES (128u << 10)
#define TILE_WORDS 1024u
#define PAGE 4096u

static int piece_room(struct graph *graph, uint32_t bytes)
{
    if (graph->last && PIECE_BYTES - graph->last->used >= bytes)
        return 1;
    struct piece *piece = lazy_alloc(sizeof *piece);     /* goes back at once when it is decoded */
    if (!piece)
        return 0;
    if (graph->last)
        graph->last->next = piece;
    else
        graph->first = piece;
    graph->last = piece;
    return 1;
}

static int group_write(struct graph *graph)
{
    struct group *group = &graph->group;
    if (!piece_room(graph, group->bytes + 1))
        return GRAPH_NO_MEMORY;
    uint8_t *to = graph->last->bytes + graph->last->used;
    *to = (uint8_t) group->count;
    memcpy(to + 1, group->room, group->bytes);
    graph->last->used += group->bytes + 1;
    group->count = group->bytes = 0;
    return 0;
}

int group_add(struct graph *graph, uint64_t slot, uint32_t number, uint64_t address, int slotted)
{
    struct group *group = &graph->group;
    const uint64_t packed = (uint64_t) number << SLOT_SHIFT | (address & (SLOT_BYTES - 1));
    if (group->count == GROUP_MOST) {
        int failed = group_write(graph);
        if (failed)
            return failed;
    }
    if (slotted) {
        const uint64_t away = slot - graph->last_slot;
        const uint32_t far = (uint32_t) away;
        graph->last_slot = slot;
        graph->slotted_candidates++;
        group->room[group->bytes++] = away < 255 ? (uint8_t) away : 255;
        if (away >= 255) {
            memcpy(group->room + group->bytes, &far, 4);
            group->bytes += 4;
        }
    }
    for (unsigned i = 0; i < graph->address_bytes; i++)
        group->room[group->bytes + i] = (uint8_t) (packed >> 8 * i);
    group->bytes += graph->address_bytes;
    group->count++;
    graph->candidates++;
    return 0;
}

int group_end(struct graph *graph)
{
    int failed = graph->group.count == GROUP_MOST ? group_write(graph) : 0;
    failed = failed ? failed : group_write(graph);
    graph->last_slot = 0;
    graph->nodes_read += !failed;
    return failed;
}

/* Words that lie in the span of the index, with their places; eight bytes each, in this machine's order. */
static unsigned sieve(const uint8_t *bytes, unsigned words, uint64_t low, uint64_t span, uint64_t *found, uint16_t *places)
{
    unsigned count = 0;
    for (unsigned i = 0; i < words; i++) {
        uint64_t value;
        memcpy(&value, bytes + 8 * i, 8);
        found[count] = value;
        places[count] = (uint16_t) i;
        count += value - low < span;
    }
    return count;
}

static unsigned sieve_any(const struct graph *graph, const uint8_t *bytes, unsigned words, uint64_t *found, uint16_t *places)
{
    unsigned count = 0;
    for (unsigned i = 0; i < words; i++) {
        found[count] = load_word(bytes + graph->word * i, graph->word, graph->swap);
        places[count] = (uint16_t) i;
        count += found[count] - graph->index.low < graph->index.span;
    }
    return count;
}

struct scanned {
    uint64_t own, own_bytes;        /* the block itself: pointers to it from inside say nothing */
    uint64_t slot;                  /* of the first byte */
    int slotted;
};

static int scan(struct graph *graph, const uint8_t *bytes, uint64_t size, struct scanned *scanned)
{
    uint64_t found[TILE_WORDS + 1];
    uint16_t places[TILE_WORDS + 1];
    const uint64_t low = graph->index.low, span = graph->index.span;
    uint64_t words = size / graph->word;
    while (words) {
        const unsigned now = words < TILE_WORDS ? (unsigned) words : TILE_WORDS;
        const unsigned count = graph->word == 8 && !graph->swap ? sieve(bytes, now, low, span, found, places)
                                                               : sieve_any(graph, bytes, now, found, places);
        for (unsigned i = 0; i < count; i++) {
            const uint32_t number = graph->index.table[(found[i] - low) >> SLOT_SHIFT];
            if (!number || found[i] - scanned->own < scanned->own_bytes)
                continue;
            int failed = group_add(graph, scanned->slot + places[i], number, found[i], scanned->slotted);
            if (failed)
                return failed;
        }
        bytes += (uint64_t) now * graph->word;
        scanned->slot += now;
        words -= now;
    }
    return 0;
}

#define SMALL_WORDS 200u             /* a block of so many has one group, however many of its words may be pointers */
#define SMALL_ROOM (2 + SMALL_WORDS * 8 + 8)

/* A small block whose bytes are all at hand, in this machine's words of eight bytes: its group is written where it stays, without a branch
   for each word. 0, or GRAPH_NO_MEMORY. */
static int scan_small(struct graph *graph, const uint8_t *bytes, unsigned words, uint64_t own, uint64_t own_bytes)
{
    const uint64_t low = graph->index.low, span = graph->index.span;
    const uint32_t *table = graph->index.table;
    const unsigned address_bytes = graph->address_bytes, slotted = graph->all_slots, step = address_bytes + slotted;
    if (!piece_room(graph, SMALL_ROOM))
        return GRAPH_NO_MEMORY;
    uint8_t *count = graph->last->bytes + graph->last->used, *to = count + 1;
    unsigned last = 0;
    for (unsigned i = 0; i < words; i++) {
        uint64_t value;
        memcpy(&value, bytes + 8 * i, 8);
        const uint64_t away = value - low;
        const uint64_t number = away < span ? table[away >> SLOT_SHIFT] : 0;
        const uint64_t packed = number << SLOT_SHIFT | (value & (SLOT_BYTES - 1));
        const unsigned counts = (number != 0) & (value - own >= own_bytes);
        *to = (uint8_t) (i - last);
        memcpy(to + slotted, &packed, 8);
        to += counts ? step : 0;
        last = counts ? i : last;
    }
    *count = (uint8_t) ((unsigned) (to - count - 1) / step);
    graph->last->used += (uint32_t) (to - count);
    graph->candidates += *count;
    graph->slotted_candidates += slotted ? *count : 0;
    graph->nodes_read++;
    return 0;
}

/* Bytes at `address`, of `want` as many as are at hand or come with one read that goes up to `limit`; NULL: unreadable. */
static const uint8_t *fetch(struct graph *graph, uint64_t address, uint64_t want, uint64_t limit, uint64_t *got, int *interrupted)
{
    uint64_t away = address - graph->buffer_begin;
    if (!(away < graph->buffer_length && graph->buffer_length - away >= (want < graph->word ? want : graph->word))) {
        uint64_t size = limit - address < READ_BYTES ? limit - address : READ_BYTES;
        int64_t read = source_read(graph->memory, address, graph->buffer, size);
        graph->buffer_begin = address;
        graph->buffer_length = read > 0 ? (uint64_t) read : 0;
        graph->bytes_read += graph->buffer_length;
        *interrupted = read < 0;
        away = 0;
        if (graph->buffer_length < graph->word)
            return NULL;
    }
    *got = graph->buffer_length - away < want ? graph->buffer_length - away : want;
    *got -= *got < want ? *got % graph->word : 0;
    return graph->buffer + away;
}

/* Scans [begin, end). *at is how far it came; returns 0, GRAPH_NO_MEMORY, or READ_INTERRUPTED. */
static int scan_range(struct graph *graph, uint64_t *at, uint64_t end, uint64_t limit, struct scanned *scanned, double deadline)
{
    int interrupted = 0;
    while (*at < end) {
        uint64_t got = 0;
        const uint8_t *bytes = fetch(graph, *at, end - *at, limit, &got, &interrupted);
        if (interrupted)
            return READ_INTERRUPTED;
        if (!bytes) {
            const uint64_t next = (*at & ~(uint64_t) (PAGE - 1)) + PAGE, until = next < end && next > *at ? next : end;
            if (!graph->unread_bytes)
                graph->unread_at = *at;
            graph->unread_bytes += until - *at;
            scanned->slot += (until - *at) / graph->word;
            *at = until;
            continue;
        }
        int failed = scan(graph, bytes, got, scanned);
        if (failed)
            return failed;
        *at += got;
        if (deadline && *at < end && clock_now() > deadline)
            break;
    }
    return 0;
}

struct gathering {
    struct block_source *blocks;
    const uint64_t *own;            /* the caller's: addresses inside blocks that are the allocator's own, sorted */
    uint64_t own_count, next_own;
    struct block_rows rows;
    uint64_t next;
    uint64_t addresses[ROWS], usable[ROWS];
    uint64_t until[ROWS];           /* where the used blocks end that follow each other closely from here on */
    uint32_t arenas[ROWS];
    uint8_t classes[ROWS], kinds[ROWS];
};

EXPORT struct gathering *heapx_gather_new(struct block_source *blocks, const uint64_t *own, uint64_t own_count)
{
    struct gathering *gathering = calloc(1, sizeof *gathering);
    if (!gathering)
        return NULL;
    struct block_rows rows = {gathering->addresses, gathering->usable, gathering->classes, gathering->kinds, gathering->arenas, 0, ROWS};
    gathering->blocks = blocks;
    gathering->own = own;
    gathering->own_count = own_count;
    gathering->rows = rows;
    return gathering;
}

EXPORT void heapx_gather_free(struct gathering *gathering)
{
    free(gathering);
}

static void look_ahead(struct gathering *gathering)
{
    uint64_t until = 0, next = 0;
    for (uint64_t i = gathering->rows.count; i--;) {
        if (gathering->classes[i] != CLASS_USED)
            continue;
        const uint64_t end = gathering->addresses[i] + gathering->usable[i];
        if (!until || next < end || next - end > PAGE)
            until = end;
        gathering->until[i] = until;
        next = gathering->addresses[i];
    }
}

static int is_own(struct gathering *gathering, uint64_t address, uint64_t size)
{
    while (gathering->next_own < gathering->own_count && gathering->own[gathering->next_own] < address)
        gathering->next_own++;
    return gathering->next_own < gathering->own_count && gathering->own[gathering->next_own] - address < size;
}

static int gather_row(struct graph *graph, struct gathering *gathering, uint64_t row)
{
    const uint64_t address = gathering->addresses[row], size = gathering->usable[row] & ~(uint64_t) 3;
    uint64_t at = address;
    if (graph->index.blocks >= MOST_NODES || is_own(gathering, address, size))
        return 0;
    int added = index_add_next(&graph->index, address, size);
    if (added <= 0) {
        graph->odd_blocks += !added && size;
        return added;
    }
    if (graph->plain_words && size / 8 <= SMALL_WORDS) {
        const uint64_t away = address - graph->buffer_begin;
        if (away < graph->buffer_length && graph->buffer_length - away >= size)
            return scan_small(graph, graph->buffer + away, (unsigned) (size / 8), address, size);
    }
    struct scanned scanned = {address, size, 0, (int) graph->all_slots};
    int failed = scan_range(graph, &at, address + size, gathering->until[row], &scanned, 0);
    return failed ? failed : group_end(graph);
}

/* Reads on. Rows come in ascending order. Returns 1: there is more; 0: it was all; READ_INTERRUPTED; GRAPH_NO_MEMORY. */
EXPORT int64_t heapx_gather_slice(struct graph *graph, struct gathering *gathering, double seconds)
{
    const double deadline = clock_now() + seconds;
    do {
        if (gathering->next == gathering->rows.count) {
            if (gathering->blocks->state(gathering->blocks).ended)
                return 0;
            gathering->rows.count = gathering->next = 0;
            int failed = gathering->blocks->next(gathering->blocks, deadline - clock_now(), &gathering->rows);
            if (failed)
                return failed;
            if (!gathering->rows.count)
                return !gathering->blocks->state(gathering->blocks).ended;
            look_ahead(gathering);
        }
        for (; gathering->next < gathering->rows.count; gathering->next++) {
            if (gathering->classes[gathering->next] != CLASS_USED)
                continue;
            int failed = gather_row(graph, gathering, gathering->next);
            if (failed)
                return failed;
        }
    } while (clock_now() < deadline);
    return 1;
}

/* Scans [*at, end) for the node that is read, whose slots count from `base`. As heapx_gather_slice. */
EXPORT int64_t heapx_graph_scan(struct graph *graph, uint64_t base, uint64_t *at, uint64_t end, double seconds)
{
    struct scanned scanned = {0, 0, (*at - base) / graph->word, 1};
    int failed = scan_range(graph, at, end, end, &scanned, clock_now() + seconds);
    return failed ? failed : *at < end;
}

/* The same for bytes at hand. */
EXPORT int64_t heapx_graph_scan_bytes(struct graph *graph, const uint8_t *bytes, uint64_t size, uint64_t first_slot)
{
    struct scanned scanned = {0, 0, first_slot, 1};
    return scan(graph, bytes, size, &scanned);
}

/* The node that was read ends here. */
EXPORT int64_t heapx_graph_end_node(struct graph *graph)
{
    return group_end(graph);
}
