"""The bill of a memory cgroup: every byte that the kernel charges it, once, by what has it and by what brings it back. Nothing is stopped.

The kernel's sums (memory.stat) are the frame: private memory, files, kernel. What fills the first is taken from the mappings of each
process, a page that several share by parts (PSS); files and the kernel's memory are counted for the group alone. What is left is a line of
its own. At the end, for people: how full the group is, what its memory is, what brings it back, and by which process.
"""

import os
import time
from typing import Annotated, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, cast

from gdbheapx import allocators
from gdbheapx.addons.monitor.memory_group import GroupBelow, GroupMemory, GroupProcess, LiveGroup, find_memory_group
from gdbheapx.allocators.answers import Reading
from gdbheapx.allocators.heap import AllocatorInstance
from gdbheapx.allocators.records import Page, heap_sum
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.memory.kinds import MemoryOwner
from gdbheapx.analysis.memory_verdict import lazily_free_bytes
from gdbheapx.analysis.split import Split, split_memory
from gdbheapx.common import columns, problems
from gdbheapx.common.budget import Budget
from gdbheapx.common.columns import ADD, BYTES, IF_ANY, PERCENT, PLAIN, TEXT, Column, hidden_column
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.hints import hint_about
from gdbheapx.common.problems import Severity
from gdbheapx.common.units import Sentence, SentenceSize, count_noun, exact_share, join_sentences, make_sentence
from gdbheapx.report.text import make_printable

UNTIL_S = 1.7
"""Where no number of processes was given, looks end so long after the beginning: none begins that would be over later if it took as long as
the longest so far."""
LOOK_S, LEAST_S, MOST_S = 1.0, 0.2, 20.0
"""How long the walks of one may take; where the time is nearly over; where a number was given."""
TRIES = 2
"""How often a heap is walked that was in the middle of a change."""
MOST_NAMED = 4
"""Processes by number in a note."""
UNSOUND = (Severity.DAMAGE, Severity.MOMENT, Severity.TIME)
"""With such a problem it is not known what is in use: a thread was in the middle of a change, or there was too little time."""
CHANGED_PERCENT = 1
"""The group has changed by more while it was read: its figures are of several moments."""

KERNEL, ALLOCATOR, NO = "kernel", "allocator", ""
"""What brings memory back while the processes run on: the kernel drops it, allocators return it; or nothing does."""
OF_KERNEL = (
    ("pagetables", "page tables", NO),
    ("sec_pagetables", "page tables of virtual machines", NO),
    ("kernel_stack", "kernel stacks of threads", NO),
    ("slab_reclaimable", "slab that can be reclaimed (dentries, inodes)", KERNEL),
    ("slab_unreclaimable", "slab that cannot be reclaimed", NO),
    ("percpu", "per-CPU memory of the kernel", NO),
    ("vmalloc", "vmalloc of the kernel", NO),
    ("zswap", "zswap: compressed pages in RAM", NO),
)
"""Parts of `kernel` in memory.stat."""
NOT_LOOKED = MemoryOwner(kinds.ANONYMOUS, "private memory of processes that were not looked into")
UNREADABLE = MemoryOwner(kinds.ANONYMOUS, "private memory of processes that this user may not read")
THIS = "(this command, which grows while it looks)"
UNOWNED, ELSEWHERE, SOCKETS, SWAP_CACHE, UNEXPLAINED = "unowned", "charged-elsewhere", "sockets", "swap-cache", "not-explained"
"""Kinds of lines other than those of a process's memory."""
IN_PROCESS = kinds.PRIVATE - {kinds.KERNEL} | {kinds.ALLOCATOR, kinds.COPIED}
"""Kinds that memory.stat counts as `anon`."""
HEAPS = frozenset((kinds.ALLOCATOR,))


