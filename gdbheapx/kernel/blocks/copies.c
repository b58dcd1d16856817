/* Contents that several blocks have, byte by byte: blocks with one number have one content only where all their bytes are equal. */
#include "graph.h"

#include <stdlib.h>

#define COMPARED_BYTES (64u << 10)
#define CHECK_CLOCK_BYTES (1u << 20)

struct copy {
    uint64_t spare;
    uint32_t first, blocks;             /* the id of the first block that has it, and how many have it */
};

struct copies {
    const struct signer *signer;
    const struct graph *graph;
    const struct source *memory;
    uint32_t *groups;                   /* as contents_groups() tells them; where bytes are others, no longer */
    uint32_t *equal;                    /* by the place of the first one: how many are */
    uint64_t next, unlike;
    struct page_entries near[2];
    uint8_t bytes[2][COMPARED_BYTES];
};

void heapx_copies_free(struct copies *copies)
{
    if (!copies)
        return;
    free(copies->groups);
    free(copies->equal);
    free(copies);
}

/* After refer(), of a signer that keeps contents beyond it. NULL: no memory. */
struct copies *heapx_copies_new(const struct signer *signer, const struct graph *graph, const struct source *memory)
{
    struct copies *copies = calloc(1, sizeof *copies);
    struct copied copied = {0};
    if (!copies)
        return NULL;
    copies->signer = signer;
    copies->graph = graph;
    copies->memory = memory;
    copies->groups = contents_groups(&signer->contents, &graph->index, 0, &copied);
    copies->equal = calloc((size_t) signer->contents.count + 1, sizeof *copies->equal);
    if (!copies->groups || !copies->equal) {
        heapx_copies_free(copies);
        return NULL;
    }
    source_map(memory);
    return copies;
}

/* `size` bytes; NULL where they cannot be read, with *interrupted set or not. */
static const uint8_t *some_bytes(struct copies *copies, unsigned side, uint64_t address, uint64_t size, int *interrupted)
{
    const uint8_t *mapped = source_at(copies->memory, address, size);
    if (mapped)
        return mapped;
    const int64_t got = source_read_near(copies->memory, &copies->near[side], address, copies->bytes[side], size, 0);
    *interrupted |= got == INTERRUPTED;
    return got == (int64_t) size ? copies->bytes[side] : NULL;
}

/* 1: they are; 0: they are not, or it cannot be told; INTERRUPTED. */
static int are_equal(struct copies *copies, uint32_t first, uint32_t second)
{
    const struct index *index = &copies->graph->index;
    const uint64_t addresses[] = {index_address(index, first), index_address(index, second)}, size = index_size(index, first);
    if (index_size(index, second) != size)
        return 0;
    for (uint64_t at = 0, part; at < size; at += part) {
        int interrupted = 0;
        part = size - at < COMPARED_BYTES ? size - at : COMPARED_BYTES;
        const uint8_t *bytes = some_bytes(copies, 0, addresses[0] + at, part, &interrupted);
        const uint8_t *others = bytes ? some_bytes(copies, 1, addresses[1] + at, part, &interrupted) : NULL;
        if (interrupted)
            return INTERRUPTED;
        if (!bytes || !others || memcmp(bytes, others, (size_t) part))
            return 0;
    }
    return 1;
}

int64_t heapx_copies_slice(struct copies *copies, double seconds)
{
    const double deadline = clock_now() + seconds;
    const struct contents *contents = &copies->signer->contents;
    uint64_t since = 0;
    for (; copies->next < contents->count; copies->next++) {
        const uint64_t i = copies->next;
        const uint32_t first = copies->groups[i];
        if (since > CHECK_CLOCK_BYTES && clock_now() > deadline)
            return 1;
        since = since > CHECK_CLOCK_BYTES ? 0 : since;
        if (first == UINT32_MAX)
            continue;
        const int equal = first == i ? 1 : are_equal(copies, contents->ids[first], contents->ids[i]);
        if (equal == INTERRUPTED)
            return INTERRUPTED;
        copies->equal[first] += (uint32_t) equal;
        copies->unlike += !equal;
        since += 64 + index_size(&copies->graph->index, contents->ids[i]);
    }
    return 0;
}

static int more_to_spare(const void *left, const void *right)
{
    const struct copy *one = left, *other = right;
    if (one->spare != other->spare)
        return one->spare > other->spare ? -1 : 1;
    return one->first < other->first ? -1 : one->first > other->first;
}

/* What was compared: `sums` gets contents, blocks, their bytes, bytes to spare; blocks of zeros alone and their bytes; blocks whose number
   is another's and whose bytes are not. `by_label`: contents, blocks, bytes, bytes to spare by the label of the first block, 0 first.
   `largest`: id of the first block and how many blocks, of at most `room` contents, those with most to spare first. Returns how many of
   these there are, or NO_MEMORY. */
int64_t heapx_copies_found(const struct copies *copies, uint64_t *sums, uint64_t *by_label, uint64_t *largest, uint64_t room)
{
    const struct contents *contents = &copies->signer->contents;
    uint64_t count = 0;
    memset(sums, 0, 7 * sizeof *sums);
    sums[6] = copies->unlike;
    for (uint64_t i = 0; i < contents->count; i++) {
        const uint64_t size = index_size(&copies->graph->index, contents->ids[i]), blocks = copies->equal[i];
        sums[4] += !contents->hashes[i];
        sums[5] += contents->hashes[i] ? 0 : size;
        count += blocks > 1;
        const uint64_t numbers[] = {1, blocks, blocks * size, (blocks - 1) * size};
        for (unsigned k = 0; k < 4 && blocks > 1; k++) {
            sums[k] += numbers[k];
            by_label[4 * (uint64_t) copies->signer->labels[contents->ids[i]] + k] += numbers[k];
        }
    }
    struct copy *found = malloc(((size_t) count + 1) * sizeof *found);
    if (!found)
        return NO_MEMORY;
    count = 0;
    for (uint64_t i = 0; i < contents->count; i++)
        if (copies->equal[i] > 1) {
            const uint32_t id = contents->ids[i], blocks = copies->equal[i];
            found[count++] = (struct copy) {(blocks - 1) * index_size(&copies->graph->index, id), id, blocks};
        }
    qsort(found, (size_t) count, sizeof *found, more_to_spare);
    for (uint64_t i = 0; i < count && i < room; i++) {
        largest[2 * i] = found[i].first;
        largest[2 * i + 1] = found[i].blocks;
    }
    free(found);
    return (int64_t) count;
}
