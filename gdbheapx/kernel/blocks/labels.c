/* What blocks are that no row knows: by the one block or variable that points to them, by what containers and Rust's types have in them, or
   by their size alone.

   A label spreads from a block whose name is known along its pointers, to blocks that nothing else points to. A list of nodes that each
   hang on the same place of the one before has one label, however long it is. */
#include "containers.h"

#include <stdlib.h>

#define FEW_EDGES 16u                   /* of one node: so few are looked through once more for each */
#define CHECK_CLOCK 16384u
#define PLANES 4                        /* seen and those behind it */

/* A node of libstdc++'s std::map and std::set, in words: colour, parent, left, right (stl_tree.h: _Rb_tree_node_base). */
enum { PARENT = 1, LEFT, RIGHT };
#define MOST_WALKS 1000000u

#define MEMBER_ROUNDS 4u                /* containers below containers */
#define NO_KEY UINT64_MAX

enum {
    STEP_CONTAINERS, STEP_POINTERS, STEP_DYNS, STEP_BTREES, STEP_VECS, STEP_SMALL_VECS, STEP_COUNTED, STEP_HINTS, STEP_TREES, STEP_EDGES,
    STEP_INSIDE, STEP_BLOCKS, STEP_ROOTS, STEP_MEMBERS, STEP_COPIES = STEP_MEMBERS + MEMBER_ROUNDS, STEP_MEMBERS_LEFT, STEP_SIZES, STEP_OVER
};

#define LEAST_FULL 33u                  /* of a Vec that votes or is told alone: a smaller number stands beside many a pointer */
#define LEAST_VOTES 4u
#define MOST_ELEMENT 4096u
#define COUNTS_BYTES 16u                /* in front of what an Rc or Arc holds */
#define EDGES 12u                       /* of an internal node of a BTreeMap, behind what a leaf has (InternalNode in alloc's node.rs) */

#define SMALL_SIZES 1024u               /* in steps of four bytes, as the index has sizes */

struct referrals {
    struct graph *graph;
    struct signer *signer;
    uint8_t *known;                     /* by label: KNOWN: it has a name; BY_CONTENT: better than a size alone */
    uint32_t known_count;
    unsigned most_depth;
    int has_classes;                    /* blocks come in size classes, a fifth of one may be unused; else the rest is small */
    int containers;                     /* whose are looked for */
    uint32_t tree_label;                /* of blocks that begin as a node of a tree would; 0: none */
    uint32_t roots_from;
    const struct containers *linked;    /* NULL: elements of containers are told as all others are */
    uint64_t least_same;                /* bytes of blocks with the same content that are told as such */
    uint64_t *seen, *seen_inside, *several, *mine;  /* one bit a block: a node points there; only to a place inside; more than one node;
                                                       the node that is looked at was the first */
    int counts_inside;                  /* all pointers are noted but those to any place inside */
    uint32_t sized[SMALL_SIZES];        /* labels of blocks that are known by their size alone; 0: not yet made */
    uint32_t *stack;
    uint64_t depth, room;
    uint64_t walks_left;                /* steps along chains that may turn out to be none */
    uint64_t next;
    unsigned step;
    /* of a Rust program */
    uint64_t *layouts;                  /* of trait objects: vtable, size, alignment; by vtable */
    uint64_t layout_count;
    uint64_t votes[VEC_ORDERS];
    uint64_t *places;                   /* one bit for each hash of an owner's place where a Vec was found */
    uint32_t *pointers;                 /* to each block that begins with counts, the second one 1 */
};

static uint32_t label_of(const struct referrals *work, uint32_t node)
{
    return work->signer->labels[node];
}

/* What the label is worth; one that was given meanwhile is a name. */
static unsigned worth_of(const struct referrals *work, uint32_t label)
{
    return label > work->known_count ? KNOWN : work->known[label];
}

static int is_known(const struct referrals *work, uint32_t label)
{
    return worth_of(work, label) == KNOWN || worth_of(work, label) == BY_BEGIN;
}

static int may_hold(const struct referrals *work, uint64_t usable, uint64_t bytes)
{
    return fits_block(usable, bytes, work->has_classes);
}

/* The block that begins there and may be a container's; NO_NODE: none. */
static uint32_t nameless_at(const struct referrals *work, uint64_t address)
{
    const uint32_t id = index_begin(&work->graph->index, address);
    return id == NO_NODE || worth_of(work, label_of(work, id)) == KNOWN ? NO_NODE : id;
}

