"""`__curbrk`, the break as libc knows it: the word of its data that holds the end of the memory from brk."""

from typing import Dict, Optional, Sequence, Tuple

from gdbheapx.glibc import layouts
from gdbheapx.glibc.structure.areas import Area, words
from gdbheapx.glibc.structure.par import Par, heap_start
from gdbheapx.inferior.base import Target
from gdbheapx.layout.view import read_view

PAGE = 4096
"""malloc moves the break to ends of pages (malloc.c: sysmalloc)."""


def find(target: Target, found: Par, searched: Sequence[Area]) -> Optional[int]:
    """Where it lies; None if no word, or more than one, is it.

    It holds an address between the end of top and the end of the mapping; of an arena with pieces from mmap the highest above sbrk_base.
    """
    low, high = _bounds(target, found)
    held: Dict[int, int] = {}
    for area in searched:
        if area.module == found.arena.module:
            values, start = words(area, target)
            word = target.word_bytes
            held.update((start + word * place, value) for place, value in enumerate(values) if low <= value <= high)
    own = [(found.arena.address, found.arena.state.size_bytes), (found.address, found.arena.row.types.size_bytes(layouts.MALLOC_PAR.name))]
    held = {at: value for at, value in held.items() if (value == low or value % PAGE == 0) and not _is_within(at, own)}
    best = low if low in held.values() else max(held.values(), default=None)
    places = [at for at, value in held.items() if value == best]
    return places[0] if len(places) == 1 else None


def _bounds(target: Target, found: Par) -> Tuple[int, int]:
    """(lowest, highest) value that the break can have; an empty range where nothing came from brk."""
    base = heap_start(target, found.arena.state)
    if base is None:
        low = read_view(target, found.arena.row.types, layouts.MALLOC_PAR.name, found.address)["sbrk_base"]
    else:
        low = base + found.arena.state["system_mem"]
    end = low
    for mapping in target.mappings():
        if mapping.start < end + 1 <= mapping.end + 1 and mapping.writable and mapping.start <= end:
            end = max(end, mapping.end)
    return (low, end) if low and (base is not None or end > low) else (1, 0)


def _is_within(address: int, spans: Sequence[Tuple[int, int]]) -> bool:
    return any(start <= address < start + size for start, size in spans)
