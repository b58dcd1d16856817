"""The one walk over slots of equal size, for every allocator that cuts its memory into them: what it takes, and what both kernels give.

An allocator says where its slots are (SlotRun) and which of them are free: by a mask in the run, by a sorted list of addresses (Frees), or by
both. What is left is in use. One whose blocks do not fill their slots has a walk of its own in C, a `slot_reader` (slots.h), and gives
SlotWalker the names of the two functions that pass it on.
"""

from array import array
from typing import Any, Callable, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource, BytesSource
from gdbheapx.kernel.blocks.binding import CBlocks
from gdbheapx.kernel.blocks.records import EVERYTHING, BlockFilter, Blocks, BlockStream, apart_from
from gdbheapx.kernel.common.library import CommonBinding, Rows, at, declared, run
from gdbheapx.kernel.common.records import Kernel

IN_C = "SLOT_* MOST_SLOT_PROBLEMS SlotRun SlotTally SlotProblem SlotSums"
PROTOTYPES = """
struct block_source *heapx_slot_blocks(const struct source *memory, const struct slot_run *runs, uint64_t run_count, const uint64_t *frees,
    const uint8_t *free_kinds, uint64_t free_count, const uint8_t *classes, const struct block_wanted *wanted);
int heapx_slots_fit(const struct slot_run *runs, uint64_t run_count, uint64_t labels);
struct slot_tally_job *heapx_slot_tally_new(const struct source *memory, const struct slot_run *runs, uint64_t run_count,
    const uint64_t *frees, uint64_t free_count, uint64_t labels);
int64_t heapx_slot_tally_slice(struct slot_tally_job *job, double seconds);
void heapx_slot_tally_result(const struct slot_tally_job *job, struct slot_tally *tallies, struct slot_problem *problems,
    struct slot_sums *sums);
void heapx_slot_tally_free(struct slot_tally_job *job);
"""

SLOT_PAUSED = 0
SLOT_READ = 1
SLOT_UNREADABLE = 2
"""What tells the block in a used slot cannot be read, or tells one that leaves the slot."""
SLOT_STRAY = 3
"""An address that is on a list of free ones begins no slot."""
SLOT_TWICE = 4
"""It is on lists more than once."""
SLOT_OWN = 16
"""From here on an allocator's own."""
SLOT_KINDS = 64
MOST_SLOT_PROBLEMS = 1000
"""That are told one by one; all are counted."""
MASK_SLOTS = 64


class SlotRun(NamedTuple):
    """Slots side by side. Runs are given in the order of addresses, without overlap: where slots of one run lie in a slot of another, that
    one is given as what lies before it, the slot itself, and what lies behind it."""

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
    """What the allocator's own reader must know besides, such as where a header lies; told with each problem."""
    is_read: bool
    """Used slots are looked into by the allocator's own reader, if it has one."""


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
    slot_bytes: int
    """All slots, whole."""
    broken_slots: int
    """Used slots about which what lies in them contradicts the rest: they count as whole slots."""


class SlotProblem(NamedTuple):
    """One slot, or one address of a list, that cannot be so."""

    address: int
    base: int
    """SlotRun.base; 0 of an address that is in no slot."""
    code: int
    """A SLOT_ number, or the allocator's own."""


class SlotSums(NamedTuple):
    """How a look at all slots ended."""

    ended: int
    at: int
    problems: int
    told: int
    strays: int


class SlotTallies(NamedTuple):
    """All slots, counted."""

    is_whole: bool
    """False: the budget expired before the slot at `at`."""
    at: int
    tallies: Sequence[SlotTally]
    """By label."""
    problems: Sequence[SlotProblem]
    problem_count: int
    strays: int
    """Addresses of the list that are no slot, or one again."""


class SlotReader(NamedTuple):
    """An allocator's own way to read used slots."""

    blocks: str
    """The functions of the C kernel, which take what heapx_slot_blocks and heapx_slot_tally_new take."""
    tally: str
    prototypes: str
    twin: Callable[[Any, SlotRun, int], Tuple[int, int, int]]
    """The same in Python, of a reader of memory, a run and where the slot begins: what is wrong or SLOT_READ, the block's address and usable
    bytes."""


