"""How much of its stack each thread has ever touched, and how deep in it the thread is now: the rest was used by deeper calls."""

from typing import Callable, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.memory.attribute import Attribution, WrittenPages
from gdbheapx.budget import Budget
from gdbheapx.inferior.base import Target, Thread
from gdbheapx.kernel.common.library import Kernel
from gdbheapx.ranges import Range, union

LARGEST = 5
"""Threads that are named."""
NEAR_BYTES = 64 << 10
"""So much of what lies above the stack pointer may be untouched (alloca, thread-local storage) and count as touched: nobody asks."""
Touched = Callable[[int, Range], Optional[int]]
"""Bytes that were touched of a part of one mapping."""


class ThreadStack(NamedTuple):
    """One thread's own stack. None: not known."""

    lwp: int
    name: Optional[str]
    """comm; None on a core."""
    size_bytes: int
    """Of its addresses, without the guard."""
    touched_bytes: Optional[int]
    """In RAM or in swap; of a core the pages that are not all zeros."""
    huge_bytes: Optional[int]
    """Of these in transparent huge pages, which one touch fills; None on a core, and where several stacks are one mapping that has some."""
    depth_bytes: Optional[int]
    """From the stack pointer to the end, with what lies there of thread-local storage; None where the thread runs on another stack (a
    coroutine's, a signal handler's), or its registers are not known."""
    past_bytes: Optional[int]
    """Touched and no longer in use: by deeper calls that have returned."""


class ThreadStacks(NamedTuple):
    """Those of living threads. Sums are over the measured threads; None where there are none."""

    threads: int
    measured_threads: int
    """Of these it is known both what was touched and how deep they are."""
    size_bytes: Optional[int]
    touched_bytes: Optional[int]
    depth_bytes: Optional[int]
    past_bytes: Optional[int]
    largest: Sequence[ThreadStack]
    """Those that touched most, measured or not."""


def find(target: Target, attribution: Attribution, kernel: Kernel, budget: Budget) -> ThreadStacks:
    """Reads nothing of a process beyond its page table, and of a core its stacks."""
    places, stacks, threads = attribution.places, attribution.stacks, target.threads()
    spans = {lwp: (place, stacks.bounds(places, place, address)) for lwp, (place, address) in stacks.own.items()}
    touched = attribution.touched if target.kind == "live" else _in_core(target, attribution, kernel, budget, spans)
    rows = [_row(attribution, thread, *spans[thread.lwp], touched) for thread in threads if thread.lwp in spans]
    measured = [row for row in rows if row.past_bytes is not None]

    def total(field: str) -> Optional[int]:
        return sum(getattr(row, field) for row in measured) if measured else None

    largest = sorted(rows, key=lambda row: (-(row.touched_bytes or 0), row.lwp))[:LARGEST]
    size, touched_, depth, past = (total(field) for field in ("size_bytes", "touched_bytes", "depth_bytes", "past_bytes"))
    return ThreadStacks(len(threads), len(measured), size, touched_, depth, past, largest)


def _in_core(target: Target, attribution: Attribution, kernel: Kernel, budget: Budget, spans: Mapping[int, Tuple[int, Range]]) -> Touched:
    """Pages of zeros may be the rest of a huge page, or gcore's. Unknown is what a core lacks."""
    there = target.data_ranges(union(span for _, span in spans.values())) or ()
    written = kernel.written(target.bulk_source(), there, target.page_bytes, budget)
    pages = WrittenPages(written.bounds)

    def touched(place: int, span: Range) -> Optional[int]:
        mapping = attribution.mappings[place].mapping
        is_whole = mapping.dumped_bytes == mapping.size_bytes and (written.until is None or span[1] <= written.until)
        return pages.bytes_in([span]) if is_whole else None

    return touched


def _row(attribution: Attribution, thread: Thread, place: int, span: Range, touched: Touched) -> ThreadStack:
    use, (start, end), pointer = attribution.mappings[place], span, thread.stack_pointer
    all_bytes = touched(place, span)
    huge = use.huge_bytes if use.mapping.size_bytes == end - start or not use.huge_bytes else None
    depth = end - pointer if pointer is not None and start <= pointer < end else None
    past = all_bytes
    if depth is not None and all_bytes is not None:
        is_near = min(depth, all_bytes) <= NEAR_BYTES
        past = all_bytes - depth if is_near else touched(place, (start, (end - depth) & -attribution.page_bytes))
    is_known = depth is not None and past is not None and (huge is not None or use.mapping.dumped_bytes is not None)
    return ThreadStack(
        thread.lwp, thread.name, end - start, all_bytes, huge, depth, max(0, (past or 0) - (huge or 0)) if is_known else None
    )
