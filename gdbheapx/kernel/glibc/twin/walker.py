"""Walks over a glibc heap in Python."""

from typing import List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import PageTable
from gdbheapx.kernel.blocks.records import EVERYTHING, BlockFilter, Blocks, BlockStream, apart_from
from gdbheapx.kernel.blocks.twin import TwinBlocks
from gdbheapx.kernel.common.twin.pagemap import open_pages
from gdbheapx.kernel.common.twin.source import Reader
from gdbheapx.kernel.glibc.check import BrokenChunks, BrokenMembers, Checked, MemberList
from gdbheapx.kernel.glibc.interface import ChunkWalker, check_geometry
from gdbheapx.kernel.glibc.lists import Followed, Lists, Rules
from gdbheapx.kernel.glibc.records import Geometry, Listed, MmappedFound, MmappedSearch, Region, WalkResult
from gdbheapx.kernel.glibc.twin import chain, mmapped
from gdbheapx.kernel.glibc.twin.blocks import Listing
from gdbheapx.kernel.glibc.twin.check import Checker, Members
from gdbheapx.kernel.glibc.twin.lists import follow
from gdbheapx.kernel.glibc.twin.step import Cursor, Window
from gdbheapx.kernel.glibc.twin.walk import walk_region


class ChunkTwin(ChunkWalker):
    """See ChunkWalker."""

    def __init__(self, reader: Reader, geometry: Geometry, budget: Budget) -> None:
        check_geometry(geometry)
        self._reader, self._geometry, self._budget = reader, geometry, budget

    def walk(
        self, regions: Sequence[Region], cached_chunks: Sequence[int], pages: Optional[PageTable] = None, threads: Optional[int] = None
    ) -> List[WalkResult]:
        """See ChunkWalker; always one thread."""
        opened = open_pages(pages)
        return [walk_region(self._cursor(region, cached_chunks), self._budget, opened) for region in regions]

    def _cursor(self, region: Region, cached_chunks: Sequence[int]) -> Cursor:
        return Cursor(self._geometry, region, cached_chunks, Window(self._reader, self._geometry, region.begin, region.end))

    def blocks(
        self, regions: Sequence[Listed], cached_chunks: Sequence[int], wanted: BlockFilter = EVERYTHING, apart: Optional[Blocks] = None
    ) -> BlockStream:
        """See ChunkWalker."""
        listing = Listing(self._reader, self._geometry, sorted(regions), cached_chunks, wanted)
        return TwinBlocks(listing, apart_from(apart, wanted), self._budget)

    def follow(self, lists: Lists, rules: Rules, ranges: Sequence[Tuple[int, int]], threads: Optional[int] = None) -> Followed:
        """See ChunkWalker; always link by link."""
        return follow(self._reader, self._geometry, lists, rules, self._budget)

    def check(self, regions: Sequence[Checked], cached_chunks: Sequence[int], members: Sequence[int]) -> BrokenChunks:
        """See ChunkWalker."""
        return Checker(self._reader, self._geometry, cached_chunks, members).check(regions, self._budget)

    def check_members(self, lists: Sequence[MemberList], mangled: bool) -> BrokenMembers:
        """See ChunkWalker."""
        return Members(self._reader, self._geometry, mangled).check(lists, self._budget)

    def scan_mmapped(self, ranges: Sequence[Tuple[int, int]], search: MmappedSearch) -> MmappedFound:
        """See ChunkWalker."""
        return mmapped.scan_mmapped(self._reader, self._geometry, ranges, search, self._budget)

    def find_chain(
        self, low: int, high: int, anchors: Sequence[int], strict: bool = False, fences: bool = False, step: Optional[int] = None
    ) -> Optional[int]:
        """See ChunkWalker."""
        chains = chain.Chains(self._reader, self._geometry, anchors, strict, fences)
        return chains.lowest(low, high, self._budget, step or self._geometry.alignment_bytes)
