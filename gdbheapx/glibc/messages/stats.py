"""malloc_stats(3)'s text (malloc.c: __malloc_stats), with as many digits as the figures have."""

from typing import Any, Dict, Iterator, NamedTuple, Sequence

from gdbheapx.glibc.malloc_info import Mallinfo2, StatsArena


class NativeStats(NamedTuple):
    """What malloc_stats(3) and mallinfo2 tell."""

    fields: Mallinfo2
    arenas: Sequence[StatsArena]
    total: StatsArena
    max_regions: int
    max_bytes: int

    @property
    def held_bytes(self) -> int:
        """What it took from the kernel."""
        return self.total.system_bytes

    def data(self) -> Dict[str, Any]:
        """mallinfo2's ten fields."""
        return self.fields._asdict()

    def lines(self) -> Iterator[str]:
        """malloc_stats(3)'s text."""
        for one in self.arenas:
            yield "Arena %d:" % one.index
            yield "system bytes     = %10d" % one.system_bytes
            yield "in use bytes     = %10d" % one.in_use_bytes
        yield "Total (incl. mmap):"
        yield "system bytes     = %10d" % self.total.system_bytes
        yield "in use bytes     = %10d" % self.total.in_use_bytes
        yield "max mmap regions = %10d" % self.max_regions
        yield "max mmap bytes   = %10d" % self.max_bytes
