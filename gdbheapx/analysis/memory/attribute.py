"""Gives every mapping its owners: first what allocators claim, then bss, stacks, runtimes, and what its own line says.

Of a core, pages of zeros are left out where its file does not tell what was never in memory. The kernel leaves holes for private pages that
the process has not touched. gdb's gcore (before release 15) reads them and writes zeros, those of reserved addresses without any right too,
and calls these readable; a copy of a core may have its holes filled. There a page of zeros counts as never touched.
"""

from array import array
from bisect import bisect_right
from itertools import accumulate
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.memory import kinds, shapes, stacks
from gdbheapx.analysis.memory.kinds import Owner
from gdbheapx.analysis.memory.places import Places
from gdbheapx.budget import Budget
from gdbheapx.inferior.base import MappingUse, MemoryUse, Target
from gdbheapx.kernel.common.in_ram import Ram
from gdbheapx.kernel.common.library import Kernel
from gdbheapx.kernel.common.records import ADDRESS_MASK
from gdbheapx.model import CERTAIN, Claim
from gdbheapx.ranges import Range, Ranges, subtract, union


class WrittenPages:
    """Runs of such pages, of which those in some ranges are wanted."""

    def __init__(self, bounds: Sequence[int]) -> None:
        self._starts: Any = array("Q", bounds[::2])
        self._ends: Any = array("Q", bounds[1::2])
        lengths = (end - start for start, end in zip(self._starts, self._ends))
        self._before: Any = array("Q", accumulate(lengths, initial=0))
        """Bytes before each run, and of all."""

    def bounds(self) -> Sequence[int]:
        """Begin and end of each run, sorted."""
        return array("Q", [bound for run in zip(self._starts, self._ends) for bound in run])

    def bytes_in(self, ranges: Sequence[Range]) -> int:
        """Bytes of the ranges that lie in such pages."""
        return sum(self._bytes_before(end) - self._bytes_before(start) for start, end in ranges)

    def _bytes_before(self, address: int) -> int:
        place = bisect_right(self._starts, address) - 1
        return 0 if place < 0 else int(self._before[place] + min(address, self._ends[place]) - self._starts[place])


class WrittenUse(NamedTuple):
    """What a core tells of its memory once pages of zeros that say nothing are left out."""

    use: MemoryUse
    pages: Optional[WrittenPages]
    """None: this is no core."""
    zero_bytes: Optional[int]
    """Pages of zeros that were left out; None for what is no core."""
    until: Optional[int]
    """From this address on there was no time to look for them: all counts."""


def tell(target: Target, kernel: Kernel, use: MemoryUse, budget: Budget) -> WrittenUse:
    """Leaves pages of zeros out of what each mapping takes in a core, where they say nothing."""
    if use.measure != "dumped":
        return WrittenUse(use, None, None, None)
    silent, telling = (
        _data(target, [mapping for mapping in use.mappings if mapping.resident_bytes and _is_silent(use, mapping) is is_silent])
        for is_silent in (True, False)
    )
    written = kernel.written(target.bulk_source(), silent, target.page_bytes, budget)
    runs = [*zip(written.bounds[::2], written.bounds[1::2]), *telling]
    if written.until is not None:
        runs += [(max(start, written.until), end) for start, end in silent if end > written.until]
    pages = WrittenPages([bound for pair in sorted(runs) for bound in pair])
    mappings = [_told(mapping, pages) for mapping in use.mappings]
    left_out = sum(mapping.resident_bytes for mapping in use.mappings) - sum(mapping.resident_bytes for mapping in mappings)
    return WrittenUse(use._replace(mappings=mappings), pages, left_out, written.until)


def _data(target: Target, uses: Sequence[MappingUse]) -> Sequence[Range]:
    """What of these mappings is in the file and no hole."""
    return target.data_ranges([(use.mapping.start, use.mapping.end) for use in uses]) or ()


def _is_silent(use: MemoryUse, mapping_use: MappingUse) -> bool:
    """Its zeros say nothing. The kernel dumps pages of shared memory and of files that nobody has touched as well (mm/gup.c:
    no_page_table)."""
    return not use.tells_untouched or bool(mapping_use.mapping.name)


def _told(use: MappingUse, pages: WrittenPages) -> MappingUse:
    """The mapping without its pages of zeros. Private addresses that nobody may write and that hold nothing are reserved ones: gcore calls
    all readable."""
    mapping = use.mapping
    taken = min(use.resident_bytes, pages.bytes_in([(mapping.start, mapping.end)]))
    is_reserve = not (taken or mapping.writable or mapping.executable or mapping.name) and use.resident_bytes == mapping.size_bytes
    return use._replace(resident_bytes=taken, mapping=mapping._replace(readable=mapping.readable and not is_reserve))


class Piece(NamedTuple):
    """What one owner has of one mapping."""

    place: int
    """Index of the mapping."""
    owner: Owner
    taken_bytes: int
    swapped_bytes: Optional[int]


class Held(NamedTuple):
    """What of some ranges takes memory."""

    taken_bytes: int
    swapped_bytes: Optional[int]


