"""Every block by the stack of its owners, equal stacks put together: in one pass over the tree of owners."""

from array import array
from typing import Any, NamedTuple, Sequence

from gdbheapx.kernel.blocks.graph import NO_NODE, Graph, Tree
from gdbheapx.kernel.common.library import address_of, declare_functions

PROTOTYPES = """
struct stacks *heapx_stacks_new(const struct graph *graph, const uint32_t *owners, const uint32_t *labels, const uint32_t *label_frames,
    const uint32_t *root_frames, const uint32_t *begins, uint32_t leaked, uint32_t shared, uint32_t most_frames, uint32_t nodes,
    uint32_t *at);
uint64_t heapx_stacks_take(const struct stacks *stacks, uint32_t *above, uint32_t *frames, uint64_t *blocks, uint64_t *bytes);
void heapx_stacks_free(struct stacks *stacks);
"""


class FrameRule(NamedTuple):
    """Frame of each node, by the frames' numbers."""

    labels: "array[int]"
    """array('I') by block."""
    of_label: Sequence[int]
    of_root: "array[int]"
    """array('I') by node behind the blocks, containers too."""
    begins: "array[int]"
    """array('I') by block, from begin(): a frame before its own; 0: none."""
    leaked: int
    shared: int
    """Before that of a block which nobody owns."""
    most_frames: int


def encode_begin(frame: int, is_always: bool) -> int:
    """Return the entry of FrameRule.begins for a frame. `is_always`: it replaces all frames above the block; otherwise only if the block
    has no owner.
    """
    return 2 * frame + 2 + is_always


class OwnerStacks(NamedTuple):
    """A stack is a frame below another stack, which has a smaller number."""

    above: "array[int]"
    """NO_NODE: nothing."""
    frames: "array[int]"
    blocks: "array[int]"
    bytes: "array[int]"
    of_node: "array[int]"
    """array('I') by node of those that blocks have; NO_NODE: not asked for."""


def owner_stacks(library: Any, graph: Graph, tree: Tree, rule: FrameRule) -> OwnerStacks:
    """The stacks of all blocks. After mark() and dominators()."""
    nodes, blocks = graph.nodes + len(tree.containers), graph.numbers().blocks
    if not (len(tree.owners) == nodes and len(rule.labels) >= blocks == len(rule.begins) and len(rule.of_root) == nodes - blocks):
        raise ValueError("a label for each block, and a frame for each other node")
    if blocks and max(rule.labels) >= len(rule.of_label):
        raise ValueError("a frame for each label")
    kernel, of_label, of_node = declare_functions(library, PROTOTYPES), array("I", rule.of_label), array("I", [NO_NODE]) * nodes
    arrays = map(address_of, (tree.owners, rule.labels, of_label, rule.of_root, rule.begins))
    handle = kernel.heapx_stacks_new(graph.handle, *arrays, rule.leaked, rule.shared, rule.most_frames, nodes, address_of(of_node))
    if not handle:
        raise MemoryError()
    try:
        count = kernel.heapx_stacks_take(handle, None, None, None, None)
        above, frames = (array("I", bytes(4 * count)) for _ in range(2))
        blocks_, bytes_ = (array("Q", bytes(8 * count)) for _ in range(2))
        kernel.heapx_stacks_take(handle, *map(address_of, (above, frames, blocks_, bytes_)))
    finally:
        kernel.heapx_stacks_free(handle)
    return OwnerStacks(above, frames, blocks_, bytes_, of_node)
