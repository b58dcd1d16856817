"""Other programs of the suite and programs nobody here wrote, live, at work without end, and as cores of either writer: told alike, and none accused."""

from pathlib import Path
from typing import Callable, Sequence

import pytest

from tests.support import jemallocs
from tests.support.gcores import differences, gcore, shares, without_holes
from tests.support.paths import GDB
from tests.support.processes import Process, Stage
from tests.support.runtimes import PROGRAMS, start
from tests.support.sameness import MORE_PROGRAMS, WITH_JEMALLOC, told
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # many programs, three looks at each

@pytest.mark.parametrize("name, arguments", MORE_PROGRAMS, ids=lambda one: one if isinstance(one, str) else "-".join(one))
def test_the_same_is_told(stage: Stage, name: str, arguments: Sequence[str]) -> None:
    """As test_live_and_core of the integration tests."""
    check(stage.start(name, *arguments))


@pytest.mark.parametrize("name, arguments", WITH_JEMALLOC, ids=lambda one: one if isinstance(one, str) else "-".join(one))
def test_the_same_is_told_with_jemalloc(stage: Stage, name: str, arguments: Sequence[str]) -> None:
    """The same with jemalloc as their malloc."""
    check(stage.start(name, *arguments, env={"LD_PRELOAD": str(jemallocs.library())}))


def check(process: Process) -> None:
    """Of a core with shared files as well: the record of a program holds its blocks."""
    Path("/proc/%d/coredump_filter" % process.pid).write_text("0x3f")
    live = told(process.target("live"))
    by_gdb = told(["--core", str(gcore(process))])
    assert {**by_gdb, "mappings": live["mappings"]} == live  # gdb writes down of reserved addresses that they can be read
    assert told(process.target("core")) == live


SHARE_POINTS = 4.0
NAMES = sorted(set(PROGRAMS) - {"java-zgc"})
"""The addresses that ZGC reserves are a core of 50 GB by gcore."""


@pytest.mark.parametrize("name", NAMES)
def test_a_core_tells_what_the_process_told(stage: Stage, core: str, name: str) -> None:
    """The same verdict, and the same shares but for a few points, by gcore, by the kernel, and in a copy of the kernel's core without holes."""
    process = start(stage, PROGRAMS[name])
    live = heapx(["--pid", str(process.pid)], "report", "--json").envelope["data"]
    by_gdb = gcore(process)
    for path in (by_gdb, process.core(), without_holes(process.core())):
        data = heapx(["--core", str(path)], "report", "--json").envelope["data"]
        assert data["verdict"]["code"] == live["verdict"]["code"], path.name
        assert not differences(shares(live), shares(data), SHARE_POINTS), (path.name, shares(live), shares(data))
        path.unlink()


"""The addresses that ZGC reserves are a core of 50 GB by gcore."""
LOOKS = 20


def check_none(process: Process, kind: str) -> None:
    """No finding, inside gdb and without; what a core lacks may make the answer partial."""
    target = process.target("live") if kind == "live" else ["--core", str(gcore(process))]
    for gdb in ((), ("--gdb", GDB)):
        outcome = heapx([*target, *gdb], "check", "--json")
        assert outcome.code in (0, 4), (outcome.code, outcome.stderr)
        assert outcome.envelope["data"] == {"findings": []}, outcome.envelope


@pytest.mark.parametrize("name", NAMES)
def test_no_rule_is_broken(stage: Stage, kind: str, name: str) -> None:
    """Third-party programs on glibc's malloc."""
    check_none(start(stage, PROGRAMS[name]), kind)


@pytest.mark.parametrize("preload", [False, True], ids=["glibc", "jemalloc"])
def test_threads_at_work_are_not_accused(stage: Stage, live: str, preload: bool) -> None:
    """Twenty looks at sixteen threads in malloc: never exit code 3; a part that is being changed makes the answer partial at most."""
    process = stage.start("busy", "16", env={"LD_PRELOAD": str(jemallocs.library())} if preload else {})
    for _ in range(LOOKS):
        outcome = heapx(process.target(live), "check", "--json")
        assert outcome.code in (0, 4), outcome.envelope
        assert all(row["evidence"] for row in outcome.envelope["data"]["findings"])


BUSY_LOOKS = 50


@pytest.mark.parametrize("command", ["arenas", "report"])
def test_fifty_looks(stage: Stage, live: str, command: str, record_property: Callable[[str, object], None]) -> None:
    """Answers are whole, or say that an arena is in the middle of a change, and nothing else."""
    process = stage.start("busy", "16")
    whole, longest, most = 0, 0.0, 0
    for _ in range(BUSY_LOOKS):
        outcome = heapx(process.target(live), command, "--json")
        envelope = outcome.envelope
        told = {problem["code"] for problem in envelope["problems"]}
        assert told <= {"arena-changing", "caches-changing", "mapped-chunks-changing"}, told
        whole += outcome.code == 0 and envelope["partial"] is False
        longest, most = max(longest, envelope["target"]["stopped_ms"]), max(most, envelope["target"]["stops"])
    record_property("whole", "%d of %d, longest stop %.0f ms, at most %d stops" % (whole, BUSY_LOOKS, longest, most))
