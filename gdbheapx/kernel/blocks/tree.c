/* Questions about who owns what, and the split of roots that comes before it. */
#include "marks.h"
#include "tally.h"

#include <stdlib.h>
#include <string.h>

/* The next node below `top` in the tree of heapx_tree_index, each before those that it owns; NO_NODE: that was all. */
static uint32_t next_below(const uint32_t *owners, const uint32_t *first, const uint32_t *next, uint32_t top, uint32_t at)
{
    if (first[at] != NO_NODE)
        return first[at];
    while (at != top && next[at] == NO_NODE)
        at = owners[at];
    return at == top ? NO_NODE : next[at];
}

/* Blocks and bytes that can be reached from a node by words that own something, whatever else leads there; and, where it has a tree, from
   what it keeps: some by words that own nothing, where nothing else leads there. `first`, `next`: of heapx_tree_index, NULL without. */
int heapx_graph_reached(const struct graph *graph, uint32_t node, const uint32_t *owners, const uint32_t *first, const uint32_t *next,
                        uint64_t *bytes, uint64_t *blocks)
{
    struct spread spread;
    struct reached reached = {0, 0};
    int more = NO_MEMORY;
    if (spread_open(&spread, graph->nodes)) {
        more = 0;
        for (uint32_t at = node; at != NO_NODE && !more; at = first ? next_below(owners, first, next, node, at) : NO_NODE)
            if (at < graph->nodes && !is_marked(&spread, at))
                more = spread_push(&spread, at) ? spread_drain(graph, &spread, OWNED, NULL, &reached, 1e300) : NO_MEMORY;
    }
    spread_close(&spread);
    *bytes = reached.bytes;
    *blocks = reached.blocks;
    return more;
}

/* What else leads to what each of these owners keeps: so many pointers from the roots [weak_from, weak_until), so many that own nothing,
   and so many others. `under`: of heapx_tree_under for them. After the marks. */
void heapx_tree_others(const struct graph *graph, const uint32_t *under, const uint32_t *asked, uint32_t weak_from, uint32_t weak_until,
                       struct others *out)
{
    for (uint32_t node = 0; node < graph->nodes; node++) {
        if (node < graph->marks->roots_from && is_leaked(graph->marks, node))
            continue;
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]), place = under[target];
            __builtin_prefetch(&under[EDGE_ID(graph->to[edge + AHEAD < graph->edges ? edge + AHEAD : edge])]);
            if (!place || place == under[node] || is_loose(graph, edge) || target == asked[place - 1])
                continue;                           /* who leads to the owner itself holds it */
            struct others *others = &out[place - 1];
            if (node >= weak_from && node < weak_until)
                others->stacks++;
            else if (is_unowning(graph, edge))
                others->unowning++;
            else
                others->weak++;
        }
    }
}

/* Children one after the other, ascending: `first` by owner, at `nodes` for those that nobody owns, NO_NODE before; `next` by node. */
void heapx_tree_index(const uint32_t *owners, uint32_t nodes, uint32_t *first, uint32_t *next)
{
    for (uint32_t node = nodes; node-- > 0;) {
        uint32_t *head = &first[owners[node] == NO_NODE ? nodes : owners[node]];
        next[node] = *head;
        *head = node;
    }
}

/* One more of those that retain most. */
static void keep_largest(const uint64_t *bytes, uint32_t node, uint32_t *out, uint64_t room, uint64_t *kept)
{
    if (*kept == room && (!room || bytes[out[*kept - 1]] >= bytes[node]))
        return;
    uint64_t at = *kept < room ? (*kept)++ : *kept - 1;
    for (; at && bytes[out[at - 1]] < bytes[node]; at--)
        out[at] = out[at - 1];
    out[at] = node;
}

/* The nodes below `end` that `owner` owns directly, or nobody, if it is NO_NODE: those that retain most first, at most `room`. `begin`:
   where they begin, and `next`, of heapx_tree_index; NULL: all nodes are looked at. Returns how many there are. */
uint64_t heapx_tree_children(const uint32_t *owners, const uint64_t *bytes, uint32_t begin, const uint32_t *next, uint32_t end,
                             uint32_t owner, uint32_t *out, uint64_t room)
{
    uint64_t count = 0, kept = 0;
    for (uint32_t node = begin; node < end; node = next ? next[node] : node + 1)
        if (owners[node] == owner && bytes[node]) {
            count++;
            keep_largest(bytes, node, out, room, &kept);
        }
    return count;
}

