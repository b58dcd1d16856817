"""Chunks with a mapping of their own: mp_'s counters, and headers that are damaged."""

from bisect import bisect_right
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.errors import UnreadableMemory
from gdbheapx.glibc import codes, mmapped
from gdbheapx.glibc.check.findings import Findings
from gdbheapx.glibc.context import Context, find_reaches, private_mappings, unite_mappings
from gdbheapx.glibc.records import MmappedTotals
from gdbheapx.kernel.glibc.records import MmappedChunk, MmappedSearch
from gdbheapx.problems import Diagnostic, PartialSink
from gdbheapx.ranges import Range, subtract_ranges

PREV_INUSE, MMAPPED, NON_MAIN, FLAGS = 1, 2, 4, 7
MOST_LOOKED_AT = 4096
"""Places where a block may begin."""
MOST_LEAD_BYTES = 64 << 10
MOST_PLACES = 64
"""Alignments that memalign may have been asked for."""
SEARCHED = 1 << 40
"""More chunks than there are: a search for all that lie somewhere."""


def check_mmapped_count(own: Context, findings: Findings, heaps: List[Range], rest: PartialSink) -> None:
    """Find the header that contradicts mp_'s count of mmapped chunks; without one the difference stays a gap of the answer."""
    missing: List[Diagnostic] = []

    def report_problem(code: object, address: object, what: str, hint: Optional[str]) -> None:
        if code == codes.MP_DISAGREES:
            findings.add("mmapped-count", own.glibc.mp.address, what)
        else:
            missing.append(Diagnostic(code, own.glibc.mp.address, what, hint))  # type: ignore[arg-type]

    context = own._replace(report=report_problem)
    try:
        counted = mmapped.read_mmapped_counters(context)
        there = mmapped.find_mmapped_chunks(context, heaps, counted)
    except UnreadableMemory:
        return
    told = 0
    if counted is not None and there.has_searched and own.budget.reason is None:
        look = DamagedHeader(context, heaps, there, counted)
        told = (0 if there.complete else look.tell(findings)) + look.moved_up(findings)
    for diagnostic in missing:
        if not (told and diagnostic.code == codes.MAPPED_MISSING):
            rest(*diagnostic)


class Header(NamedTuple):
    """The words at a place where the header of an mmapped chunk must be."""

    block: int
    """Where its mapping begins."""
    chunk: int
    prev_size: int
    field: int
    """The size field, with flags."""
    total: int
    """Bytes that the mapping must have."""
    agrees: int
    """How many of the offset, the size and the flags are as they must be."""

    @property
    def is_blank(self) -> bool:
        """Zeros, as all fresh memory has."""
        return not (self.prev_size or self.field)


