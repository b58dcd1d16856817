"""Is it malloc at all: a process's memory, or a core's bytes, split by whose it is and by what can be done about it."""

from collections import Counter
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, cast

from gdbheapx.allocators.measured import FREEZE
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.memory import attribute, kinds
from gdbheapx.analysis.memory.attribute import Attribution, EndedThreads, MappingPiece, ThreadStacks, drop_untouched
from gdbheapx.analysis.memory.kinds import MemoryOwner
from gdbheapx.common import addon_loader
from gdbheapx.common import findings as codes
from gdbheapx.common.budget import Budget
from gdbheapx.common.model import Claim, Finding, MemoryPart, SplitPart, TargetAddress, UnclaimedMapping
from gdbheapx.common.ranges import Range, RangeIndex
from gdbheapx.common.units import SentenceSize, make_sentence
from gdbheapx.inferior.base import MappingUse, ParentPages, Target
from gdbheapx.kernel.common.library import Kernel

MOST_NAMES = 20
"""Parts of one kind that are named; the smaller ones are put together, for a program may have a thousand memfds."""

FIELDS = ("swapped_bytes", "shared_bytes", "pss_bytes", "droppable_bytes", "huge_bytes", "hugetlb_bytes")
TAKEN, MAPPINGS = "taken_bytes", "mappings"
LARGEST = 5
"""Mappings, files and parts that are no allocator's and are named."""
MOST_UNCLAIMED = 10
FILE = "file"


class Tally:
    """Every owner's sum."""

    def __init__(self, measure: str) -> None:
        self._live = measure == "resident"
        self._sums: Dict[MemoryOwner, Dict[str, Optional[int]]] = {}
        """By owner: bytes taken, mappings, and FIELDS; one unknown value makes a sum unknown."""
        self._named: Dict[Tuple[str, str], int] = {}
        self._unclaimed: List[Tuple[int, MappingUse, Optional[int]]] = []

    def add(self, piece: MappingPiece, use: MappingUse) -> None:
        """Add one owner's part of one mapping."""
        owner, mapping = piece.owner, use.mapping
        figures: Dict[str, Optional[int]] = {TAKEN: piece.taken_bytes, MAPPINGS: 1, "swapped_bytes": piece.swapped_bytes}
        if self._live:
            shared, pss = _shared_and_pss(piece, use)
            figures.update(shared_bytes=shared, pss_bytes=pss, droppable_bytes=_count_droppable(piece, use))
            figures.update(huge_bytes=_compute_share(use.huge_bytes, piece, use))
            figures.update(hugetlb_bytes=use.hugetlb_bytes if owner.kind == kinds.HUGETLB else 0)
        _join_sums(self._sums.setdefault(owner, {}), figures)
        if owner.kind == kinds.ALLOCATOR or not (piece.taken_bytes or piece.swapped_bytes):
            return
        key = (owner.kind, owner.name)
        if owner == kinds.OTHER:
            self._unclaimed.append((piece.taken_bytes, use, piece.swapped_bytes))
            key = (owner.kind, ("0x%x-0x%x %s" % (mapping.start, mapping.end, mapping.name)).rstrip())
        elif owner.kind in kinds.FILE:
            key = (FILE, mapping.name)
        self._named[key] = self._named.get(key, 0) + piece.taken_bytes

    def largest(self) -> List[SplitPart]:
        """The largest that are no allocator's, named next to the sums."""
        rows = sorted(((size, kind, name) for (kind, name), size in self._named.items() if size), reverse=True)[:LARGEST]
        return [SplitPart(kind, name, size) for size, kind, name in rows]

    def unclaimed(self) -> List[UnclaimedMapping]:
        """The largest first."""
        made = []
        for taken, use, swapped in sorted(self._unclaimed, key=lambda row: (-row[0], row[1].mapping.start))[:MOST_UNCLAIMED]:
            start, end = TargetAddress(use.mapping.start), TargetAddress(use.mapping.end)
            made.append(UnclaimedMapping(start, end, taken if self._live else None, None if self._live else taken, swapped))
        return made

    def parts(self) -> List[MemoryPart]:
        """Largest first; the smallest of many names of one kind are one part."""
        few: Dict[MemoryOwner, Dict[str, Optional[int]]] = {}
        seen: Counter[str] = Counter()
        for owner, figures in sorted(self._sums.items(), key=lambda row: -(row[1][TAKEN] or 0)):
            seen[owner.kind] += 1
            if seen[owner.kind] > MOST_NAMES:
                owner = MemoryOwner(owner.kind, "other memory of kind %s, under many names" % owner.kind)
            _join_sums(few.setdefault(owner, {}), figures)
        rows = []
        for owner, figures in sorted(few.items(), key=lambda row: (-(row[1][TAKEN] or 0), row[0])):
            taken, mappings = figures.pop(TAKEN), figures.pop(MAPPINGS) or 0
            part = MemoryPart(
                kind=owner.kind,
                name=owner.name,
                resident_bytes=taken if self._live else None,
                dumped_bytes=None if self._live else taken,
                mappings=mappings,
                allocator=owner.allocator,
                program=owner.program,
                sure=owner.sure,
                **(figures if self._live else dict.fromkeys(FIELDS, None)),
            )
            rows.append(part)
        return rows


