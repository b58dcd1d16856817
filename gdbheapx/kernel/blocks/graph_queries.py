"""Questions to a graph of blocks: labels, garbage in cycles, stacks of owners, equal contents, and bytes of content."""

import itertools
from array import array
from typing import Any, Container, Dict, List, NamedTuple, Sequence, Tuple

from gdbheapx.kernel.blocks.graph import NO_NODE, Graph, NativeSum, Tree
from gdbheapx.kernel.blocks.signatures import ALL, Signer
from gdbheapx.kernel.common.library import address_of, finish_job, flatten_pairs, native_job, require_memory


def find_labelled(library: Any, labels: "array[int]", wanted: Container[int], label_count: int, most: int) -> "array[int]":
    """array('I'): the first blocks, at most so many, whose label is wanted. `labels`: array('I') by block."""
    asked, out = array("B", (label in wanted for label in range(label_count))), array("I", bytes(4 * min(most, len(labels))))
    del out[library.heapx_labelled(address_of(labels), len(labels), address_of(asked), label_count, address_of(out), len(out)) :]
    return out


def renumber_labels(library: Any, labels: "array[int]", blocks: int, numbers: Sequence[int], number_bytes: int) -> bytes:
    """Return for each block the number of its label, little endian. `number_bytes`: 1, 2 or 4."""
    of_label, out = array("I", numbers), array("B", bytes(number_bytes * blocks))
    places = (address_of(labels), blocks, address_of(of_label), len(of_label), number_bytes, address_of(out))
    if len(labels) < blocks or library.heapx_renumber(*places):
        raise ValueError("a number for each label")
    return out.tobytes()


class Counting(NamedTuple):
    """Words by which objects of one sort count references, in their blocks."""

    owned: int = 0
    """Which words own, as Owning.masks has it: they are counted references, as far as they lead to objects."""
    more: int = 0
    """Which others are."""
    bodies: int = 0
    """Which lead to memory of the object's own that has some, such as the table of a dict."""
    begin: int = 0
    """Where the object begins, whose first word is its count, plus 1; 0: it is none."""
    is_visited: int = 0
    """The collector follows what such an object refers to."""


class Cycles:
    """Garbage of one graph, after its own(), while memory is as it was. `roots`: those that are no stacks."""

    def __init__(self, graph: Graph, roots: Tuple[int, int], labels: "array[int]", countings: Sequence[Counting]) -> None:
        self._graph, self._labels, self._library = graph, labels, graph.library
        self.state, numbers = array("B", bytes(graph.numbers().blocks)), flatten_pairs(countings)
        places = (address_of(labels), address_of(numbers), len(countings), address_of(self.state))
        require_memory(not self._library.heapx_cycles_find(graph.handle, *roots, *places))

    def nodes(self) -> List[int]:
        """Their ids."""
        return list(itertools.compress(range(len(self.state)), self.state))

    def behind(self, labels: Sequence[int]) -> NativeSum:
        """Return the part of the cycles that objects of these labels lead to, themselves included."""
        out, asked = array("Q", [0, 0]), array("I", labels)
        places = (address_of(self.state), address_of(self._labels), address_of(asked), len(asked), address_of(out))
        require_memory(not self._library.heapx_cycles_behind(self._graph.handle, *places))
        return NativeSum(*out)


