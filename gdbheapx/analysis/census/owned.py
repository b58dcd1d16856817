"""Every block in use by its owner: as rows of a census, and as stacks of owners for viewers."""

from array import array
from bisect import bisect_right
from itertools import accumulate
from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.analysis import pins
from gdbheapx.analysis.census import find
from gdbheapx.analysis.census.find import Census, CensusRow
from gdbheapx.analysis.census.world import EXACT, PLACE, SHAPE
from gdbheapx.analysis.reachability import dominance, heap_graph
from gdbheapx.analysis.reachability.dominance import MOST_CONTAINERS, ContainerRow
from gdbheapx.analysis.reachability.owners import OwnedMemory
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.blocks.graph import LEAKED, NO_NODE, Graph
from gdbheapx.kernel.blocks.graph_queries import OwnerStacks, encode_begin, owner_stacks
from gdbheapx.kernel.blocks.pages import PinLabels
from gdbheapx.kernel.common.copy import KIND_RESIDENT, KIND_SWAPPED, KIND_UNSURE
from gdbheapx.kernel.common.in_ram import Ram

NO_OWNER, CLASS = "[several owners, small ones, or leaked]", "class"
AT_ONCE = 1 << 16
Then = Callable[[Graph], None]
SMALL, SEVERAL = "[small owners]", "[held by several owners]"
"""Of single blocks, what NO_OWNER is, apart from what is leaked."""


class OwnerRows(NamedTuple):
    """Rows of a census for each owner."""

    owners: List[OwnedMemory]
    """Those that retain most first."""
    rows: Dict[int, List[CensusRow]]
    """By place in `owners`, -1 for all others: what each owns, the largest first."""


class OwnedBlocks(NamedTuple):
    """Every block in use with its owner."""

    told: find.LabelSet
    owners: "array[int]"
    """array('I') by the block's id: a place in `names`."""
    names: Sequence[Optional[str]]
    """None: leaked."""
    containers: "Optional[array[int]]"
    """array('I') by the block's id: 1 + the number of the container whose element it is, 0 of none; None: there are no containers."""


def _read_owners(
    session: Session, is_cut: bool, then: Then = lambda graph: None
) -> "Tuple[find.LabelSet, dominance.OwnerTally, List[Tuple[int, str]]]":
    """Read the blocks, their graph, and the owners that retain most. HeapxError if there is no room for the graph."""
    heap_graph.check_owners_fit(session)
    told = find.label_blocks(session, then, is_cut=is_cut, contents=True)
    tallied = dominance.tally_owners(session, told.reach, told.called, told.paths)
    return told, tallied, tallied.tops(dominance.MOST_OWNERS)


def find_owned_blocks(session: Session, is_cut: bool, then: Then = lambda graph: None) -> OwnedBlocks:
    """Return every block with its owner and class. `is_cut`: pieces that a library cut, not the blocks they are in; `then`: called before
    the process runs on."""
    told, tallied, tops = _read_owners(session, is_cut, then)
    count, above = told.reach.numbers.blocks, tallied.tree.owners
    known = {node for node, _ in tops}
    starts = [] if tallied.paths is None else tallied.paths.starts()
    small = [node for node in (*starts, *range(count, len(above))) if above[node] == NO_NODE and node not in known]
    under = tallied.graph.under(tallied.tree, [*(node for node, _ in tops), *small])
    names = [SEVERAL, *(tallied.name(node) for node, _ in tops), SMALL, None]
    last = len(tops) + 1
    places = array("I", [min(place, last) for place in under[:count]])
    for first in range(0, count, AT_ONCE):  # few of them at once: there may be millions
        for node, _ in tallied.graph.with_evidence((LEAKED,), first, min(first + AT_ONCE, count)):
            places[node] = last + 1
    return OwnedBlocks(told, places, names, tallied.tree.members)


def find_kept_containers(session: Session) -> List[ContainerRow]:
    """Return the containers that keep most."""
    _, tallied, _ = _read_owners(session, True)
    return tallied.contained.rows(MOST_CONTAINERS)


