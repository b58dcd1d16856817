"""Is it malloc at all: a process's memory, or a core's bytes, split by who holds it."""

from bisect import bisect_right
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.kernel.base import Kernel
from gdbheapx.kernel.in_ram import Ram
from gdbheapx.model import Claim, SplitPart
from gdbheapx.target.base import Mapping as MemoryMapping
from gdbheapx.target.base import Target

LARGEST = 5
"""Mappings that are not the allocator's and are named."""


class Split(NamedTuple):
    """Where the memory is. Bytes in RAM for a live process (Rss), bytes in the file for a core."""

    measure: str
    """`resident` (live) or `dumped` (core)."""
    total_bytes: int
    swapped_bytes: Optional[int]
    """Live only; not part of total_bytes."""
    allocator_bytes: int
    """Of all allocators."""
    allocators: Dict[str, int]
    """Of each, by its id."""
    stack_bytes: int
    file_bytes: int
    anonymous_bytes: int
    """Other anonymous mappings."""
    largest: Sequence[SplitPart]
    """The largest mappings that are not the allocator's, files summed by name."""


def split(target: Target, kernel: Kernel, claims: Mapping[str, Iterable[Claim]]) -> Optional[Split]:
    """The split, by what each allocator claims; None where the target tells neither what is in RAM nor what was dumped (remote)."""
    use = target.memory_use()
    if use is None:
        return None
    ranges = {name: joined((claim.start, claim.end) for claim in found) for name, found in claims.items()}
    stacks = [thread.stack_pointer for thread in target.threads() if thread.stack_pointer]
    sums = {"stack": 0, "file": 0, "anonymous": 0}
    allocators = dict.fromkeys(ranges, 0)
    named: Dict[Tuple[str, str], int] = {}
    for mapping, total, *_ in use.mappings:
        rest = total
        for name, found in ranges.items():
            held = min(rest, _held(target, kernel, mapping, total, found))
            allocators[name] += held
            rest -= held
        if rest > 0:
            kind = _kind(mapping, stacks)
            sums[kind] += rest
            key = (kind, _name(mapping, kind))
            named[key] = named.get(key, 0) + rest
    largest = sorted(((size, kind, name) for (kind, name), size in named.items()), reverse=True)[:LARGEST]
    return Split(
        measure=use.measure,
        total_bytes=sum(one.resident_bytes for one in use.mappings),
        swapped_bytes=use.swapped_bytes,
        allocator_bytes=sum(allocators.values()),
        allocators=allocators,
        stack_bytes=sums["stack"],
        file_bytes=sums["file"],
        anonymous_bytes=sums["anonymous"],
        largest=[SplitPart(kind, name, size) for size, kind, name in largest],
    )


def joined(ranges: Iterable[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """Sorted, and without overlap."""
    found: List[Tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _within(ranges: Sequence[Tuple[int, int]], mapping: MemoryMapping) -> List[Tuple[int, int]]:
    """The parts of sorted ranges that lie in the mapping: a jemalloc may have a hundred thousand, a process as many mappings."""
    place = max(0, bisect_right(ranges, (mapping.start, mapping.start)) - 1)
    inside = []
    while place < len(ranges) and ranges[place][0] < mapping.end:
        start, end = max(ranges[place][0], mapping.start), min(ranges[place][1], mapping.end)
        if start < end:
            inside.append((start, end))
        place += 1
    return inside


def _held(target: Target, kernel: Kernel, mapping: MemoryMapping, total: int, ranges: Sequence[Tuple[int, int]]) -> int:
    """Bytes of the mapping's use that lie in the allocator's ranges."""
    inside = _within(ranges, mapping)
    if not inside or not total:
        return 0
    if sum(end - start for start, end in inside) == mapping.size_bytes:
        return total
    found: Optional[int] = None
    if target.kind == "live":
        in_ram = Ram(target, kernel).of(inside)
        found = None if in_ram is None else in_ram.resident_bytes
    else:
        found = target.dumped_bytes(inside)
    return min(total, sum(end - start for start, end in inside) if found is None else found)


def _kind(mapping: MemoryMapping, stacks: Sequence[int]) -> str:
    if mapping.name.startswith("[stack") or any(mapping.start <= pointer < mapping.end for pointer in stacks):
        return "stack"
    return "file" if mapping.is_file else "anonymous"


def _name(mapping: MemoryMapping, kind: str) -> str:
    """A file by its path, everything else by address and the kernel's label."""
    if kind == "file":
        return mapping.name
    return ("0x%x-0x%x %s" % (mapping.start, mapping.end, mapping.name)).rstrip()


def _held_as(allocator: str, alone: bool) -> str:
    """What an allocator's part is made of, by its id."""
    if allocator.startswith("jemalloc"):
        return "%s (extents and metadata)" % allocator
    return "%s (arenas and mapped chunks)" % ("malloc" if alone else allocator)


def largest_parts(found: Split) -> List[SplitPart]:
    """Each allocator and the rest, largest first."""
    parts = [SplitPart("allocator", _held_as(name, len(found.allocators) == 1), size) for name, size in found.allocators.items()]
    parts += [
        SplitPart("anonymous", "other anonymous mappings", found.anonymous_bytes),
        SplitPart("file", "file-backed mappings", found.file_bytes),
        SplitPart("stack", "thread stacks", found.stack_bytes),
    ]
    return sorted(parts, key=lambda part: -part.bytes)
