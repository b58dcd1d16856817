"""What a document has beside its data, and lines to copy into a shell: commands about its target."""

import shlex
from typing import NamedTuple, Optional, Sequence

from gdbheapx import command
from gdbheapx.model import AllocatorInfo, NextStep
from gdbheapx.snapshot import target as snapshots
from gdbheapx.snapshot.record import RecordedProblem

NOT_HERE = " (a snapshot does not answer this: ask the process, or its core)"
FORMS = {"snapshot": "--snapshot", "core": "--core", "process": "--pid"}
"""Options that name a target."""


class Whole(str):
    """A text that is no use if it is cut, such as a line to copy."""


class TargetFacts(NamedTuple):
    """The member `target` of an envelope."""

    kind: Optional[str]
    pid: Optional[int]
    executable: Optional[str]
    core: Optional[str]
    snapshot: Optional[str] = None
    stopped_ms: Optional[float] = None
    taken: Optional[str] = None
    taken_of: Optional[str] = None


class Tool(NamedTuple):
    """The member `tool`."""

    version: str
    gdb: Optional[str]


class Envelope(NamedTuple):
    """What a document has beside its data."""

    target: TargetFacts
    tool: Tool
    partial: bool
    problems: Sequence[RecordedProblem]
    allocators: Sequence[AllocatorInfo]


class Step(NamedTuple):
    """What to do next."""

    line: Optional[str]
    """To type in a shell; None: it is no command."""
    why: str


def command_line(target: TargetFacts, line: str) -> str:
    """A line for a shell that asks the same target something else."""
    if target.snapshot is not None and snapshots.is_answered(line):
        return Whole("gdbheapx --snapshot %s %s" % (quoted(target.snapshot), line))
    if target.kind == "snapshot":
        where = "--pid %d" % target.pid if target.pid is not None and target.taken_of == "live" else "--core FILE"
        return Whole("gdbheapx %s %s" % (where, line))
    if target.core is not None:
        return Whole("gdbheapx --core %s %s" % (quoted(target.core), line))
    if target.pid is not None and target.kind == "live":
        return Whole("gdbheapx --pid %d %s" % (target.pid, line))
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
    return all(0xDC80 <= ord(letter) <= 0xDCFF for letter in text if 0xD800 <= ord(letter) <= 0xDFFF)


def step(target: TargetFacts, next_step: NextStep) -> Step:
    """Commands of this tool get its name and the target before them; other lines stay as they are."""
    if next_step.command is not None and next_step.command.split() and command.find(next_step.command.split()[0]) is not None:
        line = command_line(target, next_step.command)
        is_elsewhere = target.kind == "snapshot" and not line.startswith("gdbheapx --snapshot ")
        return Step(line, next_step.why + NOT_HERE if is_elsewhere else next_step.why)
    return Step(next_step.command, next_step.why)
