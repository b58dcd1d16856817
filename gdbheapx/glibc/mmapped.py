"""Chunks with a mapping of their own: in no list, found by scanning, proven by mp_'s counters (malloc.c: sysmalloc_mmap)."""

from typing import NamedTuple, Optional, Sequence, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.glibc.context import Context
from gdbheapx.glibc.memory import anonymous_ranges, without
from gdbheapx.kernel.api import MmappedChunk
from gdbheapx.model import MmappedTotals


class Mmapped(NamedTuple):
    """The mapped chunks that were found."""

    chunks: Sequence[MmappedChunk]
    complete: bool
    """Their number and bytes are those of mp_.n_mmaps and mp_.mmapped_mem."""

    @property
    def bytes(self) -> int:
        """Their whole mappings."""
        return sum(chunk.total_bytes for chunk in self.chunks)


def counters(context: Context) -> Optional[MmappedTotals]:
    """mp_.n_mmaps and mp_.mmapped_mem; None, and a report, if mp_ cannot be read."""
    try:
        mp = context.glibc.read_mp(context.target)
    except Unreadable as problem:
        context.report(problem.address, "mp_ cannot be read", "mapped chunks are not counted")
        return None
    return MmappedTotals(mp["n_mmaps"], mp["mmapped_mem"])


def is_ahead(context: Context, counted: MmappedTotals) -> bool:
    """mp_.mmapped_mem is no number of whole pages: glibc 2.43 counts mremapped blocks too large, and only the blocks themselves tell by how much."""
    return context.glibc.traits.mmapped_trailer and bool((counted.bytes or 0) % context.glibc.geometry.page_bytes)


def find(context: Context, heaps: Sequence[Tuple[int, int]]) -> Mmapped:
    """Every mapped chunk outside the arenas' own ranges `heaps` (start, end); reports when they do not add up to mp_."""
    wanted = counters(context)
    if wanted is None or not wanted.chunks or wanted.bytes is None:
        return Mmapped((), wanted is not None)
    ranges = without(anonymous_ranges(context.target), sorted(heaps))
    found, complete = context.kernel.scan_mmapped(
        context.source, context.glibc.geometry, ranges, context.glibc.traits.mmapped_trailer, wanted.chunks, wanted.bytes, context.budget
    )
    if not complete:
        text = "found %d mapped chunks of %d bytes, mp_ counts %d of %d" % (
            len(found),
            Mmapped(found, complete).bytes,
            wanted.chunks,
            wanted.bytes,
        )
        context.report(context.glibc.mp.address, text, "some may lie in memory that was not dumped")
    return Mmapped(sorted(found), complete)
