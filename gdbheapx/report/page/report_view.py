"""What the page of `report` shows, from the JSON document of a look: figures as they stand there, and sums of them."""

import math
import shlex
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import columns, command, units
from gdbheapx.report.page.geometry import Branch
from gdbheapx.report.page.reading import Whole, record, rows, summed, whole, words

MOST_ARENAS, MOST_SPLIT, MOST_MAPS = 24, 24, 8
MOST_CLASSES = 400
"""Rows of one table of size classes."""
MOST_COLUMNS = 48
"""Columns of one picture of size classes."""
MOST_TREEMAP, MOST_CENSUS = 40, 100
MOST_OWNERS = 400
ACROSS, MAP_LINES = 80, 50
"""Cells side by side in a map, and lines of its table."""

STATES = ("used", "pinned", "cached", "own", "free", "gone")
"""Kinds of pages in a map, in the order in which a cell has them; style.css has a colour and a pattern for each."""
MAP_NAMES = ("in use", "pinned", "in caches", "the allocator's own", "free", "returned")
SHARES = ("used", "cached", "free", "kept", "own", "other")
"""Parts of an arena."""
ARENA_NAMES = ("used", "in caches", "free, can be returned", "free, kept", "the allocator's own", "not read")


class Part(NamedTuple):
    """A part of something: a segment of a bar, an entry of a legend, a row of a table."""

    look: str
    """Its class in style.css."""
    name: str
    bytes: Optional[int]
    note: str = ""


class Line(NamedTuple):
    """A bar with its name."""

    name: str
    parts: Sequence[Part]
    whole_bytes: Optional[int]


class MapView(NamedTuple):
    """The map of one heap."""

    allocator: str
    page_bytes: Optional[int]
    cell_bytes: Optional[int]
    parts: Sequence[Part]
    cells: Sequence[Sequence[Optional[int]]]
    """Figures in the order of `parts`."""
    lines: Sequence[Tuple[str, Sequence[Optional[int]]]]
    """Several cells each: the address of the first, and their sums."""
    whole_bytes: Optional[int]


class SizeRow(NamedTuple):
    """Blocks of one size class."""

    sizes: str
    used: Optional[int]
    used_bytes: Optional[int]
    free: Optional[int]
    free_bytes: Optional[int]
    cached: Optional[int]


class Classes(NamedTuple):
    """The blocks of one heap by size."""

    allocator: str
    rows: Sequence[SizeRow]
    more: int
    bars: Sequence[Tuple[str, Sequence[Optional[int]]]]
    """(sizes, (used, free)): several classes each where there are many."""


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


class Step(NamedTuple):
    """What to do next."""

    line: Optional[str]
    """To type in a shell; None: it is no command."""
    why: str


def view(document: Mapping[str, Any], made: str) -> Dict[str, Any]:
    """What the template is filled with. `made`: when, as text."""
    data = record(document, "data")
    arenas = _arenas(data)
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
        "findings": [_finding(one) for one in rows(data, "findings")],
        "split": _split(data),
        "tables": [_runtime(one) for one in rows(data, "runtimes")],
        "held": [(name, _held(data, name)) for name in record(data, "held")],
        "arenas": arenas,
        "arena_headings": [("arena", "name"), ("parts", "left"), *((name, "") for look, name in zip(SHARES, ARENA_NAMES) if look in looks)],
        "arena_looks": looks,
        "arena_key": [Part(look, name, None) for look, name in zip(SHARES, ARENA_NAMES) if look in looks],
        "arena_scale": max((sum(part.bytes or 0 for part in line.parts) for line in arenas), default=0),
        "arenas_line": command_line(document, "arenas"),
        "more_arenas": max(0, len(rows(data, "arenas")) - MOST_ARENAS),
        "maps": [_map(one) for one in rows(data, "page", "map")[:MOST_MAPS]],
        "classes": [one for one in map(_classes, rows(data, "page", "histogram")) if one.rows],
        "census": _census(data),
        "owners": _owners(data),
        "suspects": [_suspect(one) for one in rows(data, "page", "owners", "suspects")],
        "decay": _decay(data),
        "more_decay": whole(record(data, "page"), "more_decay") or 0,
        "steps": [_step(document, one) for one in rows(data, "next")],
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


