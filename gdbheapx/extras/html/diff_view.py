"""What the page of `diff` shows, from its JSON document: figures as they stand there."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.extras.html.memory_view import Part
from gdbheapx.extras.html.reading import Step, Whole, asking, quoted, record, rows, whole, words

OPEN_ROWS, MOST_ROWS = 15, 300
"""Of one list: seen at once, and seen at all."""
SIDES = ("old", "new")
FORMS = {"core": "core", "process": "running process"}
PARTS = ("parts", "Parts of the memory", "In RAM and in swap, of a core in the file: allocators, runtimes' pools, stacks, files", "part")
"""A member of `growth`."""
LISTS = (
    ("arenas", "Arenas", "What each arena has in use", "arena"),
    ("classes", "What it is", "Classes, types and shapes of what is in use", "what"),
    ("owners", "Who keeps it", "What only this variable, thread or mapping keeps; single blocks have no name to compare them by", "owner"),
    ("leaks", "Leaked or held", "What something leads to, what may be led to, and what nothing points to", "evidence"),
)
"""Members with rows of changes: heading, caption, what a row is."""


class Change(NamedTuple):
    """Something that changed."""

    name: str
    whose: str
    old: Optional[int]
    new: Optional[int]
    diff: Optional[int]
    blocks: Optional[int]
    """More blocks than before."""
    only: Optional[str]
    """`old` or `new`: the other side has no such thing."""


class Changes(NamedTuple):
    """One list of them."""

    id: str
    title: str
    caption: str
    what: str
    rows: Sequence[Change]
    more: int
    most: int
    """The largest change: it fills half of the picture."""
    counted: bool
    unknown: Sequence[Tuple[str, str]]
    """Where it cannot be compared: which side lacks it, and why."""


def view(document: Mapping[str, Any], made: str) -> Dict[str, Any]:
    """What the template is filled with. `made`: when, as text."""
    data = record(document, "data")
    sides = {one: record(data, one) for one in SIDES}
    states = _changes(data, "states", "State", "What is in use, what the allocator keeps, and its own words for parts of it", "state")
    programs, grown = [words(sides[one], "executable") for one in SIDES], record(data, "growth")
    return {
        "title": "What grew: %s" % _program(sides["new"], sides["old"]),
        "made": made,
        "version": words(record(document, "tool"), "version") or "",
        "sides": [(_heading(one), _facts(sides[one])) for one in SIDES],
        "two_programs": None not in programs and programs[0] != programs[1],
        "partial": document.get("partial") is True,
        "problems": [(words(one, "where"), words(one, "what"), words(one, "hint")) for one in rows(document, "problems")],
        "verdict": words(record(data, "verdict"), "what"),
        "growth": whole(data, "growth_bytes"),
        "bars": [(_heading(one), _bar(data, one)) for one in SIDES],
        "bars_scale": max(sum(part.bytes or 0 for part in _bar(data, one)) for one in SIDES),
        "bar_key": [Part(look, name, None) for look, name in STATES],
        "change_key": [Part("other", "grew", None), Part("free", "fell", None)],
        "states": states,
        "lists": [*([_changes(grown, *PARTS)] if grown else []), *(_changes(data, *one) for one in LISTS)],
        "steps": [_step(sides, one) for one in rows(data, "next")],
        "again": _again(sides),
        "open_rows": OPEN_ROWS,
    }


STATES = (("used", "in use"), ("kept", "kept by the allocator"))
"""What a heap holds, with its look: members of `states` that belong to no allocator alone."""


def _heading(side: str) -> str:
    return {"old": "Old", "new": "New"}[side]


def _program(*sides: Mapping[str, Any]) -> str:
    return next((name.rsplit("/", 1)[-1] for one in sides if (name := words(one, "executable"))), "two looks")


def _facts(side: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """About one side, as names and texts."""
    pid, form = whole(side, "pid"), words(side, "form")
    of = "core" if words(side, "kind") == "core" else "running process"
    kind = "snapshot of a %s" % of if form == "snapshot" else FORMS.get(form or "", form)
    found = [("Given as", words(side, "what")), ("Kind", kind)]
    when = "Core written" if words(side, "kind") == "core" else "Looked at"
    found += [("Program", words(side, "executable")), ("Process", None if pid is None else str(pid)), (when, words(side, "taken"))]
    return [(name, text) for name, text in found if text is not None]


def _bar(data: Mapping[str, Any], side: str) -> List[Part]:
    """What is held on this side."""
    known = {words(one, "what"): whole(one, side + "_bytes") for one in reversed(rows(data, "states")) if not words(one, "whose")}
    return [Part(look, name, known.get(name)) for look, name in STATES]


def _changes(data: Mapping[str, Any], id_: str, title: str, caption: str, what: str) -> Changes:
    every = [_row(one) for one in rows(data, id_)]
    shown = every[:MOST_ROWS]
    lacking = [one for one in rows(data, "missing") if words(one, "what") == id_] if data.get(id_) is None else []
    unknown = [(words(one, "side") or "?", words(one, "why") or "") for one in lacking]
    if data.get(id_) is None and not unknown:
        unknown = [("?", "this document does not have it")]
    most = max((abs(one.diff) for one in shown if one.diff is not None), default=0)
    counted = any(one.blocks is not None for one in shown)
    return Changes(id_, title, caption, what, shown, len(every) - len(shown), most, counted, unknown)


def _row(one: Mapping[str, Any]) -> Change:
    only = words(one, "only")
    return Change(
        name=words(one, "what") or "not named",
        whose=words(one, "whose") or "",
        old=whole(one, "old_bytes"),
        new=whole(one, "new_bytes"),
        diff=whole(one, "diff_bytes"),
        blocks=whole(one, "diff_count"),
        only=only if only in SIDES else None,
    )


def _step(sides: Mapping[str, Mapping[str, Any]], one: Mapping[str, Any]) -> Step:
    """A command about one of the two."""
    side, line = sides.get(words(one, "side") or "", {}), words(one, "command")
    name = words(side, "what")
    if line is None or name is None:
        return Step(None, words(one, "why") or "")
    return Step(asking(words(side, "form"), name, line), words(one, "why") or "")


def _again(sides: Mapping[str, Mapping[str, Any]]) -> str:
    """The same as text, with every row."""
    return Whole("gdbheapx diff %s --limit %d" % (" ".join(quoted(words(sides[one], "what") or "FILE") for one in SIDES), 10 * MOST_ROWS))
