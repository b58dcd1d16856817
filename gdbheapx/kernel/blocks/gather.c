/* The one read: every word of every used block, and of what lies outside the heaps, that may point into a heap.

   Blocks are read by one thread, or in parts by several: each part has an index, candidates and the rest of its own, as if there were no
   other blocks, and they are put together in order. What is wrong about a part, or depends on the order in which blocks are read, is known
   before that; then all is read once more by one thread. */
#define _GNU_SOURCE
#include "graph.h"

#include <pthread.h>
#include <stdlib.h>

#define PARTS_EACH 6u
#define LATE_SECONDS 0.002
#define MOST_PARTS (PARTS_EACH * MAX_THREADS)

/* One read of blocks, as far as it came. */
struct gathering {
    struct block_source *blocks;
    const uint64_t *own;            /* the caller's: addresses inside blocks that are the allocator's own, sorted */
    uint64_t own_count, next_own;
    struct parts *parts;            /* NULL: it is not read in parts */
    int is_split;                   /* that was tried */
    struct parts *asked;            /* others may ask who reads this */
    struct row_buffer held;
    uint64_t next;
    uint64_t until[ROWS_AT_ONCE];   /* where the used blocks end that follow each other closely from here on */
};

struct gather_part {
    struct parts *parts;
    struct gathering *gathering;
    struct graph *graph;
    int is_taken, has_ended;        /* in this slice by a thread; all of it is read */
    int failed;
};

struct parts {
    struct graph *graph;            /* of the whole */
    unsigned count;
    struct gather_part all[MOST_PARTS];
    struct block_source *sources[MOST_PARTS];
    uint64_t begins[MOST_PARTS];
    struct piece *pieces[MAX_THREADS];   /* of candidates, begun for a part that is read: the next one's go on there */
    double deadline;
    int is_wrong, on_time;
    /* what is not known of blocks is asked of images, which may be a call into Python: only the thread of the caller does that */
    pthread_t reader;
    pthread_mutex_t lock, asking;
    pthread_cond_t asked, told;
    uint64_t question;
    uint16_t answer;
    int is_asked, helpers, is_over;
};

/* ---- what other threads ask the caller's ---- */

/* Only who reads for all does this. */
static uint16_t learn(struct parts *parts, uint64_t value)
{
    const uint16_t number = heads_class(&parts->graph->heads, value);
    if (heads_are_full(&parts->graph->heads))
        __atomic_store_n(&parts->is_wrong, 1, __ATOMIC_RELAXED);
    return number;
}

static uint16_t ask(const struct heads *heads, uint64_t value)
{
    struct parts *parts = heads->asked;
    if (pthread_equal(pthread_self(), parts->reader))
        return learn(parts, value);
    pthread_mutex_lock(&parts->asking);
    pthread_mutex_lock(&parts->lock);
    parts->question = value;
    __atomic_store_n(&parts->is_asked, 1, __ATOMIC_RELEASE);
    pthread_cond_signal(&parts->asked);
    while (parts->is_asked)
        pthread_cond_wait(&parts->told, &parts->lock);
    const uint16_t answer = parts->answer;
    pthread_mutex_unlock(&parts->lock);
    pthread_mutex_unlock(&parts->asking);
    return answer;
}

/* The lock is held. */
static void tell(struct parts *parts)
{
    parts->answer = learn(parts, parts->question);
    __atomic_store_n(&parts->is_asked, 0, __ATOMIC_RELEASE);
    pthread_cond_signal(&parts->told);
}

/* Answers who waits. 0: there is no point in going on. */
static int parts_serve(struct parts *parts)
{
    if (__atomic_load_n(&parts->is_asked, __ATOMIC_ACQUIRE) && pthread_equal(pthread_self(), parts->reader)) {
        pthread_mutex_lock(&parts->lock);
        if (parts->is_asked)
            tell(parts);
        pthread_mutex_unlock(&parts->lock);
    }
    return !__atomic_load_n(&parts->is_wrong, __ATOMIC_RELAXED);
}

/* ---- words of a block ---- */