def _join_sums(sums: Dict[str, Optional[int]], figures: Mapping[str, Optional[int]]) -> None:
    for name, value in figures.items():
        before = sums.get(name, 0)
        sums[name] = None if before is None or value is None else before + value


def _compute_share(value: Optional[int], piece: MappingPiece, use: MappingUse) -> Optional[int]:
    """A figure of the whole mapping, divided by what each owner has of its Rss."""
    if value is None or value == 0 or piece.taken_bytes == use.resident_bytes:
        return value
    return value * piece.taken_bytes // (use.resident_bytes or 1)


def _shared_and_pss(piece: MappingPiece, use: MappingUse) -> Tuple[Optional[int], Optional[int]]:
    """Return the shared bytes and PSS of a part. In a file's mapping the private copies have the private pages first: they are mapped
    once, unless the process forked.
    """
    if use.shared_bytes is None or use.pss_bytes is None:
        return _compute_share(use.shared_bytes, piece, use), _compute_share(use.pss_bytes, piece, use)
    own = use.resident_bytes - use.shared_bytes
    copied = min(use.resident_bytes, use.anonymous_bytes or 0)
    if piece.owner.kind in kinds.FILE and copied <= own:
        if piece.owner.kind == kinds.COPIED:
            return 0, piece.taken_bytes
        return use.shared_bytes, max(0, use.pss_bytes - copied)
    return _compute_share(use.shared_bytes, piece, use), _compute_share(use.pss_bytes, piece, use)


def _count_droppable(piece: MappingPiece, use: MappingUse) -> Optional[int]:
    """Return the bytes that the kernel may take without swap. Locked pages stay."""
    if kinds.is_locked(use):
        return 0
    if piece.owner.kind == kinds.CACHE:
        return piece.taken_bytes
    if piece.owner.kind == kinds.SHARED:
        return 0
    return _compute_share(use.lazy_free_bytes or 0, piece, use)


class SplitMemory(NamedTuple):
    """The sums of the split. allocator + stack + file + anonymous + shared memory + device = total, in bytes of RSS (live) or of the core
    file."""

    measure: str
    """`resident` (live) or `dumped` (core)."""
    total_bytes: int
    swapped_bytes: Optional[int]
    """Live only; not part of total_bytes."""
    allocator_bytes: int
    """Of all allocators."""
    allocators: Dict[str, int]
    """Of each, by its id."""
    stack_bytes: int
    file_bytes: int
    """Page cache, and private copies of file pages."""
    anonymous_bytes: int
    """Private anonymous memory of the process that is neither an allocator's nor a stack."""
    shared_memory_bytes: int
    device_bytes: int
    pss_bytes: Optional[int]
    """Proportional set size of the whole process; None on a core."""
    shared_bytes: Optional[int]
    """Of total_bytes those that are mapped more than once; None on a core."""
    droppable_bytes: Optional[int]
    """Of total_bytes those that the kernel can take without swap when memory is short; None on a core."""
    huge_bytes: Optional[int]
    """Of total_bytes those that are mapped as transparent huge pages; None on a core."""
    hugetlb_bytes: Optional[int]
    """Next to total_bytes: pages of hugetlbfs; None on a core, and before Linux 4.4 where there are any."""
    largest: Sequence[SplitPart]
    """The largest that are no allocator's: files and runtimes summed, anonymous memory that nothing names by mapping."""
    unclaimed: Sequence[UnclaimedMapping]
    """The largest mappings of which nothing shows whose they are."""
    zero_bytes: Optional[int] = None
    """Next to total_bytes: pages of zeros in a core that does not show which of them were ever in RAM (one that gdb wrote, or that was
    copied without its holes); None: a process."""
    thread_stacks: Optional[ThreadStacks] = None
    """What living threads have touched of their stacks, and how deep they are in them."""
    ended_threads: Optional[EndedThreads] = None
    """Ended threads whose stacks are still there; None where the C library's lists of stacks were not found."""
    parent_pages: Optional[ParentPages] = None
    """How private memory compares with the parent's; None where the process was not forked without exec, has little memory for itself
    alone, or its parent cannot be read; and on a core."""
    virtual_bytes: Optional[int] = None
    """VSZ: all mappings, touched or not; None where a core has not all of them."""
    peak_virtual_bytes: Optional[int] = None
    """The most that VSZ has been (VmPeak); None on a core."""
    peak_bytes: Optional[int] = None
    """The highest RSS since the process began or ran this program (VmHWM); None on a core."""


