"""Lines to copy into a shell: commands about the target of a document."""

import shlex
from typing import Any, Mapping, NamedTuple, Optional

from gdbheapx import command
from gdbheapx.report.page.reading import Whole, record, whole, words


class Step(NamedTuple):
    """What to do next."""

    line: Optional[str]
    """To type in a shell; None: it is no command."""
    why: str


def command_line(document: Mapping[str, Any], line: str) -> str:
    """A line for a shell that asks the same target something else."""
    target = record(document, "target")
    core, pid = words(target, "core"), whole(target, "pid")
    if core is not None:
        return Whole("gdbheapx --core %s %s" % (quoted(core), line))
    if pid is not None and target.get("kind") == "live":
        return Whole("gdbheapx --pid %d %s" % (pid, line))
    return Whole("heapx %s" % line)  # inside gdb, which has the target


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
    line = words(one, "command")
    if line is not None and line.split() and command.find(line.split()[0]) is not None:
        line = command_line(document, line)
    return Step(line, words(one, "why") or "")
