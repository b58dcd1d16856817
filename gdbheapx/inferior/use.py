"""How much of a core file each mapping takes."""

import os
from bisect import bisect_right
from typing import Dict, List, Sequence, Tuple

from gdbheapx.inferior.base import Mapping, MappingUse, MemoryUse, Segment
from gdbheapx.ranges import union

AT_RANDOM, AT_EXECFN, AT_SYSINFO_EHDR = 25, 31, 33


class Extents:
    """Which bytes of a file are data and which are holes (that read as zeros and take no space)."""

    def __init__(self, path: str) -> None:
        self._starts: List[int] = []
        self._ends: List[int] = []
        self._before: List[int] = []
        """Data bytes before each extent."""
        with open(path, "rb", buffering=0) as file:
            self._scan(file.fileno(), os.fstat(file.fileno()).st_size)

    def _scan(self, descriptor: int, size_bytes: int) -> None:
        at, total = 0, 0
        while at < size_bytes:
            try:
                start = os.lseek(descriptor, at, os.SEEK_DATA)
                at = os.lseek(descriptor, start, os.SEEK_HOLE)
            except OSError:  # ENXIO: nothing but a hole follows
                return
            self._starts.append(start)
            self._ends.append(at)
            self._before.append(total)
            total += at - start

    def data_before(self, offset: int) -> int:
        """Data bytes of the file before `offset`."""
        place = bisect_right(self._starts, offset) - 1
        if place < 0:
            return 0
        return self._before[place] + min(offset, self._ends[place]) - self._starts[place]

    def data_bytes(self, segments: Sequence[Segment], start: int, end: int) -> int:
        """Data bytes of the addresses from `start` to `end`; segments sorted by address."""
        total = 0
        for segment in segments:
            low, high = max(start, segment.address), min(end, segment.address + segment.size_bytes)
            if low < high:
                shift = segment.file_offset - segment.address
                total += self.data_before(high + shift) - self.data_before(low + shift)
        return total

    def data_ranges(self, segments: Sequence[Segment], start: int, end: int, page: int) -> List[Tuple[int, int]]:
        """The addresses from `start` to `end` whose pages have data in the file; segments sorted by address."""
        found: List[Tuple[int, int]] = []
        for segment in segments[max(0, bisect_right(segments, (start,)) - 1) :]:
            if segment.address >= end:
                break
            low, high = max(start, segment.address), min(end, segment.address + segment.size_bytes)
            shift = segment.file_offset - segment.address
            place = max(0, bisect_right(self._starts, low + shift) - 1)
            while low < high and place < len(self._starts) and self._starts[place] < high + shift:
                begin, until = max(low, (self._starts[place] - shift) & -page), min(high, -(-(self._ends[place] - shift) // page) * page)
                if begin < until:
                    found.append((begin, until))
                place += 1
        return union(found)


def dumped(
    mappings: Sequence[Mapping],
    segments: Sequence[Segment],
    extents: Extents,
    auxv: Dict[int, int],
    by_kernel: bool,
    named_pages: Sequence[Tuple[int, str]],
) -> MemoryUse:
    """What each mapping takes in the core file. No core names `[stack]`, `[vdso]` and `[vvar]`; the auxiliary vector says where they were.

    `by_kernel`: no debugger wrote it. The kernel leaves a hole for each page that is not in memory (fs/coredump.c: dump_user_range), but
    copies of a core may have none any more. `named_pages`: as Architecture has them.
    """
    by_start = {segment.address: segment for segment in segments}
    labels = {
        auxv[key]: label for key, label in ((AT_RANDOM, "[stack]"), (AT_EXECFN, "[stack]"), (AT_SYSINFO_EHDR, "[vdso]")) if auxv.get(key)
    }
    labels.update(named_pages)
    found: List[MappingUse] = []
    for mapping in mappings:
        segment = by_start.get(mapping.start)
        label = next((label for address, label in labels.items() if mapping.start <= address < mapping.end), "")
        named = mapping._replace(name=label) if label and not mapping.name else mapping
        found.append(MappingUse(named, extents.data_bytes((segment,), mapping.start, mapping.end) if segment else 0))
    for place in range(len(found) - 1, 0, -1):  # the kernel's data lies right below its code (vma.c: map_vdso)
        mapping, below = found[place].mapping, found[place - 1].mapping
        if mapping.name in ("[vdso]", "[vvar]") and below.end == mapping.start and not (below.name or below.writable or below.executable):
            found[place - 1] = found[place - 1]._replace(mapping=below._replace(name="[vvar]"))
    size_bytes = sum(segment.size_bytes for segment in segments)
    has_holes = (
        sum(extents.data_bytes((segment,), segment.address, segment.address + segment.size_bytes) for segment in segments) < size_bytes
    )
    return MemoryUse("dumped", found, None, by_kernel and has_holes)
