"""trim on a live process: it gives back what was predicted, and nobody is harmed, however often.

Files: actions/calling.py, actions/gdb_control.py.
"""

import json
import os
import pty
import resource
import select
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import List

import pytest

from gdbheapx.inferior.arch import native_architecture
from tests.support import victims
from tests.support.compilers import compile_c
from tests.support.gcores import gcore
from tests.support.paths import PROGRAMS
from tests.support.processes import Stage
from tests.support.tool import TOOL_SECONDS, acted, heapx, in_gdb, tool_command, tool_environment

pytestmark = pytest.mark.image  # its gdb makes the call, in its libc

PAGE = resource.getpagesize()
STATES = ("main", "arenas", "fast", "untouched", "sbrk", "mmapped-main", "small-top")
CALL_COSTS = 8 * PAGE
"""What a call itself may take, beside what it gives back: the page of code that a breakpoint is written to, and stack."""


@pytest.mark.parametrize("state", STATES)
def test_trim_gives_back_what_was_predicted(stage: Stage, live: str, state: str) -> None:
    """On a process at rest, Anonymous falls by predicted_resident_bytes to the byte, as the tool measures it; seen from outside too, less the call's own pages."""
    process = stage.start("trimmer", state)
    outside = process.smaps_rollup("Anonymous")
    data = acted(heapx(process.target(live), "trim", "--yes", "--json").data)
    outside -= process.smaps_rollup("Anonymous")
    assert "malloc_trim" in data["call"]
    assert -data["anonymous_diff_bytes"] == data["predicted_resident_bytes"]
    assert abs(outside - data["predicted_resident_bytes"]) <= CALL_COSTS
    assert data["returned"] == (1 if data["predicted_bytes"] else 0)
    if state != "small-top":
        assert data["predicted_resident_bytes"] > 400 << 10, "the program built too little to trim"
    victims.check_free(process)
    process.command(b"t")
    assert process.words()[1] in (0, 1)


def test_a_worker_of_the_kernel_is_in_nobodys_way(stage: Stage, live: str, tmp_path: Path) -> None:
    """A thread of io_uring has no stack and is never inside malloc: the call is made, the process answers, and its read comes back later."""
    library = compile_c((PROGRAMS / "async_read.c").read_text(), tmp_path / "async_read.so", "-shared", "-fPIC")
    process = stage.start("trimmer", "main", env={"LD_PRELOAD": library})
    names = [Path("/proc/%d/task/%s/comm" % (process.pid, lwp)).read_text() for lwp in os.listdir("/proc/%d/task" % process.pid)]
    if not any(name.startswith("iou-") for name in names):
        pytest.skip("no worker of io_uring here")
    assert not heapx(["--core", str(gcore(process))], "arenas", "--json").envelope["problems"], "a thread without a cache"
    data = acted(heapx(process.target(live), "trim", "--yes", "--json").data)
    assert -data["anonymous_diff_bytes"] == data["predicted_resident_bytes"] > 400 << 10
    victims.check_free(process)
    process.command(b"t")
    assert process.words()[1] in (0, 1)


def test_second_trim_gives_nothing_more(stage: Stage, live: str) -> None:
    """What was given back is not predicted again as resident."""
    process = stage.start("trimmer", "arenas")
    heapx(process.target(live), "trim", "--yes", "--json")
    data = acted(heapx(process.target(live), "trim", "--yes", "--json").data)
    assert data["predicted_resident_bytes"] == 0 == data["anonymous_diff_bytes"]


def test_pad_is_left_at_the_top(stage: Stage, live: str) -> None:
    """--pad N leaves N bytes at the main top: predicted and measured fall short of a trim without it by as much, in whole pages."""
    pad = 80 << 10  # less than the top has, and whole pages of 4 and of 16 KiB
    whole = heapx(stage.start("trimmer", "main").target(live), "trim", "--yes", "--json").data
    padded = acted(heapx(stage.start("trimmer", "main").target(live), "trim", "--pad", str(pad), "--yes", "--json").data)
    assert whole["predicted_bytes"] - padded["predicted_bytes"] == pad
    assert -padded["anonymous_diff_bytes"] == padded["predicted_resident_bytes"]


def test_dry_run_and_probe_change_nothing(stage: Stage, live: str) -> None:
    """--dry-run --probe tries registers and puts them back: the same memory afterwards, no call, and 0 wrong answers."""
    made = victims.server(stage)
    for _ in range(2):
        outcome = heapx(["--pid", str(made.victim.pid)], "trim", "--dry-run", "--probe", "--json")
        assert outcome.code in (0, 4), outcome.stderr[-1000:]  # a server at work may be met inside malloc
        assert outcome.envelope["data"]["way"] == "none" and outcome.envelope["data"]["returned"] is None
        made.check_well()
    made.end()


