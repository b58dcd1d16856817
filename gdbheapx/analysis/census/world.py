"""Types that recognisers share: the target as they see it, the rows that they ask, and the signatures that they give."""

from array import array
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.analysis.reachability.heap_graph import ManagedHeap
from gdbheapx.analysis.reachability.owners import HeldContainer
from gdbheapx.analysis.reachability.paths import Namer
from gdbheapx.inferior.base import Module, Target
from gdbheapx.kernel.blocks.graph_queries import ITSELF
from gdbheapx.kernel.blocks.signatures import ALL, IN_RANGES, IN_SET, OTHERS, NumberSet, SignatureRow, Signed, Signer
from gdbheapx.kernel.blocks.stream import CLASS_USED, NO_ARENA, NativeBlocks

EXACT = "exact"
"""The allocator, the runtime or the compiler wrote it there, and two things prove each other: a class, a type, a header."""
SHAPE = "shape"
"""The block's words fit together as this shape's must; something else may by chance."""
PLACE = "place"
"""What it is was not found: who points to it is named, which is no type."""
CONTENT = "content"
"""By what its bytes look like alone."""
SURE = (EXACT, SHAPE, PLACE, CONTENT)
SHAPES_FROM = 50
"""Of Ask.order: what is asked before is a type or a header."""
WEAK_ORDER = 80
Made = TypeVar("Made")
__all__ = ["ALL", "AskedRows", "Inner", "Recogniser", "CensusTarget", "order_rows"]


class Signature(NamedTuple):
    """Name of blocks, and how sure it is."""

    name: str
    module: str
    """Whose: a module's name, or a runtime's (`python`, `jvm`); empty: no one's."""
    sure: str = EXACT
    """One of SURE."""


class Ask(NamedTuple):
    """A row of conditions, and what a block is that meets it."""

    row: SignatureRow
    name: Callable[[int], Optional[Signature]]
    """By the row's key (0 where it has none); None: nothing that has a name. Asked after memory was read: it may look at a few words."""
    sets: Sequence[NumberSet] = ()
    """What IN_SET and IN_RANGES of the row's conditions name, from 0 on."""
    order: int = SHAPES_FROM
    """Lower ones are asked first: the first row that a block meets counts. 10: headers that a runtime writes before each block; 20: types
    by pointers that are known; 50: shapes; 90: what is only a place. From WEAK_ORDER on: what
    has no name in the end is named by its content."""
    settle: Optional[Callable[[Sequence[Signed]], None]] = None
    """Called with, before `name` is asked, all that met the row: how many of each key, and where the first one lies."""
    accepts: Optional[Callable[[Signed], bool]] = None
    """Whether all blocks of one key together can be that: their number, their sizes."""
    owning: Optional[Callable[[int], Optional[int]]] = None
    """Which words of such a block own what they point to, by the row's key, as Namer.owning_words() shows it; None: as that does by the
    name alone."""
    least_blocks: int = 1
    """Fewer of one key are not that; the others are not even looked at: chance makes many keys of one block each."""


