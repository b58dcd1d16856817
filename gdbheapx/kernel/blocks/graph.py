"""The graph of blocks: what is asked to make one, its answers, and what can be done with it."""

import heapq
from array import array
from typing import TYPE_CHECKING

from gdbheapx.common.budget import Budget
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import OUT_OF_MEMORY
from gdbheapx.inferior.arch import byte_order
from gdbheapx.kernel.blocks.packed import Move, PackedGraph, Pieces, pack_pieces, unpack_handle
from gdbheapx.kernel.blocks.stream import NativeBlocks, join_streams
from gdbheapx.kernel.common.library import (
    NativeObject,
    OpenSource,
    address_of,
    flatten_pairs,
    make_stop_call,
    native_job,
    require_memory,
    run_resumable,
    take_rows,
    usable_cpus,
)

if TYPE_CHECKING:
    from gdbheapx.kernel.blocks.signatures import Signer
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

RULE_START = 0
"""An aligned pointer to a block's start, or to any place of a mapping."""
RULE_TAG = 1
"""To its start, with low bits set."""
RULE_BASE = 2
"""To the second base of a C++ object; to the control bytes of a hash table of Rust's, by a word of its HashMap."""
RULE_HABIT = 3
"""To a place inside at which this program is in the habit of pointing, or which the block's own begin says is meant."""
RULE_INSIDE = 4
"""To any other place inside."""
RULE_END = 5
"""To its start, as the end of the array before it: {begin, inside, end} or {begin, end, end} of a vector."""
RULES = 6
FROM_MAPPING = 6
"""Only a mapping leads there that nothing points to."""
MASKED, UNALIGNED, MANGLED = 7, 8, 9
"""Only a second look has found a pointer: with its upper bits masked or packed, not aligned, or mangled with the guard of the thread's
control block."""
UNOWNING = 10
"""Of a pointer alone: it is after a string's length, a vector's end, or in an inline buffer that is not used; and a better one leads
where it does."""
LEAKED = 15
"""Nothing leads there."""

EVIDENCE = (
    *("start", "tag", "base", "habit", "inside", "end", "mapping", "masked", "unaligned", "mangled", "not-owning"),
    *("?" * 4),
    "none",
)
"""Words for these numbers."""
HELD = frozenset((RULE_START, RULE_TAG, RULE_BASE, RULE_HABIT))


def class_of(evidence: str) -> str:
    """`held`, `maybe` or `leaked`, as `leaks` counts a block with this evidence."""
    return "leaked" if evidence == EVIDENCE[-1] else "held" if evidence in {EVIDENCE[rule] for rule in HELD} else "maybe"


MAYBE = {
    "inside": "a pointer into its middle",
    "end": "the end of a full array in the block before",
    "mapping": "a mapping without a reference",
    "masked": "a tagged pointer",
    "unaligned": "a pointer at an odd address",
    "mangled": "a pointer that the C library mangles",
}
"""The only references to a block that may be leaked, by its evidence."""
WEAK = "weak pointers"
"""Those of any other evidence."""


MOST_POINTERS = 0xFFFFFFFE
"""Of one graph: edges are numbered with 32 bits."""

NO_NODE = 0xFFFFFFFF
NO_SLOT = 0xFFFFFFFF
EXACT_SLOT = 0xFFFFFF00
"""Where a root's `exact` words are."""


OWNS_ALL = (1 << 64) - 1
"""As a mask of words: it is not known which of them own what they point to."""
LAST_OWNING_BIT = 63
"""Of a mask of words: that word and all after it."""


class Owning(NamedTuple):
    """Ownership that runtimes report for their objects."""

    labels: "array[int]"
    """array('I'), of each block."""
    masks: Sequence[int]
    """Of each label, 0 first: which words of such a block own what they point to: bit n is word n. OWNS_ALL: not known."""
    nothing: Sequence[int]
    """Nodes that own nothing, whatever they are: blocks, and roots before they are split."""
    starts: Sequence[int]
    """Blocks that have a name by themselves, such as a module: no one owns them."""
    first_starts: Optional[int] = None
    """So many of them give names to all that they lead to before the others, such as variables of frames, do; None: all at once."""
    begins: Sequence[int] = ()
    """Of each label where the object begins in its block, in bytes: a pointer there is one to the block; none: at the start."""
    items: Sequence[Tuple[int, int]] = ()
    """Of each label where in the block the items begin of an object that counts them, as CPython's do, and how long each is: a last word
    after them owns nothing. (0, 0): it has none; none: no label has any."""


class GraphShape(NamedTuple):
    """Input of a graph."""

    heaps: Sequence[Tuple[int, int]]
    """(start, end) of where blocks may be, sorted."""
    mappings: Sequence[Tuple[int, int]]
    """(start, end) of each mapping outside every heap that is a node, sorted, without overlap."""
    word_bytes: int
    little_endian: bool
    unit_bytes: int
    """Blocks begin at multiples of this: 4, 8 or 16."""
    all_slots: bool
    """Keep where in its block each pointer is."""
    images: Sequence[Tuple[int, int]] = ()
    """(start, end) of what may hold vtables, sorted."""
    ignored_bits: int = 0
    """Of a pointer, that are no address: Memory.ignored_bits. Only where words have 8 bytes."""