class Pages:
    """What of some ranges is in RAM, or in the core."""

    def __init__(self, target: Target, kernel: Kernel, written: Optional[WrittenPages]) -> None:
        self._target, self._kernel, self._written = target, kernel, written
        self._ram = Ram(target, kernel)

    def held(self, ranges: Sequence[Range]) -> Optional[Held]:
        """Bytes that count in RSS, or that the core has; None where that cannot be told."""
        if self._target.kind != "live":
            return None if self._written is None else Held(self._written.bytes_in(ranges), None)
        counted = self._kernel.residency(self._ram.pages, ranges, False) if self._ram.pages is not None else None
        if counted is None:
            return None
        resident = self._ram.settle(counted, ranges).resident_bytes
        # what may be the zero page counts, where nothing tells: callers keep within the mapping's Rss
        return Held(counted.resident_bytes + counted.unsure_bytes if resident is None else resident, counted.swapped_bytes)


class Attribution:
    """One look at one process or core."""

    def __init__(
        self,
        target: Target,
        kernel: Kernel,
        use: MemoryUse,
        claims: Mapping[str, Iterable[Claim]],
        written: Optional[WrittenPages] = None,
        names: Optional[Mapping[str, str]] = None,
        budget: Optional[Budget] = None,
    ) -> None:
        self._target, self._use = target, use
        self._pages, self.written = Pages(target, kernel, written), written
        self.places = Places(use.mappings)
        self.here = shapes.present(target)
        self._claimed = [
            (
                Owner(kinds.ALLOCATOR, (names or {}).get(name, name), CERTAIN, allocator=name),
                Ranges((claim.start, claim.end) for claim in claimed),
            )
            for name, claimed in claims.items()
        ]
        self.page_bytes = page = target.page_bytes
        self._objects = {module.name for module in target.modules()} | {use.mapping.name for use in use.mappings if use.mapping.executable}
        self._images = Ranges((start & -page, -(-end // page) * page) for start, end, _ in target.image_ranges())
        goes_unguarded = all(runtime.name != "Go" for runtime in self.here)  # whose threads run on pieces of its heap
        self.stacks = stacks.find(self.places, target, self._read, goes_unguarded, budget)
        self._stacks = self.stacks.ranges(self.places)
        owned = [ranges for _, ranges in [*self._claimed, *self._stacks]]
        self._any = Ranges(span for ranges in [*owned, self._images] for span in ranges)

    @property
    def mappings(self) -> Sequence[MappingUse]:
        """By Piece.place."""
        return self._use.mappings

    def pieces(self) -> Iterator[Piece]:
        """Every owner's part of every mapping that takes memory, by address."""
        for place, use in enumerate(self._use.mappings):
            if use.resident_bytes or use.swapped_bytes or kinds.is_hugetlb(use):
                yield from self._of(place, use)

    def held(self, pieces: Mapping[int, Sequence[Piece]], ranges: Ranges) -> Dict[Owner, int]:
        """What of some ranges takes memory, by whose it is: each has no more than it has of the mapping. `pieces`: by mapping, what
        pieces() gave."""
        sizes: Dict[Owner, int] = {}
        for place, some in pieces.items():
            use = self._use.mappings[place]
            left = ranges.within(use.mapping.start, use.mapping.end)
            if not left or use.mapping.is_file:
                continue
            last = some[-1].owner
            for piece in some:
                claimed = next((owned for owner, owned in self._owned_ranges(use) if owner == piece.owner), None)
                mine = [part for start, end in left for part in claimed.within(start, end)] if claimed is not None else left
                if mine and (claimed is not None or piece.owner == last):
                    size = self._held(use, piece.taken_bytes, None, Ranges(mine))
                    sizes[piece.owner] = sizes.get(piece.owner, 0) + (size.taken_bytes if size is not None else 0)
                    left = subtract(left, mine)
        return sizes

    def in_ram(self, ranges: Sequence[Range]) -> Optional[int]:
        """What of them is in RAM, or in the core; None where that cannot be told."""
        held = self._pages.held(ranges)
        return None if held is None else held.taken_bytes

    def in_ram_or_swap(self, ranges: Sequence[Range]) -> Optional[int]:
        """The same with what is in swap."""
        held = self._pages.held(ranges)
        return None if held is None else held.taken_bytes + (held.swapped_bytes or 0)

    def touched(self, place: int, span: Range) -> Optional[int]:
        """What of a part of one mapping of a process is in RAM or in swap; None where that cannot be told."""
        use = self._use.mappings[place]
        held = self._held(use, use.resident_bytes, use.swapped_bytes, Ranges([span]))
        return None if held is None or held.swapped_bytes is None else held.taken_bytes + held.swapped_bytes

    def _of(self, place: int, use: MappingUse) -> Iterator[Piece]:
        taken, swapped = use.resident_bytes, use.swapped_bytes
        for owner, ranges in self._owned_ranges(use):
            held = self._held(use, taken, swapped, ranges)
            if held is not None:
                yield Piece(place, owner, held.taken_bytes, held.swapped_bytes)
                taken -= held.taken_bytes
                swapped = None if swapped is None or held.swapped_bytes is None else swapped - held.swapped_bytes
        if kinds.is_hugetlb(use):
            if use.hugetlb_bytes != 0:  # nor unknown
                yield Piece(place, self._huge_pages(use), taken, swapped)
        elif taken or swapped:
            yield from self._rest(place, use, taken, swapped)

    def _huge_pages(self, use: MappingUse) -> Owner:
        """Of an allocator, if it claims most of the mapping: some can take their memory there."""
        for owner, ranges in self._claimed:
            if 2 * sum(end - start for start, end in ranges.within(use.mapping.start, use.mapping.end)) >= use.mapping.size_bytes:
                return Owner(kinds.HUGETLB, "%s in huge pages of hugetlbfs: not in RSS" % owner.name, allocator=owner.allocator)
        return kinds.HUGE_PAGES

    def _owned_ranges(self, use: MappingUse) -> List[Tuple[Owner, Ranges]]:
        """Who owns parts of mappings."""
        if not self._any.meets(use.mapping.start, use.mapping.end):
            return []
        if use.mapping.is_file:
            return self._claimed
        if use.mapping.name in ("", "[heap]") and not use.mapping.executable:
            return [*self._claimed, *self._stacks, (kinds.ZEROED, self._images)]
        return [*self._claimed, *self._stacks]

    def _rest(self, place: int, use: MappingUse, taken: int, swapped: Optional[int]) -> Iterator[Piece]:
        """What is left of a mapping when allocators, stacks and bss have theirs."""
        owner = self._by_line(use)
        if owner is None:
            yield Piece(place, self._anonymous(place, use), taken, swapped)
        elif owner.kind not in kinds.FILE:
            yield Piece(place, owner, taken, swapped)
        else:
            yield from self._file(place, use, owner, taken, swapped)

    def _by_line(self, use: MappingUse) -> Optional[Owner]:
        owner = kinds.by_line(use)
        return shapes.shared(self.here, use.mapping.name, owner) if owner is not None and owner.kind == kinds.SHARED else owner

    def _file(self, place: int, use: MappingUse, owner: Owner, taken: int, swapped: Optional[int]) -> Iterator[Piece]:
        """A file: private copies are the process's own, the rest is the page cache's. A core does not tell which is which."""
        if self._use.measure == "dumped":
            yield Piece(place, kinds.DUMPED_WRITABLE if use.mapping.writable else kinds.DUMPED_FILES, taken, None)
            return
        copied = min(taken, use.anonymous_bytes or 0)
        if copied or swapped:
            is_object = use.mapping.executable or use.mapping.name in self._objects
            yield Piece(place, kinds.COPIED_PAGES if is_object else kinds.COPIED_DATA, copied, swapped)
        if taken > copied:
            yield Piece(place, owner, taken - copied, 0 if swapped is not None else None)

    def _anonymous(self, place: int, use: MappingUse) -> Owner:
        mapping = use.mapping
        if mapping.name.startswith(kinds.NAMED_PRIVATE):
            return shapes.named(mapping.name)
        if mapping.executable:
            return shapes.code(self.here)
        if mapping.name == "[heap]":
            return kinds.PROGRAM_BREAK
        return shapes.by_shape(self.here, self.places, place, lambda: self._gaps(use), self._read) or kinds.OTHER

    def _gaps(self, use: MappingUse) -> Sequence[Range]:
        """What of the mapping no allocator, no stack and no bss has."""
        taken = union(part for _, ranges in self._owned_ranges(use) for part in ranges.within(use.mapping.start, use.mapping.end))
        edges = [use.mapping.start, *(edge for part in taken for edge in part), use.mapping.end]
        return [(start, end) for start, end in zip(edges[::2], edges[1::2]) if start < end]

    def _held(self, use: MappingUse, taken: int, swapped: Optional[int], ranges: Ranges) -> Optional[Held]:
        """What of the mapping lies in the ranges; None if they do not meet. `taken`, `swapped`: what nobody has yet."""
        inside = ranges.within(use.mapping.start, use.mapping.end)
        length = sum(end - start for start, end in inside)
        if not length:
            return None
        if length == use.mapping.size_bytes:
            return Held(taken, swapped)
        if use.resident_bytes == use.mapping.size_bytes:
            return Held(min(taken, length), 0 if swapped is not None else None)
        there = self._pages.held(inside) or Held(length, None)
        both = swapped is not None and there.swapped_bytes is not None
        return Held(min(taken, there.taken_bytes), min(swapped or 0, there.swapped_bytes or 0) if both else None)

    def _read(self, address: int, size_bytes: int) -> bytes:
        """Bytes of a few pages, if every one of them is in memory: reading brings none in and touches none that was never there. The
        address may be any word of the process's."""
        page = self._target.page_bytes
        start, end = address & -page, -(-(address + size_bytes) // page) * page
        if start < 0 or end > ADDRESS_MASK:
            return b""
        if self._target.kind == "live":
            held = self._pages.held([(start, end)])
            if held is None or held.taken_bytes < end - start:
                return b""
        return self._target.read_prefix(address, size_bytes)