class Split(NamedTuple):
    """The parts, and their sums."""

    parts: Sequence[MemoryPart]
    """Largest first."""
    memory: SplitMemory
    zeros_until: Optional[int] = None
    """Cores: from this address on there was no time to look for pages of zeros, so all of them count; None: all were looked for."""
    attribution: Optional[Attribution] = None
    pieces: Mapping[int, Sequence[MappingPiece]] = {}
    """By mapping."""
    are_zeros_silent: bool = False
    """A core that does not tell private pages that were never in memory from pages of zeros."""

    def held(self, ranges: Sequence[Range]) -> Dict[MemoryOwner, int]:
        """Return the memory that some ranges take, by owner; to be called while the process is still stopped."""
        return self.attribution.held(self.pieces, RangeIndex(ranges)) if self.attribution is not None else {}

    def runtimes(self) -> List[str]:
        """Names of the programs with memory of their own that loaded objects show."""
        return [one.name for one in self.attribution.here] if self.attribution is not None else []

    def core_runs(self) -> Optional[Sequence[int]]:
        """Begin and end of each run of pages that a core has; None: it is none."""
        return self.attribution.written.bounds() if self.attribution is not None and self.attribution.written is not None else None

    def in_ram_or_swap(self, ranges: Sequence[Range]) -> Optional[int]:
        """Return the bytes of the ranges in RAM or swap, in a core its pages; None where that is not known."""
        return self.attribution.in_ram(ranges, with_swap=True) if self.attribution is not None else None

    def in_ram(self, ranges: Sequence[Range]) -> Optional[int]:
        """Return the bytes of the ranges that are in RAM; in a core its pages. None where that is not known."""
        return self.attribution.in_ram(ranges) if self.attribution is not None else None


def split_memory(
    target: Target,
    kernel: Kernel,
    claims: Mapping[str, Iterable[Claim]],
    budget: Optional[Budget] = None,
    names: Optional[Mapping[str, str]] = None,
) -> Optional[Split]:
    """The split, by what each allocator claims (`names`: what its part is called, by id); None where the target shows neither what is in
    RAM nor what was dumped (remote)."""
    measured = target.memory_use()
    if measured is None:
        return None
    budget = budget or Budget()
    use, pages, zero_bytes, zeros_until = drop_untouched(target, kernel, measured, budget)
    tally, pieces = Tally(use.measure), cast(Dict[int, List[MappingPiece]], {})
    attribution = Attribution(target, kernel, use, claims, pages, names, budget)
    for piece in attribution.pieces():
        pieces.setdefault(piece.place, []).append(piece)
        tally.add(piece, use.mappings[piece.place])
    parts, allocators = tally.parts(), dict.fromkeys(claims, 0)
    by_kind: Counter[str] = Counter()
    for part in parts:
        by_kind[part.kind] += count_taken(part)
        if part.allocator is not None and part.kind == kinds.ALLOCATOR:
            allocators[part.allocator] += count_taken(part)
    known: Dict[str, Optional[int]] = {}
    for name in FIELDS:
        values = [getattr(part, name) for part in parts]
        known[name] = None if use.measure == "dumped" or None in values else sum(values)
    virtual_bytes = use.virtual_bytes
    if use.measure == "dumped" and use.tells_untouched and target.lost_bytes() is not None:  # gdb leaves mappings out
        virtual_bytes = sum(row.mapping.end - row.mapping.start for row in use.mappings)
    stack_bytes = {part.name: count_taken(part) for part in parts if part.kind == kinds.STACK}
    sums = SplitMemory(
        measure=use.measure,
        total_bytes=sum(by_kind.values()),
        allocator_bytes=sum(allocators.values()),
        allocators=allocators,
        stack_bytes=by_kind[kinds.STACK],
        file_bytes=sum(by_kind[kind] for kind in kinds.FILE),
        anonymous_bytes=sum(by_kind[kind] for kind in kinds.PRIVATE - {kinds.STACK}),
        shared_memory_bytes=by_kind[kinds.SHARED],
        device_bytes=by_kind[kinds.DEVICE],
        largest=tally.largest(),
        unclaimed=tally.unclaimed(),
        zero_bytes=zero_bytes,
        ended_threads=attribute.find_ended_threads(target, attribution, stack_bytes),
        thread_stacks=attribute.measure_thread_stacks(target, attribution, kernel, budget),
        parent_pages=target.parent_pages(),
        virtual_bytes=virtual_bytes,
        peak_virtual_bytes=use.peak_virtual_bytes,
        peak_bytes=use.peak_bytes,
        **known,
    )
    return Split(parts, sums, zeros_until, attribution, pieces, not use.tells_untouched)


