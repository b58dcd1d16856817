"""The mappings of a process by address, and what lies beside each."""

from bisect import bisect_right
from typing import List, Optional, Sequence, Tuple

from gdbheapx.inferior.base import MappingUse


class Places:
    """Questions about neighbours. Mappings are named by their index."""

    def __init__(self, uses: Sequence[MappingUse]) -> None:
        self.uses = uses
        self._starts = [use.mapping.start for use in uses]
        self._runs: Sequence[Tuple[int, int]] = ()

    def at(self, address: Optional[int]) -> Optional[int]:
        """The mapping that holds the address."""
        place = bisect_right(self._starts, address) - 1 if address else -1
        return place if place >= 0 and (address or 0) < self.uses[place].mapping.end else None

    def is_plain(self, place: int) -> bool:
        """Private anonymous memory that can be written: what a stack or a heap is made of."""
        mapping = self.uses[place].mapping
        return mapping.readable and mapping.writable and not mapping.shared and is_anonymous(self.uses[place])

    def is_reserve(self, place: int) -> bool:
        """Private anonymous addresses without any right: reserved, or a guard."""
        mapping = self.uses[place].mapping
        return not (mapping.readable or mapping.writable or mapping.executable or mapping.shared) and is_anonymous(self.uses[place])

    def guard_bytes(self, place: int) -> int:
        """Length of the reserve right below; 0 if there is none."""
        if place == 0 or self.uses[place - 1].mapping.end != self.uses[place].mapping.start or not self.is_reserve(place - 1):
            return 0
        return self.uses[place - 1].mapping.size_bytes

    def may_have_had_guard(self, place: int) -> bool:
        """In a core by gdb, which leaves out what cannot be read, or writes down that it can be (gcore_create_callback): nothing lies right
        below, or anonymous memory that cannot be written."""
        mapping = self.uses[place].mapping
        if mapping.dumped_bytes is None or place == 0 or self.uses[place - 1].mapping.end < mapping.start:
            return mapping.dumped_bytes is not None
        below = self.uses[place - 1]
        return is_anonymous(below) and not (below.mapping.writable or below.mapping.executable)

    def reserve_above(self, place: int) -> int:
        """Length of the reserve right above; 0 if there is none."""
        last = place + 1 == len(self.uses)
        if last or self.uses[place + 1].mapping.start != self.uses[place].mapping.end or not self.is_reserve(place + 1):
            return 0
        return self.uses[place + 1].mapping.size_bytes

    def run(self, place: int) -> Tuple[int, int]:
        """First address and end of the private anonymous mappings without a hole, of whatever rights, that this one belongs to."""
        if not self._runs:
            self._runs = self._find_runs()
        return self._runs[place]

    def _find_runs(self) -> Sequence[Tuple[int, int]]:
        starts: List[int] = []
        for place, use in enumerate(self.uses):
            joined = place and self._joins(self.uses[place - 1], use)
            starts.append(starts[-1] if joined else use.mapping.start)
        ends = [use.mapping.end for use in self.uses]
        for place in range(len(ends) - 2, -1, -1):
            if starts[place] == starts[place + 1]:
                ends[place] = ends[place + 1]
        return list(zip(starts, ends))

    @staticmethod
    def _joins(before: MappingUse, use: MappingUse) -> bool:
        both = before.mapping.end == use.mapping.start and is_anonymous(before) and is_anonymous(use)
        return both and not before.mapping.shared and not use.mapping.shared


def is_anonymous(use: MappingUse) -> bool:
    """No file is mapped here: no name, or a name that the program gave to anonymous memory."""
    return not use.mapping.name or use.mapping.name.startswith("[anon:")
