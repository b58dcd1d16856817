"""Pools: pieces of equal length, each cut into cells of one size, with a header that has the list of its free cells (pools.c)."""

from abc import ABC, abstractmethod
from typing import NamedTuple, Sequence, Tuple

from gdbheapx.kernel.blocks.records import BlockStream

MOST_POOL = 32 << 10
HEADER_BYTES = 48


class PoolShape(NamedTuple):
    """Where pools are."""

    pool_bytes: int
    little_endian: bool
    runs: Sequence[Tuple[int, int]]
    """(begin, end) of pools that stand one after the other: sorted, without overlap."""


class PoolSums(NamedTuple):
    """What the headers say, in bytes if not said otherwise. Order as in pools.c."""

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


class Pools(ABC):
    """One look at pools."""

    @abstractmethod
    def sums(self) -> PoolSums:
        """By the headers alone."""

    @abstractmethod
    def blocks(self) -> BlockStream:
        """The used cells, all of CLASS_USED. Where a pool's list of free cells is broken, what comes after the break counts as used."""
