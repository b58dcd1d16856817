"""The C kernel's pools, by ctypes."""

from array import array
from typing import Any

from gdbheapx.budget import Budget
from gdbheapx.kernel.blocks.binding import CBlocks
from gdbheapx.kernel.blocks.pools import Pools, PoolShape, PoolSums
from gdbheapx.kernel.blocks.records import BlockStream
from gdbheapx.kernel.common.library import OpenSource, at, run


class CPools(Pools):
    """See Pools."""

    def __init__(self, library: Any, opened: OpenSource, shape: PoolShape, budget: Budget) -> None:
        self._library, self._opened, self._shape, self._budget = library, opened, shape, budget
        self._runs = array("Q", [bound for run in shape.runs for bound in run])

    def _blocks(self) -> CBlocks:
        shape = (int(not self._shape.little_endian), self._shape.pool_bytes, at(self._runs), len(self._shape.runs))
        return CBlocks(
            self._library, self._opened, self._library.heapx_pool_blocks(self._opened.handle, *shape), self._runs, None, self._budget
        )

    def sums(self) -> PoolSums:
        """See Pools."""
        walk, out = self._blocks(), array("Q", PoolSums())
        run(lambda seconds: self._library.heapx_pool_sums(walk.handle, at(out), seconds), self._opened, self._budget)
        return PoolSums(*out)

    def blocks(self) -> BlockStream:
        """See Pools."""
        return self._blocks()
