"""Which pages of a process are written to while it runs: a userfaultfd of its own protects them, and nobody answers its faults."""

import os
from array import array
from typing import Any, Callable, Sequence, Tuple

from gdbheapx.inferior.base import PageTable
from gdbheapx.kernel.common.library import OpenPages, address_of_numbers, declare_functions
from gdbheapx.kernel.common.records import ADDRESS_MASK

PROTOTYPES = """
int heapx_follow_begin(int fd);
uint64_t heapx_pages_unmarked(const struct page_table *table, const uint64_t *ranges, uint64_t count);
uint64_t heapx_follow_ranges(int fd, int pagemap, const uint64_t *ranges, uint64_t count);
void heapx_follow_end(int fd, const uint64_t *ranges, uint64_t count);
"""


def is_marked(library: Any, table: PageTable, ranges: Sequence[Tuple[int, int]]) -> bool:
    """Each page that is in RAM has the kernel's mark of a write (soft-dirty), as all have until somebody clears them."""
    pages, bounds = OpenPages(library, table), array("Q", [bound for pair in ranges for bound in pair])
    first = declare_functions(library, PROTOTYPES).heapx_pages_unmarked(pages.handle, address_of_numbers(bounds), len(ranges)) if pages.handle else 0
    return bool(first == ADDRESS_MASK)


class NativeFollower:
    """Of one process, by a userfaultfd that it has made; the descriptor is closed with this. OSError where this kernel cannot do it."""

    def __init__(self, library: Any, descriptor: int) -> None:
        self._library, self._descriptor = declare_functions(library, PROTOTYPES), descriptor
        self._ranges = array("Q")
        error = self._library.heapx_follow_begin(descriptor)
        if error:
            self.end()
            raise OSError(error, os.strerror(error))

    def follow(self, ranges: Sequence[Tuple[int, int]], pagemap: int = -1) -> int:
        """From now on what is written to in these ranges is known: of how many bytes. `pagemap`: a descriptor of the process's, by which it
        takes half the time; what has no page table yet is not protected, and shows as written."""
        fresh = array("Q", [bound for pair in ranges for bound in pair])
        self._ranges += fresh
        return int(self._library.heapx_follow_ranges(self._descriptor, pagemap, address_of_numbers(fresh), len(ranges)))

    def leave(self) -> None:
        """Nothing is protected any more: piece by piece, as the end of the descriptor has the process wait for all at once."""
        self._library.heapx_follow_end(self._descriptor, address_of_numbers(self._ranges), len(self._ranges) // 2)
        self._ranges = array("Q")

    def end(self, close: Callable[[int], None] = os.close) -> None:
        """The same for good. Harmless when called twice."""
        if self._descriptor >= 0:
            self.leave()
            close(self._descriptor)
            self._descriptor = -1

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        self.end(close)
