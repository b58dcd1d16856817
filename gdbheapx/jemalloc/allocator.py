"""One jemalloc as the commands ask for it; walks at most once."""

from typing import List, Optional, Sequence

from gdbheapx.budget import Budget
from gdbheapx.jemalloc import arenas as arena_list
from gdbheapx.jemalloc.context import Context, Report
from gdbheapx.jemalloc.detect import Jemalloc
from gdbheapx.kernel.base import Kernel
from gdbheapx.model import AllocatorInfo, JemallocArena
from gdbheapx.target.base import Target


class JemallocMalloc:
    """Everything one jemalloc can be asked for."""

    kind = "jemalloc"

    def __init__(self, target: Target, jemalloc: Jemalloc, kernel: Kernel, budget: Budget, report: Report) -> None:
        pagemap_pid = target.pid if target.kind == "live" else None
        self.context = Context(target, jemalloc, kernel, target.bulk_source(), budget, report, pagemap_pid)
        self.jemalloc = jemalloc
        self._arenas: Optional[List[arena_list.Arena]] = None
        self._totals: Optional[List[JemallocArena]] = None

    @property
    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""
        return self.jemalloc.info()

    def arena_list(self) -> Sequence[arena_list.Arena]:
        """The arenas that exist and can be read."""
        if self._arenas is None:
            self._arenas = arena_list.read_arenas(self.context)
        return self._arenas
