"""Which blocks keep free memory, by the definition: of a whole list of blocks, page by page and room by room."""

from typing import Callable, Dict, Hashable, List, Optional, Sequence, Tuple

from gdbheapx.kernel.blocks.pages import EDGE, HOLE, LISTED, PIN_NONE, RESERVE, ROOM, PinShape
from gdbheapx.kernel.blocks.stream import CLASS_CACHED, CLASS_FREE, CLASS_RESERVE, CLASS_RETURNED, CLASS_USED

Row = Tuple[int, int, int, int, int]
Key = Tuple[int, Hashable]
"""A PIN_ number, and what else makes blocks alike."""
Sums = Dict[Tuple[Key, int, int], List[int]]
"""By key, situation, arena: kept, alone, places, blocks, their bytes, least, most, the first one's address."""


class PlainPins:
    """`key_of`: of a row and its number among used ones."""

    def __init__(self, rows: Sequence[Row], shape: PinShape, key_of: Callable[[Row, int], Key]) -> None:
        self.sums: Sums = {}
        self.returned_bytes = 0
        self._shape, self._counted = shape, set()  # type: PinShape, set[object]
        used = [row[2] == CLASS_USED for row in rows]
        self._keys = {row: key_of(row, sum(used[:place])) for place, row in enumerate(rows) if row[2] not in (CLASS_FREE, CLASS_RESERVE)}
        if shape.rooms:
            self._rooms(rows)
        else:
            self._pages(rows)

    def _bounds(self, row: Row) -> Tuple[int, int]:
        begin = row[0] - self._shape.lead_bytes
        return begin, begin + row[1] + (self._shape.overheads[row[3]] if row[3] < len(self._shape.overheads) else 0)

    def _is_listed(self, row: Row) -> bool:
        return row[2] == CLASS_CACHED and row[3] in self._shape.listed_kinds

    def _keep(self, kept: int, situation: int, arena: int, pins: Sequence[Row], place: Tuple[int, int], nobody: Key) -> None:
        """Bytes of one place, kept by those of the pins whose sort has most of it, used ones first."""
        most: Dict[Key, int] = {}
        for row in pins:
            begin, end = self._bounds(row)
            most[self._keys[row]] = most.get(self._keys[row], 0) + max(0, min(end, place[1]) - max(begin, place[0]))
        key = min(most, key=lambda one: (one[0], -most[one])) if most else nobody
        sums = self.sums.setdefault((key, situation, arena), [0] * 8)
        sums[:3] = [sums[0] + kept, sums[1] + (kept if len(most) == 1 else 0), sums[2] + 1]
        for row in pins:
            if self._keys[row] == key and (row, situation) not in self._counted:
                self._counted.add((row, situation))
                least = min(sums[5], row[1]) if sums[3] else row[1]
                sums[3:] = [sums[3] + 1, sums[4] + row[1], least, max(sums[6], row[1]), sums[7] if sums[3] else row[0]]

    def _pages(self, rows: Sequence[Row]) -> None:
        page, head = self._shape.page_bytes, self._shape.head_bytes
        on_page: Dict[int, List[Row]] = {}
        kept: Dict[int, Dict[int, int]] = {}
        below: Dict[int, Tuple[int, Optional[Row]]] = {}
        runs: List[List[Row]] = []
        last: Optional[Row] = None
        for row in rows:
            begin, end = self._bounds(row)
            if row[2] in (CLASS_FREE, CLASS_RESERVE) or self._is_listed(row):
                is_next = last is not None and runs and runs[-1][-1] == last and self._bounds(last)[1] == begin and last[2] != CLASS_RESERVE
                runs = [*runs[:-1], [*runs[-1], row]] if is_next else [*runs, [row]]
            elif row[2] != CLASS_RETURNED:
                for at in {begin & -page, (end - 1) & -page}:
                    on_page.setdefault(at, []).append(row)
            last = row
        pins = {self._bounds(row)[1]: row for some in on_page.values() for row in some}
        for run in runs:
            begin, end = self._bounds(run[0])[0], self._bounds(run[-1])[1]
            first, stop = -(-(begin + head) // page) * page, end & -page
            if run[-1][2] == CLASS_RESERVE:
                self._keep(end - begin, RESERVE, run[0][4], [pins[begin]] if begin in pins else [], (0, 1 << 64), (PIN_NONE, 0))
                continue
            parts = [(begin, end, LISTED if all(map(self._is_listed, run)) else HOLE)]
            if first < stop:
                self.returned_bytes += stop - first
                parts = [(begin, first, EDGE), (stop, end, EDGE)]
            for low, high, situation in parts:
                for at in range(low & -page, high, page):
                    bytes_ = min(high, at + page) - max(low, at)
                    kept.setdefault(at, {})[situation] = kept.get(at, {}).get(situation, 0) + bytes_
                    below[at] = run[0][4], below.get(at, (0, None))[1] or pins.get(begin)
        for at in sorted(kept):
            arena, under = below[at]
            for situation in sorted(kept[at]):
                here = on_page.get(at) or ([under] if under else [])
                self._keep(kept[at][situation], situation, arena, here, (at, at + page), (PIN_NONE, 0))

    def _rooms(self, rows: Sequence[Row]) -> None:
        sizes = dict(self._shape.rooms)
        rooms: Dict[Tuple[int, int], List[Row]] = {}
        begin = end = size = 0
        for row in rows:
            if row[2] not in (CLASS_USED, CLASS_CACHED, CLASS_FREE) or row[1] not in sizes:
                continue
            if not (begin <= row[0] < end and row[1] == size and not (row[0] - begin) % size):
                begin, end, size = row[0], row[0] + sizes[row[1]], row[1]
            rooms.setdefault((begin, end), []).append(row)
        for place, some in rooms.items():
            free = [row for row in some if row[2] == CLASS_FREE]
            if free:
                pins = [row for row in some if row[2] != CLASS_FREE]
                self._keep(len(free) * free[0][1], ROOM, some[0][4], pins, place, (PIN_NONE, free[0][1]))
