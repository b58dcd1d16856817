"""Members of a JSON document that may lack any of them, or have something else in their place.

Lines to copy into a shell: commands about the target of a document.
"""

import shlex
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from gdbheapx import command
from gdbheapx.snapshot import target as snapshots

NOT_HERE = " (a snapshot does not answer this: ask the process, or its core)"
FORMS = {"snapshot": "--snapshot", "core": "--core", "process": "--pid"}
"""Options that name a target."""


class Whole(str):
    """A text that is no use if it is cut, such as a line to copy."""


def record(document: Any, *names: str) -> Mapping[str, Any]:
    """The object under these names, one in the other; empty where there is none."""
    for name in names:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def rows(document: Any, *names: str) -> List[Dict[str, Any]]:
    """The objects of a list; none where there is no list."""
    found = record(document, *names[:-1]).get(names[-1])
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def whole(document: Any, name: str) -> Optional[int]:
    """A number of bytes or things; None where it is not known."""
    found = record(document).get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def words(document: Any, name: str) -> Optional[str]:
    """A text; None where there is none."""
    found = record(document).get(name)
    return found if isinstance(found, str) else None


def summed(document: Any, *names: str) -> Optional[int]:
    """The sum of those members that the object has; None where one of them is not known, or there is none."""
    here = [name for name in names if name in record(document)]
    known = [whole(document, name) for name in here]
    return sum(one for one in known if one is not None) if known and None not in known else None


class Step(NamedTuple):
    """What to do next."""

    line: Optional[str]
    """To type in a shell; None: it is no command."""
    why: str


def command_line(document: Mapping[str, Any], line: str) -> str:
    """A line for a shell that asks the same target something else."""
    target = record(document, "target")
    core, pid, snapshot = words(target, "core"), whole(target, "pid"), words(target, "snapshot")
    if snapshot is not None and snapshots.is_answered(line):
        return Whole("gdbheapx --snapshot %s %s" % (quoted(snapshot), line))
    if target.get("kind") == "snapshot":
        where = "--pid %d" % pid if pid is not None and target.get("taken_of") == "live" else "--core FILE"
        return Whole("gdbheapx %s %s" % (where, line))
    if core is not None:
        return Whole("gdbheapx --core %s %s" % (quoted(core), line))
    if pid is not None and target.get("kind") == "live":
        return Whole("gdbheapx --pid %d %s" % (pid, line))
    return Whole("heapx %s" % line)  # inside gdb, which has the target


def asking(form: Optional[str], name: str, line: str) -> str:
    """A line for a shell that asks what somebody has named so: a snapshot, a core or a process."""
    return Whole("gdbheapx %s %s %s" % (FORMS.get(form or "", "--core"), quoted(name), line))


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


def step(document: Mapping[str, Any], one: Mapping[str, Any]) -> Step:
    """Commands of this tool get its name and the target before them; other lines stay as they are."""
    line, why = words(one, "command"), words(one, "why") or ""
    if line is not None and line.split() and command.find(line.split()[0]) is not None:
        made = command_line(document, line)
        is_elsewhere = record(document, "target").get("kind") == "snapshot" and not made.startswith("gdbheapx --snapshot ")
        return Step(made, why + NOT_HERE if is_elsewhere else why)
    return Step(line, why)
