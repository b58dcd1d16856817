"""What a terminal of 80x24 shows of `report`: at most 12 lines that say what it comes to, and an end with the verdict and the next steps.

Files: commands/report.py, report/overview_text.py.
"""

import os
import shlex
import shutil
import sys
from typing import Callable, Dict, List

import pytest

from tests.support.javas import JAVA
from tests.support.jemallocs import library
from tests.support.processes import Process, Stage
from tests.support.tool import heapx, on_terminal

pytestmark = pytest.mark.once  # how an answer is shown

PYTHON = """class Item:
    def __init__(self, number): self.name, self.tags = "item %d" % number, [number]
cache = {number: Item(number) for number in range(40000)}
print("ready", flush=True); input()"""


def lines_on_terminal(*words: str) -> List[str]:
    """The lines that the tool writes to a terminal of 80 columns and 24 lines."""
    return on_terminal(80, words, {"NO_COLOR": "1"}, 24).replace("\r\n", "\n").splitlines()


def leaking(stage: Stage) -> Process:
    return stage.start("leaker")


def on_jemalloc(stage: Stage) -> Process:
    return stage.start("leaker", env={"LD_PRELOAD": str(library())})


def on_python(stage: Stage) -> Process:
    return stage.spawn_ready([sys.executable, "-c", PYTHON])


def on_java(stage: Stage) -> Process:
    if not shutil.which("java"):
        pytest.skip("no java here (Debian: openjdk-17-jdk-headless)")
    folder = stage.folder()
    (folder / "Big.java").write_text(JAVA)
    return stage.spawn_ready(["java", "-Xmx64m", str(folder / "Big.java")], folder)


def tiny(stage: Stage) -> Process:
    return stage.spawn_ready(["sh", "-c", "echo ready; read line"])


def check(words: List[str]) -> Dict[str, str]:
    """Head and end of the report of this target; the head's facts."""
    lines = lines_on_terminal(*words, "report")
    head = lines[: lines.index("")]
    end = lines[-23:]
    assert len(head) <= 12 and all(len(line) <= 80 for line in lines if "gdbheapx " not in line), lines
    assert "Next steps" in end and (any(line.startswith("Verdict") for line in end)), end
    labels = [line.split()[0] for line in head if line[:1].strip()]
    assert {"Process", "Allocator", "Verdict", "Next"} <= set(labels) and {"RSS", "Memory"} & set(labels), head
    facts: Dict[str, str] = {}
    for line in head:
        label = line[:11].strip() or next(reversed(facts))
        facts[label] = (facts.get(label, "") + " " + line[11:]).strip()
    assert "pid " in facts["Process"]
    return facts


@pytest.mark.parametrize("start", [leaking, on_jemalloc, on_python, on_java, tiny])
def test_a_process(stage: Stage, start: Callable[[Stage], Process]) -> None:
    """Who, since when, where, when, for how long it paused; the next command is whole and runs."""
    process = start(stage)
    facts = check(["--pid", str(process.pid)])
    assert "up " in facts["Process"] and " UTC on %s; paused " % os.uname().nodename in facts["Read"] and facts["Command"]
    if facts["Next"].startswith("gdbheapx "):
        words = shlex.split(facts["Next"])[1:]
        assert words[:2] == ["-p", str(process.pid)] and heapx(words[:2], words[2], "--help").code == 0
    if start is tiny:
        brief = lines_on_terminal("--pid", str(process.pid), "report", "--brief")
        assert [line[:11].strip() for line in brief[: len(facts)]][:4] == list(facts)[:4] and "Next steps" not in brief
    if start is on_python:
        assert facts["Suspect"].startswith("__main__.cache, dict of 40,000 entries, ")
    if start is on_jemalloc:
        assert facts["Allocator"].startswith("jemalloc 5")


def test_a_small_process_is_looked_at_by_itself(stage: Stage) -> None:
    """In a copy, so that it does not pause longer; --no-deep does not, and says how to find out."""
    process = leaking(stage)
    target = ["--pid", str(process.pid)]
    by_itself, asked, without = (heapx(target, "report", *words, "--json").data for words in ([], ["--deep"], ["--no-deep"]))
    assert by_itself["inside"] is not None and without["inside"] is None
    assert by_itself["inside"]["used"]["blocks"] == asked["inside"]["used"]["blocks"] and by_itself["verdict"]["code"] == asked["verdict"]["code"]
    text = heapx(target, "report", "--no-deep", "--brief").stdout.decode()
    assert "Suspect    not looked for: gdbheapx -p %d report --deep" % process.pid in text
