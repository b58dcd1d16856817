"""Slabs: large blocks of malloc that the program cuts up itself, as LLVM's BumpPtrAllocator, arenas of protobuf, pools of apr and Zones do.

Where the layout of an allocator is known, its pieces are blocks of their own (of GLib, PostgreSQL and PHP), and its slabs are not
among these. Of others it shows that objects begin inside such blocks at places of no one stride: what vtables are there, and where words
of such blocks lead to. An array, whose elements are of one size, has no such places; a slab of objects of one size shows no more than one
has, and counts as none.
"""

import re
from array import array
from bisect import bisect_right
from collections import Counter
from typing import AbstractSet, Annotated, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import cplusplus, registry, rust
from gdbheapx.analysis.census import world as worlds
from gdbheapx.analysis.census.cplusplus import CppClasses
from gdbheapx.analysis.census.cplusplus_paths import ContainerNamer
from gdbheapx.analysis.census.world import CONTENT, EXACT, PLACE, SHAPE, Ask, AskedRows, CensusTarget, Inner, Recogniser, Signature
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.analysis.reachability.heap_graph import ManagedClass
from gdbheapx.analysis.reachability.owners import SHAPES
from gdbheapx.analysis.reachability.paths import BlockPaths, LabelKind, NodeNames, Speaker
from gdbheapx.analysis.reachability.paths import Paths as GraphPaths
from gdbheapx.common import problems
from gdbheapx.common.columns import BYTES, IF_ANY, TEXT, Column, add_values, hidden_column
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.ranges import unite_ranges
from gdbheapx.common.units import SentenceSize, add_article, make_sentence
from gdbheapx.kernel.blocks import signatures
from gdbheapx.kernel.blocks.graph import ARRAY, HASH_TABLE, NO_SLOT, Graph
from gdbheapx.kernel.blocks.graph import SHAPES as GRAPH_SHAPES
from gdbheapx.kernel.blocks.graph_queries import FillRule, measure_fill
from gdbheapx.kernel.blocks.signatures import AT_MOST, NOT_EQUAL, Condition, Referring, SignatureRow, Signed, Signer
from gdbheapx.kernel.blocks.stream import NativeBlocks

LEAST_BYTES = 4096
"""Of a slab."""
LEAST_BLOCKS = 4
"""Of about one size: fewer are no habit."""
SIZE_STEP_BYTES = 64
"""Blocks whose sizes differ by less are of one size: what malloc gives beyond what was asked for."""
LEAST_PERCENT = 25
"""Of what is in use: an allocator of less is not worth a word."""
MOST_SIZES, MOST_SAMPLES = 8, 8
"""That are looked at: the sizes that take most, and blocks of each of them."""
MOST_LOOKED_BYTES = 1 << 14
"""Of each block: a process is stopped meanwhile."""
LEAST_PLACES, MOST_PLACES = 16, 128
"""Objects that begin in a block: so many, of which some are looked at."""
LEAST_UNIT_BYTES, ALIGNED_BYTES = 8, 16
LEAST_STRIDE_UNITS, MOST_STRIDE_BYTES = 4, 512
"""Elements of an array: where all that begins is at half of the places in them or less, there are elements of that size."""
PARTS, LEAST_PARTS = 16, 4
"""They are in so many of these parts of a block. A stack, whose words lead into it as well, is in use at one end."""
LEAST_DISTANCES = 8
"""Between words that lead into their own block and where they lead: a string with an inline buffer has always the same."""


class Slabs(NamedTuple):
    """Sums of all slabs."""

    blocks: int
    bytes: int
    sizes_bytes: Sequence[int]
    """Usable bytes of one slab, those that take most first."""
    share_percent: float
    """Of what is in use."""


SlabGroup = Tuple[int, Sequence[int], Sequence[Tuple[int, bytes]]]
"""Large blocks of one size: (size, their starts in ascending order, by address the first bytes of some of them)."""


