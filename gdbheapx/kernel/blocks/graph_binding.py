"""The C kernel's graph, by ctypes."""

from array import array
from typing import Any, Iterator, List, Optional, Sequence, Tuple, cast

from gdbheapx.budget import Budget
from gdbheapx.errors import HeapxError
from gdbheapx.kernel.blocks import packed_binding
from gdbheapx.kernel.blocks.binding import CBlocks
from gdbheapx.kernel.blocks.graph import (
    EXACT_SLOT,
    LEAK_SAMPLES,
    LEAKED,
    MOST_POINTERS,
    NO_NODE,
    Edge,
    Graph,
    GraphNumbers,
    GraphShape,
    Habit,
    LeakGroup,
    LeakRoot,
    Referrer,
    Sum,
    Tree,
)
from gdbheapx.kernel.blocks.packed import Move, PackedGraph, Pieces
from gdbheapx.kernel.blocks.records import LETTERS, Blocks
from gdbheapx.kernel.blocks.signatures import Signer
from gdbheapx.kernel.common.library import OpenSource, at, run
from gdbheapx.problems import OUT_OF_MEMORY

MOST_HABITS = 32
GROUP_NUMBERS = 6
"""Of a LeakGroup, before the samples."""
MOST_OFFSETS = 65536
AT_ONCE = 65536
MOST_PASSES = 8
"""Over all nodes of a tree, before its children are put in lists."""


def flat(pairs: Sequence[Tuple[int, int]]) -> "array[int]":
    """Pairs as the kernel takes them."""
    return array("Q", [number for pair in pairs for number in pair])


def check_pointers(count: int) -> None:
    """HeapxError if there are more than a graph has numbers for."""
    if count > MOST_POINTERS:
        what = "%d words of memory may be pointers to blocks, and more than %d are not followed" % (count, MOST_POINTERS)
        raise HeapxError(
            what, "`GDBHEAPX_MEMORY=1 gdbheapx leaks` tells what is leaked without following all of them at once", code=OUT_OF_MEMORY
        )


def packed(words: Sequence[int], shape: GraphShape) -> bytes:
    """Words as the target has them."""
    size, order = shape.word_bytes, "little" if shape.little_endian else "big"
    return b"".join((word & (1 << 8 * size) - 1).to_bytes(size, order) for word in words)  # type: ignore[arg-type]


class Listed:
    """A stream that the C kernel did not make, as one of its own."""

    def __init__(self, library: Any, stream: Iterator[Blocks]) -> None:
        self._library = library
        self._columns = [array(letter) for letter in LETTERS]
        for blocks in stream:
            for mine, column in zip(self._columns, blocks):
                mine.extend(column)
        self.handle = library.heapx_blocks_listed(*map(at, self._columns), len(self._columns[0]))
        if not self.handle:
            raise MemoryError()

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.heapx_blocks_free(self.handle)


