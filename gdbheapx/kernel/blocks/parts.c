/* Blocks that are read in parts, by several threads: each part has an index, candidates and the rest of its own, as if there were no other
   blocks, and they are put together in order. What is wrong about a part, or depends on the order in which blocks are read, is known
   before that; then all is read once more by one thread. */
#define _GNU_SOURCE
#include "gather.h"

#include <pthread.h>
#include <stdlib.h>

#define PARTS_EACH 6u
#define LATE_SECONDS 0.002
#define MOST_PARTS (PARTS_EACH * MAX_THREADS)

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

static void tell(struct parts *parts)
{
    parts->answer = learn(parts, parts->question);
    __atomic_store_n(&parts->is_asked, 0, __ATOMIC_RELEASE);
    pthread_cond_signal(&parts->told);
}

int parts_serve(struct parts *parts)
{
    if (__atomic_load_n(&parts->is_asked, __ATOMIC_ACQUIRE) && pthread_equal(pthread_self(), parts->reader)) {
        pthread_mutex_lock(&parts->lock);
        if (parts->is_asked)
            tell(parts);
        pthread_mutex_unlock(&parts->lock);
    }
    return !__atomic_load_n(&parts->is_wrong, __ATOMIC_RELAXED);
}

/* ---- the graph of a part ---- */

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
        .writer = {.address_bytes = whole->writer.address_bytes}, .buffer = malloc(128u << 10),
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

/* ---- all of them ---- */

void parts_free(struct parts *parts)
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

int parts_open(struct graph *graph, struct gathering *gathering)
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

static void *help(struct parts *parts, struct piece **piece)
{
    pthread_mutex_lock(&parts->lock);
    const int is_late = parts->is_over;
    parts->helpers += !is_late;
    pthread_mutex_unlock(&parts->lock);
    if (is_late)
        return NULL;
    read_parts(parts, piece);
    pthread_mutex_lock(&parts->lock);
    parts->helpers--;
    pthread_cond_signal(&parts->asked);
    pthread_mutex_unlock(&parts->lock);
    return NULL;
}

struct helper {
    struct parts *parts;
    unsigned number;                /* 0: the caller's thread */
};

static void *run(void *item)
{
    struct helper *helper = item;
    struct parts *parts = helper->parts;
    struct piece **piece = &parts->pieces[helper->number];
    if (helper->number)
        return help(parts, piece);
    read_parts(parts, piece);
    pthread_mutex_lock(&parts->lock);
    parts->is_over = 1;
    while (parts->helpers) {
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

uint64_t parts_done(const struct parts *parts)
{
    uint64_t ended = 0;
    for (unsigned i = 0; i < parts->count; i++)
        ended += parts->all[i].has_ended;
    return 1000 * ended / parts->count;
}

int64_t parts_slice(struct parts *parts, double deadline)
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
    threads_run(run, items, sizeof *items, parts->graph->threads);
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
