"""What malloc_trim(0) would give back, by its own rules (malloc.c: mtrim and systrim, after malloc_consolidate)."""

from typing import NamedTuple, Optional

from gdbheapx.errors import Unreadable
from gdbheapx.glibc.context import ArenaWalk, Context
from gdbheapx.kernel.api import WalkResult


class TopTrim(NamedTuple):
    """The end of the main arena that systrim would give back to brk."""

    start: int
    end: int

    @property
    def bytes(self) -> int:
        """Its length."""
        return self.end - self.start


class Prediction(NamedTuple):
    """One arena's share of what malloc_trim would give back."""

    interior_bytes: int
    """Whole pages inside free chunks (madvise)."""
    top_bytes: int
    """The end of top (brk); 0 for thread arenas, ever."""
    resident_bytes: Optional[int]
    """Those of both that are in RAM and belong to this process alone; None where there is no pagemap."""

    @property
    def bytes(self) -> int:
        """Both."""
        return self.interior_bytes + self.top_bytes


def predict(context: Context, walk: ArenaWalk, total: WalkResult, pad: int = 0) -> Prediction:
    """The prediction for one walked arena."""
    top = systrim(context, walk, total, pad) if walk.arena.is_main else None
    resident = total.interior_resident_bytes
    if resident is not None and top is not None and context.pagemap_pid is not None:
        found = context.kernel.resident(context.pagemap_pid, [(top.start, top.end)])
        resident = resident + found.exclusive_bytes if found is not None else None
    return Prediction(total.interior_bytes, top.bytes if top else 0, resident)


def systrim(context: Context, walk: ArenaWalk, total: WalkResult, pad: int = 0) -> Optional[TopTrim]:
    """The range that systrim(pad) would give back; None if nothing: too small, or the break is not where top ends.

    Free and fast chunks that border top are merged into it first (malloc_consolidate).
    """
    glibc = context.glibc
    top, size = walk.arena.top, total.top_bytes
    end = top + size
    if not size or glibc.break_address(context.target) != end:
        return None
    size = end - (total.top_run_start or top)
    area = size - glibc.geometry.min_chunk_bytes - 1
    if area <= pad:
        return None
    try:
        unit = glibc.read_mp(context.target).get("thp_pagesize") or glibc.geometry.page_bytes
    except Unreadable:
        return None
    extra = (area - pad) // unit * unit
    return TopTrim(end - extra, end) if extra else None
