"""Pools: pieces of equal length, each cut into cells of one size, with a header that has the list of its free cells (pools.c)."""

from array import array
from typing import Any, NamedTuple, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.blocks.binding import CBlocks
from gdbheapx.kernel.blocks.records import BlockStream
from gdbheapx.kernel.common.library import OpenSource, address_of, declare_functions, run_resumable

PROTOTYPES = """
struct block_source *heapx_pool_blocks(const struct source *memory, int little_endian, uint64_t bytes, const uint64_t *runs,
    uint64_t count);
int64_t heapx_pool_sums(struct block_source *self, struct pool_sums *out, double seconds);
"""

POOL_HEADER_BYTES = 48


class PoolShape(NamedTuple):
    """Location of pools."""

    pool_bytes: int
    little_endian: bool
    runs: Sequence[Tuple[int, int]]
    """(begin, end) of pools that stand one after the other: sorted, without overlap."""


class PoolSums(NamedTuple):
    """Sums of the pool headers, in bytes if not said otherwise."""

    pools: int = 0
    """All."""
    used_bytes: int = 0
    free_bytes: int = 0
    """Cells that are free in pools with used ones."""
    lost_bytes: int = 0
    """Headers of pools with used cells, and what is too small for a cell there."""
    free_pools: int = 0
    """Those without a used cell."""
    bad: int = 0
    """Those whose header is none."""


class Pools:
    """Single reading of pools."""

    def __init__(self, library: Any, opened: OpenSource, shape: PoolShape, budget: Budget) -> None:
        self._library, self._opened, self._shape, self._budget = declare_functions(library, PROTOTYPES), opened, shape, budget
        self._runs = array("Q", [bound for run in shape.runs for bound in run])

    def _make_blocks(self) -> CBlocks:
        shape = (int(self._shape.little_endian), self._shape.pool_bytes, address_of(self._runs), len(self._shape.runs))
        return CBlocks(
            self._library, self._opened, self._library.heapx_pool_blocks(self._opened.handle, *shape), self._runs, None, self._budget
        )

    def sums(self) -> PoolSums:
        """Sum the headers alone, without the cells."""
        walk, out = self._make_blocks(), array("Q", PoolSums())
        run_resumable(lambda seconds: self._library.heapx_pool_sums(walk.handle, address_of(out), seconds), self._opened, self._budget)
        return PoolSums(*out)

    def blocks(self) -> BlockStream:
        """The used cells, all of CLASS_USED. Where a pool's list of free cells is broken, what comes after the break counts as used."""
        return self._make_blocks()