def find_owner_rows(session: Session) -> OwnerRows:
    """Return a census for each owner; HeapxError if there is no room for the graph."""
    told, tallied, tops = _read_owners(session, True)
    under = tallied.graph.under(tallied.tree, [node for node, _ in tops])
    called = [tallied.owned(node, kind) for node, kind in tops]
    rows: Dict[int, List[CensusRow]] = {}
    for found in tallied.graph.classes(under, len(tops), told.labels, len(told.names) + 1):
        name, signed = told.names[found.label - 1] if found.label else None, told.found.get(found.label)
        is_one_size = signed is not None and name is None and signed.least_bytes == signed.most_bytes
        size = signed.least_bytes if signed is not None and is_one_size else None
        owner = called[found.top].owner if found.top >= 0 else NO_OWNER
        row = find.make_census_row(name, size, found.blocks, found.bytes, tallied.used.bytes, owner=owner)
        rows.setdefault(found.top, []).append(row)
    for some in rows.values():
        some.sort(key=lambda row: -row.bytes)
    return OwnerRows(called, rows)


def by_owner(session: Session) -> Census:
    """Return the census with a row for each owner and class, the largest first."""
    every = [row for some in find_owner_rows(session).rows.values() for row in find.merge_rows(some)]
    every.sort(key=lambda row: -row.bytes)
    named, placed = (sum(row.bytes for row in every if row.sure in sure) for sure in ((EXACT, SHAPE), (PLACE,)))
    if session.target.has_memory:
        may_be_stale = any(heap.shape.keeps_freed_content for heap in session.heaps.all())
    else:  # a snapshot has it of its census
        may_be_stale = session.kept("census", Census, lambda: find.find_census(session)).may_be_stale
    return Census(every, sum(row.blocks for row in every), sum(row.bytes for row in every), named, placed, (), may_be_stale)


def by_class(session: Session, limit: int) -> List[OwnedMemory]:
    """Return owners, and as their children the memory of each by class."""
    found = find_owner_rows(session)
    answer = []
    for place, owner in enumerate(found.owners[:limit]):
        children = []
        for row in find.merge_rows(found.rows.get(place, []))[:limit]:
            size, share = "blocks of %d bytes" % row.size_bytes if row.size_bytes is not None else "not named", row.share_percent
            name, module = row.signature or size, row.module or None
            children.append(OwnedMemory(name, CLASS, None, row.bytes, share, row.blocks, None, None, signature=module))
        answer.append(owner._replace(children=children))
    return answer


class PageStates:
    """Looked up block by block; of a mapping in which no block lies nothing is asked."""

    def __init__(
        self,
        mappings: Sequence[Tuple[int, int]],
        page_bytes: int,
        kinds: Callable[[int, int], Optional[bytes]],
        resident: Callable[[int, int], Optional[int]],
    ) -> None:
        """Take `kinds`: for a mapping a byte for each page, None if they are not known; `resident`: the bytes of it in RSS."""
        self._page, self._mappings, self._kinds, self._resident = page_bytes, sorted(mappings), kinds, resident
        self._starts = [start for start, _ in self._mappings]
        self._sums: Dict[int, List[array[int]]] = {}
        """By number of a mapping, running sums over its pages: resident, swapped; none where these are not known."""
        self.is_whole = True
        """All blocks that were asked for lie where everything is known."""

    def told(self, start: int, end: int) -> Optional[bytes]:
        """Return KIND_RESIDENT, KIND_SWAPPED or 0 for each page of a mapping.

        A page that is unsure is the zero page, or shared with a forked process: RSS decides; None if both occur.
        """
        kinds, bits = self._kinds(start, end), KIND_RESIDENT | KIND_UNSURE
        if kinds is None or len(kinds) != (end - start) // self._page:
            return None
        if any(kinds.translate(_make_flags(KIND_UNSURE))):
            known = self._resident(start, end)
            fitting = [some for some in (KIND_RESIDENT, bits) if self._page * sum(kinds.translate(_make_flags(some))) == known]
            if not fitting:
                return None
            bits = fitting[0]
        return kinds.translate(bytes(KIND_RESIDENT if kind & bits else kind & KIND_SWAPPED for kind in range(256)))

    def of(self, address: int, size_bytes: int) -> Tuple[int, int]:
        """Return (bytes in RAM, bytes in swap) of a block."""
        number = bisect_right(self._starts, address) - 1
        sums: List[array[int]] = []
        if number >= 0 and address + size_bytes <= self._mappings[number][1]:
            if number not in self._sums:
                told = self.told(*self._mappings[number])
                flags = [told.translate(_make_flags(some)) for some in (KIND_RESIDENT, KIND_SWAPPED)] if told is not None else []
                self._sums[number] = [array("I", accumulate(some, initial=0)) for some in flags]
            sums = self._sums[number]
        if not sums:
            self.is_whole = False
            return 0, 0
        begin = address - self._starts[number]
        return self._sum_bytes(sums[0], begin, begin + size_bytes), self._sum_bytes(sums[1], begin, begin + size_bytes)

    def _sum_bytes(self, sums: Sequence[int], begin: int, end: int) -> int:
        if end <= begin:
            return 0
        first, last = begin // self._page, (end - 1) // self._page
        before = (begin - first * self._page) * (sums[first + 1] - sums[first])
        behind = ((last + 1) * self._page - end) * (sums[last + 1] - sums[last])
        return self._page * (sums[last + 1] - sums[first]) - before - behind


