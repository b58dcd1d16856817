/* Blocks of Rust programs: what trait objects and vectors point to, nodes of B-trees, and what Rc and Arc count. */
#include "referrals.h"

#include <stdlib.h>

#define LEAST_FULL 33u                  /* of a Vec that votes or is told alone: a smaller number stands beside many a pointer */
#define LEAST_VOTES 4u
#define MOST_ELEMENT 4096u
#define COUNTS_BYTES 16u                /* in front of what an Rc or Arc holds */
#define EDGES 12u                       /* of an internal node of a BTreeMap, behind what a leaf has (InternalNode in alloc's node.rs) */

int rust_open(struct referrals *work, const uint64_t *layouts, uint64_t count)
{
    struct rust *rust = &work->rust;
    if (!(work->containers & RUST))
        return 1;
    rust->layouts = calloc(3 * (size_t) count + 1, sizeof *rust->layouts);
    rust->places = calloc((1u << PLACE_BITS) / 64, sizeof *rust->places);
    rust->pointers = lazy_alloc((size_t) work->graph->index.blocks * sizeof *rust->pointers);
    if (!rust->layouts || !rust->places || !rust->pointers)
        return 0;
    rust->layout_count = count;
    if (count)
        memcpy(rust->layouts, layouts, 3 * (size_t) count * sizeof *layouts);
    return 1;
}

void rust_free(struct referrals *work)
{
    lazy_free(work->rust.pointers, (size_t) work->graph->index.blocks * sizeof *work->rust.pointers);
    free(work->rust.places);
    free(work->rust.layouts);
}

/* Size and alignment; NULL: this is no vtable. */
static const uint64_t *layout_of(const struct rust *rust, uint64_t vtable)
{
    const uint64_t place = rows_up_to(rust->layouts, rust->layout_count, 3 * sizeof *rust->layouts, vtable - 1);
    return place < rust->layout_count && rust->layouts[3 * place] == vtable ? &rust->layouts[3 * place + 1] : NULL;
}

/* A block of so many bytes, where there are no size classes: with a header of a word in front it takes a multiple of 16. */
static int is_chunk_of(uint64_t usable, uint64_t bytes)
{
    const uint64_t chunk = (bytes + 23) & ~UINT64_C(15);
    return usable + 8 == (chunk < 32 ? 32 : chunk);
}

static void count_pointers(struct referrals *work, uint32_t node)
{
    const struct graph *graph = work->graph;
    for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
        const uint32_t target = EDGE_ID(graph->to[edge]), rule = EDGE_RULE(graph->to[edge]);
        if (target < graph->index.blocks && (rule == RULE_START || rule == RULE_END)
            && worth_of(work, label_of(work, target)) == STRONG)
            work->rust.pointers[target]++;
    }
}

/* The object alone fills the block, or it does with the counts of an Rc or Arc in front. */
static int take_dyn(struct referrals *work, const struct hint *hint)
{
    const uint64_t *layout = layout_of(&work->rust, hint->bytes);
    const uint32_t id = layout ? nameless_at(work, hint->address) : NO_NODE;
    if (id == NO_NODE)
        return 1;
    const uint64_t usable = index_size(&work->graph->index, id), bytes = layout[0];
    const uint64_t counted = bytes + (layout[1] > COUNTS_BYTES ? layout[1] : COUNTS_BYTES);
    const unsigned worth = worth_of(work, label_of(work, id));
    const int may_count = (worth == COUNTS || worth == STRONG) && may_hold(work, usable, counted);
    if (may_count && (!may_hold(work, usable, bytes) || is_chunk_of(usable, counted) || !is_chunk_of(usable, bytes)))
        return give(work, id, SHARED_DYNS, hint->bytes, 0);
    return !may_hold(work, usable, bytes) || give(work, id, DYNS, hint->bytes, 0);
}

/* A full Vec<u8> or String votes for the order of its words. */
static void vote(struct referrals *work, const struct hint *hint)
{
    const struct graph *graph = work->graph;
    const uint32_t id = index_begin(&graph->index, hint->address);
    if (id != NO_NODE && may_hold(work, index_size(&graph->index, id), vec_capacity(hint)))
        work->rust.votes[vec_order(hint)]++;
}

/* The order that they voted for; VEC_ORDERS: none. A string of libstdc++, {block, length, capacity}, votes for the order of older
   compilers: beside C++ only the other one can be told. */
static unsigned elected(const struct referrals *work)
{
    const uint64_t *votes = work->rust.votes;
    if (work->containers & CPLUSPLUS)
        return votes[CAPACITY_POINTER_LENGTH] >= LEAST_VOTES ? CAPACITY_POINTER_LENGTH : VEC_ORDERS;
    const unsigned most = votes[POINTER_CAPACITY_LENGTH] > votes[CAPACITY_POINTER_LENGTH];
    return votes[most] >= LEAST_VOTES && votes[most] >= 4 * votes[!most] ? most : VEC_ORDERS;
}

/* Elements of some size, a multiple of their alignment, are so many that they fill the block. */
static int may_be_full(const struct referrals *work, uint64_t usable, uint64_t capacity)
{
    const uint64_t element = usable / capacity & ~UINT64_C(3);
    return may_hold(work, usable, capacity) || may_hold(work, usable, 2 * capacity)
           || (element && element <= MOST_ELEMENT && may_hold(work, usable, element * capacity));
}