class CensusTarget:
    """Target as recognisers see it. Few words are read here: what has to be found in every block is asked by rows."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.target: Target = session.target
        self.word_bytes = session.target.word_bytes
        self.little_endian = session.target.little_endian
        self._made: Dict[Callable[[CensusTarget], Any], Any] = {}

    @classmethod
    def of(cls, session: Session) -> "CensusTarget":
        """Return the world of a session; each look at a running process has its own."""
        if not (session.target.kind == "core" or session.target.is_kept):
            return cls(session)
        if session.world is None:
            session.world = cls(session)
        world: CensusTarget = session.world
        return world

    def once(self, make: Callable[["CensusTarget"], Made]) -> Made:
        """Return what several recognisers need, made when the first one asks."""
        if make not in self._made:
            self._made[make] = make(self)
        return self._made[make]  # type: ignore[no-any-return]

    def constant(self, make: Callable[["CensusTarget"], Made]) -> Made:
        """Return what is derived from constants of loaded objects alone, made before a process is stopped."""
        known = self.session.constants
        if make not in known:
            known[make] = make(self)
        return known[make]  # type: ignore[no-any-return]

    def read(self, address: int, size_bytes: int) -> bytes:
        """Return the readable prefix of a few bytes."""
        return self.target.read_prefix(address, size_bytes)

    def words(self, address: int, count: int) -> Optional[Tuple[int, ...]]:
        """Return so many words, or None if they cannot all be read."""
        size = self.word_bytes
        data = self.read(address, count * size)
        if len(data) < count * size:
            return None
        return tuple(self.target.words_in(data))

    def text(self, address: int, limit: int = 256) -> Optional[str]:
        """Return the string at the address if it is printable, else None."""
        return self.target.text_at(address, limit)

    def modules(self) -> Sequence[Module]:
        return self.target.modules()

    def data(self, module: Optional[Module] = None) -> Iterator[Tuple[int, bytes]]:
        """Yield (address, bytes) of the writable segments of one object, or all: they are small enough to be searched in Python."""
        for object_ in self.modules() if module is None else [module]:
            for start, end, _ in self.target.writable_segments(object_):
                data = self.read(start, end - start)
                if data:
                    yield start, data

    def find(self, rows: Sequence[SignatureRow], sets: Sequence[NumberSet] = ()) -> List[Signed]:
        """Return matches of the begins of all used blocks, before the census: takes one pass over the heap."""
        signer = self.signer(rows, sets)
        for heap in self.session.heaps.all():
            signer.stream(heap.blocks())
        return signer.found()

    def signer(self, rows: Sequence[SignatureRow], sets: Sequence[NumberSet] = ()) -> Signer:
        """Return a signer of the native library for rows and their sets."""
        shape = (self.word_bytes, self.little_endian)
        return self.session.kernel.signer(heap_graph.open_block_source(self.target), shape, rows, sets, self.session.budget)

    def cells(self, runs: Sequence[Tuple[int, int, int]], labels: "Optional[array[int]]" = None) -> NativeBlocks:
        """Return cells in use. `runs`: (address of the first, bytes of each, number of cells); `labels`: by cell, 0 if it is not in use."""
        return used_blocks(*self.session.kernel.cells(runs, labels))

    def unlisted(self, runs: Sequence[Tuple[int, int, int]], heads: Sequence[int], most: int) -> "Optional[array[int]]":
        """Return labels of cells, 0 for those in free lists. None if a list leads to no cell, or to one twice, cannot be read, or is
        longer than `most`.
        """
        return self.session.kernel.unlisted(heap_graph.open_block_source(self.target), runs, heads, most, self.session.budget)


def used_blocks(addresses: "array[int]", usable_bytes: "array[int]") -> NativeBlocks:
    """Return blocks in use that belong to no arena."""
    count = len(addresses)
    return NativeBlocks(addresses, usable_bytes, array("B", [CLASS_USED]) * count, array("B", [0]) * count, array("I", [NO_ARENA]) * count)


class Inner(NamedTuple):
    """Memory that a runtime got in large pieces, and what it made of it. Pieces of malloc's that it cut up are named in `instead`."""

    blocks: Iterator[NativeBlocks]
    """What it handed out, by address: signed with the same rows as malloc's."""
    module: str
    name: str
    """Of what no row knows in it."""
    taken: Sequence[Tuple[int, int]] = ()
    """The pieces. A block of malloc's that holds one counts as this runtime's, not counted once more."""
    free_bytes: int = 0
    overhead_bytes: int = 0
    unit_bytes: int = 16
    """The blocks begin at multiples of this."""
    instead: Sequence[int] = ()
    """Addresses of malloc's blocks that it cut up, sorted: the census asks for these blocks instead."""
    is_told_apart: bool = True
    """What lies in it is shown; if not, it may hold anything, as a mapping does."""
    is_collected: bool = False
    """Nothing points to some of its blocks before the next collection: garbage, and no leak."""
    managed: Optional[ManagedHeap] = None
    """How its objects hold blocks of others."""


class Length(NamedTuple):
    """Rule that reads from a block how many of its bytes, or of a block that it points to, are content."""

    name: str
    at: int
    """Offset of the length in the block."""
    head_bytes: int
    unit_bytes: int = 1
    """The content is head_bytes + unit_bytes * length."""
    pointer: int = ITSELF
    """Offset of the pointer to the block whose content it is; ITSELF: the block's own."""
    length_bytes: int = 8
    test: Tuple[int, int, int] = (0, 0, 0)
    """(offset, mask, value): it holds for blocks whose four bytes there are, masked, the value."""


class RuntimeLabels(NamedTuple):
    """Labels of the lines in one runtime's table."""

    name: str
    pools: str
    """What it cuts its own blocks with."""
    owned: str
    """malloc's blocks that are its own; empty: each of its signatures has a line."""
    other: str
    none: str
    """The same where none of malloc's blocks is its own."""


