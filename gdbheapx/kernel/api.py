"""What the two kernels (C and its Python twin) take and give; both fill exactly these records."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

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

STOP_TOP = 0
"""The walk ended on the top chunk: whole."""
STOP_END = 1
"""The walk ended exactly at the region's end: whole."""
STOP_FENCE = 2
"""`at` is the first fencepost (size field 2*word with or without P) or the terminator (size field 1 or 0)."""
STOP_SMALL = 3
"""Damage: the size field at `at` is below the minimum chunk size (and no fencepost)."""
STOP_MISALIGNED = 4
"""Damage: the size at `at` is no multiple of the alignment."""
STOP_MMAPPED_BIT = 5
"""Damage: the size field at `at` has IS_MMAPPED set inside an arena."""
STOP_OVERRUN = 6
"""Damage: the chunk at `at` reaches beyond the region's end, or past the top chunk."""
STOP_UNREADABLE = 7
"""The header at `at` cannot be read."""
STOP_TIME = 8
"""The caller's bound in time was reached, or Ctrl-C; `at` is the next chunk."""


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


class Region(NamedTuple):
    """One run of chunks without a hole: a heap of an arena, or a piece of the main arena."""

    begin: int
    """Address of the first chunk (its header)."""
    end: int
    """First address that no chunk of the region may reach beyond."""
    top: int
    """Address of the top chunk if it lies in this region, else 0."""
    joined: bool = False
    """Pieces of a main arena that is not contiguous may follow each other: the walk goes on behind fenceposts, and behind top, that end with a page
    where chunks of the main arena stand (N clear) that prove themselves: 16 without contradiction, or up to top, a special or such fenceposts."""


class Residency(NamedTuple):
    """How much of some page ranges of a live process is in RAM, by its page table. A page is one of this machine's."""

    resident_bytes: int
    """In RAM and counted in the process's RSS: what giving the pages back lowers RSS by. The zero page, which reading an untouched page
    maps, is in nobody's RSS; pages shared with a forked process are in the RSS of both."""
    exclusive_bytes: int
    """Those of them that no other process has mapped: what the machine gets back at once. Of a huge page only if the range holds all of it."""
    swapped_bytes: int
    huge_bytes: int
    """Those resident that are part of a huge page; 0 also where the page table cannot tell (PageTable.scans)."""
    unsure_bytes: int
    """Present, and either shared with a forked process or the zero page: neither this kernel nor our rights tell which. In no other sum."""


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
    """Bytes of a MINSIZE chunk that turned out to be a fencepost (it stands directly before a terminator); counted here, not as used. In joined
    regions also all fenceposts between two pieces."""
    largest_free_bytes: int
    interior_bytes: int
    """Whole pages inside maximal runs of adjacent free and fast chunks, by mtrim's rule; runs that border top are left out."""
    interior_resident_bytes: Optional[int]
    """Those of them that are in RAM, as in Residency; this and the next two are None without a page table."""
    interior_exclusive_bytes: Optional[int]
    interior_unsure_bytes: Optional[int]
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
    """Specials within [begin, at] that were met exactly on a chunk boundary."""
    missed_special: int
    """Lowest special (address | kind) within [begin, at) that was on no chunk boundary; 0 if none."""
    missed_specials: int
    histogram: Tuple[Tuple[int, int, int, int, int, int], ...]
    """Non-empty classes: (class, used_chunks, used_bytes, free_chunks, free_bytes, tcache_chunks). Class by `histogram_class`. Fast counts as free;
    top, tcache structs and fences are left out."""

    @property
    def interior_residency(self) -> Optional[Residency]:
        """What of the interior is in RAM, huge pages and swap not counted; None without a page table."""
        if self.interior_resident_bytes is None or self.interior_exclusive_bytes is None or self.interior_unsure_bytes is None:
            return None
        return Residency(self.interior_resident_bytes, self.interior_exclusive_bytes, 0, 0, self.interior_unsure_bytes)


PAGE_COUNTERS = ("interior_resident_bytes", "interior_exclusive_bytes", "interior_unsure_bytes")
"""Members of WalkResult that need a page table."""


class Written(NamedTuple):
    """The pages of some ranges that hold anything but zeros."""

    bounds: Sequence[int]
    """array('Q'): first address and end of each run of such pages, sorted."""
    until: Optional[int]
    """Where the search was cut: what lies from here on is not known and in no run; None: everything was looked at."""


HISTOGRAM_EXACT_BYTES = 1024
"""Chunk sizes up to this have a histogram class of their own."""


def histogram_class(size_bytes: int, alignment_bytes: int) -> int:
    """The class of a chunk size: exact to 1,024 bytes, above that four steps per power of two, upper bound included."""
    if size_bytes <= HISTOGRAM_EXACT_BYTES:
        return size_bytes // alignment_bytes
    power = (size_bytes - 1).bit_length() - 1
    step = ((size_bytes - 1) >> (power - 2)) & 3
    return HISTOGRAM_EXACT_BYTES // alignment_bytes + 1 + (power - 10) * 4 + step


def histogram_bounds(index: int, alignment_bytes: int) -> Tuple[int, int]:
    """(smallest, largest) chunk size of a class."""
    exact = HISTOGRAM_EXACT_BYTES // alignment_bytes
    if index <= exact:
        return index * alignment_bytes, index * alignment_bytes
    power, step = divmod(index - exact - 1, 4)
    quarter = 1 << (power + 8)
    lower = (4 + step) * quarter
    return lower + alignment_bytes, lower + quarter


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
