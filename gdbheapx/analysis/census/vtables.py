"""C++ vtables in a process, found by structure alone (Itanium C++ ABI): no symbol, name or file is needed.

The runtime's own type_infos are the seed: that of __si_class_type_info is an instance of itself. From there every type_info of a class
leads to the runtime's three vtables, and every vtable to its type_info. All of them lie in what the dynamic linker has written to, which
is in every core; of an executable at a fixed address they lie in constants, which are not, and its file has them.
"""

import sys
from array import array
from bisect import bisect_right
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.census.world import World
from gdbheapx.inferior.base import Mapping, Module
from gdbheapx.ranges import unite_ranges

MOST_DISTANCE = 1 << 20
"""From a base to the start of its object, in bytes."""
MOST_BASES = 64
MOST_ZEROS_BYTES = 1 << 20
"""Of an object's .bss, where an executable has copies of the libraries' vtables: at its begin."""
MOST_DATA_BYTES = 64 << 20
"""Of one object, that are searched."""
MOST_KINDS = 64
"""Vtables of type_infos, those of every C++ runtime in the process together."""
NO_BASE, ONE_BASE, BASES = range(3)
"""Kinds of type_infos: __class_type_info, __si_class_type_info, __vmi_class_type_info."""
PAGE_BITS = 12


class CppVtable(NamedTuple):
    """C++ vtable in memory."""

    type_info: int
    """The address of its class's."""
    within: int
    """Where the part of the object that points here begins."""


class Images:
    """The data of all loaded objects: what of them is in memory or in the core, and no code."""

    def __init__(self, world: World) -> None:
        self.word_bytes = world.word_bytes
        self._world = world
        self._spans = sorted(world.target.image_ranges(), key=lambda span: span[:2])
        self._starts = [start for start, _, _ in self._spans]
        self._mappings: Sequence[Mapping] = world.target.mappings()
        self._mapped = [mapping.start for mapping in self._mappings]
        self.ranges: List[Tuple[int, int]] = []
        """(begin, end) of what is in `word`, sorted."""
        self._pages: Dict[int, Tuple[int, array[int]]] = {}
        for start, data in self._iterate_data():
            words = array("Q" if self.word_bytes == 8 else "I", data[: len(data) // self.word_bytes * self.word_bytes])
            if world.little_endian != (sys.byteorder == "little"):
                words.byteswap()
            end = start + len(words) * self.word_bytes
            self.ranges.append((start, end))
            for page in range(start >> PAGE_BITS, -(-end >> PAGE_BITS)):
                self._pages.setdefault(page, (start, words))
        self.ranges.sort()

    def _iterate_data(self) -> Iterator[Tuple[int, bytes]]:
        word = self.word_bytes
        for start, end in drop_range_overlaps(self._iterate_places()):
            start += -start % word
            data = self._world.read(start, end - start) if start < end else b""
            if data:
                yield start, data

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


def find_vtables(images: Images) -> Dict[int, CppVtable]:
    """Return vtables by address point, for all classes with type_infos; empty if there is no C++ runtime."""
    places, values = images.pointers()
    kinds = find_cpp_runtime(images, places, values)
    if not kinds:
        return {}
    infos, inside = type_infos(images, [(place, kinds[value]) for place, value in zip(places, values) if value in kinds])
    word, vtables = images.word_bytes, {}
    for place, value in [(place, value) for place, value in zip(places, values) if value in infos]:
        distance = images.signed(place - word)
        if place in inside or distance is None or distance % word or not -MOST_DISTANCE < distance <= 0:
            continue
        if has_code(images, place + word):
            vtables[place + word] = CppVtable(value, -distance)
    return vtables


def has_code(images: Images, place: int) -> bool:
    """Return True if a function is among the first entries: those of an abstract class's destructors are empty."""
    first = next((word for word in (images.word(place + at * images.word_bytes) for at in range(3)) if word != 0), None)
    return first is not None and images.is_code(first & ~1)


def find_cpp_runtime(images: Images, places: Sequence[int], values: Sequence[int]) -> Dict[int, int]:
    """Return by the address points of the vtables of type_infos themselves NO_BASE, ONE_BASE or BASES, for every C++ runtime in the
    process.
    """
    word = images.word_bytes
    kinds: Dict[int, int] = {}
    read = images.word
    for place, value in zip(places, values):
        point = place + word
        if len(kinds) >= MOST_KINDS:
            break
        if read(value) != point:  # the type_info of __si_class_type_info: its vtable leads to it, and it to its vtable
            continue
        parent = read(value + 2 * word)
        top = read(parent + 2 * word) if parent is not None and read(parent) == point else None
        none = read(top) if top is not None else None
        if parent is None or none is None or read(none - word) != parent:
            continue
        kinds[point], kinds[none] = ONE_BASE, NO_BASE
        others = {at for at, kind in zip(places, values) if kind == point and at != value and read(at + 2 * word) == parent}
        for at, to in zip(places, values):  # an executable at a fixed address may have a copy of it: two
            if to in others and read(at - word) == 0 and has_code(images, at + word):
                kinds.setdefault(at + word, BASES)
    return kinds


def type_infos(images: Images, met: Sequence[Tuple[int, int]]) -> Tuple[Dict[int, List[int]], Set[int]]:
    """Return all consistent type_infos: address -> addresses of its bases' type_infos, and the places of these inside type_infos."""
    word = images.word_bytes
    bases_of: Dict[int, List[int]] = {}
    inside: Set[int] = set()
    for place, kind in met:
        name = images.word(place + word)
        if name is None or images.span_at(name_address(name, word)) is None:
            continue
        at = base_places(images, place, kind)
        bases = [images.word(base) for base in at] if at is not None else [None]
        if None not in bases:
            bases_of[place] = bases  # type: ignore[assignment]
            inside.update(at or ())
    while True:
        wrong = [place for place, bases in bases_of.items() if not all(base in bases_of for base in bases)]
        if not wrong:
            return bases_of, inside
        for place in wrong:
            del bases_of[place]


def base_places(images: Images, place: int, kind: int) -> Optional[List[int]]:
    """Return the addresses of a type_info's pointers to its bases; None if it is no type_info."""
    word = images.word_bytes
    first = place + 2 * word
    if kind != BASES:
        return [first] if kind == ONE_BASE else []
    head = images.half(first)
    count = images.half(first + 4)
    if head is None or count is None or head > 3 or not 1 <= count <= MOST_BASES:
        return None
    return [first + 8 + 2 * word * number for number in range(count)]


def name_address(word: int, word_bytes: int) -> int:
    """Return the address of a type_info's name, whose highest bit may say that it is not the only one of this name."""
    return word & ~(1 << (8 * word_bytes - 1)) if word_bytes == 8 else word


def constant_ranges(world: World, images: Images, whole: bool = True) -> List[Tuple[int, int]]:
    """Return ranges of the objects' data that are not writable any more. `whole`: with all but the code of an executable at a fixed
    address."""
    constants = []
    places = sorted(images.ranges + [(start, end) for start, end, module in world.target.image_ranges() if whole and not module.base])
    for start, end in places:
        for mapping in images.mappings_in(start, end):
            if not mapping.writable and not mapping.executable:
                constants.append((max(mapping.start, start), min(mapping.end, end)))
    return unite_ranges(constants)
