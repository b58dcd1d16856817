"""Input and results of walks over glibc's chunks, and of searches for mmapped ones; both kernels fill exactly these records."""

from array import array
from operator import add
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import PageTable
from gdbheapx.kernel.common.library import Residency

SPECIAL_FAST = 1
SPECIAL_TCACHE = 2
SPECIAL_TCACHE_STRUCT = 3
"""A special chunk is written as `chunk address | SPECIAL_x`: the low three bits of a chunk address are always 0."""

STATUS_USED = 0
STATUS_FAST = 1
STATUS_TCACHE = 2
STATUS_TCACHE_STRUCT = 3
STATUS_FREE = 4
STATUS_TOP = 5
STATUS_FENCE = 6
"""Statuses of chunks; the first four equal the SPECIAL_ numbers so that one table serves both."""
STATUS_MAPPED = 7
STATUS_MAPPED_TCACHE = 8
"""Of chunks with a mapping of their own, which no walk meets: used, or in a thread cache."""


class Geometry(NamedTuple):
    """Arithmetic of one glibc malloc build, taken from the target."""

    word_bytes: int
    """SIZE_SZ: 8 or 4."""
    alignment_bytes: int
    """MALLOC_ALIGNMENT: 16, or 8 on some ILP32 builds."""
    min_chunk_bytes: int
    """MINSIZE."""
    chunk_struct_bytes: int
    """sizeof(struct malloc_chunk): 6 words; mtrim keeps that much at the start of a free chunk."""
    page_bytes: int
    little_endian: bool
    is_tagged: bool = False
    """glibc.mem.tagging has malloc tag its blocks, in granules of 16 bytes: none shares one with the header behind it."""

    @property
    def overhead_bytes(self) -> int:
        """Return the bytes of a chunk that the program may not use: its size field, and with tags the next one's prev_size (malloc.c:
        memsize).
        """
        return (2 if self.is_tagged else 1) * self.word_bytes


class Region(NamedTuple):
    """A run of chunks without a hole: a heap of an arena, or a piece of the main arena."""

    begin: int
    """Address of the first chunk (its header)."""
    end: int
    """First address that no chunk of the region may reach beyond."""
    top: int
    """Address of the top chunk if it lies in this region, else 0."""
    joined: bool = False
    """Pieces of a main arena that is not contiguous may follow each other: the walk goes on behind fenceposts, and behind top, that end
    with a page where chunks of the main arena stand (N clear) that prove themselves: 16 without contradiction, or up to top, a special or
    such fenceposts."""


class NativeListed(NamedTuple):
    """A region whose chunks are listed."""

    region: Region
    arena: int
    """Index, or NO_ARENA."""


class WalkResult(NamedTuple):
    """Totals of the chunks met from region.begin up to `at`. Sizes include headers."""

    stop: int
    """A STOP_ number."""
    at: int
    """Where the walk ended: the first chunk that is not counted (for STOP_TOP the top chunk, which is counted)."""
    used_chunks: int
    used_bytes: int
    tcache_chunks: int
    tcache_bytes: int
    fast_chunks: int
    fast_bytes: int
    free_chunks: int
    """Chunks whose successor's PREV_INUSE is clear: those in bins."""
    free_bytes: int
    tcache_struct_chunks: int
    tcache_struct_bytes: int
    top_bytes: int
    fence_bytes: int
    """Bytes of a MINSIZE chunk that turned out to be a fencepost (it stands directly before a terminator); counted here, not as used. In
    joined regions also all fenceposts between two pieces."""
    largest_free_bytes: int
    interior_bytes: int
    """Whole pages inside maximal runs of adjacent free and fast chunks, by mtrim's rule; runs that border top are left out."""
    interior_resident_bytes: Optional[int]
    """Those of them that are in RAM, as in Residency; this and the next three are None without a page table."""
    interior_exclusive_bytes: Optional[int]
    interior_unsure_bytes: Optional[int]
    interior_huge_bytes: Optional[int]
    interior_ranges: int
    """Number of such runs with at least one whole page."""
    top_run_start: int
    """Start of the run of free and fast chunks that borders top (malloc_consolidate merges it into top); 0 if none."""
    free_sum: int
    """Sum modulo 2**64 of the addresses of the free chunks met."""
    fd_sum: int
    """Sum modulo 2**64 of their fd words."""
    bk_sum: int
    """Sum modulo 2**64 of their bk words."""
    bad_prev_size: int
    """Address of the first free chunk whose successor's prev_size differs from its size; 0 if none."""
    bad_prev_size_chunks: int
    bad_neighbour: int
    """Address of the first free chunk that directly follows another free chunk; 0 if none."""
    bad_neighbour_chunks: int
    further_pieces: int
    """Pieces met beyond the first: joined regions."""
    specials_met: int
    """Cached chunks within [begin, at] that were met exactly on a chunk boundary."""
    missed_special: int
    """Lowest special (address | kind) within [begin, at) that was on no chunk boundary; 0 if none."""
    missed_specials: int
    histogram: Tuple[Tuple[int, int, int, int, int, int], ...]
    """Non-empty classes: (class, used_chunks, used_bytes, free_chunks, free_bytes, tcache_chunks). Class by `histogram_class`. Fast counts
    as free; top, tcache structs and fences are left out."""

    @property
    def interior_residency(self) -> Optional[Residency]:
        """Return the resident part of the interior, without swap; None without a page table."""
        resident, exclusive, unsure = self.interior_resident_bytes, self.interior_exclusive_bytes, self.interior_unsure_bytes
        if resident is None or exclusive is None or unsure is None or self.interior_huge_bytes is None:
            return None
        return Residency(resident, exclusive, 0, self.interior_huge_bytes, unsure)


