"""The walks over tcmalloc's page map and lists, by ctypes."""

from array import array
from typing import Any, Sequence

from gdbheapx.addons.allocators.tcmalloc.native_records import (
    LABELS,
    TC_CLASS_OF,
    FreeList,
    Listed,
    ListEnd,
    ListSums,
    PageLeaf,
    SpanLayout,
    SpanProblem,
    SpanRange,
    Spans,
    SpanSums,
    SpanTally,
    TcSpan,
)
from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.blocks.slot_walker import SlotWalker
from gdbheapx.kernel.blocks.slots import Frees, SlotRun
from gdbheapx.kernel.common.library import Kernel, Rows, at, declared, flat, run

PROTOTYPES = """
struct spans_job *heapx_tc_spans_new(const struct source *source, const struct span_layout *layout, const struct page_leaf *leaves,
    uint64_t leaf_count, const uint64_t *sizes);
int64_t heapx_tc_spans_slice(struct spans_job *job, double seconds);
void heapx_tc_spans_sums(const struct spans_job *job, struct span_sums *out);
void heapx_tc_spans_result(const struct spans_job *job, struct tc_span *spans, struct slot_run *runs, struct span_problem *problems,
    struct span_tally *tallies, struct span_range *held);
void heapx_tc_spans_free(struct spans_job *job);
struct lists_job *heapx_tc_lists_new(const struct source *source, uint64_t little_endian, const struct free_list *lists,
    uint64_t list_count, uint64_t most, struct list_end *ends);
int64_t heapx_tc_lists_slice(struct lists_job *job, double seconds);
void heapx_tc_lists_sums(const struct lists_job *job, struct list_sums *out);
void heapx_tc_lists_result(const struct lists_job *job, uint64_t *objects);
void heapx_tc_lists_split(uint64_t *objects, uint64_t count, uint64_t *kinds);
void heapx_tc_lists_free(struct lists_job *job);
"""


def spans(
    kernel: Kernel, source: BulkSource, layout: SpanLayout, leaves: Sequence[PageLeaf], sizes: Sequence[int], budget: Budget
) -> Spans:
    """All spans of these leaves, and their objects as runs of slots. `sizes`: bytes of an object of each of SIZE_CLASSES, 0: there is no
    such class."""
    library, opened, sums = declared(kernel.library, PROTOTYPES), kernel.open(source), Rows(SpanSums, 1)
    numbers, places, classes = flat(layout), flat(leaves), array("Q", sizes)
    job = library.heapx_tc_spans_new(opened.handle, at(numbers), at(places), len(leaves), at(classes))
    if not job:
        raise MemoryError()
    try:
        run(lambda seconds: library.heapx_tc_spans_slice(job, seconds), opened, budget)
        library.heapx_tc_spans_sums(job, at(sums.numbers))
        (known,) = sums.records(1)
        found, runs = _room(TcSpan, known.spans), _room(SlotRun, known.runs)
        problems, tallies, held = Rows(SpanProblem, known.told), Rows(SpanTally, LABELS), Rows(SpanRange, known.held)
        library.heapx_tc_spans_result(job, at(found), at(runs), at(problems.numbers), at(tallies.numbers), at(held.numbers))
    finally:
        library.heapx_tc_spans_free(job)
    told = problems.records(known.told), known.problems
    return Spans(bool(known.ended), found, runs, *told, tallies.records(LABELS), held.records(known.held))


def follow(kernel: Kernel, source: BulkSource, little_endian: bool, lists: "array[int]", most: int, budget: Budget) -> Listed:
    """All objects on these lists: FreeList, row by row. `most`: so many objects there may be at all."""
    library, opened, sums = declared(kernel.library, PROTOTYPES), kernel.open(source), Rows(ListSums, 1)
    count = len(lists) // len(FreeList._fields)
    ends = _room(ListEnd, count)
    job = library.heapx_tc_lists_new(opened.handle, int(little_endian), at(lists), count, most, at(ends))
    if not job:
        raise MemoryError()
    try:
        run(lambda seconds: library.heapx_tc_lists_slice(job, seconds), opened, budget)
        library.heapx_tc_lists_sums(job, at(sums.numbers))
        (known,) = sums.records(1)
        objects = array("Q", bytes(8 * known.objects))
        library.heapx_tc_lists_result(job, at(objects))
    finally:
        library.heapx_tc_lists_free(job)
    return Listed(bool(known.ended), ends, kernel.in_order(objects))


def frees(kernel: Kernel, listed: Listed) -> Frees:
    """What is on lists, as the walker over slots takes it: `listed.objects` is used up."""
    objects = listed.objects
    kinds = array("B", bytes(-(-len(objects) // 8) * 8))
    declared(kernel.library, PROTOTYPES).heapx_tc_lists_split(at(objects), len(objects), at(kinds))
    return Frees(objects, kinds[: len(objects)])


def _room(kind: Any, count: int) -> "array[int]":
    return array("Q", (0,)) * (len(kind._fields) * count)


def slot_walker(kernel: Kernel, source: BulkSource, runs: "array[int]", lists: Frees, budget: Budget) -> SlotWalker:
    """Over the objects of these spans."""
    return SlotWalker(kernel, source, runs, TC_CLASS_OF, LABELS, budget, lists)
