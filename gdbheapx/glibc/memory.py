"""Where an allocator's memory can lie: writable anonymous ranges of the address space."""

from bisect import bisect_right
from typing import Iterable, List, Sequence

from gdbheapx.inferior.base import Mapping, Target
from gdbheapx.ranges import Range, subtract, union

HEAP_ALIGNMENT = 1 << 20
"""Every thread arena's heap begins on a multiple of this (arena.c: HEAP_MAX_SIZE is 1 MiB where it is smallest)."""
MOST_LEFT_OUT_BYTES = 1 << 30
"""A gap between mappings of a core that is no larger may be memory that was left out of it: gdb's gcore drops what cannot be read, and what
the program asked to leave out (MADV_DONTDUMP)."""


def anonymous_mappings(target: Target) -> List[Mapping]:
    """Writable private anonymous memory, sorted."""
    return [mapping for mapping in private_mappings(target) if mapping.readable and mapping.writable]


def private_mappings(target: Target) -> List[Mapping]:
    """Private anonymous memory with any rights, sorted: a program may protect a part of what malloc gave it."""
    return [
        mapping
        for mapping in target.mappings()
        if not mapping.is_file and not mapping.shared and not mapping.name.startswith(("[v", "[stack"))
    ]


def reaches(target: Target, ranges: Sequence[Range], taken: Sequence[Range]) -> List[int]:
    """For each of these ranges of private anonymous memory how far one block may go on from it: over memory with other rights, and in a
    core over what may have been left out, up to what is `taken` or belongs to others."""
    own = {mapping.start for mapping in private_mappings(target)}
    runs: List[Range] = []
    last = 0
    for mapping in target.mappings():
        gap = mapping.start - last
        if mapping.start not in own:
            last = -1 - MOST_LEFT_OUT_BYTES
            continue
        if runs and (gap == 0 or (target.kind == "core" and 0 < gap <= MOST_LEFT_OUT_BYTES)):
            runs[-1] = (runs[-1][0], mapping.end)
        else:
            runs.append((mapping.start, mapping.end))
        last = mapping.end
    runs = subtract(runs, taken)
    starts = [start for start, _ in runs]
    places = (bisect_right(starts, start) - 1 for start, _ in ranges)
    return [max(end, runs[place][1]) if place >= 0 and runs[place][1] > start else end for place, (start, end) in zip(places, ranges)]


def united(mappings: Iterable[Mapping]) -> List[Range]:
    """Neighbouring mappings as one range: the kernel merges and splits them at will."""
    return union((mapping.start, mapping.end) for mapping in mappings)


def anonymous_ranges(target: Target) -> List[Range]:
    """Where an arena can have memory."""
    return united(anonymous_mappings(target))


def below_stacks(target: Target, ranges: Sequence[Range], page_bytes: int) -> List[Range]:
    """What threads have not yet used of their stacks, sorted: of each range from its start, or the next stack below, up to the stack
    pointer.

    A stack stands in a mapping of its own, or side by side with others where their guards are no mappings (glibc 2.42), each below its
    thread pointer. One that a program took from the break, or that lies in a thread arena's heap, is left: there are chunks around it.
    """
    threads = [one for one in target.threads() if one.stack_pointer is not None]
    beyond = sorted(one.thread_pointer for one in threads if one.thread_pointer)
    starts, found = [start for start, _ in ranges], []
    heap = next((mapping for mapping in target.mappings() if mapping.name == "[heap]"), None)
    for thread in threads:
        pointer = thread.stack_pointer or 0
        place = bisect_right(starts, pointer) - 1
        if (
            place < 0
            or pointer >= ranges[place][1]
            or starts[place] % HEAP_ALIGNMENT == 0
            or (heap is not None and heap.start <= starts[place] <= heap.end)
        ):
            continue
        lower = bisect_right(beyond, pointer) - 1
        low = max(starts[place], (beyond[lower] // page_bytes + 2) * page_bytes if lower >= 0 else 0)
        if low < pointer // page_bytes * page_bytes:
            found.append((low, pointer // page_bytes * page_bytes))
    return sorted(found)
