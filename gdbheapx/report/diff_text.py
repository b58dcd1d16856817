"""Format the output of `diff`."""

from typing import Any, Dict, Iterator, Optional, Sequence

from gdbheapx.allocators.records import Page
from gdbheapx.columns import TEXT, Column, ColumnsTable
from gdbheapx.command import TextStyle
from gdbheapx.hints import hint_again
from gdbheapx.report import text
from gdbheapx.snapshot.diff import DUMPED, Diff, DiffChange, DiffSide, GrowthPart, drop_unchanged
from gdbheapx.units import HEADING, Sentence, SentenceSize, count_noun, format_duration, make_cells, make_sentence, mark_sentence

MOST_ROWS = 10
COLUMNS = Column("change", field="change"), Column("old -> new", field="sizes")
LEAKS = {"leaked": "leaked", "maybe": "possibly leaked", "held": "reachable"}
"""The classes of `leaks`, the worst first, as its text calls them."""
Row = Dict[str, Any]


def make_diff_data(diff: Diff, limit: Optional[int]) -> Dict[str, Any]:
    """The `data` member."""
    lists = {name: getattr(diff, name) for name in ("arenas", "classes", "owners", "held", "leaks", "contexts")}
    return {**diff._asdict(), **{name: None if rows is None else list(rows[:limit]) for name, rows in lists.items()}}


def format_diff(style: TextStyle, diff: Diff, limit: Optional[int]) -> Iterator[str]:
    """The text."""
    yield from text.format_page(style, make_diff_page(diff, MOST_ROWS if limit is None else limit))


def make_diff_page(diff: Diff, limit: int) -> Page:
    """Verdict, then leaks, owners and classes, then the parts of memory, and what allocators have."""
    yield "old: %s" % _describe_side(diff.old)
    later = (
        "" if diff.between_s is None else ", %s %s" % (format_duration(abs(diff.between_s)), "later" if diff.between_s >= 0 else "EARLIER")
    )
    yield "new: %s%s" % (_describe_side(diff.new), later)
    if diff.old.executable != diff.new.executable:
        yield "these are two programs"
    yield ""
    yield mark_sentence(diff.verdict.what, HEADING)
    yield from ("  %s" % line for line in diff.verdict.details)
    yield from _make_leaked_page(diff)
    for title, name in (("owner", "owners"), ("class", "classes"), ("class of owner", "held")):
        rows = getattr(diff, name)
        if rows is not None:
            yield from _make_rows_page(title, [_make_change_row(row) for row in rows], limit)
            continue
        why = "; ".join("%s: %s" % (lacking.side, lacking.why) for lacking in diff.missing if lacking.what == name)
        yield from ("", "By %s: unknown (%s)" % (title, why))
    measure = ", bytes in the core" if diff.growth.measure == DUMPED else ""
    yield from _make_rows_page("part of memory%s" % measure, [_make_part_row(part) for part in diff.growth.parts], limit)
    yield from ("  %s" % why for why in diff.growth.lacking)
    states = [_make_change_row(row) for row in drop_unchanged(diff.states)]
    yield from _make_rows_page("RSS, and parts of allocators", states, len(states))
    yield from _make_rows_page("arena, in use", [_make_change_row(row) for row in diff.arenas], limit)
    yield from _make_rows_page("memory context, in use", [_make_change_row(row) for row in diff.contexts or ()], limit)
    if diff.next_steps:
        yield ""
        yield "Next steps"
    for step in diff.next_steps:
        yield make_sentence("  %s", step.sentence)


def _describe_side(side: DiffSide) -> str:
    pid = "" if side.pid is None else ", process %d" % side.pid
    if side.kind == "core":
        when = "core written %s" % side.taken if side.taken is not None else "core, unknown when it was written"
    else:
        when = side.taken or "unknown when"
    return "%s (%s%s, %s)" % (side.what, side.executable or side.kind, pid, when)


def _make_leaked_page(diff: Diff) -> Page:
    """The sums of `leaks`, if they changed."""
    why = "; ".join("%s: %s" % (lacking.side, lacking.why) for lacking in diff.missing if lacking.what == "leaks")
    if diff.leaks is None:
        yield from ("", "Leaked: unknown (%s)" % why)
        return
    order = list(LEAKS)
    rows = sorted(diff.leaks, key=lambda row: order.index(row.what))
    yield from _make_rows_page("leaked or reachable", [_make_change_row(row._replace(what=LEAKS[row.what])) for row in rows], len(rows))


def _make_part_row(part: GrowthPart) -> Row:
    """A part of the memory, and how much of it is in use."""
    used = make_sentence("")
    if part.used_diff_bytes:
        used = make_sentence("; in use %s%s", "-" if part.used_diff_bytes < 0 else "+", SentenceSize(abs(part.used_diff_bytes)))
    what = make_sentence("%s%s%s", part.what, _describe_only(part.only), used)
    if part.diff_bytes is None:
        return {"change": "?", "sizes": "?", "blocks": "", "what": what}
    return _make_row(part.diff_bytes, SentenceSize(part.old_bytes), SentenceSize(part.new_bytes), None, what)


def _make_change_row(change: DiffChange) -> Row:
    whose = " of %s" % change.whose if change.whose else ""
    old, new = (
        make_cells("at most %s" if change.at_most == side else "%s", SentenceSize(size))
        for side, size in (("old", change.old_bytes), ("new", change.new_bytes))
    )
    contents = ", %s" % change.contents if change.contents else ""
    what = make_sentence("%s%s%s%s", change.what, whose, _describe_only(change.only), contents)
    return _make_row(change.diff_bytes, old, new, change.diff_count, what)


def _make_row(diff_bytes: int, old: Any, new: Any, count: Optional[int], what: Sentence) -> Row:
    sign = "-" if diff_bytes < 0 else "+" if diff_bytes else ""
    return {
        "change": make_cells("%s%s", sign, SentenceSize(abs(diff_bytes))),
        "sizes": _describe_from_to(make_cells("%s", old), make_cells("%s", new)),
        "blocks": "" if count is None else "{:+,}".format(count),
        "what": what,
    }


def _describe_from_to(old: Sentence, new: Sentence) -> Sentence:
    """`162.8 -> 203.3 MiB`: a unit that both have is written once."""
    number, _, unit = old.rpartition(" ")
    return Sentence("%s -> %s" % (number if unit == new.rpartition(" ")[2] else old, new), "%s -> %s" % (old.plain, new.plain))


def _make_rows_page(title: str, rows: Sequence[Row], limit: int) -> Page:
    """A table whose last column is named by `title`; nothing for no rows."""
    if rows:
        shown = rows[:limit]
        blocks = [Column("blocks", field="blocks", goes=1)] if any(row["blocks"] for row in shown) else []
        yield ""
        yield ColumnsTable([*COLUMNS, *blocks, Column(title, TEXT, field="what")], shown)
    if len(rows) > limit:
        yield "%s: %s" % (count_noun(len(rows) - limit, "more row"), hint_again("--limit %d", len(rows)))


def _describe_only(side: Optional[str]) -> str:
    """A row that one side does not have, which is not the same as 0 there."""
    return ", only in %s" % side if side is not None else ""
