"""Blocks that PHP's memory manager has handed out, by the map of pages that each of its chunks has (Zend/zend_alloc.c)."""

from array import array
from struct import unpack
from typing import Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.census.world import World, used_blocks
from gdbheapx.kernel.blocks.records import Blocks

CHUNK_BYTES, PAGE_BYTES, PAGES = 2 << 20, 4096, 512
HEAD_BYTES = 4096
FIRST = 0x40000001
"""Of map[0], in each chunk: the head is one large page."""
SMALL, LARGE = 1 << 31, 1 << 30
"""ZEND_MM_IS_SRUN, ZEND_MM_IS_LRUN; both: a further page of a small run (ZEND_MM_IS_NRUN)."""
BINS = (
    *((8, 512, 1), (16, 256, 1), (24, 170, 1), (32, 128, 1), (40, 102, 1), (48, 85, 1), (56, 73, 1), (64, 64, 1), (80, 51, 1), (96, 42, 1)),
    *((112, 36, 1), (128, 32, 1), (160, 25, 1), (192, 21, 1), (224, 18, 1), (256, 16, 1), (320, 64, 5), (384, 32, 3), (448, 9, 1)),
    *((512, 8, 1), (640, 32, 5), (768, 16, 3), (896, 9, 2), (1024, 8, 2), (1280, 16, 5), (1536, 8, 3), (1792, 16, 7), (2048, 8, 4)),
    *((2560, 8, 5), (3072, 4, 3)),
)
"""(bytes of an element, elements, pages) by number (zend_alloc_sizes.h)."""
MOST_FREE = 1 << 20


class Pieces(NamedTuple):
    """All that is handed out."""

    blocks: Sequence[Blocks]
    """Of one chunk each, then those that have a mapping of their own; all by address."""
    bytes: int
    notes_bytes: int
    """Of the manager's own blocks, which are not among them: they lead to what others own."""


def find(
    world: World, chunks: Sequence[int], huge: Sequence[Tuple[int, int]], free_slots: Sequence[int], notes: Sequence[int]
) -> Optional[Pieces]:
    """`free_slots`: the first free element of each bin; `notes`: the manager's own blocks. None where a map or a list is damaged."""
    free = _free(world, free_slots)
    if free is None:
        return None
    rows: List[Tuple[int, Blocks]] = []
    own, notes_bytes = set(notes), 0
    for chunk in chunks:
        found = _of_chunk(world, chunk, free, own)
        if found is None:
            return None
        rows.append((chunk, found[0]))
        notes_bytes += found[1]
    rows += [(start, used_blocks(array("Q", [start]), array("Q", [end - start]))) for start, end in huge]
    ordered = [blocks for _, blocks in sorted(rows, key=lambda row: row[0])]
    return Pieces(ordered, sum(sum(blocks.usable_bytes) for blocks in ordered), notes_bytes)


def _free(world: World, heads: Sequence[int]) -> Optional[Set[int]]:
    """Lists through the first words of free elements."""
    free: Set[int] = set()
    for at in heads:
        while at:
            word = world.words(at, 1)
            if word is None or at in free or len(free) == MOST_FREE:
                return None
            free.add(at)
            at = word[0]
    return free


def _of_chunk(world: World, chunk: int, free: Set[int], own: Set[int]) -> Optional[Tuple[Blocks, int]]:
    """What is handed out, and bytes of the manager's own blocks."""
    head = world.read(chunk, HEAD_BYTES)
    words = unpack("<%dI" % (len(head) // 4), head)
    place = next((at for at in range(16, len(words) - PAGES + 1) if words[at] == FIRST), None)
    if place is None:
        return None
    addresses, sizes, own_bytes = array("Q"), array("Q"), 0
    for start, size, count in _runs(chunk, words[place : place + PAGES]):
        elements = [address for address in range(start, start + size * count, size) if address not in free]
        others = [address for address in elements if address not in own] if own else elements
        addresses.extend(others)
        sizes.extend([size] * len(others))
        own_bytes += size * (len(elements) - len(others))
    return used_blocks(addresses, sizes), own_bytes


def _runs(chunk: int, pages: Sequence[int]) -> Iterator[Tuple[int, int, int]]:
    """(start, bytes of an element, elements) of each run but the chunk's head."""
    page = 1
    while page < PAGES:
        info, start = pages[page], chunk + page * PAGE_BYTES
        length = 1
        if info & SMALL and not info & LARGE and info & 31 < len(BINS):
            size, count, length = BINS[info & 31]
            yield start, size, count
        elif info & LARGE and not info & SMALL and info & 1023:
            length = info & 1023
            yield start, length * PAGE_BYTES, 1
        page += length
