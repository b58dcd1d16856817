"""What blocks say at their begin about pointers to their inside: what heads.c does."""

from bisect import bisect_right
from typing import Any, Dict, List, Optional, Tuple

from gdbheapx.kernel.blocks.graph import RULE_BASE, RULE_HABIT, RULE_INSIDE, GraphShape
from gdbheapx.kernel.common.twin.source import Reader

AHEAD_BYTES, MOST_BASES, MOST_OFFSET, SLACK = 8192, 64, 65535, 16


class Heads:
    """Of all blocks, in the order of their addresses."""

    def __init__(self, reader: Reader, shape: GraphShape, images: Optional[Reader]) -> None:
        self._reader, self._images, self._shape = reader, images, shape
        self._word = shape.word_bytes
        self._order: Any = "little" if shape.little_endian else "big"
        self._classes: Dict[int, List[Tuple[int, int]]] = {}
        """(offset, vtable) of the second bases, by the class's own vtable."""
        self._rules: List[Dict[int, int]] = []

    def _numbers(self, data: bytes) -> List[int]:
        return [int.from_bytes(data[at : at + self._word], self._order) for at in range(0, len(data) - self._word + 1, self._word)]

    def look(self, address: int, size: int) -> None:
        """The next block."""
        words = (self._numbers(self._reader.read(address, min(size, 2 * self._word))) + [0, 0])[:2]
        rules = dict.fromkeys(self._containers(words, size), RULE_HABIT)
        bases = self._bases(words[0])
        if bases and all(
            offset < size and self._numbers(self._reader.read(address + offset, self._word)) == [one] for offset, one in bases
        ):
            rules = {**{offset: RULE_BASE for offset, _ in bases}, **rules}
        self._rules.append(rules)

    def rule(self, block: int, offset: int) -> int:
        """Of a pointer to that offset."""
        return self._rules[block].get(offset, RULE_INSIDE)

    def _bases(self, value: int) -> List[Tuple[int, int]]:
        if value not in self._classes:
            self._classes[value] = self._learned(value)
        return self._classes[value]

    def _learned(self, value: int) -> List[Tuple[int, int]]:
        word = self._word
        place = bisect_right(self._shape.images, (value, 1 << 65)) - 1
        start, end = self._shape.images[place] if place >= 0 else (0, 0)
        if self._images is None or value % word or not start + 2 * word <= value < end:
            return []
        at = value - 2 * word
        words = self._numbers(self._images.read(at, min(end - at, AHEAD_BYTES)))
        if len(words) < 2 or words[0] or not words[1] or words[1] % word:
            return []
        found: List[Tuple[int, int]] = []
        for number in range(2, len(words) - 1):
            offset = -words[number] % (1 << 8 * word)
            if words[number + 1] == words[1] and 0 < offset < MOST_OFFSET and not offset % word and len(found) < MOST_BASES:
                found.append((offset, value + number * word))
        return found

    def _containers(self, words: List[int], size: int) -> List[int]:
        """Offsets behind the number of an array's elements, behind a length, and behind the head of an old string."""
        word = self._word
        found = [
            at
            for at in (word, 2 * word)
            if at + word <= size and (is_array(words[at // word - 1], size - at, word) or is_counted(words[0], size, at))
        ]
        length, capacity = words
        if size >= 4 * word and length <= capacity and capacity and 0 <= size - (capacity + 3 * word + 1) < 2 * SLACK:
            found.append(3 * word)
        return found


def is_array(count: int, room: int, word: int) -> bool:
    """See heads.c."""
    return 2 <= count <= room // word and room - count * (room // count // word * word) < SLACK


def is_counted(length: int, size: int, offset: int) -> bool:
    """See heads.c."""
    return length > 0 and any(0 <= size - more - length < SLACK for more in (0, offset))
