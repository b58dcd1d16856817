"""Slots of equal size, for every allocator that cuts its memory into them, and pools of cells: the walks over them."""

from array import array
from typing import Any, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BulkSource, BytesSource
from gdbheapx.kernel.blocks.stream import EVERYTHING, BlockFilter, BlockStream, CBlocks, NativeBlocks, apart_from
from gdbheapx.kernel.common.library import Kernel, NativeRows, OpenSource, address_of, flatten_pairs, native_job, run_resumable

SLOT_PAUSED = 0
SLOT_READ = 1
SLOT_UNREADABLE = 2
"""What shows the block in a used slot cannot be read, or shows one that leaves the slot."""
SLOT_STRAY = 3
"""An address that is on a list of free ones begins no slot."""
SLOT_TWICE = 4
"""It is on lists more than once."""
SLOT_OWN = 16
"""From here on an allocator's own."""
SLOT_KINDS = 64
MOST_SLOT_PROBLEMS = 1000
"""That are listed one by one; all are counted."""
MASK_SLOTS = 64


class SlotRun(NamedTuple):
    """Slots side by side. Runs are given in the order of addresses, without overlap: where slots of one run lie in a slot of another, that
    one is given as what lies before it, the slot itself, and what lies after it."""

    start: int
    slot_bytes: int
    slots: int
    usable_bytes: int
    """Of a slot's bytes."""
    arena: int
    """Index, or NO_ARENA."""
    label: int
    """What sums are made by, such as a size class."""
    kind: int
    """Of slots that are not free: the allocator's own number for the status."""
    free_kind: int
    """Of those that are free by the mask."""
    free_mask: int
    """Bit i: slot i is free. Slots from MASK_SLOTS on have none."""
    base: int
    """What the allocator's own reader must know besides, such as where a header lies; shown with each problem."""
    is_read: bool
    """Slots are looked into by the allocator's own reader, if it has one."""
    tag: int
    """One more number for it."""


class Frees(NamedTuple):
    """Slots that are free by the allocator's lists."""

    addresses: "array[int]" = array("Q")
    """array('Q'): where they begin, sorted."""
    kinds: "array[int]" = array("B")
    """array('B'): the status of each."""


NO_FREES = Frees()


class SlotTally(NamedTuple):
    """Sums of the slots with one label."""

    used_slots: int
    free_slots: int
    """By the mask."""
    listed_slots: int
    """By a list."""
    used_bytes: int
    """What the program may use of used slots."""
    free_bytes: int
    """The same of all that are free, which count as whole slots."""
    slot_bytes: int
    """All slots, whole."""
    broken_slots: int
    """Slots about which what lies in them contradicts the rest: those in use count as whole slots, unless the block is known."""


class SlotProblem(NamedTuple):
    """Contradiction of one slot, or of one address of a list."""

    address: int
    base: int
    """SlotRun.base; 0 of an address that is in no slot."""
    code: int
    """A SLOT_ number, or the allocator's own."""


class SlotSums(NamedTuple):
    """End of a reading of all slots."""

    ended: int
    at: int
    problems: int
    told: int
    strays: int


class SlotTallies(NamedTuple):
    """Counts of all slots."""

    is_whole: bool
    """False: the budget expired before the slot at `at`."""
    at: int
    tallies: Sequence[SlotTally]
    """By label."""
    problems: Sequence[SlotProblem]
    problem_count: int
    strays: int
    """Addresses of the list that are no slot, or one again."""


