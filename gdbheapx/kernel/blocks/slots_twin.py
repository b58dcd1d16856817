"""The walk over slots in Python: what slots.c does."""

from array import array
from bisect import bisect_left, bisect_right
from typing import Any, Iterator, List, NamedTuple, Tuple

from gdbheapx.kernel.blocks.records import BlockFilter
from gdbheapx.kernel.blocks.slots import (
    MASK_SLOTS,
    MOST_SLOT_PROBLEMS,
    SLOT_KINDS,
    SLOT_READ,
    SLOT_STRAY,
    SLOT_TWICE,
    SLOT_UNREADABLE,
    SlotProblem,
    SlotRun,
    SlotTallies,
    SlotTally,
)
from gdbheapx.kernel.blocks.twin import Rows, Source
from gdbheapx.kernel.common.records import ADDRESS_MASK, STOP_END
from gdbheapx.kernel.common.twin.kernel import PythonKernel

WIDTH = len(SlotRun._fields)


def run_at(runs: "array[int]", place: int) -> SlotRun:
    """One of them."""
    return SlotRun._make(runs[WIDTH * place : WIDTH * (place + 1)])


def fit(walker: Any) -> bool:
    """As heapx_slots_fit."""
    end = 0
    for run in (run_at(walker.runs, place) for place in range(walker.count)):
        last = run.start + run.slot_bytes * run.slots
        kinds = max(run.kind, run.free_kind)
        is_good = run.start >= end and run.slot_bytes and run.slots and last <= ADDRESS_MASK and run.usable_bytes <= run.slot_bytes
        if not is_good or run.label >= walker.labels or kinds >= SLOT_KINDS:
            return False
        end = last
    return True


class Slot(NamedTuple):
    """One slot; `listed`: its place in the list of free ones, -1: it is in none."""

    run: SlotRun
    address: int
    is_masked: bool
    listed: int


class Walk:
    """All slots from `start` on, one after the other."""

    def __init__(self, walker: Any, start: int = 0) -> None:
        self._walker, self._frees = walker, walker.frees.addresses
        self._run = self._slot = 0
        self._current: Tuple[int, Any] = (-1, None)
        self._reader = walker.kernel.open(walker.source) if walker.reader is not None else None
        assert isinstance(walker.kernel, PythonKernel)
        ends = [run.start + run.slot_bytes * run.slots for run in self._runs()]
        self._run = bisect_right(ends, start)
        self.last = ends[-1] if ends else 0
        if not self.ended and start > self._at_hand().start:
            self._slot = (start - self._at_hand().start) // self._at_hand().slot_bytes

    def _runs(self) -> Iterator[SlotRun]:
        return (run_at(self._walker.runs, place) for place in range(self._walker.count))

    def _at_hand(self) -> SlotRun:
        if self._current[0] != self._run:
            self._current = (self._run, run_at(self._walker.runs, self._run))
        return self._current[1]  # type: ignore[no-any-return]

    @property
    def ended(self) -> bool:
        """There is no further one."""
        return bool(self._run >= self._walker.count)

    @property
    def at(self) -> int:
        """Where the slot at hand begins."""
        return self.last if self.ended else self._at_hand().start + self._slot * self._at_hand().slot_bytes

    def slot(self) -> Slot:
        """The one at hand."""
        run, address = self._at_hand(), self.at
        place = bisect_left(self._frees, address)
        listed = place if place < len(self._frees) and self._frees[place] == address else -1
        return Slot(run, address, self._slot < MASK_SLOTS and bool(run.free_mask >> self._slot & 1), listed)

    def step(self) -> None:
        """Goes on."""
        self._slot += 1
        if self._slot == self._at_hand().slots:
            self._run, self._slot = self._run + 1, 0

    def read(self, slot: Slot, is_free: bool = False) -> Any:
        """What a slot's reader tells: what is wrong or SLOT_READ, address, usable bytes."""
        whole = (slot.address, slot.run.usable_bytes)
        if self._reader is None or not slot.run.is_read:
            return (SLOT_READ, *whole)
        state, address, usable = self._walker.reader.twin(self._reader, slot.run, slot.address, is_free)
        lead = address - slot.address
        if 0 <= lead <= slot.run.slot_bytes and usable <= slot.run.slot_bytes - lead:
            return state, address, usable
        return (SLOT_UNREADABLE if state == SLOT_READ else state, *whole)


