"""Blocks that PHP's memory manager has handed out, by the map of pages that each of its chunks has (Zend/zend_alloc.c)."""

from array import array
from bisect import bisect_right
from itertools import accumulate
from struct import unpack
from typing import Iterator, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census.world import World
from gdbheapx.kernel.blocks.stream import NativeBlocks

PAGE_BYTES, PAGES = 4096, 512
HEAD_BYTES = 4096
FIRST = 0x40000001
"""Of map[0], in each chunk: the head is one large page."""
SMALL, LARGE = 1 << 31, 1 << 30
"""ZEND_MM_IS_SRUN, ZEND_MM_IS_LRUN; both: a further page of a small run (ZEND_MM_IS_NRUN)."""
SIZE_CLASSES = (
    *((8, 512, 1), (16, 256, 1), (24, 170, 1), (32, 128, 1), (40, 102, 1), (48, 85, 1), (56, 73, 1), (64, 64, 1), (80, 51, 1), (96, 42, 1)),
    *((112, 36, 1), (128, 32, 1), (160, 25, 1), (192, 21, 1), (224, 18, 1), (256, 16, 1), (320, 64, 5), (384, 32, 3), (448, 9, 1)),
    *((512, 8, 1), (640, 32, 5), (768, 16, 3), (896, 9, 2), (1024, 8, 2), (1280, 16, 5), (1536, 8, 3), (1792, 16, 7), (2048, 8, 4)),
    *((2560, 8, 5), (3072, 4, 3)),
)
"""(bytes of an element, elements, pages) by number (zend_alloc_sizes.h)."""
MOST_FREE = 1 << 20


class ZendPieces(NamedTuple):
    """Pieces that the memory manager has handed out."""

    blocks: NativeBlocks
    """Those of chunks, and those that have a mapping of their own."""
    bytes: int
    notes_bytes: int
    """Of the manager's own blocks, which are not among them: they lead to what others own."""


def find_zend_pieces(
    world: World, chunks: Sequence[int], huge: Sequence[Tuple[int, int]], free_slots: Sequence[int], notes: Sequence[int]
) -> Optional[ZendPieces]:
    """Return the pieces in use, or None if a map or a list is damaged. `free_slots`: the first free element of each bin; `notes`: the
    manager's own blocks.
    """
    runs = [(start, end - start, 1) for start, end in huge]
    for chunk in chunks:
        pages = _read_page_map(world, chunk)
        if pages is None:
            return None
        runs += _list_runs(chunk, pages)
    runs.sort()
    labels = world.unlisted(runs, free_slots, MOST_FREE)
    if labels is None:
        return None
    notes_bytes = _unlabel_own_blocks(runs, labels, notes)
    blocks = world.cells(runs, labels)
    return ZendPieces(blocks, sum(blocks.usable_bytes), notes_bytes)


def _unlabel_own_blocks(runs: Sequence[Tuple[int, int, int]], labels: "array[int]", notes: Sequence[int]) -> int:
    """Mark the manager's own blocks as not in use and return their bytes."""
    starts, firsts, left = [start for start, _, _ in runs], [0, *accumulate(count for _, _, count in runs)], 0
    for address in notes if runs else ():
        place = max(0, bisect_right(starts, address) - 1)
        start, size, count = runs[place]
        number, rest = divmod(address - start, size or 1)
        if not rest and 0 <= number < count and labels[firsts[place] + number]:
            labels[firsts[place] + number] = 0
            left += size
    return left


def _read_page_map(world: World, chunk: int) -> Optional[Sequence[int]]:
    head = world.read(chunk, HEAD_BYTES)
    words = unpack("<%dI" % (HEAD_BYTES // 4), head) if len(head) == HEAD_BYTES else ()
    place = next((at for at in range(16, len(words) - PAGES + 1) if words[at] == FIRST), None)
    return None if place is None else words[place : place + PAGES]


def _list_runs(chunk: int, pages: Sequence[int]) -> Iterator[Tuple[int, int, int]]:
    """Yield (start, bytes of an element, elements) of each run except the chunk's head."""
    page = 1
    while page < PAGES:
        info, start = pages[page], chunk + page * PAGE_BYTES
        length = 1
        if info & SMALL and not info & LARGE and info & 31 < len(SIZE_CLASSES):
            size, count, length = SIZE_CLASSES[info & 31]
            yield start, size, count
        elif info & LARGE and not info & SMALL and info & 1023:
            length = info & 1023
            yield start, length * PAGE_BYTES, 1
        page += length