struct scanned {
    uint64_t own, own_bytes;        /* the block itself: pointers to it from inside say nothing */
    uint64_t slot;                  /* of the first byte */
    uint64_t base;                  /* where slot 0 is; 0: nowhere in memory */
    int slotted;
    struct head head;               /* of a block */
    int wants_content;
    struct content content;
};

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
    if (graph->signer && graph->signer->constants.count)
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
    uint64_t got = want;
    int interrupted = 0;
    const uint8_t *bytes = in_hand(graph, gathering->blocks, address, want);
    if (!bytes) {
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
    const int added = index_add_next(&graph->index, address, size);
    if (added <= 0) {
        graph->odd_blocks += !added && size;
        return added;
    }
    const int is_small = graph->plain_words && size / 8 <= SMALL_WORDS;
    const uint8_t *bytes = is_small ? in_hand(graph, gathering->blocks, address, size) : NULL;
    int failed = graph->signer ? sign(graph, gathering, row, address, size) : 0;
    if (failed)
        return failed;
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
    struct scanned scanned = {.own = address, .own_bytes = size, .base = address, .slotted = (int) graph->all_slots,
                              .wants_content = wants_content};
    const int is_lent = in_hand(graph, gathering->blocks, address, graph->word) && graph->at_hand != graph->buffer;
    const uint64_t limit = is_lent ? address + size : gathering->until[row];
    failed = scan_range(graph, gathering->blocks, &at, address + size, limit, &scanned, 0);
    if (!failed && !head_end(&graph->heads, &scanned.head, graph->index.blocks - 1, size))
        return NO_MEMORY;
    if (!failed && wants_content)
        failed = keep_content(graph, &scanned.content);
    return failed ? failed : end_node(graph);
}

/* Goes on until the deadline. As heapx_gather_slice. */
static int64_t gather_rows(struct graph *graph, struct gathering *gathering, double deadline)
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

/* ---- parts ---- */

static void part_free(struct graph *graph)
{
    if (!graph)
        return;
    index_close_part(&graph->index);
    heads_close_part(&graph->heads);
    signer_close_part(graph->signer);
    heapx_graph_free(graph);
}

static struct graph *part_new(const struct graph *whole, struct parts *parts)
{
    struct graph *graph = malloc(sizeof *graph);
    if (!graph)
        return NULL;
    *graph = (struct graph) {
        .memory = whole->memory, .sieve = whole->sieve, .word = whole->word, .swap = whole->swap, .packed_swap = whole->packed_swap,
        .plain_words = whole->plain_words, .all_slots = whole->all_slots, .notes_stale = whole->notes_stale, .threads = 1,
        .writer = {.address_bytes = whole->writer.address_bytes}, .buffer = malloc(READ_BYTES),
        .signer = whole->signer ? signer_open_part(whole->signer) : NULL,
    };
    graph->at_hand = graph->buffer;
    writer_begin(&graph->writer, &graph->segments, 0, 0);
    heads_open_part(&graph->heads, &whole->heads, ask, parts);
    if ((!whole->signer || graph->signer) && index_open_part(&graph->index, &whole->index) && graph->buffer)
        return graph;
    part_free(graph);
    return NULL;
}

/* The part's blocks follow those that are there. 0, or NO_MEMORY. */
static int join(struct graph *whole, struct graph *part)
{
    const uint64_t first = whole->index.blocks;
    const int failed = writer_cut(&part->writer, 0);
    for (uint64_t i = 0; i < part->segments.count; i++)
        part->segments.all[i].node += (uint32_t) first;
    if (failed || !index_join(&whole->index, &part->index) || !heads_join(&whole->heads, &part->heads, first)
        || !segments_append(&whole->segments, &part->segments)
        || (whole->signer && !signer_join(whole->signer, part->signer)))
        return NO_MEMORY;
    stale_join(&whole->stale, &part->stale, first);
    whole->nodes_read += part->nodes_read;
    whole->writer.candidates += part->writer.candidates;
    whole->writer.slotted += part->writer.slotted;
    whole->unread_at = whole->unread_bytes ? whole->unread_at : part->unread_at;
    whole->unread_bytes += part->unread_bytes;
    whole->odd_blocks += part->odd_blocks;
    whole->bytes_read += part->bytes_read;
    return 0;
}

