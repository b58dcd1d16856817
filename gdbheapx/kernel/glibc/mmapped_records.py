"""Chunks with a mapping of their own: what the kernels take and give."""

from array import array
from operator import add
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import PageTable


class MmappedChunk(NamedTuple):
    """One chunk that has a mapping of its own."""

    chunk: int
    """Header address."""
    size_bytes: int
    """Chunk size as its size field says."""
    block_start: int
    """First address of the mapping (chunk - prev_size)."""
    total_bytes: int
    """Length of the whole mapping: what mp_.mmapped_mem counts."""


class MmappedChunks(Sequence[MmappedChunk]):
    """Mapped chunks by address, held as columns: a process can have 200,000, and most of who asks wants a sum."""

    def __init__(self, flat: "array[int]") -> None:
        """`flat`: array('Q'), the members of one MmappedChunk after the other."""
        self.chunks, self.sizes, self.blocks, self.totals = (flat[place::4] for place in range(4))

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[MmappedChunk]:
        return map(MmappedChunk, self.chunks, self.sizes, self.blocks, self.totals)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return list(self)[place]
        return MmappedChunk(self.chunks[place], self.sizes[place], self.blocks[place], self.totals[place])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def bytes(self) -> int:
        """Their whole mappings."""
        return sum(self.totals)

    def spans(self) -> List[Tuple[int, int]]:
        """(first address, end) of their mappings, those side by side as one."""
        ends = array("Q", map(add, self.blocks, self.totals))
        starts = [place for place, (end, block) in enumerate(zip(ends, self.blocks[1:]), 1) if end != block]
        first = [0, *starts] if len(self) else []
        return [(self.blocks[low], ends[high - 1]) for low, high in zip(first, [*starts, len(self)])]


class MmappedSearch(NamedTuple):
    """What is wanted, and how far to look for it."""

    has_trailer: bool
    """The layout of glibc 2.43 (malloc.c: mmap_size)."""
    wanted_chunks: int
    """mp_.n_mmaps."""
    wanted_bytes: int
    """mp_.mmapped_mem."""
    pages: Optional[PageTable] = None
    """Pages that are not in RAM are not looked at; a swapped one only where a block is likely to begin. None: all are."""
    data: Sequence[Tuple[int, int]] = ()
    """Sorted ranges outside which nothing but zeros lies: what a core has in its file. Empty: anywhere something may lie."""
    known: Sequence[int] = ()
    """Chunks that an earlier search found: looked at first."""
    most_pages: Optional[int] = None
    """Pages to look at one by one after the likely places; None for no bound."""
    limits: Sequence[int] = ()
    """How far a block may reach that begins in a range, one for each: a program may protect a part of it. Empty: to the range's end."""

    def limits_of(self, ranges: Sequence[Tuple[int, int]]) -> Sequence[int]:
        """One for each range."""
        return self.limits or [end for _, end in ranges]


class MmappedFound(NamedTuple):
    """What was found."""

    chunks: MmappedChunks
    complete: bool
    """Their number and bytes are the wanted ones (adds_up)."""
    cut: bool
    """More pages would have had to be looked at than most_pages."""


def adds_up(chunks: int, bytes_: int, search: MmappedSearch, word_bytes: int) -> bool:
    """So many mapped chunks of so many bytes are all of them.

    With the layout of glibc 2.43 mp_.mmapped_mem may be ahead by any number of trailers of two words: mremap_chunk (malloc.c) subtracts
    chunksize, which has no trailer, and adds the whole mapping.
    """
    ahead = search.wanted_bytes - bytes_
    return chunks == search.wanted_chunks and (ahead == 0 or (search.has_trailer and ahead > 0 and ahead % (2 * word_bytes) == 0))
