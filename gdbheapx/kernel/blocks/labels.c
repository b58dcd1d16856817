/* What blocks are that no row knows: by the one block or variable that points to them, or by their size alone.

   A label spreads from a block whose name is known along its pointers, to blocks that nothing else points to. A list of nodes that each
   hang on the same place of the one before has one label, however long it is. */
#include "referrals.h"

#include <stdlib.h>

#define FEW_EDGES 16u                   /* of one node: so few are looked through once more for each */
#define CHECK_CLOCK 16384u
#define PLANES 4                        /* referrals.h: seen and those behind it */

/* A node of libstdc++'s std::map and std::set, in words: colour, parent, left, right (stl_tree.h: _Rb_tree_node_base). */
enum { PARENT = 1, LEFT, RIGHT };
#define MOST_WALKS 1000000u

#define MEMBER_ROUNDS 4u                /* containers below containers */
#define NO_KEY UINT64_MAX

enum { STEP_CONTAINERS, STEP_RUST, STEP_HINTS = STEP_RUST + RUST_STEPS, STEP_TREES, STEP_EDGES, STEP_INSIDE, STEP_BLOCKS, STEP_ROOTS,
       STEP_MEMBERS, STEP_COPIES = STEP_MEMBERS + MEMBER_ROUNDS, STEP_MEMBERS_LEFT, STEP_SIZES, STEP_OVER };

static size_t plane_words(const struct graph *graph)
{
    return (size_t) graph->index.blocks / 64 + 1;
}

void heapx_referrals_free(struct referrals *work)
{
    if (!work)
        return;
    lazy_free(work->seen, PLANES * plane_words(work->graph) * sizeof *work->seen);
    rust_free(work);
    free(work->stack);
    free(work->known);
    free(work);
}

/* NULL: no memory. */
struct referrals *heapx_referrals_new(struct graph *graph, struct signer *signer, const uint8_t *known, uint32_t known_count,
                                      unsigned most_depth, uint32_t roots_from, int has_classes, uint32_t tree_label, int containers,
                                      const uint64_t *layouts, uint64_t layout_count, uint64_t least_same,
                                      const struct containers *linked)
{
    struct referrals *work = calloc(1, sizeof *work);
    if (!work)
        return NULL;
    *work = (struct referrals) {
        .graph = graph, .signer = signer, .known = calloc((size_t) known_count + 1, 1), .known_count = known_count,
        .most_depth = most_depth, .roots_from = roots_from, .has_classes = has_classes, .tree_label = tree_label,
        .containers = containers, .least_same = least_same, .linked = linked,
        .walks_left = 8 * (uint64_t) graph->index.blocks + MOST_WALKS,
        .seen = lazy_alloc(PLANES * plane_words(graph) * sizeof *work->seen),
    };
    if (!work->known || !work->seen || signer->blocks != graph->index.blocks || !rust_open(work, layouts, layout_count)) {
        heapx_referrals_free(work);
        return NULL;
    }
    if (known_count)
        memcpy(work->known + 1, known, known_count);    /* UNKNOWN: who has no label */
    work->seen_inside = work->seen + plane_words(graph);
    work->several = work->seen_inside + plane_words(graph);
    work->mine = work->several + plane_words(graph);
    for (uint32_t i = 0; linked && i < linked->ordered; i++)
        set_bit(work->several, linked->order[i]);       /* they have names by their container */
    return work;
}

/* An edge that says who holds a block. A pointer to just any place inside does where no better one leads there: numbers and stale words
   look like pointers into what is large. */
static inline int counts(const struct referrals *work, uint32_t edge)
{
    const uint32_t target = EDGE_ID(work->graph->to[edge]), rule = EDGE_RULE(work->graph->to[edge]);
    if (target >= work->graph->index.blocks || rule == RULE_END)
        return 0;
    return rule != RULE_INSIDE || (work->counts_inside && !has_bit(work->seen, target));
}

