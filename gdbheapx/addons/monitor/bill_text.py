"""The bill of a memory cgroup, for people: how full it is, what its memory is, what brings it back, and by which process."""

from typing import Iterator, List, Sequence

from gdbheapx.addons.monitor.bill import ALLOCATOR, KERNEL, SOCKETS, SWAP_CACHE, UNEXPLAINED, Bill, BillGroup, BillLine, BillProcess
from gdbheapx.allocators.records import Page
from gdbheapx.analysis.memory import kinds
from gdbheapx.columns import ColumnsTable, columns_of, sum_columns
from gdbheapx.hints import hint_about
from gdbheapx.report.text import make_printable
from gdbheapx.units import Sentence, SentenceSize, count_noun, exact_share, join_sentences, make_sentence

MOST_ROWS = 10
MOST_LINES = 20
"""Lines of the table; smaller ones are put together."""
WORTH_PERCENT = 1
"""Free memory of a process is named from this part of the group's memory on."""
SORTS = (
    ("page cache", (kinds.CACHE, kinds.LOCKED, SWAP_CACHE)),
    ("shared memory and tmpfs", (kinds.SHARED,)),
    ("kernel", (kinds.KERNEL, SOCKETS)),
    ("huge pages", (kinds.HUGETLB,)),
    ("not explained", (UNEXPLAINED,)),
)
"""The sorts of memory in one line; all else is private memory."""
BACK = {KERNEL: "kernel, when short", ALLOCATOR: "trim or purge"}
EVENTS = (("oom_kill", "killed for memory"), ("max", "limit reached"), ("high", "throttled at memory.high"))
"""Counters of memory.events, and what they count."""


def bill_page(bill: Bill, top: int) -> Page:
    """The page."""
    group = bill.group
    yield _format_head(bill)
    yield _format_sorts(bill)
    yield from _swap_and_events(bill)
    yield ""
    shown = [line._replace(name=make_printable(line.name), back_by=BACK.get(line.back_by, "")) for line in _limit_lines(bill.lines)]
    yield ColumnsTable(
        columns_of(BillLine),
        shown,
        {"name": "memory.current" if group.cgroup_version == 2 else "usage_in_bytes", "bytes": group.current_bytes},
    )
    if bill.below:
        yield ""
        below = [row._replace(path=make_printable(row.path)) for row in bill.below[:MOST_ROWS]]
        yield ColumnsTable(columns_of(BillGroup), below)
        if len(bill.below) > MOST_ROWS:
            yield "and %s: --json" % count_noun(len(bill.below) - MOST_ROWS, "group")
    yield ""
    yield from _format_reclaim(bill)
    if not bill.processes:
        return
    yield ""
    rows = [row._replace(name=make_printable(row.name), largest=make_printable(row.largest)) for row in bill.processes[:top]]
    yield ColumnsTable(columns_of(BillProcess), rows, sum_columns(BillProcess, rows) if 1 < len(rows) == len(bill.processes) else None)
    if len(bill.processes) > top:
        rest = sum(row.private_bytes for row in bill.processes[top:])
        yield make_sentence(
            "and %s with %s of private memory: --top %d",
            _count_processes(len(bill.processes) - top),
            SentenceSize(rest),
            len(bill.processes),
        )
    for row in bill.processes:
        for region, size_bytes in sorted(row.gpu_bytes.items()):
            yield make_sentence(
                "GPU memory of process %d (%s), %s: %s, as its driver counts", row.pid, row.name, region, SentenceSize(size_bytes)
            )


def _limit_lines(found: Sequence[BillLine]) -> List[BillLine]:
    rows = list(found)
    if len(rows) <= MOST_LINES:
        return rows
    last = rows[-1:] if rows[-1].kind == UNEXPLAINED else []
    kept, rest = rows[: MOST_LINES - 1], rows[MOST_LINES - 1 : len(rows) - len(last)]
    sizes, percents = sum(row.bytes for row in rest), round(sum(row.percent for row in rest), 2)
    return [*kept, BillLine("other", "%s: --json" % count_noun(len(rest), "smaller line"), sizes, percents, None, ""), *last]


