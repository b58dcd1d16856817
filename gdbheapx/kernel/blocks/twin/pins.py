"""Pins in Python: what pins.c does."""

from bisect import bisect_left
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.blocks.graph import LEAKED
from gdbheapx.kernel.blocks.pins import (
    APART,
    BY_NOBODY,
    BY_SEVERAL,
    EDGE,
    HOLE,
    LISTED,
    MOST_GROUPS,
    MOST_ON_PLACE,
    PIN_CACHED,
    PIN_NONE,
    PIN_OWN,
    PIN_USED,
    RESERVE,
    ROOM,
    PinGroup,
    PinLabels,
    Pins,
    PinShape,
)
from gdbheapx.kernel.blocks.records import CLASS_CACHED, CLASS_FREE, CLASS_RESERVE, CLASS_RETURNED, CLASS_USED, Blocks

MOST_BYTES = 1 << 62
"""No address and no size is larger, whatever the target says."""


class Key(NamedTuple):
    """What makes blocks alike."""

    status: int
    label: int
    top: int
    size: int


NOBODY = Key(PIN_NONE, 0, BY_SEVERAL, 0)


class Pin:
    """One unit that is not free."""

    def __init__(self, begin: int, end: int, address: int, usable: int, ordinal: int, class_: int) -> None:
        self.begin, self.end, self.address, self.usable, self.ordinal, self.class_ = begin, end, address, usable, ordinal, class_
        self.counted: List[int] = []


class Place:
    """A page or a room."""

    def __init__(self, begin: int = 0, end: int = 0, size: int = 0, arena: int = 0) -> None:
        self.begin, self.end, self.size, self.arena = begin, end, size, arena
        self.bytes: Dict[int, int] = {}
        self.pins: List[Pin] = []
        self.after: Optional[Pin] = None


class Run:
    """Free units side by side."""

    def __init__(self, begin: int, arena: int) -> None:
        self.begin, self.end, self.arena, self.listed = begin, begin, arena, 0