class GraphNumbers(NamedTuple):
    """Size of a graph, and the parts that could not be read."""

    blocks: int
    nodes: int
    edges: int
    candidates: int
    unread_bytes: int
    unread_at: int
    odd_blocks: int
    """Left out: they overlap others or lie where no heap is."""
    bytes_read: int
    by_rule: Tuple[int, ...]
    """Edges of each RULE_."""


class Habit(NamedTuple):
    """An offset at which this program points into its blocks."""

    offset: int
    blocks: int
    references: int


class Edge(NamedTuple):
    """Pointer between two nodes."""

    node: int
    """Where it points to; of referrers() where it is."""
    rule: int
    slot: int
    """Which word of its node it is; NO_SLOT if that was not kept."""


class LeakRoot(NamedTuple):
    """A leaked block to which no other group of leaked blocks leads."""

    id: int
    is_cycle: bool
    """Blocks that it leads to lead back to it."""
    blocks: int
    """It and those that it leads to; a block that two roots lead to counts for one."""
    bytes: int
    place: int
    """In the order of all."""


class NativeLeakGroup(NamedTuple):
    """Roots of leaks that are alike."""

    size_bytes: int
    is_cycle: bool
    label: int
    """What they are, by who asked; 0: it was not."""
    roots: int
    blocks_behind: int
    bytes_behind: int
    samples: Tuple[int, ...]
    """Some of them: their ids."""


NO_ROOT, LEAK_ROOT, LEAK_CYCLE = 0, 1, 2
"""What a leaked block is: below a root, a root, or one to which blocks that it leads to lead back."""
LEAK_SAMPLES = 5
"""Of a group, at most."""


class NativeSum(NamedTuple):
    """Number and bytes of a set of blocks."""

    blocks: int
    bytes: int


class NativeClass(NamedTuple):
    """Blocks of one label that one node owns, directly or not."""

    top: int
    """Its place among the nodes that were asked for; -1: none of them owns these."""
    label: int
    blocks: int
    bytes: int


class Others(NamedTuple):
    """Pointers to what an owner keeps that come from elsewhere, and take nothing from it."""

    stacks: int
    """From stacks and registers."""
    unowning: int
    """Words that own nothing."""
    weak: int
    """To the inside of blocks, links of lists, and the like."""


class Joint(NamedTuple):
    """Block with many pointers, and the blocks that few others than it lead to."""

    node: int
    bytes: int
    blocks: int


LIST, TREE, HASH_TABLE, SKIP_LIST, ARRAY, LRU = "list", "tree", "hash-table", "skip-list", "array", "lru"
"""Shapes of containers."""
CERTAIN, LIKELY, GUESS, HELD_BY_SEVERAL = "certain", "likely", "guess", "shared"
"""How sure it is who holds a container."""


class Container(NamedTuple):
    """Blocks that are linked with each other, such as the nodes of a list or a tree, or a table with its chains: one node of a tree."""

    node: int
    """Its number, after those of all nodes of the graph."""
    shape: str
    elements: int
    element_bytes: int
    """Usable bytes of each; 0: they have several sizes."""
    own_bytes: int
    """Of its elements by themselves."""
    entries: Sequence[Tuple[int, int]]
    """(node, slot) of the words that hold it, such as a list's head; of several holders, when it is `shared`, those of all."""
    sure: str
    users: Sequence[Tuple[int, int]] = ()
    """(node, pointers to its elements) of those that take nothing from its holder, most pointers first: an answer of
    Graph.with_users(), as the next three."""
    used_elements: Optional[int] = 0
    """So many elements are also in use elsewhere, by users; None, and no users: that was not counted, it would have taken too long;"""
    used_bytes: Optional[int] = 0
    """with so many bytes by themselves."""
    other_users: Optional[int] = 0
    """So many more than `users` has."""


class NativeContainerRow(NamedTuple):
    """Row that the native library gives for a container."""

    elements: int
    element_bytes: int
    own_bytes: int
    entries: int
    shape: int
    sure: int


SHAPES = LIST, TREE, HASH_TABLE, SKIP_LIST, ARRAY, LRU
"""By the kernel's numbers."""
SURES = CERTAIN, LIKELY, GUESS, HELD_BY_SEVERAL
MOST_ENTRIES = 64
"""Of a container: words that hold it which are shown."""


MOST_USERS = 8
"""Of a container that are shown."""
MOST_USER_STEPS = 1 << 28
"""Up the tree of owners, from what points to elements: of all containers together."""
NOT_COUNTED = -3
"""There were not enough steps left."""


def run_making(budget: Budget, make: Callable[[Any], Optional[int]]) -> int:
    """Return the handle that the search for containers makes, checking the budget meanwhile. HeapxError if its time is up."""
    was_over = budget.expired()
    handle = make(None if was_over else make_stop_call(budget))
    if not handle:
        raise budget.cut("containers were found") if budget.expired() and not was_over else MemoryError()
    return handle


class NativeLinkedBlocks(NativeObject):
    """Groups of linked blocks in a graph, independent of its roots."""

    def __init__(self, library: Any, graph: "Graph", budget: Budget) -> None:
        self._library, self._blocks = library, graph.numbers().blocks
        handle = run_making(budget, lambda is_asked: library.heapx_groups_new(graph.handle, is_asked))
        super().__init__(handle, library.heapx_groups_free)

    def of(self) -> "array[int]":
        """array('I') by block: the number + 1 of the group that it is linked with, 0 of none."""
        found = array("I", bytes(4 * self._blocks))
        self._library.heapx_groups_of(self.handle, address_of(found))
        return found


