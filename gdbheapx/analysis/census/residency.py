"""How much of each block is in RAM and in swap: pages as they were when the blocks were read."""

from array import array
from bisect import bisect_right
from itertools import accumulate
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.kernel.common.copy import KIND_RESIDENT, KIND_SWAPPED, KIND_UNSURE
from gdbheapx.kernel.common.in_ram import Ram
from gdbheapx.session import Session


class Sums(NamedTuple):
    """Of one mapping: how many of its pages up to each one."""

    resident: Sequence[int]
    swapped: Sequence[int]


class Pages:
    """Looked up block by block; of a mapping in which no block lies nothing is asked."""

    def __init__(
        self,
        mappings: Sequence[Tuple[int, int]],
        page_bytes: int,
        kinds: Callable[[int, int], Optional[bytes]],
        resident: Callable[[int, int], Optional[int]],
    ) -> None:
        """`kinds`: of a mapping a byte for each page, None where they are not known; `resident`: how many bytes of it RSS has."""
        self._page, self._mappings, self._kinds, self._resident = page_bytes, sorted(mappings), kinds, resident
        self._starts = [start for start, _ in self._mappings]
        self._sums: List[Optional[Sums]] = [None] * len(self._mappings)
        self._asked = bytearray(len(self._mappings))
        self.is_whole = True
        """All blocks that were asked for lie where everything is known."""

    def _counted(self, number: int) -> Optional[Sums]:
        if not self._asked[number]:
            self._asked[number] = 1
            told = self.told(*self._mappings[number])
            if told is not None:
                counts = (array("I", accumulate(told.translate(_flags(some)), initial=0)) for some in (KIND_RESIDENT, KIND_SWAPPED))
                self._sums[number] = Sums(*counts)
        return self._sums[number]

    def told(self, start: int, end: int) -> Optional[bytes]:
        """Of each page of a mapping KIND_RESIDENT, KIND_SWAPPED or 0. A page that is unsure is the zero page, or shared with a forked
        process: RSS tells which; None where both are there."""
        kinds, bits = self._kinds(start, end), KIND_RESIDENT | KIND_UNSURE
        if kinds is None or len(kinds) != (end - start) // self._page:
            return None
        if any(kinds.translate(_flags(KIND_UNSURE))):
            known = self._resident(start, end)
            fitting = [some for some in (KIND_RESIDENT, bits) if self._page * sum(kinds.translate(_flags(some))) == known]
            if not fitting:
                return None
            bits = fitting[0]
        return kinds.translate(bytes(KIND_RESIDENT if kind & bits else kind & KIND_SWAPPED for kind in range(256)))

    def of(self, address: int, size_bytes: int) -> Tuple[int, int]:
        """(bytes in RAM, bytes in swap) of a block."""
        number = bisect_right(self._starts, address) - 1
        sums = self._counted(number) if number >= 0 and address + size_bytes <= self._mappings[number][1] else None
        if sums is None:
            self.is_whole = False
            return 0, 0
        begin = address - self._starts[number]
        return self._bytes(sums.resident, begin, begin + size_bytes), self._bytes(sums.swapped, begin, begin + size_bytes)

    def _bytes(self, sums: Sequence[int], begin: int, end: int) -> int:
        """Of a range what lies on counted pages."""
        if end <= begin:
            return 0
        first, last = begin // self._page, (end - 1) // self._page
        before = (begin - first * self._page) * (sums[first + 1] - sums[first])
        behind = ((last + 1) * self._page - end) * (sums[last + 1] - sums[last])
        return self._page * (sums[last + 1] - sums[first]) - before - behind


def _flags(bits: int) -> bytes:
    return bytes(bool(kind & bits) for kind in range(256))


def pages(session: Session) -> Optional[Pages]:
    """Of a live process that stands still, or was copied when it did; None on anything else."""
    table, use = session.target.page_table(), session.target.memory_use()
    if table is None or use is None:
        return None
    copy, kernel, ram = table.copy, session.kernel, Ram(session.target, session.kernel)

    def kinds(start: int, end: int) -> Optional[bytes]:
        return copy.kinds(start, end) if copy is not None else kernel.page_kinds(table, start, end)

    def resident(start: int, end: int) -> Optional[int]:
        found = ram.of([(start, end)], with_exclusive=False)
        return found.resident_bytes if found is not None else None

    apart = table.outside_rss
    mappings = [(one.mapping.start, one.mapping.end) for one in use.mappings]
    return Pages([one for one in mappings if one not in apart], session.target.page_bytes, kinds, resident)
