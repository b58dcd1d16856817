"""The shell's command without gdb: answers, refusals, and the process that is read. That each command answers as with gdb is in test_each_command.py.

Files: app/direct.py.
"""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import List

import pytest

from gdbheapx.app import stopping
from tests.support import jemallocs
from tests.support.glibc import check_identity
from tests.support.paths import GDB
from tests.support.processes import Lasting, Stage, by_turns
from tests.support.tool import TOOL_SECONDS, Outcome, alone, heapx, tool_command, tool_environment
from tests.support.victims import check_free, status, until

pytestmark = pytest.mark.image  # its Python and its libraries are all that answers

RECORDER = ("recorder", "9", "1000", "3")


def one_line(outcome: Outcome) -> str:
    """The error: exit code 1, one line."""
    assert outcome.code == 1 and outcome.stderr.count("\n") == 1, (outcome.code, outcome.stderr)
    return outcome.stderr


@by_turns("how", ["none on PATH", "GDBHEAPX_GDB=none", "--gdb none"])
def test_ways_to_do_without(stage: Stage, kind: str, folder: Path, how: str) -> None:
    """Where no gdb is found and none was named, or none is wanted, this Python answers."""
    process = stage.start(*RECORDER)
    env = {"none on PATH": {"PATH": str(folder), "GDBHEAPX_GDB": ""}, "GDBHEAPX_GDB=none": {"GDBHEAPX_GDB": "none"}}.get(how, {})
    words = ["--gdb", "none"] if how == "--gdb none" else []
    outcome = heapx(process.target(kind), *words, "arenas", "--json", env=env)
    check_identity(outcome.data)
    assert outcome.envelope["tool"]["gdb"] is None and outcome.envelope["allocators"][0]["owns_malloc"] is True


def test_a_gdb_that_was_named_must_be_there(stage: Stage, core: str, folder: Path) -> None:
    """Whoever names a gdb gets no answer without it; the line says how to do without."""
    target = stage.start("untouched").target(core)
    for words, env in ((["--gdb", str(folder / "mine")], {}), ([], {"GDBHEAPX_GDB": str(folder / "mine")})):
        line = one_line(heapx(target, *words, "arenas", env=env))
        assert str(folder / "mine") in line and "--gdb none" in line


def test_debuginfod_is_gdbs(stage: Stage, core: str) -> None:
    """What gdb alone can do is refused, not left out."""
    assert "--debuginfod" in one_line(alone(stage.start("untouched").target(core), "--debuginfod", "arenas"))


ACTIONS = (["trim", "--yes"], ["trim", "--dry-run", "--probe"], ["trim", "--every", "1", "--above", "1", "--yes"], ["purge", "--yes"], ["tickers", "--cure", "--yes"])


@pytest.mark.parametrize("words", ACTIONS, ids=" ".join)
def test_what_changes_a_process_needs_gdb(lasting: Lasting, live: str, words: List[str]) -> None:
    """One line with the cause and the next step, exit code 1, and nothing has happened."""
    process = lasting.of(live, Stage.start, "trimmer", "main")
    before = process.smaps_rollup("Anonymous")
    assert "gdb" in one_line(alone(process.target(live), *words))
    assert alone(process.target(live), *words, "--json").envelope["data"] is None or "--every" in words
    check_free(process)
    assert process.smaps_rollup("Anonymous") == before


