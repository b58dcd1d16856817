"""Which jemalloc it is, by its arenas alone: where arenas[] lies, and where in an arena the pointer to its base stands.

No name and no layout is needed for it: each arena lies in a block of its own base, which begins at a multiple of 2 MiB and says its
size; the base says the arena's index; and the places at which an arena points to its base are others in each release.
"""

from array import array
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import kernel as kernels
from gdbheapx.inferior.base import Module, Target
from gdbheapx.jemalloc.detection import tables, traces
from gdbheapx.jemalloc.detection.tables import Table

MOST_CANDIDATES = 8
"""Places that may be arenas[] and are looked at; the static a0, which leads to arena 0 as well, is one of them."""
ARENAS_TRIED = 8
"""Arenas that are asked for the places of their base pointer."""
BASE_BYTES = 0x800
"""base_t is about that long, and stands before all that its block gives out."""
PIECE_BYTES = 4096


class Arenas(NamedTuple):
    """arenas[], found by what its words lead to."""

    address: int
    pointers: Dict[int, int]
    """Index -> address, of those whose base says that index."""
    others: int
    """Words there that lead to no such arena: made with extent hooks of the program's own, or damage."""
    page_bytes: int = tables.PAGE_BYTES
    """The page that the blocks of their metadata are of."""

    @property
    def score(self) -> Tuple[int, int]:
        """Of two places the one with more arenas and less else is arenas[]."""
        return len(self.pointers) - self.others, -self.address

    @property
    def highest(self) -> int:
        """The highest index."""
        return max(self.pointers)


class Blocks:
    """Blocks of arenas' metadata, each asked once."""

    def __init__(self, target: Target, page_bytes: int) -> None:
        self._target = target
        self._base_offset = traces.BASE_OFFSETS[page_bytes]
        self._known: Dict[int, Optional[int]] = {}
        self._indexes: Dict[int, int] = {}

    def base_of(self, arena: int) -> Optional[int]:
        """Address of the base in whose block an arena would lie that begins here; None if none begins here."""
        block = arena & -traces.BLOCK_BYTES
        if not block or arena & traces.ARENA_ALIGNMENT - 1 or arena == block:
            return None
        if block not in self._known:
            self._known[block] = self._size(block)
        size, base = self._known[block], block + self._base_offset
        return base if size is not None and base + BASE_BYTES <= arena < block + size else None

    def index_of(self, arena: int) -> Optional[int]:
        """What the base says of the arena at this address."""
        base = self.base_of(arena)
        if base is None:
            return None
        if base not in self._indexes:
            self._indexes[base] = int.from_bytes(self._target.read_prefix(base, 4).ljust(4, b"\xff"), "little")
        index = self._indexes[base]
        return index if index < traces.ARENA_POINTERS else None

    def _size(self, block: int) -> Optional[int]:
        head = self._target.read_prefix(block, 16)
        size, following = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
        is_one = len(head) == 16 and 0 < size <= traces.MOST_BLOCK_BYTES and not size % traces.BLOCK_BYTES
        return size if is_one and not following % PIECE_BYTES else None


def find_arenas(target: Target, memory: Iterable[Tuple[int, bytes]], page_bytes: int) -> Optional[Arenas]:
    """arenas[] in these pieces of an object's memory; None if no word there leads to an arena."""
    blocks, votes = Blocks(target, page_bytes), {}  # type: Blocks, Dict[int, int]
    for address, word in kernels.load().find_addresses(memory, traces.writable_ranges(target), traces.ARENA_ALIGNMENT - 1):
        index = blocks.index_of(word)
        if index is not None:
            start = address - 8 * index
            votes[start] = votes.get(start, 0) + 1
    likely = sorted(votes, key=lambda start: (-votes[start], start))[:MOST_CANDIDATES]
    candidates = [look(target, start, page_bytes, blocks) for start in likely if not start & 63]
    return max((candidate for candidate in candidates if candidate.pointers), key=lambda candidate: candidate.score, default=None)


def look(target: Target, address: int, page_bytes: int, blocks: Optional[Blocks] = None) -> Arenas:
    """What arenas[] would be if it began here."""
    blocks = blocks or Blocks(target, page_bytes)
    words = array("Q", _whole(target.read_prefix(address, 8 * traces.ARENA_POINTERS)))
    pointers = {index: word for index, word in enumerate(words) if word and blocks.index_of(word) == index}
    return Arenas(address, pointers, sum(1 for word in words if word) - len(pointers), page_bytes)


def _whole(data: bytes) -> bytes:
    return data[: len(data) & -8]


def base_places(target: Target, arena: int, base: int) -> Sequence[int]:
    """Offsets in an arena at which a pointer to that base stands, and behind its end where there is more of the block."""
    data, pointer = target.read_prefix(arena, traces.ARENA_BYTES), base.to_bytes(8, "little")
    places, at = [], data.find(pointer)
    while at >= 0:
        if not at & 7:
            places.append(at)
        at = data.find(pointer, at + 1)
    return places


def fitting(target: Target, arenas: Arenas, nbins: Optional[int] = None, tsd_bytes: Optional[int] = None) -> List[Table]:
    """The tables whose layout most of the arenas have; of those with that many bins and a tsd of that size, where these are known."""
    blocks, votes = Blocks(target, arenas.page_bytes), {}  # type: Blocks, Dict[str, int]
    likely = tables.of(arenas.page_bytes, target.arch.mutex_bytes)
    tried = list(arenas.pointers.values())[:ARENAS_TRIED]
    for arena in tried:
        places = base_places(target, arena, blocks.base_of(arena) or 0)
        for table in likely:
            if table.fits(places):
                votes[table.name] = votes.get(table.name, 0) + 1
    fits = [table for table in likely if 2 * votes.get(table.name, 0) > len(tried)]
    return [table for table in fits if nbins in (None, table.nbins) and tsd_bytes in (None, table.tsd_bytes)]


def find_in(
    target: Target, module: Module, memory: Iterable[Tuple[int, bytes]], page_bytes: int = tables.PAGE_BYTES
) -> Optional[Arenas]:
    """find_arenas, within what the object can hold."""
    arenas = find_arenas(target, memory, page_bytes)
    spans = target.writable_segments(module)
    return arenas if arenas is not None and any(start <= arenas.address < end for start, _, end in spans) else None
