"""The head of `report`: a dozen lines at 80 columns whatever there is to say, each part in it, the next command whole.

Files: report/overview_text.py, analysis/overview.py.
"""

import itertools
from typing import Any, Dict, List

import pytest

from gdbheapx.analysis.overview import Brief, may_have_suspect
from gdbheapx.analysis.reachability.owners import Accumulation, LeakSuspect
from gdbheapx.analysis.split import SplitMemory
from gdbheapx.command import TextStyle
from gdbheapx.hints import hint_command
from gdbheapx.model import AllocatorInfo, Finding, MemoryPart, StepAdvice
from gdbheapx.report import overview_text
from gdbheapx.report.text import format_on_screen, format_sentence
from gdbheapx.verdict import HeapVerdict

MB = 1 << 20
TERMINAL, PIPE = TextStyle(False, False, 80, True, wraps=True), TextStyle(False, False)
LABELS = ("Process", "Allocator", "Verdict", "Next")


def target(kind: str, **more: Any) -> Dict[str, Any]:
    facts = {
        "kind": kind,
        "pid": 4711,
        "core": "/tmp/core" if kind == "core" else None,
        "snapshot": "a.snap" if kind == "snapshot" else None,
        "program": "shop",
        "command_line": "./shop --port 80",
        "host": "web3",
        "time": "2026-11-30T12:00:00Z",
        "uptime_s": 90_061,
        "pause_ms": 11.8,
        "pauses": 1,
    }
    return {**facts, **({"taken": "2026-11-30T12:00:01Z", "taken_of": "core"} if kind == "snapshot" else {}), **more}


def part(name: str, size: int) -> MemoryPart:
    return MemoryPart("anonymous", name, size, None, None, None, None, None, None, None, 1, None, None, "certain")


def memory(measure: str = "resident") -> SplitMemory:
    known = {"measure": measure, "total_bytes": 100 * MB, "swapped_bytes": 7 * MB}
    return SplitMemory(**{name: known.get(name) for name in SplitMemory._fields})  # type: ignore[arg-type]


def brief(letters: int = 1, looked: bool = True, suspect: bool = True) -> Brief:
    """With texts so many times as long."""
    info = AllocatorInfo("glibc", "glibc", "2.36", "libc.so.6", None, None, None, True)
    point = Accumulation(*(None for _ in Accumulation._fields))  # type: ignore[arg-type]
    owner = LeakSuspect("shop._cache" * letters, "global", 60 * MB, 60.2, point, "dict of 60,000 entries " * letters)
    return Brief(
        allocators=[info] * letters,
        memory=memory(),
        largest=[part("malloc (arenas)" + " and such" * letters, 60 * MB)] * 3,
        verdict=HeapVerdict("in-use", [Finding("in use " * letters, "60.0 MiB of 61.0 MiB " * letters, None)], "in-use"),
        was_looked=looked,
        suspect=owner if suspect else None,
        next=StepAdvice(hint_command("owners"), "shows who"),
    )


def shown(made: Brief, about: Dict[str, Any], where: str = "-p 4711", style: TextStyle = TERMINAL) -> List[str]:
    style = style._replace(command_line=lambda words: "gdbheapx %s %s" % (where, words))
    lines = (format_sentence(style, line) for line in overview_text.format_brief(style, made, about))
    return "".join(format_on_screen(style, line) for line in lines).splitlines()


@pytest.mark.parametrize(("kind", "letters"), list(itertools.product(("live", "core", "snapshot"), (1, 3, 40))))
def test_it_has_a_dozen_lines_and_every_part(kind: str, letters: int) -> None:
    """However long names, command lines and sentences are; the command is never cut."""
    about = target(kind, command_line="./shop " + "x" * 9 * letters, program="shop" * letters, pauses=letters)
    where = "--core /var/crash/%s/core" % "/".join(["folder"] * letters)
    lines = shown(brief(letters), about, where)
    assert len(lines) <= 12 and all(len(line) <= 80 or where.split()[1] in line for line in lines), lines
    assert all(any(line.startswith(label) for line in lines) for label in LABELS), lines
    assert any(line.startswith("RSS") for line in lines) and any(line.startswith("Suspect") for line in lines)
    assert ("gdbheapx %s owners" % where).split() == " ".join(lines).partition("Next")[2].split()
    assert any(line.endswith("60.0 MiB (60 %)") for line in lines[-5:]), "a name is cut, not the figure"


def test_nothing_is_known() -> None:
    """A remote stub tells little: what it does not tell is left out, or a question mark."""
    about = target("remote", **dict.fromkeys(("program", "command_line", "host", "time", "uptime_s", "pause_ms", "pauses", "pid")))
    lines = shown(brief()._replace(memory=None, allocators=[]), about)
    assert lines[0] == "Process    ?" and any(line.startswith("Memory     ?") for line in lines) and "None" not in "".join(lines)


def test_a_suspect_that_was_not_sought_is_not_denied() -> None:
    """No suspect where all blocks were looked at is an answer; where they were not, it is none."""
    kept = [brief(looked=looked, suspect=False) for looked in (True, False)]
    of_looked, of_others = ("\n".join(shown(made, target("live"))) for made in kept)
    assert "No owner retains" in of_looked and "not looked for" in of_others
    assert may_have_suspect(kept[1]) and not may_have_suspect(kept[0])
