"""State of one heap walk: memory source, error sink and per-arena results; the ranges of memory where a heap can lie.

malloc.c changes an arena under its mutex, but for a process of one thread (SINGLE_THREAD_P), and thread caches without any. What a thread
was changing when the process was stopped is called changing, and not damaged.
"""

from bisect import bisect_right
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.allocators.answers import make_collector
from gdbheapx.budget import Budget
from gdbheapx.glibc import codes
from gdbheapx.glibc.arenas import Arena, Glibc, HeapInfo
from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.inferior.base import BulkSource, Mapping, Target
from gdbheapx.kernel.common.in_ram import Ram
from gdbheapx.kernel.common.library import STOP_TOP, Kernel
from gdbheapx.kernel.glibc.records import Region, WalkResult, add_results
from gdbheapx.kernel.glibc.walkers import ChunkWalker, chunk_walker
from gdbheapx.problems import Diagnostic, PartialSink, ProblemCode
from gdbheapx.ranges import Range, subtract_ranges, unite_ranges

MOST_LEFT_OUT_BYTES = 1 << 30
"""A gap between mappings of a core that is no larger may be memory that was left out of it: gdb's gcore drops what cannot be read, and what
the program asked to leave out (MADV_DONTDUMP)."""
LOCKED_ONCE = "its mutex is held: a thread was changing this arena, so this may not be damage"
LOOK_AGAIN = "run it again; if it persists, `thread apply all backtrace` in gdb shows which thread is inside malloc"


class Context(NamedTuple):
    """State of one heap walk: target, memory source, budget and error sink."""

    target: Target
    glibc: Glibc
    kernel: Kernel
    source: BulkSource
    budget: Budget
    report: PartialSink
    ram: Ram
    """What tells what is in RAM."""
    others: Callable[[], Sequence[Tuple[int, int]]]
    """Ranges that other allocators hold."""

    @property
    def walker(self) -> ChunkWalker:
        """The kernel's, bound to this heap."""
        return chunk_walker(self.kernel, self.source, self.glibc.geometry, self.budget)

    def threads_at_work(self) -> Set[int]:
        """Return the ids of a live process's threads that were stopped while they ran in malloc's object: their caches, and what malloc
        counts without a lock, may be in the middle of a change."""
        from gdbheapx.inferior.standing import find_running_threads

        return find_running_threads(self.target, self.glibc.module) if self.target.kind == "live" else set()

    def is_changed_without_locks(self) -> bool:
        """Return True if a live process has one thread, which takes no lock (SINGLE_THREAD_P, 2.27), and was stopped in malloc's object."""
        return len(self.target.threads()) == 1 and bool(self.threads_at_work())


