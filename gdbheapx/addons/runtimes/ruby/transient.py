"""Where Ruby 3.1 keeps what young objects have beside their slots (transient_heap.c; gone with 3.3): 32 MiB in blocks of 32 KiB."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.runtimes.ruby.objects import Objects

BLOCK_BYTES = 32 << 10
HEAD_BYTES = 16
"""Of a block {index, last_marked_index, objects, next_block}, and of a piece {magic, size, next, dummy, object}."""
MAGIC = 0xFEAB
MOST_BLOCKS = 1024
HEAP_WORDS = 9
"""struct transient_heap: using_blocks, marked_blocks, free_blocks, counts (2 words), promoted_objects, their counts, arena, arena_index."""


class Transient(NamedTuple):
    """What lies there."""

    blocks: Sequence[int]
    pieces: Sequence[Tuple[int, int]]
    """(address, bytes), by address."""
    free_bytes: int
    promoted: int
    """A list of objects that have left it, which keeps none of them."""


def transient_heap(objects: Objects) -> Optional[Transient]:
    """By its account in the interpreter's data: all lists lead into the arena, and have as many blocks as it says."""
    for _, words in objects.data_words():
        for at in range(len(words) - HEAP_WORDS + 1):
            using, marked, free, _, total, promoted, _, arena, index = words[at : at + HEAP_WORDS]
            if not arena or arena % BLOCK_BYTES or not 0 < index & 0xFFFFFFFF <= MOST_BLOCKS:
                continue
            lists = [_blocks(objects, first, arena) for first in (using, marked, free)]
            lengths = [len(blocks) for blocks in lists if blocks is not None]
            if len(lengths) == 3 and sum(lengths) == index & 0xFFFFFFFF and lengths[0] + lengths[1] == total & 0xFFFFFFFF:
                return _pieces(objects, sorted([*(lists[0] or ()), *(lists[1] or ())]), sorted(lists[2] or ()), promoted)
    return None


def _blocks(objects: Objects, first: int, arena: int) -> Optional[List[int]]:
    blocks: List[int] = []
    while first:
        words = objects.words(first, 2)
        if not words or first % BLOCK_BYTES or not arena <= first < arena + MOST_BLOCKS * BLOCK_BYTES or len(blocks) == MOST_BLOCKS:
            return None
        blocks.append(first)
        first = words[1]
    return blocks


def _pieces(objects: Objects, used: Sequence[int], unused: Sequence[int], promoted: int) -> Transient:
    pieces: List[Tuple[int, int]] = []
    free_bytes = len(unused) * (BLOCK_BYTES - HEAD_BYTES)
    for block in used:
        words = objects.words(block, BLOCK_BYTES // 8)
        end, at = min((words[0] & 0xFFFF) if words else 0, BLOCK_BYTES - HEAD_BYTES), 0
        while at < end:
            head = words[(HEAD_BYTES + at) // 8]
            size = head >> 16 & 0xFFFF
            if head & 0xFFFF != MAGIC or size < HEAD_BYTES or size % 8 or at + size > end:
                break
            pieces.append((block + HEAD_BYTES + at + HEAD_BYTES, size - HEAD_BYTES))
            at += size
        free_bytes += BLOCK_BYTES - HEAD_BYTES - at
    return Transient(sorted([*used, *unused]), pieces, free_bytes, promoted)
