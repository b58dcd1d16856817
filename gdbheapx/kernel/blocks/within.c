/* Blocks by where they lie and how large they are: what a runtime cut from memory of its own, and what may have pages that were never
   touched. */
#include "graph.h"

/* Adds to `out`, by label from 1 on, the bytes of the signed blocks that begin in these ranges: begin and end of each, sorted. */
void heapx_signer_within(const struct signer *signer, const struct graph *graph, const uint64_t *ranges, uint64_t count, uint64_t *out)
{
    struct index_cursor cursor = {0, 0, 0};
    uint64_t address;
    for (uint32_t id = 0; id < signer->blocks && (address = index_next(&graph->index, &cursor)); id++)
        if (signer->labels[id] != UNSIGNED && range_at(ranges, count, address))
            out[signer->labels[id] - 1] += index_size(&graph->index, id);
}

/* `out`: address and size of the blocks of at least so many bytes, by address, at most `room`. Returns how many there are. */
uint64_t heapx_graph_large(const struct graph *graph, uint64_t least, uint64_t *out, uint64_t room)
{
    struct index_cursor cursor = {0, 0, 0};
    uint64_t address, found = 0;
    for (uint32_t id = 0; (address = index_next(&graph->index, &cursor)); id++) {
        const uint64_t size = index_size(&graph->index, id);
        if (size >= least && found++ < room) {
            out[2 * found - 2] = address;
            out[2 * found - 1] = size;
        }
    }
    return found;
}