class ArenaWalk:
    """Progress and results of walking one arena."""

    def __init__(self, arena: Arena, report: PartialSink) -> None:
        self.arena = arena
        self.report = report
        """For what does not add up in this arena."""
        self.heaps: Sequence[HeapInfo] = ()
        self.runs: List[Tuple[Region, WalkResult]] = []
        self.system_bytes = arena.state["system_mem"]
        self.overhead_bytes = 0
        """heap_info, malloc_state, alignment and fenceposts; without tcache structs and foreign bytes."""
        self.foreign_bytes = 0
        self.unparsed_bytes = 0
        self.pieces = 0
        self.behind_fences: List[Tuple[Region, int]] = []
        """Of an arena that is not contiguous: runs of the break that end in fenceposts, and where a further one may begin; nobody has
        looked there yet."""
        self.damages = 0
        self.timed_out = False
        self.walked_bytes = 0
        """Bytes of chunks in all runs."""
        self.unlocated_bytes = 0
        """Bytes of system_mem that the walk did not come by; known once it is over."""
        self.row: Optional[ArenaTotals] = None
        """Its figures, once they were asked for."""
        self.members: Optional[Sequence[int]] = None
        """bins.members: chunks in its bins, sorted; None until they were asked for."""

    def add(self, region: Region, result: WalkResult) -> None:
        """A run that was walked."""
        self.runs.append((region, result))
        self.walked_bytes += chunk_bytes(result)

    def ranges(self, page_bytes: int) -> List[Tuple[int, int]]:
        """Addresses (start, end) that the arena occupies, whole pages, sorted: its heaps, or the pieces of the main arena."""
        if not self.arena.is_main:
            return sorted((heap.address, heap.address + heap.size_bytes) for heap in self.heaps)
        spans = []
        for region, result in self.runs:
            end = region.top + result.top_bytes if result.stop == STOP_TOP else result.at
            spans.append((region.begin & -page_bytes, -(-end // page_bytes) * page_bytes))
        return sorted(spans)

    def reserves(self, heap_max: int) -> List[Tuple[int, int]]:
        """Return the unused end of each heap: from heap_info.size to the end of its HEAP_MAX_SIZE bytes (arena.c)."""
        return sorted((heap.address + heap.size_bytes, heap.address + heap_max) for heap in self.heaps if heap.size_bytes < heap_max)

    def total(self) -> Optional[WalkResult]:
        """Return all runs of chunks as one result, or None if the arena holds no chunk."""
        return add_results([result for _, result in self.runs])


def chunk_bytes(total: WalkResult) -> int:
    """Return the bytes of all chunks in a walk result."""
    cached = total.tcache_bytes + total.tcache_struct_bytes
    return total.used_bytes + cached + total.fast_bytes + total.free_bytes + total.top_bytes + total.fence_bytes


def anonymous_mappings(target: Target) -> List[Mapping]:
    """Writable private anonymous memory, sorted."""
    return [mapping for mapping in private_mappings(target) if mapping.readable and mapping.writable]


def private_mappings(target: Target) -> List[Mapping]:
    """Private anonymous memory with any rights, sorted: a program may protect a part of what malloc gave it."""
    return [
        mapping
        for mapping in target.mappings()
        if not mapping.is_file and not mapping.shared and not mapping.name.startswith(("[v", "[stack"))
    ]


def find_reaches(target: Target, ranges: Sequence[Range], taken: Sequence[Range]) -> List[int]:
    """Return for each range of private anonymous memory how far a block that begins in it may extend: over memory with other rights, in a
    core over memory that may have been left out, up to `taken` or other owners.
    """
    own = {mapping.start for mapping in private_mappings(target)}
    runs: List[Range] = []
    last = 0
    for mapping in target.mappings():
        gap = mapping.start - last
        if mapping.start not in own:
            last = -1 - MOST_LEFT_OUT_BYTES
            continue
        if runs and (gap == 0 or (target.kind == "core" and 0 < gap <= MOST_LEFT_OUT_BYTES)):
            runs[-1] = (runs[-1][0], mapping.end)
        else:
            runs.append((mapping.start, mapping.end))
        last = mapping.end
    runs = subtract_ranges(runs, taken)
    starts = [start for start, _ in runs]
    places = (bisect_right(starts, start) - 1 for start, _ in ranges)
    return [max(end, runs[place][1]) if place >= 0 and runs[place][1] > start else end for place, (start, end) in zip(places, ranges)]


def unite_mappings(mappings: Iterable[Mapping]) -> List[Range]:
    """Neighbouring mappings as one range: the kernel merges and splits them at will."""
    return unite_ranges((mapping.start, mapping.end) for mapping in mappings)


def anonymous_ranges(target: Target) -> List[Range]:
    """Return the memory in which arenas can lie."""
    return unite_mappings(anonymous_mappings(target))


class ArenaReports:
    """Contradictions in each arena, collected for one purpose. An arena that a thread was changing is reported as changing, not as
    damaged.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._collected: Dict[int, List[Diagnostic]] = {}

    def collect_for(self, arena: Arena) -> PartialSink:
        """Return the report that collects the complaints about an arena."""
        return make_collector(self._collected.setdefault(arena.address, []))

    def tell(self, arena: Arena) -> None:
        """Report the complaints about an arena that was read."""
        context, is_locked = self._context, bool(arena.state["mutex"])
        complaints, is_live = self._collected.pop(arena.address, []), context.target.kind == "live"
        if complaints and is_live and (is_locked or context.is_changed_without_locks()):
            holder = ": a thread holds its mutex" if is_locked else ""
            context.report(codes.ARENA_CHANGING, arena.address, "%s is in the middle of a change%s" % (arena.title, holder), LOOK_AGAIN)
            return
        for code, address, what, hint in complaints:
            context.report(code, address, what, LOCKED_ONCE if is_locked else hint)


def tell_unless_changing(context: Context, complaints: Sequence[Diagnostic], code: ProblemCode, change: str) -> None:
    """Report complaints about what no arena's mutex guards; of a live process with a thread in malloc's object the change alone."""
    if complaints and context.threads_at_work():
        context.report(code, None, change, LOOK_AGAIN)
        return
    for complaint in complaints:
        context.report(*complaint)