def count_taken(part: MemoryPart) -> int:
    """Return the bytes that the part takes, by the measure of its target."""
    return part.resident_bytes or part.dumped_bytes or 0


LEAST_BYTES, LEAST_SHARE = 16 << 20, 0.1
"""Fewer copies are not spoken of, nor a smaller share of RSS."""
PYTHON = "CPython"
COLLECTOR = "collector"
COUNTS = "reference-counts"
OTHER = "other"

_HINTS = {
    COLLECTOR: "CPython's collector has run since the fork and writes to each object: %s before the fork keeps it from the "
    "parent's" % FREEZE.text,
    COUNTS: "each use of a Python object writes its reference count, frozen or not: read-only data stays shared in one block without "
    "objects, such as bytes, an array of NumPy or a mapped file",
    PYTHON: "CPython's collector writes to each object that it visits (%s before the fork keeps it from the parent's), and each use of an "
    "object to its reference count" % FREEZE.text,
    OTHER: "the first write to a page after the fork copies all of it, whichever of the two writes; PSS counts each copy",
}
"""Measured: docs/reference/advice.md."""


def find_copied_pages(session: Session, split: Optional[Split]) -> List[Finding]:
    """Return a finding if a tenth of RSS or more is copies of the parent's pages."""
    pages = split.memory.parent_pages if split is not None else None
    if split is None or pages is None or pages.copied_bytes < max(LEAST_BYTES, LEAST_SHARE * split.memory.total_bytes):
        return []
    cause = _describe_cause(session, pages) if PYTHON in split.runtimes() else OTHER
    figures = SentenceSize(pages.copied_bytes), SentenceSize(pages.private_bytes), pages.same_pages, pages.compared_pages, pages.near_pages
    text = "about %s of %s that no other process maps: %d of %d compared pages equal the parent's, %d differ in few words"
    what = "copy-on-write was broken: pages of the parent, process %d, were copied" % pages.parent
    return [Finding(what, make_sentence(text, *figures), _HINTS[cause], codes.COPIED_ON_WRITE)]


def _describe_cause(session: Session, pages: ParentPages) -> str:
    """Return the probable writer of pages with CPython's objects. A reference count that was raised again has its old value, and so have
    the fields that the collector writes: only the collector's own numbers distinguish the two. It has written to as many objects since the
    fork as its last full collection left, which is at most as many pages; that is unknown where the parent collected, too.
    """
    if 2 * pages.counting_pages > pages.same_pages + pages.near_pages:
        return COUNTS
    target, addon = session.target, addon_loader.find_capability("collector")
    state = addon.read_collector_state(target) if addon is not None else None
    if state is None:
        return PYTHON
    own, parents = target.read_prefix(state.full_collections, 8), target.read_parent(state.full_collections, 8)
    numbers = [*target.words_in(own), *target.words_in(parents)]
    if len(numbers) < 2 or numbers[0] < numbers[1]:
        return PYTHON
    visited = state.survivors if numbers[0] > numbers[1] else 0
    return COLLECTOR if 2 * visited * target.page_bytes >= pages.copied_bytes else COUNTS