/* One of the edges from `first` on, before `edge`, leads where this one does. */
static int points_before(const struct referrals *work, uint32_t first, uint32_t edge)
{
    const struct graph *graph = work->graph;
    const uint32_t target = EDGE_ID(graph->to[edge]);
    while (first < edge && (EDGE_ID(graph->to[first]) != target || !counts(work, first)))
        first++;
    return first < edge;
}

/* Several pointers of one node count as one. Once all others are noted, those to any place inside are. */
static void note_edges(struct referrals *work, uint32_t node)
{
    const struct graph *graph = work->graph;
    uint64_t *seen = work->counts_inside ? work->seen_inside : work->seen;
    const uint32_t first = graph->offsets[node], end = graph->offsets[node + 1];
    const int are_few = end - first <= FEW_EDGES;
    for (uint32_t edge = first; edge < end; edge++) {
        const uint32_t target = EDGE_ID(graph->to[edge]);
        if (!counts(work, edge) || (work->counts_inside && EDGE_RULE(graph->to[edge]) != RULE_INSIDE))
            continue;
        if (!has_bit(seen, target)) {
            set_bit(seen, target);
            if (!are_few)
                set_bit(work->mine, target);
        } else if (!has_bit(work->several, target) && !(are_few ? points_before(work, first, edge) : has_bit(work->mine, target))) {
            set_bit(work->several, target);
        }
    }
    for (uint32_t edge = first; !are_few && edge < end; edge++)
        if (counts(work, edge))
            work->mine[EDGE_ID(graph->to[edge]) >> 6] = 0;
}

static int push(struct referrals *work, uint32_t node)
{
    uint32_t *stack = with_room(work->stack, work->depth, &work->room, sizeof *stack);
    if (!stack)
        return 0;
    work->stack = stack;
    stack[work->depth++] = node;
    return 1;
}

static int give_size(struct referrals *work, uint32_t id)
{
    const uint64_t usable = index_size(&work->graph->index, id), row = work->signer->row_count + SIZED;
    if (usable / 4 >= SMALL_SIZES)
        return signer_relabel(work->signer, &work->graph->index, id, signer_key(work->signer, row, usable));
    uint32_t *label = &work->sized[usable / 4];
    if (!*label)
        *label = signer_key(work->signer, row, usable);
    return signer_relabel(work->signer, &work->graph->index, id, *label);
}

/* It has no places that mean anything. */
static int has_elements(const struct signer *signer, uint64_t row)
{
    const uint64_t kind = row - signer->row_count;
    return kind == VECTOR || kind == BUCKETS || kind == DEQUE || kind == BUFFERS || kind == HASHES || kind == VECS;
}

/* However large it is, it is one object. */
static int is_object(const struct signer *signer, uint64_t row)
{
    return row - signer->row_count == DYNS || row - signer->row_count == SHARED_DYNS;
}

static int is_named(const struct referrals *work, uint32_t label)
{
    return is_known(work, label) || worth_of(work, label) == BY_CONTENT;
}