class SlotWalker:
    """Walks over these runs. `runs`: array('Q') of SlotRun, row by row; `classes`: a CLASS_ for each kind; `labels`: how many there may be.
    ValueError where runs overlap or are out of order: whoever reads them from memory drops what is damaged before."""

    def __init__(
        self,
        kernel: Kernel,
        source: Optional[BulkSource],
        runs: "array[int]",
        classes: Sequence[int],
        labels: int,
        budget: Budget,
        frees: Frees = NO_FREES,
        reader: Optional[SlotReader] = None,
    ) -> None:
        self.kernel, self.source, self.runs, self.labels, self.budget = kernel, source or BytesSource(()), runs, labels, budget
        self.classes, self.frees, self.reader = array("B", classes), frees, reader
        self.count = len(runs) // len(SlotRun._fields)
        if not self._fit() or len(frees.addresses) != len(frees.kinds):
            raise ValueError("no runs of slots")

    def _fit(self) -> bool:
        if isinstance(self.kernel, CommonBinding):
            return bool(declared(self.kernel.library, PROTOTYPES).heapx_slots_fit(at(self.runs), self.count, self.labels))
        from gdbheapx.kernel.blocks.slots_twin import fit

        return fit(self)

    def blocks(self, wanted: BlockFilter = EVERYTHING, apart: Optional[Blocks] = None) -> BlockStream:
        """All blocks by address: used ones as the reader tells them, free slots whole. `apart`: further ones, to be merged in."""
        apart = apart_from(apart, wanted)
        if not isinstance(self.kernel, CommonBinding):
            from gdbheapx.kernel.blocks.slots_twin import SlotSource
            from gdbheapx.kernel.blocks.twin import TwinBlocks

            return TwinBlocks(SlotSource(self, wanted), apart, self.budget)
        library, opened = self._declared(), self.kernel.open(self.source)
        kept = (self.runs, self.frees, self.classes, wanted.numbers())
        make = getattr(library, self.reader.blocks if self.reader else "heapx_slot_blocks")
        lists = (at(self.frees.addresses), at(self.frees.kinds), len(self.frees.addresses))
        handle = make(opened.handle, at(self.runs), self.count, *lists, at(self.classes), at(kept[3]))
        return CBlocks(library, opened, handle, kept, apart, self.budget)

    def tally(self) -> SlotTallies:
        """All slots, counted by label, and what is wrong with them."""
        if not isinstance(self.kernel, CommonBinding):
            from gdbheapx.kernel.blocks.slots_twin import tally

            return tally(self)
        library, opened, listed = self._declared(), self.kernel.open(self.source), self.frees.addresses
        make = getattr(library, self.reader.tally if self.reader else "heapx_slot_tally_new")
        job = make(opened.handle, at(self.runs), self.count, at(listed), len(listed), self.labels)
        if not job:
            raise MemoryError()
        try:
            run(lambda seconds: library.heapx_slot_tally_slice(job, seconds), opened, self.budget)
            rows = [Rows(SlotTally, self.labels), Rows(SlotProblem, MOST_SLOT_PROBLEMS), Rows(SlotSums, 1)]
            library.heapx_slot_tally_result(job, *(at(row.numbers) for row in rows))
        finally:
            library.heapx_slot_tally_free(job)
        (sums,) = rows[2].records(1)
        return SlotTallies(
            is_whole=bool(sums.ended),
            at=sums.at,
            tallies=rows[0].records(self.labels),
            problems=rows[1].records(sums.told),
            problem_count=sums.problems,
            strays=sums.strays,
        )

    def _declared(self) -> Any:
        assert isinstance(self.kernel, CommonBinding)
        library = declared(self.kernel.library, PROTOTYPES)
        return declared(library, self.reader.prototypes) if self.reader else library
