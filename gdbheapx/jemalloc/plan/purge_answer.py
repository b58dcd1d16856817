"""The answer of `purge --dry-run`."""

from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence

from gdbheapx.allocators.predicted import Predicted, Way, conclusion, total, unmade
from gdbheapx.allocators.records import Page
from gdbheapx.columns import BYTES, TEXT, Column, Table
from gdbheapx.errors import HeapxError
from gdbheapx.jemalloc.records import JemallocArena
from gdbheapx.problems import NOT_FOUND

KEYS = (
    "allocator",
    "index",
    "dirty_bytes",
    "muzzy_bytes",
    "reclaimable_bytes",
    "reclaimable_resident_bytes",
    "reclaimable_exclusive_bytes",
)
_COLUMNS = (
    Column("arena", TEXT, field="index"),
    Column("dirty", BYTES, field="dirty_bytes"),
    Column("muzzy", BYTES, field="muzzy_bytes"),
    Column("in RAM", BYTES, field="reclaimable_resident_bytes"),
)


def unused_pages(rows: Sequence[JemallocArena], page_bytes: int) -> Mapping[str, Optional[int]]:
    """The unused pages of these arenas, by state."""
    bytes_ = {"dirty_pages": total([row.dirty_bytes for row in rows]), "muzzy_pages": total([row.muzzy_bytes for row in rows])}
    return {name: None if value is None else value // page_bytes for name, value in bytes_.items()}


class PurgeDryRun(NamedTuple):
    """What a purge would give back."""

    arenas: Sequence[JemallocArena]
    page_bytes: int
    """Of the machine."""
    way: Way = Way()

    @property
    def bytes(self) -> Optional[int]:
        """Dirty and muzzy pages; None if those of one arena are not known."""
        return total([row.reclaimable_bytes for row in self.arenas])

    @property
    def predicted(self) -> Predicted:
        """All arenas together."""
        resident, exclusive = ([getattr(row, "reclaimable_%s_bytes" % what) for row in self.arenas] for what in ("resident", "exclusive"))
        return Predicted(self.bytes or 0, total(resident), total(exclusive), unused_pages(self.arenas, self.page_bytes))

    @property
    def data(self) -> Dict[str, Any]:
        """The contract's keys of `purge`."""
        return unmade(
            self.predicted, self.bytes, [{key: getattr(row, key) for key in KEYS} for row in self.arenas], ("way_reason", "thread")
        )

    @property
    def page(self) -> Page:
        """Arena by arena, those with something to give."""
        rows = [row for row in self.arenas if row.reclaimable_bytes or row.reclaimable_bytes is None]
        if rows:
            yield Table(_COLUMNS, rows)
        yield conclusion(self.predicted, self.bytes, "a purge", "purge", self.way)


def dry_run(rows: Sequence[JemallocArena], arena: Optional[int], page_bytes: int, is_live: bool) -> PurgeDryRun:
    """What a purge of one arena, or of all, would give back; HeapxError where there is no such arena."""
    wanted = [row for row in rows if arena in (None, row.index)]
    if not wanted:
        raise HeapxError("arena %s not found" % arena, "see `gdbheapx arenas`", code=NOT_FOUND)
    return PurgeDryRun(wanted, page_bytes, Way(is_live))
