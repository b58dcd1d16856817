"""Where main_arena and mp_ can lie: writable memory of loaded objects, of which only what is there is read."""

import sys
from array import array
from itertools import compress, count
from operator import eq
from typing import Any, Iterator, List, NamedTuple, Sequence, Set

from gdbheapx.glibc.layouts import LIBRARY
from gdbheapx.inferior.base import Mapping, Module, Target

MOST_BYTES = 64 << 20
"""Searched in all. A libc's own writable memory is 60 KiB, a program's .data and .bss seldom more than a few MiB."""
MOST_OF_ONE = 16 << 20
"""Of one object, or of one mapping."""


class Area(NamedTuple):
    """A run of writable memory that was read."""

    module: Module
    start: int
    data: bytes

    @property
    def end(self) -> int:
        """First address beyond."""
        return self.start + len(self.data)


def of_modules(target: Target, modules: Sequence[Module]) -> Iterator[Area]:
    """What is there of the writable segments of these objects."""
    left = MOST_BYTES
    for module in modules:
        own = min(left, MOST_OF_ONE)
        for start, _, end in target.writable_segments(module):
            for low, high in target.present_ranges(start, end):
                size = min(high - low, own)
                if size > 0:
                    data = target.read_prefix(low, size)
                    own, left = own - len(data), left - len(data)
                    yield Area(module, low, data)


def of_mappings(target: Target, known: Sequence[Module], of_files: bool) -> Iterator[Area]:
    """The same of writable private mappings that belong to no object in the list, of files or anonymous ones, the smallest first. For an
    object that no list names (dlmopen), and for a core that tells of none."""
    taken = [(start, end) for module in known for start, _, end in target.writable_segments(module)]
    own = [one for one in target.mappings() if one.writable and not one.shared and one.is_file == of_files]
    rest = [one for one in own if not any(one.start < end and start < one.end for start, end in taken)]
    left = MOST_BYTES
    for mapping in sorted(rest, key=lambda one: one.size_bytes):
        there = target.present_ranges(mapping.start, min(mapping.end, mapping.start + MOST_OF_ONE))
        for low, high in target.data_ranges(there) or there:
            size = min(high - low, left)
            if size > 0:
                data = target.read_prefix(low, size)
                left -= len(data)
                yield Area(_module_of(target, mapping), low, data)


def _module_of(target: Target, mapping: Mapping) -> Module:
    """The object that a mapping belongs to, as far as its file's name tells."""
    if not mapping.is_file:
        program = next((one for one in target.modules() if one.is_executable), None)
        return program or Module(target.executable or "", 0, True, None, None)
    begins = [one.start for one in target.mappings() if one.name == mapping.name]
    return Module(mapping.name, min(begins), mapping.name == target.executable, None, None)


def words(area: Area, target: Target) -> Any:
    """Its aligned words as array, and the address of the first: (array, address)."""
    word = target.word_bytes
    first = -area.start % word
    found = array("Q" if word == 8 else "I", area.data[first : first + (len(area.data) - first) // word * word])
    if target.little_endian != (sys.byteorder == "little"):
        found.byteswap()
    return found, area.start + first


def at_own_address(area: Area, target: Target, less_bytes: int) -> List[int]:
    """Addresses of the words that hold their own address less so many bytes."""
    values, start = words(area, target)
    word = target.word_bytes
    same = map(eq, values, range(start - less_bytes, start - less_bytes + word * len(values), word))
    return [start + word * place for place in compress(count(), same)]


def searched(target: Target, known: Set[int]) -> List[List[Module]]:
    """Lists of objects, each to be searched if nothing was found in those before: what a libc's file is called, the program, the others.
    `known`: bases of those of which symbols or a pack tell; where they do, only what a libc is called."""
    unknown = [one for one in target.modules() if one.base not in known]
    named = [one for one in unknown if LIBRARY.match(one.file_name)]
    if known:
        return [named]
    others = [one for one in unknown if one not in named]
    return [named, [one for one in others if one.is_executable], [one for one in others if not one.is_executable]]