/* Names what only this node points to; of what nobody knows who holds it, what its content does not tell. 0: no memory. */
static int spread(struct referrals *work, uint32_t node)
{
    const struct graph *graph = work->graph;
    struct signer *signer = work->signer;
    const uint64_t referred = signer->row_count + REFERRED;
    const int is_root = node >= graph->index.blocks;
    const uint64_t row = is_root ? UINT64_MAX : signer->keys[label_of(work, node) - 1].row;
    if (row == signer->row_count + STRING)
        return 1;                       /* characters are no pointers */
    const int is_element = !is_root && (has_elements(signer, row)
                                        || (index_size(&graph->index, node) > MOST_OBJECT_BYTES && !is_object(signer, row)));
    const uint32_t label = is_root ? 0 : label_of(work, node), first = graph->offsets[node], end = graph->offsets[node + 1];
    for (uint32_t edge = first; edge < end; edge++) {
        const uint32_t target = EDGE_ID(graph->to[edge]);
        const uint64_t slot = is_element ? ELEMENT : slot_of(graph, edge);
        if (edge + AHEAD < end && EDGE_ID(graph->to[edge + AHEAD]) < graph->index.blocks) {
            __builtin_prefetch(&signer->labels[EDGE_ID(graph->to[edge + AHEAD])]);
            __builtin_prefetch(&graph->index.sizes[EDGE_ID(graph->to[edge + AHEAD])]);
        }
        const struct signed_key *key = is_root ? NULL : &signer->keys[label - 1];
        const int goes_on = key && !is_element && key->row == referred && (key->key & UINT32_MAX) == slot;  /* node after node */
        if (key && !goes_on && key->depth >= work->most_depth)
            continue;
        if (!counts(work, edge) || has_bit(work->several, target)
            || (work->step == STEP_MEMBERS_LEFT ? is_named : is_known)(work, label_of(work, target)))
            continue;
        /* Of several pointers to it the first counts. A large block or a root has given that its name: it is known. */
        if (key && !is_element && points_before(work, first, edge))
            continue;
        /* Elements of what is as far away as may be give no names: theirs are not looked at. Beyond MOST_KEYS labels are shared. */
        const int ends_here = is_element && key->depth + 1 >= work->most_depth && signer->key_count < MOST_KEYS;
        const int done = is_root ? give(work, target, ROOTED, (uint64_t) (node - work->roots_from) << 32 | slot, 1)
                         : goes_on ? give(work, target, REFERRED, key->key, key->depth)
                         : give(work, target, REFERRED, (uint64_t) label << 32 | slot, key->depth + 1);
        if (!done || (!ends_here && !push(work, target)))
            return 0;
    }
    return 1;
}

static int drain(struct referrals *work)
{
    while (work->depth)
        if (!spread(work, work->stack[--work->depth]))
            return 0;
    return 1;
}

/* A root of a thread holds it, or a block that one holds. */
static int is_of_thread(const struct referrals *work, uint32_t holder)
{
    const uint32_t label = holder < work->graph->index.blocks ? label_of(work, holder) : 0;
    const struct signed_key *key = label ? &work->signer->keys[label - 1] : NULL;
    const int is_rooted = key && key->row - work->signer->row_count == ROOTED;
    return holder != NO_NODE && (is_rooted ? work->roots_from + (key->key >> 32) : holder) >= work->linked->locals_from;
}

/* The key of a container's elements, by what holds it; a thread does not tell what they are. A container of the same sort in such an
   element, such as a node of a B-tree, has the same. `is_last`: what holds it gets no name any more. NO_KEY: it may get one. */
static uint64_t member_key(const struct referrals *work, const struct container *container, int is_last, uint64_t *kind)
{
    const struct outer *entry = work->linked->entry_edges + container->first_entry;
    const uint32_t holder = container->entries ? entry->node : NO_NODE;
    const int is_array = holder < work->graph->index.blocks && index_size(&work->graph->index, holder) > MOST_OBJECT_BYTES;
    const uint64_t slot = is_array ? ELEMENT : container->entries ? slot_of(work->graph, entry->edge) : 0;
    const uint64_t place = (uint64_t) container->shape << MEMBER_SHAPE | (slot & MEMBER_SLOT);
    *kind = holder != NO_NODE && holder >= work->roots_from && holder < work->linked->locals_from ? ROOTED_MEMBERS : MEMBERS;
    if (is_of_thread(work, holder))
        return is_last ? place : NO_KEY;
    if (*kind == ROOTED_MEMBERS)
        return (uint64_t) (holder - work->roots_from) << 32 | place;
    if (holder >= work->graph->index.blocks || !is_known(work, label_of(work, holder)))
        return is_last ? place : NO_KEY;
    const struct signed_key *key = &work->signer->keys[label_of(work, holder) - 1];
    const int is_same = key->row - work->signer->row_count == MEMBERS && (key->key & UINT32_MAX) == place;
    return is_same ? key->key : (uint64_t) label_of(work, holder) << 32 | place;
}

