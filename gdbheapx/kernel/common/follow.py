"""Tracking of the pages that a running process writes to: a userfaultfd of its own protects them, without a handler of its faults."""

import os
from array import array
from typing import Any, Callable, Sequence, Tuple

from gdbheapx.inferior.base import PageTable
from gdbheapx.kernel.common.library import OpenPages, address_of, declare_functions
from gdbheapx.kernel.common.records import ADDRESS_MASK

PROTOTYPES = """
int heapx_follow_begin(int fd);
uint64_t heapx_pages_unmarked(const struct page_table *table, const uint64_t *ranges, uint64_t count);
uint64_t heapx_follow_ranges(int fd, int pagemap, const uint64_t *ranges, uint64_t count);
void heapx_follow_end(int fd, const uint64_t *ranges, uint64_t count);
"""


def is_marked(library: Any, table: PageTable, ranges: Sequence[Tuple[int, int]]) -> bool:
    """Return True if each page that is in RAM has the kernel's mark of a write (soft-dirty), as all have until the marks are cleared."""
    pages, bounds = OpenPages(library, table), array("Q", [bound for pair in ranges for bound in pair])
    first = (
        declare_functions(library, PROTOTYPES).heapx_pages_unmarked(pages.handle, address_of(bounds), len(ranges)) if pages.handle else 0
    )
    return bool(first == ADDRESS_MASK)


class NativeFollower:
    """Write tracking of one process, by a userfaultfd that it has made; the descriptor is closed with this. OSError if this kernel cannot
    do it.
    """

    def __init__(self, library: Any, descriptor: int) -> None:
        self._library, self._descriptor = declare_functions(library, PROTOTYPES), descriptor
        self._ranges = array("Q")
        error = self._library.heapx_follow_begin(descriptor)
        if error:
            self.end()
            raise OSError(error, os.strerror(error))

    def follow(self, ranges: Sequence[Tuple[int, int]], pagemap: int = -1) -> int:
        """Track writes to these ranges from now on, and return the number of bytes tracked. `pagemap`: a descriptor of the process's, by
        which it takes half the time; ranges without a page table yet are not protected, and show as written.
        """
        fresh = array("Q", [bound for pair in ranges for bound in pair])
        self._ranges += fresh
        return int(self._library.heapx_follow_ranges(self._descriptor, pagemap, address_of(fresh), len(ranges)))

    def leave(self) -> None:
        """Remove all protection, piece by piece, as the end of the descriptor has the process wait for all at once."""
        self._library.heapx_follow_end(self._descriptor, address_of(self._ranges), len(self._ranges) // 2)
        self._ranges = array("Q")

    def end(self, close: Callable[[int], None] = os.close) -> None:
        """Remove all protection for good. Harmless when called twice."""
        if self._descriptor >= 0:
            self.leave()
            close(self._descriptor)
            self._descriptor = -1

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        self.end(close)
