"""Blocks that are pointed to at a place inside, by design: what the block itself has at its start says so."""

from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from gdbheapx.analysis.reach.look import Reach
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.blocks.graph import RULE_BASE, RULE_HABIT

MOST_POINTERS = 1 << 20
"""To the inside of blocks, that are looked at."""
MOST_HEAD_BYTES = 64
MOST_SLACK_BYTES = 16
"""Of what malloc gives beyond what was asked for."""


class Block(NamedTuple):
    """A block that is pointed to at an offset."""

    words: Tuple[int, ...]
    """At its start."""
    size_bytes: int
    offset: int
    at_offset: Optional[int]
    """The word that is pointed to."""


class Vtables:
    """What stands in front of the functions of a vtable: offset-to-top and the class's type_info (Itanium C++ ABI, 2.5.2)."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: Dict[int, Optional[Tuple[int, int]]] = {}
        self._images = [(start, end) for start, end, _ in target.image_ranges()]

    def head(self, address: int) -> Optional[Tuple[int, int]]:
        """(offset to top, type_info) of the vtable at that address point; None where there is none."""
        if address not in self._known:
            self._known[address] = self._read(address)
        return self._known[address]

    def _read(self, address: int) -> Optional[Tuple[int, int]]:
        word = self._target.word_bytes
        if address % word or not any(start <= address < end for start, end in self._images):
            return None
        data = self._target.read_prefix(address - 2 * word, 2 * word)
        if len(data) < 2 * word:
            return None
        order = "little" if self._target.little_endian else "big"
        top = int.from_bytes(data[:word], order, signed=True)  # type: ignore[arg-type]
        type_info = int.from_bytes(data[word:], order)  # type: ignore[arg-type]
        return (top, type_info) if any(start <= type_info < end for start, end in self._images) else None


def is_second_base(block: Block, vtables: Vtables) -> bool:
    """Both places have vtables of one class, and the second's says how far it is from the first."""
    first = vtables.head(block.words[0]) if block.words else None
    second = vtables.head(block.at_offset) if block.at_offset is not None else None
    return first is not None and second is not None and first[0] == 0 and second[0] == -block.offset and first[1] == second[1]


def is_string(block: Block, word: int) -> bool:
    """The characters behind length, capacity and count of references (libstdc++'s std::string before GCC 5: _Rep)."""
    if block.offset != 3 * word or len(block.words) < 3:
        return False
    length, capacity = block.words[:2]
    return length <= capacity and 0 <= block.size_bytes - (capacity + 3 * word + 1) < 2 * MOST_SLACK_BYTES


def is_array(block: Block, word: int) -> bool:
    """The elements behind their number, as new[] keeps it for classes with destructors (Itanium C++ ABI, 2.7): elements of one size fill
    the rest, and there are two at least."""
    if block.offset not in (word, 2 * word) or not block.words:
        return False
    count, room = block.words[block.offset // word - 1], block.size_bytes - block.offset
    if not 2 <= count <= room // word:
        return False
    size = room // count // word * word
    return 0 <= room - count * size < MOST_SLACK_BYTES


def is_counted(block: Block, word: int) -> bool:
    """What was asked for, behind its own length: wrappers of malloc keep it so."""
    if block.offset not in (word, 2 * word) or not block.words:
        return False
    return block.words[0] > 0 and any(0 <= block.size_bytes - more - block.words[0] < MOST_SLACK_BYTES for more in (0, block.offset))


CONTAINERS: Tuple[Callable[[Block, int], bool], ...] = (is_string, is_array, is_counted)


def find(target: Target, reach: Reach) -> List[Tuple[int, int, int]]:
    """(block, offset, rule) of the places inside blocks that are proved by what the blocks hold, sorted."""
    vtables, word, found = Vtables(target), reach.word_bytes, []
    places = reach.graph.only_inside(MOST_POINTERS)
    order = "little" if target.little_endian else "big"
    for (node, offset), (address, size) in zip(places, reach.graph.blocks([node for node, _ in places])):
        if offset % word or offset + word > size:
            continue
        data = target.read_prefix(address, min(size, max(MOST_HEAD_BYTES, offset + word) if offset < 4096 else MOST_HEAD_BYTES))
        words = tuple(int.from_bytes(data[at : at + word], order) for at in range(0, len(data) - word + 1, word))  # type: ignore[arg-type]
        there = words[offset // word] if offset // word < len(words) else None
        block = Block(words[: MOST_HEAD_BYTES // word], size, offset, there)
        if is_second_base(block, vtables):
            found.append((node, offset, RULE_BASE))
        elif any(one(block, word) for one in CONTAINERS):
            found.append((node, offset, RULE_HABIT))
    return found