/* Names elements that have none yet, and what only they point to; at last those that their content does not tell either. 0: no memory. */
static int name_members(struct referrals *work, const struct container *container, int is_last)
{
    const uint32_t *member = work->linked->order + container->first, *end = member + container->members;
    uint64_t kind;
    const uint64_t key = member_key(work, container, is_last, &kind);
    for (; member < end && key != NO_KEY; member++)
        if (!(is_last ? is_named : is_known)(work, label_of(work, *member)) && (!give(work, *member, kind, key, 0) || !push(work, *member)))
            return 0;
    return drain(work);
}

static int take_hint(struct referrals *work, const struct hint *hint)
{
    const int is_asked = (work->containers & CPLUSPLUS) && (hint->kind == STRING || hint->kind == VECTOR);
    const uint32_t id = is_asked ? nameless_at(work, hint->address) : NO_NODE;
    if (id == NO_NODE || !may_hold(work, index_size(&work->graph->index, id), hint->bytes))
        return 1;
    return give(work, id, hint->kind, 0, 0);
}

static int is_tree_node(const struct graph *graph, uint32_t node)
{
    const uint32_t parent = block_at_slot(graph, node, PARENT);
    unsigned proofs = parent != NO_NODE
                      && (block_at_slot(graph, parent, LEFT) == node || block_at_slot(graph, parent, RIGHT) == node);
    for (uint32_t slot = LEFT; slot <= RIGHT; slot++) {
        const uint32_t child = block_at_slot(graph, node, slot);
        if (child != NO_NODE && block_at_slot(graph, child, PARENT) != node)
            return 0;
        proofs += child != NO_NODE;
    }
    return proofs != 0;
}

/* It may be an element of just so many: those of a container are counted, and with them the block in which it begins, if that is alike. */
static int may_be_of(const struct referrals *work, uint32_t node, uint64_t count)
{
    const uint32_t number = work->linked && work->linked->count ? work->linked->of[node] : 0;
    return !number || work->linked->all[number - 1].members - count <= 1;
}

/* From this node on so many, each with a pointer to the next one at its begin, and in a list one to the one before behind that; the last
   one's leads to no block, or to that in which the list begins, which leads to both ends. */
static int is_chain(struct referrals *work, uint32_t first, uint64_t count, int is_list)
{
    const struct graph *graph = work->graph;
    const uint32_t begin = is_list ? block_at_slot(graph, first, 1) : NO_NODE;
    uint32_t node = first;
    if (begin != NO_NODE && (block_at_slot(graph, begin, 0) != first || !may_be_of(work, first, count)))
        return 0;
    for (uint64_t left = count; --left; work->walks_left--) {
        const uint32_t next = block_at_slot(graph, node, 0);
        if (!work->walks_left || next == NO_NODE || next == first || is_known(work, label_of(work, next))
            || (is_list && block_at_slot(graph, next, 1) != node))
            return 0;
        node = next;
    }
    return block_at_slot(graph, node, 0) == begin && (begin == NO_NODE || block_at_slot(graph, begin, 1) == node);
}

static int give_chain(struct referrals *work, uint32_t node, uint64_t count, unsigned kind)
{
    for (; count--; node = block_at_slot(work->graph, node, 0))
        if (!give(work, node, kind, 0, 0))
            return 0;
    return 1;
}

/* Whether the places of a deque's map from the first to the last all lead to buffers; `gives`: these are named. */
static int buffers(struct referrals *work, uint32_t map, const struct hint *hint, int gives)
{
    const struct graph *graph = work->graph;
    uint64_t want = hint->address >> 32;
    const uint64_t last = hint->address & UINT32_MAX;
    for (uint32_t edge = graph->offsets[map]; edge < graph->offsets[map + 1] && want <= last; edge++) {
        const uint32_t target = EDGE_ID(graph->to[edge]), rule = EDGE_RULE(graph->to[edge]);
        if (slot_of(graph, edge) < want)
            continue;
        if (slot_of(graph, edge) > want || (rule != RULE_START && rule != RULE_END) || target >= graph->index.blocks)
            return 0;
        if (!gives && (is_known(work, label_of(work, target)) || !may_hold(work, index_size(&graph->index, target), hint->bytes)))
            return 0;
        if (gives && !give(work, target, BUFFERS, 0, 0))
            return 0;
        want++;
    }
    return want > last;
}

