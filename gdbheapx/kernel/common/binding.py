"""The C kernel's functions that know no allocator, by ctypes."""

from array import array
from typing import Any, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource, PageTable
from gdbheapx.kernel.common.interface import Kernel
from gdbheapx.kernel.common.library import OpenPages, OpenSource, at, declared, run
from gdbheapx.kernel.common.records import ADDRESS_MASK, Residency, Written

PROTOTYPES = """
void heapx_residency(const struct page_table *table, const uint64_t *ranges, uint64_t count, struct residency *out);
int heapx_sort(uint64_t *values, uint64_t count);
void heapx_written_free(struct written *job);
struct written *heapx_written_new(const struct source *source, const uint64_t *ranges, uint64_t range_count, uint64_t page);
int64_t heapx_written_slice(struct written *job, double seconds);
uint64_t heapx_written_result(const struct written *job, uint64_t room, uint64_t *out, uint64_t *at);
"""


class CommonBinding(Kernel):
    """See Kernel; and what its walkers ask to be opened."""

    name = "c"

    def __init__(self, library: Any) -> None:
        self.library = declared(library, PROTOTYPES)
        self._opened: Optional[OpenSource] = None
        self._swapped_in = array("Q", [0])
        self._pages: Tuple[Optional[PageTable], OpenPages] = (None, OpenPages(library, None))

    def open(self, source: BulkSource) -> OpenSource:
        """The source opened, kept while the same one is asked for: lists are collected by thousands of calls."""
        if self._opened is None or self._opened.source is not source:
            self._opened = OpenSource(self.library, source, self._swapped_in)
        return self._opened

    def open_apart(self, source: BulkSource) -> OpenSource:
        """A source beside the one that is kept."""
        return OpenSource(self.library, source, self._swapped_in)

    def open_pages(self, pages: Optional[PageTable]) -> OpenPages:
        """A page table opened, kept while the same one is asked of: each of hundreds of arenas asks."""
        if self._pages[0] is not pages:
            self._pages = (pages, OpenPages(self.library, pages))
        return self._pages[1]

    @property
    def swapped_in_bytes(self) -> int:
        """See Kernel."""
        return int(self._swapped_in[0])

    def in_order(self, numbers: "array[int]") -> "array[int]":
        """See Kernel."""
        if not self.library.heapx_sort(at(numbers), len(numbers)):
            raise MemoryError()
        return numbers

    def written(self, source: BulkSource, ranges: Sequence[Tuple[int, int]], page_bytes: int, budget: Budget) -> Written:
        """See Kernel."""
        library, opened = self.library, self.open(source)
        flat, until = array("Q", [bound for pair in ranges for bound in pair]), array("Q", [0])
        job = library.heapx_written_new(opened.handle, at(flat), len(ranges), page_bytes)
        if not job:
            raise MemoryError()
        try:
            run(lambda seconds: library.heapx_written_slice(job, seconds), opened, budget)
            out = array("Q", bytes(16 * library.heapx_written_result(job, 0, None, at(until))))
            library.heapx_written_result(job, len(out) // 2, at(out), at(until))
        finally:
            library.heapx_written_free(job)
        return Written(out, None if until[0] == ADDRESS_MASK else until[0])

    def residency(self, pages: PageTable, ranges: Sequence[Tuple[int, int]]) -> Optional[Residency]:
        """See Kernel."""
        table = self.open_pages(pages)
        if table.handle is None:
            return None
        flat, out = array("Q", [number for pair in ranges for number in pair]), array("Q", bytes(8 * len(Residency._fields)))
        self.library.heapx_residency(table.handle, at(flat), len(ranges), at(out))
        return Residency(*out)
