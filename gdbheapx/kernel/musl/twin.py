"""The walks over musl's groups and slots in Python: what groups.c and slots.c do."""

from array import array
from bisect import bisect_right
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.blocks.slots import SLOT_READ, SLOT_UNREADABLE, SlotRun
from gdbheapx.kernel.common.records import ADDRESS_MASK
from gdbheapx.kernel.common.twin.source import Reader
from gdbheapx.kernel.musl import records as api
from gdbheapx.kernel.musl.records import (
    AREA_BYTES,
    TRAILER_BYTES,
    UNIT_BYTES,
    Groups,
    MuslClass,
    MuslGroup,
    MuslHeld,
    MuslLayout,
    MuslProblem,
)

MOST_DEPTH = 64
NESTED_MARK, AWAY_MARK, LONG_MARK = 6, 7, 5


class Met:
    """A group, and what is found out about it."""

    def __init__(self, group: MuslGroup, free_mask: int) -> None:
        self.group, self.free_mask, self.next_slot = group, free_mask, 0
        self.end = group.address + group.bytes

    def change(self, **numbers: Any) -> None:
        """Some members of the group."""
        self.group = self.group._replace(**numbers)


class _Walk:
    """One look."""

    def __init__(self, reader: Reader, layout: MuslLayout, memory: "array[int]", budget: Budget) -> None:
        self.reader, self.layout, self.budget = reader, layout, budget
        self.starts, self.ends = memory[::2], memory[1::2]
        self.order: Any = "little" if layout.little_endian else "big"
        self.word = layout.word_bytes
        self.areas: Dict[int, None] = {}
        self.met: List[Met] = []
        self.runs = array("Q")
        self.problems: List[MuslProblem] = []
        self.count = 0

    def tell(self, code: int, address: int, meta: int = 0) -> None:
        self.count += 1
        if len(self.problems) < api.MOST_MUSL_PROBLEMS:
            self.problems.append(MuslProblem(code, address, meta))

    def number(self, data: bytes, at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], self.order)

    def read_areas(self) -> bool:
        """False: out of time."""
        area, word = self.layout.first_area, self.word
        first, size = 8 + 2 * word, 4 * word + 8
        most = (AREA_BYTES - first) // size
        while area:
            if self.budget.expired():
                return False
            data = self.reader.read(area, AREA_BYTES)
            is_whole = len(data) == AREA_BYTES
            if not is_whole or self.number(data, 0, 8) != self.layout.secret or self.number(data, 8 + word, 4) != most or area % AREA_BYTES:
                self.tell(api.GROUP_AREA_CHECK if is_whole else api.GROUP_AREA_UNREADABLE, area)
                break
            if area in self.areas or len(self.areas) >= self.layout.most_areas:
                self.tell(api.GROUP_AREA_AGAIN, area)
                break
            self.areas[area] = None
            for place in range(most):
                self.take_meta(area + first + place * size, data[first + place * size : first + (place + 1) * size])
            area = self.number(data, 8, word)
        return True

    def take_meta(self, address: int, data: bytes) -> None:
        word = self.word
        group = self.number(data, 2 * word, word)
        if not group:
            return
        available, freed, packed = (self.number(data, at, size) for at, size in ((3 * word, 4), (3 * word + 4, 4), (3 * word + 8, word)))
        slots, size_class, pages, is_freeable = (packed & 31) + 1, packed >> 6 & 63, packed >> 12, bool(packed >> 5 & 1)
        free, units = available | freed, api.slot_units(size_class)
        slot_bytes = pages * AREA_BYTES - UNIT_BYTES if pages and slots == 1 else units * UNIT_BYTES
        bytes_ = pages * AREA_BYTES if pages else UNIT_BYTES + slot_bytes * slots
        problem = api.GROUP_GOOD
        is_own = size_class == api.OWN_CLASS
        if (not units and not is_own) or (is_own and (not pages or slots != 1)):
            problem = api.GROUP_CLASS
        elif available & freed or free >> slots:
            problem = api.GROUP_MASKS
        else:
            is_out = group % UNIT_BYTES or group + bytes_ > ADDRESS_MASK or (pages and group % AREA_BYTES)
            is_fitting = 0 <= bytes_ - UNIT_BYTES - slot_bytes * slots < self.layout.page_bytes
            problem = api.GROUP_PLACE if is_out or not is_fitting else api.GROUP_GOOD
        place = api.PLACE_MAPPED if pages else api.PLACE_NESTED if is_freeable else api.PLACE_DONATED
        if not packed & 0xFFF:
            problem, place = api.GROUP_MAKING, api.PLACE_MAPPED if pages else api.PLACE_NESTED
        counted = bin(free & (1 << slots) - 1).count("1")
        self.met.append(
            Met(MuslGroup(group, address, bytes_, slot_bytes, slots, counted, 0, size_class, place, problem, is_freeable), free)
        )

    def add_slots(self, met: Met, until: int) -> None:
        """Slots that were not told yet."""
        group, first = met.group, met.next_slot
        if first < until and group.problem == api.GROUP_GOOD:
            start, usable = group.address + UNIT_BYTES + first * group.slot_bytes, group.slot_bytes - TRAILER_BYTES
            row = (start, group.slot_bytes, until - first, usable, 0, group.size_class, api.MUSL_USED, api.MUSL_FREE)
            self.runs.extend((*row, met.free_mask >> first, group.address, True, 0))
        met.next_slot = until

    def tag(self, place: int) -> int:
        """Of a head."""
        return api.TAG_NESTED * (place == api.PLACE_NESTED) | api.TAG_SHORT * (self.word == 4)

    def make_runs(self) -> None:
        """All groups in the order of addresses, nested ones between the slots around theirs."""
        opened: List[Met] = []
        for met in [*self.met, None]:
            while opened and (met is None or opened[-1].end <= met.group.address):
                last = opened.pop()
                self.add_slots(last, last.group.slots)
            if met is None:
                return
            around, slot = opened[-1] if opened else None, 0
            if met.group.problem == api.GROUP_GOOD and not self.is_mapped(met):
                met.change(problem=api.GROUP_UNMAPPED)
            if met.group.problem == api.GROUP_GOOD:
                problem, slot = _place_in(around, met)
                met.change(problem=api.GROUP_OVERLAP if not problem and len(opened) == MOST_DEPTH else problem)
            group = met.group
            if group.problem != api.GROUP_GOOD:
                self.tell(group.problem, group.address, group.meta)
                if around is not None or group.place == api.PLACE_NESTED or met.end > ADDRESS_MASK:
                    continue
            if around is not None and around.group.problem == api.GROUP_GOOD:
                self.add_slots(around, slot)
                around.next_slot = slot + 1
                around.change(nested_slots=around.group.nested_slots + 1)
            elif around is not None:
                met.change(place=api.PLACE_LOST)
            opened.append(met)
            if group.problem == api.GROUP_GOOD:
                row = (group.address, UNIT_BYTES, 1, UNIT_BYTES, 0, api.HEAD_LABEL, api.MUSL_METADATA, api.MUSL_FREE)
                self.runs.extend((*row, 0, group.address, True, group.meta | self.tag(met.group.place)))


    def is_mapped(self, met: Met) -> bool:
        """The process has all of its memory."""
        place = bisect_right(self.starts, met.group.address) - 1
        return place >= 0 and met.end <= self.ends[place]


