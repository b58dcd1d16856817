"""The kernel in Python: every function of the C kernel, with equal results."""

from typing import List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel import base, pagemap, twin_chain, twin_lists, twin_mmapped, twin_written
from gdbheapx.kernel.api import Geometry, Region, Residency, WalkResult, Written
from gdbheapx.kernel.block_records import EVERYTHING, Blocks, BlockStream, Wanted, apart_from
from gdbheapx.kernel.list_records import Followed, Lists, Rules
from gdbheapx.kernel.mmapped_records import MmappedFound, MmappedSearch
from gdbheapx.kernel.twin_jemalloc import ExtentsTwin
from gdbheapx.kernel.twin_listing import Listing
from gdbheapx.kernel.twin_source import Reader
from gdbheapx.kernel.twin_step import Cursor, Window
from gdbheapx.kernel.twin_stream import TwinBlocks
from gdbheapx.kernel.twin_walk import walk_region
from gdbheapx.target.base import BulkSource, PageTable


class PythonKernel(ExtentsTwin, base.Kernel):
    """The Python twin."""

    name = "python"

    def __init__(self, why: Optional[str] = None) -> None:
        self.why = why
        self._opened: Optional[Reader] = None
        self._swapped_in = [0]

    def _open(self, source: BulkSource) -> Reader:
        if self._opened is None or self._opened.source is not source:
            self._opened = Reader(source, self._swapped_in)
        return self._opened

    @property
    def swapped_in_bytes(self) -> int:
        """See base.Kernel."""
        return self._swapped_in[0]

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
        """See base.Kernel; always one thread."""
        base.check_geometry(geometry)
        reader, opened = self._open(source), pagemap.open_pages(pages)
        return [walk_region(_cursor(reader, geometry, region, specials), budget, opened) for region in regions]

    def glibc_blocks(
        self,
        source: BulkSource,
        geometry: Geometry,
        regions: Sequence[base.Listed],
        specials: Sequence[int],
        budget: Budget,
        wanted: Wanted = EVERYTHING,
        apart: Optional[Blocks] = None,
    ) -> BlockStream:
        """See base.Kernel."""
        base.check_geometry(geometry)
        return TwinBlocks(Listing(self._open(source), geometry, sorted(regions), specials, wanted), apart_from(apart, wanted), budget)

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
        """See base.Kernel; always link by link."""
        base.check_geometry(geometry)
        return twin_lists.follow(self._open(source), geometry, lists, rules, budget)

    def scan_mmapped(
        self,
        source: BulkSource,
        geometry: Geometry,
        ranges: Sequence[Tuple[int, int]],
        search: MmappedSearch,
        budget: Budget,
    ) -> MmappedFound:
        """See base.Kernel."""
        base.check_geometry(geometry)
        return twin_mmapped.scan_mmapped(self._open(source), geometry, ranges, search, budget)

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
        """See base.Kernel."""
        base.check_geometry(geometry)
        return twin_chain.find_chain(self._open(source), geometry, low, high, anchors, budget, strict, fences, step or geometry.alignment_bytes)

    def written(self, source: BulkSource, ranges: Sequence[Tuple[int, int]], page_bytes: int, budget: Budget) -> Written:
        """See base.Kernel."""
        return twin_written.written(self._open(source), ranges, page_bytes, budget)

    def residency(self, pages: PageTable, ranges: Sequence[Tuple[int, int]]) -> Optional[Residency]:
        """See base.Kernel."""
        return pagemap.residency(pages, ranges)


def _cursor(reader: Reader, geometry: Geometry, region: Region, specials: Sequence[int]) -> Cursor:
    return Cursor(geometry, region, specials, Window(reader, geometry, region.begin, region.end))
