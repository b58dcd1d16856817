"""What `cold` shows."""

from typing import Any, Dict, Iterator, Optional

from gdbheapx.allocators.records import Page
from gdbheapx.analysis.cold import CLASS, IDLE, OWNER, WRITTEN, Cold, ColdRow
from gdbheapx.columns import Table, columns_of
from gdbheapx.command import Style
from gdbheapx.report import text
from gdbheapx.units import Size, plural, say, share

MOST_ROWS = 20
MEANS = {
    IDLE: "by idle page tracking: neither read nor written to in %.3g s",
    WRITTEN: "by write protection: not written to in %.3g s; what was only read looks cold, too",
}
BESIDE = "a page is as warm as its warmest block: more blocks may be untouched than are told"
READ = "%s of the pages that were not written to were read, it is not known which: at least %s of what is cold was neither"
UNWATCHED = "what is in RAM was not watched: --for SECONDS"


def data(cold: Cold, limit: Optional[int]) -> Dict[str, Any]:
    """The `data` member."""
    return {**cold._asdict(), "rows": list(cold.rows[:limit]), "rows_in_all": len(cold.rows)}


def lines(style: Style, cold: Cold, limit: Optional[int]) -> Iterator[str]:
    """The text."""
    yield from text.show(style, page(cold, limit))


def page(cold: Cold, limit: Optional[int]) -> Page:
    """The sum, by what means it is known, and the rows."""
    whole = cold.totals
    if whole.cold_bytes is None:
        yield say("In use: %s in %s; of their pages nothing is known", Size(whole.bytes), plural(whole.blocks, "block"))
    elif cold.means is None:
        yield say("Wholly in swap: %s of %s in use; whether the rest is touched is not known", Size(whole.cold_bytes), Size(whole.bytes))
    else:
        of, blocks = share(whole.cold_bytes, whole.bytes), plural(whole.cold_blocks or 0, "block")
        yield say("Cold: %s of %s in use (%s), in %s", Size(whole.cold_bytes), Size(whole.bytes), of, blocks)
    if whole.swapped_bytes:
        yield say("%s in swap: the kernel found them untouched when it needed room", Size(whole.swapped_bytes))
    yield UNWATCHED if cold.means is None else MEANS[cold.means] % (cold.watched_s or 0)
    if cold.read_bytes is not None:
        yield say(READ, Size(cold.read_bytes), Size(max(0, (whole.cold_bytes or 0) - cold.read_bytes)))
    if whole.cold_bytes:
        yield BESIDE
    if whole.unknown_bytes and cold.means is not None:
        yield say("Age not known: %s", Size(whole.unknown_bytes))
    shown = cold.rows[: MOST_ROWS if limit is None else limit]
    if shown:
        yield ""
        yield Table(columns_of(ColdRow), [_row(row, cold.by) for row in shown])
    if len(shown) < len(cold.rows):
        yield "%s: --limit N" % plural(len(cold.rows) - len(shown), "more row")


def _row(row: ColdRow, by: str) -> Dict[str, Any]:
    """One line."""
    signature = "(all)" if by == OWNER else row.signature or "not named"
    return {**row._asdict(), "signature": signature, "owner": "(all)" if by == CLASS else row.owner or "leaked"}
