"""Counters of an allocator in a running process, read again and again at almost no cost each time."""

import sys
from array import array
from typing import NamedTuple, Optional, Protocol, Sequence

from gdbheapx.inferior.base import Target
from gdbheapx.model import AllocatorInfo, Claim

BUSY_TRIES = 4
"""How often a figure is read again that changed while it was read."""
SAMPLED_PAGES, LEAST_PAGES, GOLDEN = 256, 64, 0.6180339887498949
"""Pages by which pointers are estimated; how many must be readable; a step that falls evenly everywhere."""


class Figure(NamedTuple):
    """A figure that a meter gives, in the allocator's own word."""

    key: str
    """As files have it; sizes end in `bytes`."""
    heading: str
    """Of its column on the terminal."""
    meaning: str
    """One line, for tools that show it."""
    is_estimate: bool = False
    """From a walk over what changes meanwhile."""
    is_shown: bool = True
    """It has a column on the terminal."""
    goes: int = 0
    """Where the terminal is too narrow, see Column.goes."""


class Reading(NamedTuple):
    """The counters at one moment, or nearly so."""

    values: Sequence[Optional[int]]
    """One for each figure of the meter; None: it changed too fast, or cannot be read."""
    held_bytes: Optional[int]
    """What the allocator has from the kernel, in use or kept."""
    used_bytes: Optional[int]
    """What the program was given and has not freed; what thread caches hold counts as used where it cannot be told."""
    kept_bytes: Optional[int]
    """What it keeps of what the program has freed, in RAM or not."""
    returnable_bytes: Optional[int]
    """What falls when memory is returned to the OS."""
    walked_bytes: Optional[int] = None
    """How much of what it holds are blocks side by side, which a walk goes through one by one; None: not known."""
    large_bytes: Optional[int] = None
    """How much of it are blocks with a mapping of their own."""


class Meter(Protocol):
    """Reads one heap of a process, which runs. What does not change was looked up when it was made."""

    @property
    def info(self) -> AllocatorInfo:
        """Describe the allocator."""

    @property
    def figures(self) -> Sequence[Figure]:
        """Describe `values` of each reading."""

    def read(self, walk_seconds: float) -> Reading:
        """The counters now. `walk_seconds`: so long an estimate may take; 0: none is made, and it is None."""


def make_empty_reading(figures: Sequence[Figure]) -> Reading:
    """The reading where nothing could be read."""
    return Reading((None,) * len(figures), None, None, None, None)


def most_pointers(target: Target, claims: Sequence[Claim], blocks_bytes: int) -> Optional[int]:
    """Bound the words in so many bytes of blocks that may point into the claims, by sampled pages; None if too few can be read."""
    page, word = target.page_bytes, target.word_bytes
    low, high = min((claim.start for claim in claims), default=0), max((claim.end for claim in claims), default=0)
    total, words, found, pages = sum(claim.end - claim.start for claim in claims), 0, 0, 0
    for number in range(SAMPLED_PAGES):
        place = int(total * (number * GOLDEN % 1))
        for claim in claims:
            if place < claim.end - claim.start:
                break
            place -= claim.end - claim.start
        else:
            continue
        data = target.read_prefix((claim.start + place) // page * page, page)
        if len(data) == page:
            values = array("Q" if word == 8 else "I", data)
            if target.little_endian != (sys.byteorder == "little"):
                values.byteswap()
            words, found, pages = words + len(values), found + sum(low <= value < high for value in values), pages + 1
    if pages < LEAST_PAGES:
        return None
    share = found / words
    return int(blocks_bytes // word * min(1.0, share + 3 * (share * (1 - share) / pages) ** 0.5 + 1 / pages))
