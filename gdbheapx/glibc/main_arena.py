"""Find the main arena's pieces: one run from brk, with holes where other code called sbrk, or pieces from mmap where brk failed.

malloc.c: sysmalloc. Holes lie between two fenceposts and the next run, whose start is stored nowhere: it is found by the chunk
sizes that lead onto a chunk known from a free list, or onto top.

Pieces of a main arena that is not contiguous each start on a page and come from mmap (malloc.c: sysmalloc_mmap_fallback); no field says
where they are. Chunks that are known from elsewhere (top, those at both ends of each bin, those on single lists) say in which ranges of
memory; in each the lowest page from which chunk sizes lead onto one of them, or onto fenceposts, begins the first piece. From there the
native library walks on from piece to piece (kernel.glibc.records.Region.joined), and what lies beyond its end is searched again. All of it
ascends, so that a range is passed once. What is then missing of system_mem is searched by every chunk in the bins, and last in ranges
that hold no known chunk. The main heap of a core that lost main_arena: the chunks are there although no field says any more where they
begin and end. After damage the walk goes on at the next place that is surely a chunk.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Dict, List, NamedTuple, Optional, Sequence

from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.hints import hint_command
from gdbheapx.common.ranges import Range, subtract_ranges
from gdbheapx.glibc import codes
from gdbheapx.glibc.arenas import Arena, ArenaWalk, Context, anonymous_ranges
from gdbheapx.glibc.freelists import KIND_BITS, collect_bin_members
from gdbheapx.glibc.layouts import align_chunk
from gdbheapx.kernel.blocks.stream import NO_ARENA
from gdbheapx.kernel.common import library
from gdbheapx.kernel.glibc.records import STATUS_USED, NativeListed, Region, WalkResult

KNOWN_AT_ONCE = 4096
"""Known chunks in a range that a chain may lead onto: the nearest ones."""
REACH_BYTES = 64 << 20
"""So far before a known chunk its piece is taken to begin, at first: what lies between may be anybody's, and is looked at page by page."""
NON_MAIN = 4
MIN_CHUNKS = 16
"""A range with fewer chunks in an unbroken run may be anything."""


def first_regions(context: Context, walk: ArenaWalk) -> List[Region]:
    """The run that starts at mp_.sbrk_base if that came from brk; none for an arena that was never used."""
    arena, target, glibc = walk.arena, context.target, context.glibc
    if not arena.top:
        return []
    try:
        base = glibc.read_mp(target)["sbrk_base"]
        top_size = arena.read_top_size(target, glibc)
    except UnreadableMemory as problem:
        walk.report(codes.TOP_UNREADABLE, problem.address, "cannot read mp_ or the top chunk of main_arena", "its bytes count as unparsed")
        walk.unparsed_bytes += walk.system_bytes
        return []
    begin = align_chunk(base, glibc.geometry)
    if arena.is_contiguous:
        end = arena.top + top_size
        if end - base != walk.system_bytes:
            hint = "see `%s` and `%s`" % (hint_command("tunables"), hint_command("doctor"))
            walk.report(codes.BREAK_DISAGREES, arena.top, "main_arena: sbrk_base, top and system_mem do not agree", hint)
            end = max(end, base + walk.system_bytes) if base < end <= _mapped_end(context, base) else base + walk.system_bytes
    else:
        end = break_above(context, base)
        if not end:
            return []  # from mmap, as all others: Pieces finds it
        if base <= arena.top < end:
            end = arena.top + top_size
    end = min(end, library.ADDRESS_MASK)  # a damaged system_mem or top may lead beyond all addresses
    if not base or end <= begin:
        walk.unparsed_bytes += walk.system_bytes
        return []
    walk.overhead_bytes += begin - base
    walk.pieces = 1
    return [Region(begin, end, arena.top if begin <= arena.top < end else 0)]


def break_above(context: Context, base: int) -> int:
    """The program break if `base` came from brk and not from mmap, else 0."""
    value = context.glibc.break_address(context.target) or 0
    return value if base < value <= _mapped_end(context, base) else 0


