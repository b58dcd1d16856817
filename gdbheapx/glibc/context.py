"""What a walk carries along: where it reads, whom it tells, and for each arena what was found so far."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.glibc import bins
from gdbheapx.glibc.arenas import Arena, Report
from gdbheapx.glibc.detect import Glibc
from gdbheapx.glibc.heaps import Heap
from gdbheapx.kernel.api import Region, WalkResult, add_results
from gdbheapx.kernel.base import Kernel
from gdbheapx.target.base import BulkSource, Target


class Context(NamedTuple):
    """What every step of the walk needs."""

    target: Target
    glibc: Glibc
    kernel: Kernel
    source: BulkSource
    budget: Budget
    report: Report
    pagemap_pid: Optional[int]
    """Whose pagemap tells what is in RAM; None on anything but a live local process."""


class ArenaWalk:
    """One arena while it is walked, and what was found."""

    def __init__(self, arena: Arena, heaps: Sequence[Heap]) -> None:
        self.arena = arena
        self.heaps = heaps
        self.runs: List[Tuple[Region, WalkResult]] = []
        self.system_bytes = arena.state["system_mem"]
        self.overhead_bytes = 0
        """heap_info, malloc_state, alignment and fenceposts; without tcache structs and foreign bytes."""
        self.foreign_bytes = 0
        self.unparsed_bytes = 0
        self.pieces = len(heaps)
        self.damages = 0
        self.timed_out = False
        self.walked_bytes = 0
        """Bytes of chunks in all runs."""
        self.anchors: Optional[List[int]] = None
        """Non-contiguous main arena: known chunks that no run has met yet, sorted."""
        self.anchored_runs = 0
        """Runs that are already taken off the anchors."""
        self._members: Optional[Sequence[int]] = None

    def add(self, region: Region, result: WalkResult) -> None:
        """A run that was walked."""
        self.runs.append((region, result))
        self.walked_bytes += chunk_bytes(result)

    def total(self) -> Optional[WalkResult]:
        """All runs of chunks as one result; None if the arena holds no chunk."""
        return add_results([result for _, result in self.runs])

    def bin_members(self, context: Context) -> Sequence[int]:
        """Chunk addresses in the arena's bins, sorted: places where a chain can be joined again after damage."""
        if self._members is None:
            found = bins.walk_bins(context.glibc, context.kernel, context.source, self.arena, None, members=True)
            self._members = sorted(chunk for item in found for chunk in item.found.members or ())
        return self._members


def chunk_bytes(total: WalkResult) -> int:
    """All bytes of chunks in a walk result."""
    cached = total.tcache_bytes + total.tcache_struct_bytes
    return total.used_bytes + cached + total.fast_bytes + total.free_bytes + total.top_bytes + total.fence_bytes