def test_server_under_load_is_not_harmed(stage: Stage, live: str) -> None:
    """Many times attach, trim, detach while threads hammer malloc: 0 wrong answers, registers, signals lost, deaths, hangs; most rounds do it."""
    made = victims.server(stage)
    table = victims.rounds(victims.ROUNDS, ["--pid", str(made.victim.pid)], ["trim"], made.check_well)
    made.end()
    assert table.done + sum(table.refused.values()) == victims.ROUNDS
    assert table.done >= victims.ROUNDS // 2, table.table()
    assert table.given_back_bytes > 0


def test_single_thread_is_never_called_inside_malloc(stage: Stage, live: str) -> None:
    """A program of one thread that is in malloc and free for ever takes no lock there: each round is done or refused, and its heap stays whole."""
    victim = victims.Victim(stage.start("victim", "single"))
    table = victims.rounds(victims.ROUNDS, ["--pid", str(victim.pid)], ["trim", "--wait", "20"], victim.check_well)
    assert table.done + sum(table.refused.values()) == victims.ROUNDS
    outcome = heapx(["--pid", str(victim.pid)], "check", "--json")
    assert outcome.code in (0, 4)
    victim.check_well()


def test_busy_and_inlined_threads_keep_their_registers(stage: Stage, live: str) -> None:
    """Where no thread is in a system call of libc's (all compute, or all are in inlined ones), the tool acts or refuses, and no register is changed."""
    for state in ("busy", "inline"):
        process = stage.start("victim_parked", state)
        victims.be_nice(process.pid)
        table = victims.Rounds()
        for _ in range(3):
            table.count(heapx(process.target(live), "trim", "--yes", "--json"))
            victims.check_free(process)
        victims.Parked(process).go()


def test_waits_until_malloc_is_left(stage: Stage, live: str) -> None:
    """A thread that is inside malloc when the tool comes, and leaves it soon, is waited for: the call is made then."""
    parked = victims.Parked(victims.start_parked(stage, "malloc"))
    answers = []  # type: list[object]
    tool = threading.Thread(target=lambda: answers.append(heapx(["--pid", str(parked.pid)], "trim", "--yes", "--json", "--wait", "500")))
    tool.start()
    victims.until(lambda: victims.status(parked.lwp, "State").startswith("t"), lambda: "the tool does not come", parked.process)
    parked.go_later()
    tool.join(TOOL_SECONDS)
    assert answers, "the tool did not end"
    data = acted(answers[0].data)
    assert data["tries"] > 1 and str(parked.lwp) in data["waited_for"][0]
    parked.check_serves()


def test_thread_above_the_dynamic_linker(stage: Stage, live: str) -> None:
    """A destructor that the dynamic linker called: the stack is unwound through it, though a gdb that knows it writes into it when it attaches."""
    parked = victims.Parked(stage.start("victim_parked", "ending"))
    data = heapx(parked.process.target(live), "trim", "--yes", "--json").data
    assert acted(data)["returned"] in (0, 1)
    assert linker_pages(parked.pid) == 0
    parked.go()


def linker_pages(pid: int) -> int:
    """Bytes of the dynamic linker's code that are the process's own: somebody wrote into it."""
    found, counted = 0, False
    for line in Path("/proc/%d/smaps" % pid).read_text().splitlines():
        words = line.split()
        if "-" in words[0]:
            counted = words[1].startswith("r-x") and "/ld-" in words[-1]
        elif counted and words[0] == "Anonymous:":
            found += int(words[1]) << 10
    return found


def test_pending_signals_stay_pending(stage: Stage, live: str) -> None:
    """Signals that wait for a thread or the process wait afterwards too, each as often as before, and arrive when they are let in."""
    parked = victims.Parked(stage.start("victim_parked", "pending"))
    before = victims.pending_of(parked.pid)
    assert int(before["process"], 16) and int(before["threads"][parked.lwp], 16)
    for _ in range(3):
        heapx(["--pid", str(parked.pid)], "trim", "--yes", "--json")
        assert victims.pending_of(parked.pid) == before
    parked.go()
    assert parked.pending == 3001


def test_stopped_process_stays_stopped(stage: Stage, live: str) -> None:
    """A process that job control stopped is stopped afterwards, whatever the outcome, and runs on when it is told to."""
    process = stage.start("trimmer", "main")
    os.kill(process.pid, signal.SIGSTOP)
    victims.until(lambda: victims.status(process.pid, "State")[0] == "T", lambda: "does not stop", process)
    outcome = heapx(process.target(live), "trim", "--yes", "--json")
    assert outcome.code in (0, 1), outcome.stderr
    assert victims.status(process.pid, "TracerPid") == "0"
    assert victims.status(process.pid, "State")[0] == "T"
    os.kill(process.pid, signal.SIGCONT)
    process.command(b"t")


# ---------------------------------------------------------------------------------------------------- --every

STORY = ("message", "periodMs", "elapsedMs", "rss.before", "rss.after", "rss.diff")


