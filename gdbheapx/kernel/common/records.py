"""What all walks share: why they ended, what is in RAM, which pages are written, classes of sizes; and what every kernel can do."""

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from typing import Any, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource, PageTable

IN_C = "STOP* HISTOGRAM_EXACT_BYTES Residency"

ADDRESS_MASK = 0xFFFFFFFFFFFFFFFF

STOP_TOP = 0
"""The walk ended on the top chunk: whole."""
STOP_END = 1
"""The walk ended exactly at the region's end: whole."""
STOP_FENCE = 2
"""`at` is the first fencepost (size field 2*word with or without P) or the terminator (size field 1 or 0)."""
STOP_SMALL = 3
"""Damage: the size field at `at` is below the minimum chunk size (and no fencepost)."""
STOP_MISALIGNED = 4
"""Damage: the size at `at` is no multiple of the alignment."""
STOP_MMAPPED_BIT = 5
"""Damage: the size field at `at` has IS_MMAPPED set inside an arena."""
STOP_OVERRUN = 6
"""Damage: the chunk at `at` reaches beyond the region's end, or past the top chunk."""
STOP_UNREADABLE = 7
"""The header at `at` cannot be read."""
STOP_TIME = 8
"""The caller's bound in time was reached, or Ctrl-C; `at` is the next chunk."""
STOPS = 9


class Residency(NamedTuple):
    """How much of some page ranges of a live process is in RAM, by its page table. A page is one of this machine's."""

    resident_bytes: int
    """In RAM and counted in the process's RSS: what giving the pages back lowers RSS by. The zero page, which reading an untouched page
    maps, is in nobody's RSS; pages shared with a forked process are in the RSS of both."""
    exclusive_bytes: int
    """Those of them that no other process has mapped: what the machine gets back at once. Of a huge page only if the range holds all of
    it."""
    swapped_bytes: int
    huge_bytes: int
    """Those resident that are part of a huge page; 0 also where the page table cannot tell (PageTable.scans)."""
    unsure_bytes: int
    """Present, and either shared with a forked process or the zero page: neither this kernel nor our rights tell which. In no other sum."""


class Written(NamedTuple):
    """The pages of some ranges that hold anything but zeros."""

    bounds: Sequence[int]
    """array('Q'): first address and end of each run of such pages, sorted."""
    until: Optional[int]
    """Where the search was cut: what lies from here on is not known and in no run; None: everything was looked at."""


HISTOGRAM_EXACT_BYTES = 1024
"""Chunk sizes up to this have a histogram class of their own."""


def histogram_class(size_bytes: int, alignment_bytes: int) -> int:
    """The class of a chunk size: exact to 1,024 bytes, above that four steps per power of two, upper bound included."""
    if size_bytes <= HISTOGRAM_EXACT_BYTES:
        return size_bytes // alignment_bytes
    power = (size_bytes - 1).bit_length() - 1
    step = ((size_bytes - 1) >> (power - 2)) & 3
    return HISTOGRAM_EXACT_BYTES // alignment_bytes + 1 + (power - 10) * 4 + step


def histogram_bounds(index: int, alignment_bytes: int) -> Tuple[int, int]:
    """(smallest, largest) chunk size of a class."""
    exact = HISTOGRAM_EXACT_BYTES // alignment_bytes
    if index <= exact:
        return index * alignment_bytes, index * alignment_bytes
    power, step = divmod(index - exact - 1, 4)
    quarter = 1 << (power + 8)
    lower = (4 + step) * quarter
    return lower + alignment_bytes, lower + quarter


class Kernel(ABC):
    """Functions that know no allocator, and what the walkers of each allocator take; `name` says which implementation answers."""

    name = ""
    """`c` or `python`."""
    why: Optional[str] = None
    """Why the C kernel is not in use; None if it is."""
    library: Any = None
    """The C library; None if it is not in use."""

    def in_order(self, numbers: "array[int]") -> "array[int]":
        """array('Q') sorted; the one that was given may be it."""
        return array("Q", sorted(numbers))

    searched_words = 0
    """How many words find_addresses has looked at since this kernel was loaded."""

    def find_addresses(self, memory: Iterable[Tuple[int, bytes]], ranges: Sequence[Tuple[int, int]], mask: int) -> List[Tuple[int, int]]:
        """(where it is, word) of each aligned 64-bit word of these pieces of memory, as this machine orders bytes, that lies in a range and
        has no bit of `mask`. `memory`: (address, bytes) of each; `ranges`: sorted, without overlap."""
        bounds, found = array("Q", [bound for pair in ranges for bound in pair]), []  # type: array[int], List[Tuple[int, int]]
        for start, data in memory:
            first = -start & 7
            words = array("Q", data[first : first + (len(data) - first & -8)])
            self.searched_words += len(words)
            found += [(start + first + 8 * place, words[place]) for place in self._places_into(words, bounds, mask)]
        return found

    def _places_into(self, words: "array[int]", bounds: "array[int]", mask: int) -> "array[int]":
        low, high = (bounds[0], bounds[-1]) if bounds else (1, 0)
        likely = (place for place, word in enumerate(words) if low <= word < high and not word & mask)
        return array("Q", [place for place in likely if bisect_right(bounds, words[place]) & 1])

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
    def residency(self, pages: PageTable, ranges: Sequence[Tuple[int, int]], with_exclusive: bool = True) -> Optional[Residency]:
        """What of the page-aligned, ascending ranges is in RAM, all together; None if the process's page table cannot be opened. What no
        other process has mapped takes four times as long to tell: exclusive_bytes is 0 where it is not wanted."""
