"""The walks over musl's groups and slots, by ctypes or in Python."""

from array import array
from typing import Any, List, Sequence

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.blocks.slot_walker import SlotWalker
from gdbheapx.kernel.blocks.slots import SlotReader, SlotRun
from gdbheapx.kernel.common.library import CommonBinding, Rows, at, declared, flat, run
from gdbheapx.kernel.common.records import Kernel
from gdbheapx.kernel.musl.records import LABELS, MUSL_CLASS_OF, Groups, MuslGroup, MuslLayout, MuslProblem, MuslSums

READERS = """
struct block_source *heapx_musl_blocks(const struct source *memory, const struct slot_run *runs, uint64_t run_count, const uint64_t *frees,
    const uint8_t *free_kinds, uint64_t free_count, const uint8_t *classes, const struct block_wanted *wanted);
struct slot_tally_job *heapx_musl_tally(const struct source *memory, const struct slot_run *runs, uint64_t run_count,
    const uint64_t *frees, uint64_t free_count, uint64_t labels);
struct block_source *heapx_musl_blocks_big(const struct source *memory, const struct slot_run *runs, uint64_t run_count,
    const uint64_t *frees, const uint8_t *free_kinds, uint64_t free_count, const uint8_t *classes, const struct block_wanted *wanted);
struct slot_tally_job *heapx_musl_tally_big(const struct source *memory, const struct slot_run *runs, uint64_t run_count,
    const uint64_t *frees, uint64_t free_count, uint64_t labels);
"""
PROTOTYPES = (
    READERS
    + """
struct groups_job *heapx_musl_groups_new(const struct source *source, const struct musl_layout *layout);
int64_t heapx_musl_groups_slice(struct groups_job *job, double seconds);
void heapx_musl_groups_sums(const struct groups_job *job, struct musl_sums *out);
void heapx_musl_groups_result(const struct groups_job *job, uint64_t *areas, struct musl_group *groups, struct slot_run *runs,
    struct musl_problem *problems);
void heapx_musl_groups_free(struct groups_job *job);
"""
)


def groups(kernel: Kernel, source: BulkSource, layout: MuslLayout, budget: Budget) -> Groups:
    """All areas, metas and groups, and the slots of these as runs. What is damaged is told and left out; the rest is whole."""
    if not isinstance(kernel, CommonBinding):
        from gdbheapx.kernel.common.twin.kernel import PythonKernel
        from gdbheapx.kernel.musl import twin

        assert isinstance(kernel, PythonKernel)
        return twin.groups(kernel.open(source), layout, budget)
    library, opened, numbers, sums = declared(kernel.library, PROTOTYPES), kernel.open(source), flat(layout), Rows(MuslSums, 1)
    job = library.heapx_musl_groups_new(opened.handle, at(numbers))
    if not job:
        raise MemoryError()
    try:
        run(lambda seconds: library.heapx_musl_groups_slice(job, seconds), opened, budget)
        library.heapx_musl_groups_sums(job, at(sums.numbers))
        (known,) = sums.records(1)
        rooms: List[Any] = [_room(1, known.areas), _room(len(MuslGroup._fields), known.groups), _room(len(SlotRun._fields), known.runs)]
        problems = Rows(MuslProblem, known.told)
        library.heapx_musl_groups_result(job, *map(at, rooms), at(problems.numbers))
    finally:
        library.heapx_musl_groups_free(job)
    return Groups(bool(known.ended), rooms[0], rooms[1], rooms[2], problems.records(known.told), known.problems)


def _room(width: int, count: int) -> "array[int]":
    return array("Q", bytes(8 * width * count))


def slot_walker(kernel: Kernel, source: BulkSource, layout: MuslLayout, runs: Sequence[int], budget: Budget) -> SlotWalker:
    """Over the slots of these groups."""
    from gdbheapx.kernel.musl import twin

    ending = "" if layout.little_endian else "_big"
    names = ("heapx_musl_blocks" + ending, "heapx_musl_tally" + ending)
    reader = SlotReader(*names, prototypes=PROTOTYPES, twin=twin.reader(layout))
    assert isinstance(runs, array)
    return SlotWalker(kernel, source, runs, MUSL_CLASS_OF, LABELS, budget, reader=reader)
