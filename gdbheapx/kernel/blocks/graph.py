"""The graph of blocks: what is asked to make one, what it tells, and what both kernels can do with it."""

from abc import ABC, abstractmethod
from array import array
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.kernel.blocks.packed import Move, Pieces
from gdbheapx.kernel.blocks.records import Blocks
from gdbheapx.kernel.blocks.signatures import Signer

RULE_START = 0
"""An aligned pointer to a block's start, or to any place of a mapping."""
RULE_TAG = 1
"""To its start, with low bits set."""
RULE_BASE = 2
"""To the second base of a C++ object."""
RULE_HABIT = 3
"""To a place inside at which this program is in the habit of pointing, or which the block's own begin says is meant."""
RULE_INSIDE = 4
"""To any other place inside."""
RULE_END = 5
"""To its start, by who also points to the block before it: the end of an array, perhaps."""
FROM_MAPPING = 6
"""Only a mapping leads there that nothing points to."""
MASKED, UNALIGNED, MANGLED = 7, 8, 9
"""Only a second look has found a pointer: with its upper bits masked or packed, not aligned, or mangled with the guard of the thread's
control block."""
LEAKED = 15
"""Nothing leads there."""

EVIDENCE = (
    *("start", "tag", "base", "habit", "inside", "end", "mapping", "masked", "unaligned", "mangled"),
    *("?" * 5),
    "none",
)
"""Words for these numbers."""
HELD = frozenset((RULE_START, RULE_TAG, RULE_BASE, RULE_HABIT))


def class_of(evidence: str) -> str:
    """`held`, `maybe` or `leaked`, as `leaks` counts a block with this evidence."""
    return "leaked" if evidence == EVIDENCE[-1] else "held" if evidence in {EVIDENCE[rule] for rule in HELD} else "maybe"


MAYBE = {
    "inside": "only a pointer to its inside holds it",
    "end": "only a pointer to its begin, where another block ends, holds it",
    "mapping": "only a mapping leads there that nothing points to",
    "masked": "only a pointer with other bits set leads there",
    "unaligned": "only a pointer at an odd address leads there",
    "mangled": "only a pointer that the C library mangles leads there",
}
"""Why it may be in use and may be leaked, by its evidence."""


MOST_POINTERS = 0xFFFFFFFE
"""Of one graph: edges are numbered with 32 bits."""

NO_NODE = 0xFFFFFFFF
NO_SLOT = 0xFFFFFFFF
EXACT_SLOT = 0xFFFFFF00
"""Where a root's `exact` words stand."""


class GraphShape(NamedTuple):
    """What a graph is made of."""

    heaps: Sequence[Tuple[int, int]]
    """(start, end) of where blocks may be, sorted."""
    mappings: Sequence[Tuple[int, int]]
    """(start, end) of each mapping outside every heap that is a node, sorted, without overlap."""
    word_bytes: int
    little_endian: bool
    unit_bytes: int
    """Blocks begin at multiples of this: 4, 8 or 16."""
    all_slots: bool
    """Keep where in its block each pointer stands."""
    images: Sequence[Tuple[int, int]] = ()
    """(start, end) of what may hold vtables, sorted."""


class GraphNumbers(NamedTuple):
    """How large it is, and what could not be read."""

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
    """One pointer."""

    node: int
    """Where it points to."""
    rule: int
    slot: int
    """Which word of its node it is; NO_SLOT if that was not kept."""


class Referrer(NamedTuple):
    """One pointer to a node."""

    node: int
    """Where it stands."""
    rule: int
    slot: int


class LeakRoot(NamedTuple):
    """A leaked block to which no other group of leaked blocks leads."""

    id: int
    is_cycle: bool
    """Blocks behind it lead back to it."""
    blocks: int
    """It and those behind it; a block behind two roots counts for one."""
    bytes: int


class LeakGroup(NamedTuple):
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
"""What a leaked block is: behind a root, a root, or one to which blocks behind it lead back."""
LEAK_SAMPLES = 5
"""Of a group, at most."""


class Sum(NamedTuple):
    """Some blocks."""

    blocks: int
    bytes: int


class Tree(NamedTuple):
    """Dominators: the owner of each node, and what each keeps alive."""

    owners: "array[int]"
    """array('I') by node: the node without which nothing would lead there; NO_NODE where several roots lead there, for roots and for what
    nothing leads to."""
    retained_bytes: "array[int]"
    """array('Q') by node: itself and what it owns, directly or not."""
    retained_blocks: "array[int]"
    """array('I')."""


