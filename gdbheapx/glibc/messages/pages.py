"""The pages `arenas` and `bins` of one copy of glibc's malloc, and what `doctor` says of it."""

from typing import Any, Dict, List, Mapping, Optional, Sequence

from gdbheapx.allocators.records import Page
from gdbheapx.columns import ColumnsTable, columns_of, sum_columns
from gdbheapx.glibc.arenas import Glibc
from gdbheapx.glibc.layouts import NBINS
from gdbheapx.glibc.records import ArenaTotals, BinRow, MmappedTotals
from gdbheapx.inferior.base import Target
from gdbheapx.model import Check
from gdbheapx.units import SentenceSize, count_noun, format_number, make_cells


def sum_glibc_arenas(rows: Sequence[ArenaTotals], mapped: MmappedTotals) -> Dict[str, Optional[int]]:
    """The sums over its arenas, and its mapped chunks; unknown where not even main_arena could be read."""
    return {
        **sum_columns(ArenaTotals, rows, must_exist=True),
        "arenas": len(rows) or None,
        "mmapped_chunks": mapped.chunks,
        "mmapped_bytes": mapped.bytes,
    }


def make_glibc_arenas_page(rows: Sequence[ArenaTotals], totals: Mapping[str, Optional[int]]) -> Page:
    """Yield one line for each arena, their sums and the mmapped chunks."""
    shown = [{**row._asdict(), "index": "%d%s" % (row.index, " (locked)" if row.locked else "")} for row in rows]
    system = totals["system_bytes"]
    free = sum(totals[key] or 0 for key in ("free_bytes", "fast_bytes", "top_bytes"))
    percent = 100.0 * free / system if system else None
    yield ColumnsTable(columns_of(ArenaTotals), shown, {**totals, "index": "total", "kind": "", "free_percent": percent})
    yield make_cells("mmapped chunks: %s, %s", format_number(totals["mmapped_chunks"]), SentenceSize(totals["mmapped_bytes"]))


def make_glibc_bins_page(rows: Sequence[BinRow]) -> Page:
    """The non-empty bins."""
    yield ColumnsTable(columns_of(BinRow), [_format_bin(row) for row in rows])
    if not rows:
        yield "all bins are empty"


def _format_bin(row: BinRow) -> Dict[str, Any]:
    low, high = row.min_size_bytes, row.max_size_bytes
    shown = row._asdict()
    if low is None:
        shown["min_size_bytes"] = "any"
    elif high is None:
        shown["min_size_bytes"] = make_cells("%s-", SentenceSize(low))
    elif high != low:
        shown["min_size_bytes"] = make_cells("%s-%s", SentenceSize(low), SentenceSize(high))
    return shown


def list_glibc_checks(target: Target, glibc: Glibc) -> List[Check]:
    """Return what proves a malloc that was found by structure, and whether thread caches were found."""
    return [*_check_structure(glibc), *_check_caches(target, glibc)]


def _check_structure(glibc: Glibc) -> List[Check]:
    place = glibc.place
    if place is None:
        return []
    release = "" if glibc.version_text else "; its layouts are those of glibc %s" % place.releases
    if not place.bins:
        text = "main_arena as its file has it, next to mp_: malloc was never used%s" % release
        return [Check("by structure", None, text, None)]
    text = "main_arena by %d of 127 bins and a ring of %s%s, next to mp_%s"
    ring = " that comes back" if place.is_closed else ", damaged there"
    return [
        Check(
            "by structure",
            (place.bins == NBINS - 1 and place.is_closed) or None,
            text % (place.bins, count_noun(place.arenas, "arena"), ring, release),
            None,
        )
    ]


def _describe_way(glibc: Glibc, way: str) -> str:
    if glibc.is_untouched:
        return "its main arena: malloc was never used"
    return "structure, as the relocations that point there are not at hand" if glibc.locals is not None else way


def _check_caches(target: Target, glibc: Glibc) -> List[Check]:
    if glibc.tcache is None:
        return []
    threads, local = target.threads(), glibc.thread_local(target, "tcache")
    if local is None:
        hint = "chunks in thread caches count as used"
        return [Check("thread caches", False, "thread-local storage of %s not found" % glibc.module.name, hint)]
    known = len(threads) if glibc.is_untouched else sum(1 for address in local.addresses.values() if address is not None)
    return [
        Check(
            "thread caches",
            known == len(threads),
            "glibc's tcache found for %s of %s, by %s"
            % (format_number(known), count_noun(len(threads), "thread"), _describe_way(glibc, local.way)),
            None,
        )
    ]
