/* The one read: every word of every used block, and of what lies outside the heaps, that may point into a heap. */
#include "gather.h"

#include <stdlib.h>

#define READ_BYTES (128u << 10)
#define PAGE 4096u

struct scanned {
    uint64_t own, own_bytes;        /* the block itself: pointers to it from inside say nothing */
    uint64_t slot;                  /* of the first byte */
    uint64_t base;                  /* where slot 0 is; 0: nowhere in memory */
    int slotted;
    struct head head;               /* of a block */
    int wants_content;
    struct content content;
};

static int signs_rust(const struct graph *graph)
{
    return graph->signer && graph->signer->constants.count;
}

/* Where a pointer stands, as far as the same stands there in other nodes: of an object its size and the slot; of a root the slot; an array
   has it anywhere. */
static uint64_t place_of(const struct graph *graph, uint64_t own_bytes, uint64_t slot)
{
    if (!own_bytes)
        return OF_ROOT | graph->nodes_read << 32 | (slot & UINT32_MAX);
    return own_bytes > MOST_OBJECT_BYTES ? OF_ARRAY | graph->nodes_read : own_bytes << 32 | slot;
}

/* What stands around a pointer to a block, to who wants to know. `place`: where its owner has it; `before` and `left`: words before it, and
   from it on; `base`: where its slot 0 is in memory; 0: nowhere. */
static inline void look_around(struct graph *graph, const uint8_t *at, uint64_t value, uint64_t place, uint64_t before, uint64_t left,
                               uint64_t base, uint64_t slot, unsigned word, unsigned swap)
{
    if (signs_rust(graph))
        signer_look_rust(graph->signer, at, before, left, place);
    if (graph->signer && left > 2) {
        const uint64_t second = load_word(at + word, word, swap), third = load_word(at + 2 * word, word, swap);
        signer_look(graph->signer, value, second, third);
        if (signer_may_see_far(second, third))
            signer_look_far(graph->signer, at, left);
    }
    if (graph->plain_words && base)
        stale_look_table(&graph->stale, at, before, left, graph->nodes_read, value);
    if (graph->notes_stale && base)
        stale_look(&graph->stale, at, before, left, graph->nodes_read, slot, base + 8 * slot, value);
}

