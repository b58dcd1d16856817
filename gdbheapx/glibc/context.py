"""What a walk carries along: where it reads, whom it tells, and for each arena what was found so far."""

from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.attempts import Attempts
from gdbheapx.budget import Budget
from gdbheapx.glibc.arenas import Arena, Heap
from gdbheapx.glibc.located import Glibc
from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.inferior.base import BulkSource, Target
from gdbheapx.kernel.common.in_ram import Ram
from gdbheapx.kernel.common.interface import Kernel
from gdbheapx.kernel.common.records import STOP_TOP
from gdbheapx.kernel.glibc.interface import ChunkWalker
from gdbheapx.kernel.glibc.records import Region, WalkResult, add_results
from gdbheapx.kernel.glibc.walkers import chunk_walker
from gdbheapx.problems import Report


class Context(NamedTuple):
    """What every step of the walk needs."""

    target: Target
    glibc: Glibc
    kernel: Kernel
    source: BulkSource
    budget: Budget
    report: Report
    ram: Ram
    """What tells what is in RAM."""
    attempts: Attempts
    """What earlier looks have learned."""
    others: Callable[[], Sequence[Tuple[int, int]]]
    """Ranges that other allocators hold."""

    @property
    def walker(self) -> ChunkWalker:
        """The kernel's, bound to this heap."""
        return chunk_walker(self.kernel, self.source, self.glibc.geometry, self.budget)


class ArenaWalk:
    """One arena while it is walked, and what was found."""

    def __init__(self, arena: Arena, report: Report) -> None:
        self.arena = arena
        self.report = report
        """For what does not add up in this arena."""
        self.heaps: Sequence[Heap] = ()
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
        self.look = 1
        """At which look it was walked."""
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
        found = []
        for region, result in self.runs:
            end = region.top + result.top_bytes if result.stop == STOP_TOP else result.at
            found.append((region.begin & -page_bytes, -(-end // page_bytes) * page_bytes))
        return sorted(found)

    def reserves(self, heap_max: int) -> List[Tuple[int, int]]:
        """What of each heap is given back or was never used: from heap_info.size to the end of the HEAP_MAX_SIZE bytes that it keeps
        (arena.c)."""
        return sorted((heap.address + heap.size_bytes, heap.address + heap_max) for heap in self.heaps if heap.size_bytes < heap_max)

    def total(self) -> Optional[WalkResult]:
        """All runs of chunks as one result; None if the arena holds no chunk."""
        return add_results([result for _, result in self.runs])


def chunk_bytes(total: WalkResult) -> int:
    """All bytes of chunks in a walk result."""
    cached = total.tcache_bytes + total.tcache_struct_bytes
    return total.used_bytes + cached + total.fast_bytes + total.free_bytes + total.top_bytes + total.fence_bytes