class Containers(NativeObject, Sequence[Container]):
    """Containers of a graph with its present roots, by number; each is made on demand."""

    def __init__(self, library: Any, graph: "Graph", budget: Budget, linked: NativeLinkedBlocks, locals_from: int, weak_from: int) -> None:
        self._library, self._graph, self._steps_left = library, graph, array("Q", [MOST_USER_STEPS])
        roots = linked.handle, locals_from, weak_from
        handle = run_making(budget, lambda is_asked: library.heapx_containers_new(graph.handle, *roots, is_asked))
        super().__init__(handle, library.heapx_containers_free)
        self._count, self._first = int(library.heapx_containers_count(self.handle)), graph.nodes

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < self._count:
            raise IndexError(number)
        out = array("Q", bytes(8 * len(NativeContainerRow._fields)))
        self._library.heapx_container_row(self._graph.handle, self.handle, number, address_of(out))
        elements, element_bytes, own_bytes, entry_count, shape, sure = out
        room = min(entry_count, MOST_ENTRIES)
        places = array("Q", bytes(16 * room))
        self._library.heapx_container_entries(self._graph.handle, self.handle, number, address_of(places), room)
        entries = list(zip(places[::2], places[1::2]))
        return Container(self._first + number, SHAPES[shape], elements, element_bytes, own_bytes, entries, SURES[sure])

    def with_users(self, one: Container, owners: "array[int]") -> Container:
        """Return the container with its users; see Graph.with_users()."""
        out, sums = array("Q", bytes(16 * MOST_USERS)), array("Q", [0, 0, 0])
        number = one.node - self._first
        place = self._graph.handle, self.handle, number, one.node, address_of(owners), address_of(self._steps_left)
        count = self._library.heapx_container_users(*place, address_of(out), MOST_USERS, address_of(sums))
        if count == NOT_COUNTED:
            return one._replace(used_elements=None, used_bytes=None, other_users=None)
        require_memory(count >= 0)
        users = list(zip(out[::2], out[1::2]))[:count]
        return one._replace(users=users, used_elements=sums[0], used_bytes=sums[1], other_users=sums[2] - count)

    def of(self) -> "array[int]":
        """Tree.members."""
        found = array("I", bytes(4 * self._graph.numbers().blocks))
        self._library.heapx_containers_of(self.handle, address_of(found))
        return found

    def elements(self, number: int, first: int, limit: int) -> List[int]:
        """Return elements of a container; see Graph.members()."""
        out = array("I", bytes(4 * limit))
        return list(out[: self._library.heapx_container_members(self.handle, number, first, address_of(out), limit)])


class Tree(NamedTuple):
    """Dominators: the owner of each node, and what each keeps alive. Containers are nodes, too: after those of the graph, between who
    holds one and its elements."""

    owners: "array[int]"
    """array('I') by node: the node without which nothing would lead there; NO_NODE where several roots lead there, for roots and for what
    nothing leads to."""
    retained_bytes: "array[int]"
    """array('Q') by node: itself and what it owns, directly or not."""
    retained_blocks: "array[int]"
    """array('I')."""
    containers: Sequence[Container] = ()
    """By number: number 0 is the first node after those of the graph."""
    members: "Optional[array[int]]" = None
    """array('I') by block: the number + 1 of the container whose element it is, 0 of none; None: there are no containers."""

    def container(self, node: int) -> Optional[Container]:
        """Return the container that a node is, or None for a block, a mapping or a root."""
        number = node - (len(self.owners) - len(self.containers))
        return self.containers[number] if number >= 0 and node != NO_NODE else None

    def container_of(self, block: int) -> Optional[int]:
        """The number of the container whose element it is."""
        number = self.members[block] if self.members is not None and block < len(self.members) else 0
        return number - 1 if number else None


MOST_HABITS = 32
MOST_OFFSETS = 65536
AT_ONCE = 65536
MOST_PASSES = 8
"""Over all nodes of a tree, before its children are put in lists."""


def check_pointers(count: int) -> None:
    """HeapxError if there are more than a graph has numbers for."""
    if count > MOST_POINTERS:
        what = "{:,} words of memory may be pointers to blocks, and more than {:,} are not followed".format(count, MOST_POINTERS)
        raise HeapxError(what, "`gdbheapx census` counts blocks by type without following them", code=OUT_OF_MEMORY)