def _format_head(bill: Bill) -> Sentence:
    group = bill.group
    if group.limit_bytes is None:
        limit = make_sentence("no limit%s", ", as far as can be seen from here" * group.is_cut_above)
    else:
        left = SentenceSize(max(0, group.limit_bytes - group.current_bytes))
        of = "" if group.limit_of == group.path else " of %s" % group.limit_of
        limit = make_sentence("limit %s%s, %s left", SentenceSize(group.limit_bytes), of, left)
    share = "" if group.limit_bytes is None else " (%s %%)" % exact_share(group.current_bytes, group.limit_bytes)
    return make_sentence(
        "memory cgroup %s: %s%s in use by %s; %s",
        group.path,
        SentenceSize(group.current_bytes),
        share,
        _count_processes(len(bill.processes)),
        limit,
    )


def _format_sorts(bill: Bill) -> Sentence:
    """The answer in one line: four sorts of memory that together are all of it."""
    sizes = [sum(line.bytes for line in bill.lines if line.kind in some) for _, some in SORTS]
    known = [make_sentence("%s %s", SentenceSize(size), name) for (name, _), size in zip(SORTS, sizes) if size]
    rest = bill.group.current_bytes - sum(sizes)
    return join_sentences(", ", [make_sentence("%s private memory of processes", SentenceSize(rest)), *known])


def _swap_and_events(bill: Bill) -> Iterator[str]:
    group, said = bill.group, []
    if group.high_bytes is not None:
        said.append(make_sentence("memory.high %s", SentenceSize(group.high_bytes)))
    if group.swapped_bytes:
        said.append(make_sentence("%s in swap, which is not part of this", SentenceSize(group.swapped_bytes)))
    said += [make_sentence("%s: %s", text, count_noun(group.events[key], "time")) for key, text in EVENTS if group.events.get(key)]
    if said:
        yield join_sentences("; ", said)


def _format_reclaim(bill: Bill) -> Iterator[str]:
    """Say how much memory can be reclaimed or returned, and by which means."""
    group = bill.group
    if bill.reclaimable_bytes is not None:
        slab = ", slab" if group.cgroup_version == 2 else "; cgroups of version 1 do not count slab"
        text = "The kernel can reclaim up to %s without a kill: clean page cache, memory freed lazily%s."
        yield make_sentence(text, SentenceSize(bill.reclaimable_bytes), slab)
        if group.limit_bytes is not None:
            free = max(0, group.limit_bytes - group.current_bytes) + bill.reclaimable_bytes
            yield make_sentence(
                "With the room left, up to %s more fit below the limit before it kills.", SentenceSize(free + bill.swappable_bytes)
            )
    if bill.swappable_bytes:
        yield make_sentence("Up to %s may go to swap.", SentenceSize(bill.swappable_bytes))
    yield make_sentence("`kubectl top` shows %s: it leaves inactive files out.", SentenceSize(bill.working_set_bytes))
    if bill.returnable_bytes is not None:
        yield make_sentence("A trim or purge would return %s that programs have freed.", SentenceSize(bill.returnable_bytes))
    for row in sorted(bill.processes, key=lambda row: -(row.returnable_bytes or 0)):
        if (row.returnable_bytes or 0) * 100 > WORTH_PERCENT * group.current_bytes:
            how = hint_about("process", str(row.pid), "report")
            yield make_sentence("  %s of process %d (%s): %s", SentenceSize(row.returnable_bytes), row.pid, row.name, how)
    first = max(bill.processes, key=lambda row: row.private_bytes, default=None)
    if first is not None and 2 * first.private_bytes > group.current_bytes:
        yield make_sentence(
            "Most is private memory of process %d (%s): %s", first.pid, first.name, hint_about("process", str(first.pid), "report")
        )
    percent = exact_share(abs(bill.not_explained_bytes), group.current_bytes)
    text = "Not explained: %s (%s %%). The kernel counts in batches on each CPU: here up to %s."
    yield make_sentence(text, SentenceSize(bill.not_explained_bytes), percent, SentenceSize(group.batch_bytes))


def _count_processes(count: int) -> str:
    return "1 process" if count == 1 else "{:,} processes".format(count)