/* The block to whose begin the word at this place points, for whatever reason; NO_NODE: none. */
static uint32_t block_at_slot(const struct graph *graph, uint32_t node, uint32_t slot)
{
    for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1] && slot_of(graph, edge) <= slot; edge++) {
        const uint32_t rule = EDGE_RULE(graph->to[edge]), target = EDGE_ID(graph->to[edge]);
        if (slot_of(graph, edge) == slot)
            return (rule == RULE_START || rule == RULE_END) && target < graph->index.blocks ? target : NO_NODE;
    }
    return NO_NODE;
}

/* The block has this name from now on; `kind`: one of the rows beyond the caller's. 0: no memory. */
static int give(struct referrals *work, uint32_t id, uint64_t kind, uint64_t key, uint64_t depth)
{
    const uint32_t label = signer_key(work->signer, work->signer->row_count + kind, key);
    if (label)
        work->signer->keys[label - 1].depth = depth;
    return signer_relabel(work->signer, &work->graph->index, id, label);
}

static size_t plane_words(const struct graph *graph)
{
    return (size_t) graph->index.blocks / 64 + 1;
}

void heapx_referrals_free(struct referrals *work)
{
    if (!work)
        return;
    lazy_free(work->seen, PLANES * plane_words(work->graph) * sizeof *work->seen);
    lazy_free(work->pointers, (size_t) work->graph->index.blocks * sizeof *work->pointers);
    free(work->places);
    free(work->layouts);
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
        .layouts = calloc(3 * (size_t) layout_count + 1, sizeof *work->layouts), .layout_count = layout_count,
        .places = calloc((1u << PLACE_BITS) / 64, sizeof *work->places),
        .pointers = lazy_alloc((size_t) graph->index.blocks * sizeof *work->pointers),
    };
    if (!work->known || !work->seen || !work->layouts || !work->places || !work->pointers || signer->blocks != graph->index.blocks) {
        heapx_referrals_free(work);
        return NULL;
    }
    if (layout_count)
        memcpy(work->layouts, layouts, 3 * (size_t) layout_count * sizeof *layouts);
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
    if (!has_room(&work->stack, work->depth, &work->room, sizeof node))
        return 0;
    work->stack[work->depth++] = node;
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
    const uint32_t number = (uint32_t) (container - work->linked->all);
    const struct outer *entry = work->linked->entry_edges + container->first_entry;
    const uint32_t holder = container->entries ? entry->node : NO_NODE;
    const int is_array = holder < work->graph->index.blocks && (index_size(&work->graph->index, holder) > MOST_OBJECT_BYTES
                                                                || is_bucket(work->graph, work->linked, number, entry));
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

/* The member's word in a root that has several tables side by side: pointers stand there in the order of the members. `edge`: from there
   on; those to members that have a name already are passed. */
static uint64_t rooted_key(const struct referrals *work, const struct outer *entry, uint32_t member, uint64_t key, uint32_t *edge)
{
    const struct graph *graph = work->graph;
    const uint32_t number = work->linked->of[member], end = graph->offsets[entry->node + 1];
    for (; *edge < end; ++*edge) {
        const uint32_t target = EDGE_ID(graph->to[*edge]);
        if (target == member)
            return (key & ~(uint64_t) MEMBER_SLOT) | (slot_of(graph, (*edge)++) & MEMBER_SLOT);
        if (target < graph->index.blocks && work->linked->of[target] == number && !is_known(work, label_of(work, target)))
            break;
    }
    return key;
}

/* Names elements that have none yet, and what only they point to; at last those that their content does not tell either. 0: no memory. */
static int name_members(struct referrals *work, const struct container *container, int is_last)
{
    const uint32_t *member = work->linked->order + container->first, *end = member + container->members;
    const struct outer *entry = work->linked->entry_edges + container->first_entry;
    const int is_table = container->entries == 1 && (container->shape == SHAPE_ARRAY || container->shape == SHAPE_HASH_TABLE);
    uint32_t edge = is_table ? entry->edge : 0;
    uint64_t kind, key = member_key(work, container, is_last, &kind);
    for (; member < end && key != NO_KEY; member++) {
        if (kind == ROOTED_MEMBERS && is_table)
            key = rooted_key(work, entry, *member, key, &edge);
        if (!(is_last ? is_named : is_known)(work, label_of(work, *member)) && (!give(work, *member, kind, key, 0) || !push(work, *member)))
            return 0;
    }
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

/* ---- Rust ---- */

/* Size and alignment; NULL: this is no vtable. */
static const uint64_t *layout_of(const struct referrals *work, uint64_t vtable)
{
    const uint64_t place = rows_up_to(work->layouts, work->layout_count, 3 * sizeof *work->layouts, vtable - 1);
    return place < work->layout_count && work->layouts[3 * place] == vtable ? &work->layouts[3 * place + 1] : NULL;
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
            work->pointers[target]++;
    }
}

