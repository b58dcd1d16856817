"""The bill of a memory cgroup: every byte that the kernel charges it, once, by what has it and by what brings it back. Nothing is stopped.

The kernel's sums (memory.stat) are the frame: private memory, files, kernel. What fills the first is taken from the mappings of each
process, a page that several share by parts (PSS); files and the kernel's memory are counted for the group alone. What is left is a line of
its own.
"""

import os
import time
from typing import Annotated, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, cast

from gdbheapx import allocators, problems
from gdbheapx.addons.monitor.memory_group import GroupMemory, GroupProcess, LiveGroup, find_memory_group
from gdbheapx.allocators.answers import Reading
from gdbheapx.allocators.heap import AllocatorInstance
from gdbheapx.allocators.records import heap_sum
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.memory.kinds import MemoryOwner
from gdbheapx.analysis.memory_verdict import lazily_free_bytes
from gdbheapx.analysis.split import Split, split_memory
from gdbheapx.budget import Budget
from gdbheapx.columns import ADD, BYTES, IF_ANY, IF_KNOWN, PERCENT, PLAIN, TEXT, Column, hidden_column
from gdbheapx.errors import HeapxError
from gdbheapx.hints import hint_about
from gdbheapx.problems import Severity
from gdbheapx.session import Session
from gdbheapx.units import SentenceSize, make_sentence

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


class BillGroup(NamedTuple):
    """A group right below the one that the bill is about."""

    path: Annotated[str, Column("group below", TEXT)]
    current_bytes: Annotated[int, Column("bytes", BYTES)]
    limit_bytes: Annotated[Optional[int], Column("limit", BYTES, None, IF_KNOWN)]
    """Its own; None: none."""
    kills: Annotated[Optional[int], Column("killed for memory", PLAIN, None, IF_ANY)]


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
    below: Sequence[BillGroup]
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


class BillPart(NamedTuple):
    """Memory that one owner has in one process, with shared pages counted by PSS."""

    owner: MemoryOwner
    bytes: int
    back_by: str = NO


class BillReading(NamedTuple):
    """Memory of one process by owner."""

    parts: Sequence[BillPart]
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
    looks = _read_processes(session, processes, top, began + UNTIL_S)
    looked = list(zip(processes, looks))
    unreadable = sum(process.uses is None for process in processes)
    _report_problems(session, group, memory, processes, looks, top)
    lines, not_attributed, not_explained = _make_lines(memory, looked)
    stat = memory.stat
    files = [stat.get(key) for key in ("inactive_file", "active_file")]
    clean = None if None in files else max(0, sum(size or 0 for size in files) - stat.get("file_dirty", 0) - stat.get("file_writeback", 0))
    returnable = [look.returnable_bytes for look in looks if look.returnable_bytes is not None]
    return Bill(
        memory,
        [BillGroup(*below) for below in group.below()],
        lines,
        [_make_process_row(process, look) for process, look in sorted(looked, key=lambda pair: -_sum_private(pair[1]))],
        not_explained,
        not_attributed,
        None if clean is None else clean + stat.get("slab_reclaimable", 0),
        _count_swappable(memory),
        sum(returnable) if returnable else None,
        max(0, memory.current_bytes - stat.get("inactive_file", 0)),
        unreadable,
        lost,
        round(time.monotonic() - began, 3),
    )


def _count_swappable(memory: GroupMemory) -> int:
    room = memory.swap_free_bytes
    if memory.swap_max_bytes is not None:
        room = min(room, max(0, memory.swap_max_bytes - (memory.swapped_bytes or 0)))
    return min(room, memory.stat.get("anon", 0) + memory.stat.get("shmem", 0))


def _report_problems(
    session: Session,
    group: LiveGroup,
    before: GroupMemory,
    processes: Sequence[GroupProcess],
    looks: Sequence[BillReading],
    top: Optional[int],
) -> None:
    unreadable = sum(process.uses is None for process in processes)
    if unreadable:
        what = "%d of %d processes of the group cannot be read by this user, so their memory is not split" % (
            unreadable,
            len(processes),
        )
        session.problem(problems.NOT_PERMITTED, None, what, "run the same command as root")
    shallow = sum(not look.is_deep for look in looks) - unreadable
    if shallow > sum(process.pid == os.getpid() for process in processes):
        what = "%d of %d processes were not read, so allocators and runtimes are not split there" % (shallow, len(processes))
        session.problem(problems.NO_ANSWER, None, what, "look into more of them with --top %d" % len(processes), partial=False)
    unknown = [process for process, look in zip(processes, looks) if look.is_deep and look.used_bytes is None and _sum_kinds(look, HEAPS)]
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