def _place_in(around: Optional[Met], met: Met) -> Tuple[int, int]:
    """What is wrong with where a group lies, and the slot that it lies in."""
    inner = met.group
    if around is None:
        return api.GROUP_OUTSIDE if inner.place == api.PLACE_NESTED else api.GROUP_GOOD, 0
    outer = around.group
    if outer.problem != api.GROUP_GOOD:
        return api.GROUP_GOOD, 0
    away = inner.address - outer.address
    slot = outer.slots if away < UNIT_BYTES else (away - UNIT_BYTES) // outer.slot_bytes
    end = outer.address + UNIT_BYTES + (slot + 1) * outer.slot_bytes
    is_bad = inner.place == api.PLACE_MAPPED or slot >= outer.slots or slot < around.next_slot
    if is_bad or inner.address + inner.bytes > end:
        return api.GROUP_OVERLAP, slot
    if around.free_mask >> slot & 1:
        return api.GROUP_MAKING if inner.slots - inner.free_slots <= 1 else api.GROUP_OVERLAP, slot
    return api.GROUP_GOOD, slot


def groups(reader: Reader, layout: MuslLayout, memory: "array[int]", with_rows: bool, budget: Budget) -> Groups:
    """See walkers.groups."""
    walk, is_whole = _Walk(reader, layout, memory, budget), False
    try:
        is_whole = walk.read_areas()
        walk.met.sort(key=lambda met: (met.group.address, met.group.meta))
        if is_whole:
            walk.make_runs()
    except KeyboardInterrupt:
        budget.interrupt()
        is_whole = False
    good = [met.group for met in walk.met if is_whole and met.group.problem == api.GROUP_GOOD]
    own = [group for group in good if group.place in (api.PLACE_MAPPED, api.PLACE_DONATED)]
    alone = [group for group in own if group.place == api.PLACE_MAPPED and group.slots == 1 and not group.free_slots]
    numbers = array("Q", _numbers(walk.met)) if with_rows else array("Q")
    runs = walk.runs if with_rows else array("Q")
    ranges, areas = (_joined(own), _joined(alone)), array("Q", sorted(walk.areas))
    return Groups(is_whole, areas, *ranges, _classes(good), _sums(good, own), walk.problems, walk.count, numbers, runs)


