"""Search for the malloc of a build without symbols: main_arena by its bins and ring, mp_ near it, and each thread's variables.

malloc_state is the one struct whose bins point into itself. Around it lie struct malloc_par and the break; near each thread pointer lie
`tcache` and `thread_arena`, at the same distance in all threads (initial-exec TLS).
"""

import sys
from array import array
from collections import Counter
from functools import cache
from itertools import compress, count, islice
from operator import eq
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.glibc import layouts
from gdbheapx.glibc.layouts import LIBRARY, default_alignment, is_tcache_chunk
from gdbheapx.inferior.base import Module, StructType, Target, Thread, TypeSet
from gdbheapx.layout import view as layout_view
from gdbheapx.layout.view import LayoutView, Shape, Version, read_view

MOST_BYTES = 64 << 20
"""Searched in all. A libc's own writable memory is 60 KiB, a program's .data and .bss seldom more than a few MiB."""
MOST_OF_ONE = 16 << 20
"""Of one object, or of one mapping."""
MAX_RING = 65536
BINS = layouts.NBINS - 1
MOST_WRONG = 12
"""Bins that may be damaged, or in the middle of a change, in an arena that is one."""
STRUCTS = (layouts.MALLOC_STATE, layouts.MALLOC_PAR, layouts.HEAP_INFO, layouts.TCACHE)


class SearchedArea(NamedTuple):
    """A run of writable memory that was read."""

    module: Module
    start: int
    """Address of the first word; aligned."""
    words: Any
    """array of all."""


def of_modules(target: Target, modules: Sequence[Module]) -> Iterator[SearchedArea]:
    """Yield the readable parts of the writable segments of these objects."""
    left = MOST_BYTES
    for module in modules:
        own = min(left, MOST_OF_ONE)
        for start, _, end in target.writable_segments(module):
            for low, high in target.present_ranges(start, end):
                size = min(high - low, own)
                if size > 0:
                    area = SearchedArea(module, *read_aligned_words(target, low, size))
                    own, left = own - size, left - size
                    yield area


def of_mappings(target: Target, known: Sequence[Module], of_files: bool) -> Iterator[SearchedArea]:
    """Yield writable private mappings that belong to no listed object, smallest first: of an object that no list names (dlmopen), or a
    core without a list.
    """
    taken = [(start, end) for module in known for start, _, end in target.writable_segments(module)]
    own = [mapping for mapping in target.mappings() if mapping.writable and not mapping.shared and mapping.is_file == of_files]
    rest = [mapping for mapping in own if not any(mapping.start < end and start < mapping.end for start, end in taken)]
    program = next((module for module in target.modules() if module.is_executable), None)
    program = program or Module(target.executable or "", 0, True, None, None)
    left = MOST_BYTES
    for mapping in sorted(rest, key=lambda mapping: mapping.size_bytes):
        module = program
        if mapping.is_file:  # the object that it belongs to, by its file's name
            base = min(other.start for other in target.mappings() if other.name == mapping.name)
            module = Module(mapping.name, base, mapping.name == target.executable, None, None)
        there = target.present_ranges(mapping.start, min(mapping.end, mapping.start + MOST_OF_ONE))
        for low, high in target.data_ranges(there) or there:
            size = min(high - low, left)
            if size > 0:
                left -= size
                yield SearchedArea(module, *read_aligned_words(target, low, size))