def test_a_reader_that_stops_early(stage: Stage, kind: str) -> None:
    """It ends the tool quietly, and a live process runs on."""
    process = stage.start("recorder", "1", "20000", "5")
    command = [*tool_command(), *process.target(kind), "--gdb", "none", "chunks", "--json"]
    with subprocess.Popen(command, env=tool_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tool:
        assert tool.stdout.readline()
        tool.stdout.close()
        assert (tool.stderr.read(), tool.wait(TOOL_SECONDS)) == (b"", 0)
    if kind == "live":
        check_free(process)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL"])
def test_the_process_runs_on_whatever_ends_the_tool(lasting: Lasting, live: str, name: str) -> None:
    """A signal while the process stands still: it is let go, by the tool or by the kernel; those that ask for an end get what is there."""
    process = lasting.of(live, Stage.start, "recorder", "4", "60000", "5")
    command = [*tool_command(), *process.target(live), "--gdb", "none", "chunks", "--json", "--max-stop", "60"]
    with subprocess.Popen(command, env=tool_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as tool:
        until(lambda: status(process.pid, "TracerPid") != "0", lambda: "it was never stopped", process)
        tool.send_signal(getattr(signal, name))
        out, errors = tool.communicate(timeout=TOOL_SECONDS)
    until(lambda: status(process.pid, "TracerPid") == "0", lambda: "it is still traced", process)
    tasks = list(map(int, os.listdir("/proc/%d/task" % process.pid)))
    until(lambda: all(status(task, "State")[0] not in "tT" for task in tasks), lambda: "it is still stopped", process)
    check_free(process)
    if tool.returncode == 0:  # it had its answer before the signal reached it
        assert json.loads(out)["partial"] is False
    elif name in ("SIGQUIT", "SIGKILL"):
        assert tool.returncode == -getattr(signal, name)
    else:
        assert tool.returncode == 4 and json.loads(out)["partial"] is True, (tool.returncode, errors)


def test_it_goes_on_serving(stage: Stage, live: str) -> None:
    """Threads that allocate without end are stopped a bounded number of times and miss nothing; what was in the middle of a change says so."""
    process = stage.start("busy", "3")
    for words in (["report"], ["arenas"], ["doctor"], ["trim", "--dry-run"]):
        outcome = alone(process.target(live), *words, "--json")
        problems = {problem["code"] for problem in outcome.envelope["problems"]}
        assert outcome.code == (4 if problems else 0) and problems <= {"arena-changing"}, (problems, outcome.stderr)
        assert 1 <= outcome.envelope["target"]["stops"] <= stopping.MOST_MOMENTS
    check_free(process)


def test_a_process_that_somebody_else_traces(stage: Stage, live: str) -> None:
    """It is left alone, and the line says by whom it is traced."""
    process = stage.start("untouched")
    with subprocess.Popen([GDB, "-nx", "-q", "-p", str(process.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as gdb:
        until(lambda: status(process.pid, "TracerPid") == str(gdb.pid), lambda: "gdb does not attach", process)
        assert str(gdb.pid) in one_line(alone(process.target(live), "arenas"))
        gdb.communicate(b"detach\nquit\n", timeout=TOOL_SECONDS)


def test_no_debug_info_is_heeded(stage: Stage, core: str, folder: Path) -> None:
    """--no-debug-info leaves a debug file of jemalloc unread whose symbols are used otherwise."""
    process = stage.start("victim", "rest", env={"LD_PRELOAD": str(jemallocs.library())})
    target = [*process.target(core), "--debug-dir", str(jemallocs.debug_directory(folder))]
    with_it, without = (alone(target, *words, "arenas", "--json").envelope["allocators"][0] for words in ([], ["--no-debug-info"]))
    assert without["address_source"] == "pack"
    if with_it["address_source"] == "pack":
        pytest.skip("the small debug file of this libjemalloc (Debian sid) is not used where its pack is there")
    assert with_it["address_source"] == "symbol"


LOADER = "/lib64/ld-linux-x86-64.so.2"


@pytest.mark.parametrize("words", [["--gdb", GDB], []], ids=["gdb", "none"])
def test_a_program_that_the_loader_was_given(live: str, words: List[str]) -> None:
    """`ld.so PROGRAM`: malloc is that of libc, also where ld.so exports one of its own (up to 2.31), which serves nobody."""
    if not Path(LOADER).exists():
        pytest.skip("no %s here" % LOADER)
    with subprocess.Popen([LOADER, "/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"here\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"here\n"
        answer = heapx(["--pid", str(process.pid), *words], "arenas", "--json").envelope
        process.stdin.close()
    assert [(one["name"], one["owns_malloc"]) for one in answer["allocators"]] == [("glibc", True)] and not answer["partial"]
