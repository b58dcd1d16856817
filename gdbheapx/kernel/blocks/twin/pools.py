"""Pools in Python: what pools.c does."""

from typing import Iterator, NamedTuple, Optional, Set

from gdbheapx.budget import Budget
from gdbheapx.kernel.blocks.pools import HEADER_BYTES, Pools, PoolShape, PoolSums
from gdbheapx.kernel.blocks.records import CLASS_USED, NO_ARENA, BlockStream
from gdbheapx.kernel.blocks.twin.stream import Rows, Source, TwinBlocks
from gdbheapx.kernel.common.records import STOP_END
from gdbheapx.kernel.common.twin.source import Reader

UNIT = 16
MOST_CLASSES = 64


class Pool(NamedTuple):
    """What a header says: bytes of a cell; cells in use, handed out ever, in all; the first free one."""

    size: int
    used: int
    carved: int
    cells: int
    free: int


def read_header(data: bytes, little_endian: bool, pool_bytes: int) -> Optional[Pool]:
    """None: no pool."""
    order = "little" if little_endian else "big"
    if len(data) < HEADER_BYTES:
        return None
    used, class_, following, last = (int.from_bytes(data[place : place + 4], order) for place in (0, 36, 40, 44))  # type: ignore[arg-type]
    size = (class_ + 1) * UNIT
    if class_ >= MOST_CLASSES or last != pool_bytes - size or following < HEADER_BYTES or (following - HEADER_BYTES) % size:
        return None
    cells, carved = (pool_bytes - HEADER_BYTES) // size, (following - HEADER_BYTES) // size
    return Pool(size, used, carved, cells, int.from_bytes(data[8:16], order)) if used <= carved <= cells else None  # type: ignore[arg-type]


class PoolWalk(Source):
    """Used cells."""

    stop = STOP_END

    def __init__(self, reader: Reader, shape: PoolShape) -> None:
        self._reader, self._shape = reader, shape
        self._left = each(shape)
        self._next = next(self._left, None)

    @property
    def ended(self) -> bool:
        """See Source."""
        return self._next is None

    @property
    def at(self) -> int:
        """See Source."""
        return self._next if self._next is not None else self._shape.runs[-1][1] if self._shape.runs else 0

    def fill(self, rows: Rows) -> None:
        """See Source."""
        while self._next is not None and rows.left > 0:
            at, data = self._next, self._reader.read(self._next, self._shape.pool_bytes)
            self._next = next(self._left, None)
            pool = read_header(data, self._shape.little_endian, self._shape.pool_bytes)
            if pool and pool.used:
                free = self._free(data, at, pool)
                for cell in range(pool.carved):
                    if cell not in free:
                        rows.add(at + HEADER_BYTES + cell * pool.size, pool.size, CLASS_USED, 0, NO_ARENA)

    def _free(self, data: bytes, at: int, pool: Pool) -> Set[int]:
        found: Set[int] = set()
        link = pool.free
        while link:
            cell, rest = divmod(link - at - HEADER_BYTES, pool.size)
            place = link - at
            if rest or not 0 <= cell < pool.carved or cell in found or place + 8 > len(data):
                break
            found.add(cell)
            link = int.from_bytes(data[place : place + 8], "little" if self._shape.little_endian else "big")
        return found


def each(shape: PoolShape) -> Iterator[int]:
    """Every pool's address."""
    return (at for begin, end in shape.runs for at in range(begin, end - shape.pool_bytes + 1, shape.pool_bytes))


class TwinPools(Pools):
    """See Pools."""

    def __init__(self, reader: Reader, shape: PoolShape, budget: Budget) -> None:
        self._reader, self._shape, self._budget = reader, shape, budget

    def sums(self) -> PoolSums:
        """See Pools."""
        used_bytes = free_bytes = lost_bytes = pools = free_pools = bad = 0
        for at in each(self._shape):
            if pools % 256 == 0 and self._budget.expired():
                return PoolSums()
            pool = read_header(self._reader.read(at, HEADER_BYTES), self._shape.little_endian, self._shape.pool_bytes)
            pools += 1
            if pool is None:
                bad += 1
            elif not pool.used:
                free_pools += 1
            else:
                used_bytes += pool.used * pool.size
                free_bytes += (pool.cells - pool.used) * pool.size
                lost_bytes += self._shape.pool_bytes - pool.cells * pool.size
        return PoolSums(pools, used_bytes, free_bytes, lost_bytes, free_pools, bad)

    def blocks(self) -> BlockStream:
        """See Pools."""
        return TwinBlocks(PoolWalk(self._reader, self._shape), None, self._budget)
