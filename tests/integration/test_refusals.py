"""Every refusal of trim, purge and --cure, provoked for real: one line with its reason, nothing changed, and the process serves on.

Files: actions/call.py, actions/gdb_control.py.
"""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, Tuple

import pytest

from tests.support import jemallocs
from tests.support.gdbserver import Server
from tests.support.other_machines import i386_program
from tests.support.other_machines import start as start_foreign
from tests.support.paths import GDB, GDBINIT, PROGRAMS
from tests.support.processes import Builder, Process, Stage
from tests.support.programs import need
from tests.support.tool import heapx, in_gdb, run
from tests.support.victims import Parked, check_free, refusal, start_parked

pytestmark = pytest.mark.image  # what its gdb shows of threads, frames and settings

PAGE = resource.getpagesize()
WAIT = ("--wait", "5")
"""So that a refusal does not take long."""
ACTIONS = (("trim", "--yes"), ("purge", "--yes"), ("tickers", "--cure", "--yes"))


def refused(process: Any, *words: str) -> str:
    """The line; the process has the same memory before and after, and is free."""
    before = process.smaps_rollup("Anonymous")
    line = refusal(heapx(["--pid", str(process.pid)], *words))
    assert abs(process.smaps_rollup("Anonymous") - before) <= 1 << 16, "something was given back after all"
    check_free(process)
    return line


def with_jemalloc(stage: Stage, program: str, *arguments: str) -> Process:
    """A program with this system's jemalloc preloaded."""
    return stage.start(program, *arguments, env={"LD_PRELOAD": str(jemallocs.library()), "MALLOC_CONF": "dirty_decay_ms:-1"})


# ---------------------------------------------------------------------------------------------------- what it is asked of


@pytest.mark.once  # refused before gdb is asked
@pytest.mark.parametrize("words", ACTIONS, ids=lambda words: words[0])
def test_core(stage: Stage, core: str, words: "tuple[str, ...]") -> None:
    """A core is no process: exit code 1 and one sentence, from every action."""
    process = with_jemalloc(stage, "victim", "rest") if words[0] != "trim" else stage.start("trimmer", "main")
    line = refusal(heapx(process.target(core), *words))
    assert "core" in line


@pytest.mark.once  # refused before gdb is asked
@pytest.mark.parametrize("words", ACTIONS, ids=lambda words: words[0])
def test_no_such_process(words: "tuple[str, ...]") -> None:
    """A process that is gone."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert str(gone.pid) in refusal(heapx(["--pid", str(gone.pid)], *words))


@pytest.mark.once  # refused before gdb is asked
def test_no_consent(stage: Stage, live: str) -> None:
    """Without --yes where there is no terminal to ask on, nothing is called, and the line names --yes."""
    process = stage.start("trimmer", "main")
    assert "--yes" in refused(process, "trim")
    process.command(b"t")


@pytest.mark.once  # refused before gdb is asked
def test_every_needs_consent(stage: Stage, live: str) -> None:
    """--every asks nobody, so it is wrong usage without --yes; nothing is called."""
    process = stage.start("trimmer", "main")
    before = process.smaps_rollup("Anonymous")
    outcome = heapx(process.target(live), "trim", "--every", "1", "--above", "1", "--times", "1")
    assert outcome.code == 2 and "--yes" in outcome.stderr
    assert process.smaps_rollup("Anonymous") == before
    process.command(b"t")


def test_wrong_allocator(stage: Stage, live: str) -> None:
    """trim where jemalloc owns malloc names purge; purge where glibc does names trim."""
    process = with_jemalloc(stage, "victim", "rest")
    assert "jemalloc" in refused(process, "trim", "--yes") and "purge" in refused(process, "trim", "--yes")
    process.command(b"x")
    process = stage.start("trimmer", "main")
    line = refused(process, "purge", "--yes")
    assert "jemalloc" in line or "trim" in line
    process.command(b"t")


def test_malloc_of_nobody_known(stage: Stage, live: str, folder: Path) -> None:
    """Another library's malloc: malloc_trim would do nothing for it."""
    library = folder / "libtiny.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(PROGRAMS / "tiny_malloc.c")], check=True)
    process = stage.start("victim_parked", "idle", env={"LD_PRELOAD": str(library)})
    line = refused(process, "trim", "--yes")
    assert "libtiny.so" in line and "owns malloc" in line
    assert "owns malloc" in refused(process, "purge", "--yes")
    Parked(process).go()


def test_remote(stage: Stage, live: str) -> None:
    """A process behind gdbserver."""
    need("gdbserver")
    server = Server(stage.start("trimmer", "main").pid)
    connect = ["-ex", "target remote localhost:" + server.port()]
    outcome = run([GDB, "-nx", "-q", "-batch", "-iex", "set auto-load no", *connect, "-x", str(GDBINIT), "-ex", "heapx trim --yes"])
    server.end()
    assert "a remote process cannot be trimmed from here" in outcome.stderr, outcome.stderr


