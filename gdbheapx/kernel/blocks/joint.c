/* Who leads to what several owners hold: blocks with many pointers, such as tables of a dict or items of a list. */
#include "marks.h"

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
