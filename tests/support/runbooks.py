"""Pages of docs/ to be followed step by step: their command lines, run as somebody copies them, and their sample outputs, which the tool must still print."""

import os
import re
import subprocess
from pathlib import Path
from typing import List, NamedTuple

from tests.support.paths import ROOT
from tests.support.processes import Process
from tests.support.tool import TOOL_SECONDS, tool_command, tool_environment

INDENT = "    "


class Step(NamedTuple):
    """Lines to copy, the exit code that the page says, and what it shows of their output."""

    script: str
    code: int
    sample: List[str]


class Said(NamedTuple):
    """What a step printed."""

    text: str
    folder: Path

    def figure(self, pattern: str) -> int:
        """The size that the pattern's group is, in bytes."""
        match = re.search(pattern, self.text)
        assert match, (pattern, self.text)
        return bytes_of(match.group(1))


def bytes_of(size: str) -> int:
    """`1.5 MiB` and `4,096 B` as a number."""
    number, unit = size.split(" ")
    return round(float(number.replace(",", "")) * {"B": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit])


def steps(page: str) -> List[Step]:
    """Indented lines are a step; the fenced lines below it, up to the next one, are its sample."""
    steps: List[Step] = []
    script: List[str] = []
    fenced = False
    for line in [*page.split("\n"), ""]:
        if line.startswith("```"):
            fenced = not fenced
        elif fenced:
            steps[-1].sample.append(line)
        elif line.startswith(INDENT):
            script.append(line[len(INDENT) :])
        elif script:
            code = re.search(r"# exit code (\d+)", script[-1])
            steps.append(Step("\n".join(script), int(code.group(1)) if code else 0, []))
            script = []
    return steps


def shape(line: str) -> str:
    """A line without what another process or another moment has otherwise."""
    line = re.sub(r"0x[0-9a-f]+", "ADDRESS", line)
    line = re.sub(r"(gdb|register)-call", "CALL", line)
    line = re.sub(r"[-+]?\d[\d,]*(\.\d+)?( (bytes|B|KiB|MiB|GiB|ms|s)\b)?", "#", line)
    return re.sub(r"-{2,}", "--", " ".join(line.split()))


class Runbook:
    """One page of docs/, step by step, for one process after the other."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.address = ""
        """The first one of the output before: what the page calls ADDRESS."""
        self.left = steps((ROOT / "docs" / name).read_text())
        assert len(self.left) >= 4, "the page's commands are not found"

    def run(self, what: str, process: Process) -> Said:
        """The next step, which must have WHAT in it: its exit code and each line of its sample are as the page says."""
        assert self.left, "the page has no step for %s" % what
        step = self.left.pop(0)
        assert what in step.script, "the page goes on with %r, and the test with %s" % (step.script, what)
        script = re.sub(r"\bPID\b", str(process.pid), step.script).replace("ADDRESS", self.address)
        path = os.pathsep.join([str(self.tool()), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-e", "-c", script], cwd=self.folder, env=tool_environment({"PATH": path}), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TOOL_SECONDS,
        )
        text = done.stdout.decode(errors="replace")
        assert done.returncode == step.code, (script, done.returncode, text)
        assert "Traceback" not in text, text
        printed = [shape(line) for line in text.splitlines()]
        for line in step.sample:
            beginning = shape(line[:-3]) if line.endswith("...") else None
            assert not line.strip() or (any(one.startswith(beginning) for one in printed) if beginning is not None else shape(line) in printed), (
                line,
                text,
            )
        address = re.search(r"\b0x[0-9a-f]+", text)
        self.address = address.group() if address else ""
        return Said(text, self.folder)

    def tool(self) -> Path:
        """A folder with gdbheapx in it, as a shell finds it."""
        command = tool_command()
        if len(command) == 1:
            return Path(command[0]).parent
        folder = self.folder / "bin"
        if not folder.exists():
            folder.mkdir()
            (folder / "gdbheapx").write_text('#!/bin/sh\nexec %s "$@"\n' % " ".join(command))
            (folder / "gdbheapx").chmod(0o755)
        return folder

    def end(self) -> None:
        """No step of the page is left."""
        assert not self.left, "the test does not run %r" % [step.script for step in self.left]