static void parts_free(struct parts *parts)
{
    if (!parts)
        return;
    for (unsigned i = 0; i < parts->count; i++) {
        heapx_gather_free(parts->all[i].gathering);
        part_free(parts->all[i].graph);
        parts->sources[i]->free(parts->sources[i]);
    }
    for (unsigned i = 0; i < MAX_THREADS; i++)
        piece_release(parts->pieces[i]);
    pthread_cond_destroy(&parts->told);
    pthread_cond_destroy(&parts->asked);
    pthread_mutex_destroy(&parts->asking);
    pthread_mutex_destroy(&parts->lock);
    free(parts);
}

static int part_open(struct parts *parts, unsigned i, const struct gathering *whole)
{
    struct gather_part *part = &parts->all[i];
    part->parts = parts;
    part->graph = part_new(parts->graph, parts);
    part->gathering = heapx_gather_new(parts->sources[i], whole->own, whole->own_count);
    if (!part->graph || !part->gathering)
        return 0;
    part->gathering->is_split = 1;
    part->gathering->asked = parts;
    return 1;
}

/* The blocks are read in parts from now on, if that is worth it. 0, or NO_MEMORY. */
static int parts_open(struct graph *graph, struct gathering *gathering)
{
    const struct block_source *blocks = gathering->blocks;
    if (graph->threads < 2 || graph->nodes_read || !blocks->split || !source_is_parallel(graph->memory)
        || (graph->signer && !signer_may_have_parts(graph->signer)))
        return 0;
    struct parts *parts = calloc(1, sizeof *parts);
    if (!parts)
        return NO_MEMORY;
    parts->graph = graph;
    pthread_mutex_init(&parts->lock, NULL);
    pthread_mutex_init(&parts->asking, NULL);
    pthread_cond_init(&parts->asked, NULL);
    pthread_cond_init(&parts->told, NULL);
    const int count = blocks->split(blocks, graph->threads * PARTS_EACH, parts->sources, parts->begins);
    parts->count = count > 0 ? (unsigned) count : 0;
    int is_open = count >= 0;
    for (unsigned i = 0; i < parts->count && is_open && count > 1; i++)
        is_open = part_open(parts, i, gathering);
    if (is_open && count > 1) {
        gathering->parts = parts;
        return 0;
    }
    parts_free(parts);
    return is_open ? 0 : NO_MEMORY;
}

static void read_part(struct parts *parts, struct gather_part *part, double deadline, struct piece **piece)
{
    const unsigned i = (unsigned) (part - parts->all);
    const struct block_source *blocks = parts->sources[i];
    if (!part->graph->writer.piece) {
        part->graph->writer.piece = *piece;
        *piece = NULL;
        writer_begin(&part->graph->writer, &part->graph->segments, 0, 0);
    }
    part->failed = (int) gather_rows(part->graph, part->gathering, deadline);
    part->has_ended = !part->failed;
    if (part->has_ended && !*piece) {
        part->failed = writer_cut(&part->graph->writer, 0);
        *piece = part->graph->writer.piece;
        part->graph->writer.piece = NULL;
    }
    if (part->has_ended && i + 1 < parts->count && blocks->state(blocks).at != parts->begins[i + 1])
        __atomic_store_n(&parts->is_wrong, 1, __ATOMIC_RELAXED);
}

/* A part that no thread has in this slice, the last ones first: behind them lie the largest blocks. */
static struct gather_part *take_part(struct parts *parts)
{
    for (unsigned i = parts->count; i-- > 0;)
        if (!parts->all[i].has_ended && !__atomic_exchange_n(&parts->all[i].is_taken, 1, __ATOMIC_RELAXED))
            return &parts->all[i];
    return NULL;
}