class BillLine(NamedTuple):
    """Memory of the group that one owner has."""

    kind: str
    """One of `report`'s kinds, or `unowned`, `charged-elsewhere`, `sockets`, `swap-cache`, `hugetlb`, `kernel`, `not-explained`."""
    name: Annotated[str, Column("memory", TEXT)]
    bytes: Annotated[int, Column("bytes", BYTES, ADD)]
    percent: Annotated[float, Column("%", PERCENT)]
    """Of memory.current."""
    processes: Annotated[Optional[int], Column("processes", PLAIN, goes=1)]
    """How many have some of it; None: it belongs to the group."""
    back_by: Annotated[str, Column("comes back by", TEXT)]
    """`kernel`: reclaimed when memory is short, without a kill; `allocator`: a trim or purge returns it; empty: neither."""


class BillProcess(NamedTuple):
    """Process of the group. Memory that several processes map counts by its share (PSS)."""

    pid: Annotated[int, Column("pid", PLAIN)]
    name: Annotated[str, Column("name", TEXT)]
    private_bytes: Annotated[int, Column("private", BYTES, ADD)]
    """Heaps, stacks, runtimes, private copies of file pages."""
    used_bytes: Annotated[Optional[int], Column("in use", BYTES)]
    """In RAM and in use in its allocators; None: not read, or unknown while it runs."""
    kept_bytes: Annotated[Optional[int], Column("free, kept", BYTES)]
    """In RAM, freed by the program and kept by its allocators."""
    returnable_bytes: Annotated[Optional[int], Column("can be returned", BYTES, goes=1)]
    """Of this what a trim or purge returns; None: not known, as of a heap that changes while it is read."""
    shared_bytes: Annotated[Optional[int], Column("shared memory", BYTES, ADD, IF_ANY, goes=4)]
    files_bytes: Annotated[Optional[int], Column("files", BYTES, ADD, goes=5)]
    """Page cache that it maps: code, libraries, data files."""
    swapped_bytes: Annotated[Optional[int], Column("swapped", BYTES, None, IF_ANY)]
    locked_bytes: Annotated[Optional[int], Column("locked", BYTES, None, IF_ANY, goes=3)]
    """By mlock (VmLck)."""
    pinned_bytes: Annotated[Optional[int], Column("pinned", BYTES, None, IF_ANY, goes=3)]
    """For a device (VmPin)."""
    device_bytes: Annotated[Optional[int], Column("device", BYTES, None, IF_ANY, goes=3)]
    """Mappings of devices such as /dev/nvidia0 in its RSS; whether the group is charged for them is the driver's choice."""
    gpu_bytes: Annotated[Mapping[str, int], hidden_column()]
    """By region what drivers of GPUs say of it (fdinfo)."""
    hugetlb_bytes: Annotated[Optional[int], Column("hugetlb", BYTES, None, IF_ANY, goes=3)]
    page_tables_bytes: Annotated[Optional[int], hidden_column()]
    threads: Annotated[Optional[int], Column("threads", PLAIN, goes=6)]
    largest: Annotated[str, Column("largest part", TEXT, goes=2)]
    """The owner that has most of its private memory; empty: not looked into."""
    is_looked_into: Annotated[bool, hidden_column()]
    """Its allocators and runtimes were distinguished."""


class Bill(NamedTuple):
    """Whole bill of a group. The lines add up to group.current_bytes."""

    group: GroupMemory
    below: Sequence[GroupBelow]
    """The groups right below it, such as the containers of a pod, largest first; they are part of the lines."""
    lines: Sequence[BillLine]
    """Largest first; what is not explained last."""
    processes: Sequence[BillProcess]
    """Most private memory first."""
    not_explained_bytes: int
    """Of no line: what the kernel counts in batches, and what it charges and does not name. Negative: the parts are more than the sum."""
    not_attributed_bytes: int
    """Private memory of the group that was found in no process, because it could not be read, has moved, or changed meanwhile."""
    reclaimable_bytes: Optional[int]
    """What the kernel can take without swap and without a kill: clean page cache, memory freed lazily, slab; None: not counted here."""
    swappable_bytes: int
    """What may go to swap at most, by the room there."""
    returnable_bytes: Optional[int]
    """What allocators would return if all of them were trimmed or purged, of processes where that is known. None: of none."""
    working_set_bytes: int
    """What `kubectl top` and kubelet show: memory.current less inactive files."""
    unreadable: int
    """Processes that this user may not read."""
    lost: int
    """Processes that ended meanwhile or belong to another pid namespace."""
    took_s: float