class SlotSource(Source):
    """The stream."""

    stop = STOP_END

    def __init__(self, walker: Any, wanted: BlockFilter) -> None:
        self._walk, self._walker, self._wanted = Walk(walker, wanted.start), walker, wanted

    @property
    def ended(self) -> bool:
        """See Source."""
        return self._walk.ended

    @property
    def at(self) -> int:
        """See Source."""
        return self._walk.at if self.ended else max(self._walk.at, self._wanted.start)

    def fill(self, rows: Rows) -> None:
        """See Source."""
        walk, wanted, frees = self._walk, self._wanted, self._walker.frees
        while rows.left > 0 and not walk.ended:
            slot = walk.slot()
            kind = frees.kinds[slot.listed] if slot.listed >= 0 else slot.run.free_kind if slot.is_masked else slot.run.kind
            if wanted.kinds is None or kind in wanted.kinds:
                is_used = slot.listed < 0 and not slot.is_masked
                _, address, usable = walk.read(slot) if is_used else (0, slot.address, slot.run.usable_bytes)
                if address >= wanted.start and wanted.has(kind, usable):
                    rows.add(address, usable, self._walker.classes[kind], kind, slot.run.arena)
            walk.step()


class _Told:
    """Problems: the first ones, and how many there are."""

    def __init__(self) -> None:
        self.problems: List[SlotProblem] = []
        self.count = 0

    def add(self, address: int, base: int, code: int) -> None:
        self.count += 1
        if len(self.problems) < MOST_SLOT_PROBLEMS:
            self.problems.append(SlotProblem(address, base, code))


def tally(walker: Any) -> SlotTallies:
    """As heapx_slot_tally_new and what follows."""
    walk, told, frees = Walk(walker), _Told(), walker.frees.addresses
    sums = [[0] * len(SlotTally._fields) for _ in range(walker.labels)]
    checked = strays = 0
    try:
        while not (walk.ended or walker.budget.expired()):
            slot = walk.slot()
            until = bisect_left(frees, slot.address)
            strays += _strays(told, frees, checked, until)
            checked = max(checked, until) + (slot.listed >= 0)
            _count(sums[slot.run.label], slot, walk, told)
            walk.step()
    except KeyboardInterrupt:
        walker.budget.interrupt()
    if walk.ended:
        strays += _strays(told, frees, checked, len(frees))
    return SlotTallies(walk.ended, walk.at, [SlotTally._make(row) for row in sums], told.problems, told.count, strays)


def _strays(told: _Told, frees: "array[int]", checked: int, until: int) -> int:
    for place in range(checked, until):
        told.add(frees[place], 0, SLOT_TWICE if place and frees[place - 1] == frees[place] else SLOT_STRAY)
    return max(0, until - checked)


def _count(sums: List[int], slot: Slot, walk: Walk, told: _Told) -> None:
    is_used = slot.listed < 0 and not slot.is_masked
    state, _, usable = walk.read(slot, not is_used) if slot.listed < 0 else (SLOT_READ, 0, 0)
    usable = usable if is_used else 0
    is_broken = state != SLOT_READ
    counts = (is_used, slot.listed < 0 and slot.is_masked, slot.listed >= 0)
    sizes = (usable, 0 if is_used else slot.run.usable_bytes, slot.run.slot_bytes)
    for place, more in enumerate((*counts, *sizes, is_broken)):
        sums[place] += more
    if is_broken:
        told.add(slot.address, slot.run.base, state)