PAGE_COUNTERS = ("interior_resident_bytes", "interior_exclusive_bytes", "interior_unsure_bytes", "interior_huge_bytes")
"""Members of WalkResult that need a page table."""


def add_results(parts: Sequence[WalkResult]) -> Optional[WalkResult]:
    """The parts as one: counters added, first damage kept, `stop` and `at` of the last; None for no parts.

    The residency of the interior is None if it is None in any part.
    """
    if len(parts) < 2:
        return parts[0] if parts else None
    added: Dict[str, object] = {}
    for name in WalkResult._fields:
        values = [getattr(part, name) for part in parts]
        if name in ("stop", "at"):
            added[name] = values[-1]
        elif name == "largest_free_bytes":
            added[name] = max(values)
        elif name in ("top_run_start", "bad_prev_size", "bad_neighbour", "missed_special"):
            added[name] = next((value for value in values if value), 0)
        elif name in PAGE_COUNTERS:
            added[name] = None if None in values else sum(values)
        elif name in ("free_sum", "fd_sum", "bk_sum"):
            added[name] = sum(values) & 0xFFFFFFFFFFFFFFFF
        elif name == "histogram":
            added[name] = add_histograms(values)
        else:
            added[name] = sum(values)
    return WalkResult(**added)  # type: ignore[arg-type]


def add_histograms(parts: Sequence[Sequence[Tuple[int, int, int, int, int, int]]]) -> Tuple[Tuple[int, int, int, int, int, int], ...]:
    """Histograms added class by class, sorted by class."""
    rows: Dict[int, List[int]] = {}
    for part in parts:
        for row in part:
            mine = rows.setdefault(row[0], [0, 0, 0, 0, 0])
            for place, value in enumerate(row[1:]):
                mine[place] += value
    return tuple((index, row[0], row[1], row[2], row[3], row[4]) for index, row in sorted(rows.items()))


class MmappedChunk(NamedTuple):
    """A chunk that has a mapping of its own."""

    chunk: int
    """Header address."""
    size_bytes: int
    """Chunk size as its size field says."""
    block_start: int
    """First address of the mapping (chunk - prev_size)."""
    total_bytes: int
    """Length of the whole mapping: what mp_.mmapped_mem counts."""


class MmappedChunks(Sequence[MmappedChunk]):
    """Mapped chunks by address, held as columns: a process can have 200,000, and most of who asks wants a sum."""

    def __init__(self, flat: "array[int]") -> None:
        """`flat`: array('Q'), the members of one MmappedChunk after the other."""
        self.chunks, self.sizes, self.blocks, self.totals = (flat[place::4] for place in range(4))

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[MmappedChunk]:
        return map(MmappedChunk, self.chunks, self.sizes, self.blocks, self.totals)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return list(self)[place]
        return MmappedChunk(self.chunks[place], self.sizes[place], self.blocks[place], self.totals[place])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def bytes(self) -> int:
        """Their whole mappings."""
        return sum(self.totals)

    def spans(self) -> List[Tuple[int, int]]:
        """(first address, end) of their mappings, those side by side as one."""
        ends = array("Q", map(add, self.blocks, self.totals))
        starts = [place for place, (end, block) in enumerate(zip(ends, self.blocks[1:]), 1) if end != block]
        first = [0, *starts] if len(self) else []
        return [(self.blocks[low], ends[high - 1]) for low, high in zip(first, [*starts, len(self)])]


class MmappedSearch(NamedTuple):
    """Bounds and goal of a search for mmapped chunks."""

    has_trailer: bool
    """The layout of glibc 2.43 (malloc.c: mmap_size)."""
    wanted_chunks: int
    """mp_.n_mmaps."""
    wanted_bytes: int
    """mp_.mmapped_mem."""
    pages: Optional[PageTable] = None
    """Pages that are not in RAM are not looked at; a swapped one only where a block is likely to begin. None: all are."""
    data: Sequence[Tuple[int, int]] = ()
    """Sorted ranges outside which nothing but zeros lies: what a core has in its file. Empty: anywhere something may lie."""
    known: Sequence[int] = ()
    """Chunks that an earlier search found: looked at first."""
    most_pages: Optional[int] = None
    """Pages to look at one by one after the likely places; None for no bound."""
    limits: Sequence[int] = ()
    """How far a block may reach that begins in a range, one for each: a program may protect a part of it. Empty: to the range's end."""

    def limits_of(self, ranges: Sequence[Tuple[int, int]]) -> Sequence[int]:
        """Return the limit of each range."""
        return self.limits or [end for _, end in ranges]


class MmappedFound(NamedTuple):
    """Result of a search for mmapped chunks."""

    chunks: MmappedChunks
    complete: bool
    """Their number and bytes are the wanted ones (adds_up)."""
    cut: bool
    """More pages would have had to be looked at than most_pages."""


def adds_up(chunks: int, bytes_: int, search: MmappedSearch, word_bytes: int) -> bool:
    """So many mapped chunks of so many bytes are all of them.

    With the layout of glibc 2.43 mp_.mmapped_mem may be ahead by any number of trailers of two words: mremap_chunk (malloc.c) subtracts
    chunksize, which has no trailer, and adds the whole mapping.
    """
    ahead = search.wanted_bytes - bytes_
    return chunks == search.wanted_chunks and (ahead == 0 or (search.has_trailer and ahead > 0 and ahead % (2 * word_bytes) == 0))
