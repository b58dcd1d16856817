"""main_arena, found by its bins: each of 127 points to itself, or is linked both ways, and the ring of arenas comes back to it.

A bin is a list head that stands two words before its pair of pointers (malloc.c: bin_at); the last, 127, is never used, so that it always
points to itself once malloc has run.

Where main_arena and mp_ can lie: writable memory of loaded objects, of which only what is there is read.
"""

import sys
from array import array
from functools import cache
from itertools import compress, count
from operator import eq
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.glibc import layouts
from gdbheapx.glibc.layouts import LIBRARY, default_alignment
from gdbheapx.inferior.base import Mapping, Module, Target, TypeSet
from gdbheapx.layout.view import Shape, Version, View, place, read_view

MOST_BYTES = 64 << 20
"""Searched in all. A libc's own writable memory is 60 KiB, a program's .data and .bss seldom more than a few MiB."""
MOST_OF_ONE = 16 << 20
"""Of one object, or of one mapping."""
MAX_RING = 65536
BINS = layouts.NBINS - 1
MOST_WRONG = 12
"""Bins that may be damaged, or in the middle of a change, in an arena that is one."""
STRUCTS = (layouts.MALLOC_STATE, layouts.MALLOC_PAR, layouts.HEAP_INFO, layouts.TCACHE)


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
    own = [mapping for mapping in target.mappings() if mapping.writable and not mapping.shared and mapping.is_file == of_files]
    rest = [mapping for mapping in own if not any(mapping.start < end and start < mapping.end for start, end in taken)]
    left = MOST_BYTES
    for mapping in sorted(rest, key=lambda mapping: mapping.size_bytes):
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
        program = next((module for module in target.modules() if module.is_executable), None)
        return program or Module(target.executable or "", 0, True, None, None)
    begins = [other.start for other in target.mappings() if other.name == mapping.name]
    return Module(mapping.name, min(begins), mapping.name == target.executable, None, None)