Part = Tuple[MemoryOwner, int, str]
"""Memory that one owner has in one process, with shared pages counted by PSS, and what brings it back."""


class BillReading(NamedTuple):
    """Memory of one process by owner."""

    parts: Sequence[Part]
    used_bytes: Optional[int] = None
    kept_bytes: Optional[int] = None
    returnable_bytes: Optional[int] = None
    is_deep: bool = False


def make_bill(session: Session, which: str, top: Optional[int] = None) -> Bill:
    """Return the bill of the group that `which` names. `top`: look into this number of processes, however long that takes."""
    began = time.monotonic()
    group = find_memory_group(which)
    group.memory()  # one that has no counters is refused before its processes are read
    read, lost = group.processes()
    memory = group.memory()
    processes = sorted(read, key=lambda process: -process.anonymous_bytes)
    looked = list(zip(processes, _read_processes(session, processes, top, began + UNTIL_S)))
    unreadable = sum(process.uses is None for process in processes)
    _report_problems(session, group, memory, looked, unreadable, top)
    lines, not_attributed, not_explained = _make_lines(memory, looked)
    stat = memory.stat
    files = [stat.get(key) for key in ("inactive_file", "active_file")]
    clean = None if None in files else max(0, sum(size or 0 for size in files) - stat.get("file_dirty", 0) - stat.get("file_writeback", 0))
    returnable, room = [look.returnable_bytes for _, look in looked if look.returnable_bytes is not None], memory.swap_free_bytes
    if memory.swap_max_bytes is not None:
        room = min(room, max(0, memory.swap_max_bytes - (memory.swapped_bytes or 0)))
    return Bill(
        memory,
        group.below(),
        lines,
        [_make_process_row(process, look) for process, look in sorted(looked, key=lambda pair: -_sum_kinds(pair[1], IN_PROCESS))],
        not_explained,
        not_attributed,
        None if clean is None else clean + stat.get("slab_reclaimable", 0),
        min(room, stat.get("anon", 0) + stat.get("shmem", 0)),
        sum(returnable) if returnable else None,
        max(0, memory.current_bytes - stat.get("inactive_file", 0)),
        unreadable,
        lost,
        round(time.monotonic() - began, 3),
    )


def _report_problems(
    session: Session,
    group: LiveGroup,
    before: GroupMemory,
    looked: Sequence[Tuple[GroupProcess, BillReading]],
    unreadable: int,
    top: Optional[int],
) -> None:
    processes = [process for process, _ in looked]
    if unreadable:
        what = "%d of %d processes of the group cannot be read by this user, so their memory is not split"
        session.problem(problems.NOT_PERMITTED, None, what % (unreadable, len(processes)), "run the same command as root")
    shallow = sum(not look.is_deep for _, look in looked) - unreadable
    if shallow > sum(process.pid == os.getpid() for process in processes):
        what = "%d of %d processes were not read, so allocators and runtimes are not split there" % (shallow, len(processes))
        session.problem(problems.NO_ANSWER, None, what, "look into more of them with --top %d" % len(processes), partial=False)
    unknown = [process for process, look in looked if look.is_deep and look.used_bytes is None and _sum_kinds(look, HEAPS)]
    if unknown:
        what = "in %s the part in use is unknown: the heap changed while it was read, or is large" % _list_pids(unknown)
        longer = "" if top is not None else "look longer with --top %d, or " % (1 + processes.index(unknown[-1]))
        hint = "%stry `%s`, which pauses it for a moment" % (longer, hint_about("process", str(unknown[0].pid), "report"))
        session.problem(problems.NO_COUNTERS, None, what, hint, partial=False)
    changed = group.memory().current_bytes - before.current_bytes
    if abs(changed) * 100 > CHANGED_PERCENT * before.current_bytes + 100 * before.batch_bytes:
        what = make_sentence("the group %s by %s while it was read", "grew" if changed > 0 else "shrank", SentenceSize(abs(changed)))
        session.problem(problems.SEVERAL_MOMENTS, None, what, None, partial=False)