/* A large Vec is told by itself, and tells that its owner has one in this place; a small one is told where its owner has one. */
static int take_vec(struct referrals *work, const struct hint *hint, int is_small)
{
    uint64_t *places = work->rust.places;
    const uint64_t capacity = vec_capacity(hint);
    const uint32_t place = vec_place(hint);
    if (hint->kind != VECS || vec_order(hint) != elected(work) || (capacity < LEAST_FULL) != is_small)
        return 1;
    if (is_small && !(places[place >> 6] >> (place & 63) & 1))
        return 1;
    const uint32_t id = nameless_at(work, hint->address);
    const uint64_t usable = id != NO_NODE ? index_size(&work->graph->index, id) : 0;
    if (id == NO_NODE || !may_be_full(work, usable, capacity))
        return 1;
    /* An array of structs has small numbers beside other pointers, too. */
    if (is_small && place & 1 && worth_of(work, label_of(work, id)) != BY_CONTENT && (usable == 24 || !may_hold(work, usable, capacity)))
        return 1;
    places[place >> 6] |= UINT64_C(1) << (place & 63);
    return give(work, id, VECS, vec_order(hint), 0);
}

/* The block to which an edge of an internal node leads, if that is a child of it, which says whose child it is. */
static uint32_t child_of(const struct referrals *work, uint32_t node, uint32_t edge, uint64_t leaf)
{
    const struct graph *graph = work->graph;
    const uint32_t rule = EDGE_RULE(graph->to[edge]), child = EDGE_ID(graph->to[edge]);
    if ((rule != RULE_START && rule != RULE_END) || child >= graph->index.blocks || block_at_slot(graph, child, 0) != node)
        return NO_NODE;
    const uint64_t usable = index_size(&graph->index, child);
    return may_hold(work, usable, leaf) || may_hold(work, usable, leaf + 8 * EDGES) ? child : NO_NODE;
}

/* An internal node of a BTreeMap: what a leaf has, then up to twelve children, at least two; each begins with a pointer to it. */
static int take_btree(struct referrals *work, uint32_t node)
{
    const struct graph *graph = work->graph;
    const uint64_t usable = index_size(&graph->index, node);
    const uint32_t end = graph->offsets[node + 1];
    for (uint32_t edge = graph->offsets[node]; edge < end; edge++) {
        const uint64_t first = slot_of(graph, edge), leaf = 8 * first;
        if (first < 2 || usable == 24 || !may_hold(work, usable, leaf + 8 * EDGES))
            continue;
        uint32_t until = edge;
        while (until < end && until - edge < EDGES && slot_of(graph, until) == first + (until - edge)
               && child_of(work, node, until, leaf) != NO_NODE)
            until++;
        if (until - edge < 2)
            continue;
        for (uint32_t one = edge; one < until; one++)
            if (!is_known(work, label_of(work, EDGE_ID(graph->to[one]))) && !give(work, EDGE_ID(graph->to[one]), BTREES, 0, 0))
                return 0;
        return is_known(work, label_of(work, node)) || give(work, node, BTREES, 0, 0);
    }
    return 1;
}

/* As many pointers lead to it as it counts, more than one. */
static int take_counted(struct referrals *work, uint32_t node)
{
    const uint32_t label = label_of(work, node);
    const uint32_t pointers = work->rust.pointers[node];
    if (pointers < 2 || worth_of(work, label) != STRONG || work->signer->keys[label - 1].key != pointers)
        return 1;
    return give(work, node, COUNTED, 0, 0);
}

int rust_some(struct referrals *work, unsigned step, uint32_t next, uint32_t until)
{
    const struct hint *hints = work->signer->hints;
    int done = 1;
    for (; step == RUST_POINTERS && next < until; next++)
        count_pointers(work, next);
    for (; step == RUST_DYNS && next < until && done; next++) {
        done = hints[next].kind != DYNS || take_dyn(work, &hints[next]);
        if (hints[next].kind == VECS && vec_is_full(&hints[next]) && vec_capacity(&hints[next]) >= LEAST_FULL)
            vote(work, &hints[next]);
    }
    for (; step == RUST_BTREES && next < until && done; next++)
        done = take_btree(work, next);
    for (; (step == RUST_VECS || step == RUST_SMALL_VECS) && next < until && done; next++)
        done = take_vec(work, &hints[next], step == RUST_SMALL_VECS);
    for (; step == RUST_COUNTED && next < until && done; next++)
        done = take_counted(work, next);
    return done;
}

uint64_t rust_end(const struct referrals *work, unsigned step)
{
    if (!(work->containers & RUST))
        return 0;
    if (step == RUST_BTREES || step == RUST_COUNTED)
        return work->graph->index.blocks;
    return step == RUST_POINTERS ? work->graph->nodes : work->signer->hint_count;
}

static int by_number(const void *one, const void *other)
{
    const uint64_t a = *(const uint64_t *) one, b = *(const uint64_t *) other;
    return (a > b) - (a < b);
}

/* `out`: what stands beside pointers and may be a vtable, each once, at most `room`. Returns how many there are; UINT64_MAX: no memory. */
uint64_t heapx_signer_vtables(const struct signer *signer, uint64_t *out, uint64_t room)
{
    uint64_t count = 0, different = 0, before = 0;
    for (uint64_t i = 0; i < signer->hint_count; i++) {
        const struct hint *hint = &signer->hints[i];
        count += hint->kind == DYNS && hint->bytes != before;
        before = hint->kind == DYNS ? hint->bytes : before;
    }
    uint64_t *found = malloc((size_t) (count + 1) * sizeof *found);
    if (!found)
        return UINT64_MAX;
    count = before = 0;
    for (uint64_t i = 0; i < signer->hint_count; i++) {
        const struct hint *hint = &signer->hints[i];
        if (hint->kind == DYNS && hint->bytes != before)
            found[count++] = before = hint->bytes;
    }
    qsort(found, (size_t) count, sizeof *found, by_number);
    for (uint64_t i = 0; i < count; i++) {
        if (i && found[i] == found[i - 1])
            continue;
        if (different < room)
            out[different] = found[i];
        different++;
    }
    free(found);
    return different;
}
