"""What `owners` shows."""

from typing import Iterator, List, Optional, Sequence

from gdbheapx.allocators.records import Page
from gdbheapx.analysis.reachability.owners import Owned, Owners, Suspect
from gdbheapx.columns import Table, columns_of
from gdbheapx.command import Style
from gdbheapx.report import text
from gdbheapx.units import Size, plural, say


def lines(style: Style, found: Owners) -> Iterator[str]:
    """The text."""
    yield from text.show(style, page(found))


def one(style: Style, found: Owned) -> Iterator[str]:
    """The text of --of."""
    yield from text.show(style, [Table(columns_of(Owned), flat([found], 0))])


def page(found: Owners) -> Page:
    """Suspects, then all owners."""
    parts = say("In use: %s in %s", Size(found.used.bytes), plural(found.used.blocks, "block"))
    leaked = say("%s%s", "at most " if found.leaked_is_upper_bound and found.leaked.bytes else "", Size(found.leaked.bytes))
    yield say("%s; leaked: %s; held by several owners: %s", parts, leaked, Size(found.shared_bytes))
    yield ""
    for suspect in found.suspects:
        yield suspicion(suspect)
    if not found.suspects:
        yield "no owner retains 20 % or more"
    yield ""
    yield Table(columns_of(Owned), flat(found.owners, 0))


def suspicion(found: Suspect) -> str:
    """Who keeps much, and where it piles up."""
    what = "Suspect: %s keeps %s (%.1f %%)"
    if found.kind == "shared":
        what = "Suspect: %s, which several owners hold, keeps %s (%.1f %%)"
    said = say(what, _called(found.owner, found.signature), Size(found.retained_bytes), found.share_percent)
    point = found.accumulation
    if not point.children:
        return said
    where = _called(point.name, point.signature)
    if point.steps:
        said = say("%s; it piles up below %s, which owns %s directly", said, where, plural(point.children, "block"))
    else:
        said = say("%s, through %s that it owns directly", said, plural(point.children, "block"))
    if not point.parts:
        return said
    parts = ", ".join("%s (%.1f %%)" % (one.name, one.share_percent) for one in point.parts)
    return say("%s, most of it below %s", said, parts)


def _called(name: str, signature: Optional[str]) -> str:
    return "%s, %s" % (name, signature) if signature else name


def flat(rows: Sequence[Owned], depth: int) -> List[Owned]:
    """Rows with those below them indented."""
    found: List[Owned] = []
    for row in rows:
        found.append(row._replace(owner="  " * depth + row.owner, signature=row.signature or ""))
        found += flat(row.children, depth + 1)
    return found