static int scan(struct graph *graph, const uint8_t *bytes, uint64_t size, struct scanned *scanned)
{
    const uint8_t *begin = bytes;
    uint64_t found[SIEVE_ROOM];
    uint16_t places[SIEVE_ROOM];
    uint64_t words = size / graph->word;
    if (scanned->own_bytes)
        head_look(&graph->heads, &scanned->head, scanned->slot, bytes, size);
    if (scanned->wants_content)
        content_add(&scanned->content, bytes, words, graph->word);
    while (words) {
        const unsigned now = words < SIEVE_WORDS ? (unsigned) words : SIEVE_WORDS;
        const unsigned count = sieve_words(&graph->sieve, bytes, now, found, places);
        for (unsigned i = 0; i < count; i++) {
            const uint32_t number = graph->index.table[(found[i] - graph->index.low) >> SLOT_SHIFT];
            if (!number || found[i] - scanned->own < scanned->own_bytes)
                continue;
            const uint8_t *at = bytes + (uint64_t) places[i] * graph->word;
            const uint64_t slot = scanned->slot + places[i], before = (uint64_t) (at - begin) / graph->word;
            look_around(graph, at, found[i], place_of(graph, scanned->own_bytes, slot), before, words - places[i], scanned->base, slot,
                        graph->word, graph->swap);
            int failed = writer_add(&graph->writer, slot, number, found[i], scanned->slotted);
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

/* The words from `from` on, as far as a tile goes. */
static void tile_fill(struct graph *graph, const uint8_t *from)
{
    struct tile *tile = &graph->tile;
    const uint64_t words = (uint64_t) (graph->at_hand + graph->hand_length - from) / 8;
    tile->from = from;
    tile->words = words < SIEVE_WORDS ? (unsigned) words : SIEVE_WORDS;
    tile->places[sieve_words(&graph->sieve, from, tile->words, tile->found, tile->places)] = UINT16_MAX;
    tile->next = 0;
}

/* A small block whose bytes are all at hand, in this machine's words of eight bytes: its group is written where it stays. 0, or
   NO_MEMORY. */
static int scan_small(struct graph *graph, const uint8_t *bytes, unsigned words, uint64_t own, uint64_t own_bytes)
{
    struct tile *tile = &graph->tile;
    const uint32_t *table = graph->index.table;
    const uint64_t low = graph->index.low;
    struct writer *writer = &graph->writer;
    const unsigned slotted = graph->all_slots, step = writer->address_bytes + slotted;
    if (!writer_room(writer, SMALL_ROOM))
        return NO_MEMORY;
    uint8_t *count = writer->piece->bytes + writer->piece->used, *to = count + 1;
    unsigned last = 0, place;
    for (unsigned done = 0; done < words;) {
        uint64_t away = (uintptr_t) (bytes + 8 * (uint64_t) done) - (uintptr_t) tile->from;
        if (away >= 8 * (uint64_t) tile->words || away % 8) {
            tile_fill(graph, bytes + 8 * (uint64_t) done);
            away = 0;
        }
        const unsigned first = (unsigned) (away / 8), left = tile->words - first, now = left < words - done ? left : words - done;
        while (tile->places[tile->next] < first)
            tile->next++;
        for (; (place = tile->places[tile->next]) < first + now; tile->next++) {
            const uint64_t value = tile->found[tile->next];
            const uint32_t number = table[(value - low) >> SLOT_SHIFT];
            const uint64_t packed = packed_address(number, value);
            const unsigned counts = (number != 0) & (value - own >= own_bytes), slot = done + place - first;
            if (counts)
                look_around(graph, bytes + 8 * (uint64_t) slot, value, place_of(graph, own_bytes, slot), slot, words - slot, own, slot, 8,
                            0);
            *to = (uint8_t) (slot - last);
            memcpy(to + slotted, &packed, 8);
            to += counts ? step : 0;
            last = counts ? slot : last;
        }
        done += now;
    }
    *count = (uint8_t) ((unsigned) (to - count - 1) / step);
    writer->piece->used += (uint32_t) (to - count);
    writer->segment.candidates += *count;
    writer->candidates += *count;
    writer->slotted += slotted ? *count : 0;
    writer->node++;
    graph->nodes_read++;
    return 0;
}

/* Other bytes are at hand from here on. */
static void take_in_hand(struct graph *graph, const uint8_t *bytes, uint64_t address, uint64_t length)
{
    graph->at_hand = bytes;
    graph->hand_begin = address;
    graph->hand_length = length;
    graph->tile.words = 0;
}

/* All `size` bytes at `address`, if they are at hand or the stream lends them; else NULL. */
static const uint8_t *in_hand(struct graph *graph, struct block_source *lender, uint64_t address, uint64_t size)
{
    uint64_t away = address - graph->hand_begin, length = 0;
    if (!(away < graph->hand_length && graph->hand_length - away >= size)) {
        const uint8_t *bytes = lender && lender->lend ? lender->lend(lender, address, &length) : NULL;
        if (!bytes || length < size)
            return NULL;
        if (graph->sieve.ignored) {             /* what is lent is not ours to change */
            length = length < READ_BYTES ? length : READ_BYTES;
            if (length < size)
                return NULL;
            bytes = memcpy(graph->buffer, bytes, (size_t) length);
            sieve_bare(&graph->sieve, graph->buffer, length);
        }
        take_in_hand(graph, bytes, address, length);
        away = 0;
    }
    return graph->at_hand + away;
}

/* Bytes at `address`, of `want` as many as are at hand or come with one read that goes up to `limit`; NULL: unreadable. */
static const uint8_t *fetch(struct graph *graph, struct block_source *lender, uint64_t address, uint64_t want, uint64_t limit,
                            uint64_t *got, int *interrupted)
{
    const uint8_t *bytes = in_hand(graph, lender, address, want < graph->word ? want : graph->word);
    if (!bytes) {
        uint64_t size = limit - address < READ_BYTES ? limit - address : READ_BYTES;
        size = source_ahead(graph->memory, address, want < size ? want : size, size);
        int64_t read = source_read(graph->memory, address, graph->buffer, size);
        take_in_hand(graph, graph->buffer, address, read > 0 ? (uint64_t) read : 0);
        sieve_bare(&graph->sieve, graph->buffer, graph->hand_length);
        graph->bytes_read += graph->hand_length;
        *interrupted = read < 0;
        if (graph->hand_length < graph->word)
            return NULL;
        bytes = graph->buffer;
    }
    const uint64_t away = address - graph->hand_begin;
    *got = graph->hand_length - away < want ? graph->hand_length - away : want;
    *got -= *got < want ? *got % graph->word : 0;
    return bytes;
}

/* Scans [begin, end). *at is how far it came; returns 0, NO_MEMORY, or INTERRUPTED. */
static int scan_range(struct graph *graph, struct block_source *lender, uint64_t *at, uint64_t end, uint64_t limit,
                      struct scanned *scanned, double deadline)
{
    int interrupted = 0;
    struct blanks blanks = {0, 0};
    while (*at < end) {
        uint64_t got = (source_skip(graph->memory, &blanks, *at, end) - *at) & ~(uint64_t) (graph->word - 1);
        if (got) {
            scanned->slot += got / graph->word;
            content_add_zeros(&scanned->content, got / graph->word);
            *at += got;
            continue;
        }
        const uint8_t *bytes = fetch(graph, lender, *at, end - *at, limit, &got, &interrupted);
        if (interrupted)
            return INTERRUPTED;
        if (!bytes) {
            const uint64_t next = (*at & ~(uint64_t) (PAGE - 1)) + PAGE, until = next < end && next > *at ? next : end;
            if (!graph->unread_bytes)
                graph->unread_at = *at;
            graph->unread_bytes += until - *at;
            scanned->content.is_partial = 1;
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

struct gathering *heapx_gather_new(struct block_source *blocks, const uint64_t *own, uint64_t own_count)
{
    struct gathering *gathering = calloc(1, sizeof *gathering);
    if (!gathering)
        return NULL;
    gathering->blocks = blocks;
    blocks->keeps = 1;
    gathering->own = own;
    gathering->own_count = own_count;
    rows_open(&gathering->held);
    return gathering;
}

void heapx_gather_free(struct gathering *gathering)
{
    if (gathering)
        parts_free(gathering->parts);
    free(gathering);
}

static void look_ahead(struct gathering *gathering)
{
    uint64_t until = 0, next = 0;
    for (uint64_t i = gathering->held.rows.count; i--;) {
        if (gathering->held.classes[i] != CLASS_USED)
            continue;
        const uint64_t end = gathering->held.addresses[i] + gathering->held.usable[i];
        if (!until || next < end || next - end > PAGE)
            until = end;
        gathering->until[i] = until;
        next = gathering->held.addresses[i];
    }
}

static int is_own(struct gathering *gathering, uint64_t address, uint64_t size)
{
    while (gathering->next_own < gathering->own_count && gathering->own[gathering->next_own] < address)
        gathering->next_own++;
    return gathering->next_own < gathering->own_count && gathering->own[gathering->next_own] - address < size;
}

/* The block's begin, to who wants to know what it is. */
static int sign(struct graph *graph, struct gathering *gathering, uint64_t row, uint64_t address, uint64_t size)
{
    const uint64_t want = size < SIGNED_BYTES ? size : SIGNED_BYTES;
    uint64_t got = 0;
    int interrupted = 0;
    const uint8_t *bytes = in_hand(graph, gathering->blocks, address, want);
    if (bytes) {
        got = want;
    } else {
        take_in_hand(graph, graph->buffer, 0, 0);       /* a part of them is not enough */
        bytes = fetch(graph, gathering->blocks, address, want, gathering->until[row], &got, &interrupted);
    }
    if (interrupted)
        return INTERRUPTED;
    return signer_sign(graph->signer, address, size, bytes, bytes ? got : 0) ? NO_MEMORY : 0;
}

/* What the block that was read last has in it. 0, or NO_MEMORY. */
static int keep_content(struct graph *graph, const struct content *content)
{
    if (content->is_partial)
        return 0;
    return contents_keep(&graph->signer->contents, graph->index.blocks - 1, content_hash(content)) ? 0 : NO_MEMORY;
}

static int end_node(struct graph *graph)
{
    const int failed = writer_end_node(&graph->writer);
    graph->nodes_read += !failed;
    return failed;
}

static int gather_row(struct graph *graph, struct gathering *gathering, uint64_t row)
{
    const uint64_t address = gathering->held.addresses[row], size = gathering->held.usable[row] & ~(uint64_t) 3;
    uint64_t at = address;
    if (graph->index.blocks >= MOST_NODES || is_own(gathering, address, size))
        return 0;
    int added = index_add_next(&graph->index, address, size);
    if (added <= 0) {
        graph->odd_blocks += !added && size;
        return added;
    }
    const int is_small = graph->plain_words && size / 8 <= SMALL_WORDS;
    const uint8_t *bytes = is_small ? in_hand(graph, gathering->blocks, address, size) : NULL;
    if (graph->signer && bytes)
        added = signer_sign(graph->signer, address, size, bytes, size < SIGNED_BYTES ? size : SIGNED_BYTES) ? NO_MEMORY : 0;
    else if (graph->signer)
        added = sign(graph, gathering, row, address, size);
    else
        added = 0;
    if (added)
        return added;
    const int wants_content = graph->signer && graph->signer->keeps_contents && size >= LEAST_CONTENT;
    if (is_small) {
        bytes = bytes ? bytes : in_hand(graph, gathering->blocks, address, size);   /* signing may have read them */
        if (bytes && !head_whole(&graph->heads, bytes, graph->index.blocks - 1, size))
            return NO_MEMORY;
        if (bytes && wants_content) {
            struct content content = {0};
            content_add(&content, bytes, size / 8, 8);
            if (keep_content(graph, &content))
                return NO_MEMORY;
        }
        if (bytes)
            return scan_small(graph, bytes, (unsigned) (size / 8), address, size);
    }
    struct scanned scanned = {.own = address, .own_bytes = size, .base = address, .slotted = (int) graph->all_slots};
    scanned.wants_content = wants_content;
    const int is_lent = in_hand(graph, gathering->blocks, address, graph->word) && graph->at_hand != graph->buffer;
    const uint64_t limit = is_lent ? address + size : gathering->until[row];
    int failed = scan_range(graph, gathering->blocks, &at, address + size, limit, &scanned, 0);
    if (!failed && !head_end(&graph->heads, &scanned.head, graph->index.blocks - 1, size))
        return NO_MEMORY;
    if (!failed && wants_content)
        failed = keep_content(graph, &scanned.content);
    return failed ? failed : end_node(graph);
}

int64_t gather_rows(struct graph *graph, struct gathering *gathering, double deadline)
{
    do {
        if (gathering->next == gathering->held.rows.count) {
            if (gathering->blocks->state(gathering->blocks).ended)
                return 0;
            if (gathering->asked && !parts_serve(gathering->asked))
                return 1;
            gathering->held.rows.count = gathering->next = 0;
            if (graph->at_hand != graph->buffer)
                take_in_hand(graph, graph->buffer, 0, 0);
            int failed = gathering->blocks->next(gathering->blocks, deadline - clock_now(), &gathering->held.rows);
            if (failed)
                return failed;
            if (!gathering->held.rows.count)
                return !gathering->blocks->state(gathering->blocks).ended;
            look_ahead(gathering);
        }
        for (; gathering->next < gathering->held.rows.count; gathering->next++) {
            if (gathering->held.classes[gathering->next] != CLASS_USED)
                continue;
            int failed = gather_row(graph, gathering, gathering->next);
            if (failed)
                return failed;
        }
    } while (clock_now() < deadline);
    return 1;
}

/* Reads on. Rows come in ascending order. Returns 1: there is more; 0: it was all; INTERRUPTED; NO_MEMORY. */
int64_t heapx_gather_slice(struct graph *graph, struct gathering *gathering, double seconds)
{
    const double deadline = clock_now() + seconds;
    if (!gathering->is_split) {
        gathering->is_split = 1;
        if (parts_open(graph, gathering))
            return NO_MEMORY;
    }
    if (gathering->parts) {
        const int64_t more = parts_slice(gathering->parts, deadline);
        if (more == 1 || more == INTERRUPTED || more == NO_MEMORY)
            return more;
        parts_free(gathering->parts);
        gathering->parts = NULL;
        if (more != OUTSIDE)
            return more;
    }
    return gather_rows(graph, gathering, deadline);
}

/* How much is read, in thousandths; 0 where one thread reads, which does not know how much there is. */
uint64_t heapx_gather_done(const struct gathering *gathering)
{
    return gathering->parts ? parts_done(gathering->parts) : 0;
}

/* Scans [*at, end) for the node that is read, whose slots count from `base`. As heapx_gather_slice. */
int64_t heapx_graph_scan(struct graph *graph, uint64_t base, uint64_t *at, uint64_t end, double seconds)
{
    struct scanned scanned = {.slot = (*at - base) / graph->word, .base = base, .slotted = 1};
    int failed = scan_range(graph, NULL, at, end, end, &scanned, clock_now() + seconds);
    return failed ? failed : *at < end;
}

/* The same for bytes at hand: registers and the like, which stand side by side by chance. */
int64_t heapx_graph_scan_bytes(struct graph *graph, const uint8_t *bytes, uint64_t size, uint64_t first_slot)
{
    struct scanned scanned = {.slot = first_slot, .slotted = 1};
    struct signer *signer = graph->signer;
    graph->signer = NULL;
    const int failed = scan(graph, bytes, size, &scanned);
    graph->signer = signer;
    return failed;
}

/* The node that was read ends here. */
int64_t heapx_graph_end_node(struct graph *graph)
{
    return end_node(graph);
}