class Graph(NativeObject):
    """Nodes are used blocks by address, then GraphShape.mappings, then roots. In this order: gather(), then scan() and end_node() for each
    mapping and each root, settle(), after which the process may run on, and resolve()."""

    _tree: Optional[Tree] = None
    _asked = 0
    tagged_words = 0
    """So many words look_again() has met that lead to blocks which nothing else leads to, if the processor ignores their
    `ignorable_bits`."""
    _children: "Optional[Tuple[array[int], array[int]]]" = None
    _linked: Optional[NativeLinkedBlocks] = None
    _containers: Optional[Tuple[Tuple[int, ...], Containers]] = None

    def __init__(self, library: Any, opened: OpenSource, shape: GraphShape, budget: Budget, images: Optional[OpenSource] = None) -> None:
        heaps, mappings, vtables = (flatten_pairs(ranges) for ranges in (shape.heaps, shape.mappings, shape.images))
        self._images_opened, self._kept = images, (heaps, mappings, vtables)
        numbers = (shape.word_bytes, int(shape.little_endian), shape.unit_bytes.bit_length() - 1, int(shape.all_slots))
        ranges = (address_of(heaps), len(shape.heaps), address_of(mappings), len(shape.mappings))
        images_ = (images.handle if images is not None else None, address_of(vtables), len(shape.images))
        made = library.heapx_graph_new(opened.handle, *numbers, *ranges, *images_, shape.ignored_bits, usable_cpus())
        self._begin(library, opened, budget, shape, made)

    def _begin(self, library: Any, opened: OpenSource, budget: Budget, shape: GraphShape, made: Any) -> None:
        NativeObject.__init__(self, made, library.heapx_graph_free)
        self.library, self._opened, self._budget, self.shape = library, opened, budget, shape
        self._more = 0
        """Nodes that split() has made."""

    @classmethod
    def unpacked(cls, library: Any, opened: OpenSource, kept: PackedGraph, budget: Budget) -> "Graph":
        """Make the graph of a file; `opened`: a source that has nothing. ValueError if it is no graph."""
        if not kept.is_possible():
            raise ValueError("numbers of its graph are none")
        found, mappings = cls.__new__(cls), flatten_pairs(kept.mappings)
        shape = GraphShape((), kept.mappings, kept.word_bytes, True, kept.unit_bytes, kept.has_slots)
        found._kept, found._images_opened = (mappings, mappings, mappings), None
        found._begin(library, opened, budget, shape, unpack_handle(library, kept, mappings))
        return found

    def pack(self, moves: Sequence[Move], slots: bool) -> Pieces:
        """The graph for a file, after resolve(). `moves`: where mappings go, by address; `slots`: where pointers are in their blocks is
        written, too. ValueError where a block lies in none of the mappings."""
        yield from pack_pieces(self.library, self.handle, moves, slots)

    def set_evidence(self, found: Sequence[Tuple[int, int]]) -> Tuple[NativeSum, ...]:
        """After mark(): (node, evidence) of what an earlier look_again() has found. The same sums as mark()."""
        nodes, evidence = array("I", [node for node, _ in found]), array("B", [one for _, one in found])
        self.library.heapx_marks_set(self.handle, address_of(nodes), address_of(evidence), len(found))
        return self._read_sums()

    def _run_work(self, work: Any) -> None:
        run_resumable(work, self._opened, self._budget)

    def run(self, work: Callable[[float], int], done: Callable[[], int], total: int) -> None:
        """Calls work(seconds) until nothing is left or the budget expires. `done`: how much of `total` is."""
        self._budget.progress.measure(done, total)
        try:
            self._run_work(work)
        finally:
            self._budget.progress.measure(None, 0)

    def sign(self, signer: "Signer") -> None:
        """Every block that is gathered from now on is signed."""
        self._signer = signer
        self.library.heapx_graph_sign(self.handle, signer.handle)

    def note_unowning(self) -> None:
        """Words that own nothing are distinguished, where slots of blocks are kept, and words are 64 bits of this machine's order."""
        self.library.heapx_graph_note_unowning(self.handle)

    def large(self, least_bytes: int) -> List[Tuple[int, int]]:
        """(address, size) of the blocks that are so large, by address. After settle()."""
        out = take_rows(lambda where, room: self.library.heapx_graph_large(self.handle, least_bytes, where, room), 2)
        return list(zip(out[::2], out[1::2]))

    def gather(self, streams: Sequence[Iterator[NativeBlocks]], own: Sequence[int] = ()) -> None:
        """Reads all used blocks of these heaps, except for those that hold one of the addresses `own`."""
        places = array("Q", sorted(own))
        library = self.library

        def gather_slice(seconds: float) -> int:
            left = int(library.heapx_gather_slice(self.handle, job, seconds))
            if self._images_opened is not None:
                self._images_opened.raise_error()
            return left

        make, free = library.heapx_gather_new, library.heapx_gather_free
        with join_streams(library, streams) as blocks, native_job(make(blocks, address_of(places), len(places)), free) as job:
            self.run(gather_slice, lambda: int(library.heapx_gather_done(job)), 1000)

    def scan(self, base: int, start: int, end: int) -> None:
        """Reads a part of the mapping or root that begins at `base`."""
        place = array("Q", [start])
        self._run_work(lambda seconds: self.library.heapx_graph_scan(self.handle, base, address_of(place), end, seconds))

    def scan_words(self, words: Sequence[int], exact: Sequence[int] = (), is_placed: bool = True) -> None:
        """Scan words at hand as a part of a mapping or root: the first is slot 0, unless they have no place (NO_SLOT). `exact`: addresses
        inside blocks that count as pointers to their starts.
        """
        size, order = self.shape.word_bytes, byte_order(self.shape.little_endian)
        mask = (1 << 8 * size) - 1 & ~self.shape.ignored_bits
        for slot, some in ((0 if is_placed else NO_SLOT, words), (EXACT_SLOT, exact)):
            kept = array("B", b"".join((word & mask).to_bytes(size, order) for word in some))
            self.library.heapx_graph_scan_bytes(self.handle, address_of(kept), len(kept), slot)

    def end_node(self) -> None:
        """The mapping or root is read."""
        require_memory(not self.library.heapx_graph_end_node(self.handle))

    def settle(self) -> None:
        """Everything is read. HeapxError if that was more pointers than a graph has numbers for."""
        check_pointers(self.numbers().candidates)
        require_memory(self.library.heapx_graph_settle(self.handle) == 1)

    def resolve(self) -> List[Habit]:
        """Makes the edges, and gives the program's habits."""
        library, handle, out = self.library, self.handle, array("Q", bytes(24 * MOST_HABITS))
        self.run(lambda seconds: library.heapx_graph_resolve(handle, seconds), lambda: int(library.heapx_graph_resolve_done(handle)), 1000)
        require_memory(not library.heapx_graph_find_unowning(handle))
        count = library.heapx_graph_habits(handle, address_of(out), MOST_HABITS)
        return [Habit(*out[3 * one : 3 * one + 3]) for one in range(count)]

    def numbers(self) -> GraphNumbers:
        """Return the size of the graph, and the parts that could not be read."""
        out, by_rule = array("Q", bytes(8 * (len(GraphNumbers._fields) - 1))), array("Q", bytes(8 * RULES))
        self.library.heapx_graph_numbers(self.handle, address_of(out), address_of(by_rule))
        numbers: Any = [*out, tuple(by_rule)]
        return GraphNumbers._make(numbers)

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return self.numbers().nodes + self._more

    def mark(self, roots_from: int) -> Tuple[NativeSum, ...]:
        """Finds what leads to each node; nodes from `roots_from` on are roots. Blocks and bytes by evidence, RULE_START to LEAKED."""
        require_memory(self.library.heapx_marks_open(self.handle, roots_from))
        self._run_work(lambda seconds: self.library.heapx_marks_slice(self.handle, seconds))
        return self._read_sums()

    def _read_sums(self) -> Tuple[NativeSum, ...]:
        out = array("Q", bytes(16 * (LEAKED + 1)))
        self.library.heapx_marks_sums(self.handle, address_of(out))
        return tuple(NativeSum(*out[place : place + 2]) for place in range(0, len(out), 2))

    def look_again(
        self,
        ranges: Sequence[Tuple[int, int]],
        guard: Optional[Tuple[int, int]],
        threads: Optional[int] = None,
        ignorable_bits: int = 0,
    ) -> Tuple[NativeSum, ...]:
        """After mark(), and while the target can still be read: reads all blocks that something leads to, and these ranges, for weaker
        pointers to the starts of blocks that nothing leads to; and those blocks. `guard`: with which the C library mangles pointers, and
        how far it rotates them. `ignorable_bits`: see tagged_words. The same sums as mark()."""
        library = self.library
        made = library.heapx_weak_new(self.handle, *(guard or (0, 0)), ignorable_bits, threads or usable_cpus())
        with native_job(made, library.heapx_weak_free) as job:
            self._run_work(lambda seconds: library.heapx_weak_blocks(job, seconds))
            for start, end in ranges:
                place = array("Q", [start])
                self._run_work(lambda seconds, place=place, end=end: library.heapx_weak_scan(job, address_of(place), end, seconds))
            self._run_work(lambda seconds: library.heapx_weak_settle(job, seconds))
            require_memory(not library.heapx_weak_settle(job, 0.0))
            self.tagged_words = int(library.heapx_weak_tagged(job))
        return self._read_sums()

    def evidence(self, node: int) -> int:
        """Return the evidence for a node, RULE_START to LEAKED, after mark()."""
        return int(self.library.heapx_marks_evidence(self.handle, node))

    def with_evidence(self, kinds: Sequence[int], start: int, end: int, limit: Optional[int] = None) -> List[Tuple[int, int]]:
        """(node, evidence) of the nodes from `start` to `end` that have one of these kinds."""
        mask, after = sum(1 << kind for kind in kinds), array("I", [start])
        found: List[Tuple[int, int]] = []
        while after[0] < end and (limit is None or len(found) < limit):
            room = AT_ONCE if limit is None else min(AT_ONCE, limit - len(found))
            nodes, evidence = array("I", bytes(4 * room)), array("B", bytes(room))
            count = self.library.heapx_marks_list(
                self.handle, mask, after[0], end, address_of(nodes), address_of(evidence), room, address_of(after)
            )
            found += zip(nodes[:count], evidence[:count])
        return found

    def inside_offsets(self) -> List[Tuple[int, int]]:
        """(offset, references) by which blocks are reached that have no better evidence, most frequent first."""
        counts = array("Q", bytes(8 * MOST_OFFSETS))
        self.library.heapx_marks_offsets(self.handle, address_of(counts), MOST_OFFSETS)
        found = [(offset, count) for offset, count in enumerate(counts) if count]
        return sorted(found, key=lambda one: -one[1])

    def find_leak_roots(self, containers: Optional[Containers] = None) -> int:
        """Finds where leaks begin, after mark(): how many they are. What they lead to sums up to all that is leaked. One of
        `containers` of which all is leaked begins with its first element, whatever else points to others of it."""
        require_memory(self.library.heapx_leak_roots_open(self.handle, None if containers is None else containers.handle))
        self._run_work(lambda seconds: self.library.heapx_leak_roots_slice(self.handle, seconds))
        return int(self.library.heapx_leak_roots_result(self.handle, None, 0))

    def leak_root_ids(self) -> "array[int]":
        """array('I'): those that were found."""
        return take_rows(lambda where, room: self.library.heapx_leak_root_ids(self.handle, where, room), 1, "I")

    def leak_groups(self, labels: Optional["array[int]"] = None) -> List[NativeLeakGroup]:
        """Return the leak roots that were found, grouped by size and label. `labels`: array('I'), one for each of leak_root_ids()."""
        known = None if labels is None else address_of(labels)
        numbers = len(NativeLeakGroup._fields) - 1
        width = numbers + LEAK_SAMPLES
        out = take_rows(lambda where, room: self.library.heapx_leak_groups(self.handle, known, where, room), width)
        rows = [out[place : place + width] for place in range(0, len(out), width)]
        samples = [tuple(id for id in row[numbers:] if id != NO_NODE) for row in rows]
        return [NativeLeakGroup(row[0], bool(row[1]), row[2], row[3], row[4], row[5], some) for row, some in zip(rows, samples)]

    def leak_kinds(self, ids: Sequence[int]) -> Sequence[int]:
        """Return the kind of each of these blocks: NO_ROOT, LEAK_ROOT or LEAK_CYCLE."""
        numbers, out = array("I", ids), array("B", bytes(len(ids)))
        self.library.heapx_leak_kinds(self.handle, address_of(numbers), len(ids), address_of(out))
        return out

    def leak_roots(self, most: Optional[int] = None) -> List[LeakRoot]:
        """Return the leak roots that were found, in the order of leak_root_ids(): there may be millions. `most`: only so many, those with
        most bytes first.
        """
        count, width = self.library.heapx_leak_roots_result(self.handle, None, 0), len(LeakRoot._fields)
        out = array("Q", bytes(8 * width * count))
        self.library.heapx_leak_roots_result(self.handle, address_of(out), count)
        places: Iterable[int] = range(0, len(out), width)
        if most is not None and most < count:
            places = heapq.nlargest(most, places, key=lambda place: out[place + 3])
        return [LeakRoot(out[place], bool(out[place + 1]), *out[place + 2 : place + width]) for place in places]

    def find(self, address: int) -> Optional[Tuple[int, int]]:
        """(node, offset) of the block or mapping that holds the address."""
        offset = array("Q", [0])
        node = self.library.heapx_graph_find(self.handle, address, address_of(offset))
        return None if node == NO_NODE else (node, offset[0])

    def columns(self, ids: "array[int]") -> Tuple["array[int]", "array[int]"]:
        """array('Q') of addresses and of usable bytes of blocks. `ids`: array('I')."""
        addresses, sizes = array("Q", bytes(8 * len(ids))), array("Q", bytes(8 * len(ids)))
        self.library.heapx_graph_blocks(self.handle, address_of(ids), len(ids), address_of(addresses), address_of(sizes))
        return addresses, sizes

    def edges(self, node: int, limit: Optional[int] = None) -> List[Edge]:
        """Return a node's pointers, the first `limit` of them."""
        count = self.library.heapx_graph_edges(self.handle, node, None, 0)
        count = count if limit is None else min(count, limit)
        out = array("Q", bytes(24 * count))
        self.library.heapx_graph_edges(self.handle, node, address_of(out), count)
        return [Edge(*out[place : place + 3]) for place in range(0, len(out), 3)]

    def edge_to(self, node: int, target: int) -> Optional[Edge]:
        """The first pointer from one node to another: one that owns, where there is one."""
        out = array("Q", bytes(24))
        return Edge(*out) if self.library.heapx_graph_edge_to(self.handle, node, target, address_of(out)) else None

    def each_edges(self, first: int, end: int) -> Iterator[Sequence[Tuple[int, int]]]:
        """(node, slot) of what each of these nodes points to, in their order: faster than edges() of one after the other."""
        few = 8
        out = array("Q", bytes(24 * few))
        ask, handle, place = self.library.heapx_graph_edges, self.handle, address_of(out)
        for node in range(first, end):
            count = ask(handle, node, place, few)
            if count > few:
                few = count
                out = array("Q", bytes(24 * few))
                place = address_of(out)
                ask(handle, node, place, few)
            yield () if not count else list(zip(out[: 3 * count : 3], out[2 : 3 * count : 3]))

    def referrers(self, node: int, limit: int) -> List[Edge]:
        """Return the pointers to a node, words that own nothing last."""
        out = array("Q", bytes(24 * limit))
        count = self.library.heapx_graph_referrers(self.handle, node, address_of(out), limit)
        return [Edge(*out[place : place + 3]) for place in range(0, 3 * count, 3)]

    def parents(self, roots_from: int) -> "array[int]":
        """array('I') by node: the node before it on a shortest way from a root; NO_NODE for roots and what nothing leads to."""
        out = array("I", [NO_NODE]) * self.nodes
        require_memory(not self.library.heapx_graph_parents(self.handle, roots_from, address_of(out)))
        return out

    def own(self, told: Owning) -> None:
        """After resolve(): pointers that own nothing are weak for dominators(), and no way for named_parents()."""
        self._forget_linked()
        masks, nothing, starts = array("Q", told.masks), array("I", told.nothing), array("I", told.starts)
        begins = array("Q", told.begins or [0] * len(masks))
        ends = array("Q", [start << 8 | size for start, size in told.items or [(0, 0)] * len(masks)])
        if len(told.labels) < self.numbers().blocks or not len(begins) == len(ends) == len(masks):
            raise ValueError("a label for each block")
        first = len(starts) if told.first_starts is None else told.first_starts
        by_label = (*map(address_of, (told.labels, masks, begins, ends)), len(masks))
        nodes = (address_of(nothing), len(nothing), address_of(starts), len(starts))
        require_memory(not self.library.heapx_graph_own(self.handle, *by_label, *nodes, first))

    def loosen(self, node: int, first: int, end: int = NO_SLOT) -> None:
        """After own(): the words of a block from `first` to before `end` own nothing, whatever its label says."""
        self._forget_linked()
        self.library.heapx_graph_loosen(self.handle, node, first, end)

    def pass_by(self, node: int, slot: int) -> None:
        """After own(): no way of ways() or edge_to() leads by this word of a block; owners stay as they are."""
        self.library.heapx_graph_pass_by(self.handle, node, slot)

    def named_parents(self, roots_from: int, is_any: bool = False, data: int = 0) -> "array[int]":
        """array('I') by node: the node before it on a shortest way from what has a name by itself, else from a root, by words that own.
        `is_any`: from whichever is nearest; `data`: the first roots, so many, come before the others."""
        return self.ways(roots_from, is_any, data).parents_to(NO_NODE)

    def ways(self, roots_from: int, is_any: bool = False, data: int = 0) -> "Ways":
        """Make the search for paths from roots to one node after the other: near paths are known long before all are."""
        return Ways(self.library, self, roots_from, is_any, data)

    def only_holders(self) -> "array[int]":
        """array('I') by node: the only one from which words lead there, whether they own or not; NO_NODE: none, or several."""
        out = array("I", [NO_NODE]) * self.nodes
        self.library.heapx_graph_only_holders(self.handle, address_of(out))
        return out

    def split(self, places: Sequence[Tuple[int, int]]) -> None:
        """A new root begins at each (node, slot), in ascending order: nodes after it get higher numbers."""
        nodes, slots = array("I", [node for node, _ in places]), array("I", [slot for _, slot in places])
        require_memory(not self.library.heapx_graph_split(self.handle, address_of(nodes), address_of(slots), len(places)))
        self._more += len(places)

    def linked(self) -> NativeLinkedBlocks:
        """Return the groups of linked blocks, found once and kept until ownership is set."""
        if self._linked is None:
            self._linked = NativeLinkedBlocks(self.library, self, self._budget)
        return self._linked

    def _forget_linked(self) -> None:
        self._linked = self._containers = None

    def containers(self, locals_from: int, weak_from: int) -> Containers:
        """Return the containers, valid as long as roots stay as they are: thread-local roots begin at `locals_from`, stacks at
        `weak_from`. Found once for all callers.
        """
        roots = locals_from, weak_from, self._more
        if self._containers is None or self._containers[0] != roots:
            self._containers = roots, Containers(self.library, self, self._budget, self.linked(), locals_from, weak_from)
        return self._containers[1]

    def dominators(self, roots_from: int, weak: Tuple[int, int], locals_from: Optional[int] = None, containers: bool = False) -> Tree:
        """Compute the tree of owners. Roots hold in turns, each takes nothing from those before: variables; thread-local ones, from
        `locals_from` on; stacks and registers, from weak[0] to weak[1]. Weak pointers, such as those inside blocks where that is no habit
        of the program, to blocks that many hold, or back to a holder, count only for blocks that no better one reaches. `containers`:
        each is a node, if all slots are kept.
        """
        first_local = weak[0] if locals_from is None else locals_from
        some = self.containers(first_local, weak[0]) if containers and self.shape.all_slots else None
        self._linked = None  # who asks for owners has split the roots, and needs the room
        nodes = self.nodes + (len(some) if some is not None else 0)
        found = array("I", [NO_NODE]) * nodes, array("Q", bytes(8 * nodes)), array("I", bytes(4 * nodes))
        handle = some.handle if some is not None else None
        numbers = (roots_from, first_local, *weak, handle)
        require_memory(not self.library.heapx_graph_dominators(self.handle, *numbers, *map(address_of, found)))
        return Tree(*found, some, some.of()) if some is not None and len(some) else Tree(*found)

    def others(self, tree: Tree, owners: Sequence[int], weak: Tuple[int, int]) -> List[Others]:
        """Return the other nodes that lead to the blocks that each of these owners keeps; no owner is below another. `weak`: as
        dominators() takes it; after mark().
        """
        asked, under, width = array("I", owners), self.under(tree, owners), len(Others._fields)
        out = array("Q", bytes(8 * width * len(owners)))
        self.library.heapx_tree_others(self.handle, address_of(under), address_of(asked), *weak, address_of(out))
        return [Others(*out[width * place : width * (place + 1)]) for place in range(len(owners))]

    def reached(self, node: int, tree: Optional[Tree] = None) -> NativeSum:
        """Sum the blocks that can be reached from a node, whatever else leads there. `tree`: after own(), where blocks that a node keeps
        may depend on words that own nothing.
        """
        sums = array("Q", [0, 0])
        lists = (None, None, None) if tree is None else (address_of(tree.owners), *map(address_of, self._list_children(tree)))
        require_memory(not self.library.heapx_graph_reached(self.handle, node, *lists, address_of(sums), sums.buffer_info()[0] + 8))
        return NativeSum(sums[1], sums[0])

    def joint(self, tree: Tree, roots: Tuple[int, int], most: int) -> List[Joint]:
        """Return the blocks with many pointers, such as tables of a dict, and such ones of these roots, with the sums of the blocks that
        nothing else leads to: of the `most` with most pointers, and of as many that lead to most blocks without a sole owner, each
        without the others. Most bytes first. Those that would take too long are left out.
        """
        width = len(Joint._fields)
        out = array("Q", bytes(2 * 8 * width * most))
        count = self.library.heapx_graph_joint(
            self.handle, address_of(tree.owners), address_of(tree.retained_bytes), *roots, address_of(out), most
        )
        require_memory(count >= 0)
        rows = [Joint(*out[width * place : width * (place + 1)]) for place in range(count)]
        return sorted(rows, key=lambda row: -row.bytes)

    def members(self, tree: Tree, number: int, first: int = 0, limit: int = AT_ONCE) -> List[int]:
        """Blocks that are elements of a container, in the order of its links, from the element `first` on."""
        return tree.containers.elements(number, first, limit) if isinstance(tree.containers, Containers) else []

    def with_users(self, tree: Tree, one: Container) -> Container:
        """Return the container with the nodes that point to its elements and are not below its owner, each with all that it owns."""
        return tree.containers.with_users(one, tree.owners) if isinstance(tree.containers, Containers) else one

    def children(self, tree: Tree, owner: int, limit: int, until: Optional[int] = None) -> Tuple[List[int], int]:
        """The nodes that `owner` owns directly and that retain something, most first, at most `limit`, and how many there are. Of NO_NODE
        those before `until` that no single node owns."""
        nodes = len(tree.owners)
        out, end = array("I", bytes(4 * limit)), nodes if until is None else until
        first, following = self._index_children(tree)
        begin = 0 if first is None else first[nodes if owner == NO_NODE else owner]
        places = (address_of(tree.owners), address_of(tree.retained_bytes), begin, None if following is None else address_of(following))
        count = self.library.heapx_tree_children(*places, end, owner, address_of(out), limit)
        return list(out[: min(count, limit)]), count

    def under(self, tree: Tree, tops: Sequence[int]) -> "array[int]":
        """array('I') by node: place + 1 of the nearest of these nodes that owns it, or is it; 0 for none."""
        under = array("I", bytes(4 * len(tree.owners)))
        for place, node in enumerate(tops):
            under[node] = place + 1
        self.library.heapx_tree_under(address_of(tree.owners), len(tree.owners), address_of(under))
        return under

    def classes(self, under: "array[int]", tops: int, labels: "array[int]", label_count: int) -> List[NativeClass]:
        """Sum the blocks that each of so many `tops` owns, by label. `under`: of under(); `labels`: array('I') of each block, each below
        `label_count`.
        """
        if len(labels) < self.numbers().blocks or (len(labels) and max(labels) >= label_count):
            raise ValueError("a label for each block, and all that there are")
        places = (self.handle, address_of(under), tops, address_of(labels), label_count)
        out = take_rows(lambda where, room: self.library.heapx_tree_classes(*places, where, room), 4)
        return [NativeClass(out[at_] - 1, *out[at_ + 1 : at_ + 4]) for at_ in range(0, len(out), 4)]

    def _index_children(self, tree: Tree) -> "Tuple[Optional[array[int]], Optional[array[int]]]":
        """Return the lists of children as _lists does, or None for both while few children were asked for: a pass over all nodes takes
        less then.
        """
        if self._tree is tree and self._children is not None:
            return self._children
        if self._tree is not tree:
            self._tree, self._asked, self._children = tree, 0, None
        self._asked += 1
        return (None, None) if self._asked < MOST_PASSES else self._list_children(tree)

    def _list_children(self, tree: Tree) -> "Tuple[array[int], array[int]]":
        """Return the first child of each node, and the next sibling of each."""
        if self._tree is not tree or self._children is None:
            nodes = len(tree.owners)
            first, following = array("I", [NO_NODE]) * (nodes + 1), array("I", bytes(4 * nodes))
            self.library.heapx_tree_index(address_of(tree.owners), nodes, address_of(first), address_of(following))
            self._tree, self._children = tree, (first, following)
        return self._children

    def blocks(self, ids: Sequence[int]) -> List[Tuple[int, int]]:
        """(address, usable bytes) of blocks."""
        return list(zip(*self.columns(array("I", ids))))


class Ways(NativeObject):
    """Shortest ways through a graph, which stays as it is meanwhile."""

    def __init__(self, library: Any, graph: Graph, roots_from: int, is_any: bool, data: int) -> None:
        self._library, self._graph = library, graph
        self._parents = array("I", [NO_NODE]) * graph.nodes
        handle = library.heapx_ways_new(graph.handle, roots_from, data, is_any, address_of(self._parents))
        super().__init__(handle, library.heapx_ways_free)

    def parents_to(self, node: int) -> "array[int]":
        """array('I') by node, known for this one and all before it on its way; NO_NODE: for all."""
        self._library.heapx_ways_to(self.handle, node)
        return self._parents