def _list_pids(processes: Sequence[GroupProcess]) -> str:
    """`process 7`, `processes 7, 8 and 3 more`."""
    more = " and %d others" % (len(processes) - MOST_NAMED) if len(processes) > MOST_NAMED else ""
    return "process%s %s%s" % ("es" * (len(processes) > 1), ", ".join(str(process.pid) for process in processes[:MOST_NAMED]), more)


def _read_processes(session: Session, processes: Sequence[GroupProcess], top: Optional[int], until: float) -> List[BillReading]:
    """Into those with most private memory: into one at least, then as long as there is time."""
    looks: List[BillReading] = []
    longest_s = 0.0
    for number, process in enumerate(processes):
        began = time.monotonic()
        look: Optional[BillReading] = None
        may_look = process.uses is not None and process.pid != os.getpid() and not session.budget.expired()
        if may_look and (number < top if top is not None else not number or began + longest_s < until):
            look = _read_heaps(session, process, MOST_S if top is not None else max(LEAST_S, min(LOOK_S, until - began)))
            longest_s = max(longest_s, time.monotonic() - began)
        looks.append(look or BillReading(list(_split_by_mappings(process))))
    return looks


def _split_by_mappings(process: GroupProcess) -> Iterator[Part]:
    """Split the memory by the mappings' own lines alone."""
    if process.uses is None:
        yield UNREADABLE, process.anonymous_bytes, NO
    for use in process.uses or ():
        owner, pss = kinds.find_owner_by_line(use), use.pss_bytes or 0
        if owner is not None and owner.kind in kinds.FILE:
            own = min(pss, use.anonymous_bytes or 0)
            yield from ((kinds.COPIED_PAGES, own, NO), (owner, pss - own, NO))
        elif owner is not None:
            size = (use.hugetlb_bytes or 0) if owner.kind == kinds.HUGETLB else use.resident_bytes if owner.kind == kinds.DEVICE else pss
            yield owner, size, NO
        else:
            lazy = 0 if kinds.is_locked(use) else min(pss, use.lazy_free_bytes or 0)
            yield from ((NOT_LOOKED, pss - lazy, NO), _lazily_free(NOT_LOOKED, lazy))


def _lazily_free(owner: MemoryOwner, size_bytes: int) -> Part:
    return owner._replace(name="%s: freed with MADV_FREE" % owner.name), size_bytes, KERNEL


def _read_heaps(session: Session, process: GroupProcess, seconds: float) -> Optional[BillReading]:
    """Split the memory by allocators and runtimes; None if the process has ended or cannot be understood."""
    try:
        known_before = session.of_process(process.pid)
        known_before.discovery.infos()  # files are read before the clock of the walks begins
        until = time.monotonic() + seconds
        for _ in range(TRIES):
            own = known_before.walking(max(LEAST_S, until - time.monotonic()))
            heaps = own.heaps.all()
            claims = {heap.info.id: list(heap.claims()) for heap in heaps}
            is_whole = not any(problem.code.nature in UNSOUND for problem in own.problems)
            if is_whole or time.monotonic() > until:
                break
        frees = {heap.info.id: _measure_free(heap, is_whole, max(0.0, until - time.monotonic())) for heap in heaps}
        known = allocators.by_name()
        names = {heap.info.id: known[heap.info.name].part_name(heap.info.id, False) for heap in heaps}
        memory = split_memory(own.target, own.kernel, claims, Budget(seconds), names)
    except (HeapxError, OSError, KeyError, ValueError, IndexError):
        return None
    if memory is None:
        return None
    return _make_deep_look(memory, frees, None if is_whole or len(names) != 1 else next(iter(names.values())))


