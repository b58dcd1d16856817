"""Attribute every mapping to an owner, and count what it takes; how deep threads have used their stacks, and who started ended ones."""

import struct
from collections import Counter
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.memory import kinds, stacks
from gdbheapx.analysis.memory.kinds import RUNTIMES, KnownRuntime, MappingPlaces, MappingShape, MemoryOwner
from gdbheapx.analysis.memory.stacks import UNJOINED
from gdbheapx.common.budget import Budget
from gdbheapx.common.model import CERTAIN, GUESS, LIKELY, Claim
from gdbheapx.common.ranges import Range, RangeIndex, RangeSums, subtract_ranges, unite_ranges
from gdbheapx.inferior.base import MappingUse, MemoryUse, Target, Thread
from gdbheapx.kernel.common.in_ram import Ram
from gdbheapx.kernel.common.library import ADDRESS_MASK, Kernel

ReadBytes = Callable[[int, int], bytes]

SAMPLES = 6
POOL_SIZES = (16 << 10, 4 << 10)
"""Objects/obmalloc.c: POOL_SIZE from 3.10 on, and before."""
HEADER = struct.Struct("<IIQQQIIII")
"""struct pool_header on 64-bit machines."""
MAX_CLASS = 32
RUBY_PAGE_SIZES = (64 << 10, 16 << 10)
"""gc.c: HEAP_PAGE_SIZE of Ruby 3.2 and later, and before."""
WORD = struct.Struct("<Q")
RUBY_PAGE_BYTES = 64
"""The first of struct heap_page, among them the address of its first slot on 64-bit machines."""


def _is_pool(data: bytes, pool_bytes: int) -> bool:
    """A pool_header whose numbers agree: how many blocks, how large, how far it was cut up (Objects/obmalloc.c: init_pool)."""
    if len(data) < HEADER.size:
        return False
    count, _, _, _, _, _, size_class, next_offset, max_offset = HEADER.unpack_from(data)
    size, cut = 16 * (size_class + 1), next_offset - HEADER.size
    is_cut_up = size_class < MAX_CLASS and cut >= size and cut % size == 0 and count <= cut // size
    return bool(is_cut_up and max_offset == pool_bytes - size and next_offset <= pool_bytes)


def _has_cpython_pools(gaps: Sequence[Range], read: ReadBytes) -> bool:
    """Most of the places where pools would begin have the header of one: up to SAMPLES of them, spread over the ranges. What is empty or
    not in memory says nothing."""
    for pool_bytes in POOL_SIZES:
        addresses = _sample_starts(gaps, pool_bytes)
        seen = [data for data in (read(address, HEADER.size) for address in addresses) if data.strip(b"\0")]
        good = sum(_is_pool(data, pool_bytes) for data in seen)
        if good and 2 * good >= len(seen):
            return True
    return False