class Recogniser:
    """Recogniser of the blocks of one language, runtime or library."""

    module = ""
    objects: Tuple[str, ...] = ()
    """Parts of the names of loaded objects that show it."""
    is_wide = True
    """It is known with 64-bit words, little-endian, alone."""
    counts_references = False
    """Its objects do, and what is held by nothing but each other waits for a collector (Namer.counting)."""
    leads_to_all = False
    """Its arenas lead to all of its objects: none of them is ever without a pointer."""
    has_buffers = False
    """It keeps blocks with the words of a string for buffers that are none."""
    table: Optional[RuntimeLabels] = None
    """How its lines read where all memory is shown by what this runtime has of it (analysis/inside.py)."""
    object_heads: Sequence[int] = ()
    """Bytes that may be before its objects, whose second word is their type."""
    allocator_in_type = 0
    """Offset in a type of the function that allocates its objects."""
    line_of_library = ""
    """The line of its blocks in tables of runtimes that use this library."""

    def is_here(self, world: CensusTarget) -> bool:
        """Return True if the process has it, by its modules' names or a few words: cheap, and never by all of memory."""
        fits = not self.is_wide or (world.word_bytes == 8 and world.little_endian)
        return fits and any(part in module.file_name for module in world.modules() for part in self.objects)

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        """Return the rows."""
        return ()

    def inner(self, world: CensusTarget) -> Sequence[Inner]:
        """Return the memory that it manages itself. Called after make_asks()."""
        return ()

    def fields(self, world: CensusTarget) -> Mapping[Tuple[str, int], str]:
        """Return by (type of a block, offset in it) the names of blocks that only this pointer owns."""
        return {}

    def lengths(self, world: CensusTarget) -> Iterable[Length]:
        """Return rules for the content of its blocks. Called after make_asks()."""
        return ()

    def read_container(self, fits: Callable[[int, int], bool], at: int, these: Sequence[int]) -> Optional[HeldContainer]:
        """Return the container of its own whose words these are, which begin at an address; None if they are none. `fits`: whether a block
        begins at an address, of a size that suits a request of so many bytes."""
        return None

    def line_in_tables(self, signature: Signature) -> Optional[str]:
        """Return the line of its table that has such blocks of malloc's; None: that of all others."""
        if self.table is None or signature.module != self.module:
            return None
        if self.table.owned:  # what an object points to alone is its own, too
            return self.table.owned
        return "malloc: %s" % signature.name if signature.sure == EXACT else None

    def namer(self, world: CensusTarget) -> Optional[Namer]:
        """Return the namer of its objects, or None. Called after make_asks()."""
        return None


class AskedRows(NamedTuple):
    """Rows of all recognisers in their order, with one numbering of sets."""

    asks: Sequence[Ask]
    rows: Sequence[SignatureRow]
    sets: Sequence[NumberSet]

    def settle(self, matches: Sequence[Signed]) -> None:
        """Pass all matches to the rows that need them at once, before signatures are asked."""
        by_row: Dict[int, List[Signed]] = {}
        for match in matches:
            by_row.setdefault(match.row, []).append(match)
        for number, ask in enumerate(self.asks):
            if ask.settle is not None:
                ask.settle(by_row.get(number, []))

    def signature(self, signed: Signed) -> Optional[Signature]:
        if signed.row >= len(self.asks):
            return None
        ask = self.asks[signed.row]
        if signed.blocks < ask.least_blocks or (ask.accepts is not None and not ask.accepts(signed)):
            return None
        return ask.name(signed.key)

    def owning_words(self, signed: Signed) -> Optional[int]:
        ask = self.asks[signed.row] if signed.row < len(self.asks) and signed.key != OTHERS else None
        return ask.owning(signed.key) if ask is not None and ask.owning is not None else None


def order_rows(asks: Iterable[Ask]) -> AskedRows:
    """Order rows, and number their sets as one signer takes them."""
    ordered = sorted(asks, key=lambda ask: ask.order)
    rows: List[SignatureRow] = []
    sets: List[NumberSet] = []
    for ask in ordered:
        first = len(sets)
        sets.extend(ask.sets)
        moved = [
            condition._replace(operand=condition.operand + first) if condition.op in (IN_SET, IN_RANGES) else condition
            for condition in ask.row.conditions
        ]
        rows.append(ask.row._replace(conditions=moved, weak=ask.order >= WEAK_ORDER))
    return AskedRows(ordered, rows, sets)