Free = Tuple[Optional[Tuple[int, int]], Optional[int]]
"""Of one heap by a walk (free, of it what a trim or purge returns), each in RAM; where there was no whole walk, what is in use by its
counters, in RAM or not."""


def _measure_free(heap: AllocatorInstance, is_whole: bool, seconds: float) -> Free:
    """Measure the free memory by a walk of the heap, or by its counters if it changes meanwhile."""
    facts = heap.facts() if is_whole else None
    if facts is not None:
        kept = heap_sum(facts.info.id, facts.sizes, facts.arenas, facts.totals).kept_bytes
        whole, resident = (facts.totals.get("reclaimable_%sbytes" % which) for which in ("", "resident_"))
        if whole is not None and resident is not None:
            return (max(0, kept - whole + resident), resident), None
    if "meter" not in heap.capabilities:
        return None, None
    try:
        reading: Reading = heap.capabilities["meter"]().read(seconds)
    except (HeapxError, KeyError, ValueError, IndexError):
        return None, None
    return None, reading.used_bytes


def _make_deep_look(memory: Split, frees: Mapping[str, Free], of_break: Optional[str]) -> BillReading:
    """Its parts; those of allocators by what is in use. Of pages that a fork shares everything is counted by parts. `of_break`: whose the
    program break is although no walk has proved it, for want of time or since it changed meanwhile."""
    parts: List[Part] = []
    used_bytes = kept_bytes = 0
    returnable_bytes, is_known = cast(Optional[int], 0), bool(frees)
    for part in memory.parts:
        owner, size = MemoryOwner(part.kind, part.name, part.sure, part.allocator, part.program), part.pss_bytes or 0
        resident, (by_walk, in_use) = part.resident_bytes or 0, frees.get(part.allocator or "", (None, None))
        if part.kind == kinds.BRK and of_break is not None:
            parts.append((MemoryOwner(kinds.ALLOCATOR, "%s: in use or free, which is not known" % of_break), size, NO))
            is_known = False
            continue
        gone = min(resident, lazily_free_bytes(part))
        lazy = size * gone // (resident or 1)
        parts.append(_lazily_free(owner, lazy))
        size, resident = size - lazy, resident - gone
        if part.kind != kinds.ALLOCATOR:
            parts.append((owner, {kinds.DEVICE: resident, kinds.HUGETLB: part.hugetlb_bytes or 0}.get(part.kind, size), NO))
            continue
        if by_walk is None and in_use is None:
            parts.append((owner._replace(name="%s: in use or free, which is not known" % part.name), size, NO))
            is_known, returnable_bytes = False, None
            continue
        kept, returnable = by_walk or (gone + max(0, resident - (in_use or 0)), 0)
        kept, returnable = max(0, kept - gone), max(0, returnable - gone)
        kept = size * min(kept, resident) // (resident or 1)
        returnable = min(kept, size * returnable // (resident or 1))
        if by_walk is None:
            returnable_bytes = None
        parts.append((owner._replace(name="%s: in use" % part.name), size - kept, NO))
        parts.append((owner._replace(name="%s: free, can be returned" % part.name), returnable, ALLOCATOR))
        parts.append((owner._replace(name="%s: free, in thread caches or between blocks in use" % part.name), kept - returnable, NO))
        used_bytes, kept_bytes = used_bytes + size - kept, kept_bytes + kept + lazy
        returnable_bytes = None if returnable_bytes is None else returnable_bytes + returnable
    return BillReading(parts, used_bytes, kept_bytes, returnable_bytes, True) if is_known else BillReading(parts, is_deep=True)


def _sum_kinds(look: BillReading, some: "frozenset[str]") -> int:
    return sum(size for owner, size, _ in look.parts if owner.kind in some)


def _make_process_row(process: GroupProcess, look: BillReading) -> BillProcess:
    def sum_known_kinds(*some: str) -> Optional[int]:
        return None if process.uses is None else _sum_kinds(look, frozenset(some))

    sums: Dict[str, int] = {}
    for owner, size, _ in look.parts:
        if owner.kind in IN_PROCESS:
            sums[owner.name] = sums.get(owner.name, 0) + size
    largest = max(sums, key=lambda name: sums[name], default="") if look.is_deep else ""
    if process.pid == os.getpid():
        largest = THIS
    return BillProcess(
        process.pid,
        process.name,
        _sum_kinds(look, IN_PROCESS),
        look.used_bytes,
        look.kept_bytes,
        look.returnable_bytes,
        sum_known_kinds(kinds.SHARED),
        sum_known_kinds(kinds.CACHE, kinds.LOCKED),
        process.swapped_bytes,
        process.locked_bytes,
        process.pinned_bytes,
        sum_known_kinds(kinds.DEVICE),
        process.gpu_bytes,
        sum_known_kinds(kinds.HUGETLB),
        process.page_tables_bytes,
        process.threads,
        largest,
        look.is_deep,
    )


Line = Tuple[str, str, int, str, Optional[int]]
"""(kind, name, bytes, what brings it back, how many processes have some of it)."""


def _make_lines(memory: GroupMemory, looked: Sequence[Tuple[GroupProcess, BillReading]]) -> Tuple[List[BillLine], int, int]:
    """The lines, largest first, and which of their bytes were found in no process, and in nothing."""
    stat = memory.stat
    lines: List[Line] = []
    private = shared = 0
    known_as = _known_as({owner.name for _, look in looked for owner, _, _ in look.parts if owner.kind == kinds.SHARED})
    for _, look in looked:
        for name, kind, back, size in _sum_parts(look):
            if kind in IN_PROCESS:
                lines.append((kind, name, size, back, 1))
                private += size
            elif kind == kinds.SHARED:
                lines.append((kind, known_as.get(name, name), size, NO, 1))
                shared += size
    not_attributed = stat.get("anon", private) - private
    if not_attributed >= 0:
        lines.append((UNOWNED, "private memory found in no process of the group", not_attributed, NO, None))
    else:
        lines.append((ELSEWHERE, "of these charged to other groups, or gone meanwhile", not_attributed, NO, None))
    lines += _list_file_lines(stat, shared, sum(_sum_kinds(look, frozenset((kinds.LOCKED,))) for _, look in looked))
    lines += _list_kernel_lines(memory, [process for process, _ in looked])
    lines.append((SOCKETS, "buffers of sockets", stat.get("sock", 0), NO, None))
    lines.append((kinds.HUGETLB, "huge pages of hugetlbfs", stat.get("hugetlb", 0), NO, None))  # only where memory.current has them
    left = memory.current_bytes - sum(line[2] for line in lines)
    cached = min(max(0, left), stat.get("swapcached", 0))
    left -= cached
    lines.append((SWAP_CACHE, "swap cache: pages that are in swap as well", cached, KERNEL, None))
    lines.append((UNEXPLAINED, "not explained", left, NO, None))
    sums: Dict[Tuple[str, str, str], Tuple[int, Optional[int]]] = {}
    for kind, name, size, back, processes in lines:
        before, count = sums.get((kind, name, back), (0, None))
        sums[kind, name, back] = before + size, None if processes is None else processes + (count or 0)
    rows = [
        BillLine(kind, name, size, round(100.0 * size / (memory.current_bytes or 1), 2), count, back)
        for (kind, name, back), (size, count) in sums.items()
        if size or kind == UNEXPLAINED
    ]
    return sorted(rows, key=lambda row: (row.kind == UNEXPLAINED, -abs(row.bytes), row.name)), not_attributed, left


def _known_as(names: Set[str]) -> Dict[str, str]:
    """Shared memory that a runtime's own name was found for in a process that was looked into, and is mapped by others that were not."""
    longer = {name: [other for other in names if other.startswith(name + ", ")] for name in names}
    return {name: others[0] for name, others in longer.items() if len(others) == 1}


def _sum_parts(look: BillReading) -> Iterator[Tuple[str, str, str, int]]:
    """(name, kind, what brings it back, bytes) of one process, each once."""
    sums: Dict[Tuple[str, str, str], int] = {}
    for owner, size, back in look.parts:
        key = (owner.name, owner.kind, back)
        sums[key] = sums.get(key, 0) + size
    return ((*key, size) for key, size in sums.items() if size)


def _list_file_lines(stat: Mapping[str, int], shared_bytes: int, locked_bytes: int) -> Iterator[Line]:
    """Shared memory and tmpfs first, then the page cache; swap cache counts in `file`, and in `anon` where it is mapped."""
    shmem = stat.get("shmem", 0)
    if shmem >= shared_bytes:
        yield kinds.SHARED, "tmpfs files and shared memory that no process of the group maps", shmem - shared_bytes, NO, None
    else:
        yield ELSEWHERE, "of shared memory charged to other groups", shmem - shared_bytes, NO, None
    cache = max(0, stat.get("file", 0) - shmem - stat.get("swapcached", 0))
    mapped = min(cache, max(0, stat.get("file_mapped", 0) - min(shmem, shared_bytes)))
    unclean = min(cache - mapped, stat.get("file_dirty", 0) + stat.get("file_writeback", 0))
    locked = min(mapped, locked_bytes)
    yield kinds.LOCKED, kinds.LOCKED_PAGES.name, locked, NO, None
    yield kinds.CACHE, "page cache that processes map (code, libraries, data files)", mapped - locked, KERNEL, None
    yield kinds.CACHE, "page cache to be written to disk first (dirty)", unclean, KERNEL, None
    yield kinds.CACHE, "page cache of files that were read or written", cache - mapped - unclean, KERNEL, None


def _list_kernel_lines(memory: GroupMemory, processes: Sequence[GroupProcess]) -> Iterator[Line]:
    """Its parts as it counts them; version 1 has only their sum, of which page tables and stacks are known by the processes."""
    stat = dict(memory.stat)
    if memory.cgroup_version == 1:
        tables = [process.page_tables_bytes or 0 for process in processes]
        stat["pagetables"] = min(sum(tables), stat.get("kernel", 0))
        stacks = sum(process.threads or 0 for process in processes) * (memory.thread_stack_bytes or 0)
        stat["kernel_stack"] = min(stacks, stat.get("kernel", 0) - stat["pagetables"])
    told = 0
    for key, name, back in OF_KERNEL:
        yield kinds.KERNEL, name, stat.get(key, 0), back, None
        told += stat.get(key, 0)
    if "kernel" in stat:  # since Linux 5.18
        rest = "slab and other memory of the kernel" if memory.cgroup_version == 1 else "other memory of the kernel"
        yield kinds.KERNEL, rest, max(0, stat["kernel"] - told), NO, None


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
    sizes = [sum(line.bytes for line in bill.lines if line.kind in some) for _, some in SORTS]
    known = [make_sentence("%s %s", SentenceSize(size), name) for (name, _), size in zip(SORTS, sizes) if size]
    private = SentenceSize(group.current_bytes - sum(sizes))
    yield join_sentences(", ", [make_sentence("%s private memory of processes", private), *known])
    yield from _swap_and_events(bill)
    yield ""
    shown = [line._replace(name=make_printable(line.name), back_by=BACK.get(line.back_by, "")) for line in _limit_lines(bill.lines)]
    total = {"name": "memory.current" if group.cgroup_version == 2 else "usage_in_bytes", "bytes": group.current_bytes}
    yield columns.ColumnsTable(columns.columns_of(BillLine), shown, total)
    if bill.below:
        yield ""
        below = [row._replace(path=make_printable(row.path)) for row in bill.below[:MOST_ROWS]]
        yield columns.ColumnsTable(columns.columns_of(GroupBelow), below)
        if len(bill.below) > MOST_ROWS:
            yield "and %s: --json" % count_noun(len(bill.below) - MOST_ROWS, "group")
    yield ""
    yield from _format_reclaim(bill)
    if not bill.processes:
        return
    yield ""
    rows = [row._replace(name=make_printable(row.name), largest=make_printable(row.largest)) for row in bill.processes[:top]]
    sums = columns.sum_columns(BillProcess, rows) if 1 < len(rows) == len(bill.processes) else None
    yield columns.ColumnsTable(columns.columns_of(BillProcess), rows, sums)
    left = bill.processes[top:]
    if left:
        rest = SentenceSize(sum(row.private_bytes for row in left))
        yield make_sentence("and %s with %s of private memory: --top %d", _count_processes(len(left)), rest, len(bill.processes))
    for row in bill.processes:
        for region, size_bytes in sorted(row.gpu_bytes.items()):
            size = SentenceSize(size_bytes)
            yield make_sentence("GPU memory of process %d (%s), %s: %s, as its driver counts", row.pid, row.name, region, size)


def _limit_lines(found: Sequence[BillLine]) -> List[BillLine]:
    rows = list(found)
    if len(rows) <= MOST_LINES:
        return rows
    last = rows[-1:] if rows[-1].kind == UNEXPLAINED else []
    kept, rest = rows[: MOST_LINES - 1], rows[MOST_LINES - 1 : len(rows) - len(last)]
    sizes, percents = sum(row.bytes for row in rest), round(sum(row.percent for row in rest), 2)
    return [*kept, BillLine("other", "%s: --json" % count_noun(len(rest), "smaller line"), sizes, percents, None, ""), *last]


def _format_head(bill: Bill) -> Sentence:
    group, share = bill.group, ""
    if group.limit_bytes is None:
        limit = make_sentence("no limit%s", ", as far as can be seen from here" * group.is_cut_above)
    else:
        share = " (%s %%)" % exact_share(group.current_bytes, group.limit_bytes)
        left = SentenceSize(max(0, group.limit_bytes - group.current_bytes))
        of = "" if group.limit_of == group.path else " of %s" % group.limit_of
        limit = make_sentence("limit %s%s, %s left", SentenceSize(group.limit_bytes), of, left)
    processes = _count_processes(len(bill.processes))
    return make_sentence("memory cgroup %s: %s%s in use by %s; %s", group.path, SentenceSize(group.current_bytes), share, processes, limit)


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
            room = max(0, group.limit_bytes - group.current_bytes) + bill.reclaimable_bytes + bill.swappable_bytes
            yield make_sentence("With the room left, up to %s more fit below the limit before it kills.", SentenceSize(room))
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
        how = hint_about("process", str(first.pid), "report")
        yield make_sentence("Most is private memory of process %d (%s): %s", first.pid, first.name, how)
    percent = exact_share(abs(bill.not_explained_bytes), group.current_bytes)
    text = "Not explained: %s (%s %%). The kernel counts in batches on each CPU: here up to %s."
    yield make_sentence(text, SentenceSize(bill.not_explained_bytes), percent, SentenceSize(group.batch_bytes))


def _count_processes(count: int) -> str:
    return "1 process" if count == 1 else "{:,} processes".format(count)