def _sample_starts(gaps: Sequence[Range], piece_bytes: int) -> List[int]:
    """Up to SAMPLES places where pieces of that size would begin, spread over the ranges."""
    total = sum(end - start for start, end in gaps)
    addresses: List[int] = []
    for start, end in gaps:
        first = -(-start // piece_bytes) * piece_bytes
        pieces = (end - first) // piece_bytes
        count = min(max(1, SAMPLES * (end - start) // (total or 1)), pieces)
        addresses += [first + piece_bytes * (pieces * number // count) for number in range(count)]
    return addresses[:SAMPLES]


def _has_ruby_pages(gaps: Sequence[Range], read: ReadBytes) -> bool:
    """Most of the places where heap pages would begin have a pointer to a block that leads back into that page (gc.c: struct
    heap_page_header, struct heap_page). What is empty or not in memory says nothing."""
    for page_bytes in RUBY_PAGE_SIZES:
        begins = ((address, read(address, WORD.size)) for address in _sample_starts(gaps, page_bytes))
        heads = [(address, int.from_bytes(data, "little")) for address, data in begins if data.strip(b"\0")]
        good = sum(_leads_back(read(word, RUBY_PAGE_BYTES), address, page_bytes) for address, word in heads if not word % WORD.size)
        if good and 2 * good >= len(heads):
            return True
    return False


def _leads_back(block: bytes, address: int, page_bytes: int) -> bool:
    return any(address < word < address + page_bytes for (word,) in WORD.iter_unpack(block[: len(block) // WORD.size * WORD.size]))


def find_present_runtimes(target: Target) -> List[KnownRuntime]:
    """The runtimes that the loaded objects show."""
    modules, present = target.modules(), []
    for runtime in RUNTIMES:
        if runtime.section is not None:
            is_here = any(target.has_section(module, runtime.section) for module in modules if module.is_executable)
        else:
            is_here = any(module.file_name.startswith(runtime.objects) for module in modules)
        present += [runtime] if is_here else []
    return present


PROBES: Dict[str, Callable[[Sequence[Range], ReadBytes], bool]] = {"cpython-pools": _has_cpython_pools, "ruby-pages": _has_ruby_pages}


def fits_shape(shape: MappingShape, places: MappingPlaces, place: int, gaps: Callable[[], Sequence[Range]], read: ReadBytes) -> bool:
    """The mapping has every property of the shape. `gaps`: what of it no allocator claims; `read`: costs the process nothing."""
    mapping = places.uses[place].mapping
    size = mapping.size_bytes
    if mapping.start % shape.align_bytes or mapping.end % shape.end_align_bytes or size % shape.multiple_bytes or size < shape.min_bytes:
        return False
    if (shape.max_bytes is not None and size > shape.max_bytes) or (shape.below is not None and mapping.end > shape.below):
        return False
    flags = places.uses[place].flags
    if flags is not None and not shape.flags <= flags:
        return False
    if shape.reserve_above and not places.reserve_above(place):
        return False
    if shape.reach is not None and not shape.reach[0] <= size + places.reserve_above(place) <= shape.reach[1]:
        return False
    if shape.run_align_bytes > 1 or shape.min_run_bytes:
        start, end = places.run(place)
        if start % shape.run_align_bytes or end % shape.run_align_bytes or end - start < shape.min_run_bytes:
            return False
    return shape.probe is None or PROBES[shape.probe](gaps(), read)


def find_owner_by_shape(
    here: Sequence[KnownRuntime], places: MappingPlaces, place: int, gaps: Callable[[], Sequence[Range]], read: ReadBytes
) -> Optional[MemoryOwner]:
    """Return the runtime that owns a private anonymous mapping; None if none fits."""
    for runtime in here:
        for shape in runtime.shapes:
            if fits_shape(shape, places, place, gaps, read):
                sure = CERTAIN if shape.probe is not None else shape.sure
                return MemoryOwner(kinds.RUNTIME, "%s: %s" % (runtime.name, shape.what), sure, program=runtime.name)
    rest = next((runtime for runtime in here if runtime.rest is not None), None)
    return MemoryOwner(kinds.RUNTIME, "%s: %s" % (rest.name, rest.rest), GUESS, program=rest.name) if rest is not None else None


def drop_untouched(
    target: Target, kernel: Kernel, use: MemoryUse, budget: Budget
) -> Tuple[MemoryUse, Optional[RangeSums], Optional[int], Optional[int]]:
    """Leave pages of zeros out of what each mapping takes in a core, where they say nothing. Return what is left, the pages that count,
    the bytes that were left out, and the address from which on there was no time to look for them, so that all count; the last three None
    for what is no core.
    """
    if use.measure != "dumped":
        return use, None, None, None
    silent_spans: List[Range] = []
    telling_spans: List[Range] = []
    for mapping_use in use.mappings:
        mapping = mapping_use.mapping
        # the kernel dumps pages of shared memory and of files that no one has touched as well (mm/gup.c: no_page_table)
        is_silent = not use.tells_untouched or bool(mapping.name)
        if mapping_use.resident_bytes:
            (silent_spans if is_silent else telling_spans).append((mapping.start, mapping.end))
    silent, telling = (target.data_ranges(spans) or () for spans in (silent_spans, telling_spans))
    written = kernel.written(target.bulk_source(), silent, target.page_bytes, budget)
    runs = [*zip(written.bounds[::2], written.bounds[1::2]), *telling]
    if written.until is not None:
        runs += [(max(start, written.until), end) for start, end in silent if end > written.until]
    pages = RangeSums([bound for pair in sorted(runs) for bound in pair])
    mappings, left_out = [], 0
    for mapping_use in use.mappings:
        mapping, resident = mapping_use.mapping, mapping_use.resident_bytes
        taken = min(resident, pages.bytes_in([(mapping.start, mapping.end)]))
        # private addresses that no one may write and that hold nothing are reserved ones: gcore calls all readable
        is_used = taken or mapping.writable or mapping.executable or mapping.name
        if not is_used and resident == mapping.size_bytes:
            mapping = mapping._replace(readable=False)
        mappings.append(mapping_use._replace(resident_bytes=taken, mapping=mapping))
        left_out += resident - taken
    return use._replace(mappings=mappings), pages, left_out, written.until


class MappingPiece(NamedTuple):
    """Part of one mapping that one owner has."""

    place: int
    """Index of the mapping."""
    owner: MemoryOwner
    taken_bytes: int
    swapped_bytes: Optional[int]


HeldMemory = Tuple[int, Optional[int]]
"""(bytes that some ranges take, swapped bytes of them)."""


class Attribution:
    """Attribution of the memory of one process or core to owners, at one moment."""

    def __init__(
        self,
        target: Target,
        kernel: Kernel,
        use: MemoryUse,
        claims: Mapping[str, Iterable[Claim]],
        written: Optional[RangeSums] = None,
        names: Optional[Mapping[str, str]] = None,
        budget: Optional[Budget] = None,
    ) -> None:
        self._target, self._use, self._kernel, self.written = target, use, kernel, written
        self._ram = Ram(target, kernel)
        self.places = MappingPlaces(use.mappings)
        self.here = find_present_runtimes(target)
        self._claimed = []
        for name, claimed in claims.items():
            owner = MemoryOwner(kinds.ALLOCATOR, (names or {}).get(name, name), CERTAIN, allocator=name)
            self._claimed.append((owner, RangeIndex((claim.start, claim.end) for claim in claimed)))
        self.page_bytes = page = target.page_bytes
        self._objects = {module.name for module in target.modules()} | {use.mapping.name for use in use.mappings if use.mapping.executable}
        self._images = RangeIndex((start & -page, -(-end // page) * page) for start, end, _ in target.image_ranges())
        goes_unguarded = all(runtime.name != "Go" for runtime in self.here)  # whose threads run on pieces of its heap
        self.stacks = stacks.find_thread_stacks(self.places, target, self._read_present, goes_unguarded, budget)
        self._stacks = self.stacks.ranges(self.places)
        owned = [ranges for _, ranges in [*self._claimed, *self._stacks]]
        self._any = RangeIndex(span for ranges in [*owned, self._images] for span in ranges)

    @property
    def mappings(self) -> Sequence[MappingUse]:
        """Return the mappings, indexed by MappingPiece.place."""
        return self._use.mappings

    def pieces(self) -> Iterator[MappingPiece]:
        """Every owner's part of every mapping that takes memory, by address."""
        for place, use in enumerate(self._use.mappings):
            if use.resident_bytes or use.swapped_bytes or kinds.is_hugetlb(use):
                yield from self._split_mapping(place, use)

    def held(self, pieces: Mapping[int, Sequence[MappingPiece]], ranges: RangeIndex) -> Dict[MemoryOwner, int]:
        """Return the memory that some ranges take, by owner: each has no more than it has of the mapping. `pieces`: the result of
        pieces(), by mapping.
        """
        sizes: Dict[MemoryOwner, int] = {}
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
                    size = self._measure_held(use, piece.taken_bytes, None, RangeIndex(mine))
                    sizes[piece.owner] = sizes.get(piece.owner, 0) + (size[0] if size is not None else 0)
                    left = subtract_ranges(left, mine)
        return sizes

    def _count_pages(self, ranges: Sequence[Range]) -> Optional[HeldMemory]:
        """Bytes that count in RSS, or that the core has; None where that cannot be found."""
        if self._target.kind != "live":
            return None if self.written is None else (self.written.bytes_in(ranges), None)
        counted = self._kernel.residency(self._ram.pages, ranges, False) if self._ram.pages is not None else None
        if counted is None:
            return None
        resident = self._ram.settle(counted, ranges).resident_bytes
        # what may be the zero page counts, where nothing tells: callers keep within the mapping's Rss
        return counted.resident_bytes + counted.unsure_bytes if resident is None else resident, counted.swapped_bytes

    def in_ram(self, ranges: Sequence[Range], with_swap: bool = False) -> Optional[int]:
        """Return the bytes of the ranges that are in RAM, or in the core; `with_swap`: or in swap. None where that is not known."""
        held = self._count_pages(ranges)
        return None if held is None else held[0] + ((held[1] or 0) if with_swap else 0)

    def touched(self, place: int, span: Range) -> Optional[int]:
        """Return the bytes of a part of one mapping of a process that are in RAM or in swap; None where that is not known."""
        use = self._use.mappings[place]
        taken, swapped = self._measure_held(use, use.resident_bytes, use.swapped_bytes, RangeIndex([span])) or (0, None)
        return None if swapped is None else taken + swapped

    def _split_mapping(self, place: int, use: MappingUse) -> Iterator[MappingPiece]:
        taken, swapped = use.resident_bytes, use.swapped_bytes
        for owner, ranges in self._owned_ranges(use):
            held = self._measure_held(use, taken, swapped, ranges)
            if held is not None:
                yield MappingPiece(place, owner, *held)
                taken -= held[0]
                swapped = None if swapped is None or held[1] is None else swapped - held[1]
        if kinds.is_hugetlb(use):
            if use.hugetlb_bytes != 0:  # nor unknown
                yield MappingPiece(place, self._find_huge_owner(use), taken, swapped)
            return
        if not taken and not swapped:
            return
        line = kinds.find_owner_by_line(use)
        if line is None or line.kind not in kinds.FILE:
            yield MappingPiece(place, self._find_owner(place, use, line), taken, swapped)
        elif self._use.measure == "dumped":  # which does not show what is a private copy
            yield MappingPiece(place, kinds.DUMPED_WRITABLE if use.mapping.writable else kinds.DUMPED_FILES, taken, None)
        else:  # private copies are the process's own, the rest is the page cache's
            copied = min(taken, use.anonymous_bytes or 0)
            if copied or swapped:
                is_object = use.mapping.executable or use.mapping.name in self._objects
                yield MappingPiece(place, kinds.COPIED_PAGES if is_object else kinds.COPIED_DATA, copied, swapped)
            if taken > copied:
                yield MappingPiece(place, line, taken - copied, 0 if swapped is not None else None)

    def _find_huge_owner(self, use: MappingUse) -> MemoryOwner:
        """Return an allocator as owner, if it claims most of the mapping: some can take their memory there."""
        for owner, ranges in self._claimed:
            if 2 * sum(end - start for start, end in ranges.within(use.mapping.start, use.mapping.end)) >= use.mapping.size_bytes:
                return MemoryOwner(kinds.HUGETLB, "%s in huge pages of hugetlbfs: not in RSS" % owner.name, allocator=owner.allocator)
        return kinds.HUGE_PAGES

    def _owned_ranges(self, use: MappingUse) -> List[Tuple[MemoryOwner, RangeIndex]]:
        """Return the owners of parts of the mapping with their ranges."""
        if not self._any.meets(use.mapping.start, use.mapping.end):
            return []
        if use.mapping.is_file:
            return self._claimed
        if use.mapping.name in ("", "[heap]") and not use.mapping.executable:
            return [*self._claimed, *self._stacks, (kinds.ZEROED, self._images)]
        return [*self._claimed, *self._stacks]

    def _find_owner(self, place: int, use: MappingUse, line: Optional[MemoryOwner]) -> MemoryOwner:
        """Return the owner of what is no file and not in an allocator, a stack or bss. `line`: the owner by the mapping's own line."""
        label = use.mapping.name
        if line is not None:
            for runtime in self.here if line.kind == kinds.SHARED else ():
                what = next((what for start, what in runtime.shared if label.startswith(start)), None)
                if what is not None:
                    return MemoryOwner(line.kind, "%s, %s: %s" % (line.name, runtime.name, what), LIKELY, program=runtime.name)
            return line
        if label.startswith(kinds.NAMED_PRIVATE):
            name = kinds.parse_given_name(label)
            program = next((program for start, program in kinds.NAMES if name.startswith(start)), None)
            return MemoryOwner(kinds.RUNTIME if program else kinds.NAMED, name, CERTAIN, program=program)
        if use.mapping.executable:
            code = "%s (executable anonymous memory)"
            for runtime in self.here:
                if runtime.code is not None:
                    return MemoryOwner(kinds.JIT, code % ("%s: %s" % (runtime.name, runtime.code)), LIKELY, program=runtime.name)
            return MemoryOwner(kinds.JIT, code % "generated code")
        if label == "[heap]":
            return kinds.PROGRAM_BREAK
        return find_owner_by_shape(self.here, self.places, place, lambda: self._find_gaps(use), self._read_present) or kinds.OTHER

    def _find_gaps(self, use: MappingUse) -> Sequence[Range]:
        """Return the ranges of the mapping that are not in an allocator, a stack or bss."""
        taken = unite_ranges(part for _, ranges in self._owned_ranges(use) for part in ranges.within(use.mapping.start, use.mapping.end))
        edges = [use.mapping.start, *(edge for part in taken for edge in part), use.mapping.end]
        return [(start, end) for start, end in zip(edges[::2], edges[1::2]) if start < end]

    def _measure_held(self, use: MappingUse, taken: int, swapped: Optional[int], ranges: RangeIndex) -> Optional[HeldMemory]:
        """Return the memory of the mapping that lies in the ranges; None if they do not meet. `taken`, `swapped`: bytes without an owner
        yet.
        """
        inside = ranges.within(use.mapping.start, use.mapping.end)
        length = sum(end - start for start, end in inside)
        if not length:
            return None
        if length == use.mapping.size_bytes:
            return taken, swapped
        if use.resident_bytes == use.mapping.size_bytes:
            return min(taken, length), 0 if swapped is not None else None
        there, there_swapped = self._count_pages(inside) or (length, None)
        return min(taken, there), None if swapped is None or there_swapped is None else min(swapped, there_swapped)

    def _read_present(self, address: int, size_bytes: int) -> bytes:
        """Bytes of a few pages, if every one of them is in memory: reading brings none in and touches none that was never there. The
        address may be any word of the process's."""
        page = self._target.page_bytes
        start, end = address & -page, -(-(address + size_bytes) // page) * page
        if start < 0 or end > ADDRESS_MASK:
            return b""
        if self._target.kind == "live":
            held = self._count_pages([(start, end)])
            if held is None or held[0] < end - start:
                return b""
        return self._target.read_prefix(address, size_bytes)


LARGEST = 5
"""Threads that are named."""
NEAR_BYTES = 64 << 10
"""So much of what lies above the stack pointer may be untouched (alloca, thread-local storage) and count as touched: no one asks."""
Touched = Callable[[int, Range], Optional[int]]
"""Bytes that were touched of a part of one mapping."""


class ThreadStack(NamedTuple):
    """Stack of one thread. None: not known."""

    lwp: int
    name: Optional[str]
    """comm; None on a core."""
    size_bytes: int
    """Of its addresses, without the guard."""
    touched_bytes: Optional[int]
    """In RAM or in swap; of a core the pages that are not all zeros."""
    huge_bytes: Optional[int]
    """Of these in transparent huge pages, which one touch fills; None on a core, and where several stacks are one mapping that has some."""
    depth_bytes: Optional[int]
    """From the stack pointer to the end, with what lies there of thread-local storage; None where the thread runs on another stack (a
    coroutine's, a signal handler's), or its registers are not known."""
    past_bytes: Optional[int]
    """Touched and no longer in use: by deeper calls that have returned."""


class ThreadStacks(NamedTuple):
    """Stacks of the living threads. Sums are over the measured threads; None where there are none."""

    threads: int
    measured_threads: int
    """Of these it is known both what was touched and how deep they are."""
    size_bytes: Optional[int]
    touched_bytes: Optional[int]
    depth_bytes: Optional[int]
    past_bytes: Optional[int]
    largest: Sequence[ThreadStack]
    """Those that touched most, measured or not."""


def measure_thread_stacks(target: Target, attribution: Attribution, kernel: Kernel, budget: Budget) -> ThreadStacks:
    """Reads nothing of a process beyond its page table, and of a core its stacks."""
    places, stacks, threads = attribution.places, attribution.stacks, target.threads()
    spans = {lwp: (place, stacks.bounds(places, place, address)) for lwp, (place, address) in stacks.own.items()}
    touched = attribution.touched if target.kind == "live" else _measure_in_core(target, attribution, kernel, budget, spans)
    rows = [_make_stack_row(attribution, thread, *spans[thread.lwp], touched) for thread in threads if thread.lwp in spans]
    measured = [row for row in rows if row.past_bytes is not None]
    fields = "size_bytes", "touched_bytes", "depth_bytes", "past_bytes"
    sums = {field: sum(getattr(row, field) for row in measured) if measured else None for field in fields}
    largest = sorted(rows, key=lambda row: (-(row.touched_bytes or 0), row.lwp))[:LARGEST]
    return ThreadStacks(len(threads), len(measured), largest=largest, **sums)


def _measure_in_core(
    target: Target, attribution: Attribution, kernel: Kernel, budget: Budget, spans: Mapping[int, Tuple[int, Range]]
) -> Touched:
    """Pages of zeros may be the rest of a huge page, or gcore's. Unknown is what a core lacks."""
    there = target.data_ranges(unite_ranges(span for _, span in spans.values())) or ()
    written = kernel.written(target.bulk_source(), there, target.page_bytes, budget)
    pages = RangeSums(written.bounds)

    def count_touched_bytes(place: int, span: Range) -> Optional[int]:
        mapping = attribution.mappings[place].mapping
        is_whole = mapping.dumped_bytes == mapping.size_bytes and (written.until is None or span[1] <= written.until)
        return pages.bytes_in([span]) if is_whole else None

    return count_touched_bytes


def _make_stack_row(attribution: Attribution, thread: Thread, place: int, span: Range, touched: Touched) -> ThreadStack:
    use, (start, end), pointer = attribution.mappings[place], span, thread.stack_pointer
    all_bytes = touched(place, span)
    huge = use.huge_bytes if use.mapping.size_bytes == end - start or not use.huge_bytes else None
    depth = end - pointer if pointer is not None and start <= pointer < end else None
    past = all_bytes
    if depth is not None and all_bytes is not None:
        is_near = min(depth, all_bytes) <= NEAR_BYTES
        past = all_bytes - depth if is_near else touched(place, (start, (end - depth) & -attribution.page_bytes))
    if past is not None:
        past = max(0, past - (huge or 0)) if depth is not None and (huge is not None or use.mapping.dumped_bytes is not None) else None
    return ThreadStack(thread.lwp, thread.name, end - start, all_bytes, huge, depth, past)


MOST_STARTS = 3
"""Functions that are named."""


class ThreadStart(NamedTuple):
    """A function that was given to pthread_create."""

    function: str
    """With its object; `app+0x1189` where no symbol shows its name."""
    threads: int


class EndedThreads(NamedTuple):
    """Stacks of ended threads, by the C library's lists of stacks."""

    unjoined: int
    """Threads that have ended and that no one has joined, nor detached."""
    unjoined_bytes: int
    """Of their stacks in RAM, of a core its bytes."""
    unjoined_virtual_bytes: int
    """Addresses of these stacks, with their guards."""
    cached: int
    """Stacks of other ended threads, which are kept for reuse (40 MiB of addresses at most, by default)."""
    cached_virtual_bytes: int
    starts: Sequence[ThreadStart]
    """What most of the unjoined ones ran."""


def find_ended_threads(target: Target, attribution: Attribution, bytes_of: Dict[str, int]) -> Optional[EndedThreads]:
    """Return the stacks of ended threads; None where the lists were not found. `bytes_of`: bytes of each owner, by name."""
    lists = attribution.stacks.lists
    if lists is None:
        return None
    unjoined, cached = lists
    virtual = [sum(end - begin for _, (begin, end), _ in threads) for threads in lists]
    ran = Counter(start for _, _, start in unjoined if start is not None).most_common(MOST_STARTS)
    starts = [ThreadStart(target.function_name(address) or hex(address), count) for address, count in ran]
    return EndedThreads(len(unjoined), bytes_of.get(UNJOINED.name, 0), virtual[0], len(cached), virtual[1], starts)
