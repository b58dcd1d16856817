"""What both kernels can do with any memory."""

from abc import ABC, abstractmethod
from array import array
from typing import Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource, PageTable
from gdbheapx.kernel.common.records import Residency, Written


class Kernel(ABC):
    """Functions that know no allocator, and what the walkers of each allocator take; `name` says which implementation answers."""

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
    def written(self, source: BulkSource, ranges: Sequence[Tuple[int, int]], page_bytes: int, budget: Budget) -> Written:
        """Which pages of the sorted ranges, without overlap, hold anything but zeros; so counts what cannot be read. Pages begin at
        multiples of page_bytes; ranges may begin and end anywhere. When the budget expires, or at Ctrl-C, it says how far it came.
        """

    @abstractmethod
    def residency(self, pages: PageTable, ranges: Sequence[Tuple[int, int]]) -> Optional[Residency]:
        """What of the page-aligned, ascending ranges is in RAM, all together; None if the process's page table cannot be opened."""