/* A table of Rust's (hashbrown): items from its begin on, then a control byte for each place, and 16 of them once more. */
static int take_hashes(struct referrals *work, const struct hint *hint)
{
    const struct graph *graph = work->graph;
    uint64_t offset = 0;
    const uint32_t id = index_at(&graph->index, hint->address, &offset);
    const uint64_t places = hint->bytes - 16;
    if (id == NO_NODE || is_known(work, label_of(work, id)) || offset < places || offset % places >= 16
        || !may_hold(work, index_size(&graph->index, id), offset + hint->bytes))
        return 1;
    return give(work, id, HASHES, 0, 0);
}

static int take_container(struct referrals *work, const struct hint *hint, const struct hint *next)
{
    if (hint->kind == HASHES)
        return !(work->containers & RUST) || take_hashes(work, hint);
    const int is_asked = (work->containers & CPLUSPLUS) && (hint->kind == LIST || hint->kind == BUCKETS || hint->kind == DEQUE);
    const uint32_t id = is_asked ? nameless_at(work, hint->address) : NO_NODE;
    if (id == NO_NODE)
        return 1;
    if (hint->kind == LIST)
        return !is_chain(work, id, hint->bytes, 1) || give_chain(work, id, hint->bytes, LIST);
    if (!next || !may_hold(work, index_size(&work->graph->index, id), hint->bytes))
        return 1;
    if (hint->kind == DEQUE)
        return next->kind != BUFFERS || !buffers(work, id, next, 0) || (buffers(work, id, next, 1) && give(work, id, DEQUE, 0, 0));
    const uint32_t first = next->kind == CHAIN ? nameless_at(work, next->address) : NO_NODE;
    if (first == NO_NODE || first == id || !is_chain(work, first, next->bytes, 0))
        return 1;
    return give_chain(work, first, next->bytes, CHAIN) && give(work, id, BUCKETS, 0, 0);
}

/* Blocks that met a weak row and are not what it says. 0: no memory. */
static int take_weak(struct referrals *work)
{
    const struct contents *weak = &work->signer->weak;
    int done = 1;
    for (uint64_t i = 0; i < weak->count && done; i++)
        done = is_named(work, work->signer->labels[weak->ids[i]]) || give(work, weak->ids[i], weak->hashes[i], 0, 0);
    return done;
}

/* Blocks that only their content tells, and nobody who points to them: those with a content that many have, whoever points to the others.
   Contents are no longer needed then, unless copies are asked for. 0: no memory. */
static int take_copies(struct referrals *work)
{
    struct signer *signer = work->signer;
    struct contents *contents = &signer->contents;
    uint32_t *groups = contents_groups(contents, &work->graph->index, work->least_same, &signer->copied);
    int done = groups != NULL;
    for (uint64_t i = 0; i < contents->count && done; i++) {
        const uint32_t id = contents->ids[i], label = signer->labels[id];
        const int is_text = label && signer->keys[label - 1].row == signer->row_count + BEGINS_TEXT;
        if (!is_text && is_known(work, label))
            continue;
        if (!contents->hashes[i])
            done = give(work, id, ONLY_ZEROS, 0, 0);
        else if (groups[i] != UINT32_MAX)
            done = give(work, id, COPIES, (uint64_t) contents->ids[groups[i]] << 1 | (unsigned) is_text, 0);
    }
    free(groups);
    if (!signer->needs_contents)
        contents_free(contents);
    return done;
}

/* Half of its words or more lead to blocks. */
static int is_dense(const struct graph *graph, uint32_t id)
{
    const uint64_t size = index_size(&graph->index, id);
    return size >= LEAST_CONTENT && 2 * (uint64_t) (graph->offsets[id + 1] - graph->offsets[id]) >= size / graph->word;
}