def group_blocks(large: Sequence[Tuple[int, int]]) -> List[Tuple[int, List[int]]]:
    """Group (address, size) by size; return (size, starts) of the sizes with enough blocks, those that take most first."""
    counts = Counter(size // SIZE_STEP_BYTES for _, size in large)
    often = [(-step * count, step) for step, count in counts.items() if count >= LEAST_BLOCKS]
    whole = -sum(weight for weight, _ in often)
    some: Dict[int, List[Tuple[int, int]]] = {step: [] for weight, step in sorted(often)[:MOST_SIZES] if -weight * MOST_SIZES * 4 >= whole}
    for start, size in large:
        if size // SIZE_STEP_BYTES in some:
            some[size // SIZE_STEP_BYTES].append((start, size))
    return [(min(size for _, size in blocks), sorted(start for start, _ in blocks)) for blocks in some.values()]


def read_slabs(world: CensusTarget, large: Sequence[Tuple[int, int]]) -> List[SlabGroup]:
    """Read samples of large blocks, given as (address, size), while the process is stopped: from the first block of a size to the last."""
    made: List[SlabGroup] = []
    for size, starts in group_blocks(large):
        count, last = min(MOST_SAMPLES, len(starts)), len(starts) - 1
        some = [starts[place * last // max(1, count - 1)] for place in range(count)]
        made.append((size, starts, [(start, world.read(start, min(size, MOST_LOOKED_BYTES))) for start in some]))
    return made


def find_slabs(world: CensusTarget, sampled: Sequence[SlabGroup], used_bytes: int) -> Optional[Slabs]:
    """Return the slabs among samples: sizes of which most blocks that were read have objects inside; None if there are none, or they are
    little of what is in use.
    """
    classes: AbstractSet[int] = frozenset(world.constant(CppClasses).firsts() if sampled and world.word_bytes == 8 else ())
    cut_up = []
    for size, starts, contents in sampled:
        if 2 * sum(_has_objects(world, size, starts, start, data, classes) for start, data in contents) > len(contents):
            cut_up.append((size, len(starts)))
    total = sum(size * blocks for size, blocks in cut_up)
    if not total or 100 * total < LEAST_PERCENT * used_bytes:
        return None
    share = round(100.0 * total / max(total, used_bytes), 1)
    return Slabs(sum(blocks for _, blocks in cut_up), total, [size for size, _ in cut_up], share)


def _has_objects(world: CensusTarget, size: int, starts: Sequence[int], start: int, data: bytes, classes: AbstractSet[int]) -> bool:
    """Return True if objects of several sizes begin inside this block, one of those that start at `starts`."""
    words = world.target.words_in(data[: len(data) // world.word_bytes * world.word_bytes])
    if _are_of_no_stride([at * world.word_bytes for at, word in enumerate(words) if word in classes], len(data)):
        return True
    leads: Set[int] = set()
    distances: Set[int] = set()
    for at, word in enumerate(words):
        if not starts[0] < word < starts[-1] + size:
            continue
        home = starts[bisect_right(starts, word) - 1]
        if 0 < word - home < size:
            leads.add(word - home)
            distances.add(word - start - at * world.word_bytes)
    return len(distances) >= LEAST_DISTANCES and _are_of_no_stride(sorted(leads), size)


def _are_of_no_stride(places: Sequence[int], size: int) -> bool:
    if len(places) < LEAST_PLACES or len({place * PARTS // size for place in places}) < LEAST_PARTS:
        return False
    rest, many = Counter(place % ALIGNED_BYTES for place in places).most_common(1)[0]
    is_aligned = 4 * many >= 3 * len(places)  # as a rule: some stand between
    unit = ALIGNED_BYTES if is_aligned else LEAST_UNIT_BYTES
    some = [place for place in places if not is_aligned or place % ALIGNED_BYTES == rest][:MOST_PLACES]
    strides = range(LEAST_STRIDE_UNITS * unit, MOST_STRIDE_BYTES + 1, unit)
    return all(2 * len({place % stride for place in some}) > min(stride // unit, len(some)) for stride in strides)


BEYOND = {
    signatures.BEGINS_TEXT: Signature("text", "", CONTENT),
    signatures.ONLY_ZEROS: Signature("zeros", "", CONTENT),
    signatures.NUMBERS: Signature("numbers (double)", "", CONTENT),
    signatures.POINTERS: Signature("mostly pointers", "", CONTENT),
    signatures.STRING: Signature("string {block, length, capacity}", "", SHAPE),
    signatures.VECTOR: Signature("vector {begin, end, capacity}", "", SHAPE),
    signatures.TREE: Signature("node of a map or set", "", SHAPE),
    signatures.BUCKETS: Signature("table of an unordered map or set", "", SHAPE),
    signatures.CHAIN: Signature("node of an unordered map or set", "", SHAPE),
    signatures.LIST: Signature("node of a list", "", SHAPE),
    signatures.DEQUE: Signature("map of a deque", "", SHAPE),
    signatures.BUFFERS: Signature("buffer of a deque", "", SHAPE),
    signatures.HASHES: Signature("table of a HashMap or HashSet", "", SHAPE),
    signatures.VECS: Signature("Vec or String", "", SHAPE),
    signatures.BTREES: Signature("node of a BTreeMap or BTreeSet", "", SHAPE),
    signatures.COUNTED: Signature("Rc or Arc", "", SHAPE),
}
BUFFER = Signature("buffer or string {block, length, capacity}", "", SHAPE)
"""STRING where a runtime's buffers have such words, too."""
VEC_WORDS = {
    signatures.CAPACITY_POINTER_LENGTH: " {capacity, pointer, length}",
    signatures.POINTER_CAPACITY_LENGTH: " {pointer, capacity, length}",
}
"""Of VECS, by key."""
SAME = (Signature("the same content", "", CONTENT), Signature("the same text", "", CONTENT))
"""Of blocks with one content, if they are many of those in use."""
MEMBERS = signatures.MEMBERS, signatures.ROOTED_MEMBERS
SHARED = signatures.REFERRED, signatures.ROOTED, *MEMBERS
"""Kinds of labels of which there may be more places than labels: all others share one."""
MEMBER_OF_ARRAY = signatures.ELEMENT & signatures.MEMBER_SLOT
Fields = Mapping[Tuple[str, int], str]
"""See Recogniser.fields."""


class PreparedCensus(NamedTuple):
    """Rows and runtimes of one target, before its blocks are read, and facts by which blocks that meet no row get names."""

    asked: AskedRows
    signer: Signer
    inner: Sequence[Inner]
    fields: Fields
    containers: int
    """CPLUSPLUS, RUST."""
    objects: rust.RustObjects
    has_buffers: bool
    """See Recogniser.has_buffers."""
    speakers: Mapping[str, Speaker]
    """Runtimes that give paths."""
    owning: bool
    """The graph will be asked for owners, too."""


class PlaceNames:
    """The names of labels, by number from 1 on: rows gave the first ones theirs."""

    def __init__(
        self, rows: int, names: List[Optional[Signature]], roots: NodeNames, reach: heap_graph.Reach, prepared: PreparedCensus
    ) -> None:
        self.names = names
        self._rows, self._roots, self._reach, self._prepared = rows, roots, reach, prepared
        self._matches: Mapping[int, Signed] = {}

    def name_all(self, matches: Mapping[int, Signed]) -> None:
        """Append the names of the labels that have none yet. `matches`: of these, and of those that have one."""
        self._matches = matches
        for label in range(len(self.names) + 1, max(matches, default=0) + 1):
            self.names.append(self._make_name(self._find_label_kind(label), matches[label]))

    def _make_name(self, kind: int, match: Signed) -> Optional[Signature]:
        key, usual = match.key, BEYOND.get(kind)
        if key == signatures.OTHERS and kind in SHARED:
            return None
        if kind == signatures.REFERRED:
            return self._name_by_referrer(key >> 32, key & NO_SLOT)
        if kind == signatures.ROOTED:
            root = self._reach.regions.roots[key >> 32]
            if root.kind != heap_graph.DATA or root.module is None:  # variables have no names there: the owner of the memory
                return Signature(self._roots.of_root(root, NO_SLOT), "", PLACE)
            variable = self._roots.variable(root.module, root.start + (key & NO_SLOT) * self._reach.word_bytes)
            return Signature(variable.name if variable is not None else "data", root.module.shown_name, PLACE)
        if kind in MEMBERS:
            return self._name_member(match)
        if kind == signatures.COPIES:
            return SAME[key & 1]
        if kind in (signatures.DYNS, signatures.SHARED_DYNS):
            return self._prepared.objects.name(key, kind == signatures.SHARED_DYNS)
        if kind == signatures.STRING and self._prepared.has_buffers:
            return BUFFER
        return usual._replace(name=usual.name + VEC_WORDS[key]) if usual is not None and kind == signatures.VECS else usual

    def _find_label_kind(self, label: int) -> int:
        return self._matches[label].row - self._rows

    def _name_by_referrer(self, above: int, slot: int) -> Optional[Signature]:
        """Return a name by the only block that points there."""
        parent = self.names[above - 1]
        if parent is None:
            return None
        known = self._prepared.fields.get((parent.name, slot * self._reach.word_bytes))
        if known is not None:
            return Signature(known, parent.module, parent.sure)
        is_held = self._find_label_kind(above) == signatures.ROOTED
        if slot == signatures.ELEMENT:
            name = "%s %s" % ("in an array held by" if is_held else "element of", self._all_of(above))
        else:  # what a variable holds has no type, and the offset is not one in the variable
            way = self._way_below(above, slot)
            name = "%s of %s" % way if way is not None else "%s%s%s" % (parent.name, " -> " if is_held else "", self._format_offset(slot))
        return Signature(name, parent.module, PLACE)

    def _format_offset(self, slot: int) -> str:
        return "+0x%x" % (slot * self._reach.word_bytes)

    def _find_element_way(self, label: int) -> Optional[Tuple[str, str]]:
        """Return (`+0x38 -> +0x10`, `elements of the list g_queue`): the offsets from a container's elements down to a block."""
        key = self._matches[label].key
        is_below = self._find_label_kind(label) == signatures.REFERRED and key & NO_SLOT != signatures.ELEMENT
        return self._way_below(key >> 32, key & NO_SLOT) if is_below else None

    def _way_below(self, above: int, slot: int) -> Optional[Tuple[str, str]]:
        if self._is_member(above):
            return self._format_offset(slot), self._all_of(above)
        way = self._find_element_way(above)
        return None if way is None else ("%s -> %s" % (way[0], self._format_offset(slot)), way[1])

    def _is_member(self, label: int) -> bool:
        name = self.names[label - 1]
        return self._find_label_kind(label) in MEMBERS and name is not None and name.sure == PLACE

    def _all_of(self, label: int) -> str:
        name = self.names[label - 1]
        assert name is not None
        return name.name.replace("element", "elements", 1) if self._is_element(label) else name.name

    def _is_element(self, label: int) -> bool:
        key = self._matches[label].key
        is_of_array = self._find_label_kind(label) == signatures.REFERRED and key & NO_SLOT == signatures.ELEMENT
        return self._is_member(label) or (is_of_array and self._find_label_kind(key >> 32) != signatures.ROOTED)

    def _name_member(self, match: Signed) -> Signature:
        """Return `element of the list g_queue`: a name by the word that holds the container, or by the table that does."""
        above, slot, shape = match.key >> 32, match.key & signatures.MEMBER_SLOT, (match.key & NO_SLOT) >> signatures.MEMBER_SHAPE
        name, is_table = SHAPES.get(GRAPH_SHAPES[shape], GRAPH_SHAPES[shape]), slot == MEMBER_OF_ARRAY
        parent = self.names[above - 1] if match.row - self._rows == signatures.MEMBERS and above else None
        place, module = None, ""
        if match.row - self._rows == signatures.ROOTED_MEMBERS:
            place, module = self._describe_root_word(above, slot, GRAPH_SHAPES[shape] in (ARRAY, HASH_TABLE))
        elif parent is not None and self._find_label_kind(above) == signatures.ROOTED:
            place, module = self._describe_root_word(self._matches[above].key >> 32, self._matches[above].key & NO_SLOT)
            place += "" if is_table else " -> " + self._format_offset(slot)
        elif parent is not None and is_table:
            at = "of " if self._is_element(above) else "at " if self._find_element_way(above) is not None else ""
            place, module = at + self._all_of(above), parent.module
        elif parent is not None:
            below = self._name_by_referrer(above, slot)
            if below is not None and below.sure != PLACE:
                return below
            if below is not None:
                place, module = ("at " if self._way_below(above, slot) is not None else "") + below.name, below.module
        if place is None:
            return Signature("element of %s" % add_article(name), module, PLACE)
        return Signature("element of the %s %s" % (name, place), module, PLACE)

    def _describe_root_word(self, number: int, slot: int, is_whole: bool = False) -> Tuple[str, str]:
        """Return the name of a word of a root, or of the variable that it is in, and its module."""
        root = self._reach.regions.roots[number]
        if root.kind == heap_graph.DATA and root.module is not None:
            address = root.start + slot * self._reach.word_bytes
            variable = self._roots.variable(root.module, address) if is_whole else None  # any of a table's words may be the first in use
            address = variable.start if variable is not None else address
            return self._roots.at(root.module, address, is_short=True), root.module.shown_name
        return self._roots.of_root(root, NO_SLOT), root.module.shown_name if root.module is not None else ""


MOST_STEPS = 2
"""From a block whose name is known to one that is named by who points to it: more only walk along lists."""
CENSUS_BYTES = 48
"""Of each block, at the peak."""
TREE_NODE = Ask(SignatureRow([Condition(0, 4, AT_MOST, 1), Condition(8, 8, NOT_EQUAL, 0)], least_usable=40), lambda key: None, order=85)
"""Begins as a node of std::map or std::set does, with a colour and a parent: whether it is one its neighbours show."""
LEAST_SAME_PERCENT = 1
"""Of what is in use: so much with one content is a row of its own."""
PREPARED, TOLD = "prepared", "told"
"""What commands share while a snapshot is taken."""
Then = Callable[[Graph], None]
Watch = Callable[[Sequence[Inner], Sequence[Tuple[int, int]]], None]
"""Called with what runtimes have of their own, and (address, size) of the large blocks, while the process is still stopped."""
LARGE_BYTES = 64 << 10
"""Some pages of such a block may never have been touched."""
SIGNATURE, MODULE, SIZE = "signature", "module", "size"
UNNAMED_CLASS = re.compile(r"class \S+(\+0x[0-9a-f]+)")


class CensusRow(NamedTuple):
    """Blocks that are the same."""

    signature: Annotated[Optional[str], Column("type", TEXT, shown=IF_ANY)]
    """None: only their size is known."""
    module: Annotated[str, Column("module", TEXT)]
    sure: Annotated[str, Column("confidence", TEXT, shown=IF_ANY, goes=3)]
    """One of signature.SURE; empty where nothing is known."""
    size_bytes: Annotated[Optional[int], Column("size", BYTES, shown=IF_ANY, goes=1)]
    """Of each, where all have the same; text shows the average of the others."""
    blocks: Annotated[int, Column("blocks")]
    bytes: Annotated[int, Column("bytes", BYTES)]
    share_percent: Annotated[float, Column("%", "percent", goes=2)]
    sample: Annotated[Optional[TargetAddress], Column("example", TEXT, shown=IF_ANY, goes=4)]
    owner: Annotated[Optional[str], Column("owner", TEXT, shown=IF_ANY)] = None
    """Who owns them, where that is asked."""
    content_bytes: Annotated[Optional[int], hidden_column()] = None
    """Of `bytes` what lengths in the blocks, or next to the pointers to them, say is in use, heads and a text's zero included. Blocks whose
    length was not found, at most 1 % of a sort, count as full; None where it is more."""


class Managed(NamedTuple):
    """Memory that a runtime has cut up itself."""

    module: Annotated[str, Column("module", TEXT)]
    name: Annotated[str, Column("type", TEXT)]
    taken_bytes: Annotated[int, Column("taken", BYTES)]
    used_bytes: Annotated[int, Column("used", BYTES)]
    free_bytes: Annotated[int, Column("free", BYTES)]
    overhead_bytes: Annotated[int, Column("overhead", BYTES, goes=1)]


class Same(NamedTuple):
    """Blocks with the same content."""

    signature: Annotated[Optional[str], Column("content", TEXT)]
    """Of the first one."""
    size_bytes: Annotated[int, Column("size", BYTES)]
    blocks: Annotated[int, Column("blocks")]
    bytes: Annotated[int, Column("bytes", BYTES)]
    sample: Annotated[TargetAddress, Column("example", TEXT, goes=1)]


class Copies(NamedTuple):
    """Contents that several blocks have, of 64 bytes or more: four blocks, or 64 KiB of them."""

    contents: int
    """That differ."""
    blocks: int
    bytes: int
    spare_bytes: int
    """If each content were there once."""
    largest: Sequence[Same]
    """With LEAST_SAME_PERCENT of what is in use or more."""


class Census(NamedTuple):
    """The answer."""

    rows: Sequence[CensusRow]
    """Those with most bytes first."""
    blocks: int
    bytes: int
    """In use: malloc's blocks, and those that runtimes have made of memory of their own."""
    named_bytes: int
    """Of a known class, type, header or shape."""
    placed_bytes: int
    """Of which it is known who alone points to them."""
    managed: Sequence[Managed]
    may_be_stale: bool
    """A class or type may be that of an object that was freed, in memory that is in use again."""
    copies: Optional[Copies] = None
    """None where there was no room to look for them."""
    own_allocator: Optional[Slabs] = None
    """Large blocks that the program cuts up itself; None where none were found, or there was no room to look."""
    objects: Sequence[ManagedClass] = ()
    """Of heaps of runtimes with a collector by class, most bytes first; not in `bytes`."""


def make_paths(
    session: Session,
    reach: heap_graph.Reach,
    called: NodeNames,
    labels: "array[int]",
    names: Sequence[Optional[Signature]],
    speakers_: Mapping[str, Speaker],
    owning: Mapping[int, Optional[int]],
) -> Optional[BlockPaths]:
    """Return the paths of a graph's blocks, or None if nothing names any. `names`: by label, from 1 on; `owning`: by label, the words
    that own."""
    world = CensusTarget(session)
    containers = ContainerNamer(session, reach) if world.word_bytes == 8 and world.little_endian and cplusplus.has_cpp(world) else None
    if not speakers_ and containers is None:
        return None
    kinds = [LabelKind("", None)]
    for label, name in enumerate(names, 1):
        is_known = name is not None and name.module in speakers_
        kinds.append(LabelKind(name.module, name.name, owning.get(label)) if name is not None and is_known else LabelKind("", None))
    return BlockPaths(session, reach, called, labels, kinds, speakers_, containers)


class LabelSet(NamedTuple):
    """Every block in use with a label, and the graph of all."""

    reach: heap_graph.Reach
    labels: "array[int]"
    """By the block's id in the graph; 0: not known."""
    found: Mapping[int, Signed]
    """By label, of those that blocks have."""
    names: Sequence[Optional[Signature]]
    """By label, from 1 on."""
    called: NodeNames
    """Of the graph's nodes."""
    by_row: int
    """So many of the first labels come from what is in a block; those beyond from who points to it, or its size alone."""
    paths: "Optional[GraphPaths]" = None
    """What runtimes call their objects; None where none does."""

    def name_block(self, number: int) -> Optional[Signature]:
        """Return what a block is, by its id in the graph, or None."""
        return self.names[self.labels[number] - 1] if self.labels[number] else None


class CensusLook(NamedTuple):
    """A census, and the graph that it was made with."""

    census: Census
    outside: Dict[Optional[Signature], int]
    """Bytes of malloc's own blocks, by what they are."""
    told: Optional[LabelSet] = None
    """What each block is; None where there was no room for a graph."""
    signer: Optional[Signer] = None
    """Which read the blocks; None as before."""


CensusMatch = Tuple[Optional[Signature], Optional[int], Signed, int, Optional[int]]
"""(signature, size, blocks, a number that makes a row of its own, bytes of content or None)."""


def _make_census_rows(matches: Iterable[CensusMatch]) -> Tuple[List[CensusRow], int]:
    """Add blocks up to rows, and return them with the bytes of all."""
    sums: Dict[Tuple[Optional[str], str, str, Optional[int], int], List[int]] = {}
    contents: Dict[Tuple[Optional[str], str, str, Optional[int], int], Optional[int]] = {}
    for signature, size, match, apart, content in matches:
        key = (*(signature or (None, "", "")), size, apart)
        row = sums.setdefault(key, [0, 0, match.sample, match.least_bytes, match.most_bytes])
        row[0] += match.blocks
        row[1] += match.bytes
        if match.blocks:
            row[3:] = min(row[3], match.least_bytes), max(row[4], match.most_bytes)
            contents[key] = add_values([contents.get(key, 0), content])
    whole, rows = sum(row[1] for row in sums.values()), []
    for key, (blocks, total, sample, least, most) in sums.items():
        name, module, sure, size, _ = key
        each = least if size is None and name is not None and least == most else size
        if blocks:
            named = name, module, sure
            rows.append(make_census_row(named, each, blocks, total, whole, TargetAddress(sample), content_bytes=contents[key]))
    rows.sort(key=lambda row: (-row.bytes, -row.blocks, row.signature or "", row.size_bytes or 0))
    return rows, whole


def find_census(session: Session, contents: bool = True) -> Census:
    """Return the census of the memory in use. `contents`: compare the contents of blocks."""
    return take_census(session, contents=contents, owning=False).census


def listen_to_namers(recognisers: Iterable[Recogniser], world: CensusTarget) -> Dict[str, Speaker]:
    """Return the namers of recognisers by runtime; memory is read. Call their make_asks() first."""
    namers = {recogniser.module: recogniser.namer(world) for recogniser in recognisers}
    present = {module: namer for module, namer in namers.items() if namer is not None}
    return {module: Speaker(namer, list(namer.starts()), list(namer.owns_nothing())) for module, namer in present.items()}


def _prepare_census(session: Session, world: CensusTarget, owning: bool = True) -> PreparedCensus:
    shared: Optional[PreparedCensus] = session.shared(PREPARED)
    if shared is not None:
        return shared
    containers = (signatures.CPLUSPLUS if cplusplus.has_cpp(world) else 0) | (signatures.RUST if rust.has_rust(world) else 0)
    session.budget.progress.stage = "finding runtimes and classes"
    registry.report_missing(session)
    recognisers = registry.find_present(world)
    own = [TREE_NODE] if containers & signatures.CPLUSPLUS else []
    own += [rust.STRONG_ROW, rust.COUNTS_ROW] if containers & signatures.RUST else []
    asked = worlds.order_rows([*own, *(ask for recogniser in recognisers for ask in recogniser.asks(world))])
    inner = [made for recogniser in recognisers for made in recogniser.inner(world)]
    fields = {key: name for recogniser in recognisers for key, name in recogniser.fields(world).items()}
    session.budget.progress.stage = "reading all blocks"
    signer = world.signer(asked.rows, asked.sets)
    if session.store is not None:  # whichever command reads first, the census will ask for them
        signer.keep_contents()
    if containers & signatures.RUST:
        are_types = [ask.order < worlds.SHAPES_FROM and ask not in own for ask in asked.asks]
        signer.look_for_rust(rust.find_rust_constants(world), are_types)
    objects, has_buffers = world.once(rust.RustObjects), any(recogniser.has_buffers for recogniser in recognisers)
    speakers_ = listen_to_namers(recognisers, world) if owning else {}
    made = PreparedCensus(asked, signer, inner, fields, containers, objects, has_buffers, speakers_, owning)
    return session.share(PREPARED, made)


def take_census(
    session: Session,
    seen: Optional[CensusTarget] = None,
    watch: Optional[Watch] = None,
    contents: bool = True,
    owning: bool = True,
    beyond: bool = False,
) -> CensusLook:
    """Take a census, with the graph for commands that ask it as well. `seen`: a world that exists already; `owning`: the graph will be
    asked for owners; `beyond`: contents will be compared."""
    world = seen if seen is not None else CensusTarget.of(session)
    made = _prepare_census(session, world, owning or session.store is not None)
    asked, signer, inner = made.asked, made.signer, made.inner
    matches: List[CensusMatch] = []
    managed, copies = [], None
    for memory in inner:
        taken, free, overhead = sum(end - start for start, end in memory.taken), memory.free_bytes, memory.overhead_bytes
        managed.append(Managed(memory.module, memory.name, taken, taken - free - overhead, free, overhead))
    lacking = heap_graph.check_fit(session, CENSUS_BYTES)
    told: Optional[LabelSet] = None
    own: List[SlabGroup] = []
    if lacking is None:
        if contents or beyond:
            signer.keep_contents(beyond)
        told, outside, own, copies = _by_graph(session, made, matches, watch, world)
    else:
        heap_graph.check_least(session, heap_graph.SIGNED_BYTES)
        gone = sorted(address for memory in inner for address in memory.instead)
        for heap in session.heaps.all():
            signer.stream(heap_graph.exclude_blocks(heap.blocks(), gone))
        for cut in (memory for memory in inner if memory.instead):
            signer.stream(cut.blocks)
        first = [match.bytes for match in signer.found()]
        for cut in (memory for memory in inner if not memory.instead):
            signer.stream(cut.blocks)
        if watch is not None:
            watch(inner, ())
        text = "references between blocks were left out: they take about %s, and this process may use %s"
        what = make_sentence(text, *map(SentenceSize, lacking))
        session.problem(problems.GRAPH_TOO_LARGE, None, what, "run it where there is more memory")
        signed = signer.found()
        asked.settle(signed)
        names = [name_match(asked, match) for match in signed]
        matches += [(name, None, match, 0, None) for name, match in zip(names, signed)]
        matches.append((None, None, signer.rest(), 0, None))
        outside = {}
        for name, size in zip(names, first):
            outside[name] = outside.get(name, 0) + size
        session.share(PREPARED, None)  # a label of each block, for which there is no room
    heap_graph.check_time(session)
    rows, whole = _make_census_rows(matches)
    census = Census(
        rows=rows,
        blocks=sum(row.blocks for row in rows),
        bytes=whole,
        named_bytes=sum(row.bytes for row in rows if row.sure in (EXACT, SHAPE)),
        placed_bytes=sum(row.bytes for row in rows if row.sure == PLACE),
        managed=managed,
        may_be_stale=any(heap.shape.keeps_freed_content for heap in session.heaps.all()),
        copies=copies,
        own_allocator=find_slabs(world, own, whole),
        objects=[row for memory in inner if memory.managed is not None for row in memory.managed.classes],
    )
    return CensusLook(census, outside, told, None if told is None else signer)


def name_match(asked: AskedRows, match: Signed) -> Optional[Signature]:
    """Return the signature of blocks that met a row."""
    beyond = match.row - len(asked.rows)
    return asked.signature(match) if beyond < 0 else BEYOND.get(beyond)


def _by_graph(
    session: Session, made: PreparedCensus, matches: List[CensusMatch], watch: Optional[Watch], world: CensusTarget
) -> Tuple[LabelSet, Dict[Optional[Signature], int], List[SlabGroup], Copies]:
    own: List[SlabGroup] = []

    def read_large_blocks(graph: Graph) -> None:
        own.extend(read_slabs(world, graph.large(LEAST_BYTES)))
        if watch is not None:
            watch(made.inner, graph.large(LARGE_BYTES))

    labels = _share_labels(session, made, read_large_blocks)
    contents = _sum_content_bytes(session, world, labels, made.signer)
    pieces = unite_ranges(part for memory in made.inner if not memory.instead for part in memory.taken)
    within = made.signer.within(labels.reach.graph, pieces)
    outside: Dict[Optional[Signature], int] = {}
    for label, match in labels.found.items():
        name = labels.names[label - 1]
        if name in SAME:
            matches.append((name, match.most_bytes, match, label, None))
        else:
            is_by_size = name is None and label > labels.by_row and match.least_bytes == match.most_bytes
            size = match.least_bytes if is_by_size else None
            matches.append((name, size, match, 0, contents.get(label)))
        outside[name] = outside.get(name, 0) + match.bytes - within[label - 1]
    copied, largest = made.signer.copied(), []
    for (first, blocks), (address, size) in zip(copied.same, labels.reach.graph.blocks([first for first, _ in copied.same])):
        name = labels.name_block(first)
        largest.append(Same(name.name if name is not None else None, size, blocks, blocks * size, TargetAddress(address)))
    largest.sort(key=lambda same: -same.bytes)
    return labels, outside, own, Copies(copied.contents, copied.blocks, copied.bytes, copied.spare_bytes, largest)


def _sum_content_bytes(session: Session, world: CensusTarget, labels: LabelSet, signer: Signer) -> Dict[int, int]:
    reach = labels.reach
    if not session.target.can_read_on or session.budget.expired():
        return {}
    by_name: Dict[Tuple[str, str], List[int]] = {}
    for label in labels.found:
        name = labels.names[label - 1]
        if name is not None:
            by_name.setdefault((name.module, name.name), []).append(label)
    rules = [
        FillRule(label, one.pointer, one.at, one.length_bytes, one.unit_bytes, one.head_bytes, *one.test)
        for recogniser in registry.find_present(world)
        for one in recogniser.lengths(world)
        for label in by_name.get((recogniser.module, one.name), ())
    ]
    bases = [node.start for node in reach.regions.nodes] + [root.start for root in reach.regions.roots]
    session.budget.progress.stage = "reading contents"
    return measure_fill(signer, reach.graph, rules, bases, any(heap.shape.in_size_classes for heap in session.heaps.all()))


def _share_labels(session: Session, made: PreparedCensus, then: Then) -> LabelSet:
    shared: Optional[LabelSet] = session.shared(TOLD)
    if shared is not None:
        then(shared.reach.graph)
        return shared
    asked, signer, owning, containers = made.asked, made.signer, made.owning, made.containers
    read = heap_graph.read_world(session, True, names=True, signer=signer, further=registry.combine_memory(made.inner), owning=owning)
    known, frequent = signer.label_count(), signer.frequent([ask.least_blocks for ask in asked.asks])
    signed = signer.found(frequent)
    asked.settle(signed)
    names: List[Optional[Signature]] = [None] * known
    for label, match in zip(frequent, signed):
        names[label - 1] = name_match(asked, match)
    then(read.graph)
    reach = heap_graph.resolve_graph(session, read)
    roots = NodeNames(session.target, reach)
    words = {label: asked.owning_words(match) for label, match in zip(frequent, signed)} if owning and made.speakers else {}
    called = make_paths(session, reach, roots, signer.labels(), names, made.speakers, words) if owning else None
    session.budget.progress.stage = "naming blocks"
    worth = [signatures.UNKNOWN if name is None else signatures.BY_CONTENT if name.sure == CONTENT else signatures.KNOWN for name in names]
    if containers & signatures.RUST:
        rows = {asked.asks.index(rust.STRONG_ROW): signatures.STRONG, asked.asks.index(rust.COUNTS_ROW): signatures.COUNTS}
        for label, match in zip(frequent, signed):
            is_head = match.row < len(asked.asks) and asked.asks[match.row].order == rust.HEADS_ORDER
            is_begin = is_head and worth[label - 1] == signatures.KNOWN
            worth[label - 1] = signatures.BY_BEGIN if is_begin else rows.get(match.row, worth[label - 1])
    trees = asked.asks.index(TREE_NODE) if containers & signatures.CPLUSPLUS else None
    tree = next((label for label, match in zip(frequent, signed) if match.row == trees), 0)
    has_classes = any(heap.shape.in_size_classes for heap in session.heaps.all())
    least_same = (sum(match.bytes for match in signer.found()) + signer.rest().bytes) * LEAST_SAME_PERCENT // 100
    made.objects.keep_vtables(signer.vtables())
    asking = Referring(MOST_STEPS, reach.roots_from, has_classes, tree, containers, made.objects.layouts, least_same)
    linked = heap_graph.find_containers(reach) if heap_graph.check_fit(session, heap_graph.OWNERS_BYTES) is None else None
    signer.refer(reach.graph, worth, asking, linked)
    del linked
    labels = [label for label in frequent if names[label - 1] is not None]
    labels += range(known + 1, signer.label_count() + 1)
    by_label = dict(zip(labels, signer.found(labels)))
    PlaceNames(len(asked.rows), names, roots, reach, made).name_all(by_label)
    session.share(heap_graph.REACH, reach)
    return session.share(TOLD, LabelSet(reach, signer.labels(), by_label, names, roots, known, called))


def label_blocks(session: Session, then: Then, is_cut: bool = False, contents: bool = False) -> LabelSet:
    """Label each block in use, and return the graph of all.

    `then`: called once all is read, before the process runs on. `is_cut`: pieces that a library cut take the place of malloc's blocks, as
    in a census. `contents`: compare contents.
    """
    kept: Optional[LabelSet] = None if session.target.has_memory else session.shared(TOLD)
    if kept is not None:
        return kept
    made = _prepare_census(session, CensusTarget.of(session))
    if contents:
        made.signer.keep_contents()
    return _share_labels(session, made if is_cut else made._replace(inner=[memory for memory in made.inner if not memory.instead]), then)


def label_by_rows(session: Session, streams: Iterable[Iterator[NativeBlocks]]) -> Tuple["array[int]", Sequence[Optional[Signature]]]:
    """Return (labels, names) of blocks by their own words alone, in their order, in one pass. A label is the place of its name + 1; 0 if
    the block is not known.
    """
    world = CensusTarget.of(session)
    asked = worlds.order_rows(ask for recogniser in registry.find_present(world) for ask in recogniser.asks(world))
    signer = world.signer(asked.rows, asked.sets)
    for stream in streams:
        signer.stream(stream)
    frequent = signer.frequent([ask.least_blocks for ask in asked.asks])
    matches = signer.found(frequent)
    asked.settle(matches)
    names: List[Optional[Signature]] = [None] * signer.label_count()
    for label, match in zip(frequent, matches):
        names[label - 1] = name_match(asked, match)
    return signer.labels(), names


def chosen_rows(session: Session, census: Census, by: str, like: Optional[str]) -> List[CensusRow]:
    """Return the rows. `like`: a part of their names, case-insensitive."""
    if by == SIZE:
        return session.kept("census by size", List[CensusRow], lambda: _by_size(session))
    chosen = [row for row in census.rows if has_in_name(row.signature, like)]
    if by != MODULE:
        return chosen
    sums: Dict[str, Tuple[int, int, Optional[TargetAddress]]] = {}
    for row in chosen:
        blocks, total, first = sums.get(row.module, (0, 0, row.sample))
        sums[row.module] = (blocks + row.blocks, total + row.bytes, first)
    rows = [make_census_row((None, module, ""), None, *of_module[:2], census.bytes, of_module[2]) for module, of_module in sums.items()]
    return sorted(rows, key=lambda row: -row.bytes)


def has_in_name(signature: Optional[str], like: Optional[str]) -> bool:
    """Return True if a signature has a text in its name, in small or large letters. A class without a name is also found by its name in
    text (`class gwsvc+0x6c98`).
    """
    if like is None or like.lower() in (signature or "not named").lower():
        return True
    shown = UNNAMED_CLASS.fullmatch(like)
    return bool(shown and signature and re.fullmatch(r"CLASS@[0-9a-f]+" + re.escape(shown[1]), signature))


def merge_rows(rows: Iterable[CensusRow]) -> List[CensusRow]:
    """Merge rows of one name, size and confidence, the largest first."""
    sums: Dict[Tuple[Optional[str], str, str, Optional[int]], CensusRow] = {}
    for row in rows:
        key = (row.signature, row.module, row.sure, row.size_bytes)
        before = sums.get(key)
        if before is not None:
            blocks, total = row.blocks + before.blocks, row.bytes + before.bytes
            share = round(row.share_percent + before.share_percent, 1)
            content = add_values([row.content_bytes, before.content_bytes])
            row = row._replace(blocks=blocks, bytes=total, share_percent=share, content_bytes=content)
        sums[key] = row
    return sorted(sums.values(), key=lambda row: -row.bytes)


def make_census_row(
    name: Optional[Tuple[Optional[str], str, str]],
    size_bytes: Optional[int],
    blocks: int,
    total: int,
    whole: int,
    sample: Optional[TargetAddress] = None,
    owner: Optional[str] = None,
    content_bytes: Optional[int] = None,
) -> CensusRow:
    """Return the row of blocks with a signature, if they have one, that take `total` of `whole` bytes."""
    share = round(100.0 * total / whole, 1) if whole else 0.0
    return CensusRow(*(name or (None, "", "")), size_bytes, blocks, total, share, sample, owner, content_bytes)


def _by_size(session: Session) -> List[CensusRow]:
    classes = [row for heap in session.heaps.all() for row in heap.histogram()]
    whole = sum(row.used_bytes for row in classes)
    rows = [make_census_row(None, row.max_size_bytes, row.used_chunks, row.used_bytes, whole) for row in classes if row.used_chunks]
    return sorted(rows, key=lambda row: -row.bytes)
