/* Offsets at which a program is in the habit of pointing into its blocks. */
#include "graph.h"

#include <stdlib.h>

#define HABIT_BLOCKS 1000u          /* an offset that so many blocks are pointed to at, */
#define HABIT_SHARE 100u            /* by one in so many of all references, is how this program points */
#define HABIT_OFFSETS MOST_OFFSET    /* below it */

/* Counts the distinct blocks that are pointed to at each of these offsets, whose numbers + 1 stand in `place` by offset. 0: no memory. */
static int count_blocks(const struct graph *graph, struct habit *habits, unsigned count, const uint8_t *place)
{
    const size_t bytes = (size_t) graph->index.blocks / 8 + 1;
    uint8_t *seen = calloc(count, bytes);
    uint64_t inside = 0;
    for (uint64_t edge = 0; seen && inside < graph->inside_count; edge++) {
        if (!leads_inside(graph->to[edge]))
            continue;
        const uint16_t offset = graph->inside[inside++];
        const uint32_t id = EDGE_ID(graph->to[edge]);
        if (offset >= HABIT_OFFSETS || !place[offset])
            continue;
        uint8_t *bits = seen + (size_t) (place[offset] - 1u) * bytes + (id >> 3);
        habits[place[offset] - 1].blocks += !(*bits >> (id & 7) & 1);
        *bits |= (uint8_t) (1u << (id & 7));
    }
    const int is_done = seen != NULL;
    free(seen);
    return is_done;
}

static unsigned likely_habits(const struct graph *graph, struct habit *habits)
{
    uint64_t *counts = calloc(HABIT_OFFSETS, sizeof *counts);
    unsigned found = 0;
    if (!counts)
        return 0;
    for (uint64_t i = 0; i < graph->inside_count; i++)
        if (graph->inside[i] < HABIT_OFFSETS)
            counts[graph->inside[i]]++;
    for (unsigned offset = 0; offset < HABIT_OFFSETS && found < MOST_HABITS; offset++)
        if (counts[offset] >= HABIT_BLOCKS && counts[offset] * HABIT_SHARE >= graph->edges) {
            struct habit habit = {offset, 0, counts[offset]};
            habits[found++] = habit;
        }
    free(counts);
    return found;
}

/* Offsets at which this program is in the habit of pointing into blocks, at most `room`. Returns how many. Edges at these
   offsets that were RULE_INSIDE are then of RULE_HABIT. */
uint64_t heapx_graph_habits(struct graph *graph, struct habit *out, uint64_t room)
{
    struct habit habits[MOST_HABITS];
    const unsigned likely = likely_habits(graph, habits);
    uint8_t place[HABIT_OFFSETS];
    uint64_t found = 0, inside = 0;
    memset(place, 0, sizeof place);
    for (unsigned i = 0; i < likely; i++)
        place[habits[i].offset] = (uint8_t) (i + 1);
    if (!likely || !count_blocks(graph, habits, likely, place))
        return 0;
    for (unsigned i = 0; i < likely; i++) {
        if (habits[i].blocks < HABIT_BLOCKS || found == room) {
            place[habits[i].offset] = 0;
            continue;
        }
        graph->habits[graph->habit_count++] = (uint16_t) habits[i].offset;
        out[found++] = habits[i];
    }
    for (uint64_t edge = 0; found && inside < graph->inside_count; edge++) {
        if (!leads_inside(graph->to[edge]))
            continue;
        const uint16_t offset = graph->inside[inside++];
        if (offset < HABIT_OFFSETS && place[offset] && EDGE_RULE(graph->to[edge]) == RULE_INSIDE) {
            graph->to[edge] = EDGE_ID(graph->to[edge]) | (uint32_t) RULE_HABIT << ID_BITS;
            graph->by_rule[RULE_HABIT]++;
            graph->by_rule[RULE_INSIDE]--;
        }
    }
    return found;
}
