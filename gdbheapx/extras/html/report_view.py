"""What the page of `report` shows, from the JSON document of a look: figures as they stand there, and sums of them."""

import math
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import columns, units
from gdbheapx.extras.html.geometry import Branch
from gdbheapx.extras.html.memory_view import (
    ACROSS,
    ARENA_NAMES,
    MAP_NAMES,
    MOST_ARENAS,
    MOST_MAPS,
    SHARES,
    Part,
    arenas_of,
    classes_of,
    held,
    less,
    map_of,
    runtime,
    split,
)
from gdbheapx.extras.html.reading import command_line, record, rows, step, whole, words

MOST_TREEMAP, MOST_CENSUS = 40, 100
MOST_OWNERS = 400
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


def view(document: Mapping[str, Any], made: str) -> Dict[str, Any]:
    """What the template is filled with. `made`: when, as text."""
    data = record(document, "data")
    arenas = arenas_of(data)
    looks = [look for look in SHARES if any(part.look == look and part.bytes != 0 for line in arenas for part in line.parts)]
    return {
        "title": _title(document),
        "made": made,
        "version": words(record(document, "tool"), "version") or "",
        "target": _target(document),
        "partial": document.get("partial") is True,
        "problems": [(words(one, "where"), words(one, "what"), words(one, "hint")) for one in rows(document, "problems")],
        "verdict": _verdict(data),
        "others": _others(data),
        "findings": _findings(data),
        "split": split(data),
        "tables": [runtime(one) for one in rows(data, "runtimes")],
        "held": [(name, held(data, name)) for name in record(data, "held")],
        "arenas": arenas,
        "arena_headings": [
            ("arena", "name"),
            ("parts", "left"),
            *((name, "") for look, name in zip(SHARES, ARENA_NAMES) if look in looks),
        ],
        "arena_looks": looks,
        "arena_key": [Part(look, name, None) for look, name in zip(SHARES, ARENA_NAMES) if look in looks],
        "arena_scale": max((sum(part.bytes or 0 for part in line.parts) for line in arenas), default=0),
        "arenas_line": command_line(document, "arenas"),
        "more_arenas": max(0, len(rows(data, "arenas")) - MOST_ARENAS),
        "maps": [map_of(one) for one in rows(data, "page", "map")[:MOST_MAPS]],
        "classes": [one for one in map(classes_of, rows(data, "page", "histogram")) if one.rows],
        "census": census(data),
        "owners": owners(data),
        "suspects": [suspect(one) for one in rows(data, "page", "owners", "suspects")],
        "decay": decay(data),
        "more_decay": whole(record(data, "page"), "more_decay") or 0,
        "steps": [step(document, one) for one in rows(data, "next")],
        "deeper": command_line(document, "report --deep --html FILE"),
        "owners_line": command_line(document, "owners"),
        "census_line": command_line(document, "census"),
        "page_line": command_line(document, "report --html FILE"),
        "across": ACROSS,
        "map_headings": [("from", ""), *((name, "") for name in MAP_NAMES)],
        "class_parts": [Part("used", "in use", None), Part("free", "free", None)],
        "decay_columns": DECAY,
        "decay_headings": [(heading, "" if is_figure else "left") for _, heading, is_figure in DECAY],
    }


def _title(document: Mapping[str, Any]) -> str:
    target = record(document, "target")
    program = (words(target, "executable") or "a process").rsplit("/", 1)[-1]
    return "%s, process %s" % (program, target.get("pid")) if isinstance(target.get("pid"), int) else program


def _target(document: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """Facts about the target, as names and texts."""
    target, tool = record(document, "target"), record(document, "tool")
    found = [("Program", words(target, "executable"))]
    found += [("Core", words(target, "core")), ("Snapshot", words(target, "snapshot"))]
    if words(target, "taken") is not None:
        found.append(("Taken", "%s, of a %s" % (words(target, "taken"), "core" if target.get("taken_of") == "core" else "running process")))
    pid, stopped = whole(target, "pid"), target.get("stopped_ms")
    found.append(("Process", None if pid is None else str(pid)))
    if isinstance(stopped, (int, float)) and not isinstance(stopped, bool):
        found.append(("Stood still for", "%.0f ms" % stopped))
    for one in rows(document, "allocators"):
        version, where = words(one, "version"), words(one, "object")
        owner = ", owns malloc" if one.get("owns_malloc") is True else ""
        found.append(("Allocator", "%s %s in %s%s" % (words(one, "id") or "?", version or "(version not known)", where or "?", owner)))
    found.append(("Read by", "gdbheapx %s%s" % (words(tool, "version") or "?", ", gdb %s" % tool["gdb"] if words(tool, "gdb") else "")))
    return [(name, text) for name, text in found if text is not None]


def _finding(one: Mapping[str, Any]) -> Dict[str, Any]:
    return {"what": words(one, "what") or "", "evidence": words(one, "evidence"), "hint": words(one, "hint")}


def _findings(data: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Those that no verdict says."""
    verdicts = [record(data, "verdict"), *(record(data, "verdicts", name) for name in record(data, "verdicts"))]
    said = [line for one in verdicts for line in rows(one, "lines")]
    return [_finding(one) for one in rows(data, "findings") if one not in said]


def _verdict(data: Mapping[str, Any]) -> Dict[str, Any]:
    found = record(data, "verdict")
    lines = [_finding(one) for one in rows(found, "lines")]
    return {"kind": words(found, "kind"), "sure": words(found, "sure"), "lines": lines}


def _others(data: Mapping[str, Any]) -> List[Tuple[str, Dict[str, Any]]]:
    """Of further allocators that hold enough to be judged."""
    found, shown = record(data, "verdicts"), data.get("shown")
    names = [name for name in list(found)[1:] if isinstance(shown, list) and name in shown]
    return [(name, _verdict({"verdict": found[name]})) for name in names if record(found, name).get("kind") != "small"]