class CGraph(Graph):
    """See Graph."""

    _tree: Optional[Tree] = None
    _asked = 0
    _children: "Tuple[Optional[array[int]], Optional[array[int]]]" = (None, None)

    def __init__(self, library: Any, opened: OpenSource, shape: GraphShape, budget: Budget, images: Optional[OpenSource] = None) -> None:
        self._library, self._opened, self._budget, self._shape, self._images_opened = library, opened, budget, shape, images
        self._heaps, self._mappings, self._images = flat(shape.heaps), flat(shape.mappings), flat(shape.images)
        swap = int(not shape.little_endian)
        numbers = (shape.word_bytes, swap, shape.unit_bytes.bit_length() - 1, int(shape.all_slots))
        ranges = (at(self._heaps), len(shape.heaps), at(self._mappings), len(shape.mappings))
        vtables = (images.handle if images is not None else None, at(self._images), len(shape.images))
        self._handle = library.heapx_graph_new(opened.handle, *numbers, *ranges, *vtables)
        self._resolved = array("Q", [0])
        """How far resolve() came: it goes on there."""
        self._more = 0
        """Nodes that split() has made."""
        if not self._handle:
            raise MemoryError()

    @classmethod
    def unpacked(cls, library: Any, opened: OpenSource, kept: PackedGraph, budget: Budget) -> "CGraph":
        """That of a file; `opened`: a source that has nothing. ValueError where it is none."""
        if not kept.is_possible():
            raise ValueError("numbers of its graph are none")
        found = cls.__new__(cls)
        shape = GraphShape((), kept.mappings, kept.word_bytes, True, kept.unit_bytes, kept.has_slots)
        found._library, found._opened, found._budget, found._shape, found._images_opened = library, opened, budget, shape, None
        found._mappings, found._more = flat(kept.mappings), 0
        found._handle = packed_binding.unpacked(library, kept, found._mappings)
        return found

    def pack(self, moves: Sequence[Move], slots: bool) -> Pieces:
        """See Graph."""
        yield from packed_binding.pieces(self._library, self._handle, moves, slots)

    def set_evidence(self, found: Sequence[Tuple[int, int]]) -> Tuple[Sum, ...]:
        """See Graph."""
        nodes, evidence = array("I", [node for node, _ in found]), array("B", [one for _, one in found])
        self._library.heapx_marks_set(self._handle, at(nodes), at(evidence), len(found))
        return self._sums()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.heapx_graph_free(self._handle)
            self._handle = None

    def _run(self, work: Any) -> None:
        run(work, self._opened, self._budget)

    @property
    def handle(self) -> Optional[int]:
        """The struct graph."""
        return self._handle  # type: ignore[no-any-return]

    def sign(self, signer: Signer) -> None:
        """See Graph."""
        self._signer = cast(Any, signer)
        self._library.heapx_graph_sign(self._handle, self._signer.handle)

    def large(self, least_bytes: int) -> List[Tuple[int, int]]:
        """See Graph."""
        count = self._library.heapx_graph_large(self._handle, least_bytes, None, 0)
        out = array("Q", bytes(16 * count))
        self._library.heapx_graph_large(self._handle, least_bytes, at(out), count)
        return list(zip(out[::2], out[1::2]))

    def gather(self, streams: Sequence[Iterator[Blocks]], own: Sequence[int] = ()) -> None:
        """See Graph."""
        library = self._library
        listed = [Listed(library, stream) for stream in streams if not isinstance(stream, CBlocks)]
        opened = [stream.handle for stream in streams if isinstance(stream, CBlocks)] + [one.handle for one in listed]
        handles = array("Q", opened)
        joined = library.heapx_blocks_join(at(handles), len(handles)) if len(handles) != 1 else handles[0]
        places = array("Q", sorted(own))
        job = library.heapx_gather_new(joined, at(places), len(places))
        if not joined or not job:
            raise MemoryError()
        try:
            self._run(lambda seconds: self._gather_slice(job, seconds))
        finally:
            library.heapx_gather_free(job)
            if len(handles) != 1:
                library.heapx_blocks_free(joined)

    def _gather_slice(self, job: Any, seconds: float) -> int:
        left = int(self._library.heapx_gather_slice(self._handle, job, seconds))
        if self._images_opened is not None:
            self._images_opened.raise_error()
        return left

    def scan(self, base: int, start: int, end: int) -> None:
        """See Graph."""
        place = array("Q", [start])
        self._run(lambda seconds: self._library.heapx_graph_scan(self._handle, base, at(place), end, seconds))

    def scan_words(self, words: Sequence[int], exact: Sequence[int] = ()) -> None:
        """See Graph."""
        for slot, some in ((0, words), (EXACT_SLOT, exact)):
            kept = array("B", packed(some, self._shape))
            self._library.heapx_graph_scan_bytes(self._handle, at(kept), len(kept), slot)

    def end_node(self) -> None:
        """See Graph."""
        if self._library.heapx_graph_end_node(self._handle):
            raise MemoryError()

    def settle(self) -> None:
        """See Graph."""
        check_pointers(self.numbers().candidates)
        if self._library.heapx_graph_settle(self._handle) != 1:
            raise MemoryError()

    def resolve(self) -> List[Habit]:
        """See Graph."""
        place, out = self._resolved, array("Q", bytes(24 * MOST_HABITS))
        self._run(lambda seconds: self._library.heapx_graph_resolve(self._handle, at(place), seconds))
        count = self._library.heapx_graph_habits(self._handle, at(out), MOST_HABITS)
        return [Habit(*out[3 * one : 3 * one + 3]) for one in range(count)]

    def numbers(self) -> GraphNumbers:
        """See Graph."""
        out = array("Q", bytes(8 * 14))
        self._library.heapx_graph_numbers(self._handle, at(out))
        sizes: Any = [*out[:8], tuple(out[8:])]
        return GraphNumbers._make(sizes)

    @property
    def nodes(self) -> int:
        """See Graph."""
        return self.numbers().nodes + self._more

    def mark(self, roots_from: int) -> Tuple[Sum, ...]:
        """See Graph."""
        if not self._library.heapx_marks_open(self._handle, roots_from):
            raise MemoryError()
        self._run(lambda seconds: self._library.heapx_marks_slice(self._handle, seconds))
        return self._sums()

    def _sums(self) -> Tuple[Sum, ...]:
        out = array("Q", bytes(16 * (LEAKED + 1)))
        self._library.heapx_marks_sums(self._handle, at(out))
        return tuple(Sum(*out[place : place + 2]) for place in range(0, len(out), 2))

    def look_again(self, ranges: Sequence[Tuple[int, int]], guard: Optional[int]) -> Tuple[Sum, ...]:
        """See Graph."""
        library = self._library
        job = library.heapx_weak_new(self._handle, guard or 0, int(guard is not None))
        if not job:
            raise MemoryError()
        try:
            self._run(lambda seconds: library.heapx_weak_blocks(job, seconds))
            for start, end in ranges:
                place = array("Q", [start])
                self._run(lambda seconds, place=place, end=end: library.heapx_weak_scan(job, at(place), end, seconds))
            if library.heapx_weak_settle(job):
                raise MemoryError()
        finally:
            library.heapx_weak_free(job)
        return self._sums()

    def evidence(self, node: int) -> int:
        """See Graph."""
        return int(self._library.heapx_marks_evidence(self._handle, node))

    def with_evidence(self, kinds: Sequence[int], start: int, end: int, limit: Optional[int] = None) -> List[Tuple[int, int]]:
        """See Graph."""
        mask, after = sum(1 << kind for kind in kinds), array("I", [start])
        found: List[Tuple[int, int]] = []
        while after[0] < end and (limit is None or len(found) < limit):
            room = AT_ONCE if limit is None else min(AT_ONCE, limit - len(found))
            nodes, evidence = array("I", bytes(4 * room)), array("B", bytes(room))
            count = self._library.heapx_marks_list(self._handle, mask, after[0], end, at(nodes), at(evidence), room, at(after))
            found += zip(nodes[:count], evidence[:count])
        return found

    def inside_offsets(self) -> List[Tuple[int, int]]:
        """See Graph."""
        counts = array("Q", bytes(8 * MOST_OFFSETS))
        self._library.heapx_marks_offsets(self._handle, at(counts), MOST_OFFSETS)
        found = [(offset, count) for offset, count in enumerate(counts) if count]
        return sorted(found, key=lambda one: -one[1])

    def find_leak_roots(self) -> int:
        """See Graph."""
        if not self._library.heapx_leak_roots_open(self._handle):
            raise MemoryError()
        self._run(lambda seconds: self._library.heapx_leak_roots_slice(self._handle, seconds))
        return int(self._library.heapx_leak_roots_result(self._handle, 0, None, 0))

    def leak_root_ids(self) -> "array[int]":
        """See Graph."""
        count = self._library.heapx_leak_root_ids(self._handle, None, 0)
        out = array("I", bytes(4 * count))
        self._library.heapx_leak_root_ids(self._handle, at(out), count)
        return out

    def leak_groups(self, labels: Optional["array[int]"] = None) -> List[LeakGroup]:
        """See Graph."""
        known = None if labels is None else at(labels)
        count = self._library.heapx_leak_groups(self._handle, known, None, 0)
        width = GROUP_NUMBERS + LEAK_SAMPLES
        out = array("Q", bytes(8 * width * max(count, 0)))
        if count < 0 or self._library.heapx_leak_groups(self._handle, known, at(out), count) < 0:
            raise MemoryError()
        rows = [out[place : place + width] for place in range(0, len(out), width)]
        samples = [tuple(id for id in row[GROUP_NUMBERS:] if id != NO_NODE) for row in rows]
        return [LeakGroup(row[0], bool(row[1]), row[2], row[3], row[4], row[5], some) for row, some in zip(rows, samples)]

    def leak_kinds(self, ids: Sequence[int]) -> Sequence[int]:
        """See Graph."""
        numbers, out = array("I", ids), array("B", bytes(len(ids)))
        self._library.heapx_leak_kinds(self._handle, at(numbers), len(ids), at(out))
        return out

    def leak_roots(self) -> List[LeakRoot]:
        """See Graph."""
        count = self._library.heapx_leak_roots_result(self._handle, 0, None, 0)
        out = array("Q", bytes(32 * count))
        self._library.heapx_leak_roots_result(self._handle, 0, at(out), count)
        return [LeakRoot(out[place], bool(out[place + 1]), out[place + 2], out[place + 3]) for place in range(0, len(out), 4)]

    def find(self, address: int) -> Optional[Tuple[int, int]]:
        """See Graph."""
        offset = array("Q", [0])
        node = self._library.heapx_graph_find(self._handle, address, at(offset))
        return None if node == NO_NODE else (node, offset[0])

    def columns(self, ids: "array[int]") -> Tuple["array[int]", "array[int]"]:
        """See Graph."""
        addresses, sizes = array("Q", bytes(8 * len(ids))), array("Q", bytes(8 * len(ids)))
        self._library.heapx_graph_blocks(self._handle, at(ids), len(ids), at(addresses), at(sizes))
        return addresses, sizes

    def edges(self, node: int) -> List[Edge]:
        """See Graph."""
        count = self._library.heapx_graph_edges(self._handle, node, None, 0)
        out = array("Q", bytes(24 * count))
        self._library.heapx_graph_edges(self._handle, node, at(out), count)
        return [Edge(*out[place : place + 3]) for place in range(0, len(out), 3)]

    def each_edges(self, first: int, end: int) -> Iterator[Sequence[Tuple[int, int]]]:
        """See Graph."""
        few = 8
        out = array("Q", bytes(24 * few))
        ask, handle, place = self._library.heapx_graph_edges, self._handle, at(out)
        for node in range(first, end):
            count = ask(handle, node, place, few)
            if count > few:
                few = count
                out = array("Q", bytes(24 * few))
                place = at(out)
                ask(handle, node, place, few)
            yield () if not count else list(zip(out[: 3 * count : 3], out[2 : 3 * count : 3]))

    def referrers(self, node: int, limit: int) -> List[Referrer]:
        """See Graph."""
        out, next_edge = array("Q", bytes(24 * limit)), array("Q", [0])
        count = self._library.heapx_graph_referrers(self._handle, node, at(out), limit, at(next_edge))
        return [Referrer(*out[place : place + 3]) for place in range(0, 3 * count, 3)]

    def parents(self, roots_from: int) -> "array[int]":
        """See Graph."""
        out = array("I", [NO_NODE]) * self.nodes
        if self._library.heapx_graph_parents(self._handle, roots_from, at(out)):
            raise MemoryError()
        return out

    def split(self, places: Sequence[Tuple[int, int]]) -> None:
        """See Graph."""
        nodes, slots = array("I", [node for node, _ in places]), array("I", [slot for _, slot in places])
        if self._library.heapx_graph_split(self._handle, at(nodes), at(slots), len(places)):
            raise MemoryError()
        self._more += len(places)

    def dominators(self, roots_from: int, weak: Tuple[int, int], list_links_are_weak: bool = True) -> Tree:
        """See Graph."""
        nodes = self.nodes
        owners, retained, blocks = array("I", [NO_NODE]) * nodes, array("Q", bytes(8 * nodes)), array("I", bytes(4 * nodes))
        failed = self._library.heapx_graph_dominators(
            self._handle, roots_from, *weak, int(list_links_are_weak), at(owners), at(retained), at(blocks)
        )
        if failed:
            raise MemoryError()
        return Tree(owners, retained, blocks)

    def reached(self, first: int, end: int) -> Sum:
        """See Graph."""
        sums = array("Q", [0, 0])
        if self._library.heapx_graph_reached(self._handle, first, end, at(sums), sums.buffer_info()[0] + 8):
            raise MemoryError()
        return Sum(sums[1], sums[0])

    def heaviest(self, tree: Tree) -> "array[int]":
        """See Graph."""
        out = array("I", [NO_NODE]) * len(tree.owners)
        self._library.heapx_tree_heaviest(at(tree.owners), at(tree.retained_bytes), len(tree.owners), at(out))
        return out

    def children(self, tree: Tree, owner: int, limit: int, until: Optional[int] = None) -> Tuple[List[int], int]:
        """See Graph."""
        nodes = len(tree.owners)
        out, end = array("I", bytes(4 * limit)), nodes if until is None else until
        first, following = self._index(tree)
        begin = 0 if first is None else first[nodes if owner == NO_NODE else owner]
        places = (at(tree.owners), at(tree.retained_bytes), begin, None if following is None else at(following))
        count = self._library.heapx_tree_children(*places, end, owner, at(out), limit)
        return list(out[: min(count, limit)]), count

    def _index(self, tree: Tree) -> "Tuple[Optional[array[int]], Optional[array[int]]]":
        """Where the children of each begin, and which follows; nothing while few were asked for: a pass over all nodes takes less."""
        if self._tree is not tree:
            self._tree, self._asked, self._children = tree, 0, (None, None)
        self._asked += 1
        if self._asked == MOST_PASSES:
            nodes = len(tree.owners)
            first, following = array("I", [NO_NODE]) * (nodes + 1), array("I", bytes(4 * nodes))
            self._library.heapx_tree_index(at(tree.owners), nodes, at(first), at(following))
            self._children = first, following
        return self._children
