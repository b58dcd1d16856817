"""What the pages of a heap are, by cells of equal size: what is asked of the kernel, and what it tells."""

from abc import ABC, abstractmethod
from array import array
from typing import AbstractSet, Iterator, List, NamedTuple, Sequence, Tuple

from gdbheapx.kernel.blocks.records import Blocks

PAGE_USED, PAGE_PINNED, PAGE_CACHED, PAGE_OWN, PAGE_FREE, PAGE_RETURNED, PAGE_STATES = range(7)
"""What a page is. PINNED: blocks in use, or the allocator's own, beside free ones; CACHED: nothing in use, blocks in caches; OWN: the
allocator's alone; RETURNED: the allocator keeps the addresses alone."""
MOST_KINDS = 16


class MapShape(NamedTuple):
    """How pages are told, and how large a cell is."""

    page_bytes: int
    lead_bytes: int
    """From the begin of the allocator's unit to the block's address."""
    cell_bytes: int
    """A multiple of page_bytes. A cell is so much of the ranges, one after the other; it may have the end of one and the begin of the
    next."""
    free_kinds: AbstractSet[int] = frozenset()
    """Kinds that count as free whatever their class: unused pages that are not returned yet, lists of blocks that are merged with their
    neighbours before memory is returned."""
    free_is_pinned: bool = False
    """Memory goes back by rooms such as slabs: a free block means that its room has others in use."""
    overheads: Sequence[int] = ()
    """By kind: bytes of the unit beyond the usable ones."""

    def numbers(self) -> "array[int]":
        """As struct map_shape (heapmap.c)."""
        overheads = [one % (1 << 64) for one in self.overheads] + [0] * (MOST_KINDS - len(self.overheads))
        kinds = sum(1 << kind for kind in self.free_kinds)
        return array("Q", [self.page_bytes, self.lead_bytes, self.cell_bytes, kinds, self.free_is_pinned, *overheads[:MOST_KINDS]])

    def cells(self, ranges: Sequence[Tuple[int, int]]) -> int:
        """How many there are."""
        return -(-sum(end - start for start, end in ranges) // self.cell_bytes)


class Cell(NamedTuple):
    """Bytes of whole pages by what they are. Order as in heapmap.c."""

    used_bytes: int
    pinned_bytes: int
    cached_bytes: int
    own_bytes: int
    free_bytes: int
    returned_bytes: int
    free_resident_bytes: int
    """Of the free ones. This and the next two are 0 where nothing tells what is in RAM."""
    returned_resident_bytes: int
    unsure_bytes: int
    """Of both: present, and either shared with a forked process or the zero page."""


class HeapMap(ABC):
    """One look at a heap."""

    @abstractmethod
    def stream(self, blocks: Iterator[Blocks]) -> None:
        """Takes the blocks of the heap, all sorts of them."""

    @abstractmethod
    def cells(self) -> List[Cell]:
        """What was found; nothing more may be streamed."""
