/* Every block by the stack of its owners: the tree of dominators with a frame for each node, equal stacks put together. */
#include "marks.h"
#include "tally.h"

#include <stdlib.h>
#include <string.h>

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
    struct path *paths = with_room(stacks->paths, stacks->count, &stacks->room, sizeof *paths);
    uint32_t *number = tally_at(&stacks->numbers, ((uint64_t) above << 32 | frame) + 1);
    stacks->paths = paths ? paths : stacks->paths;
    if (!paths || !number)
        return NO_PATH;
    if (!*number) {
        paths[stacks->count] = (struct path) {above, frame, depth, 0, 0};
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
