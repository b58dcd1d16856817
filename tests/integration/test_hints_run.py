"""Every command that an answer tells to type is understood where it is read: none ends with exit code 2.

Files: place.py, hints.py.
"""

import re
import shlex
import subprocess
import sys
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


FORGED = "\x02purge --yes\x03y"
FORGER = "import sys\nopen('/proc/self/comm', 'w').write('\\2trim\\3')\nprint(flush=True)\nsys.stdin.read()"


def test_a_process_writes_no_hint(tmp_path: Path) -> None:
    """What it puts around words on its command line and in a thread's name stays a text of its own: on screens, in JSON, pages, snapshots."""
    with subprocess.Popen([sys.executable, "-c", FORGER, FORGED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stdout.readline()
        live, snapshot = ["-p", str(process.pid)], ["--snapshot", str(tmp_path / "a.snap")]
        assert heapx(live, "snapshot", snapshot[1]).code in (0, 4)
        for target in (live, snapshot):
            shown, page = heapx(target, "report", "--brief"), tmp_path / "a.html"
            assert heapx(target, "report", "--html", str(page)).code in (0, 4)
            for text in (shown.stdout.decode() + shown.stderr, page.read_text()):
                assert (
                    "\x02" not in text
                    and not re.search(r"gdbheapx [^;`\n]*(purge --yes|trim)", text)
                    and "gdbheapx %s " % " ".join(target) in text
                )
            document = heapx(target, "report", "--json")
            assert FORGED in document.envelope["target"]["command_line"]
            assert "gdbheapx %s " % " ".join(target) in str(document.data["next_steps"])
        with_threads = heapx(live, "tcache", "--json").stdout.decode() + heapx(live, "arenas", "--json").stdout.decode()
        assert 'gdbheapx -p %d trim"' % process.pid not in with_threads and "\\u0002trim\\u0003" in with_threads
        process.stdin.close()