/* The object alone fills the block, or it does with the counts of an Rc or Arc in front. */
static int take_dyn(struct referrals *work, const struct hint *hint)
{
    const uint64_t *layout = layout_of(work, hint->bytes);
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
        work->votes[vec_order(hint)]++;
}

/* The order that they voted for; VEC_ORDERS: none. A string of libstdc++, {block, length, capacity}, votes for the order of older
   compilers: beside C++ only the other one can be told. */
static unsigned elected(const struct referrals *work)
{
    const uint64_t *votes = work->votes;
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
    uint64_t *places = work->places;
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
    const uint32_t pointers = work->pointers[node];
    if (pointers < 2 || worth_of(work, label) != STRONG || work->signer->keys[label - 1].key != pointers)
        return 1;
    return give(work, node, COUNTED, 0, 0);
}

/* ---- step by step ---- */

/* One block, node, hint or container of a step. 0: no memory. */
static int take_one(struct referrals *work, uint32_t at)
{
    struct signer *signer = work->signer;
    const struct hint *hint = signer->hints + at;
    const uint32_t label = at < work->graph->index.blocks ? label_of(work, at) : 0;
    switch (work->step) {
    case STEP_CONTAINERS:
        return take_container(work, hint, at + 1 < signer->hint_count ? hint + 1 : NULL);
    case STEP_POINTERS:
        count_pointers(work, at);
        return 1;
    case STEP_DYNS:
        if (hint->kind == VECS && vec_is_full(hint) && vec_capacity(hint) >= LEAST_FULL)
            vote(work, hint);
        return hint->kind != DYNS || take_dyn(work, hint);
    case STEP_BTREES:
        return take_btree(work, at);
    case STEP_VECS:
    case STEP_SMALL_VECS:
        return take_vec(work, hint, work->step == STEP_SMALL_VECS);
    case STEP_COUNTED:
        return take_counted(work, at);
    case STEP_HINTS:
        return take_hint(work, hint);
    case STEP_TREES:
        return label != work->tree_label || !is_tree_node(work->graph, at) || give(work, at, TREE, 0, 0);
    case STEP_EDGES:
        note_edges(work, at);
        return 1;
    case STEP_INSIDE:
        work->counts_inside = 1;
        if (has_bit(work->graph->weaker, at))
            note_edges(work, at);
        return 1;
    case STEP_BLOCKS:
        return !is_known(work, label) || has_spread(work, label) || (spread(work, at) && drain(work));
    case STEP_ROOTS:
        return spread(work, work->roots_from + at) && drain(work);
    case STEP_COPIES:
        return take_weak(work) && take_copies(work);
    case STEP_SIZES:
        return is_named(work, label) || (is_dense(work->graph, at) ? give(work, at, POINTERS, 0, 0) : give_size(work, at));
    default:
        return name_members(work, &work->linked->all[at], work->step == STEP_MEMBERS_LEFT);
    }
}

/* So many a step has. */
static uint64_t end_of(const struct referrals *work)
{
    const struct graph *graph = work->graph;
    const uint64_t hints = work->signer->hint_count, blocks = graph->index.blocks;
    const int has_rust = work->containers & RUST;
    switch (work->step) {
    case STEP_CONTAINERS:
    case STEP_HINTS:
        return work->containers ? hints : 0;
    case STEP_POINTERS:
        return has_rust ? graph->nodes : 0;
    case STEP_DYNS:
    case STEP_VECS:
    case STEP_SMALL_VECS:
        return has_rust ? hints : 0;
    case STEP_BTREES:
    case STEP_COUNTED:
        return has_rust ? blocks : 0;
    case STEP_TREES:
        return work->tree_label ? blocks : 0;
    case STEP_EDGES:
    case STEP_INSIDE:
        return graph->nodes;
    case STEP_ROOTS:
        return graph->nodes - work->roots_from;
    case STEP_COPIES:
        return 1;
    case STEP_BLOCKS:
    case STEP_SIZES:
        return blocks;
    default:
        return work->linked ? work->linked->count : 0;
    }
}

/* Goes on. 1: there is more; 0: every block has a label; NO_MEMORY. */
int64_t heapx_referrals_slice(struct referrals *work, double seconds)
{
    const double deadline = clock_now() + seconds;
    for (; work->step < STEP_OVER; work->step++, work->next = 0) {
        const uint64_t end = end_of(work);
        while (work->next < end) {
            if (!take_one(work, (uint32_t) work->next++))
                return NO_MEMORY;
            if (work->next % CHECK_CLOCK == 0 && work->next < end && clock_now() > deadline)
                return 1;
        }
    }
    return 0;
}