def _joined(groups: List[MuslGroup]) -> "array[int]":
    ranges = array("Q")
    for group in groups:
        end = group.address + group.bytes
        if ranges and ranges[-1] >= group.address:
            ranges[-1] = end
        else:
            ranges.extend((group.address, end))
    return ranges


def _classes(groups: List[MuslGroup]) -> List[MuslClass]:
    sums = [[0] * len(MuslClass._fields) for _ in range(api.HEAD_LABEL)]
    for group in groups:
        slots, free = group.slots - group.nested_slots, group.free_slots
        sizes = (slots * group.slot_bytes, free * (group.slot_bytes - TRAILER_BYTES))
        for place, more in enumerate((1, slots, free, *sizes, group.slots * group.is_freeable)):
            sums[group.size_class][place] += more
    return [MuslClass._make(row) for row in sums]


def _sums(groups: List[MuslGroup], own: List[MuslGroup]) -> MuslHeld:
    nested, lost = (sum(group.bytes for group in groups if group.place == place) for place in (api.PLACE_NESTED, api.PLACE_LOST))
    rest = sum(group.bytes - group.slot_bytes * (group.slots - group.nested_slots) for group in groups) - nested
    donated = sum(group.bytes for group in own if group.place == api.PLACE_DONATED)
    return MuslHeld(len(groups), sum(group.bytes for group in own), rest, donated, lost)


def _numbers(met: List[Met]) -> Iterator[int]:
    for one in met:
        yield from one.group


class _Header(NamedTuple):
    """What stands in front of a block."""

    offset: int
    half: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    mark: int
    is_long: int

    @property
    def is_freed(self) -> bool:
        """Of a block that was freed; malloc writes the offset before the index, and free() takes it away behind it."""
        return (self.index, self.mark) == (31, 7) and not self.is_long

    @property
    def is_blank(self) -> bool:
        """Of none."""
        return not (self.half or self.index or self.mark or self.is_long)