def read_area_words(area: Area, target: Target) -> Any:
    """Its aligned words as array, and the address of the first: (array, address)."""
    word = target.word_bytes
    first = -area.start % word
    values = array("Q" if word == 8 else "I", area.data[first : first + (len(area.data) - first) // word * word])
    if target.little_endian != (sys.byteorder == "little"):
        values.byteswap()
    return values, area.start + first


def at_own_address(area: Area, target: Target, less_bytes: int) -> List[int]:
    """Addresses of the read_area_words that hold their own address less so many bytes."""
    values, start = read_area_words(area, target)
    word = target.word_bytes
    same = map(eq, values, range(start - less_bytes, start - less_bytes + word * len(values), word))
    return [start + word * place for place in compress(count(), same)]


def list_searched_areas(target: Target, known: Set[int]) -> List[List[Module]]:
    """Lists of objects, each to be searched if nothing was found in those before: what a libc's file is called, the program, the others.
    `known`: bases of those of which symbols or a pack tell; where they do, only what a libc is called."""
    unknown = [module for module in target.modules() if module.base not in known]
    named = [module for module in unknown if LIBRARY.match(module.file_name)]
    if known:
        return [named]
    others = [module for module in unknown if module not in named]
    return [named, [module for module in others if module.is_executable], [module for module in others if not module.is_executable]]


class ArenaLayout(NamedTuple):
    """One of the layouts that there are."""

    version: Version
    """The newest release that has it."""
    types: TypeSet

    @property
    def bins_offset(self) -> int:
        """Of bins in malloc_state."""
        return self.types.structs[layouts.MALLOC_STATE.name].members["bins"].offset

    @property
    def next_offset(self) -> int:
        """Of next."""
        return self.types.structs[layouts.MALLOC_STATE.name].members["next"].offset


class Candidate(NamedTuple):
    """What looks like a main_arena."""

    module: Module
    address: int
    row: ArenaLayout
    state: View
    ring: Tuple[int, ...]
    """Addresses of all arenas, itself first; of those before the place where it is damaged."""
    is_closed: bool
    """The ring comes back."""
    good_bins: int
    """Of 127, how many lead back; 0 in one that was never used."""

    @property
    def is_used(self) -> bool:
        """It has memory."""
        return bool(self.state["system_mem"])


def candidate_rows(target: Target) -> List[ArenaLayout]:
    """Every layout there is for this machine, newest first."""
    return [ArenaLayout(version, types_of(target, version)) for version in layouts.ROWS]


def types_of(target: Target, version: Version) -> TypeSet:
    """The structs of a release, which nobody may change."""
    return _types(target.word_bytes, target.machine, version)


@cache
def _types(word_bytes: int, machine: str, version: Version) -> TypeSet:
    shape = Shape(word_bytes, default_alignment(word_bytes, machine, version))
    return TypeSet({struct.name: place(struct, version, shape) for struct in STRUCTS})


def find_candidates(target: Target, areas: Sequence[Area], rows: Sequence[ArenaLayout]) -> List[Candidate]:
    """Every arena in these areas that is not on a heap of its own, with each layout that fits: used ones, else those never used."""
    heads: Dict[int, Module] = {}
    for area in areas:
        own = at_own_address(area, target, 2 * target.word_bytes)
        empty = {address for address in own if _word(area, target, address + target.word_bytes) == address - 2 * target.word_bytes}
        heads.update((address, area.module) for address in empty)
    starts = _starts(target, heads, lasts=True)
    candidates = [candidate for address, module in starts for candidate in _at_bins(target, module, address, rows)]
    if not candidates:  # what the last bin says is damaged
        starts = _starts(target, heads, lasts=False)
        candidates = [candidate for address, module in starts for candidate in _at_bins(target, module, address, rows)]
    return candidates or [candidate for area in areas for candidate in _never_used(target, area, rows)]


def _word(area: Area, target: Target, address: int) -> int:
    data = area.data[address - area.start : address - area.start + target.word_bytes]
    return int.from_bytes(data, target.byte_order)


def _starts(target: Target, heads: Dict[int, Module], lasts: bool) -> Iterator[Tuple[int, Module]]:
    """Where bins[] would begin if an empty bin is the last; or, for each run of them, if it is any of 127."""
    step = 2 * target.word_bytes
    if lasts:
        yield from ((head - (BINS - 1) * step, module) for head, module in sorted(heads.items()) if head + step not in heads)
        return
    tried: Set[int] = set()
    for head, module in sorted(heads.items()):
        if head - step not in heads:  # the first of a run
            for number in range(BINS):
                if head - number * step not in tried:
                    tried.add(head - number * step)
                    yield head - number * step, module


def _at_bins(target: Target, module: Module, bins: int, rows: Sequence[ArenaLayout]) -> Iterator[Candidate]:
    """The arenas whose bins[] begins at this address. What stands before bins[] is told by the ring alone: fields behind it lie alike."""
    good = -1
    rings: Dict[Tuple[int, int, int], Tuple[Tuple[int, ...], bool]] = {}
    for row in rows:
        address = bins - row.bins_offset
        try:
            state = read_view(target, row.types, layouts.MALLOC_STATE.name, address)
        except Unreadable:
            continue
        if good < 0:
            good = BINS - wrong_bins(target, state)
        if good < BINS - MOST_WRONG:
            return
        key = (row.bins_offset, row.next_offset, row.types.size_bytes(layouts.HEAP_INFO.name))
        if key not in rings:
            rings[key] = ring_of(target, row, address)
        ring, is_closed = rings[key]
        if (is_closed or len(ring) > 2) and is_sane(state, target.page_bytes):
            yield Candidate(module, address, row, state, ring, is_closed, good)


def wrong_bins(target: Target, state: View, most: int = BINS // 2) -> int:
    """How many of the bins are neither empty nor linked both ways; all, if more than `most`."""
    word, links = target.word_bytes, state.array("bins")
    first = state.address_of("bins") - 2 * word
    wrong = 0
    for index in range(0, len(links), 2):
        header, ahead, behind = first + index * word, links[index], links[index + 1]
        if (ahead, behind) == (header, header):
            continue
        try:
            wrong += header in (ahead, behind) or (target.read_word(ahead + 3 * word), target.read_word(behind + 2 * word)) != (
                header,
                header,
            )
        except Unreadable:
            wrong += 1
        if wrong > most:
            return BINS
    return wrong


def is_sane(state: View, page_bytes: int) -> bool:
    """The fields around the bins are those of an arena: lock, flags, counts, bytes in whole pages."""
    system, threads = state["system_mem"], state.get("attached_threads") or 0
    is_in_pages = system % page_bytes == 0 or system % 4096 == 0 or not state["flags"] & 2  # sbrk_base of a static program is not on a page
    return (
        state["mutex"] in (0, 1, 2) and not state["flags"] & ~7 and system <= state["max_system_mem"] and is_in_pages and threads < 1 << 20
    )


def ring_of(target: Target, row: ArenaLayout, address: int) -> Tuple[Tuple[int, ...], bool]:
    """(the arenas that `next` leads to, whether it comes back)."""
    arenas, seen, at = [address], {address}, address
    while len(arenas) <= MAX_RING:
        try:
            at = target.read_word(at + row.next_offset)
        except Unreadable:
            break
        if at == address:
            return tuple(arenas), True
        if at in seen or at % target.word_bytes or not _is_thread_arena(target, row, at):
            break
        seen.add(at)
        arenas.append(at)
    return tuple(arenas), False


def _is_thread_arena(target: Target, row: ArenaLayout, address: int) -> bool:
    """It stands behind the heap_info that says so (arena.c: _int_new_arena)."""
    info = row.types.structs[layouts.HEAP_INFO.name]
    try:
        return target.read_word(address - info.size_bytes + info.members["ar_ptr"].offset) == address
    except Unreadable:
        return False


def _never_used(target: Target, area: Area, rows: Sequence[ArenaLayout]) -> Iterator[Candidate]:
    """Arenas as the libc's file has them: nothing set but `next`, which leads to themselves (up to 2.41)."""
    for offset in sorted({row.next_offset for row in rows}):
        for at in at_own_address(area, target, offset):
            for row in [layout for layout in rows if layout.next_offset == offset]:
                try:
                    state = read_view(target, row.types, layouts.MALLOC_STATE.name, at - offset)
                except Unreadable:
                    continue
                is_blank = not any(state.array("bins")) and not any(state.array("binmap")) and not state["top"] and not state["system_mem"]
                if is_blank and is_sane(state, target.page_bytes) and (state.get("attached_threads") or 0) <= 1:
                    yield Candidate(area.module, at - offset, row, state, (at - offset,), True, 0)
