"""Format the output of `cold`."""

from typing import Any, Dict, Iterator, Optional

from gdbheapx.addons.labs.cold.find import CLASS, IDLE, OWNER, WRITTEN, Cold, ColdRow
from gdbheapx.allocators.records import Page
from gdbheapx.columns import ColumnsTable, columns_of
from gdbheapx.command import TextStyle
from gdbheapx.hints import hint_again
from gdbheapx.report import text
from gdbheapx.units import SentenceSize, count_noun, format_duration, format_share, make_sentence

MOST_ROWS = 20
MEANS = {
    IDLE: "Measured by idle page tracking: reads and writes.",
    WRITTEN: "Measured by write protection: includes memory that was only read (--reads counts that by mapping).",
}
ACCESSES = "Measured by write protection and the kernel's marks of accesses: reads and writes."
SWAPPED = "%s in swap, untouched since the kernel swapped it out"
BESIDE = "One hot block makes its whole page look hot, so this is a lower bound."
READ = "Measured by write protection; %s of the pages without a write were read (unknown which): at least %s was neither."
UNWATCHED = "Memory in RAM was not watched: add --for SECONDS"
UNKNOWN = "Age unknown: %s, on pages that are not in RAM, were mapped while watching, or are shared"


def make_cold_data(cold: Cold, limit: Optional[int]) -> Dict[str, Any]:
    """The `data` member."""
    return {**cold._asdict(), "rows": list(cold.rows[:limit]), "rows_in_all": len(cold.rows)}


def format_cold(style: TextStyle, cold: Cold, limit: Optional[int]) -> Iterator[str]:
    """The text."""
    yield from text.format_page(style, make_cold_page(cold, limit))


def make_cold_page(cold: Cold, limit: Optional[int]) -> Page:
    """The sum, by what means it is known, and the rows."""
    whole = cold.totals
    is_watched, has_swap = cold.means is not None, whole.swapped_bytes != 0
    tells_reads = cold.means == IDLE or cold.read_bytes == 0
    if whole.cold_bytes is None:
        yield make_sentence(
            "In use: %s in %s; the age of their pages is unknown", SentenceSize(whole.bytes), count_noun(whole.blocks, "block")
        )
    elif not is_watched and not has_swap:
        yield make_sentence("In swap: 0 B of %s in use", SentenceSize(whole.bytes))
    else:
        how = "Untouched for %s" if tells_reads else "Not written to for %s"
        ways = [how % format_duration(cold.watched_s or 0), "or wholly in swap"] if is_watched else ["Wholly in swap"]
        of, blocks = format_share(whole.cold_bytes, whole.bytes), count_noun(whole.cold_blocks or 0, "block")
        said = " ".join(ways if has_swap else ways[:1])
        yield make_sentence("%s: %s of %s in use (%s), in %s", said, SentenceSize(whole.cold_bytes), SentenceSize(whole.bytes), of, blocks)
    if cold.read_bytes:
        yield make_sentence(READ, SentenceSize(cold.read_bytes), SentenceSize(max(0, (whole.cold_bytes or 0) - cold.read_bytes)))
    else:
        yield UNWATCHED if cold.means is None else ACCESSES if cold.read_bytes == 0 else MEANS[cold.means]
    if whole.swapped_bytes:
        yield make_sentence(SWAPPED, SentenceSize(whole.swapped_bytes))
    if whole.cold_bytes:
        yield BESIDE
    if whole.unknown_bytes and is_watched:
        yield make_sentence(UNKNOWN, SentenceSize(whole.unknown_bytes))
    if not is_watched and not has_swap:
        return  # no row would say anything
    shown = cold.rows[: MOST_ROWS if limit is None else limit]
    if shown:
        yield ""
        yield ColumnsTable(columns_of(ColdRow), [_make_cold_row(row, cold.by) for row in shown])
    if len(shown) < len(cold.rows):
        yield "%s: %s" % (count_noun(len(cold.rows) - len(shown), "more row"), hint_again("--limit %d", len(cold.rows)))


def _make_cold_row(row: ColdRow, by: str) -> Dict[str, Any]:
    signature = "(all)" if by == OWNER else row.signature or "not named"
    return {**row._asdict(), "signature": signature, "owner": "(all)" if by == CLASS else row.owner or "leaked"}