def _mapped_end(context: Context, address: int) -> int:
    """End of the writable memory that goes on without a hole from `address`; hugepage advice splits [heap] into several mappings."""
    end = address
    for mapping in context.target.mappings():
        if mapping.start <= end < mapping.end and mapping.writable:
            end = mapping.end
    return end


def fence_end(context: Context, at: int) -> int:
    """Return where a piece ends by its two or three fenceposts of 2 words at `at` (sysmalloc), or 0. Where the alignment exceeds 2 words,
    the old top's size is rounded down, and less than one unit lies between.
    """
    word, align = context.glibc.geometry.word_bytes, context.glibc.geometry.alignment_bytes
    count = 0
    while count < 3:
        try:
            size = context.target.read_word(at + 2 * word * count + word) & ~7
        except UnreadableMemory:
            break
        if size != 2 * word:
            break
        count += 1
    return -(-(at + 2 * word * count) // align) * align if count >= 2 else 0


def run_behind(context: Context, walk: ArenaWalk, region: Region, end: int, cached_chunks: Sequence[int]) -> Optional[Region]:
    """Return the run of chunks that goes on in the region after a foreign sbrk, which took memory from `end` on; None if there is none. It
    begins at the lowest place whose chunks lead onto the first chunk that a list names, or top, or onto fenceposts before it; at that chunk
    at the latest. Only that one counts as a goal: foreign bytes that happen to look like a size would jump over the true start and over
    known chunks.
    """
    chunks = [region.top] if region.top >= end else []
    for known in (collect_bin_members(context, walk), cached_chunks):
        place = bisect_left(known, end)
        chunks += [int(chunk) & ~KIND_BITS for chunk in known[place : place + 1]]
    first = start = min((chunk for chunk in chunks if chunk < region.end), default=None)
    if first is not None:
        low = align_chunk(end, context.glibc.geometry)
        found = context.walker.find_chain(low, first, array("Q", [first]), strict=True, fences=True)
        start = first if found is None else found
    if context.budget.expired():
        start = end  # where the walk ends for lack of time
    elif start is not None:
        walk.foreign_bytes += start - end
    elif walk.arena.is_contiguous:
        message = "main_arena: cannot find the run of chunks after a foreign sbrk"
        walk.report(codes.RUN_NOT_FOUND, end, message, "its bytes count as unparsed")
        walk.unparsed_bytes += region.end - end
    return None if start is None else region._replace(begin=start, top=region.top if region.top >= start else 0)


class Pieces:
    """The search for them, stage by stage; each stage passes through memory once."""

    def __init__(self, context: Context, walk: ArenaWalk, cached_chunks: Sequence[int], taken: Sequence[Range]) -> None:
        self._context, self._walk, self._cached_chunks = context, walk, cached_chunks
        self._left = subtract_ranges(anonymous_ranges(context.target), sorted(taken))
        """Ranges that no run has passed yet."""
        self._open: Dict[int, int] = {}
        """End of each range that is being passed -> where its next piece can begin."""
        self._known: Sequence[int] = ()
        self._stages = [self._ends_of_lists, self._behind_fences, self._find_by_bins, self._find_unanchored, self._find_farther]
        self._reach: Optional[int] = REACH_BYTES
        self._passed = 0

    def missing(self) -> int:
        """system_mem less what was walked."""
        walk = self._walk
        return walk.system_bytes - walk.overhead_bytes - walk.unparsed_bytes - walk.walked_bytes

    def following(self) -> List[Region]:
        """Regions to walk next; none if nothing lacks, or nothing more is found. What was walked meanwhile is left out."""
        self._pass_runs()
        while self.missing() > 0 and not self._context.budget.expired():
            regions = self._next_in_ranges()
            if not regions and not self._stages:
                break
            regions = regions or self._stages.pop(0)()
            if regions:
                self._walk.pieces += len(regions)
                return regions
        return []

    def _pass_runs(self) -> None:
        """Take off what was walked since the last time, and the pieces that were met on the way."""
        page, runs = self._context.glibc.geometry.page_bytes, self._walk.runs[self._passed :]
        self._passed += len(runs)
        walked = []
        for region, result in runs:
            end = -(-(result.at + (result.top_bytes if result.stop == library.STOP_TOP else 0)) // page) * page
            walked.append((region.begin & -page, end))
            self._walk.pieces += result.further_pieces
            if region.end in self._open:
                self._open[region.end] = max(self._open[region.end], end)
        walked += [(end, region.end) for region, end in self._walk.behind_fences]  # of the break, where no piece begins
        self._left = subtract_ranges(self._left, sorted(walked))

    def _next_in_ranges(self) -> List[Region]:
        """The next stretch of pieces in each range that is being passed."""
        regions = []
        for high, low in sorted(self._open.items()):
            start = self._find_start(low, high)
            if start is None:
                del self._open[high]
            else:
                self._open[high] = start
                regions.append(self._make_region(start, high))
        return regions

    def _make_region(self, begin: int, high: int) -> Region:
        geometry, top = self._context.glibc.geometry, self._walk.arena.top
        self._walk.overhead_bytes += begin - (begin & -geometry.page_bytes)
        return Region(begin, high, top if begin <= top < high else 0, True)

    def _find_start(self, low: int, high: int) -> Optional[int]:
        """The lowest page in [low, high) whose chunks lead onto something known, as the address of its first chunk."""
        context, geometry = self._context, self._context.glibc.geometry
        place = bisect_left(self._known, low)
        while not context.budget.expired():
            known = array("Q", self._known[place : place + KNOWN_AT_ONCE])
            known = known[: bisect_right(known, high)]
            if not known:
                return None
            page, last = geometry.page_bytes, known[-1] + 1
            if self._reach is not None:
                low = max(low, (known[0] - self._reach) & -page)
            first = context.walker.find_chain(low, last, known, fences=True, step=page)
            if first is not None:
                return first
            place += len(known)
            low = -(-last // page) * page
        return None

    def _enter_known(self, known: Sequence[int]) -> None:
        """Pass through the ranges that hold known chunks."""
        self._known = known
        for low, high in self._left:
            place = bisect_left(known, low)
            if place < len(known) and known[place] <= high:
                self._open[high] = low

    def _ends_of_lists(self) -> List[Region]:
        """Known without following any bin: top, the first piece, both ends of each bin, and the first chunk of each range that a single
        list names."""
        context, walk = self._context, self._walk
        known = {walk.arena.top, align_chunk(context.glibc.read_setting(context.target, "sbrk_base") or 0, context.glibc.geometry)}
        known.update(walk.arena.state.numbers("bins"))
        chunks = self._cached_chunks
        for low, high in self._left:
            place = bisect_left(chunks, low)
            chunk = chunks[place] & ~KIND_BITS if place < len(chunks) else high
            if chunk < high and not _size_field(context, chunk) & NON_MAIN:
                known.add(chunk)
        self._enter_known(array("Q", sorted(chunk for chunk in known if chunk)))
        return []

    def _behind_fences(self) -> List[Region]:
        """Find runs of the break after a foreign sbrk: their begin takes a walk over all bins."""
        left, self._walk.behind_fences = self._walk.behind_fences, []
        regions = [run_behind(self._context, self._walk, region, end, self._cached_chunks) for region, end in left]
        if any(regions):
            self._stages.insert(0, self._behind_fences)  # they may end in fenceposts as well
        return [region for region in regions if region is not None]

    def _find_by_bins(self) -> List[Region]:
        """Every chunk in the bins."""
        self._enter_known(collect_bin_members(self._context, self._walk))
        return []

    def _find_unanchored(self) -> List[Region]:
        """Pieces without any free chunk: ranges whose chunks end in fenceposts on a page, and are not too long."""
        context, page = self._context, self._context.glibc.geometry.page_bytes
        geometry, probes = context.glibc.geometry, []
        for low, high in self._left:
            field = _size_field(context, align_chunk(low, geometry))
            if field & 7 == 1 and field >= geometry.min_chunk_bytes:  # of the main arena, after one in use, as a piece's first chunk
                probes.append(Region(align_chunk(low, geometry), min(high, low + self.missing()), 0, True))
        results = context.walker.walk(probes, array("Q"))
        regions, missing = [], self.missing()
        for probe, result in zip(probes, results):
            end = fence_end(context, result.at) if result.stop == library.STOP_FENCE else 0
            if result.used_chunks and end and end % page == 0 and end - probe.begin <= missing:
                missing -= end - (probe.begin & -page)
                regions.append(self._make_region(probe.begin, probe.end))
        return regions

    def _find_farther(self) -> List[Region]:
        """However far from its first known chunk a piece begins: what was walked is known as well."""
        self._reach = None
        self._enter_known(
            array("Q", sorted({*collect_bin_members(self._context, self._walk), *(region.begin for region, _ in self._walk.runs)}))
        )
        return []


def _size_field(context: Context, chunk: int) -> int:
    """The size field of a chunk; 0 if it cannot be read."""
    try:
        return context.target.read_word(chunk + context.glibc.geometry.word_bytes)
    except UnreadableMemory:
        return 0


class Remnant(NamedTuple):
    """A run of chunks that fills an anonymous range from its first byte: the heap in brk."""

    region: Region
    result: WalkResult
    """Its last chunk, counted as used by the walk, is taken off: it is top, or the one at which the core was cut."""
    top_bytes: int
    """0 if the run does not reach the end of the range."""


def find_remnant(context: Context, walks: Sequence[ArenaWalk]) -> Optional[Remnant]:
    """The longest such run outside the arenas that were found; None if there is none."""
    geometry = context.glibc.geometry
    best: Optional[Remnant] = None
    taken = sorted((heap.address, heap.address + heap.mprotect_size_bytes) for walk in walks for heap in walk.heaps)
    for low, high in subtract_ranges(anonymous_ranges(context.target), taken):
        region, last, top = Region(align_chunk(low, geometry), high, 0), None, 0
        result = context.walker.walk([region], array("Q"))[0]
        if result.used_chunks < MIN_CHUNKS or result.stop not in (library.STOP_END, library.STOP_UNREADABLE, library.STOP_OVERRUN):
            continue
        for blocks in context.walker.blocks([NativeListed(region, NO_ARENA)], array("Q")):
            last = blocks
        if last is not None and last.kinds[-1] == STATUS_USED and result.stop == library.STOP_END:
            top = last.usable_bytes[-1] + geometry.overhead_bytes
            result = result._replace(used_chunks=result.used_chunks - 1, used_bytes=result.used_bytes - top)
        if best is None or result.used_bytes + result.free_bytes > best.result.used_bytes + best.result.free_bytes:
            best = Remnant(region, result, top)
    return best


def next_start(context: Context, arena: Arena, damage: Range, cached_chunks: Sequence[int], members: Sequence[int]) -> Optional[int]:
    """Return the lowest address after the damage from which chunk sizes lead exactly onto a chunk known from elsewhere: those on free lists
    and top. None if there is none before the region's end: then the rest is lost. `damage`: its address, and the end of the region. Known
    chunks are taken in ascending lots: the next ones are nearly always enough, and there may be millions.
    """
    geometry, word = context.glibc.geometry, context.glibc.geometry.word_bytes
    (at, end), low = damage, align_chunk(damage[0] + 1, geometry)
    while at < end:
        lots = [known[place : place + KNOWN_AT_ONCE] for known in (cached_chunks, members) for place in [bisect_left(known, at + 8)]]
        full = [int(lot[-1]) & ~KIND_BITS for lot in lots if len(lot) == KNOWN_AT_ONCE]
        until = min([*full, end - 1])
        chunks = {int(chunk) & ~KIND_BITS for lot in lots for chunk in lot}.union([arena.top] if arena.top else ())
        aligned = (chunk for chunk in chunks if at < chunk <= until and align_chunk(chunk, geometry) == chunk)
        ordered = array("Q", sorted(aligned))
        for number, anchor in enumerate(ordered):
            if len(context.target.read_prefix(anchor, 2 * word)) == 2 * word:
                start = context.walker.find_chain(low, anchor, ordered[number:])
                return anchor if start is None else start
        if context.budget.expired():
            break
        at = until if full else end
    return None