@pytest.mark.once
def test_every_acts_above_a_limit(stage: Stage, live: str) -> None:
    """--every S --above BYTES --times N: N lines of JSON with the keys of the story; the process is free meanwhile and trimmed. The log of a
    second round that is over the limit says that nothing free was in RAM."""
    process = stage.start("trimmer", "arenas")
    before = process.smaps_rollup("Rss")
    outcome = heapx(process.target(live), "trim", "--every", "1", "--above", "1", "--times", "2", "--yes")
    assert outcome.code == 0, outcome.stderr
    first, second = outcome.lines
    for line in (first, second):
        assert set(STORY) <= set(line) and line["periodMs"] == 1000 and line["rss.diff"] == line["rss.after"] - line["rss.before"]
    assert first["message"] == "trimmed" and first["rss.diff"] < -100 * PAGE and before - process.smaps_rollup("Rss") > 100 * PAGE
    assert second["message"].startswith("trimmed: nothing") and second["rss.diff"] == 0 == second["predicted_resident_bytes"]
    process.command(b"t")


@pytest.mark.once
def test_every_leaves_alone_below_the_limit(stage: Stage, live: str) -> None:
    """Where there is nothing above BYTES, nothing is called."""
    process = stage.start("trimmer", "main")
    before = process.smaps_rollup("Anonymous")
    outcome = heapx(process.target(live), "trim", "--every", "1", "--above", str(1 << 50), "--times", "2", "--yes")
    assert outcome.code == 0, outcome.stderr
    assert all(set(STORY) <= set(line) for line in outcome.lines)
    assert process.smaps_rollup("Anonymous") == before
    process.command(b"t")


@pytest.mark.once
@pytest.mark.parametrize("is_reaped", [True, False])
def test_every_ends_with_its_process(stage: Stage, live: str, is_reaped: bool) -> None:
    """When the process ends, reaped or not, so does --every, with exit code 0: it did what it was asked for as long as there was a process."""
    process = stage.start("trimmer", "main")
    tool = subprocess.Popen(
        [*tool_command(), *process.target(live), "trim", "--every", "1", "--above", "1", "--yes"], env=tool_environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )
    try:
        assert set(STORY) <= set(json.loads(tool.stdout.readline()))
        process.end() if is_reaped else process.popen.kill()
        _, errors = tool.communicate(timeout=TOOL_SECONDS)
    finally:
        tool.kill()
        tool.wait()
    assert tool.returncode == 0 and errors.decode().count("gdbheapx: ") <= 1, errors


# ---------------------------------------------------------------------------------------------------- the question, and inside gdb


def on_terminal(words: List[str], answer: bytes) -> "tuple[int, bytes]":
    """Exit code and everything shown, of the tool on a terminal where `answer` is typed at its question."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(words[0], words, tool_environment())
    shown, asked, end = b"", False, time.monotonic() + TOOL_SECONDS
    try:
        while time.monotonic() < end:
            if not select.select([fd], [], [], 0.2)[0]:
                if b"?" in shown and not asked:
                    asked = True
                    os.write(fd, answer)
                continue
            try:
                piece = os.read(fd, 4096)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        else:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(fd)
        code = os.waitpid(pid, 0)[1]
    assert asked, "nothing was asked: %r" % shown
    return os.WEXITSTATUS(code), shown


@pytest.mark.once
@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_terminal_is_asked(stage: Stage, live: str, answer: str) -> None:
    """Without --yes the terminal is asked: `y` does it, anything else leaves the process as it was."""
    process = stage.start("trimmer", "main")
    before = process.smaps_rollup("Anonymous")
    code, shown = on_terminal([*tool_command(), *process.target(live), "trim"], answer.encode() + b"\n")
    drop = before - process.smaps_rollup("Anonymous")
    assert (code, drop > 100 * PAGE) == ((0, True) if answer == "y" else (1, False)), shown
    process.command(b"t")


def test_inside_gdb(stage: Stage, live: str, folder: Path) -> None:
    """The same inside gdb: the answer is the shell's, and the process is gdb's as before, stopped at the same place."""
    process = stage.start("trimmer", "arenas")
    file = folder / "answer"
    state = [
        "info registers",
        VECTORS.get(native_architecture().name, "info registers float"),
        "show scheduler-locking",
        "show unwindonsignal",
        "info signals SIGINT",
        "info signals SIG34",
        "info breakpoints",
    ]
    marks = ["echo \\n---\\n"]
    outcome = in_gdb(process.target(live), marks + state + marks + ["heapx trim --yes --json -o %s" % file] + marks + state + marks)
    data = acted(json.loads(file.read_text())["data"])
    assert -data["anonymous_diff_bytes"] == data["predicted_resident_bytes"]
    _, before, _, after, _ = outcome.stdout.decode().split("\n---\n")
    assert before == after
    assert all(any(line.split()[:1] == [name] for line in before.splitlines()) for name in native_architecture().to_call().general if "orig" not in name)
    victims.check_free(process)
    process.command(b"t")


VECTORS = {"i386:x86-64": "info registers xmm0 xmm15 mxcsr st0", "aarch64": "info registers v0 v15 v31 fpsr fpcr"}