static int has_spread(const struct referrals *work, uint32_t label)
{
    const uint64_t row = work->signer->keys[label - 1].row - work->signer->row_count;
    return row == REFERRED || row == ROOTED;
}

/* One step's work from `next` to `until`. 0: no memory. */
static int some(struct referrals *work, unsigned step, uint32_t next, uint32_t until)
{
    const uint32_t *labels = work->signer->labels;
    const struct hint *hints = work->signer->hints;
    int done = 1;
    for (; step == STEP_CONTAINERS && next < until && done; next++)
        done = take_container(work, &hints[next], next + 1 < work->signer->hint_count ? &hints[next + 1] : NULL);
    if (step >= STEP_RUST && step < STEP_HINTS)
        return rust_some(work, step - STEP_RUST, next, until);
    for (; step == STEP_HINTS && next < until && done; next++)
        done = take_hint(work, &hints[next]);
    for (; step == STEP_TREES && next < until && done; next++)
        done = labels[next] != work->tree_label || !is_tree_node(work->graph, next) || give(work, next, TREE, 0, 0);
    for (; step == STEP_EDGES && next < until; next++)
        note_edges(work, next);
    for (work->counts_inside |= step == STEP_INSIDE; step == STEP_INSIDE && next < until; next++)
        if (has_bit(work->graph->weaker, next))
            note_edges(work, next);
    for (; step == STEP_BLOCKS && next < until && done; next++)
        done = !is_known(work, labels[next]) || has_spread(work, labels[next]) || (spread(work, next) && drain(work));
    for (; step == STEP_ROOTS && next < until && done; next++)
        done = spread(work, work->roots_from + next) && drain(work);
    for (; step >= STEP_MEMBERS && step < STEP_COPIES && next < until && done; next++)
        done = name_members(work, &work->linked->all[next], 0);
    for (; step == STEP_COPIES && next < until && done; next++)
        done = take_weak(work) && take_copies(work);
    for (; step == STEP_MEMBERS_LEFT && next < until && done; next++)
        done = name_members(work, &work->linked->all[next], 1);
    for (; step == STEP_SIZES && next < until && done; next++)
        done = is_named(work, labels[next]) || (is_dense(work->graph, next) ? give(work, next, POINTERS, 0, 0) : give_size(work, next));
    return done;
}

static uint64_t end_of(const struct referrals *work)
{
    const struct graph *graph = work->graph;
    if (work->step >= STEP_RUST && work->step < STEP_HINTS)
        return rust_end(work, work->step - STEP_RUST);
    if ((work->step >= STEP_MEMBERS && work->step < STEP_COPIES) || work->step == STEP_MEMBERS_LEFT)
        return work->linked ? work->linked->count : 0;
    switch (work->step) {
    case STEP_CONTAINERS:
    case STEP_HINTS:
        return work->containers ? work->signer->hint_count : 0;
    case STEP_TREES:
        return work->tree_label ? graph->index.blocks : 0;
    case STEP_EDGES:
    case STEP_INSIDE:
        return graph->nodes;
    case STEP_ROOTS:
        return graph->nodes - work->roots_from;
    case STEP_COPIES:
        return 1;
    default:
        return graph->index.blocks;
    }
}

/* Goes on. 1: there is more; 0: every block has a label; NO_MEMORY. */
int64_t heapx_referrals_slice(struct referrals *work, double seconds)
{
    const double deadline = clock_now() + seconds;
    while (work->step < STEP_OVER) {
        const uint64_t end = end_of(work), until = end - work->next < CHECK_CLOCK ? end : work->next + CHECK_CLOCK;
        const unsigned step = work->step;
        if (!some(work, step, (uint32_t) work->next, (uint32_t) until))
            return NO_MEMORY;
        work->next = until;
        if (until < end) {
            if (clock_now() > deadline)
                return 1;
            continue;
        }
        work->step++;
        work->next = 0;
    }
    return 0;
}