class DamagedHeader:
    """Search for the header that contradicts mp_, which counts mmapped chunks and their bytes. One missing chunk must begin or end where
    a mapping or another chunk does, and has the missing bytes: two of offset, size and flags agree with that, or it exactly fills a place
    that nothing else fits. A chunk that has become larger covers others, whose headers lie inside it; one that has become smaller leaves
    a gap after it.
    """

    def __init__(self, context: Context, heaps: Sequence[Range], there: mmapped.Mmapped, counted: MmappedTotals) -> None:
        self._context, self._there, self._geometry = context, list(there.chunks), context.glibc.geometry
        self._trailer = 2 * self._geometry.word_bytes if context.glibc.traits.mmapped_trailer else 0
        # 2.43 caches mmapped chunks as well
        self._cached_bytes = context.glibc.read_mp(context.target)["tcache_max_bytes"] if self._trailer else 0
        self._missing = (counted.chunks or 0) - len(self._there)
        lost = (counted.bytes or 0) - there.chunks.bytes
        self._lost = lost - lost % self._geometry.page_bytes if mmapped.is_ahead(context, counted) else lost
        others = sorted([*heaps, *context.others()])
        mappings = private_mappings(context.target)
        self._others = others
        self._free = subtract_ranges(unite_mappings(mappings), sorted([*others, *there.chunks.spans()]))
        self._begins = sorted(mmapped.find_mmapped_ranges(context, heaps))
        edges = {edge for mapping in mappings for edge in (mapping.start, mapping.end)}
        self._mapping_edges = frozenset(edges)
        self._edges = edges.union(edge for span in (*self._free, *others) for edge in span)

    def tell(self, findings: Findings) -> int:
        """Adds what is certain; how many."""
        if self._missing < 0:
            return 0
        told = self._grown_over_others(findings) if self._missing else 0
        if not told and self._missing == 1 and self._lost > 0:
            told = self._only_one(findings)
        if not told and self._missing:
            told = self._find_several(findings)
        if not told and not self._missing:
            told = self._find_resized(findings)
        if not told and self._missing and not self._lost:
            what = "mp_ counts %d mapped %s more than there %s, but no byte more: one was freed or resized with the size of several"
            words = ("chunk", "is") if self._missing == 1 else ("chunks", "are")
            findings.add("mmapped-count", self._context.glibc.mp.address, what % (self._missing, *words))
            return 1
        return told

    def _may_begin(self, block: int) -> bool:
        place = bisect_right(self._begins, (block, 1 << 65)) - 1
        return place >= 0 and block < self._begins[place][1]

    # ---- one header

    def _read_header(self, address: int) -> Optional[Tuple[int, int]]:
        """prev_size and the size field; zeros where a process never wrote; None where it cannot be read without bringing a page in."""
        word, target = self._geometry.word_bytes, self._context.target
        if target.kind == "live" and not target.present_ranges(address, address + 2 * word):
            return None if target.touched_ranges(address, address + 2 * word) else (0, 0)
        data = target.read_prefix(address, 2 * word)
        if len(data) < 2 * word:
            return None
        before, field = target.words_in(data)
        return (before & ~1 if self._trailer else before), field

    def _iterate_places(self, block: int, end: int) -> Iterator[int]:
        head, alignment, before = 2 * self._geometry.word_bytes, self._geometry.alignment_bytes, -1
        plain = block + alignment - head
        for _ in range(MOST_PLACES):
            place = -(-(block + head) // alignment) * alignment - head
            if place + head > end:
                return
            if place != before:
                yield place
            if 0 < place - plain < self._geometry.min_chunk_bytes and place + alignment + head <= end:
                yield place + alignment
            before, alignment = place, 2 * alignment

    def _find_header(self, block: int, total: int) -> Optional[Header]:
        """The likeliest header of a block of `total` bytes; None where none can be read."""
        best: Optional[Header] = None
        for place in self._iterate_places(block, block + total):
            words = self._read_header(place)
            if words is None:
                continue
            offset, (prev_size, field) = place - block, words
            agrees = (prev_size == offset) + (field & FLAGS == MMAPPED) + (field & ~FLAGS == total - offset - self._trailer)
            if best is None or agrees > best.agrees:
                best = Header(block, place, prev_size, field, total, agrees)
        return best

    def _choose_rule(self, prev_size: int, field: int, chunk: int) -> str:
        page, geometry = self._geometry.page_bytes, self._geometry
        size, mem = field & ~FLAGS, chunk + 2 * geometry.word_bytes
        is_wild = chunk > -size & ((1 << 8 * geometry.word_bytes) - 1)
        if self._trailer and is_wild:  # 2.43 looks at the size before the flags
            return "mmapped-as-wild"
        if geometry.min_chunk_bytes <= size < self._cached_bytes and field & MMAPPED:
            return "mmapped-size"
        if field & MMAPPED:
            total, inside = prev_size + size + self._trailer, mem % page
            if (chunk - prev_size) % page or total % page or inside & (inside - 1):
                return "mmapped-header"
            return "mmapped-size" if field & FLAGS == MMAPPED else "mmapped-flags"
        if field & NON_MAIN:
            return "mmapped-flags"
        if is_wild:
            return "mmapped-as-wild"
        if size < geometry.min_chunk_bytes or size % geometry.alignment_bytes:
            return "mmapped-as-small"
        return "mmapped-as-used"

    def _add_header(self, findings: Findings, header: Header) -> None:
        what = "an mmapped chunk of 0x%x bytes must be here by mp_'s counters and its neighbours; its header has prev_size 0x%x, size 0x%x"
        rule = self._choose_rule(header.prev_size, header.field, header.chunk)
        findings.add(rule, header.chunk, what % (header.total, header.prev_size, header.field))

    # ---- what is lacking

    def _only_one(self, findings: Findings) -> int:
        """The block that is lacking has the bytes that are lacking."""
        total, page, blocks = self._lost, self._geometry.page_bytes, []  # type: int, int, List[Tuple[int, bool]]
        for start, end in self._free:
            inner = [edge for edge in self._edges if start <= edge <= end]
            starts = {edge for edge in inner if edge + total <= end}.union(edge - total for edge in inner if edge - total >= start)
            blocks += [(block, block in self._edges and block + total in self._edges) for block in sorted(starts) if not block % page]
        blocks = [(block, is_exact) for block, is_exact in blocks if self._may_begin(block)]
        headers = [(self._find_header(block, total), is_exact) for block, is_exact in blocks[:MOST_LOOKED_AT]]
        if any(header is None for header, _ in headers):
            headers = [pair for pair in headers if pair[0] is not None and pair[0].agrees >= 2]  # it may be in what cannot be read
        known = [(header, is_exact) for header, is_exact in headers if header is not None]
        strong = [pair for pair in known if pair[0].agrees >= 2 and not pair[0].is_blank]
        exact = [pair for pair in known if pair[1]]
        written = [pair for pair in exact if not pair[0].is_blank]
        for some in (strong, [pair for pair in strong if pair[1]], written, exact):
            if len(some) == 1:
                self._add_header(findings, some[0][0])
                return 1
            if some and some is strong and len({pair[0].chunk for pair in strong}) > 1 and not any(pair[1] for pair in strong):
                return 0
        return 0

    def _find_several(self, findings: Findings) -> int:
        """Report several damaged headers, and return how many. Candidates are consecutive headers with one thing wrong, from each place
        where mmapped chunks can begin: all of them if their number and bytes are those missing, else those directly after another mmapped
        chunk that have the right flags.
        """
        page, ends = self._geometry.page_bytes, {chunk.block_start + chunk.total_bytes for chunk in self._there}
        chains: List[Header] = []
        for start, end in self._free[:MOST_LOOKED_AT]:
            block = start
            while block < end and len(chains) < MOST_LOOKED_AT:
                header = self._find_next(block, end)
                if header is None:
                    break
                chains.append(header)
                block += header.total
        if len(chains) == self._missing and sum(header.total for header in chains) == self._lost:
            sure = chains
        else:
            mapped = [header for header in chains if header.field & FLAGS == MMAPPED and header.prev_size % page == 0]
            sure = [header for header in mapped if header.block in ends]
        for header in sure[: self._missing]:
            self._add_header(findings, header)
        return min(len(sure), self._missing)

    def _find_next(self, block: int, end: int) -> Optional[Header]:
        """A damaged header of the block that begins here: the size is plausible, or the flags are right and it goes on to the end."""
        page = self._geometry.page_bytes
        for place in self._iterate_places(block, end):
            words = self._read_header(place)
            if words is None or not words[1]:
                continue
            offset, (prev_size, field) = place - block, words
            total = offset + (field & ~FLAGS) + self._trailer
            fits = not total % page and 0 < total <= end - block and field & ~FLAGS >= self._geometry.min_chunk_bytes
            is_mapped, is_placed = field & FLAGS == MMAPPED, prev_size == offset
            if fits and is_mapped + is_placed == 1:
                return Header(block, place, prev_size, field, total, 2)
            if is_mapped and is_placed and not fits:
                return Header(block, place, prev_size, field, end - block, 2)
        return None

    # ---- what memalign moved

    def moved_up(self, findings: Findings) -> int:
        """memalign moves the header of a mapped block up and leaves the old one behind (_int_memalign), which tells the same block: where
        nothing but zeros lies between that and another header of which the offset or the size is right, what else that says is wrong."""
        told, plain = 0, self._geometry.alignment_bytes - 2 * self._geometry.word_bytes
        for chunk in self._there[:MOST_LOOKED_AT]:
            block, end = chunk.block_start, chunk.block_start + chunk.total_bytes
            if chunk.chunk != block + plain:
                continue
            for place in self._iterate_places(block, end):
                words = self._read_header(place) if place > chunk.chunk else (0, 0)
                if words is None:
                    break
                if any(words):
                    size = chunk.total_bytes - (place - block) - self._trailer
                    if (words[0] == place - block or words[1] & ~FLAGS == size) and self._is_blank(chunk.chunk, place):
                        self._add_header(findings, Header(block, place, words[0], words[1], chunk.total_bytes, 1))
                        told += 1
                    break
        return told

    def _is_blank(self, chunk: int, place: int) -> bool:
        """Zeros from the memory of the chunk that is left behind to the header further in."""
        start = chunk + 2 * self._geometry.word_bytes
        end = min(place, start + MOST_LEAD_BYTES)
        parts = self._context.target.present_ranges(start, end) if self._context.target.kind == "live" else [(start, end)]
        return not any(self._context.target.read_prefix(low, high - low).strip(b"\0") for low, high in parts)

    # ---- what is there, and of another size

    def _grown_over_others(self, findings: Findings) -> int:
        """Headers of mmapped chunks that lie inside another one, as many as are lacking at most."""
        page, told, met = self._geometry.page_bytes, 0, 0
        ranges: List[Range] = []
        owners: List[MmappedChunk] = []
        for chunk in self._there[:MOST_LOOKED_AT]:
            start, end = max(chunk.block_start + page, -(-(chunk.chunk + 1) // page) * page), chunk.block_start + chunk.total_bytes
            if start < end:
                ranges.append((start, end))
                owners.append(chunk)
        if not ranges:
            return 0
        taken = sorted([*self._others, *((chunk.block_start, chunk.block_start + chunk.total_bytes) for chunk in self._there)])
        limits = find_reaches(self._context.target, [(end, end) for _, end in ranges], taken)
        ram, data = self._context.ram.pages, self._context.target.data_ranges(ranges)
        search = MmappedSearch(bool(self._trailer), SEARCHED, SEARCHED, ram, data or (), limits=limits)
        inner = list(self._context.walker.scan_mmapped(ranges, search).chunks)
        for chunk in owners:
            inside = [other for other in inner if chunk.block_start < other.block_start < chunk.block_start + chunk.total_bytes]
            met += len(inside)
            if inside and met <= self._missing:
                told += 1
                what = "the header of this mmapped chunk has size 0x%x, but another mmapped chunk begins inside it, at 0x%x"
                findings.add("mmapped-size", chunk.chunk, what % (chunk.size_bytes, inside[0].chunk))
        return told

    def _find_resized(self, findings: Findings) -> int:
        """Report the chunk whose changed size explains the difference, where all chunks are present but their bytes are not what mp_
        counts. Return 1, or 0 if no chunk or more than one explains it.
        """
        page, change = self._geometry.page_bytes, abs(self._lost)
        starts, ends = dict(self._free), {end: start for start, end in self._free}
        filled: List[MmappedChunk] = []
        exact: List[MmappedChunk] = []
        some: List[MmappedChunk] = []
        for chunk in self._there:
            block, end = chunk.block_start, chunk.block_start + chunk.total_bytes
            is_plain = chunk.chunk - block < page
            if self._lost > 0:
                behind, before = starts.get(end, end) - end, 0 if is_plain else block - ends.get(block, block)
                fits = behind >= change or before >= change
                is_exact = (behind >= change and end + change in self._edges) or (before >= change and block - change in self._edges)
                filled += [chunk] * (change in (behind, before))
            else:
                fits = chunk.total_bytes > change
                is_exact = fits and (end - change in self._mapping_edges or (not is_plain and block + change in self._mapping_edges))
            some += [chunk] * fits
            exact += [chunk] * is_exact
        changed = next((group[0] for group in (filled, exact, some) if len(group) == 1), None)
        if changed is None or change % page:
            return 0
        what = "its header says that its mapping has 0x%x bytes (prev_size 0x%x, size 0x%x); mp_ counts 0x%x bytes %s in all of them"
        offset, word = changed.chunk - changed.block_start, "more" if self._lost > 0 else "fewer"
        findings.add("mmapped-size", changed.chunk, what % (changed.total_bytes, offset, changed.size_bytes, change, word))
        return 1