class Graph(ABC):
    """Nodes are used blocks by address, then GraphShape.mappings, then roots. In this order: gather(), then scan() and end_node() for each
    mapping and each root, settle(), after which the process may run on, and resolve()."""

    _shape: GraphShape

    @property
    def shape(self) -> GraphShape:
        """What it is made of."""
        return self._shape

    @abstractmethod
    def sign(self, signer: Signer) -> None:
        """Every block that is gathered from now on is signed."""

    @abstractmethod
    def gather(self, streams: Sequence[Iterator[Blocks]], own: Sequence[int] = ()) -> None:
        """Reads all used blocks of these heaps, but for those that hold one of the addresses `own`."""

    @abstractmethod
    def scan(self, base: int, start: int, end: int) -> None:
        """Reads a part of the mapping or root that begins at `base`."""

    @abstractmethod
    def scan_words(self, words: Sequence[int], exact: Sequence[int] = ()) -> None:
        """The same for words at hand: the first is slot 0. `exact`: addresses inside blocks that count as pointers to their starts."""

    @abstractmethod
    def end_node(self) -> None:
        """The mapping or root is read."""

    @abstractmethod
    def settle(self) -> None:
        """Everything is read. HeapxError if that was more pointers than a graph has numbers for."""

    @abstractmethod
    def large(self, least_bytes: int) -> List[Tuple[int, int]]:
        """(address, size) of the blocks that are so large, by address. After settle()."""

    @abstractmethod
    def resolve(self) -> List[Habit]:
        """Makes the edges, and gives the program's habits."""

    @abstractmethod
    def numbers(self) -> GraphNumbers:
        """How large it is."""

    @abstractmethod
    def mark(self, roots_from: int) -> Tuple[Sum, ...]:
        """Finds what leads to each node; nodes from `roots_from` on are roots. Blocks and bytes by evidence, RULE_START to LEAKED."""

    @abstractmethod
    def look_again(self, ranges: Sequence[Tuple[int, int]], guard: Optional[int]) -> Tuple[Sum, ...]:
        """After mark(), and while the target can still be read: reads all blocks that something leads to, and these ranges, for weaker
        pointers to the starts of blocks that nothing leads to. `guard`: with which the C library mangles pointers. The same sums as
        mark()."""

    @abstractmethod
    def set_evidence(self, found: Sequence[Tuple[int, int]]) -> Tuple[Sum, ...]:
        """After mark(): (node, evidence) of what an earlier look_again() has found. The same sums as mark()."""

    @abstractmethod
    def pack(self, moves: Sequence[Move], slots: bool) -> Pieces:
        """The graph for a file, after resolve(). `moves`: where mappings go, by address; `slots`: where pointers stand in their blocks is
        written, too. ValueError where a block lies in none of the mappings."""

    @abstractmethod
    def evidence(self, node: int) -> int:
        """What leads to a node, after mark()."""

    @abstractmethod
    def with_evidence(self, kinds: Sequence[int], start: int, end: int, limit: Optional[int] = None) -> List[Tuple[int, int]]:
        """(node, evidence) of the nodes from `start` to `end` that have one of these kinds."""

    @abstractmethod
    def inside_offsets(self) -> List[Tuple[int, int]]:
        """(offset, references) by which blocks are reached that have no better evidence, most frequent first."""

    @abstractmethod
    def find_leak_roots(self) -> int:
        """Finds where leaks begin, after mark(): how many they are. What hangs behind them sums up to all that is leaked."""

    @abstractmethod
    def leak_roots(self) -> List[LeakRoot]:
        """All that were found: there may be millions."""

    @abstractmethod
    def leak_root_ids(self) -> "array[int]":
        """array('I'): those that were found."""

    @abstractmethod
    def leak_groups(self, labels: Optional["array[int]"] = None) -> List[LeakGroup]:
        """Those that were found, by size and label. `labels`: array('I'), one for each of leak_root_ids()."""

    @abstractmethod
    def leak_kinds(self, ids: Sequence[int]) -> Sequence[int]:
        """What each of these blocks is: NO_ROOT, LEAK_ROOT or LEAK_CYCLE."""

    @abstractmethod
    def find(self, address: int) -> Optional[Tuple[int, int]]:
        """(node, offset) of the block or mapping that holds the address."""

    @abstractmethod
    def columns(self, ids: "array[int]") -> Tuple["array[int]", "array[int]"]:
        """array('Q') of addresses and of usable bytes of blocks. `ids`: array('I')."""

    def blocks(self, ids: Sequence[int]) -> List[Tuple[int, int]]:
        """(address, usable bytes) of blocks."""
        return list(zip(*self.columns(array("I", ids))))

    @abstractmethod
    def edges(self, node: int) -> List[Edge]:
        """What it points to."""

    def each_edges(self, first: int, end: int) -> Iterator[Sequence[Tuple[int, int]]]:
        """(node, slot) of what each of these nodes points to, in their order: faster than edges() of one after the other."""
        for node in range(first, end):
            yield [(edge.node, edge.slot) for edge in self.edges(node)]

    @abstractmethod
    def referrers(self, node: int, limit: int) -> List[Referrer]:
        """Who points to it."""

    @abstractmethod
    def parents(self, roots_from: int) -> "array[int]":
        """array('I') by node: the node before it on a shortest way from a root; NO_NODE for roots and what nothing leads to."""

    @property
    @abstractmethod
    def nodes(self) -> int:
        """How many there are."""

    @abstractmethod
    def split(self, places: Sequence[Tuple[int, int]]) -> None:
        """A new root begins at each (node, slot), in ascending order: nodes behind it get higher numbers."""

    @abstractmethod
    def dominators(self, roots_from: int, weak: Tuple[int, int], list_links_are_weak: bool = True) -> Tree:
        """Who owns what. Pointers from roots weak[0] to weak[1], and those inside blocks where that is no habit of the program, count
        only for what no stronger one reaches; so do the links of doubly linked lists, if all slots are kept."""

    @abstractmethod
    def reached(self, first: int, end: int) -> Sum:
        """What can be reached from these nodes, whatever else leads there."""

    @abstractmethod
    def heaviest(self, tree: Tree) -> "array[int]":
        """array('I') by node: the node that it owns directly and that retains most; NO_NODE for none."""

    @abstractmethod
    def children(self, tree: Tree, owner: int, limit: int, until: Optional[int] = None) -> Tuple[List[int], int]:
        """The nodes that `owner` owns directly and that retain something, most first, at most `limit`, and how many there are. Of NO_NODE
        those before `until` that no single node owns."""
