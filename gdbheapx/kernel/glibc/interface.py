"""What both kernels can do with a glibc heap."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple

from gdbheapx.inferior.base import PageTable
from gdbheapx.kernel.blocks.records import EVERYTHING, BlockFilter, Blocks, BlockStream
from gdbheapx.kernel.glibc.lists import Followed, Lists, Rules
from gdbheapx.kernel.glibc.records import Geometry, Listed, MmappedFound, MmappedSearch, Region, WalkResult

if TYPE_CHECKING:
    from gdbheapx.kernel.glibc.check import BrokenChunks, BrokenMembers, Checked, MemberList


class ChunkWalker(ABC):
    """Walks over the chunks of one heap: bound to where its bytes come from, its geometry, and the budget of whoever asks."""

    @abstractmethod
    def walk(
        self, regions: Sequence[Region], cached_chunks: Sequence[int], pages: Optional[PageTable] = None, threads: Optional[int] = None
    ) -> List[WalkResult]:
        """One result per region, in order.

        `cached_chunks`: sorted array('Q') of `chunk | SPECIAL_x` for all regions. `pages`: fill the residency of the
        interior from that process's page table. `threads`: None for as many as there are processors, up to 8; results do not depend on it.
        When the budget expires, or at Ctrl-C, unfinished regions end with STOP_TIME.
        A special whose successor's PREV_INUSE is clear is counted as free. fd and bk that cannot be read count as 0 in the sums.
        """

    @abstractmethod
    def blocks(
        self, regions: Sequence[Listed], cached_chunks: Sequence[int], wanted: BlockFilter = EVERYTHING, apart: Optional[Blocks] = None
    ) -> BlockStream:
        """The chunks of all regions; kinds are STATUS_ numbers, Wanted's sizes are chunk sizes.

        The chunks are those that `walk` counts, top included; a first fencepost or terminator is where a region ends and is not listed.
        `regions` in any order; `result` is of the one that ended last. `apart`: further blocks, by address, to be merged in as they are.
        """

    @abstractmethod
    def follow(self, lists: Lists, rules: Rules, ranges: Sequence[Tuple[int, int]], threads: Optional[int] = None) -> Followed:
        """Follows lists, each from its first entry to a null link, or a bin until it comes back to its header.

        `ranges`: (begin, end) of memory where members may lie, sorted: where lists jump about in it, it is looked through once instead of
        being read link by link. Answers do not depend on it, nor on `threads`. An entry with a problem is not counted. When the budget
        expires, or at Ctrl-C, lists that have not ended have the problem CUT.
        """

    @abstractmethod
    def check(self, regions: "Sequence[Checked]", cached_chunks: Sequence[int], members: Sequence[int]) -> "BrokenChunks":
        """What contradicts itself, chunk by chunk. `cached_chunks` as for `walk`; `members`: sorted array('Q') of chunks in bins.

        When the budget expires, or at Ctrl-C, regions that were not reached have no BROKEN_STOP.
        """

    @abstractmethod
    def check_members(self, lists: "Sequence[MemberList]", mangled: bool) -> "BrokenMembers":
        """What members of lists contradict, each read once. `mangled`: as Rules."""

    @abstractmethod
    def scan_mmapped(self, ranges: Sequence[Tuple[int, int]], search: MmappedSearch) -> MmappedFound:
        """Chunks with a mapping of their own. `ranges`: page-aligned (begin, end) in which to look, the likeliest first."""

    @abstractmethod
    def find_chain(
        self, low: int, high: int, anchors: Sequence[int], strict: bool = False, fences: bool = False, step: Optional[int] = None
    ) -> Optional[int]:
        """The lowest chunk-aligned address in [low, high) from which plausible sizes lead exactly onto an anchor, or None.

        `anchors`: sorted array('Q') of chunk addresses above `low`. `strict`: the first chunk has PREV_INUSE set, and each
        free chunk on the way has its size repeated behind it, as in an undamaged region. `fences`: two fenceposts, which end a
        piece of the main arena, are as good as an anchor. `step`: bytes from one address that is tried to the next, the alignment unless
        told.
        """


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
