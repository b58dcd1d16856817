"""What both kernels are: the functions, and the few records that only they give."""

from abc import abstractmethod
from array import array
from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.api import Geometry, Region, Residency, WalkResult, Written
from gdbheapx.kernel.block_records import ADDRESS_MASK, EVERYTHING, Blocks, BlockStream, Wanted
from gdbheapx.kernel.extents_base import ExtentsKernel
from gdbheapx.kernel.list_records import Followed, Lists, Rules
from gdbheapx.kernel.mmapped_records import MmappedFound, MmappedSearch
from gdbheapx.target.base import BulkSource, PageTable

__all__ = ["ADDRESS_MASK", "Kernel", "Listed"]

FIRST_SLICE_SECONDS = 0.02
SLICE_SECONDS = 0.1
"""How long a kernel works before it asks the budget again: short at first, for small bounds."""


class Listed(NamedTuple):
    """A region whose chunks are listed."""

    region: Region
    arena: int
    """Index, or NO_ARENA."""


def adds_up(chunks: int, bytes_: int, search: MmappedSearch, word_bytes: int) -> bool:
    """So many mapped chunks of so many bytes are all of them.

    With the layout of glibc 2.43 mp_.mmapped_mem may be ahead by any number of trailers of two words: mremap_chunk (malloc.c) subtracts
    chunksize, which has no trailer, and adds the whole mapping.
    """
    ahead = search.wanted_bytes - bytes_
    return chunks == search.wanted_chunks and (ahead == 0 or (search.has_trailer and ahead > 0 and ahead % (2 * word_bytes) == 0))


class Kernel(ExtentsKernel):
    """The functions; `name` says which implementation answers. Those for jemalloc are in ExtentsKernel."""

    name = ""
    """`c` or `python`."""
    why: Optional[str] = None
    """Why the C kernel is not in use; None if it is."""

    def in_order(self, numbers: "array[int]") -> "array[int]":
        """array('Q') sorted; the one that was given may be it."""
        return array("Q", sorted(numbers))

    @property
    @abstractmethod
    def swapped_in_bytes(self) -> int:
        """Bytes of live processes that were in swap when they were read, since this kernel was loaded: they are in RAM now."""

    @abstractmethod
    def walk(
        self,
        source: BulkSource,
        geometry: Geometry,
        regions: Sequence[Region],
        specials: Sequence[int],
        budget: Budget,
        pages: Optional[PageTable] = None,
        threads: Optional[int] = None,
    ) -> List[WalkResult]:
        """One result per region, in order.

        `specials`: sorted array('Q') of `chunk | SPECIAL_x` for all regions. `pages`: fill the residency of the
        interior from that process's page table. `threads`: None for as many as there are processors, up to 8; results do not depend on it.
        When the budget expires, or at Ctrl-C, unfinished regions end with STOP_TIME.
        A special whose successor's PREV_INUSE is clear is counted as free. fd and bk that cannot be read count as 0 in the sums.
        """

    @abstractmethod
    def glibc_blocks(
        self,
        source: BulkSource,
        geometry: Geometry,
        regions: Sequence[Listed],
        specials: Sequence[int],
        budget: Budget,
        wanted: Wanted = EVERYTHING,
        apart: Optional[Blocks] = None,
    ) -> BlockStream:
        """The chunks of all regions; kinds are STATUS_ numbers, Wanted's sizes are chunk sizes.

        The chunks are those that `walk` counts, top included; a first fencepost or terminator is where a region ends and is not listed.
        `regions` in any order; `result` is of the one that ended last. `apart`: further blocks, by address, to be merged in as they are.
        """

    @abstractmethod
    def follow(
        self,
        source: BulkSource,
        geometry: Geometry,
        lists: Lists,
        rules: Rules,
        ranges: Sequence[Tuple[int, int]],
        budget: Budget,
        threads: Optional[int] = None,
    ) -> Followed:
        """Follows lists, each from its first entry to a null link, or a bin until it comes back to its header.

        `ranges`: (begin, end) of memory where members may lie, sorted: where lists jump about in it, it is looked through once instead of
        being read link by link. Answers do not depend on it, nor on `threads`. An entry with a problem is not counted. When the budget
        expires, or at Ctrl-C, lists that have not ended have the problem CUT.
        """

    @abstractmethod
    def scan_mmapped(
        self,
        source: BulkSource,
        geometry: Geometry,
        ranges: Sequence[Tuple[int, int]],
        search: MmappedSearch,
        budget: Budget,
    ) -> MmappedFound:
        """Chunks with a mapping of their own. `ranges`: page-aligned (begin, end) in which to look, the likeliest first."""

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
        step: Optional[int] = None,
    ) -> Optional[int]:
        """The lowest chunk-aligned address in [low, high) from which plausible sizes lead exactly onto an anchor, or None.

        `anchors`: sorted array('Q') of chunk addresses above `low`. `strict`: the first chunk has PREV_INUSE set, and each
        free chunk on the way has its size repeated behind it, as in an undamaged region. `fences`: two fenceposts, which end a
        piece of the main arena, are as good as an anchor. `step`: bytes from one address that is tried to the next, the alignment unless told.
        """

    @abstractmethod
    def written(self, source: BulkSource, ranges: Sequence[Tuple[int, int]], page_bytes: int, budget: Budget) -> Written:
        """Which pages of the sorted ranges, without overlap, hold anything but zeros; so counts what cannot be read. Pages begin at multiples of
        page_bytes; ranges may begin and end anywhere. When the budget expires, or at Ctrl-C, it says how far it came.
        """

    @abstractmethod
    def residency(self, pages: PageTable, ranges: Sequence[Tuple[int, int]]) -> Optional[Residency]:
        """What of the page-aligned, ascending ranges is in RAM, all together; None if the process's page table cannot be opened."""


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
