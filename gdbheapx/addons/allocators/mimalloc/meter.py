"""mimalloc's pages of a process that runs: each counts its blocks in use in one step. What other threads have freed counts as used until
the owner collects it. A sum over many pages is of no single moment."""

from typing import Sequence

from gdbheapx.addons.allocators.mimalloc.detect import Mimalloc
from gdbheapx.addons.allocators.mimalloc.native_records import MI_METADATA, MI_SPAN
from gdbheapx.addons.allocators.mimalloc.records import MimallocArena
from gdbheapx.allocators.metering import Figure, Reading
from gdbheapx.inferior.base import Target
from gdbheapx.model import AllocatorInfo

FIGURES = (
    Figure("pages", "pages", "pages that threads own, or left behind", is_shown=False),
    Figure("used_bytes", "used", "bytes of blocks in use; those that other threads have freed and the owner has not collected count here"),
    Figure("free_bytes", "free", "bytes of free blocks in pages"),
    Figure("reserve_bytes", "reserve", "bytes of pages for blocks that were never handed out"),
    Figure("span_bytes", "spans", "bytes of free slices that were not returned to the OS yet"),
)


class MimallocMeter:
    """Of one copy."""

    figures = FIGURES

    def __init__(self, mimalloc: Mimalloc, target: Target) -> None:
        self._mimalloc, self._target = mimalloc, target

    @property
    def info(self) -> AllocatorInfo:
        """Of the allocator."""
        return self._mimalloc.info()

    def has_long_lists(self) -> bool:
        """Totals follow those of what other threads have freed alone."""
        return False

    def read(self, walk_seconds: float) -> Reading:
        """The counters now: a page that is being made, or given up, is left out."""
        found = self._mimalloc.read(self._target)
        used = sum(page.used * page.block_bytes for page in found.pages)
        free = sum((page.capacity - page.used) * page.block_bytes for page in found.pages)
        reserve = sum((page.reserved - page.capacity) * page.block_bytes for page in found.pages)
        span = sum(piece.end - piece.start for piece in found.pieces if piece.kind == MI_SPAN)
        own = sum(piece.end - piece.start for piece in found.pieces if piece.kind == MI_METADATA)
        held = sum(page.end - page.memory for page in found.pages) + span + own
        large = sum(page.used * page.block_bytes for page in found.pages if page.reserved == 1)
        return _reading(len(found.pages), used, free, reserve, span, held, large)


def _reading(pages: int, used: int, free: int, reserve: int, span: int, held: int, large: int) -> Reading:
    return Reading(
        values=(pages, used, free, reserve, span),
        held_bytes=held,
        used_bytes=used,
        kept_bytes=held - used,
        returnable_bytes=None,
        walked_bytes=held - large,
        large_bytes=large,
        lists_lead_far=True,
    )


def exact(rows: Sequence[MimallocArena]) -> Reading:
    """The same, from a walk of a process that stands still."""
    used = sum(row.used_bytes + row.remote_free_bytes for row in rows)
    free, reserve, span = (sum(getattr(row, name) for row in rows) for name in ("free_bytes", "reserve_bytes", "span_bytes"))
    held = sum(row.held_bytes for row in rows)
    return _reading(sum(row.pages for row in rows), used, free, reserve, span, held, 0)