def _make_flags(bits: int) -> bytes:
    return bytes(bool(kind & bits) for kind in range(256))


def read_page_states(session: Session) -> Optional[PageStates]:
    """Return the page states of a live process that is stopped or was copied; None for anything else."""
    table, use = session.target.page_table(), session.target.memory_use()
    if table is None or use is None:
        return None
    copy, kernel, ram = table.copy, session.kernel, Ram(session.target, session.kernel)

    def read_kinds(start: int, end: int) -> Optional[bytes]:
        return copy.kinds(start, end) if copy is not None else kernel.page_kinds(table, start, end)

    def count_resident(start: int, end: int) -> Optional[int]:
        found = ram.of([(start, end)], with_exclusive=False)
        return found.resident_bytes if found is not None else None

    apart = table.outside_rss
    mappings = [(one.mapping.start, one.mapping.end) for one in use.mappings]
    return PageStates([one for one in mappings if one not in apart], session.target.page_bytes, read_kinds, count_resident)


NOT_NAMED, NO_MODULE = "[not named]", "[no module]"
MOST_FRAMES = 40
"""What lies deeper counts for the last frame."""
LEAST_SHARE = 10_000
"""A frame with less than this part of the whole is put together with its small neighbours."""
FLAME_FRAMES, FLAME_LEVELS, FLAME_SHARE = 400, 16, 500
"""Of a flame graph: so many frames at most, so many levels, and none with less than this part of the whole: two units of 1,000."""
NO_PATH = NO_NODE


class OwnerFrame(NamedTuple):
    """Frame of a flame graph: a function, or one step from owner to block."""

    name: str
    """Empty for code: a viewer finds its name by the address."""
    module: str = ""
    address: Optional[int] = None
    """Of code: inside the call."""


class OwnerStack(NamedTuple):
    """Blocks and bytes with the same frames."""

    frames: Tuple[OwnerFrame, ...]
    """Outermost first."""
    blocks: int
    bytes: int
    resident_bytes: Optional[int] = None
    """Of the bytes those in RAM; None where that is not known of all stacks, or was not asked."""
    swapped_bytes: Optional[int] = None
    kept_bytes: Optional[int] = None
    """Free memory next to the blocks, on their pages or in their slabs, which they keep from being returned; None as before."""


class FlameFrame(NamedTuple):
    """Frame with all frames above it."""

    owner: str
    module: str
    bytes: int
    blocks: int
    others: int
    """So many small frames are put together in this one; 0: it is one itself."""
    frames: Sequence["FlameFrame"] = ()
    """What is on it, the largest first; together no more than it."""


class CodeImage(NamedTuple):
    """A mapped part of a file that has code."""

    name: str
    start: int
    end: int
    offset: int
    build_id: Optional[str]


def list_census_stacks(census: Census) -> List[OwnerStack]:
    """Return stacks of module, signature, and the size if all blocks of a row have the same. Their sum is the memory in use."""
    stacks = []
    for row in census.rows:
        frames = [OwnerFrame(row.module or NO_MODULE, row.module), OwnerFrame(row.signature or NOT_NAMED, row.module)]
        frames += [OwnerFrame("%d bytes each" % row.size_bytes, row.module)] if row.size_bytes is not None else []
        stacks.append(OwnerStack(tuple(frames), row.blocks, row.bytes))
    return stacks


def of_calls(calls: Iterable[Tuple[Sequence[int], int, int]]) -> List[OwnerStack]:
    """Return stacks of (return addresses, innermost first; blocks; bytes). An address is put into the call that it returns from."""
    stacks = []
    for addresses, blocks, size in calls:
        frames = tuple(OwnerFrame("", "", address - 1) for address in reversed(addresses) if address)
        stacks.append(OwnerStack(frames, blocks, size))
    return stacks