def encode_begin(frame: int, is_always: bool) -> int:
    """Return the entry of `begins` for a frame. `is_always`: it replaces all frames above the block; otherwise only if the block
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


def owner_stacks(
    library: Any,
    graph: Graph,
    tree: Tree,
    labels: "array[int]",
    of_label: Sequence[int],
    of_root: "array[int]",
    begins: "array[int]",
    leaked: int,
    shared: int,
    most_frames: int,
) -> OwnerStacks:
    """Return the stacks of all blocks, after mark() and dominators(). Frames are numbers.

    `labels`: array('I') by block; `of_label`: the frame of each; `of_root`: array('I') of frames by node after the blocks, containers too;
    `begins`: array('I') by block, from encode_begin(): a frame before its own, or 0; `leaked`, `shared`: the frames before a block that is
    leaked, and before one that has several owners.
    """
    nodes, blocks = graph.nodes + len(tree.containers), graph.numbers().blocks
    if not (len(tree.owners) == nodes and len(labels) >= blocks == len(begins) and len(of_root) == nodes - blocks):
        raise ValueError("a label for each block, and a frame for each other node")
    if blocks and max(labels) >= len(of_label):
        raise ValueError("a frame for each label")
    frame_by_label, of_node = array("I", of_label), array("I", [NO_NODE]) * nodes
    arrays = map(address_of, (tree.owners, labels, frame_by_label, of_root, begins))
    made = library.heapx_stacks_new(graph.handle, *arrays, leaked, shared, most_frames, nodes, address_of(of_node))
    with native_job(made, library.heapx_stacks_free) as handle:
        count = library.heapx_stacks_take(handle, None, None, None, None)
        columns = [array(letter, bytes(size * count)) for letter, size in (("I", 4), ("I", 4), ("Q", 8), ("Q", 8))]
        library.heapx_stacks_take(handle, *map(address_of, columns))
    return OwnerStacks._make([*columns, of_node])


COPIES_BYTES = 36
"""Of each block, at the peak, on top of what the census takes."""


class Tallied(NamedTuple):
    """Contents that several blocks have."""

    contents: int
    """That differ."""
    blocks: int
    bytes: int
    spare_bytes: int
    """If each content were there once."""


class Compared(NamedTuple):
    """Comparison of all contents of LEAST_CONTENT bytes or more."""

    all: Tallied
    by_label: Sequence[Tallied]
    """By the label of the first block, from 0 on."""
    zero_blocks: int
    """With nothing but zeros: they are in none of the others."""
    zero_bytes: int
    unlike_blocks: int
    """With the number of another content, and other bytes; or which can no longer be read."""
    largest: Sequence[Tuple[int, int]]
    """(number of the first block, blocks), those with most to spare first."""


def compare_contents(signer: Signer, graph: Any, most: int) -> Compared:
    """After refer(), of a signer that keeps contents beyond it: memory must be as it was. `most`: so many contents are listed one by
    one."""
    library = signer.library
    with finish_job(library, "copies", signer.opened, signer.budget, signer.handle, graph.handle, signer.opened.handle) as work:
        sums, labels = array("Q", bytes(56)), array("Q", bytes(32 * (signer.label_count() + 1)))
        largest = array("Q", bytes(16 * most))
        count = library.heapx_copies_found(work, address_of(sums), address_of(labels), address_of(largest), most)
    require_memory(count >= 0)
    told = list(zip(largest[0 : 2 * count : 2], largest[1 : 2 * count : 2]))
    by_label = [Tallied(*labels[place : place + 4]) for place in range(0, len(labels), 4)]
    return Compared(Tallied(*sums[:4]), by_label, sums[4], sums[5], sums[6], told)


ITSELF = ALL
MOST_UNTOLD_PERCENT = 1
"""Of the bytes of a label: who has the block may have it in a register."""


class FillRule(NamedTuple):
    """A length in blocks of a label: how much it is of such a block, or of the one that a word of it leads to."""

    label: int
    pointer: int
    """Offset of that word; ITSELF: it is the block's own length."""
    length_at: int
    length_bytes: int
    """Of the number: 1, 2, 4 or 8."""
    unit_bytes: int
    head_bytes: int
    """The content is head_bytes + unit_bytes * length."""
    test_at: int = 0
    test_mask: int = 0
    """0: the rule holds for all blocks; else for those whose four bytes at test_at are, masked, test_value."""
    test_value: int = 0


def measure_fill(signer: Signer, graph: Any, rules: Sequence[FillRule], bases: Sequence[int], has_classes: bool) -> Dict[int, int]:
    """Bytes of content by label. Blocks that do not say how many count as full; a label with more than a few of them is left out. After
    refer(), while memory is as it was. `bases`: where each node after the blocks begins, 0 where that is not known."""
    library, flat, places = signer.library, flatten_pairs(sorted(rules)), array("Q", bases)
    handles = (signer.handle, graph.handle, signer.opened.handle)
    numbers = (address_of(flat), len(rules), address_of(places), int(has_classes))
    with finish_job(library, "fill", signer.opened, signer.budget, *handles, *numbers) as work:
        out = array("Q", bytes(16 * (signer.label_count() + 1)))
        library.heapx_fill_found(work, address_of(out))
    sums = [(label, one.bytes, out[2 * label], out[2 * label + 1]) for label, one in enumerate(signer.found(), 1)]
    known = [one for one in sums if one[3] and 100 * (one[1] - one[3]) <= MOST_UNTOLD_PERCENT * one[1]]
    return {label: content + total - told for label, total, content, told in known}
