"""The one walk over slots of equal size, by ctypes: as a stream of blocks, and counted."""

from array import array
from typing import Any, Optional, Sequence

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource, BytesSource
from gdbheapx.kernel.blocks.binding import CBlocks
from gdbheapx.kernel.blocks.records import EVERYTHING, BlockFilter, BlockStream, NativeBlocks, apart_from
from gdbheapx.kernel.blocks.slots import (
    MOST_SLOT_PROBLEMS,
    NO_FREES,
    Frees,
    SlotProblem,
    SlotReader,
    SlotRun,
    SlotSums,
    SlotTallies,
    SlotTally,
)
from gdbheapx.kernel.common.library import Kernel, NativeRows, address_of, declare_functions, run_resumable

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
        if not self._fits_kernel() or len(frees.addresses) != len(frees.kinds):
            raise ValueError("no runs of slots")

    def _fits_kernel(self) -> bool:
        return bool(declare_functions(self.kernel.library, PROTOTYPES).heapx_slots_fit(address_of(self.runs), self.count, self.labels))

    def blocks(self, wanted: BlockFilter = EVERYTHING, apart: Optional[NativeBlocks] = None) -> BlockStream:
        """Return all blocks by address: used ones as the reader gives them, free slots whole. `apart`: further ones, to be merged in."""
        apart = apart_from(apart, wanted)
        library, opened = self._declare_functions(), self.kernel.open(self.source)
        kept = (self.runs, self.frees, self.classes, wanted.numbers())
        make = getattr(library, self.reader.blocks if self.reader else "heapx_slot_blocks")
        lists = (address_of(self.frees.addresses), address_of(self.frees.kinds), len(self.frees.addresses))
        handle = make(opened.handle, address_of(self.runs), self.count, *lists, address_of(self.classes), address_of(kept[3]))
        return CBlocks(library, opened, handle, kept, apart, self.budget)

    def tally(self) -> SlotTallies:
        """Return all slots, counted by label, and their errors."""
        library, opened, listed = self._declare_functions(), self.kernel.open(self.source), self.frees.addresses
        make = getattr(library, self.reader.tally if self.reader else "heapx_slot_tally_new")
        job = make(opened.handle, address_of(self.runs), self.count, address_of(listed), len(listed), self.labels)
        if not job:
            raise MemoryError()
        try:
            run_resumable(lambda seconds: library.heapx_slot_tally_slice(job, seconds), opened, self.budget)
            rows = [NativeRows(SlotTally, self.labels), NativeRows(SlotProblem, MOST_SLOT_PROBLEMS), NativeRows(SlotSums, 1)]
            library.heapx_slot_tally_result(job, *(address_of(row.numbers) for row in rows))
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

    def _declare_functions(self) -> Any:
        library = declare_functions(self.kernel.library, PROTOTYPES)
        return declare_functions(library, self.reader.prototypes) if self.reader else library