/* Until the deadline, and beyond it as long as another thread has not seen that: one block may take much longer. */
static void read_parts(struct parts *parts, struct piece **piece)
{
    struct gather_part *part = take_part(parts);
    int is_late = 0;
    __atomic_fetch_add(&parts->on_time, 1, __ATOMIC_RELAXED);
    while (part && parts_serve(parts)) {
        const double now = clock_now();
        if (!is_late && now > parts->deadline) {
            is_late = 1;
            __atomic_fetch_sub(&parts->on_time, 1, __ATOMIC_RELAXED);
        }
        if (is_late && !__atomic_load_n(&parts->on_time, __ATOMIC_RELAXED))
            break;
        read_part(parts, part, is_late ? now + LATE_SECONDS : parts->deadline, piece);
        if (part->failed < 0)
            break;
        part = part->has_ended ? take_part(parts) : part;
    }
    if (!is_late)
        __atomic_fetch_sub(&parts->on_time, 1, __ATOMIC_RELAXED);
}

struct helper {
    struct parts *parts;
    unsigned number;                /* 0: the caller's thread */
};

/* One thread of a slice. The caller's answers the others until they have done, and late ones do nothing. */
static void *help(void *item)
{
    const struct helper *helper = item;
    struct parts *parts = helper->parts;
    pthread_mutex_lock(&parts->lock);
    const int is_late = parts->is_over;
    parts->helpers += !is_late;
    pthread_mutex_unlock(&parts->lock);
    if (is_late)
        return NULL;
    read_parts(parts, &parts->pieces[helper->number]);
    pthread_mutex_lock(&parts->lock);
    parts->helpers--;
    parts->is_over |= !helper->number;
    pthread_cond_signal(&parts->asked);
    while (!helper->number && parts->helpers) {
        if (parts->is_asked)
            tell(parts);
        else
            pthread_cond_wait(&parts->asked, &parts->lock);
    }
    pthread_mutex_unlock(&parts->lock);
    return NULL;
}

/* All parts are read, and are put together, in order. 0; OUTSIDE: they cannot be; NO_MEMORY. */
static int join_all(struct parts *parts)
{
    struct graph *whole = parts->graph;
    uint64_t blocks = 0;
    int failed = 0;
    for (unsigned i = 0; i < parts->count; i++) {
        blocks += parts->all[i].graph->index.blocks;
        if (whole->signer && !signer_join_keys(whole->signer, parts->all[i].graph->signer))
            return OUTSIDE;
    }
    if (!index_reserve(&whole->index, blocks))
        return NO_MEMORY;
    for (unsigned i = 0; i < parts->count && !failed; i++) {
        failed = join(whole, parts->all[i].graph);
        part_free(parts->all[i].graph);
        parts->all[i].graph = NULL;
    }
    writer_begin(&whole->writer, &whole->segments, whole->nodes_read, 0);
    return failed;
}

/* As heapx_gather_slice; OUTSIDE: they cannot be read in parts, nothing was read. */
static int64_t parts_slice(struct parts *parts, double deadline)
{
    struct helper items[MAX_THREADS];
    int64_t more = 0;
    for (unsigned i = 0; i < parts->graph->threads; i++)
        items[i] = (struct helper) {parts, i};
    for (unsigned i = 0; i < parts->count; i++)
        parts->all[i].is_taken = parts->all[i].failed = 0;
    parts->reader = pthread_self();
    parts->deadline = deadline;
    parts->is_over = 0;
    threads_run(help, items, sizeof *items, parts->graph->threads);
    for (unsigned i = 0; i < parts->count && !parts->is_wrong; i++) {
        if (parts->all[i].failed < 0)
            return parts->all[i].failed;
        more |= !parts->all[i].has_ended;
    }
    if (more && !parts->is_wrong)
        return more;
    more = parts->is_wrong ? OUTSIDE : join_all(parts);
    if (more == OUTSIDE) {
        heads_forget(&parts->graph->heads);
        index_clear(&parts->graph->index);
        if (parts->graph->signer)
            signer_clear(parts->graph->signer);
    }
    return more;
}

/* ---- slices ---- */

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

/* How much is read, in thousandths, between two slices; 0 where one thread reads, which does not know how much there is. */
uint64_t heapx_gather_done(const struct gathering *gathering)
{
    const struct parts *parts = gathering->parts;
    uint64_t ended = 0;
    for (unsigned i = 0; parts && i < parts->count; i++)
        ended += parts->all[i].has_ended;
    return parts ? 1000 * ended / parts->count : 0;
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