/* `under`: number + 1 of each node that is asked for, 0 of the others; becomes that of the nearest of them at or above each node, or stays
   0. `owners`: of the tree. */
void heapx_tree_under(const uint32_t *owners, uint32_t nodes, uint32_t *under)
{
    for (uint32_t node = 0; node < nodes; node++) {
        uint32_t top = node;
        if (node + AHEAD < nodes && owners[node + AHEAD] != NO_NODE)
            __builtin_prefetch(&under[owners[node + AHEAD]]);
        while (!under[top] && owners[top] != NO_NODE)
            top = owners[top];
        const uint32_t number = under[top] ? under[top] : UINT32_MAX;
        for (uint32_t at = node; !under[at]; at = owners[at]) {
            under[at] = number;
            if (owners[at] == NO_NODE)
                break;
        }
    }
    for (uint32_t node = 0; node < nodes; node++)
        under[node] = under[node] == UINT32_MAX ? 0 : under[node];
}

/* Blocks and bytes of each label under each of `tops` nodes (0: none of them), for `out` with four numbers of each: which, label, blocks,
   bytes. `labels`: of each block, below `label_count`. Returns how many rows there are, at most `room` of them written, or NO_MEMORY. */
int64_t heapx_tree_classes(const struct graph *graph, const uint32_t *under, uint32_t tops, const uint32_t *labels, uint32_t label_count,
                           uint64_t *out, uint64_t room)
{
    const uint32_t blocks = (uint32_t) graph->index.blocks;
    uint64_t *begins = calloc((size_t) tops + 2, sizeof *begins), *sums = calloc((size_t) label_count, 2 * sizeof *sums);
    uint32_t *ids = lazy_alloc((size_t) blocks * sizeof *ids + 8);
    int64_t rows = begins && sums && ids ? 0 : NO_MEMORY;
    for (uint32_t id = 0; !rows && id < blocks; id++)
        begins[under[id] + 1]++;
    for (uint32_t top = 0; !rows && top <= tops; top++)
        begins[top + 1] += begins[top];
    for (uint32_t id = 0; !rows && id < blocks; id++)
        ids[begins[under[id]]++] = id;              /* each begin becomes the next one's */
    for (uint32_t top = 0; rows >= 0 && top <= tops; top++) {
        const uint64_t from = top ? begins[top - 1] : 0;
        for (uint64_t at = from; at < begins[top]; at++) {
            sums[2 * labels[ids[at]]]++;
            sums[2 * labels[ids[at]] + 1] += index_size(&graph->index, ids[at]);
        }
        for (uint64_t at = from; at < begins[top]; at++) {
            const uint32_t label = labels[ids[at]];
            if (!sums[2 * label])
                continue;
            if ((uint64_t) rows < room)
                memcpy(out + 4 * rows, (uint64_t[]) {top, label, sums[2 * label], sums[2 * label + 1]}, 32);
            sums[2 * label] = sums[2 * label + 1] = 0;
            rows++;
        }
    }
    free(begins);
    free(sums);
    lazy_free(ids, (size_t) blocks * sizeof *ids + 8);
    return rows;
}

/* ---- what several keep together ---- */

/* Who leads to what several owners hold: blocks with many pointers, such as tables of a dict or items of a list. */

#define LEAST_POINTERS 4u               /* of an array; each object has a few */
#define MOST_PASSES 8u                  /* over all blocks, in sum: where objects all lead to each other each one takes a whole one */

/* Puts a node where its score belongs: `count` are there, of at most `room`. Returns how many there are then. */
static uint64_t keep_most(uint32_t *nodes, uint64_t *scores, uint64_t count, uint64_t room, uint32_t node, uint64_t score)
{
    uint64_t place = count < room ? count : room - 1;
    if (!score || (count == room && scores[place] >= score))
        return count;
    for (; place && scores[place - 1] < score; place--) {
        nodes[place] = nodes[place - 1];
        scores[place] = scores[place - 1];
    }
    nodes[place] = node;
    scores[place] = score;
    return count < room ? count + 1 : count;
}

