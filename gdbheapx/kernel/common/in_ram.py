"""Residency of an allocator's memory, and bounds on it where the page table alone does not show everything."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.budget import Budget
from gdbheapx.common.ranges import unite_ranges
from gdbheapx.inferior.base import BulkSource, MappingUse, PageTable, Target
from gdbheapx.kernel.common.library import Kernel, Residency

Range = Tuple[int, int]
MOST_READ_BYTES = 256 << 20
"""More than this is not read for zeros: it would be half of a stop."""


class InRam(NamedTuple):
    """Residency of some memory. Unknown values are None."""

    resident_bytes: Optional[int]
    """Counted in the process's RSS: what giving it back lowers RSS by."""
    exclusive_bytes: Optional[int]
    """Of that, what the machine gets back at once: mapped by this process alone, and no part of a huge page of which another part stays."""
    huge_bytes: Optional[int]
    """Of that, parts of huge pages."""


NOTHING, UNKNOWN = InRam(0, 0, 0), InRam(None, None, None)


class Ram:
    """The page table of a live process, for one look at it. On anything else `pages` is None, and so is every answer."""

    def __init__(self, target: Target, kernel: Kernel) -> None:
        self._target, self._kernel = target, kernel
        self.pages: Optional[PageTable] = target.page_table()
        self._uses: Optional[Sequence[MappingUse]] = None
        self.was_missed = False
        """It was asked of a live process whose page table cannot be read."""
        self.left_open = False
        """Somewhere it could not be found whether pages are shared with a forked process or the zero page."""

    def of(self, ranges: Sequence[Range], with_exclusive: bool = True) -> Optional[InRam]:
        """Return the residency of these ascending, page-aligned ranges, or None without a page table. exclusive_bytes means nothing if it
        was not requested.
        """
        found = self._kernel.residency(self.pages, ranges, with_exclusive) if self.pages is not None else None
        if found is None:
            self.was_missed = self.was_missed or self._target.kind == "live"
            return None
        return self.settle(found, ranges)

    def zero_huge_bytes(self, spans: Sequence[Range], source: BulkSource, budget: Budget) -> Optional[int]:
        """Return the bytes of these ranges that lie in huge pages and hold zeros alone; reading the rest could put it into RAM. None for
        a running process (it could have given a page back meanwhile), and if that is too much to read.
        """
        if not self._target.can_read_on or self.pages is None or not self.pages.scans:
            return None
        page = self._target.page_bytes
        pieces = [piece for span in unite_ranges(spans) for piece in self._huge_pieces(span, page)]
        total = sum(end - start for start, end in pieces)
        if total > MOST_READ_BYTES:
            return None
        written = self._kernel.written(source, pieces, page, budget)
        if written.until is not None:
            return None
        return total - sum(end - start for start, end in zip(written.bounds[::2], written.bounds[1::2]))

    def _huge_pieces(self, span: Range, page: int) -> List[Range]:
        """The parts that are in RAM as parts of huge pages."""
        found = self.of([span], False)
        if found is None or not found.huge_bytes:
            return []
        step = page * (page // 8)  # what one entry of the page table's second level maps
        bounds = [span[0], *range((span[0] & -step) + step, span[1], step), span[1]]
        pieces = [piece for piece in zip(bounds, bounds[1:]) if piece[0] < piece[1]]
        return [piece for piece in pieces if (self.of([piece], False) or UNKNOWN).huge_bytes == piece[1] - piece[0]]

    def settle(self, counted: Optional[Residency], ranges: Sequence[Range]) -> InRam:
        """Derive the residency from pages that were counted within `ranges`; UNKNOWN for None, that is without a page table."""
        if self.pages is None or counted is None:
            self.was_missed = self.was_missed or self._target.kind == "live"
            return UNKNOWN
        if self.pages.scans and not counted.unsure_bytes:
            return InRam(counted.resident_bytes, counted.exclusive_bytes, counted.huge_bytes)
        if not counted.resident_bytes and not counted.unsure_bytes:
            return NOTHING
        uses = self._uses_within(ranges)
        extra = self._unsure_in_rss(counted, uses)
        if extra is None:
            self.left_open = True
            return InRam(None, counted.exclusive_bytes if self.pages.scans else None, None)
        huge = counted.huge_bytes if self.pages.scans else 0 if not any(use.huge_bytes for use in uses) else None
        exclusive = None if huge is None else counted.exclusive_bytes
        return InRam(counted.resident_bytes + extra, exclusive, huge)

    def _unsure_in_rss(self, counted: Residency, uses: Sequence[MappingUse]) -> Optional[int]:
        """Return the bytes of the unsure pages that are in RSS: the kernel's Rss of each mapping leaves the zero page out."""
        if not counted.unsure_bytes:
            return 0
        shared = zero = False
        for use in uses:
            found = self._kernel.residency(self.pages, [(use.mapping.start, use.mapping.end)], False) if self.pages is not None else None
            if found is None or not found.unsure_bytes:
                continue
            if use.resident_bytes == found.resident_bytes + found.unsure_bytes:
                shared = True
            elif use.resident_bytes == found.resident_bytes:
                zero = True
            else:
                return None
        return None if shared == zero else counted.unsure_bytes if shared else 0

    def _uses_within(self, ranges: Sequence[Range]) -> List[MappingUse]:
        """Return the kernel's figures for the mappings that hold these ranges."""
        if self._uses is None:
            all_uses = self._target.memory_use()
            self._uses = all_uses.mappings if all_uses is not None else ()
        place, found = 0, []
        ordered = sorted(ranges)
        for use in self._uses:
            while place < len(ordered) and ordered[place][1] <= use.mapping.start:
                place += 1
            if place == len(ordered):
                break
            if ordered[place][0] < use.mapping.end:
                found.append(use)
        return found