def list_images(target: Target) -> List[CodeImage]:
    """Return the mapped files with code, the program's own first."""
    modules = {module.name: module for module in target.modules()}
    programs = {name for name, module in modules.items() if module.is_executable}
    ids = {name: module.build_id for name, module in modules.items()}
    mapped = (mapping for mapping in target.code_mappings() if mapping.name)
    files = [CodeImage(mapping.name, mapping.start, mapping.end, mapping.offset, ids.get(mapping.name)) for mapping in mapped]
    return sorted(files, key=lambda image: image.name not in programs)


LEAKED_FRAME, SHARED_FRAME, SMALL_FRAME = OwnerFrame("[leaked]"), OwnerFrame("[held by several owners]"), OwnerFrame("[smaller]")
KEEPS: Mapping[Optional[str], OwnerFrame] = {
    pins.USED: OwnerFrame(NOT_NAMED),
    pins.CACHED: OwnerFrame("[in caches]"),
    pins.OWN: OwnerFrame("[the allocator's own]"),
    None: OwnerFrame("[nothing in use]"),
}
"""What keeps free memory and is no block that has a stack."""
WORDS = (NOT_NAMED, LEAKED_FRAME.name, SHARED_FRAME.name)
"""What is in place of a program's names."""


class OwnerPaths:
    """Stacks as they come together: each is a frame below another stack."""

    def __init__(self, frames: Sequence[OwnerFrame] = (), made: Optional[OwnerStacks] = None) -> None:
        """Take `made`: the paths that exist already; `frames`: by their numbers in it."""
        self.above: List[int] = list(made.above) if made is not None else []
        self.frames: List[OwnerFrame] = [frames[number] for number in made.frames] if made is not None else []
        self.depth: List[int] = []
        for above in self.above:
            self.depth.append(1 if above == NO_PATH else self.depth[above] + 1)
        self.blocks: List[int] = list(made.blocks) if made is not None else []
        self.bytes: List[int] = list(made.bytes) if made is not None else []
        self.more: Dict[str, List[int]] = {}
        """By field of a Stack, the figures of each that are known."""
        self._known = {pair: path for path, pair in enumerate(zip(self.above, self.frames))}

    def below(self, above: int, frame: OwnerFrame) -> int:
        """Return the stack with one more frame. Equal frames in a row are one: nodes of a list may own each other."""
        if above != NO_PATH and (self.frames[above] == frame or self.depth[above] >= MOST_FRAMES):
            return above
        path = self._known.get((above, frame))
        if path is None:
            path = self._known[above, frame] = len(self.above)
            self.above.append(above)
            self.frames.append(frame)
            self.depth.append(1 if above == NO_PATH else self.depth[above] + 1)
            self.blocks.append(0)
            self.bytes.append(0)
        return path

    def _with_all(self, figures: Sequence[int]) -> List[int]:
        sums = list(figures)
        for path in range(len(sums) - 1, -1, -1):  # a stack is made after the one above it
            if self.above[path] != NO_PATH:
                sums[self.above[path]] += sums[path]
        return sums

    def flame(self) -> List[FlameFrame]:
        """Return the largest paths as a tree; small neighbours are one frame."""
        sizes, blocks = self._with_all(self.bytes), self._with_all(self.blocks)
        following = sorted((size for size, depth in zip(sizes, self.depth) if depth <= FLAME_LEVELS), reverse=True)[FLAME_FRAMES:]
        least = max(sum(self.bytes) // FLAME_SHARE, *following[:1], 0) + 1
        below: Dict[int, List[int]] = {}
        for path, above in enumerate(self.above):
            below.setdefault(above, []).append(path)

        def list_frames_below(above: int, level: int) -> List[FlameFrame]:
            found: List[FlameFrame] = []
            small_bytes, small_blocks, others = 0, 0, 0
            for path in below.get(above, ()) if level < FLAME_LEVELS else ():
                if sizes[path] >= least:
                    frame = self.frames[path]
                    found.append(FlameFrame(frame.name, frame.module, sizes[path], blocks[path], 0, list_frames_below(path, level + 1)))
                elif sizes[path]:
                    small_bytes, small_blocks, others = small_bytes + sizes[path], small_blocks + blocks[path], others + 1
            if others:
                found.append(FlameFrame("", "", small_bytes, small_blocks, others))
            return sorted(found, key=lambda frame: (bool(frame.others), -frame.bytes))

        return list_frames_below(NO_PATH, 0)

    def stacks(self) -> List[OwnerStack]:
        """Return all paths as stacks, small ones put together; no byte is lost."""
        retained = self._with_all(self.bytes)
        least = sum(self.bytes) // LEAST_SHARE
        frames: List[Tuple[OwnerFrame, ...]] = []
        sums: Dict[Tuple[OwnerFrame, ...], List[int]] = {}
        for path, above in enumerate(self.above):
            over = () if above == NO_PATH else frames[above]
            last = SMALL_FRAME if retained[path] < least else self.frames[path]
            frames.append(over if over and over[-1] is SMALL_FRAME else (*over, last))
            row = sums.setdefault(frames[path], [0] * (2 + len(self.more)))
            for place, figures in enumerate((self.blocks, self.bytes, *self.more.values())):
                row[place] += figures[path]
        return [OwnerStack(stack, *row[:2], **dict(zip(self.more, row[2:]))) for stack, row in sums.items() if any(row)]


def find_paths(session: Session, by_page: bool = False) -> OwnerPaths:
    """Return the paths from owners to the blocks of a census, before they are put together; HeapxError if there is no room for the graph.
    `by_page`: with bytes in RAM, in swap, and free memory that they keep.
    """
    heap_graph.check_owners_fit(session)
    session.without_keys = True  # frames are names; keys are data
    heaps: List[pins.PinsReading] = []
    known: List[Optional[PageStates]] = []

    def read_pages_and_pins(graph: Graph) -> None:
        if by_page:
            known.append(read_page_states(session))
            heaps.extend(pins.read_heaps(session) if heap_graph.check_fit(session, pins.PINS_BYTES) is None else ())

    told = find.label_blocks(session, read_pages_and_pins, is_cut=True, contents=True)
    tallied = dominance.tally_owners(session, told.reach, told.called, told.paths)
    return paths_of(session, told, tallied, known[0] if known else None, heaps)


def paths_of(
    session: Session,
    told: find.LabelSet,
    tallied: dominance.OwnerTally,
    pages: Optional[PageStates] = None,
    heaps: Sequence[pins.PinsReading] = (),
) -> OwnerPaths:
    """Return paths of labels and owners that were found already; a block that a runtime names is a frame by that name."""
    graph, blocks = tallied.graph, told.reach.numbers.blocks
    heap_graph.check_time(session)
    frames: Dict[OwnerFrame, int] = {}

    def number_frame(frame: OwnerFrame) -> int:
        return frames.setdefault(frame, len(frames))

    tree, begins = tallied.tree, array("I", bytes(4 * blocks))
    for node in told.paths.starts() if told.paths is not None else ():
        if node < blocks and tree.owners[node] == NO_NODE:
            begins[node] = encode_begin(number_frame(OwnerFrame(tallied.name(node))), False)
    for node, _ in tallied.tops(dominance.MOST_OWNERS) if tallied.has_starts else ():
        called = tallied.path(node)
        if node < blocks and called is not None:
            begins[node] = encode_begin(number_frame(OwnerFrame(called.text)), True)
    names = [OwnerFrame(NOT_NAMED), *(OwnerFrame(NOT_NAMED) if name is None else OwnerFrame(name.name, name.module) for name in told.names)]
    others = [number_frame(OwnerFrame(tallied.name(node))) if tree.retained_blocks[node] else 0 for node in range(blocks, graph.nodes)]
    others += [number_frame(OwnerFrame(tallied.contained.step(one))) for one in tree.containers]
    ends = number_frame(LEAKED_FRAME), number_frame(SHARED_FRAME), MOST_FRAMES
    by_label = [number_frame(name) for name in names]
    made = owner_stacks(session.kernel.library, graph, tree, told.labels, by_label, array("I", others), begins, *ends)
    paths, at = OwnerPaths(list(frames), made), made.of_node
    heap_graph.check_time(session)
    if pages is not None:
        resident, swapped = [0] * len(paths.frames), [0] * len(paths.frames)
        addresses, sizes = graph.columns(array("I", range(blocks)))
        for node, path in enumerate(at[:blocks]):
            in_ram, in_swap = pages.of(addresses[node], sizes[node])
            resident[path] += in_ram
            swapped[path] += in_swap
        if pages.is_whole:
            paths.more.update(resident_bytes=resident, swapped_bytes=swapped)
    if heaps:
        labels = array("I", (path + 1 for path in at[:blocks]))
        kept = pins.kept_by_label(session, heaps, PinLabels(labels, graph))
        if kept is not None:
            beside = {key: paths.below(NO_PATH, KEEPS[key[0]]) for key in kept if not key[1]}
            figures = paths.more["kept_bytes"] = [0] * len(paths.frames)
            for others in paths.more.values():
                others += [0] * (len(figures) - len(others))
            for key, size in kept.items():
                figures[key[1] - 1 if key[1] else beside[key]] += size
    return paths
