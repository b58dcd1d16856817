"""The data of a process's loaded objects: what is in memory or in the core, its words, and what of it is not written any more."""

import sys
from array import array
from bisect import bisect_right
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from gdbheapx.analysis.census.world import CensusTarget
from gdbheapx.common.ranges import unite_ranges
from gdbheapx.inferior.base import Mapping, Module

MOST_ZEROS_BYTES = 1 << 20
"""Of an object's .bss, where an executable has copies of the libraries' vtables: at its begin."""
MOST_DATA_BYTES = 64 << 20
"""Of one object, that are searched."""
PAGE_BITS = 12


class Images:
    """The data of all loaded objects: what of them is in memory or in the core, and no code."""

    def __init__(self, world: CensusTarget) -> None:
        self.word_bytes = world.word_bytes
        self._world = world
        self._spans = sorted(world.target.image_ranges(), key=lambda span: span[:2])
        self._starts = [start for start, _, _ in self._spans]
        self._mappings: Sequence[Mapping] = world.target.mappings()
        self._mapped = [mapping.start for mapping in self._mappings]
        self.ranges: List[Tuple[int, int]] = []
        """(begin, end) of what is in `word`, sorted."""
        self._pages: Dict[int, Tuple[int, array[int]]] = {}
        size = self.word_bytes
        for start, end in drop_range_overlaps(self._iterate_places()):
            start += -start % size
            data = world.read(start, end - start) if start < end else b""
            if not data:
                continue
            words = array("Q" if size == 8 else "I", data[: len(data) // size * size])
            if world.little_endian != (sys.byteorder == "little"):
                words.byteswap()
            end = start + len(words) * size
            self.ranges.append((start, end))
            for page in range(start >> PAGE_BITS, -(-end >> PAGE_BITS)):
                self._pages.setdefault(page, (start, words))
        self.ranges.sort()

    def _iterate_places(self) -> Iterator[Tuple[int, int]]:
        target = self._world.target
        of_core = target.kind == "core"
        for first, last, module in self._spans:
            left = MOST_DATA_BYTES
            segments = target.writable_segments(module)
            unread = [(file_end + MOST_ZEROS_BYTES, end) for _, file_end, end in segments]
            parts = target.present_ranges(first, last) if of_core else [(start, end) for start, _, end in segments]
            for start, end in parts:
                end = min([end, *(skipped for skipped, stop in unread if start < skipped < end <= stop)])
                mapping = self.mapping_at(start)
                if left > 0 and not (mapping is not None and mapping.executable):
                    yield start, min(end, start + left)
                    left -= end - start

    def mapping_at(self, address: int) -> Optional[Mapping]:
        """Return the mapping that holds the address, if it is known."""
        place = bisect_right(self._mapped, address) - 1
        return self._mappings[place] if place >= 0 and address < self._mappings[place].end else None

    def mappings_in(self, start: int, end: int) -> Iterator[Mapping]:
        place = max(0, bisect_right(self._mapped, start) - 1)
        while place < len(self._mappings) and self._mappings[place].start < end:
            if start < self._mappings[place].end:
                yield self._mappings[place]
            place += 1

    def span_at(self, address: int) -> Optional[Tuple[int, int, Module]]:
        """Return the object whose image holds the address, with its first address and its end."""
        place = bisect_right(self._starts, address) - 1
        return self._spans[place] if place >= 0 and address < self._spans[place][1] else None

    def word(self, address: int) -> Optional[int]:
        """Return the word at the address if it is an object's data, else None."""
        data = self._pages.get(address >> PAGE_BITS)
        if data is None:
            return None
        at = address - data[0]
        return data[1][at // self.word_bytes] if 0 <= at < len(data[1]) * self.word_bytes and not at % self.word_bytes else None

    def words(self, start: int, end: int) -> "array[int]":
        """Return the words of a range, as far as they are one object's data from its start on."""
        data = self._pages.get(start >> PAGE_BITS)
        if data is None or not data[0] <= start:
            return array("Q")
        size = self.word_bytes
        return data[1][-(-(start - data[0]) // size) : max(0, (end - data[0]) // size)]

    def signed(self, address: int) -> Optional[int]:
        value = self.word(address)
        return value if value is None or not value >> (8 * self.word_bytes - 1) else value - (1 << 8 * self.word_bytes)

    def half(self, address: int) -> Optional[int]:
        """Return the unsigned int of four bytes at the address."""
        first = address - address % self.word_bytes
        word = self.word(first)
        at = (address - first) // 4
        place = at if self._world.little_endian else self.word_bytes // 4 - 1 - at
        return None if word is None else word >> 32 * place & 0xFFFFFFFF

    def is_code(self, address: int) -> bool:
        """Return whether a function may be there: in an object, and not in its data. Cores of debuggers have no rights for what they left
        out."""
        if address >> PAGE_BITS in self._pages or self.span_at(address) is None:
            return False
        mapping = self.mapping_at(address)
        return mapping is None or mapping.executable

    def pointers(self) -> Tuple[List[int], List[int]]:
        """Return (places, values) of all words that point to data."""
        places: List[int] = []
        values: List[int] = []
        pages, size = self._pages, self.word_bytes
        lowest = self.ranges[0][0] if self.ranges else 0
        for start, words in {id(words): (start, words) for start, words in pages.values()}.values():
            pointers = [at for at, value in enumerate(words) if value >= lowest and value >> PAGE_BITS in pages]
            places += [start + size * at for at in pointers]
            values += [words[at] for at in pointers]
        return places, values


def drop_range_overlaps(ranges: Iterator[Tuple[int, int]]) -> Iterator[Tuple[int, int]]:
    """Yield the ranges sorted and without overlaps, which damaged headers may cause."""
    last = 0
    for start, end in sorted(ranges):
        if end > last:
            yield max(start, last), end
            last = end


def list_constant_ranges(world: CensusTarget, images: Images, whole: bool = True) -> List[Tuple[int, int]]:
    """Return ranges of the objects' data that are not writable any more. `whole`: with all but the code of an executable at a fixed
    address."""
    constants = []
    places = sorted(images.ranges + [(start, end) for start, end, module in world.target.image_ranges() if whole and not module.base])
    for start, end in places:
        for mapping in images.mappings_in(start, end):
            if not mapping.writable and not mapping.executable:
                constants.append((max(mapping.start, start), min(mapping.end, end)))
    return unite_ranges(constants)