class SlotWalker:
    """Walks over these runs. `runs`: array('Q') of SlotRun, row by row; `classes`: a CLASS_ for each kind; `labels`: how many there may be;
    `reader`: whose functions of the C kernel read used slots, heapx_NAME_blocks and heapx_NAME_tally_new.
    ValueError where runs overlap or are out of order: the caller that reads them from memory drops what is damaged before."""

    def __init__(
        self,
        kernel: Kernel,
        source: Optional[BulkSource],
        runs: "array[int]",
        classes: Sequence[int],
        labels: int,
        budget: Budget,
        frees: Frees = NO_FREES,
        reader: str = "slot",
    ) -> None:
        self.kernel, self.source, self.runs, self.labels, self.budget = kernel, source or BytesSource(()), runs, labels, budget
        self.classes, self.frees, self.reader = array("B", classes), frees, reader
        self.count = len(runs) // len(SlotRun._fields)
        fits = kernel.library.heapx_slots_fit(address_of(self.runs), self.count, self.labels)
        if not fits or len(frees.addresses) != len(frees.kinds):
            raise ValueError("no runs of slots")

    def blocks(self, wanted: BlockFilter = EVERYTHING, apart: Optional[NativeBlocks] = None) -> BlockStream:
        """Return all blocks by address: used ones as the reader gives them, free slots whole. `apart`: further ones, to be merged in."""
        apart = apart_from(apart, wanted)
        library, opened = self.kernel.library, self.kernel.open(self.source)
        kept = (self.runs, self.frees, self.classes, wanted.numbers())
        make = getattr(library, "heapx_%s_blocks" % self.reader)
        lists = (address_of(self.frees.addresses), address_of(self.frees.kinds), len(self.frees.addresses))
        handle = make(opened.handle, address_of(self.runs), self.count, *lists, address_of(self.classes), address_of(kept[3]))
        return CBlocks(library, opened, handle, kept, apart, self.budget)

    def tally(self) -> SlotTallies:
        """Return all slots, counted by label, and their errors."""
        library, opened, listed = self.kernel.library, self.kernel.open(self.source), self.frees.addresses
        make = getattr(library, "heapx_%s_tally_new" % self.reader)
        made = make(opened.handle, address_of(self.runs), self.count, address_of(listed), len(listed), self.labels)
        with native_job(made, library.heapx_slot_tally_free) as job:
            run_resumable(lambda seconds: library.heapx_slot_tally_slice(job, seconds), opened, self.budget)
            rows = [NativeRows(SlotTally, self.labels), NativeRows(SlotProblem, MOST_SLOT_PROBLEMS), NativeRows(SlotSums, 1)]
            library.heapx_slot_tally_result(job, *(address_of(row.numbers) for row in rows))
        (sums,) = rows[2].records(1)
        return SlotTallies(
            is_whole=bool(sums.ended),
            at=sums.at,
            tallies=rows[0].records(self.labels),
            problems=rows[1].records(sums.told),
            problem_count=sums.problems,
            strays=sums.strays,
        )


POOL_HEADER_BYTES = 48


class PoolSums(NamedTuple):
    """Sums of the pool headers, in bytes if not said otherwise."""

    pools: int = 0
    """All."""
    used_bytes: int = 0
    free_bytes: int = 0
    """Cells that are free in pools with used ones."""
    lost_bytes: int = 0
    """Headers of pools with used cells, and what is too small for a cell there."""
    free_pools: int = 0
    """Those without a used cell."""
    bad: int = 0
    """Those whose header is none."""


class Pools:
    """Single reading of pools. `runs`: (begin, end) of pools that are one after the other, sorted, without overlap."""

    def __init__(
        self, library: Any, opened: OpenSource, pool_bytes: int, little_endian: bool, runs: Sequence[Tuple[int, int]], budget: Budget
    ) -> None:
        self._library, self._opened, self._budget = library, opened, budget
        self._runs = flatten_pairs(runs)
        self._shape = (int(little_endian), pool_bytes, address_of(self._runs), len(runs))

    def sums(self) -> PoolSums:
        """Sum the headers alone, without the cells."""
        walk, out = self.blocks(), array("Q", PoolSums())
        run_resumable(lambda seconds: self._library.heapx_pool_sums(walk.handle, address_of(out), seconds), self._opened, self._budget)
        return PoolSums(*out)

    def blocks(self) -> CBlocks:
        """The used cells, all of CLASS_USED. Where a pool's list of free cells is broken, what comes after the break counts as used."""
        handle = self._library.heapx_pool_blocks(self._opened.handle, *self._shape)
        return CBlocks(self._library, self._opened, handle, self._runs, None, self._budget)
