"""What `check` shows."""

from typing import Any, Dict, Iterator, Optional, Sequence

from gdbheapx.allocators.rules import BrokenRule, Suspect
from gdbheapx.columns import Table, columns_of
from gdbheapx.command import Style
from gdbheapx.report.text import show
from gdbheapx.units import Said, Size, say

NOTHING = "No corruption found."


def text(style: Style, rows: Sequence[BrokenRule]) -> Iterator[str]:
    """A table, and a sentence for each row below it."""
    if not rows:
        yield NOTHING
        return
    yield from show(style, [Table(columns_of(BrokenRule), [_row(one) for one in rows])])
    yield ""
    for one in rows:
        yield "%s%s: %s" % ("%s: " % one.address if one.address is not None else "", one.rule, one.what)


def _row(one: BrokenRule) -> Dict[str, Any]:
    return {
        **one._asdict(),
        "arena": "-" if one.arena is None else str(one.arena),
        "address": str(one.address) if one.address is not None else "-",
        "abort": one.abort or "-",
        "suspect": _suspect(one.suspect),
    }


def _suspect(one: Optional[Suspect]) -> Any:
    if one is None:
        return "-"
    what = "%s, %s" % (one.signature, one.owner or one.status) if one.signature else one.owner or one.status
    said: Said = say("%s (%s, %s)", one.address, Size(one.size_bytes), what)
    return said
