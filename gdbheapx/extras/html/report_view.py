"""What the page of `report` shows, from the JSON document of a look: figures as they stand there, and sums of them."""

from typing import Any, Dict, List, Mapping, Tuple

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
    map_of,
    runtime,
    split,
)
from gdbheapx.extras.html.reading import command_line, record, rows, step, whole, words
from gdbheapx.extras.html.use_view import DECAY, census, decay, owners, suspect


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