def _split_by_mappings(process: GroupProcess) -> Iterator[BillPart]:
    """Split the memory by the mappings' own lines alone."""
    if process.uses is None:
        yield BillPart(UNREADABLE, process.anonymous_bytes)
    for use in process.uses or ():
        owner, pss = kinds.find_owner_by_line(use), use.pss_bytes or 0
        if owner is not None and owner.kind in kinds.FILE:
            own = min(pss, use.anonymous_bytes or 0)
            yield from (BillPart(kinds.COPIED_PAGES, own), BillPart(owner, pss - own))
        elif owner is not None:
            yield BillPart(
                owner,
                (use.hugetlb_bytes or 0) if owner.kind == kinds.HUGETLB else use.resident_bytes if owner.kind == kinds.DEVICE else pss,
            )
        else:
            lazy = 0 if kinds.is_locked(use) else min(pss, use.lazy_free_bytes or 0)
            yield from (BillPart(NOT_LOOKED, pss - lazy), _lazily_free(NOT_LOOKED, lazy))


def _lazily_free(owner: MemoryOwner, size_bytes: int) -> BillPart:
    return BillPart(owner._replace(name="%s: freed with MADV_FREE" % owner.name), size_bytes, KERNEL)


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
    return (
        _make_deep_look(memory, frees, None if is_whole or len(names) != 1 else next(iter(names.values()))) if memory is not None else None
    )


class Free(NamedTuple):
    """Free memory of one heap, resident, by a walk or by counters."""

    by_walk: Optional[Tuple[int, int]]
    """(free, of it what a trim or purge returns), each in RAM."""
    used_bytes: Optional[int]
    """Where there was no whole walk: in use by its counters, in RAM or not."""


def _measure_free(heap: AllocatorInstance, is_whole: bool, seconds: float) -> Free:
    """Measure the free memory by a walk of the heap, or by its counters if it changes meanwhile."""
    facts = heap.facts() if is_whole else None
    if facts is not None:
        kept = heap_sum(facts.info.id, facts.sizes, facts.arenas, facts.totals).kept_bytes
        whole, resident = (facts.totals.get("reclaimable_%sbytes" % which) for which in ("", "resident_"))
        if whole is not None and resident is not None:
            return Free((max(0, kept - whole + resident), resident), None)
    if "meter" not in heap.capabilities:
        return Free(None, None)
    try:
        reading: Reading = heap.capabilities["meter"]().read(seconds)
    except (HeapxError, KeyError, ValueError, IndexError):
        return Free(None, None)
    return Free(None, reading.used_bytes)