class TwinPins(Pins):
    """See Pins."""

    def __init__(self, shape: PinShape, labels: PinLabels, first: int, budget: Budget) -> None:
        self._shape, self._labels, self._budget = shape, labels, budget
        self._graph_blocks = labels.graph.numbers().blocks if labels.graph is not None else 0  # counting looks at every edge
        self._rooms = dict(shape.rooms)
        self._overheads = [*shape.overheads, *[0] * (16 - len(shape.overheads))]
        self.used_blocks, self.returned_bytes = first, 0
        self._place, self._run, self._last = Place(), None, None  # type: Place, Optional[Run], Optional[Pin]
        self._groups: Dict[Tuple[Key, int, int], List[int]] = {}

    def stream(self, blocks: Iterator[Blocks]) -> None:
        """See Pins."""
        for batch in blocks:
            if self._budget.expired():
                return
            for row in zip(*batch):
                if self._rooms:
                    self._room_row(*row)
                else:
                    self._page_row(*row)
                self.used_blocks += row[2] == CLASS_USED

    def found(self) -> List[PinGroup]:
        """See Pins."""
        self._close_run()
        self._close_place()
        return [
            PinGroup(situation, key.status, key.label, key.top, key.size, arena, *numbers)
            for (key, situation, arena), numbers in self._groups.items()
        ]

    def _top(self, node: int) -> int:
        graph, tree = self._labels.graph, self._labels.tree
        if graph is None or tree is None or node >= len(tree.owners):
            return BY_SEVERAL
        owners = tree.owners
        while owners[node] < len(owners):
            node = owners[node]
        if node >= self._graph_blocks:
            return node
        if graph.evidence(node) == LEAKED:
            return BY_NOBODY
        return node if tree.retained_bytes[node] >= self._labels.least_retained_bytes else BY_SEVERAL

    def _key(self, pin: Pin) -> Key:
        status, label, top, own = PIN_USED, 0, BY_SEVERAL, self._labels.own
        place = bisect_left(own, pin.address)
        if pin.class_ != CLASS_USED or (place < len(own) and own[place] < pin.address + pin.usable):
            status = PIN_CACHED if pin.class_ == CLASS_CACHED else PIN_OWN
        elif self._labels.graph is not None:
            found = self._labels.graph.find(pin.address)
            if found is not None and not found[1] and found[0] < self._graph_blocks:
                label = self._labels.labels[found[0]] if found[0] < len(self._labels.labels) else 0
                top = self._top(found[0])
        elif pin.ordinal < len(self._labels.labels):
            label = self._labels.labels[pin.ordinal]
        has_size = bool(self._rooms) or (status == PIN_USED and not label)
        return Key(status, label, top, pin.usable if has_size else 0)

    def _group(self, key: Key, situation: int, arena: int) -> List[int]:
        """kept, alone, places, blocks, bytes, least, most, sample."""
        if (key, situation, arena) not in self._groups and len(self._groups) >= MOST_GROUPS:
            key = Key(key.status, 0, BY_SEVERAL, 0)
        return self._groups.setdefault((key, situation, arena), [0] * 8)

    def _keep(self, group: List[int], kept: int, is_alone: bool) -> None:
        group[0] += kept
        group[1] += kept if is_alone else 0
        group[2] += 1

    def _count(self, group: List[int], situation: int, pin: Pin) -> None:
        if situation in pin.counted:
            return
        pin.counted.append(situation)
        group[7] = group[7] if group[3] else pin.address
        group[5] = min(group[5], pin.usable) if group[3] else pin.usable
        group[6] = max(group[6], pin.usable)
        group[3] += 1
        group[4] += pin.usable

    def _first(self, keys: List[Key]) -> Tuple[Key, int]:
        """The sort of blocks that has most of the place, used ones first; how many sorts there are."""
        sums: Dict[Key, int] = {}
        place = self._place
        for key, pin in zip(keys, place.pins):
            if key in sums or len(sums) < MOST_ON_PLACE:
                sums[key] = sums.get(key, 0) + max(0, min(pin.end, place.end) - max(pin.begin, place.begin))
        return min(sums, key=lambda key: (key.status, -sums[key])), len(sums)

    def _close_place(self) -> None:
        place = self._place
        self._place = Place()
        if not place.bytes:
            return
        if not place.pins and place.after is not None:
            place.pins.append(place.after)
        self._place = place
        keys = [self._key(pin) for pin in place.pins]
        key, sorts = self._first(keys) if keys else (NOBODY._replace(size=place.size if self._rooms else 0), 0)
        for situation, kept in sorted(place.bytes.items()):
            group = self._group(key, situation, place.arena)
            self._keep(group, kept, sorts == 1)
            for one, pin in zip(keys, place.pins):
                if one == key:
                    self._count(group, situation, pin)
        self._place = Place()

    def _open_place(self, begin: int) -> None:
        if self._place.end and self._place.begin == begin:
            return
        self._close_place()
        self._place = Place(begin, begin + self._shape.page_bytes)

    def _situation(self, arena: int, situation: int) -> int:
        return APART if arena in self._shape.apart else situation

    def _keep_range(self, run: Run, begin: int, end: int, situation: int) -> None:
        page, situation = self._shape.page_bytes, self._situation(run.arena, situation)
        while begin < end:
            here = begin & -page
            until = min(end, here + page)
            self._open_place(here)
            place = self._place
            place.bytes[situation] = place.bytes.get(situation, 0) + until - begin
            place.arena = run.arena
            if not place.pins and self._last is not None and self._last.end == run.begin:
                place.after = self._last
            begin = until

    def _close_run(self) -> None:
        run, page = self._run, self._shape.page_bytes
        self._run = None
        if run is None:
            return
        first, last = -(-(run.begin + self._shape.head_bytes) // page) * page, run.end & -page
        if first < last:
            self.returned_bytes += last - first
            self._keep_range(run, run.begin, first, EDGE)
            self._keep_range(run, last, run.end, EDGE)
        else:
            self._keep_range(run, run.begin, run.end, LISTED if run.listed == run.end - run.begin else HOLE)

    def _keep_reserve(self, run: Run) -> None:
        """The run ends in a reserve: all of it stays."""
        below = self._last if self._last is not None and self._last.end == run.begin else None
        situation = self._situation(run.arena, RESERVE)
        group = self._group(NOBODY if below is None else self._key(below), situation, run.arena)
        self._keep(group, run.end - run.begin, below is not None)
        if below is not None:
            self._count(group, situation, below)
        self._run = None

    def _page_row(self, address: int, usable: int, class_: int, kind: int, arena: int) -> None:
        begin = address - self._shape.lead_bytes
        size = (usable + (self._overheads[kind] if kind < len(self._overheads) else 0)) % (1 << 64)
        end = begin + size
        is_listed = class_ == CLASS_CACHED and kind in self._shape.listed_kinds
        if self._run is not None and self._run.end != begin:
            self._close_run()
        if not 0 < begin <= MOST_BYTES or not 0 < size <= MOST_BYTES:
            return
        if class_ in (CLASS_FREE, CLASS_RESERVE) or is_listed:
            run = self._run = self._run or Run(begin, arena)
            run.end = end
            run.listed += end - begin if is_listed else 0
            if class_ == CLASS_RESERVE:
                self._keep_reserve(run)
            return
        self._close_run()
        if class_ == CLASS_RETURNED:
            return
        pin, page = Pin(begin, end, address, usable, self.used_blocks, class_), self._shape.page_bytes
        self._open_place(begin & -page)
        self._last = pin
        self._place.pins.append(pin)
        if (end - 1) & -page != begin & -page:
            self._open_place((end - 1) & -page)
            self._place.pins.append(pin)

    def _room_row(self, address: int, usable: int, class_: int, kind: int, arena: int) -> None:
        bytes_ = self._rooms.get(usable)
        if class_ not in (CLASS_USED, CLASS_CACHED, CLASS_FREE) or not bytes_ or address >= MOST_BYTES:
            return
        place = self._place
        if not place.begin <= address < place.end or usable != place.size or (address - place.begin) % usable:
            self._close_place()
            place = self._place = Place(address, address + bytes_, usable, arena)
        if class_ == CLASS_FREE:
            place.bytes[ROOM] = place.bytes.get(ROOM, 0) + usable
        else:
            place.pins.append(Pin(address, address + usable, address, usable, self.used_blocks, class_))
