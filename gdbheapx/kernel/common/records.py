"""Records shared by all walks: reasons for their ends, residency, written pages, classes of sizes."""

from typing import NamedTuple, Optional, Sequence, Tuple

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
    """Resident part of some page ranges of a live process, by its page table. A page is one of this machine's."""

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
