"""Content of the page of `diff`: figures as the records have them."""

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from gdbheapx.addons.views.html.render import Envelope, make_step
from gdbheapx.addons.views.html.report_view import PagePart
from gdbheapx.hints import Write, quote_word, write_alone
from gdbheapx.report.text import UncutText
from gdbheapx.snapshot import container
from gdbheapx.snapshot.diff import KEPT, Diff, DiffSide

OPEN_ROWS, MOST_ROWS = 15, 300
"""Of one list: seen at once, and seen at all."""
OPEN_LISTS = 4
"""Seen at once: leaks, classes, owners, and classes of owners."""
FORMS = {"core": "core", "process": "running process"}
PARTS = ("parts", "Parts of the memory", "In RAM and in swap, of a core in the file: allocators, runtimes' pools, stacks, files", "part")
"""A member of `growth`."""
STATE = ("states", "State", "Memory in use, free memory that the allocator keeps, and its own words for parts of it", "state")
STATES = (("used", "in use"), ("kept", KEPT))
"""What a heap holds, with its look: members of `states` that belong to no allocator alone."""
LISTS = (
    ("leaks", "Leaked or reachable", "Reachable blocks (held), blocks that may be leaked (maybe), and leaked ones", "class"),
    ("classes", "By class", "Classes, types and shapes of blocks in use", "type"),
    (
        "owners",
        "By owner",
        "Memory that one variable, thread or mapping alone keeps; single blocks have no name to compare",
        "owner",
    ),
    ("held", "By owner and class", "Memory of the owners by class; blocks without a single named owner are one row", "type"),
    ("arenas", "Arenas", "Memory in use in each arena", "arena"),
    ("contexts", "Memory contexts", "BIND's own counts, by the name of the context", "context"),
)
"""Members with rows of changes: heading, caption, what a row is. Who and what grew comes before states and parts of the memory."""
FIRST = ("leaks", "owners", "classes", "held")
LATER = ("held", "contexts")
"""Documents of earlier releases have none, and contexts are BIND's."""


def diff_page_values(envelope: Envelope, data: Mapping[str, Any], made: str, line: Write = write_alone) -> Dict[str, Any]:
    """Return the values for the template. `made`: the time of the page, as text."""
    diff: Diff = container.decode_value(Diff, data)
    sides = {"Old": diff.old, "New": diff.new}
    bars = []
    for figure in ("old_bytes", "new_bytes"):  # the memory in use and the free memory of this side
        known = {state.what: getattr(state, figure) for state in reversed(diff.states) if not state.whose}
        bars.append([PagePart(look, name, known.get(name)) for look, name in STATES])
    programs = diff.old.executable, diff.new.executable
    lists = [member for member in LISTS if member[0] not in LATER or getattr(diff, member[0]) is not None]
    names = " ".join(quote_word(side.what) for side in sides.values())
    return {
        "title": "What grew: %s" % (programs[1] or programs[0] or "two readings").rsplit("/", 1)[-1],
        "made": made,
        "version": envelope.tool.version,
        "sides": [(heading, _list_facts(side)) for heading, side in sides.items()],
        "two_programs": None not in programs and programs[0] != programs[1],
        "partial": envelope.partial,
        "problems": [problem[1:] for problem in envelope.problems],
        "verdict": diff.verdict.what,
        "details": diff.verdict.details,
        "growth": diff.growth_bytes,
        "bars": list(zip(sides, bars)),
        "bars_scale": max(sum(part.bytes or 0 for part in bar) for bar in bars),
        "bar_key": [PagePart(look, name, None) for look, name in STATES],
        "change_key": [PagePart("other", "grew", None), PagePart("free", "fell", None)],
        "states": _make_changes(diff, diff.states, *STATE),
        "lists": [
            *(_make_changes(diff, getattr(diff, member[0]), *member) for member in lists if member[0] in FIRST),
            _make_changes(diff, diff.growth.parts, *PARTS),
            *(_make_changes(diff, getattr(diff, member[0]), *member) for member in lists if member[0] not in FIRST),
        ],
        "steps": [make_step(advice) for advice in diff.next_steps],
        "again": UncutText("gdbheapx diff %s --limit %d" % (names, 10 * MOST_ROWS)),
        "open_rows": OPEN_ROWS,
        "open_lists": OPEN_LISTS,
    }


def _list_facts(side: DiffSide) -> List[Tuple[str, str]]:
    """About one side, as names and texts."""
    of, when = ("core", "Core written") if side.kind == "core" else ("running process", "Looked at")
    kind = "snapshot of a %s" % of if side.form == "snapshot" else FORMS.get(side.form, side.form)
    facts = [("Given as", side.what), ("Kind", kind), ("Program", side.executable)]
    facts += [("Process", None if side.pid is None else str(side.pid)), (when, side.taken)]
    return [(name, text) for name, text in facts if text is not None]


def _make_changes(diff: Diff, rows: Optional[Sequence[Any]], id_: str, title: str, caption: str, what: str) -> Dict[str, Any]:
    """Changes of one kind. `rows`: of Change, or of the parts of `growth`, which are not counted; `most`: the largest, which fills half of
    the picture; `unknown`: which side lacks it, and why."""
    unknown = [(lacking.side, lacking.why) for lacking in diff.missing if lacking.what == id_] if rows is None else []
    shown = (rows or ())[:MOST_ROWS]
    most = max((abs(change.diff_bytes) for change in shown if change.diff_bytes is not None), default=0)
    counted = any(getattr(change, "diff_count", None) is not None for change in shown)
    made = {"id": id_, "title": title, "caption": caption, "what": what, "rows": shown, "more": len(rows or ()) - len(shown)}
    return {**made, "most": most, "counted": counted, "unknown": unknown}
