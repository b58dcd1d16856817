"""mp_, found beside main_arena: by the start of the heap that it must hold, else by what its fields must and use to be.

`__curbrk`, the break as libc knows it: the word of its data that holds the end of the memory from brk.
"""

from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.glibc import layouts
from gdbheapx.glibc.structure.arena import Area, Candidate, read_area_words
from gdbheapx.inferior.base import Target
from gdbheapx.layout.view import View, read_view

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


class Par(NamedTuple):
    """What looks like the mp_ of an arena, with that arena's layout."""

    arena: Candidate
    address: int
    score: int
    """How many of its fields have the values that they begin with, or follow from each other."""
    has_caches: bool
    """It has settings of thread caches where its layout has them."""


def find_par(target: Target, arena: Candidate, areas: Sequence[Area]) -> Optional[Par]:
    """The best mp_ for this arena; None if nothing is one.

    An arena whose ring is open is proved by what its mp_ says of its top; one whose ring is closed may have a top that is damaged.
    """
    base = heap_start(target, arena.state)
    best = _best(target, arena, areas, base) if base is not None or arena.is_closed else None
    return best or (_best(target, arena, areas, None) if arena.is_closed and base is not None else None)


def _best(target: Target, arena: Candidate, areas: Sequence[Area], base: Optional[int]) -> Optional[Par]:
    near = [area for area in areas if area.start < arena.address + WINDOW_BYTES and arena.address - WINDOW_BYTES < area.end]
    pars: List[Par] = []
    for address in _places_of_par(target, arena, near, base):
        try:
            par = read_view(target, arena.row.types, layouts.MALLOC_PAR.name, address)
        except Unreadable:
            continue
        score = rate_par(par, target, base)
        if is_par_proven(score, base):
            pars.append(Par(arena, address, score, has_tcache_settings(par)))
    return max(pars, key=lambda candidate: (candidate.score, -abs(candidate.address - arena.address)), default=None)


def heap_start(target: Target, state: View) -> Optional[int]:
    """mp_.sbrk_base as it follows from the arena: top's end less system_mem. None where not all of it came from brk, or nothing did."""
    top = state["top"]
    if not state["system_mem"] or state["flags"] & 2 or state.address <= top < state.address + state.size_bytes:
        return None
    try:
        return top + (target.read_word(top + target.word_bytes) & ~7) - state["system_mem"]
    except Unreadable:
        return None


def _places_of_par(target: Target, arena: Candidate, areas: Sequence[Area], base: Optional[int]) -> Iterator[int]:
    """Where to look: whatever holds the start of the heap; where that is not known, every word with a plausible struct around it."""
    par, word = arena.row.types.structs[layouts.MALLOC_PAR.name], target.word_bytes
    for area in areas:
        values, start = read_area_words(area, target)
        if base is not None:
            offset = par.members["sbrk_base"].offset
            yield from (start + word * place - offset for place, value in enumerate(values) if value == base)
            continue
        low, high = arena.address - WINDOW_BYTES, arena.address + WINDOW_BYTES
        threshold, test = (par.members[name].offset // word for name in ("mmap_threshold", "arena_test"))
        for place in range(max(0, (low - start) // word), min(len(values) - par.size_bytes // word, (high - start) // word)):
            if 0 < values[place + threshold] <= 1 << 40 and values[place + test] < 4096:
                yield start + word * place


def rate_par(par: View, target: Target, base: Optional[int]) -> int:
    """How much speaks for it; 0 if it cannot be an mp_ (malloc.c: struct malloc_par and its initialiser)."""
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


def is_par_proven(score: int, base: Optional[int]) -> bool:
    """An mp_ may be called one."""
    return score >= (LEAST_SCORE if base is None else 2 * BASE_SCORE)


def has_tcache_settings(par: View) -> bool:
    """What stands where mp_.tcache_* would are settings of thread caches (malloc.c, from 2.26; tunables set them)."""
    bins = par.get("tcache_bins", "tcache_small_bins")
    if bins is None:
        return False
    is_small = par["tcache_max_bytes"] <= layouts.MAX_TCACHE_BYTES and par["tcache_count"] <= layouts.MAX_TCACHE_COUNT
    return 0 < bins <= layouts.TCACHE_BINS and is_small and par["tcache_unsorted_limit"] < 1 << 31


def find_break(target: Target, par: Par, searched: Sequence[Area]) -> Optional[int]:
    """Where it lies; None if no word, or more than one, is it.

    It holds an address between the end of top and the end of the mapping; of an arena with pieces from mmap the highest above sbrk_base.
    """
    low, high = _bounds(target, par)
    held: Dict[int, int] = {}
    for area in searched:
        if area.module == par.arena.module:
            values, start = read_area_words(area, target)
            word = target.word_bytes
            held.update((start + word * place, value) for place, value in enumerate(values) if low <= value <= high)
    own = [(par.arena.address, par.arena.state.size_bytes), (par.address, par.arena.row.types.size_bytes(layouts.MALLOC_PAR.name))]
    held = {at: value for at, value in held.items() if (value == low or value % PAGE == 0) and not _is_within(at, own)}
    best = low if low in held.values() else max(held.values(), default=None)
    places = [at for at, value in held.items() if value == best]
    return places[0] if len(places) == 1 else None


def _bounds(target: Target, par: Par) -> Tuple[int, int]:
    """(lowest, highest) value that the break can have; an empty range where nothing came from brk."""
    base = heap_start(target, par.arena.state)
    if base is None:
        low = read_view(target, par.arena.row.types, layouts.MALLOC_PAR.name, par.address)["sbrk_base"]
    else:
        low = base + par.arena.state["system_mem"]
    end = low
    for mapping in target.mappings():
        if mapping.start < end + 1 <= mapping.end + 1 and mapping.writable and mapping.start <= end:
            end = max(end, mapping.end)
    return (low, end) if low and (base is not None or end > low) else (1, 0)


def _is_within(address: int, spans: Sequence[Tuple[int, int]]) -> bool:
    return any(start <= address < start + size for start, size in spans)
