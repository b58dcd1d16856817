"""What both kernels are: the functions, and the few records that only they give."""

from abc import abstractmethod
from typing import List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.api import (
    STATUS_FAST,
    STATUS_FENCE,
    STATUS_FREE,
    STATUS_TCACHE,
    STATUS_TCACHE_STRUCT,
    STATUS_TOP,
    STATUS_USED,
    BinResult,
    Geometry,
    ListResult,
    MmappedChunk,
    Region,
    WalkResult,
)
from gdbheapx.kernel.batches import Batches
from gdbheapx.kernel.extents_base import ExtentsKernel
from gdbheapx.target.base import BulkSource

PROBLEMS = (None, "unaligned", "unreadable", "too long", "bk of the next chunk points elsewhere")
"""ListResult.problem and BinResult.problem by the C kernel's number."""

ALL_STATUSES = frozenset(
    (STATUS_USED, STATUS_FAST, STATUS_TCACHE, STATUS_TCACHE_STRUCT, STATUS_FREE, STATUS_TOP, STATUS_FENCE)
)

ADDRESS_MASK = 0xFFFFFFFFFFFFFFFF

FIRST_SLICE_SECONDS = 0.02
SLICE_SECONDS = 0.1
"""How long a kernel works before it asks the budget again: short at first, for small bounds."""

Row = Tuple[int, int, int]
"""A ListedChunk's fields as a plain tuple: chunk, size_bytes, status."""


class Residency(NamedTuple):
    """How much of some page ranges of a live process is in memory, by its pagemap."""

    exclusive_bytes: int
    """Present and mapped by this process alone (bits 63 and 56): what giving the pages back lowers RSS by."""
    present_bytes: int
    """Present at all (bit 63): with pages shared after fork and the zero page."""
    swapped_bytes: int
    """In swap (bit 62)."""


class Listing(Batches[Row]):
    """Lists of (chunk, size_bytes, status).

    The chunks are those that `walk` counts, top included; a first fencepost or terminator is where it ends and is not listed.
    """


def adds_up(chunks: int, bytes_: int, wanted_chunks: int, wanted_bytes: int, trailer_bytes: int) -> bool:
    """All mapped chunks are found.

    With the layout of glibc 2.43 (trailer_bytes not 0) mp_.mmapped_mem may be ahead by any number of trailers: mremap_chunk (malloc.c)
    subtracts chunksize, which has no trailer, and adds the whole mapping.
    """
    ahead = wanted_bytes - bytes_
    return chunks == wanted_chunks and (ahead == 0 or (trailer_bytes > 0 and ahead > 0 and ahead % trailer_bytes == 0))


class Kernel(ExtentsKernel):
    """The functions; `name` says which implementation answers. Those for jemalloc are in ExtentsKernel."""

    name = ""
    """`c` or `python`."""
    why: Optional[str] = None
    """Why the C kernel is not in use; None if it is."""

    @abstractmethod
    def walk(
        self,
        source: BulkSource,
        geometry: Geometry,
        regions: Sequence[Region],
        specials: Sequence[int],
        budget: Budget,
        pagemap_pid: Optional[int] = None,
        threads: Optional[int] = None,
    ) -> List[WalkResult]:
        """One result per region, in order.

        `specials`: sorted array('Q') of `chunk | SPECIAL_x` for all regions. `pagemap_pid`: fill interior_resident_bytes from
        that process's pagemap. `threads`: None for as many as there are processors, up to 8; results do not depend on it.
        When the budget expires, or at Ctrl-C, unfinished regions end with STOP_TIME.
        A special whose successor's PREV_INUSE is clear is counted as free. fd and bk that cannot be read count as 0 in the sums.
        """

    @abstractmethod
    def list_chunks(
        self,
        source: BulkSource,
        geometry: Geometry,
        region: Region,
        specials: Sequence[int],
        budget: Budget,
        min_size: int = 0,
        max_size: Optional[int] = None,
        statuses: Optional[Set[int]] = None,
    ) -> Listing:
        """The chunks of a region one by one, in batches; both size bounds belong to what is listed."""

    @abstractmethod
    def collect_list(
        self, source: BulkSource, geometry: Geometry, head: int, link_offset: int, mangled: bool, limit: int, mem_offset: int = 0
    ) -> ListResult:
        """Follows a singly linked list from its first entry to a null link.

        `mem_offset`: from an entry to what malloc returned, which must be aligned: 0 for tcache entries, 2 words for fastbin
        chunks. `mangled`: links are protected (malloc.c: PROTECT_PTR). An entry with a problem is not among the entries.
        """

    @abstractmethod
    def walk_bin(self, source: BulkSource, geometry: Geometry, header: int, limit: int, want_members: bool = False) -> BinResult:
        """Follows fd from a bin's header (which acts as a chunk: fd at header + 2 words) until it comes back.

        A chunk whose bk does not point back is not counted; `at` names it, or the header if its own bk is wrong.
        """

    @abstractmethod
    def scan_mmapped(
        self,
        source: BulkSource,
        geometry: Geometry,
        ranges: Sequence[Tuple[int, int]],
        has_trailer: bool,
        wanted_chunks: int,
        wanted_bytes: int,
        budget: Budget,
    ) -> Tuple[List[MmappedChunk], bool]:
        """Chunks with a mapping of their own, by address, and whether their count and bytes are the wanted ones (adds_up).

        `ranges`: page-aligned (begin, end) in which to look. `has_trailer`: the layout of glibc 2.43 (malloc.c: mmap_size).
        """

    @abstractmethod
    def find_chain(
        self,
        source: BulkSource,
        geometry: Geometry,
        low: int,
        high: int,
        anchors: Sequence[int],
        budget: Budget,
        strict: bool = False,
        fences: bool = False,
    ) -> Optional[int]:
        """The lowest chunk-aligned address in [low, high) from which plausible sizes lead exactly onto an anchor, or None.

        `anchors`: sorted array('Q') of chunk addresses above `low`. `strict`: the first chunk has PREV_INUSE set, and each
        free chunk on the way has its size repeated behind it, as in an undamaged region. `fences`: two fenceposts, which end a
        piece of the main arena, are as good as an anchor.
        """

    @abstractmethod
    def resident(self, pid: int, ranges: Sequence[Tuple[int, int]]) -> Optional[Residency]:
        """What of the page-aligned ranges is in memory; None if the process's pagemap cannot be opened."""


def check_geometry(geometry: Geometry) -> None:
    """Raises ValueError for numbers that no glibc has: the kernels rely on these."""
    word, alignment = geometry.word_bytes, geometry.alignment_bytes
    good = (
        word in (4, 8)
        and alignment in (2 * word, 16)
        and geometry.min_chunk_bytes == max(4 * word, alignment)
        and geometry.chunk_struct_bytes == 6 * word
        and 1024 <= geometry.page_bytes <= 1 << 24
        and not geometry.page_bytes & (geometry.page_bytes - 1)
    )
    if not good:
        raise ValueError("no geometry of glibc malloc: %r" % (geometry,))