def _make_deep_look(memory: Split, frees: Mapping[str, Free], of_break: Optional[str]) -> BillReading:
    """Its parts; those of allocators by what is in use. Of pages that a fork shares everything is counted by parts. `of_break`: whose the
    program break is although no walk has proved it, for want of time or since it changed meanwhile."""
    parts, used_bytes, kept_bytes = [], 0, 0
    returnable_bytes, is_known = cast(Optional[int], 0), bool(frees)
    for part in memory.parts:
        owner, size = MemoryOwner(part.kind, part.name, part.sure, part.allocator, part.program), part.pss_bytes or 0
        resident, free = part.resident_bytes or 0, frees.get(part.allocator or "", Free(None, None))
        if part.kind == kinds.BRK and of_break is not None:
            parts.append(BillPart(MemoryOwner(kinds.ALLOCATOR, "%s: in use or free, which is not known" % of_break), size))
            is_known = False
            continue
        gone = min(resident, lazily_free_bytes(part))
        lazy = size * gone // (resident or 1)
        parts.append(_lazily_free(owner, lazy))
        size, resident = size - lazy, resident - gone
        if part.kind != kinds.ALLOCATOR:
            parts.append(BillPart(owner, {kinds.DEVICE: resident, kinds.HUGETLB: part.hugetlb_bytes or 0}.get(part.kind, size)))
            continue
        if free.by_walk is None and free.used_bytes is None:
            parts.append(BillPart(owner._replace(name="%s: in use or free, which is not known" % part.name), size))
            is_known, returnable_bytes = False, None
            continue
        kept, returnable = free.by_walk or (gone + max(0, resident - (free.used_bytes or 0)), 0)
        kept, returnable = max(0, kept - gone), max(0, returnable - gone)
        kept = size * min(kept, resident) // (resident or 1)
        returnable = min(kept, size * returnable // (resident or 1))
        if free.by_walk is None:
            returnable_bytes = None
        parts.append(BillPart(owner._replace(name="%s: in use" % part.name), size - kept))
        parts.append(BillPart(owner._replace(name="%s: free, can be returned" % part.name), returnable, ALLOCATOR))
        parts.append(BillPart(owner._replace(name="%s: free, in thread caches or between blocks in use" % part.name), kept - returnable))
        used_bytes, kept_bytes = used_bytes + size - kept, kept_bytes + kept + lazy
        returnable_bytes = None if returnable_bytes is None else returnable_bytes + returnable
    return BillReading(
        parts, used_bytes if is_known else None, kept_bytes if is_known else None, returnable_bytes if is_known else None, True
    )


def _sum_private(look: BillReading) -> int:
    return _sum_kinds(look, IN_PROCESS)


def _sum_kinds(look: BillReading, some: "frozenset[str]") -> int:
    return sum(part.bytes for part in look.parts if part.owner.kind in some)


def _make_process_row(process: GroupProcess, look: BillReading) -> BillProcess:
    def sum_known_kinds(*some: str) -> Optional[int]:
        return None if process.uses is None else _sum_kinds(look, frozenset(some))

    sums: Dict[str, int] = {}
    for part in look.parts:
        if part.owner.kind in IN_PROCESS:
            sums[part.owner.name] = sums.get(part.owner.name, 0) + part.bytes
    largest = max(sums, key=lambda name: sums[name], default="") if look.is_deep else ""
    if process.pid == os.getpid():
        largest = THIS
    return BillProcess(
        process.pid,
        process.name,
        _sum_private(look),
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


class BillLines:
    """The lines while they are gathered."""

    def __init__(self, whole_bytes: int) -> None:
        self._whole = whole_bytes or 1
        self._rows: Dict[Tuple[str, str, str], Tuple[int, Optional[int]]] = {}

    def add(self, kind: str, name: str, size_bytes: int, back_by: str = NO, processes: Optional[int] = None) -> None:
        """More of one line."""
        before, count = self._rows.get((kind, name, back_by), (0, None))
        self._rows[kind, name, back_by] = before + size_bytes, None if processes is None else processes + (count or 0)

    @property
    def sum_bytes(self) -> int:
        """Return the sum of all lines."""
        return sum(size for size, _ in self._rows.values())

    def rows(self) -> List[BillLine]:
        """Largest first; of what has nothing only what is not explained."""
        made = [
            BillLine(kind, name, size, round(100.0 * size / self._whole, 2), count, back)
            for (kind, name, back), (size, count) in self._rows.items()
            if size or kind == UNEXPLAINED
        ]
        return sorted(made, key=lambda row: (row.kind == UNEXPLAINED, -abs(row.bytes), row.name))


def _make_lines(memory: GroupMemory, looked: Sequence[Tuple[GroupProcess, BillReading]]) -> Tuple[List[BillLine], int, int]:
    """The lines, and which of their bytes were found in no process, and in nothing."""
    stat, lines = memory.stat, BillLines(memory.current_bytes)
    private = shared = 0
    known_as = _known_as({part.owner.name for _, look in looked for part in look.parts if part.owner.kind == kinds.SHARED})
    for _, look in looked:
        for name, kind, back, size in _sum_parts(look):
            if kind in IN_PROCESS:
                lines.add(kind, name, size, back, 1)
                private += size
            elif kind == kinds.SHARED:
                lines.add(kind, known_as.get(name, name), size, NO, 1)
                shared += size
    not_attributed = stat.get("anon", private) - private
    if not_attributed >= 0:
        lines.add(UNOWNED, "private memory found in no process of the group", not_attributed)
    else:
        lines.add(ELSEWHERE, "of these charged to other groups, or gone meanwhile", not_attributed)
    _add_files(lines, stat, shared, sum(_sum_kinds(look, frozenset((kinds.LOCKED,))) for _, look in looked))
    _add_kernel(lines, memory, [process for process, _ in looked])
    lines.add(SOCKETS, "buffers of sockets", stat.get("sock", 0))
    lines.add(kinds.HUGETLB, "huge pages of hugetlbfs", stat.get("hugetlb", 0))  # only where memory.current has them
    left = memory.current_bytes - lines.sum_bytes
    cached = min(max(0, left), stat.get("swapcached", 0))
    lines.add(SWAP_CACHE, "swap cache: pages that are in swap as well", cached, KERNEL)
    left -= cached
    lines.add(UNEXPLAINED, "not explained", left)
    return lines.rows(), not_attributed, left


def _known_as(names: Set[str]) -> Dict[str, str]:
    """Shared memory that a runtime's own name was found for in a process that was looked into, and is mapped by others that were not."""
    longer = {name: [other for other in names if other.startswith(name + ", ")] for name in names}
    return {name: others[0] for name, others in longer.items() if len(others) == 1}


def _sum_parts(look: BillReading) -> Iterator[Tuple[str, str, str, int]]:
    """(name, kind, what brings it back, bytes) of one process, each once."""
    sums: Dict[Tuple[str, str, str], int] = {}
    for part in look.parts:
        key = (part.owner.name, part.owner.kind, part.back_by)
        sums[key] = sums.get(key, 0) + part.bytes
    return ((*key, size) for key, size in sums.items() if size)


def _add_files(lines: BillLines, stat: Mapping[str, int], shared_bytes: int, locked_bytes: int) -> None:
    """Shared memory and tmpfs first, then the page cache; swap cache counts in `file`, and in `anon` where it is mapped."""
    shmem = stat.get("shmem", 0)
    if shmem >= shared_bytes:
        lines.add(kinds.SHARED, "tmpfs files and shared memory that no process of the group maps", shmem - shared_bytes)
    else:
        lines.add(ELSEWHERE, "of shared memory charged to other groups", shmem - shared_bytes)
    cache = max(0, stat.get("file", 0) - shmem - stat.get("swapcached", 0))
    mapped = min(cache, max(0, stat.get("file_mapped", 0) - min(shmem, shared_bytes)))
    unclean = min(cache - mapped, stat.get("file_dirty", 0) + stat.get("file_writeback", 0))
    locked = min(mapped, locked_bytes)
    lines.add(kinds.LOCKED, kinds.LOCKED_PAGES.name, locked)
    lines.add(kinds.CACHE, "page cache that processes map (code, libraries, data files)", mapped - locked, KERNEL)
    lines.add(kinds.CACHE, "page cache to be written to disk first (dirty)", unclean, KERNEL)
    lines.add(kinds.CACHE, "page cache of files that were read or written", cache - mapped - unclean, KERNEL)


def _add_kernel(lines: BillLines, memory: GroupMemory, processes: Sequence[GroupProcess]) -> None:
    """Its parts as it counts them; version 1 has only their sum, of which page tables and stacks are known by the processes."""
    stat = dict(memory.stat)
    if memory.cgroup_version == 1:
        tables = [process.page_tables_bytes or 0 for process in processes]
        stat["pagetables"] = min(sum(tables), stat.get("kernel", 0))
        stacks = sum(process.threads or 0 for process in processes) * (memory.thread_stack_bytes or 0)
        stat["kernel_stack"] = min(stacks, stat.get("kernel", 0) - stat["pagetables"])
    told = 0
    for key, name, back in OF_KERNEL:
        lines.add(kinds.KERNEL, name, stat.get(key, 0), back)
        told += stat.get(key, 0)
    if "kernel" in stat:  # since Linux 5.18
        rest = "slab and other memory of the kernel" if memory.cgroup_version == 1 else "other memory of the kernel"
        lines.add(kinds.KERNEL, rest, max(0, stat["kernel"] - told))
