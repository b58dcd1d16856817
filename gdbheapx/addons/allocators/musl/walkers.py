"""The walks over musl's groups and slots, by ctypes."""

from array import array
from typing import Sequence

from gdbheapx.addons.allocators.musl.native_records import (
    HEAD_LABEL,
    LABELS,
    MOST_MUSL_PROBLEMS,
    MUSL_CLASS_OF,
    Groups,
    MuslClass,
    MuslGroup,
    MuslHeld,
    MuslLayout,
    MuslProblem,
    MuslSums,
)
from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.blocks.slot_walker import SlotWalker
from gdbheapx.kernel.blocks.slots import SlotReader, SlotRun
from gdbheapx.kernel.common.library import Kernel, Rows, at, declared, flat, run

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
struct groups_job *heapx_musl_groups_new(const struct source *source, const struct musl_layout *layout, const uint64_t *memory,
    uint64_t memory_count, int with_rows);
int64_t heapx_musl_groups_slice(struct groups_job *job, double seconds);
void heapx_musl_groups_sums(const struct groups_job *job, struct musl_sums *out);
void heapx_musl_groups_result(const struct groups_job *job, uint64_t *areas, uint64_t *held, uint64_t *alone, struct musl_class *classes,
    struct musl_held *sums, struct musl_problem *problems);
void heapx_musl_groups_rows(const struct groups_job *job, struct musl_group *groups, struct slot_run *runs);
void heapx_musl_groups_free(struct groups_job *job);
"""
)


def groups(kernel: Kernel, source: BulkSource, layout: MuslLayout, memory: "array[int]", with_rows: bool, budget: Budget) -> Groups:
    """All areas, metas and groups, summed up, and with their slots as runs if rows are asked for. What is damaged is told and left out; the
    rest is whole. `memory`: array('Q') of begin and end of each range that the process has, sorted."""
    library, opened, numbers, counts = declared(kernel.library, PROTOTYPES), kernel.open(source), flat(layout), Rows(MuslSums, 1)
    job = library.heapx_musl_groups_new(opened.handle, at(numbers), at(memory), len(memory) // 2, with_rows)
    if not job:
        raise MemoryError()
    try:
        run(lambda seconds: library.heapx_musl_groups_slice(job, seconds), opened, budget)
        library.heapx_musl_groups_sums(job, at(counts.numbers))
        (known,) = counts.records(1)
        areas, held, alone = (_room(count) for count in (known.areas, 2 * known.held, 2 * known.alone))
        classes, sums, problems = Rows(MuslClass, HEAD_LABEL), Rows(MuslHeld, 1), Rows(MuslProblem, MOST_MUSL_PROBLEMS)
        library.heapx_musl_groups_result(job, *map(at, (areas, held, alone, classes.numbers, sums.numbers, problems.numbers)))
        rows = _room(len(MuslGroup._fields) * known.groups), _room(len(SlotRun._fields) * known.runs)
        library.heapx_musl_groups_rows(job, *map(at, rows))
    finally:
        library.heapx_musl_groups_free(job)
    told = problems.records(known.told)
    return Groups(bool(known.ended), areas, held, alone, classes.records(HEAD_LABEL), sums.records(1)[0], told, known.problems, *rows)


def _room(count: int) -> "array[int]":
    return array("Q", (0,)) * count


def slot_walker(kernel: Kernel, source: BulkSource, layout: MuslLayout, runs: Sequence[int], budget: Budget) -> SlotWalker:
    """Over the slots of these groups."""
    ending = "" if layout.little_endian else "_big"
    names = ("heapx_musl_blocks" + ending, "heapx_musl_tally" + ending)
    reader = SlotReader(*names, prototypes=PROTOTYPES)
    assert isinstance(runs, array)
    return SlotWalker(kernel, source, runs, MUSL_CLASS_OF, LABELS, budget, reader=reader)
