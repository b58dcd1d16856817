/* Every block by the stack of its owners: the tree of dominators with a frame for each node, equal stacks put together. */
#include "marks.h"

#include <stdlib.h>
#include <string.h>

#define NO_PATH NO_NODE
#define FIRST_ROOM 1024u

struct stacks {
    uint32_t *above, *frames, *depth;       /* by path: the one that it stands on, its last frame, and how many it has */
    uint64_t *blocks, *bytes;
    uint32_t *slots;                        /* of a hash table of twice as many: path + 1, by what it stands on and its frame */
    uint32_t count, room;
};

void heapx_stacks_free(struct stacks *stacks)
{
    if (stacks) {
        free(stacks->above);
        free(stacks->frames);
        free(stacks->depth);
        free(stacks->blocks);
        free(stacks->bytes);
        free(stacks->slots);
    }
    free(stacks);
}

static uint32_t *slot_of_path(const struct stacks *stacks, uint32_t above, uint32_t frame)
{
    const uint64_t mask = 2ull * stacks->room - 1;
    uint64_t at = ((uint64_t) above << 32 | frame) * 0x9e3779b97f4a7c15ull >> 32;   /* below these no bit depends on `above` */
    for (;; at++) {
        uint32_t *slot = &stacks->slots[at & mask];
        if (!*slot || (stacks->above[*slot - 1] == above && stacks->frames[*slot - 1] == frame))
            return slot;
    }
}

static int resize(void **memory, size_t bytes)
{
    void *more = realloc(*memory, bytes);
    if (more)
        *memory = more;
    return more != NULL;
}

/* Room for twice as many; 0: there is no memory. */
static int grow(struct stacks *stacks)
{
    const uint32_t room = stacks->room ? 2 * stacks->room : FIRST_ROOM;
    uint32_t *slots = room < 1u << 30 ? calloc(2 * (size_t) room, sizeof *slots) : NULL;
    if (!slots)
        return 0;
    free(stacks->slots);
    stacks->slots = slots;
    if (!resize((void **) &stacks->above, room * sizeof *stacks->above) || !resize((void **) &stacks->frames, room * sizeof *stacks->frames)
        || !resize((void **) &stacks->depth, room * sizeof *stacks->depth)
        || !resize((void **) &stacks->blocks, room * sizeof *stacks->blocks)
        || !resize((void **) &stacks->bytes, room * sizeof *stacks->bytes))
        return 0;
    stacks->room = room;
    for (uint32_t path = 0; path < stacks->count; path++)
        *slot_of_path(stacks, stacks->above[path], stacks->frames[path]) = path + 1;
    return 1;
}

/* The stack with one frame more; NO_PATH: there is no memory. Equal frames in a row are one: nodes of a list own each other. */
static uint32_t path_below(struct stacks *stacks, uint32_t above, uint32_t frame, uint32_t most_frames)
{
    if (above != NO_PATH && (stacks->frames[above] == frame || stacks->depth[above] >= most_frames))
        return above;
    if (stacks->count == stacks->room && !grow(stacks))
        return NO_PATH;
    uint32_t *slot = slot_of_path(stacks, above, frame);
    if (!*slot) {
        const uint32_t path = stacks->count++;
        stacks->above[path] = above;
        stacks->frames[path] = frame;
        stacks->depth[path] = above == NO_PATH ? 1 : stacks->depth[above] + 1;
        stacks->blocks[path] = stacks->bytes[path] = 0;
        *slot = path + 1;
    }
    return *slot - 1;
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
    int is_whole = stacks && way && grow(stacks);
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
            stacks->blocks[at[block]]++;
            stacks->bytes[at[block]] += index_size(&graph->index, block);
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
    if (above) {
        memcpy(above, stacks->above, stacks->count * sizeof *above);
        memcpy(frames, stacks->frames, stacks->count * sizeof *frames);
        memcpy(blocks, stacks->blocks, stacks->count * sizeof *blocks);
        memcpy(bytes, stacks->bytes, stacks->count * sizeof *bytes);
    }
    return stacks->count;
}