/* What can be reached from other roots and from what has a name by itself, not through what is closed already, becomes closed.
   0: no memory. */
static int close_to_others(const struct graph *graph, uint32_t first, uint32_t end, uint64_t *open)
{
    struct spread spread;
    int is_room = spread_open(&spread, graph->nodes);
    for (uint64_t i = 0; i < graph->start_count + (end - first) && is_room; i++) {
        const uint32_t node = i < graph->start_count ? graph->starts[i] : first + (uint32_t) (i - graph->start_count);
        if (has_bit(open, node) && !is_marked(&spread, node))
            is_room = spread_push(&spread, node) && !spread_drain(graph, &spread, OWNED, open, NULL, 1e300);
    }
    for (size_t word = 0; word < (size_t) graph->nodes / 64 + 1 && is_room; word++)
        open[word] &= ~spread.marked[word];
    spread_close(&spread);
    return is_room;
}

/* Of the blocks and the roots [first, end) with most words that own blocks, and of those whose words lead to most that nobody owns alone,
   up to `room` of each: what can be reached from them without another one, and from nothing else: other roots of these, and what has a
   name by itself. Those that would take too long are left out. `owners` and `retained`: of the dominators. Returns how many; `out` has room
   for twice as many; or NO_MEMORY. */
int64_t heapx_graph_joint(const struct graph *graph, const uint32_t *owners, const uint64_t *retained, uint32_t first, uint32_t end,
                          struct joint *out, uint64_t room)
{
    const uint32_t blocks = (uint32_t) graph->index.blocks;
    const size_t words = (size_t) graph->nodes / 64 + 1;
    uint32_t *nodes = malloc(2 * room * sizeof *nodes + 8);
    uint64_t *scores = malloc(2 * room * sizeof *scores + 8), *open = malloc(words * sizeof *open), count = 0, large = 0;
    int64_t made = nodes && scores && open ? 0 : NO_MEMORY;
    for (uint32_t node = 0; node < end && !made; node = node + 1 == blocks ? first : node + 1) {
        uint64_t pointers = 0, bytes = 0;
        for (uint32_t edge = graph->offsets[node]; edge < graph->offsets[node + 1]; edge++) {
            const uint32_t target = EDGE_ID(graph->to[edge]);
            if (target >= blocks || target == node || owns_nothing(graph, edge))
                continue;
            pointers++;
            bytes += owners[target] == NO_NODE ? retained[target] : 0;
        }
        if (pointers < LEAST_POINTERS)
            continue;
        count = keep_most(nodes, scores, count, room, node, pointers);
        large = keep_most(nodes + room, scores + room, large, room, node, bytes);
    }
    if (!made)
        memset(open, 0xff, words * sizeof *open);
    for (uint64_t i = 0; i < large && !made; i++) {
        uint64_t before = 0;
        while (before < count && nodes[before] != nodes[room + i])
            before++;
        if (before == count)
            nodes[count++] = nodes[room + i];
    }
    for (uint64_t i = 0; i < count && !made; i++)
        clear_bit(open, nodes[i]);
    if (!made && !close_to_others(graph, first, end, open))
        made = NO_MEMORY;
    for (uint64_t i = 0, passed = 0; i < count && made >= 0 && passed <= MOST_PASSES * blocks; i++) {
        struct reached reached = {0, 0};
        struct spread spread;
        made = spread_open(&spread, graph->nodes) && spread_push(&spread, nodes[i]) ? made : NO_MEMORY;
        if (made >= 0 && spread_drain(graph, &spread, OWNED, open, &reached, 1e300))
            made = NO_MEMORY;
        spread_close(&spread);
        passed += reached.blocks;
        if (made >= 0)
            out[made++] = (struct joint) {nodes[i], reached.bytes, reached.blocks};
    }
    free(nodes);
    free(scores);
    free(open);
    return made;
}

/* ---- stacks of owners ---- */

/* Every block by the stack of its owners: the tree of dominators with a frame for each node, equal stacks put together. */

#define NO_PATH NO_NODE

struct path {
    uint32_t above, frame, depth;           /* the one that it stands on, its last frame, and how many it has */
    uint64_t blocks, bytes;
};

struct stacks {
    struct path *paths;
    struct tally numbers;                   /* by what a path stands on and its frame, + 1: path + 1 */
    uint32_t count;
    uint64_t room;
};

