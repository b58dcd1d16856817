"""What is in use, who keeps it, and how far purging is: figures of a document."""

import math
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from gdbheapx import columns, units
from gdbheapx.extras.html.geometry import Branch
from gdbheapx.extras.html.memory_view import less
from gdbheapx.extras.html.reading import record, rows, whole, words

MOST_TREEMAP, MOST_CENSUS = 40, 100
MOST_OWNERS = 400


class Named(NamedTuple):
    """A row of the census."""

    name: str
    module: str
    sure: str
    blocks: Optional[int]
    bytes: Optional[int]
    sample: Optional[str]


class Census(NamedTuple):
    """What is in use."""

    rows: Sequence[Named]
    blocks: Optional[int]
    bytes: Optional[int]
    more: int
    drawn: Sequence[Named]
    """The largest, and the rest together."""


class Owner(NamedTuple):
    """A row of owners; `depth` levels below the top."""

    name: str
    kind: str
    bytes: Optional[int]
    blocks: Optional[int]
    depth: int


class Owners(NamedTuple):
    """Who keeps what is in use."""

    rows: Sequence[Owner]
    tree: Sequence[Branch]
    used_bytes: Optional[int]
    leaked_bytes: Optional[int]
    shared_bytes: Optional[int]


DECAY = (
    ("arena", "arena", False),
    ("state", "state", False),
    ("decay_ms", "decay time", True),
    ("pages", "pages", True),
    ("bytes", "bytes", True),
    ("sweeps", "sweeps", True),
    ("madvises", "madvises", True),
    ("purged_pages", "purged pages", True),
    ("late_ms", "late", True),
    ("driven", "driven", False),
    ("why", "why", False),
)
"""Members of a row of `decay`, their headings, and whether they are figures."""


def census(data: Mapping[str, Any]) -> Optional[Census]:
    """The rows of the census; None where the blocks were not looked at."""
    found = record(data, "page", "census")
    if not found:
        return None
    named = [_named(one) for one in rows(found, "rows")]
    total = whole(found, "bytes")
    drawn = [one for one in named[:MOST_TREEMAP] if one.bytes]
    rest = less(total, sum(one.bytes or 0 for one in drawn))
    if rest:
        drawn.append(Named("everything else", "", "", None, rest, None))
    more = (whole(found, "more_rows") or 0) + max(0, len(named) - MOST_CENSUS)
    return Census(named[:MOST_CENSUS], whole(found, "blocks"), total, more, drawn)


def _named(one: Mapping[str, Any]) -> Named:
    size = whole(one, "size_bytes")
    name = words(one, "signature") or ("blocks of %s that nothing names" % units.sentence_size(size) if size is not None else "not named")
    figures = whole(one, "blocks"), whole(one, "bytes"), words(one, "sample")
    return Named(name, words(one, "module") or "", words(one, "sure") or "", *figures)


def owners(data: Mapping[str, Any]) -> Optional[Owners]:
    """The owners, by levels; None where they were not looked for."""
    found = record(data, "page", "owners")
    if not found:
        return None
    listed: List[Owner] = []

    def branches(many: Sequence[Mapping[str, Any]], depth: int) -> List[Branch]:
        made = []
        for one in many:
            if len(listed) >= MOST_OWNERS or depth > 8:
                break
            place, kept = len(listed), whole(one, "retained_bytes")
            what, name = words(one, "signature"), words(one, "owner") or "not named"
            name = "%s: %s" % (what, name) if what else name
            listed.append(Owner(name, words(one, "kind") or "", kept, whole(one, "retained_blocks"), depth))
            made.append(Branch(place, kept or 0, branches(rows(one, "children"), depth + 1)))
        return made

    tree = branches(rows(found, "owners"), 0)
    used, leaked = whole(record(found, "used"), "bytes"), whole(record(found, "leaked"), "bytes")
    return Owners(listed, tree, used, leaked, whole(found, "shared_bytes"))


def suspect(one: Mapping[str, Any]) -> Dict[str, Any]:
    """Who keeps much, and where it piles up."""
    point = record(one, "accumulation")
    return {
        "owner": words(one, "owner") or "not named",
        "bytes": whole(one, "retained_bytes"),
        "point": words(point, "name") if whole(point, "children") else None,
        "signature": words(point, "signature"),
        "children": whole(point, "children"),
    }


def decay(data: Mapping[str, Any]) -> Optional[List[Dict[str, Any]]]:
    """The rows of `decay` as text; None where nothing purges by time."""
    if not isinstance(record(data, "page").get("decay"), list):
        return None
    return [{name: _decay_cell(name, one.get(name)) for name, _, _ in DECAY} for one in rows(data, "page", "decay")]


def _decay_cell(name: str, value: Any) -> Optional[str]:
    """One cell as `decay` has it."""
    if isinstance(value, str) or value is None:
        return value if value is not None or name != "late_ms" else "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    if name == "decay_ms":
        return units.milliseconds(int(value))
    if name == "late_ms":
        return columns.cell(columns.Column("", columns.LATE), value, False)
    return units.size(int(value)) if name == "bytes" else units.number(int(value))
