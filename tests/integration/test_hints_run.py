"""Every command that an answer tells to type is understood where it is read: none ends with exit code 2.

Files: place.py, hints.py.
"""

import re
import shlex
from pathlib import Path
from typing import Iterator, List, Set

import pytest

from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # what is typed differs by door, not by machine

ASKED = (["report"], ["leaks"], ["owners"], ["pins"], ["owners", "--of", "nothing_here"], ["refs", "0x10"])
WHOLE = re.compile(r"gdbheapx (?:-p|--core|--snapshot) [^`;,\n]*?(?=   |[`;,)\n]|$)")
"""A command as it stands in text: up to what explains it, or the end of the line."""
ACTS = {"trim", "purge"}


def told(target: List[str], words: List[str]) -> Iterator[str]:
    """The commands in an answer's text, and in its next steps."""
    shown = heapx(target, *words)
    yield from WHOLE.findall(shown.stdout.decode() + shown.stderr)
    for step in heapx(target, *words, "--json").data["next_steps"] if words == ["report"] else []:
        yield from [step["command"]] if (step["command"] or "").startswith("gdbheapx ") else []


def check(commands: Set[str], target: List[str], folder: Path) -> None:
    """Each is understood; what would change the process is asked with --dry-run, what takes long for a second."""
    assert commands
    for line in sorted(commands):
        words = [word.replace("now.snap", str(folder / "now.snap")) for word in shlex.split(line)[1:]]
        assert words[: len(target)] == target, line
        if re.search(r"\b[A-Z]{2,}\b", line):  # a place for what the reader has to choose
            continue
        more = ["--dry-run"] * (bool(ACTS & {*words}) and "--dry-run" not in words)
        ended = heapx([], *words, *more)
        assert ended.code != 2, (line, ended.stderr)


@pytest.mark.parametrize("door", ["live", "core", "snapshot"])
def test_every_hint_runs(stage: Stage, tmp_path: Path, door: str) -> None:
    """Of a process, its core and a snapshot."""
    process: Process = stage.start("trimmer", "arenas")
    target = ["-p", str(process.pid)]
    if door == "core":
        target = list(process.target("core"))
    elif door == "snapshot":
        assert heapx(target, "snapshot", str(tmp_path / "a.snap")).code in (0, 4)
        target = ["--snapshot", str(tmp_path / "a.snap")]
    found = {line for words in ASKED for line in told(target, words)}
    if door == "snapshot":  # what no snapshot answers is asked of the process
        found = {line for line in found if not line.startswith("gdbheapx -p ")}
    check(found, target, tmp_path)