def reader(layout: MuslLayout) -> Callable[[Reader, SlotRun, int, bool], Tuple[int, int, int]]:
    """What reads slots of this target."""
    order: Any = "little" if layout.little_endian else "big"

    def header(memory: Reader, begin: int) -> Optional[_Header]:
        data = memory.read(begin - 8, 8)
        if len(data) < 8:
            return None
        half = int.from_bytes(data[6:8], order)
        return _Header(int.from_bytes(data[:4], order) if data[4] else half, half, data[5] & 31, data[5] >> 5, data[4])

    def read(memory: Reader, run: SlotRun, slot: int) -> Tuple[int, int, int]:
        first, end = run.base + UNIT_BYTES, slot + run.slot_bytes - TRAILER_BYTES
        head, begin = header(memory, slot), slot
        is_away = head is not None and (head.mark, head.index) == (AWAY_MARK, 0)
        if is_away and head is not None:
            begin += UNIT_BYTES * head.half
            while True:
                if begin > end:
                    return api.HEADER_HALF, 0, 0
                head = header(memory, begin)
                if head is not None and head.is_freed:
                    return api.HEADER_STALE, 0, 0
                if head is None or (first + UNIT_BYTES * head.offset == begin and (head.mark, head.index) != (AWAY_MARK, 0)):
                    break
                begin += UNIT_BYTES << 16
        if head is None:
            return SLOT_UNREADABLE, 0, 0
        if head.is_freed or (head.is_blank and begin != first):
            return api.HEADER_STALE, 0, 0
        leads_back = first + UNIT_BYTES * head.offset == begin
        if head.index != (slot - first) // run.slot_bytes:
            is_half = is_away or (leads_back and not (head.is_long or head.index or head.mark))
            return api.HEADER_HALF if is_half else api.HEADER_INDEX, 0, 0
        if (head.is_long and head.half) or head.is_long > 1:
            return api.HEADER_ZERO, 0, 0
        if not leads_back:
            return api.HEADER_OFFSET, 0, 0
        return _with_tail(memory, begin, end, head.mark, order)

    def read_head(memory: Reader, run: SlotRun, slot: int) -> int:
        lead, word = UNIT_BYTES * bool(run.tag & api.TAG_NESTED), 4 if run.tag & api.TAG_SHORT else 8
        data = memory.read(slot - lead, lead + 8)
        if len(data) < lead + 8:
            return SLOT_UNREADABLE
        back = int.from_bytes(data[lead : lead + word], order)
        if back != run.tag & ~(api.TAG_NESTED | api.TAG_SHORT):
            return api.HEAD_BACK if back else api.HEADER_STALE
        return api.HEAD_MARK if lead and data[lead - 3] >> 5 != NESTED_MARK else SLOT_READ

    def read_slot(memory: Reader, run: SlotRun, slot: int, is_free: bool) -> Tuple[int, int, int]:
        if run.kind == api.MUSL_METADATA:
            return read_head(memory, run, slot), slot, run.usable_bytes
        if not is_free:
            return read(memory, run, slot)
        head = header(memory, slot)
        if head is None or not (head.half or head.index or head.mark):
            return SLOT_READ, slot, 0
        return (api.HEADER_USED if read(memory, run, slot)[0] == SLOT_READ else SLOT_READ), slot, 0

    return read_slot


def _with_tail(memory: Reader, begin: int, end: int, mark: int, order: Any) -> Tuple[int, int, int]:
    tail, left = memory.read(end - 8, 9), mark
    if len(tail) < 9:
        return SLOT_UNREADABLE, 0, 0
    if mark == LONG_MARK:
        left = int.from_bytes(tail[4:8], order)
        if tail[3]:
            return api.HEADER_ZERO, 0, 0
    if mark == NESTED_MARK:
        return api.HEADER_HALF, 0, 0
    if mark > LONG_MARK or (mark == LONG_MARK and left < LONG_MARK) or left > end - begin:
        return api.HEADER_SLACK, 0, 0
    block = begin, end - left - begin
    if tail[8]:
        return (api.HEADER_ZERO, *block)
    if left:
        behind = memory.read(end - left, 1)
        if len(behind) < 1:
            return (SLOT_UNREADABLE, *block)
        if behind[0]:
            return (api.HEADER_ZERO, *block)
    return (SLOT_READ, *block)
