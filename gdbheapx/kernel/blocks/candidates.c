/* Candidates as they are kept until all blocks are known: see struct piece. */
#include "graph.h"

#include <stdlib.h>

int piece_room(struct graph *graph, uint32_t bytes)
{
    if (graph->last && PIECE_BYTES - graph->last->used >= bytes)
        return 1;
    struct piece *piece = big_alloc(sizeof *piece);      /* goes back at once when it is decoded */
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
        return NO_MEMORY;
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
    const uint64_t packed = packed_address(number, address);
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