def read_aligned_words(target: Target, address: int, size_bytes: int) -> Tuple[int, Any]:
    """Read memory, and return the address of its first aligned word, and an array of the words that could be read."""
    word, data = target.word_bytes, target.read_prefix(address, size_bytes)
    first = -address % word
    values = array("Q" if word == 8 else "I", data[first : first + (len(data) - first) // word * word])
    if target.little_endian != (sys.byteorder == "little"):
        values.byteswap()
    return address + first, values


def at_own_address(area: SearchedArea, word_bytes: int, less_bytes: int) -> List[int]:
    """Addresses of the words of an area that hold their own address less so many bytes."""
    start = area.start - less_bytes
    same = map(eq, area.words, range(start, start + word_bytes * len(area.words), word_bytes))
    return [area.start + word_bytes * place for place in compress(count(), same)]


ArenaLayout = Tuple[Version, TypeSet]
"""The newest release that has these structs, and they."""


class ArenaCandidate(NamedTuple):
    """A place that may be main_arena."""

    module: Module
    address: int
    version: Version
    types: TypeSet
    state: LayoutView
    ring: Tuple[int, ...]
    """Addresses of all arenas, itself first; of those before the place where it is damaged."""
    is_closed: bool
    """The ring comes back."""
    good_bins: int
    """Of 127, how many lead back; 0 in one that was never used."""
    mp: int = 0
    """Address of its mp_, once that was found."""
    score: int = 0
    """How many fields of mp_ have the values that they begin with, or follow from each other."""
    has_caches: bool = False
    """mp_ has settings of thread caches where its layout has them."""


@cache
def list_arena_layouts(word_bytes: int, machine: str) -> Sequence[ArenaLayout]:
    """Return every layout there is for this machine, newest first. Its structs must not be changed."""
    made = []
    for version in layouts.ROWS:
        shape = Shape(word_bytes, default_alignment(word_bytes, machine, version))
        made.append((version, TypeSet({struct.name: layout_view.lay_out_struct(struct, version, shape) for struct in STRUCTS})))
    return made


def _offset_in_state(types: TypeSet, field: str) -> int:
    return types.structs[layouts.MALLOC_STATE.name].members[field].offset


def find_candidates(target: Target, areas: Sequence[SearchedArea], rows: Sequence[ArenaLayout]) -> List[ArenaCandidate]:
    """Every arena in these areas that is not on a heap of its own, with each layout that fits: used ones, else those never used."""
    heads: Dict[int, Module] = {}
    word = target.word_bytes
    for area in areas:
        for address in at_own_address(area, word, 2 * word):
            place = (address - area.start) // word + 1
            if place < len(area.words) and area.words[place] == address - 2 * word:
                heads[address] = area.module
    for are_last in (True, False):  # False: what the last bin says is damaged
        starts = _find_bin_starts(heads, 2 * word, are_last)
        candidates = [candidate for address, module in starts for candidate in _at_bins(target, module, address, rows)]
        if candidates:
            return candidates
    return [candidate for area in areas for candidate in _never_used(target, area, rows)]


def _find_bin_starts(heads: Dict[int, Module], step: int, are_last: bool) -> Iterator[Tuple[int, Module]]:
    """Yield the addresses where bins[] would begin. `are_last`: an empty bin is the last one. Else, for each run of empty bins, its first
    may be any of 127.
    """
    tried: Set[int] = set()
    for head, module in sorted(heads.items()):
        numbers = range(BINS - 1, BINS) if are_last else range(BINS)
        if (head + step if are_last else head - step) not in heads:  # the end of a run, or its begin
            for start in [head - number * step for number in numbers]:
                if start not in tried:
                    tried.add(start)
                    yield start, module


def _at_bins(target: Target, module: Module, bins: int, rows: Sequence[ArenaLayout]) -> Iterator[ArenaCandidate]:
    """Yield the arenas whose bins[] begins at this address. The fields before bins[] are proven by the ring alone; those after it lie
    alike.
    """
    good = -1
    rings: Dict[Tuple[int, int, int], Tuple[Tuple[int, ...], bool]] = {}
    for version, types in rows:
        offset = _offset_in_state(types, "bins")
        address = bins - offset
        try:
            state = read_view(target, types, layouts.MALLOC_STATE.name, address)
        except UnreadableMemory:
            continue
        if good < 0:
            good = BINS - wrong_bins(target, state)
        if good < BINS - MOST_WRONG:
            return
        key = (offset, _offset_in_state(types, "next"), types.size_bytes(layouts.HEAP_INFO.name))
        if key not in rings:
            rings[key] = ring_of(target, types, address)
        ring, is_closed = rings[key]
        if (is_closed or len(ring) > 2) and is_sane(state, target.page_bytes):
            yield ArenaCandidate(module, address, version, types, state, ring, is_closed, good)


def wrong_bins(target: Target, state: LayoutView, most: int = BINS // 2) -> int:
    """Count the bins that are neither empty nor linked both ways; all, if more than `most`."""
    word, links = target.word_bytes, state.array("bins")
    first = state.address_of("bins") - 2 * word
    wrong = 0
    for index in range(0, len(links), 2):
        header, ahead, behind = first + index * word, links[index], links[index + 1]
        if (ahead, behind) == (header, header):
            continue
        try:
            back, forth = target.read_word(ahead + 3 * word), target.read_word(behind + 2 * word)
            wrong += header in (ahead, behind) or not back == forth == header
        except UnreadableMemory:
            wrong += 1
        if wrong > most:
            return BINS
    return wrong


def is_sane(state: LayoutView, page_bytes: int) -> bool:
    """The fields around the bins are those of an arena: lock, flags, counts, bytes in whole pages."""
    system, threads = state["system_mem"], state.get("attached_threads") or 0
    is_in_pages = system % page_bytes == 0 or system % 4096 == 0 or not state["flags"] & 2  # sbrk_base of a static program is not on a page
    is_locked_or_free = state["mutex"] in (0, 1, 2) and not state["flags"] & ~7
    return is_locked_or_free and system <= state["max_system_mem"] and is_in_pages and threads < 1 << 20


def ring_of(target: Target, types: TypeSet, address: int) -> Tuple[Tuple[int, ...], bool]:
    """(the arenas that `next` leads to, whether it comes back)."""
    arenas, seen, at = [address], {address}, address
    offset, heap_info = _offset_in_state(types, "next"), types.structs[layouts.HEAP_INFO.name]
    while len(arenas) <= MAX_RING:
        try:
            at = target.read_word(at + offset)
        except UnreadableMemory:
            break
        if at == address:
            return tuple(arenas), True
        if at in seen or not layouts.follows_heap_info(target, heap_info, at):
            break
        seen.add(at)
        arenas.append(at)
    return tuple(arenas), False


def _never_used(target: Target, area: SearchedArea, rows: Sequence[ArenaLayout]) -> Iterator[ArenaCandidate]:
    """Arenas as the libc's file has them: nothing set but `next`, which leads to themselves (up to 2.41)."""
    by_offset: Dict[int, List[ArenaLayout]] = {}
    for version, types in rows:
        by_offset.setdefault(_offset_in_state(types, "next"), []).append((version, types))
    for offset, alike in sorted(by_offset.items()):
        for at in at_own_address(area, target.word_bytes, offset):
            for version, types in alike:
                try:
                    state = read_view(target, types, layouts.MALLOC_STATE.name, at - offset)
                except UnreadableMemory:
                    continue
                is_blank = not any(state.array("bins")) and not any(state.array("binmap")) and not state["top"] and not state["system_mem"]
                if is_blank and is_sane(state, target.page_bytes) and (state.get("attached_threads") or 0) <= 1:
                    yield ArenaCandidate(area.module, at - offset, version, types, state, (at - offset,), True, 0)


WINDOW_BYTES = 16 << 10
"""From main_arena, either way: mp_ stood 0x8c0 to 0x940 below it in the builds seen."""
LEAST_SCORE = 4
"""Of 6."""
BASE_SCORE = 3
"""Added where the start of the heap is known. A struct 8 bytes off has that too, in releases that differ by one word: half of the rest must
hold as well."""
DEFAULT_BYTES = 128 << 10
"""DEFAULT_MMAP_THRESHOLD_MIN, DEFAULT_TRIM_THRESHOLD, DEFAULT_TOP_PAD."""
PAGE = 4096
"""malloc moves the break to ends of pages (malloc.c: sysmalloc)."""


def find_par(target: Target, arena: ArenaCandidate, areas: Sequence[SearchedArea]) -> Optional[ArenaCandidate]:
    """The best mp_ for this arena; None if nothing is one.

    An arena whose ring is open is proved by what its mp_ says of its top; one whose ring is closed may have a top that is damaged.
    """
    low, high, known = arena.address - WINDOW_BYTES, arena.address + WINDOW_BYTES, heap_start(target, arena.state)
    near = [area for area in areas if area.start < high and low < area.start + target.word_bytes * len(area.words)]
    bases: List[Optional[int]] = [] if known is None else [known]
    for base in [*bases, None] if arena.is_closed else bases:
        pars: List[ArenaCandidate] = []
        for address in _places_of_par(target, arena, near, base):
            try:
                par = read_view(target, arena.types, layouts.MALLOC_PAR.name, address)
            except UnreadableMemory:
                continue
            score = rate_par(par, target, base)
            if score >= (LEAST_SCORE if base is None else 2 * BASE_SCORE):
                pars.append(arena._replace(mp=address, score=score, has_caches=has_tcache_settings(par)))
        if pars:
            return max(pars, key=lambda fit: (fit.score, -abs(fit.mp - arena.address)))
    return None


def heap_start(target: Target, state: LayoutView) -> Optional[int]:
    """mp_.sbrk_base as it follows from the arena: top's end less system_mem. None where not all of it came from brk, or nothing did."""
    top = state["top"]
    if not state["system_mem"] or state["flags"] & 2 or state.address <= top < state.address + state.size_bytes:
        return None
    try:
        return top + (target.read_word(top + target.word_bytes) & ~7) - state["system_mem"]
    except UnreadableMemory:
        return None


def _places_of_par(target: Target, arena: ArenaCandidate, areas: Sequence[SearchedArea], base: Optional[int]) -> Iterator[int]:
    """Yield possible addresses of malloc_par: each word that holds the start of the heap as sbrk_base or, if that start is unknown, each
    word near main_arena with a plausible struct around it.
    """
    par, word = arena.types.structs[layouts.MALLOC_PAR.name], target.word_bytes
    low, high = arena.address - WINDOW_BYTES, arena.address + WINDOW_BYTES
    threshold, test = (par.members[name].offset // word for name in ("mmap_threshold", "arena_test"))
    for _, start, words in areas:
        if base is not None:
            offset = par.members["sbrk_base"].offset
            yield from (start + word * place - offset for place, value in enumerate(words) if value == base)
            continue
        for place in range(max(0, (low - start) // word), min(len(words) - par.size_bytes // word, (high - start) // word)):
            if 0 < words[place + threshold] <= 1 << 40 and words[place + test] < 4096:
                yield start + word * place


def rate_par(par: LayoutView, target: Target, base: Optional[int]) -> int:
    """Count what speaks for an mp_; 0 if it cannot be one (malloc.c: struct malloc_par and its initialiser)."""
    mapped, most = par["n_mmaps"], par["max_n_mmaps"]
    if not 0 <= mapped <= most or par["no_dyn_threshold"] not in (0, 1) or par["n_mmaps_max"] < 0:
        return 0
    if (mapped == 0) != (par["mmapped_mem"] == 0) or par["mmapped_mem"] > par["max_mmapped_mem"]:
        return 0
    if (most == 0) != (par["max_mmapped_mem"] == 0) or (base is not None and par["sbrk_base"] != base):
        return 0
    for name in ("thp_pagesize", "hp_pagesize"):
        size = par.get(name) or 0
        if size & (size - 1) or (size and size < 4096):
            return 0
    if (par.get("thp_mode") or 0) not in range(4) or (par.get("max_total_mem") or 0) or (par.get("pagesize") or 4096) < 4096:
        return 0
    threshold, trim = par["mmap_threshold"], par["trim_threshold"]
    usual = (
        par["n_mmaps_max"] == 65536,
        par["n_mmaps_max"] == 65536,
        par["arena_test"] == (8 if target.word_bytes == 8 else 2),
        threshold == DEFAULT_BYTES or (threshold > DEFAULT_BYTES and threshold <= 32 << 20),
        trim in (DEFAULT_BYTES, 2 * threshold),
        par["top_pad"] in (0, DEFAULT_BYTES),
    )
    return sum(usual) + (BASE_SCORE if base is not None else 0)


def has_tcache_settings(par: LayoutView) -> bool:
    """Return whether the words at mp_.tcache_* are settings of thread caches (malloc.c, from 2.26; tunables set them)."""
    bins = par.get("tcache_bins", "tcache_small_bins")
    if bins is None:
        return False
    is_small = par["tcache_max_bytes"] <= layouts.MAX_TCACHE_BYTES and par["tcache_count"] <= layouts.MAX_TCACHE_COUNT
    return 0 < bins <= layouts.TCACHE_BINS and is_small and par["tcache_unsorted_limit"] < 1 << 31


def find_break(target: Target, fit: ArenaCandidate, searched: Sequence[SearchedArea]) -> Optional[int]:
    """Return the address of __curbrk, or None if no word, or more than one, can be it. Its value lies between the end of top and the end
    of the mapping; in an arena with pieces from mmap it is the highest above sbrk_base.
    """
    base = heap_start(target, fit.state)
    if base is None:
        low = read_view(target, fit.types, layouts.MALLOC_PAR.name, fit.mp)["sbrk_base"]
    else:
        low = base + fit.state["system_mem"]
    high = low
    for mapping in target.mappings():
        if mapping.start <= high <= mapping.end and mapping.writable:
            high = mapping.end
    if not low or (base is None and high == low):  # nothing came from brk
        return None
    held: Dict[int, int] = {}
    own = [(fit.address, fit.state.size_bytes), (fit.mp, fit.types.size_bytes(layouts.MALLOC_PAR.name))]
    for module, start, words in searched:
        for place, value in enumerate(words if module == fit.module else ()):
            at = start + target.word_bytes * place
            if low <= value <= high and (value == low or value % PAGE == 0) and not any(0 <= at - begin < size for begin, size in own):
                held[at] = value
    best = low if low in held.values() else max(held.values(), default=None)
    places = [at for at, value in held.items() if value == best]
    return places[0] if len(places) == 1 else None


REACH_BYTES = 64 << 10
"""From the thread pointer: static thread-local storage of a process with many libraries; libc's came within 2,100 bytes in those seen."""
MOST_SEARCHED, MOST_ASKED = 3, 16
"""Threads whose storage is searched, and threads that must agree."""
MOST_ENTRIES = 16
"""Cached chunks that are asked how their links are stored."""
BETWEEN_BYTES = 512
"""tcache and thread_arena are static variables of one file: the linker lets them lie together, in the one order or the other."""


class ThreadLocalOffsets(NamedTuple):
    """Offsets of the variables from the thread pointer. None: not found, or this build has none."""

    tcache: Optional[int]
    thread_arena: Optional[int]
    struct: Optional[StructType]
    """The form of tcache_perthread_struct that every thread's cache has; None where no thread has one."""
    safe_linking: Optional[bool]
    """By links in the caches; None if none shows it."""
    has_key: Optional[bool]
    """Cached chunks carry the address of their cache."""


NOTHING = ThreadLocalOffsets(None, None, None, None, None)


def _read_block(target: Target, thread: Thread, reach_bytes: int) -> Dict[int, int]:
    """Return the words around one thread pointer by their distance from it: above it, or below where thread control blocks end there."""
    pointer, is_above = thread.thread_pointer or 0, target.arch.storage.tcb_bytes is not None
    low, high = (pointer, pointer + reach_bytes) if is_above else (max(target.word_bytes, pointer - reach_bytes), pointer)
    edge = pointer if is_above else high - 1
    mapping = next((mapping for mapping in target.mappings() if mapping.start <= edge < mapping.end), None)
    if mapping is None:
        return {}
    low = max(low, mapping.start)
    start, words = read_aligned_words(target, low, min(high, mapping.end) - low)
    return dict(zip(count(start - pointer, target.word_bytes), words))


def find_thread_locals(target: Target, ring: Sequence[int], structs: Sequence[StructType]) -> ThreadLocalOffsets:
    """Find the offsets of `tcache` and `thread_arena`. `ring`: all arenas. `structs`: each form of tcache_perthread_struct that the
    layout allows, none for builds without thread caches.
    """
    threads = [thread for thread in target.threads() if thread.thread_pointer and _is_block(target, thread.thread_pointer)]
    blocks = [_read_block(target, thread, REACH_BYTES) for thread in threads[:MOST_SEARCHED]]
    distances = _find_common(blocks, set(ring))
    reach = max((abs(place) for place in distances), default=0) + BETWEEN_BYTES
    blocks += [_read_block(target, thread, reach) for thread in threads[MOST_SEARCHED:MOST_ASKED]] if distances else []
    arenas = {distance: count for distance, count in _find_common(blocks, set(ring)).items() if distance in distances}
    steps = [step for apart in range(target.word_bytes, BETWEEN_BYTES, target.word_bytes) for step in (-apart, apart)]
    near = {arena + step for arena in arenas for step in steps}
    caches = _find_caches(target, blocks, near, structs) if structs else {}
    pairs = [(arena, cache) for arena in arenas for cache in caches if 0 < abs(arena - cache) <= BETWEEN_BYTES]
    if pairs:
        arena, cache = max(pairs, key=lambda place: (arenas[place[0]] + caches[place[1]][0], -abs(place[1] - place[0])))
        return _read_release(target, blocks, cache, arena, caches[cache][1])
    best = max(arenas, key=lambda place: arenas[place], default=None)
    return NOTHING if structs else NOTHING._replace(thread_arena=best)


def _is_block(target: Target, pointer: int) -> bool:
    """A thread control block begins here; on some machines it points to itself (tcbhead_t.self)."""
    word, self_words = target.word_bytes, target.arch.storage.self_words
    data = target.read_prefix(pointer + (self_words or 2) * word, word)
    return len(data) == word and (self_words is None or int.from_bytes(data, "little") == pointer)


def _find_common(blocks: Sequence[Dict[int, int]], ring: Set[int]) -> Dict[int, int]:
    """Distances at which every block has an arena or 0: how many have an arena there."""
    counts = Counter(distance for block in blocks for distance, value in block.items() if value in ring)
    allowed = {*ring, 0, None}
    return {distance: count for distance, count in counts.items() if all(block.get(distance) in allowed for block in blocks)}


def _find_caches(
    target: Target, blocks: Sequence[Dict[int, int]], near: Set[int], structs: Sequence[StructType]
) -> Dict[int, Tuple[int, StructType]]:
    """Return the distances in `near` at which every block has a thread cache, or a pointer to none: (number of blocks with a cache, the
    first of `structs` that all these caches have) by distance.
    """
    known: Dict[int, Sequence[StructType]] = {}
    caches = {}
    for distance in near:
        pointers = [pointer for block in blocks for pointer in [block.get(distance)] if pointer]
        for pointer in pointers:
            if pointer not in known:
                known[pointer] = _fit_cache_structs(target, pointer, structs)
        owned = [pointer for pointer in pointers if known[pointer]]
        common = [struct for struct in structs if all(struct in known[pointer] for pointer in owned)]
        if owned and common and len(set(owned)) == len(owned) and not _without_dummies(target, set(pointers) - set(owned)):
            caches[distance] = (len(owned), common[0])
    return caches


def _without_dummies(target: Target, caches: Iterable[int]) -> List[int]:
    """Leave out the two dummies inside libc that threads without a cache have in 2.43 (malloc.c: __tcache_dummy)."""
    return [address for address in caches if not any(start <= address < end for start, end in target.file_ranges())]


def _fit_cache_structs(target: Target, address: int, structs: Sequence[StructType]) -> List[StructType]:
    """Return the forms that a tcache_perthread_struct here can have: its chunk is as large as theirs, and its lists lead to memory."""
    word, align = target.word_bytes, default_alignment(target.word_bytes, target.machine, None)
    size = int.from_bytes(target.read_prefix(address - word, word), target.byte_order) if address % align == 0 else 0
    fitting = []
    for struct in structs if not size & 2 else ():
        entries = _read_entries(target, address, struct) if is_tcache_chunk(size & ~7, struct, word, align) else ()
        if entries and all(_is_entry(target, entry, align) for entry in entries):
            fitting.append(struct)
    return fitting


def _read_entries(target: Target, address: int, struct: StructType) -> Sequence[int]:
    """Return the heads of a thread cache's lists; none if it cannot be read."""
    data, entries = target.read_prefix(address, struct.size_bytes), struct.members["entries"]
    is_whole = len(data) == struct.size_bytes
    return target.words_in(data[entries.offset : entries.offset + entries.count * target.word_bytes]) if is_whole else ()


def _is_entry(target: Target, entry: int, align: int) -> bool:
    return not entry or (entry % align == 0 and len(target.read_prefix(entry, target.word_bytes)) == target.word_bytes)


def _read_release(target: Target, blocks: Sequence[Dict[int, int]], cache: int, arena: int, struct: StructType) -> ThreadLocalOffsets:
    """Infer safe-linking (2.32) and tcache keys (2.29) from cached chunks. `cache`, `arena`: distances of the variables."""
    links: Counter[bool] = Counter()
    keys, size = [], 2 * target.word_bytes
    addresses = [address for block in blocks for address in [block.get(cache)] if address]
    entries = ((address, entry) for address in addresses for entry in _read_entries(target, address, struct) if entry)
    chunks = ((address, entry, target.read_prefix(entry, size)) for address, entry in entries)
    for address, entry, data in islice((chunk for chunk in chunks if len(chunk[2]) == size), MOST_ENTRIES):
        link, key = target.words_in(data)
        keys.append(key == address)
        # stored xor-ed with its own address (PROTECT_PTR, 2.32); where both readings are possible it shows nothing
        plain, revealed = (_is_entry(target, value, size) for value in (link, link ^ entry >> 12))
        links.update([revealed] if plain != revealed else ())
    safe_linking = links.most_common(1)[0][0] if links else None
    return ThreadLocalOffsets(cache, arena, struct, safe_linking, 2 * sum(keys) > len(keys) if keys else None)


WITHOUT_CACHES = "libc_malloc_debug"
"""It is built without thread caches (malloc-debug.c: USE_TCACHE 0)."""


class ArenaPlace(NamedTuple):
    """A malloc found by structure, and its proof."""

    module: Module
    main_arena: int
    mp: int
    types: TypeSet
    locals: ThreadLocalOffsets
    bins: int
    """Of 127, how many lead back; 0: malloc was never used."""
    arenas: int
    """In the ring."""
    is_closed: bool
    """The ring comes back."""
    rows: Sequence[Version]
    """Releases whose layouts fit, the newest, whose types these are, first; more than one where no thread has a cache."""
    curbrk: Optional[int] = None
    """`__curbrk`."""

    def of_release(self, target: Target, version: Version) -> Optional["ArenaPlace"]:
        """Return the place with the layouts of a release that is known from elsewhere, or None if they do not fit."""
        row = layouts.find_version_row(version)
        if row not in self.rows:
            return None
        own = dict(list_arena_layouts(target.word_bytes, target.machine))[row].structs
        return self._replace(types=TypeSet({name: own[name] for name in self.types.structs}), rows=(row,))


def find_arena_places(target: Target, known: Set[int]) -> List[ArenaPlace]:
    """Return every copy in an object that is not among `known` (bases of those that symbols or a pack describe). Of those equally good
    all. Objects are searched one lot after the other until one has a copy: with a libc's name; if nothing is known, the program, all
    others, and mappings of no listed object.
    """
    unknown = [module for module in target.modules() if module.base not in known]
    named = [module for module in unknown if LIBRARY.match(module.file_name)]
    others = [module for module in unknown if module not in named and not known]
    programs, libraries = [[module for module in others if module.is_executable == is_program] for is_program in (True, False)]
    for modules in (named, programs, libraries):
        copies = _in_areas(target, list(of_modules(target, modules))) if modules else []
        if copies:
            return copies
    for of_files in () if known else (True, False):
        copies = _in_areas(target, list(of_mappings(target, target.modules(), of_files)))
        if copies:
            return copies
    return []


def _in_areas(target: Target, searched: Sequence[SearchedArea]) -> List[ArenaPlace]:
    """The copies whose arena and mp_ are both there: the used ones, else those never used."""
    by_arena: Dict[int, List[ArenaCandidate]] = {}
    for candidate in find_candidates(target, searched, list_arena_layouts(target.word_bytes, target.machine)):
        fitting = find_par(target, candidate, searched)
        if fitting is not None and (fitting.has_caches or not _wants_caches(fitting)):
            by_arena.setdefault(candidate.address, []).append(fitting)
    closed = {fit.state.address_of("bins") for pars in by_arena.values() for fit in pars if fit.is_closed}
    groups = [pars for pars in by_arena.values() if pars[0].is_closed or pars[0].state.address_of("bins") not in closed]
    best = [max(pars, key=lambda fit: (fit.score, fit.has_caches, fit.version)) for pars in groups]
    return [_settle_place(target, fit)._replace(curbrk=find_break(target, fit, searched)) for fit in best]


def _wants_caches(fit: ArenaCandidate) -> bool:
    """Its layout has thread caches, and its object is built with them."""
    is_without = fit.module.file_name.startswith(WITHOUT_CACHES)
    return "tcache_max_bytes" in fit.types.structs[layouts.MALLOC_PAR.name].members and not is_without


def _settle_place(target: Target, fit: ArenaCandidate) -> ArenaPlace:
    """Return the place of an arena with the thread-local variables. Thread caches distinguish releases that have the same malloc_state
    and malloc_par.
    """
    # whatever fields are called
    same = [row for row in list_arena_layouts(target.word_bytes, target.machine) if _list_places(row[1]) == _list_places(fit.types)]
    is_used = bool(fit.state["system_mem"]) or len(fit.ring) > 1
    has_caches = _wants_caches(fit) and is_used  # none before the first malloc
    structs = [row[1].structs[layouts.TCACHE.name] for row in reversed(same)] if has_caches else []
    places = find_thread_locals(target, fit.ring, structs)
    fitting = [row for row in same if places.struct in (None, row[1].structs[layouts.TCACHE.name])]
    types = TypeSet(dict(fitting[0][1].structs))
    if not has_caches:
        del types.structs[layouts.TCACHE.name]
    rows = [version for version, _ in fitting]
    return ArenaPlace(fit.module, fit.address, fit.mp, types, places, fit.good_bins, len(fit.ring), fit.is_closed, rows)


def locals_of(target: Target, main_arena: int, types: TypeSet) -> Optional[ThreadLocalOffsets]:
    """Find the variables of each thread near its thread pointer, for a copy whose arenas and layouts are known from elsewhere; None if it
    was never used, so that no thread has any."""
    ring, is_closed = ring_of(target, types, main_arena)
    try:
        is_used = bool(read_view(target, types, layouts.MALLOC_STATE.name, main_arena)["system_mem"])
    except UnreadableMemory:
        return NOTHING
    if not is_used and is_closed and len(ring) == 1:
        return None
    cache = types.structs.get(layouts.TCACHE.name)
    return find_thread_locals(target, ring, [cache] if cache is not None else [])


def _list_places(types: TypeSet) -> List[List[int]]:
    both = [types.structs[name] for name in (layouts.MALLOC_STATE.name, layouts.MALLOC_PAR.name)]
    return [[*(member.offset for member in struct.members.values()), struct.size_bytes] for struct in both]


def fit_version(target: Target, main_arena: int, mp: int, caches: Sequence[int]) -> Optional[Version]:
    """Return the newest release whose layouts fit an arena and an mp_ at known addresses, or None. `caches`: what threads point to as
    their caches, if that is known, which distinguishes 2.42 from 2.41 and so on.
    """
    try:
        caches = _without_dummies(target, filter(None, caches))
        for version, types in list_arena_layouts(target.word_bytes, target.machine):
            state = read_view(target, types, layouts.MALLOC_STATE.name, main_arena)
            par = read_view(target, types, layouts.MALLOC_PAR.name, mp)
            wrong = wrong_bins(target, state) if any(state.array("bins")) else int(state["top"] != 0)
            is_arena = not wrong and is_sane(state, target.page_bytes) and ring_of(target, types, main_arena)[1]
            has_tunables = not par.has("tcache_count") or has_tcache_settings(par)
            if not is_arena or not has_tunables or not rate_par(par, target, heap_start(target, state)):
                continue
            if all(_fit_cache_structs(target, address, [types.structs[layouts.TCACHE.name]]) for address in caches):
                return version
    except UnreadableMemory:
        pass
    return None
