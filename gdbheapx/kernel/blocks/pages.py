"""Pages of a heap: used blocks that keep free memory from being returned, and a map by cells of equal size."""

from array import array
from typing import TYPE_CHECKING, AbstractSet, Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.budget import Budget
from gdbheapx.kernel.blocks.stream import NativeBlocks, open_stream
from gdbheapx.kernel.common.library import NO_MEMORY, NativeObject, OpenSource, address_of, flatten_pairs, run_resumable

if TYPE_CHECKING:
    from gdbheapx.kernel.blocks.graph import Graph, Tree


EDGE, HOLE, LISTED, RESERVE, ROOM, APART, SITUATIONS = range(7)
"""Situations of free bytes. EDGE: the ends of free memory that has whole pages, on pages shared with blocks; HOLE: free memory without a
whole page that goes back; LISTED: the same, all of it on lists of chunks that look used; RESERVE: an arena's end; ROOM: regions of a room
such as a slab; APART: all of an arena that is distinguished, but its end."""
PIN_USED, PIN_CACHED, PIN_OWN, PIN_NONE = range(4)
"""Who pins: blocks in use; blocks in caches; the allocator's own; no one."""
BY_SEVERAL, BY_NOBODY = 0xFFFFFFFF, 0xFFFFFFFE
"""In place of the node that owns the blocks: no single one does, or it is not known; they are leaked."""
MOST_KINDS = 16


class PinNumbers(NamedTuple):
    """A PinShape as the kernel takes it, next to the overheads; `kinds` has one bit for each listed kind."""

    page_bytes: int
    head_bytes: int
    lead_bytes: int
    kinds: int


class PinShape(NamedTuple):
    """Rule by which an allocator returns free memory."""

    page_bytes: int
    head_bytes: int = 0
    """At the begin of a run of free blocks, which stay whatever is free."""
    lead_bytes: int = 0
    """From the begin of the allocator's unit to the block's address."""
    overheads: Sequence[int] = ()
    """By kind: bytes of the unit beyond the usable ones."""
    listed_kinds: AbstractSet[int] = frozenset()
    """Kinds of cached blocks that count as free: on lists from which they are merged with their neighbours before memory is returned. By
    rooms: kinds of free memory in no room."""
    apart: Sequence[int] = ()
    """Arenas that are distinguished, sorted."""
    rooms: Sequence[Tuple[int, int]] = ()
    """(size of a region, bytes of the room), sorted: then memory goes back by rooms that are wholly free, not by pages."""
    spans: Sequence[int] = ()
    """array('Q'): begin, end and size of regions of each room, sorted, where sizes do not show rooms."""

    @property
    def by_rooms(self) -> bool:
        """Memory goes back by rooms, not by pages."""
        return bool(self.rooms or self.spans)


def by_kind(overheads: Sequence[int]) -> "array[int]":
    """Overheads as the kernel takes them: MOST_KINDS, modulo 2**64."""
    return array("Q", ([one % (1 << 64) for one in overheads] + [0] * MOST_KINDS)[:MOST_KINDS])


class PinLabels(NamedTuple):
    """Labels of used blocks."""

    labels: Sequence[int] = array("I")
    """array('I'): what a block is, by its id in the graph; without one by its place among all used blocks of the streams. 0: not known."""
    graph: "Optional[Graph]" = None
    tree: "Optional[Tree]" = None
    """Of that graph."""
    least_retained_bytes: int = 0
    """A block that no single node owns and that keeps so much alive counts as an owner itself."""
    own: Sequence[int] = array("Q")
    """array('Q'), sorted: addresses in blocks that are an allocator's own."""


class PinGroup(NamedTuple):
    """Free bytes that blocks which are alike keep."""

    situation: int
    status: int
    """A PIN_ number."""
    label: int
    """Of PinLabels.labels; 0: not known."""
    top: int
    """The node that owns the blocks and has no owner itself: a root, a mapping, or a block that several own; else BY_SEVERAL or
    BY_NOBODY."""
    size: int
    """Usable bytes of each block, where nothing else is known of it, and of rooms; else 0."""
    arena: int
    kept_bytes: int
    alone_bytes: int
    """Those on places where nothing else is in use."""
    places: int
    """Pages, rooms, or ends of arenas."""
    blocks: int
    """Blocks of this sort that lie there, or directly below."""
    block_bytes: int
    """Of them, usable."""
    least_bytes: int
    most_bytes: int
    sample: int
    """The address of the first; 0: there is none."""


PIN_NUMBERS = len(PinGroup._fields)


class Pins(NativeObject):
    """Single reading of a heap for pins."""

    returned_bytes = 0
    """Free bytes that do go back: whole pages inside. Known after found()."""
    used_blocks = 0
    """Used blocks that were met, and those before: where the labels of the next heap begin. Known after found()."""

    def __init__(self, library: Any, opened: OpenSource, shape: PinShape, labels: PinLabels, first: int, budget: Budget) -> None:
        self._library, self._opened, self._budget = library, opened, budget
        graph: Any = labels.graph
        rooms, apart = flatten_pairs(shape.rooms), array("Q", shape.apart)
        own, known, tree = array("Q", labels.own), array("I", labels.labels), labels.tree
        listed = sum(1 << kind for kind in shape.listed_kinds)
        numbers = array("Q", PinNumbers(shape.page_bytes, shape.head_bytes, shape.lead_bytes, listed))
        overheads = by_kind(shape.overheads)
        spans = array("Q", shape.spans)
        self._kept = (rooms, spans, apart, own, known, graph, tree)
        arrays = (address_of(rooms), len(shape.rooms), address_of(apart), len(apart), address_of(own), len(own))
        super().__init__(library.heapx_pins_new(address_of(numbers), address_of(overheads), *arrays), library.heapx_pins_free)
        library.heapx_pins_spans(self.handle, address_of(spans), len(spans) // 3)
        library.heapx_pins_label(self.handle, None if graph is None else graph.handle, address_of(known), len(known), first)
        if tree is not None and not library.heapx_pins_own(
            self.handle, address_of(tree.owners), address_of(tree.retained_bytes), len(tree.owners), labels.least_retained_bytes
        ):
            raise MemoryError()

    def stream(self, blocks: Iterator[NativeBlocks]) -> None:
        """Takes the blocks of a heap, all sorts of them."""
        source = open_stream(self._library, blocks)
        run_resumable(lambda seconds: self._library.heapx_pins_slice(self.handle, source.handle, seconds), self._opened, self._budget)

    def found(self) -> List[PinGroup]:
        """The groups; nothing more may be streamed."""
        returned, used = array("Q", [0]), array("Q", [0])
        count = self._library.heapx_pins_end(self.handle, address_of(returned), address_of(used))
        if count == NO_MEMORY:
            raise MemoryError()
        self.returned_bytes, self.used_blocks = returned[0], used[0]
        out = array("Q", bytes(8 * PIN_NUMBERS * count))
        self._library.heapx_pins_groups(self.handle, address_of(out))
        return [PinGroup(*out[place : place + PIN_NUMBERS]) for place in range(0, len(out), PIN_NUMBERS)]