def _held(data: Mapping[str, Any], name: str) -> List[Part]:
    return [Part("", words(one, "name") or "", whole(one, "bytes")) for one in rows(data, "held", name)]


def _title(document: Mapping[str, Any]) -> str:
    target = record(document, "target")
    program = (words(target, "executable") or "a process").rsplit("/", 1)[-1]
    return "%s, process %s" % (program, target.get("pid")) if isinstance(target.get("pid"), int) else program


def _target(document: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """Facts about the target, as names and texts."""
    target, tool = record(document, "target"), record(document, "tool")
    found = [("Program", words(target, "executable"))]
    found.append(("Core", words(target, "core")))
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


def command_line(document: Mapping[str, Any], line: str) -> str:
    """A line for a shell that asks the same target something else."""
    target = record(document, "target")
    core, pid, program = words(target, "core"), whole(target, "pid"), words(target, "executable")
    if core is not None:
        return Whole("gdbheapx --core %s %s" % (quoted(core), line))
    if pid is not None and target.get("kind") == "live":
        return Whole("gdbheapx --pid %d %s" % (pid, line))
    return Whole("gdbheapx %s%s" % ("--exe %s " % quoted(program) if program and target.get("kind") == "remote" else "", line))


def quoted(text: str) -> str:
    """A word for a shell. What does not show is written so that bash reads it as it is: a line that is copied must not end early."""
    if text.isprintable():
        return shlex.quote(text)
    parts = []
    for byte in text.encode("utf-8", "surrogateescape" if _has_bytes(text) else "backslashreplace"):
        parts.append(chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else "\\x%02x" % byte)
    return "$'%s'" % "".join(parts)


def _has_bytes(text: str) -> bool:
    """Each half of a pair stands for a byte that was no UTF-8."""
    return all(0xDC80 <= ord(one) <= 0xDCFF for one in text if 0xD800 <= ord(one) <= 0xDFFF)


def _finding(one: Mapping[str, Any]) -> Dict[str, Any]:
    return {"what": words(one, "what") or "", "evidence": words(one, "evidence"), "hint": words(one, "hint")}


def _verdict(data: Mapping[str, Any]) -> Dict[str, Any]:
    found = record(data, "verdict")
    lines = [_finding(one) for one in rows(found, "lines")]
    return {"kind": words(found, "kind"), "sure": words(found, "sure"), "lines": lines}


def _others(data: Mapping[str, Any]) -> List[Tuple[str, Dict[str, Any]]]:
    """Of further allocators that hold enough to be judged."""
    found, shown = record(data, "verdicts"), data.get("shown")
    names = [name for name in list(found)[1:] if isinstance(shown, list) and name in shown]
    return [(name, _verdict({"verdict": found[name]})) for name in names if record(found, name).get("kind") != "small"]


def _split(data: Mapping[str, Any]) -> Dict[str, Any]:
    memory = record(data, "memory")
    live = memory.get("measure") == "resident"
    key, parts = "resident_bytes" if live else "dumped_bytes", rows(data, "split")
    made = [Part("part%d" % (place % 6), _part_name(one), whole(one, key)) for place, one in enumerate(parts[:MOST_SPLIT])]
    if len(parts) > MOST_SPLIT:
        rest = [whole(one, key) for one in parts[MOST_SPLIT:]]
        made.append(Part("other", "%d smaller parts" % len(rest), columns.add(rest)))
    beside = [("shared_bytes", "shared"), ("pss_bytes", "PSS"), ("swapped_bytes", "swapped"), ("huge_bytes", "huge pages")]
    beside += [("hugetlb_bytes", "hugetlb")]
    more = [(name, [whole(one, field) for one in parts[: len(made)]]) for field, name in beside if any(whole(one, field) for one in parts)]
    return {
        "known": "split" in data and data["split"] is not None,
        "live": live,
        "parts": made,
        "more": more,
        "headings": [("whose", "name"), ("bytes", ""), ("share", ""), *((name, "") for name, _ in more)],
        "guessed": any(one.get("sure") == "guess" for one in parts),
        "total": whole(memory, "total_bytes"),
        "beside": [(name, whole(memory, field)) for field, name in beside if whole(memory, field)],
        "largest": [(words(one, "kind") or "", words(one, "name") or "", whole(one, "bytes")) for one in rows(memory, "largest")],
    }


def _part_name(one: Mapping[str, Any]) -> str:
    return "%s%s" % (words(one, "name") or "not named", " ?" if one.get("sure") == "guess" else "")


def _runtime(one: Mapping[str, Any]) -> Line:
    parts = [Part("part%d" % (place % 6), words(row, "name") or "", whole(row, "bytes")) for place, row in enumerate(rows(one, "rows"))]
    return Line(words(one, "name") or "", parts, whole(one, "sum_bytes"))


def _less(whole_bytes: Optional[int], part: Optional[int]) -> Optional[int]:
    return None if whole_bytes is None or part is None else max(0, whole_bytes - part)


def arena_parts(one: Mapping[str, Any]) -> List[Part]:
    """An arena's memory: what is free and not reclaimable is kept. The rest of what it has from the system is told as other."""
    used = summed(one, "used_bytes")
    cached = summed(one, "tcache_bytes", "cached_bytes", "fast_bytes")
    can = summed(one, "reclaimable_bytes")
    if "active_bytes" in one:  # regions in use and free ones fill slabs; unused pages lie beside them
        kept = _less(whole(one, "active_bytes"), whole(one, "allocated_bytes"))
    else:
        kept = _less(summed(one, "free_bytes", "top_bytes"), can)
    own, other = summed(one, "overhead_bytes", "metadata_bytes"), summed(one, "unparsed_bytes")
    return [Part(look, name, value) for look, name, value in zip(SHARES, ARENA_NAMES, (used, cached, can, kept, own, other))]


def _arenas(data: Mapping[str, Any]) -> List[Line]:
    every = [(one, arena_parts(one)) for one in rows(data, "arenas")]
    every.sort(key=lambda one: -sum(part.bytes or 0 for part in one[1]))
    found = []
    for one, parts in every[:MOST_ARENAS]:
        kind = words(one, "kind")
        name = "%s arena %s%s" % (words(one, "allocator") or "?", units.number(whole(one, "index")), " (%s)" % kind if kind else "")
        found.append(Line(name, parts, whole(one, "system_bytes") if "system_bytes" in one else None))
    for id_, totals in record(data, "totals").items():
        mapped = whole(totals, "mmapped_bytes")
        if mapped:
            found.append(Line("%s, mapped blocks" % id_, [Part("used", "used", mapped)], mapped))
    return found


def _map(one: Mapping[str, Any]) -> MapView:
    sums = record(one, "sums")
    live = whole(sums, "free_resident_bytes") is not None and whole(sums, "returned_resident_bytes") is not None
    texts = (
        ("used", "in use"),
        ("pinned", "pinned: free memory beside blocks in use, on one page"),
        ("cached", "in caches"),
        ("own", "the allocator's own"),
        ("free", "free, in RAM" if live else "free (in RAM or not: not known)"),
        ("gone", "returned, or never in RAM" if live else "returned (in RAM or not: not known)"),
    )
    cells = rows(one, "cells")
    parts = [Part(look, name, value) for (look, name), value in zip(texts, _states(sums, live))]
    each = -(-len(cells) // MAP_LINES) if cells else 1
    lines = []
    for first in range(0, len(cells), each):
        group = [_states(cell, live) for cell in cells[first : first + each]]
        lines.append((words(cells[first], "address") or "?", [columns.add(column) for column in zip(*group)]))
    return MapView(
        allocator=words(one, "allocator") or "?",
        page_bytes=whole(one, "page_bytes"),
        cell_bytes=whole(one, "cell_bytes"),
        parts=parts,
        cells=[_states(cell, live) for cell in cells],
        lines=lines,
        whole_bytes=columns.add([part.bytes for part in parts]),
    )


def _states(cell: Mapping[str, Any], live: bool) -> List[Optional[int]]:
    """In the order of STATES. Where it is known what is in RAM, free pages that are not count as returned."""
    free, returned = whole(cell, "free_bytes"), whole(cell, "returned_bytes")
    if live:
        resident = columns.add([whole(cell, "free_resident_bytes"), whole(cell, "returned_resident_bytes")])
        free, returned = resident, _less(columns.add([free, returned]), resident)
    return [*(whole(cell, name) for name in ("used_bytes", "pinned_bytes", "cached_bytes", "own_bytes")), free, returned]


def _classes(one: Mapping[str, Any]) -> Classes:
    found = rows(one, "rows")
    each = max(1, -(-len(found) // MOST_COLUMNS))
    bars = []
    for first in range(0, len(found), each):
        group = found[first : first + each]
        name = sizes_of(whole(group[0], "size_bytes"), whole(group[-1], "max_size_bytes"))
        bars.append((name, [columns.add([whole(row, field) for row in group]) for field in ("used_bytes", "free_bytes")]))
    fields = ("used_chunks", "used_bytes", "free_chunks", "free_bytes", "tcache_chunks")
    shown = [
        SizeRow(sizes_of(whole(row, "size_bytes"), whole(row, "max_size_bytes")), *(whole(row, field) for field in fields))
        for row in found[:MOST_CLASSES]
    ]
    return Classes(words(one, "allocator") or "?", shown, max(0, len(found) - MOST_CLASSES), bars)


def sizes_of(least: Optional[int], most: Optional[int]) -> str:
    """A size, or from which to which."""
    return units.size(least) if least == most else "%s to %s" % (units.size(least), units.size(most))


def _census(data: Mapping[str, Any]) -> Optional[Census]:
    found = record(data, "page", "census")
    if not found:
        return None
    named = [_named(one) for one in rows(found, "rows")]
    total = whole(found, "bytes")
    drawn = [one for one in named[:MOST_TREEMAP] if one.bytes]
    rest = _less(total, sum(one.bytes or 0 for one in drawn))
    if rest:
        drawn.append(Named("everything else", "", "", None, rest, None))
    more = (whole(found, "more_rows") or 0) + max(0, len(named) - MOST_CENSUS)
    return Census(named[:MOST_CENSUS], whole(found, "blocks"), total, more, drawn)


def _named(one: Mapping[str, Any]) -> Named:
    size = whole(one, "size_bytes")
    name = words(one, "signature") or ("blocks of %s that nothing names" % units.told(size) if size is not None else "not named")
    figures = whole(one, "blocks"), whole(one, "bytes"), words(one, "sample")
    return Named(name, words(one, "module") or "", words(one, "sure") or "", *figures)


def _owners(data: Mapping[str, Any]) -> Optional[Owners]:
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
            listed.append(Owner(words(one, "owner") or "not named", words(one, "kind") or "", kept, whole(one, "retained_blocks"), depth))
            made.append(Branch(place, kept or 0, branches(rows(one, "children"), depth + 1)))
        return made

    tree = branches(rows(found, "owners"), 0)
    used, leaked = whole(record(found, "used"), "bytes"), whole(record(found, "leaked"), "bytes")
    return Owners(listed, tree, used, leaked, whole(found, "shared_bytes"))


def _suspect(one: Mapping[str, Any]) -> Dict[str, Any]:
    point = record(one, "accumulation")
    return {
        "owner": words(one, "owner") or "not named",
        "bytes": whole(one, "retained_bytes"),
        "point": words(point, "name") if whole(point, "children") else None,
        "signature": words(point, "signature"),
        "children": whole(point, "children"),
    }


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


def _decay(data: Mapping[str, Any]) -> Optional[List[Dict[str, Any]]]:
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


def _step(document: Mapping[str, Any], one: Mapping[str, Any]) -> Step:
    """Commands of this tool get its name and the target before them; other lines stay as they are."""
    line = words(one, "command")
    if line is not None and line.split() and command.find(line.split()[0]) is not None:
        line = command_line(document, line)
    return Step(line, words(one, "why") or "")
