"""Pages that are the same for every allocator: records in, pages out."""

from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, Sequence, Tuple

from gdbheapx.allocators.records import Page
from gdbheapx.allocators.rules import BrokenRule, Suspect
from gdbheapx.columns import Table, columns_of
from gdbheapx.command import Style
from gdbheapx.model import AllocatorInfo, Check, HistogramRow, ThreadCache
from gdbheapx.report.text import show
from gdbheapx.units import DAMAGE, Said, Size, cells, join_sentences, mark, say

if TYPE_CHECKING:
    from gdbheapx.analysis.coverage import Coverage

NOTHING = "No corruption found."


def heading(info: AllocatorInfo, first: bool) -> Iterator[str]:
    """A line above the table of one allocator, where there are several."""
    if not first:
        yield ""
    owns = {True: ", owns malloc", False: "", None: ", cannot determine whether it owns malloc"}[info.owns_malloc]
    yield "%s: %s %s in %s%s" % (info.id, info.name, info.version or "of unknown version", info.object, owns)


def of_heaps(style: Style, heap_pages: Sequence[Tuple[AllocatorInfo, Page]]) -> Iterator[str]:
    """The page of each heap, with a heading where there are several."""
    for place, (info, page) in enumerate(heap_pages):
        if len(heap_pages) > 1:
            yield from heading(info, first=not place)
        yield from show(style, page)


def histogram(rows: Sequence[HistogramRow]) -> Page:
    """Chunks by size class."""
    yield Table(columns_of(HistogramRow), [_class(row) for row in rows])


def _class(row: HistogramRow) -> Dict[str, Any]:
    shown = row._asdict()
    if row.size_bytes != row.max_size_bytes:
        shown["size_bytes"] = cells("%s-%s", Size(row.size_bytes), Size(row.max_size_bytes))
    return shown


def tcache(rows: Sequence[ThreadCache]) -> Page:
    """One line per thread, its fullest bins behind it."""
    yield Table(columns_of(ThreadCache), [_cache(row) for row in rows])


def _cache(row: ThreadCache) -> Dict[str, Any]:
    largest = sorted(row.bins, key=lambda cached: -(cached.bytes or 0))[:3]
    return {
        **row._asdict(),
        "lwp": "explicit %d" % row.explicit if row.explicit is not None else row.lwp,
        "name": row.name or "",
        "arena": "none" if row.arena is None else row.arena,
        "tcache": str(row.tcache or "none"),
        "bins": join_sentences(", ", [cells("%d x %s", cached.chunks, Size(cached.size_bytes)) for cached in largest]),
    }


def checks(rows: Sequence[Check]) -> Iterator[str]:
    """One line per thing looked at: how it stands, what it is, and what to do where it is not well."""
    marks = {True: "ok", False: "FAIL", None: "info"}
    for row in rows:
        line = "%-4s %-22s %s" % (marks[row.ok], row.what, row.found)
        yield mark(line, DAMAGE) if row.ok is False else line
        if row.hint:
            yield "     %-22s %s" % ("", row.hint)


def broken_rules(style: Style, rows: Sequence[BrokenRule], coverage: Optional["Coverage"] = None) -> Iterator[str]:
    """A table, and a sentence for each row below it."""
    if not rows:
        yield from show(style, [say("%s: %s", NOTHING[:-1], coverage.words()) if coverage is not None and coverage.is_low else NOTHING])
        return
    yield from show(style, [Table(columns_of(BrokenRule), [_broken_row(row) for row in rows])])
    yield ""
    for row in rows:
        yield mark("%s%s: %s" % ("%s: " % row.address if row.address is not None else "", row.rule, row.what), DAMAGE)


def _broken_row(rule: BrokenRule) -> Dict[str, Any]:
    return {
        **rule._asdict(),
        "arena": "-" if rule.arena is None else str(rule.arena),
        "address": str(rule.address) if rule.address is not None else "-",
        "abort": rule.abort or "-",
        "suspect": _suspect(rule.suspect),
    }


def _suspect(suspect: Optional[Suspect]) -> Any:
    if suspect is None:
        return "-"
    what = "%s, %s" % (suspect.signature, suspect.owner or suspect.status) if suspect.signature else suspect.owner or suspect.status
    said: Said = say("%s (%s, %s)", suspect.address, Size(suspect.size_bytes), what)
    return said