def test_other_machines(stage: Stage, live: str, builder: Builder) -> None:
    """An i386 process: calls were not tried there."""
    process = start_foreign(stage, [str(i386_program(builder, "-static"))], "main")
    assert "i386" in refused(process, "trim", "--yes")


IGNORING = "import os, signal, sys; signal.signal(signal.%s, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
PENDING = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, {2}); os.kill(os.getpid(), 2); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.mark.parametrize("code", [IGNORING % "SIGTRAP", IGNORING % "SIGSEGV", PENDING], ids=["SIGTRAP ignored", "SIGSEGV ignored", "SIGINT pending"])
def test_signals_that_a_call_needs(stage: Stage, live: str, builder: Builder, code: str) -> None:
    """A call comes back by a trap, and is bounded by SIGINT: a process that ignores the one, or has the other waiting, is left alone."""
    folder = stage.folder()
    process = stage.spawn_ready([sys.executable, "-c", code, str(builder.build("victim_parked")), str(folder / "record"), "idle"], folder)
    line = refused(process, "trim", "--yes")
    assert ("SIGINT is pending" if code == PENDING else "ignores SIG") in line
    Parked(process).go()


def test_traced_by_another(stage: Stage, live: str) -> None:
    """A process that another debugger holds is left to it."""
    process = stage.start("trimmer", "main")
    other = subprocess.Popen(
        [GDB, "-nx", "-q", "-iex", "set auto-load no", "-p", str(process.pid), "-ex", "echo held\\n"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    )
    try:
        while other.stdout.readline().strip() != b"held":
            assert other.poll() is None
        line = refusal(heapx(process.target(live), "trim", "--yes"))
        assert str(other.pid) in line or "traced" in line
        other.stdin.write(b"detach\nquit\n")
        other.stdin.close()
        other.wait(60)
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    check_free(process)
    process.command(b"t")


# ---------------------------------------------------------------------------------------------------- gdb's settings


@pytest.mark.parametrize("setting", ["set may-call-functions off", "set observer on", "set may-write-registers off", "set may-write-memory off"])
def test_gdb_may_not_call(stage: Stage, live: str, setting: str) -> None:
    """Where gdb is told to call nothing, nothing is called, the line names the setting, and so does the dry run."""
    process = stage.start("trimmer", "main")
    before = process.smaps_rollup("Anonymous")
    first = [setting] if "may-call" in setting else []
    script = [word for one in first + ["heapx trim --dry-run", "heapx trim --yes"] for word in ("-ex", one)]
    early = ["-iex", setting] if not first else []  # the others are for before the attach
    outcome = run([GDB, "-nx", "-q", "-batch", "-iex", "set auto-load no", *early, "-p", str(process.pid), "-x", str(GDBINIT), *script])
    text = outcome.stderr + outcome.stdout.decode()
    assert text.replace(setting, "").count("(%s" % setting.split()[1]) == 2 and "would be refused here" in text, text
    assert process.smaps_rollup("Anonymous") >= before
    process.command(b"t")


BROKEN_WRITES = r"""python
import gdbheapx.inferior.gdb.inferior as inferior
def broken(*values):
    raise inferior.GdbError("Couldn't write extended state status: Bad address.")
inferior.write_vector = broken
end
"""


def test_registers_cannot_be_written(stage: Stage, live: str, folder: Path) -> None:
    """Where gdb cannot write vector registers (gdb up to 13 on CPUs with AMX), the probe finds out: another way is taken, or a refusal names registers."""
    for program, arguments in (("trimmer", ("main",)), ("victim_parked", ("inline",))):
        process = stage.start(program, *arguments)
        script, answer = folder / "broken.gdb", folder / ("answer-" + program)
        script.write_text(BROKEN_WRITES)
        before = process.smaps_rollup("Anonymous")
        outcome = in_gdb(process.target(live), ["source %s" % script, "heapx trim --yes --json -o %s" % answer])
        drop = before - process.smaps_rollup("Anonymous")
        if program == "trimmer":
            data = json.loads(answer.read_text())["data"]
            assert data["way"] == "register-call" and data["returned"] == 1 and "extended state" in data["way_reason"]
            own = data["predicted_resident_bytes"] + data["anonymous_diff_bytes"]  # each of this gdb's breakpoints in longjmp copies a page
            assert own in (0, PAGE, 2 * PAGE, 3 * PAGE) and drop > 1 << 20
            process.command(b"t")
        else:
            assert "register" in outcome.stderr and abs(drop) <= 1 << 16, outcome.stderr
            Parked(process).go()


# ---------------------------------------------------------------------------------------------------- where its threads are


def test_held_in_gdb(stage: Stage, live: str) -> None:
    """A process that the user himself holds is not let run to wait for a thread: he is told to."""
    parked = Parked(start_parked(stage, "malloc"))
    outcome = in_gdb(parked.process.target(live), ["heapx trim --yes"])
    assert str(parked.lwp) in outcome.stderr and "continue the process for a moment" in outcome.stderr, outcome.stderr
    parked.go()


@pytest.mark.parametrize(
    "state, words",
    [
        ("coroutine", ("stack", "coroutine")),  # how much of that stack is left, and whose it is, is not known
        ("handler", ("malloc",)),  # the top of that stack is a system call, but below it is malloc
    ],
)
def test_stack_that_hides_more(stage: Stage, live: str, state: str, words: Tuple[str, ...]) -> None:
    """The only thread runs on a coroutine's stack; a signal handler came in the middle of malloc and sleeps."""
    parked = Parked(stage.start("victim_parked", state))
    line = refused(parked.process, "trim", "--yes", *WAIT)
    assert str(parked.lwp) in line and not [word for word in words if word not in line], line
    parked.go()


@pytest.mark.parametrize("state", ["malloc", "malloc-single"])
def test_inside_malloc(stage: Stage, live: str, state: str) -> None:
    """A thread stands inside malloc, with the arena's mutex or, alone in its process, without: never called, and the line names it."""
    parked = Parked(start_parked(stage, state))
    line = refused(parked.process, "trim", "--yes", *WAIT)
    assert str(parked.lwp) in line and "malloc" in line
    parked.go()
    heapx(["--pid", str(parked.pid)], "trim", "--yes")
    parked.check_serves()


@pytest.mark.parametrize("command", ["trim", "purge"])
def test_fork_handler(stage: Stage, live: str, command: str) -> None:
    """A thread is inside fork, in a handler of pthread_atfork."""
    made = with_jemalloc(stage, "victim_parked", "atfork") if command == "purge" else stage.start("victim_parked", "atfork")
    parked = Parked(made)
    line = refused(parked.process, command, "--yes", *(WAIT if command == "trim" else ()))
    assert str(parked.lwp) in line and "fork" in line
    parked.go()


def test_inside_an_extent_hook(stage: Stage, live: str) -> None:
    """A thread makes an arena with hooks of its own and sleeps in one: it holds ctl_mtx, so a purge would wait for ever."""
    parked = Parked(with_jemalloc(stage, "victim_parked", "hooks"))
    line = refused(parked.process, "purge", "--yes")
    assert str(parked.lwp) in line
    parked.go()


def test_extent_hooks_of_its_own(stage: Stage, live: str) -> None:
    """What the program's own hooks do cannot be told, so the arena that has them is left alone; the others can be purged."""
    parked = Parked(with_jemalloc(stage, "victim_parked", "hooked"))
    line = refused(parked.process, "purge", "--yes")
    index = re.search(r"arena (\d+) uses custom extent hooks", line)
    assert index is not None, line
    assert "extent hooks" in refused(parked.process, "purge", "--arena", index.group(1), "--yes")
    assert heapx(parked.process.target(live), "purge", "--arena", "0", "--yes", "--json").data["returned"] == 0
    parked.go()


def test_arena_is_locked(stage: Stage, live: str) -> None:
    """An arena's mutex is held although nobody is inside malloc: the line names the arena; once it is free, the trim is made."""
    process = stage.start("trimmer", "main")
    set_word(process, "main_arena.mutex", 1)
    line = refused(process, "trim", "--yes", *WAIT)
    assert "arena" in line and ("lock" in line or "mutex" in line)
    set_word(process, "main_arena.mutex", 0)
    assert heapx(process.target(live), "trim", "--yes", "--json").data["returned"] == 1
    process.command(b"t")


def set_word(process: Process, variable: str, value: int) -> None:
    """Write a variable of libc by plain gdb."""
    outcome = in_gdb(process.target("live"), ["set var %s = %d" % (variable, value), "p %s" % variable])
    if b"= %d" % value not in outcome.stdout:
        pytest.skip("libc's debug symbols are not where plain gdb finds them: " + outcome.stderr.strip()[-200:])


def test_damaged_heap(stage: Stage, live: str) -> None:
    """malloc_trim would find the damage and end the process; the check before it does, and the process lives."""
    parked = Parked(stage.start("victim_parked", "damaged"))
    line = refused(parked.process, "trim", "--yes")
    assert "damage" in line or "corrupt" in line
    parked.check_serves()


def test_vfork(stage: Stage, live: str) -> None:
    """Between vfork and exec, child and parent share one memory: both are refused, neither hangs, and both go on."""
    parked = Parked(stage.start("victim_parked", "vfork"))
    line = refusal(heapx(["--pid", str(parked.child)], "trim", "--yes", *WAIT))
    assert "vfork" in line
    line = refusal(heapx(["--pid", str(parked.pid)], "trim", "--yes", *WAIT))
    assert "vfork" in line or str(parked.lwp) in line
    parked.go()