void heapx_stacks_free(struct stacks *stacks)
{
    if (stacks) {
        free(stacks->paths);
        tally_close(&stacks->numbers);
    }
    free(stacks);
}

/* The stack with one frame more; NO_PATH: there is no memory. Equal frames in a row are one: nodes of a list own each other. */
static uint32_t path_below(struct stacks *stacks, uint32_t above, uint32_t frame, uint32_t most_frames)
{
    const struct path *on = above == NO_PATH ? NULL : &stacks->paths[above];
    if (on && (on->frame == frame || on->depth >= most_frames))
        return above;
    const uint32_t depth = on ? on->depth + 1 : 1;
    uint32_t *number = tally_at(&stacks->numbers, ((uint64_t) above << 32 | frame) + 1);
    if (!number || !has_room(&stacks->paths, stacks->count, &stacks->room, sizeof *stacks->paths))
        return NO_PATH;
    if (!*number) {
        stacks->paths[stacks->count] = (struct path) {above, frame, depth, 0, 0};
        *number = ++stacks->count;
    }
    return *number - 1;
}

/* `owners`: of the tree, by node; `labels`: by block, with a frame for each in `label_frames`; `root_frames`: by node behind the blocks.
   `begins`: by block, a frame before its own: 2 * frame + 2 where its owners tell nothing, 2 * frame + 3 in place of all above it; 0: none.
   What has neither nor an owner is below the frame `leaked`, by its mark, or `shared`. `nodes`: of the tree, which has containers behind
   those of the graph. Writes the path of each node to `at`, which is NO_PATH before. NULL: there is no memory. */
struct stacks *heapx_stacks_new(const struct graph *graph, const uint32_t *owners, const uint32_t *labels, const uint32_t *label_frames,
                                const uint32_t *root_frames, const uint32_t *begins, uint32_t leaked, uint32_t shared,
                                uint32_t most_frames, uint32_t nodes, uint32_t *at)
{
    const uint32_t blocks = (uint32_t) graph->index.blocks;
    const size_t room = (size_t) nodes * sizeof *at + 8;
    struct stacks *stacks = calloc(1, sizeof *stacks);
    uint32_t *way = lazy_alloc(room);
    int is_whole = stacks && way && tally_open(&stacks->numbers, 1024);
    for (uint32_t block = 0; is_whole && block < blocks; block++) {
        uint32_t count = 0, node = block, path;
        for (; at[node] == NO_PATH; node = owners[node]) {
            way[count++] = node;
            if (owners[node] == NO_NODE)
                break;
        }
        path = at[node];
        while (is_whole && count--) {
            const uint32_t step = way[count];
            const uint32_t begin = step < blocks ? begins[step] : 0;
            if (begin & 1)
                path = path_below(stacks, NO_PATH, begin / 2 - 1, most_frames);
            else if ((step < blocks || step >= graph->nodes) && path == NO_PATH)
                path = path_below(stacks, NO_PATH, begin ? begin / 2 - 1 : is_leaked(graph->marks, block) ? leaked : shared, most_frames);
            is_whole = step >= blocks || path != NO_PATH;
            if (is_whole)
                path = path_below(stacks, path, step < blocks ? label_frames[labels[step]] : root_frames[step - blocks], most_frames);
            is_whole = path != NO_PATH;
            at[step] = path;
        }
        if (is_whole) {
            stacks->paths[at[block]].blocks++;
            stacks->paths[at[block]].bytes += index_size(&graph->index, block);
        }
    }
    lazy_free(way, room);
    if (!is_whole) {
        heapx_stacks_free(stacks);
        return NULL;
    }
    return stacks;
}

/* How many there are; copied to arrays of that length, if these are not NULL. */
uint64_t heapx_stacks_take(const struct stacks *stacks, uint32_t *above, uint32_t *frames, uint64_t *blocks, uint64_t *bytes)
{
    for (uint32_t path = 0; above && path < stacks->count; path++) {
        above[path] = stacks->paths[path].above;
        frames[path] = stacks->paths[path].frame;
        blocks[path] = stacks->paths[path].blocks;
        bytes[path] = stacks->paths[path].bytes;
    }
    return stacks->count;
}
