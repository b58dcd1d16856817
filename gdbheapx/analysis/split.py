"""Is it malloc at all: a process's memory, or a core's bytes, split by who holds it."""

from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.kernel.base import Kernel
from gdbheapx.model import Claim, SplitPart
from gdbheapx.target.base import Mapping, Target

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
    stack_bytes: int
    file_bytes: int
    anonymous_bytes: int
    """Other anonymous mappings."""
    largest: Sequence[SplitPart]
    """The largest mappings that are not the allocator's, files summed by name."""


def split(target: Target, kernel: Kernel, claims: Iterable[Claim]) -> Optional[Split]:
    """The split; None where the target tells neither what is in RAM nor what was dumped (remote)."""
    use = target.memory_use()
    if use is None:
        return None
    ranges = sorted((claim.start, claim.end) for claim in claims)
    stacks = [thread.stack_pointer for thread in target.threads() if thread.stack_pointer]
    sums = {"allocator": 0, "stack": 0, "file": 0, "anonymous": 0}
    named: Dict[Tuple[str, str], int] = {}
    for mapping, total in use.mappings:
        held = _held(target, kernel, mapping, total, ranges)
        sums["allocator"] += held
        rest = total - held
        if rest > 0:
            kind = _kind(mapping, stacks)
            sums[kind] += rest
            key = (kind, _name(mapping, kind))
            named[key] = named.get(key, 0) + rest
    largest = sorted(((size, kind, name) for (kind, name), size in named.items()), reverse=True)[:LARGEST]
    return Split(
        measure=use.measure,
        total_bytes=sum(total for _, total in use.mappings),
        swapped_bytes=use.swapped_bytes,
        allocator_bytes=sums["allocator"],
        stack_bytes=sums["stack"],
        file_bytes=sums["file"],
        anonymous_bytes=sums["anonymous"],
        largest=[SplitPart(kind, name, size) for size, kind, name in largest],
    )


def _held(target: Target, kernel: Kernel, mapping: Mapping, total: int, ranges: Sequence[Tuple[int, int]]) -> int:
    """Bytes of the mapping's use that lie in the allocator's ranges."""
    inside = [(max(start, mapping.start), min(end, mapping.end)) for start, end in ranges if start < mapping.end and end > mapping.start]
    if not inside or not total:
        return 0
    if sum(end - start for start, end in inside) == mapping.size_bytes:
        return total
    found: Optional[int] = None
    if target.kind == "live" and target.pid is not None:
        residency = kernel.resident(target.pid, inside)
        found = None if residency is None else residency.exclusive_bytes
    else:
        found = target.dumped_bytes(inside)
    return min(total, sum(end - start for start, end in inside) if found is None else found)


def _kind(mapping: Mapping, stacks: Sequence[int]) -> str:
    if mapping.name.startswith("[stack") or any(mapping.start <= pointer < mapping.end for pointer in stacks):
        return "stack"
    return "file" if mapping.is_file else "anonymous"


def _name(mapping: Mapping, kind: str) -> str:
    """A file by its path, everything else by address and the kernel's label."""
    if kind == "file":
        return mapping.name
    return ("0x%x-0x%x %s" % (mapping.start, mapping.end, mapping.name)).rstrip()


def largest_parts(found: Split) -> List[SplitPart]:
    """The four parts, largest first."""
    parts = [
        SplitPart("allocator", "malloc (arenas and mapped chunks)", found.allocator_bytes),
        SplitPart("anonymous", "other anonymous mappings", found.anonymous_bytes),
        SplitPart("file", "file-backed mappings", found.file_bytes),
        SplitPart("stack", "thread stacks", found.stack_bytes),
    ]
    return sorted(parts, key=lambda part: -part.bytes)
