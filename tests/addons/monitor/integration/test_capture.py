"""`capture`: processes that crash while they allocate leave whole snapshots, which say what their cores say, to the byte; nothing is held up.

`capture --listen`: what the kernel connects for leaves the same snapshots as what it starts a handler for, and nothing ends the server.

Files: addons/monitor/capture/command.py, addons/monitor/capture/dumped.py, addons/monitor/capture/listener.py,
addons/monitor/commands/capture.py.
"""

import ctypes.util
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, List, Tuple

import pytest

from tests.support import crashes, memory_group, near_limit, units
from tests.support.busy import stretch
from tests.support.paths import ROOT
from tests.support.processes import Stage
from tests.support.programs import need
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # it sets core_pattern, which is the machine's: no image may

RATE = "200000000"
Started = Callable[..., crashes.Server]
TAKEN = ("taken", "partial")


@pytest.mark.slow
@pytest.mark.parametrize("number, form", [(0, "|"), (3, "|"), (0, "@@"), (3, "@@"), (9, "@")])
def test_a_crash_while_four_threads_allocate(stage: Stage, started: Started, number: int, form: str) -> None:
    """By a fault and by abort(): the snapshot is there when the process is gone, and has what the core has that was handed on, to the byte; by a
    handler, and by a socket with and without a request."""
    folder, process = stage.folder(), stage.start("crashing", "4", RATE)
    time.sleep(0.02 * number)  # it grows meanwhile: how far is what the rounds differ by
    server = started("", folder=folder) if form != "|" else None
    line = crashes.captured(process, ("byte", "s" if number % 2 else "a"), folder, server, form)
    assert line["outcome"] in TAKEN and line["passed_code"] == 0, line
    assert (line["pid"], line["program"], line["threads"]) == (process.pid, "crashing", 5)
    assert process.popen.returncode == (-11 if number % 2 else -6)
    path = Path(line["path"])
    assert path.stat().st_size == line["size_bytes"] and path.stat().st_mode & 0o777 == 0o600
    crashes.same_as_core(line["path"], folder / "core", folder)


def test_a_living_process_or_another_core_is_refused(stage: Stage) -> None:
    """The handler is given the wrong process: nothing is written, the core goes on, and one line says why."""
    folder, process, other = stage.folder(), stage.start("crashing", "1", "1000000"), stage.start("crashing", "1", "1000000")
    core = folder / "core"
    crashes.crash(process, folder, ("byte", "s"), crashes.capture_words(folder, *crashes.keeping(core)).replace("$1", str(other.pid)))
    (line,) = crashes.decided(folder)
    assert line["outcome"] == "failed" and "not writing a core of process %d" % other.pid in line["why"] and line["passed_code"] == 0
    assert heapx(["--core", str(core)], "arenas", "--json").code in (0, 4) and other.popen.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize("threads, form", [(2000, "|"), (500, "@@")])
def test_thousands_of_threads(stage: Stage, started: Started, threads: int, form: str) -> None:
    """Their registers come with the beginning of the core, also through a socket whose buffer is smaller."""
    folder, process = stage.folder(), stage.start("crashing", str(threads), "20000000")
    line = crashes.captured(process, ("signal", "SIGABRT"), folder, started("", folder=folder) if form != "|" else None)
    assert line["outcome"] in TAKEN and line["threads"] == threads + 1, line
    assert len(heapx(["--snapshot", line["path"]], "tcache", "--json").envelope["data"]["threads"]) == threads + 1


@pytest.mark.parametrize(
    "more, outcome",
    [(("--max-seconds", "0.05"), "too-slow"), (("--max-memory", "1M"), "failed"), (("--to", "/proc/none"), "failed")],
)
def test_what_cannot_be_done_is_said_and_the_core_goes_on(stage: Stage, more: List[str], outcome: str) -> None:
    """No time, no memory, no folder: the dump waits no longer than was said, and no file is left."""
    folder, process = stage.folder(), stage.start("crashing", "4", RATE)
    size = folder / "size"
    began = time.monotonic()
    crashes.crash(process, folder, ("byte", "a"), crashes.capture_words(folder, *more, "--pass-to", "/bin/sh", "-c", "'wc -c > %s'" % size))
    (line,) = crashes.decided(folder)
    assert line["outcome"] == outcome and line["why"] and line["path"] is None and line["passed_code"] == 0, line
    assert int(size.read_text()) > 1 << 20 and time.monotonic() - began < stretch(30)
    assert "Traceback" not in line["why"] and not list((folder / "to").glob("*.snap*"))


@pytest.mark.parametrize("form", ["|", "@@"])
def test_two_at_once_take_turns(stage: Stage, started: Started, form: str) -> None:
    """The second waits for its turn; both are taken."""
    processes = [stage.start("crashing", "2", RATE) for _ in range(2)]
    server, folder = started() if form != "|" else None, stage.folder()
    for process in processes:
        handler = crashes.handled(stage.folder(), process.pid, crashes.capture_words(folder)) if server is None else server.named(process)
        with handler:
            os.kill(process.pid, signal.SIGSEGV)
    for process in processes:
        process.popen.wait(crashes.SECONDS)
    lines = crashes.decided(server.folder if server else folder, 2)
    assert sorted(line["pid"] for line in lines) == sorted(process.pid for process in processes)
    assert all(line["outcome"] in TAKEN for line in lines), lines


def test_a_process_that_is_killed_meanwhile(stage: Stage) -> None:
    """SIGKILL ends a dump, and the memory with it: there is none or a whole one, and a line that says so."""
    folder, process = stage.folder(), stage.start("crashing", "4", RATE)
    time.sleep(0.5)
    with crashes.handled(folder, process.pid, crashes.capture_words(folder)):
        os.kill(process.pid, 11)
    time.sleep(0.4)
    process.popen.kill()
    process.popen.wait(crashes.SECONDS)
    (line,) = crashes.decided(folder)
    assert line["outcome"] in ("failed", "taken", "partial")
    assert list((folder / "to").glob("*.snap*")) == ([Path(line["path"])] if line["path"] else [])

HOLDS = "import sys, time; kept = [{'id': number, 'text': str(number)} for number in range(5000)]; print('ready', flush=True); time.sleep(600)"
REDIS = ["redis-server", "--port", "0", "--unixsocket", "socket", "--save", "", "--crash-memcheck-enabled", "no"]
"""Its handler of SIGSEGV else writes patterns over all its memory, while jemalloc's thread runs, and may crash there once more
(debug.c: doFastMemoryTest)."""

SERVES = b"ready to accept connections"


@pytest.mark.slow
@pytest.mark.parametrize("command, ready", [([sys.executable, "-c", HOLDS], b"ready\n"), (REDIS, SERVES)], ids=["python", "redis"])
def test_programs_that_nobody_here_wrote(stage: Stage, command: List[str], ready: bytes) -> None:
    """Python, on glibc's malloc, and redis-server, on jemalloc."""
    need(command[0])
    folder = stage.folder()
    process = stage.spawn(command, folder)
    got = b""
    while ready not in got.lower():
        assert select.select([process.popen.stdout], [], [], 30)[0], got
        got += os.read(process.popen.stdout.fileno(), 4096) or pytest.fail(repr(got))
    line = crashes.captured(process, ("signal", "SIGSEGV"), folder)
    assert line["outcome"] == "taken" and process.popen.returncode == -11, json.dumps(line)
    crashes.same_as_core(line["path"], folder / "core", folder)

LIMITS = {"memory.max": "memory.current", "memory.limit_in_bytes": "memory.usage_in_bytes"}
ROOM = {"pipe": 256 << 10, "socket": 1 << 20}
"""Up to the limit. What the kernel holds of the core in its socket is charged to the group (net.core.wmem_default, 208 KiB, and what holds it), as
the 64 KiB of a pipe are."""


@pytest.mark.parametrize("form", ["pipe", "socket"])
def test_a_memory_cgroup_at_its_limit(stage: Stage, started: Started, form: str) -> None:
    """Reading costs the group nothing but what the kernel holds of the core: nobody is killed, and the snapshot is whole."""
    folder = stage.folder()
    program, core = stage.builder.build("crashing"), folder / "core"
    try:
        with memory_group.limited(1 << 40) as group:
            process = stage.spawn_ready(memory_group.entering(group, str(program), str(folder / "record"), "4", RATE), folder)
            time.sleep(1)
            os.kill(process.pid, signal.SIGSTOP)
            while any(path.read_text().rpartition(")")[2].split()[0] != "T" for path in Path("/proc/%d/task" % process.pid).glob("*/stat")):
                time.sleep(0.001)
            limit, used = next((group / name, group / of) for name, of in LIMITS.items() if (group / name).exists())
            limit.write_text(str(int(used.read_text()) + ROOM[form]))
            before = near_limit.field(group, near_limit.KILLS, ["oom_kill "])
            server = started("", folder=folder) if form == "socket" else None
            by_pipe = crashes.capture_words(folder, *crashes.keeping(core))
            with server.named(process) if server is not None else crashes.handled(folder, process.pid, by_pipe):
                os.kill(process.pid, signal.SIGSEGV)
                os.kill(process.pid, signal.SIGCONT)
            assert process.popen.wait(crashes.SECONDS) == -signal.SIGSEGV
            (told,) = crashes.decided(folder)
            assert server is None or server.end() == 0
            assert told["outcome"] in TAKEN and near_limit.field(group, near_limit.KILLS, ["oom_kill "]) == before, told
    except memory_group.NoGroup as none:
        pytest.skip(str(none))
    crashes.same_as_core(told["path"], core, folder)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
@pytest.mark.parametrize("form", ["|", "@@"])
def test_a_container_is_seen_from_outside(stage: Stage, started: Started, form: str) -> None:
    """Of a process in namespaces of its own %P, and the pidfd of a socket, is the id outside; its files are those of its own tree."""
    folder = stage.folder()
    program, server = stage.builder.build("crashing"), started("", folder=folder) if form != "|" else None
    outer = stage.spawn_ready(["unshare", "--pid", "--fork", "--mount-proc", str(program), str(folder / "record"), "2", RATE], folder)
    (pid,) = map(int, subprocess.run(["pgrep", "-P", str(outer.pid)], stdout=subprocess.PIPE, text=True).stdout.split())
    with server.named(outer, pid) if server is not None else crashes.handled(folder, pid, crashes.capture_words(folder)):
        outer.send(b"s")  # the first process of a namespace dies of its own faults alone
    outer.popen.wait(crashes.SECONDS)
    (line,) = crashes.decided(folder)
    assert line["outcome"] in TAKEN and line["pid"] == pid, line
    found = heapx(["--snapshot", line["path"]], "arenas", "--json").envelope
    assert found["target"]["pid"] == pid and found["allocators"][0]["id"] == "glibc"


def test_who_is_not_the_kernel_is_refused(stage: Stage, started: Started) -> None:
    """Whoever connects and does not crash gets nothing, whatever it sends; the next crash is handled. Others than its owner cannot connect."""
    server = started()
    assert server.path.stat().st_mode & 0o777 == 0o600
    for sent in (b"", b"\x7fELF" + bytes(5000), bytes(16)):
        with socket.socket(socket.AF_UNIX) as other:
            other.settimeout(20)
            other.connect(str(server.path))
            try:
                other.sendall(sent)
                got = other.recv(16)
            except ConnectionError:
                got = b""
            assert not got
    assert [one["outcome"] for one in crashes.decided(server.folder, 3)] == 3 * ["refused"]
    assert {one["pid"] for one in crashes.decided(server.folder)} == {os.getpid()} and not (server.folder / "to").exists()
    assert server.crash(stage.start("crashing", "1", "1000000"), ("byte", "a"))["outcome"] in ("taken", "partial")


def test_a_crash_ends_no_server_and_a_server_no_crash(stage: Stage, started: Started) -> None:
    """A child that is killed has its process go; a server that is killed leaves its children at work; without a server processes end, at once."""
    server = started()
    first, second, third = (stage.start("crashing", "4", RATE) for _ in range(3))
    with server.named(first):
        crashes.die(first, ("byte", "s"))
    (child,) = server.children()
    os.kill(child, signal.SIGKILL)
    assert first.popen.wait(crashes.SECONDS) == -11 and server.popen.poll() is None
    with server.named(second):
        crashes.die(second, ("byte", "a"))
    assert server.end(signal.SIGKILL) == -9 and server.path.exists()
    with crashes.pattern("@@" + str(server.path), lambda: third.popen.poll() is not None):
        crashes.die(third, ("byte", "s"))
    assert third.popen.returncode == -11 and second.popen.wait(crashes.SECONDS) == -6
    (line,) = crashes.decided(server.folder)
    assert line["pid"] == second.pid and line["outcome"] in ("taken", "partial")


def test_while_a_server_stands_still_crashes_wait(stage: Stage, started: Started) -> None:
    """Who is killed meanwhile goes, and is said to have gone; the other is handled when the server runs on."""
    server, first, second = started(), stage.start("crashing", "1", "1000000"), stage.start("crashing", "1", "1000000")
    os.kill(server.popen.pid, signal.SIGSTOP)
    for process in (first, second):
        with crashes.pattern("@@" + str(server.path), lambda process=process: waits(process.pid)):  # type: ignore[misc]
            crashes.die(process, ("byte", "s"))
    first.popen.kill()
    assert first.popen.wait(crashes.SECONDS) == -9 and second.popen.poll() is None
    os.kill(server.popen.pid, signal.SIGCONT)
    assert second.popen.wait(crashes.SECONDS) == -11
    assert server.line(first.pid)["outcome"] == "failed" and server.line(second.pid)["outcome"] in ("taken", "partial")


def waits(pid: int) -> bool:
    """The kernel has connected for this process, and sleeps."""
    text = Path("/proc/%d/status" % pid).read_text()
    return "CoreDumping:\t1" in text and "State:\tS" in text


def test_one_server_for_a_socket(stage: Stage, started: Started) -> None:
    """A second one says so; what a killed one left is no hindrance; one that is asked to end finishes what it does and takes its socket away."""
    server = started()
    second = started(folder=server.folder)
    assert second.popen.wait(crashes.SECONDS) == 1 and second.popen.stderr and b"in use" in second.popen.stderr.read()
    tried = crashes.decided(server.folder)  # the second has asked whether anybody answers: a child that begins with that listens, too
    assert [one["outcome"] for one in tried] == ["refused"]
    assert server.path.exists() and server.end(signal.SIGKILL) == -9
    third, process = started(folder=server.folder), stage.start("crashing", "4", RATE)
    with third.named(process):
        crashes.die(process, ("byte", "s"))
    assert third.end() == 0 and not third.path.exists()
    assert process.popen.wait(crashes.SECONDS) == -11
    assert [one["outcome"] for one in crashes.decided(third.folder, 2)][-1] in ("taken", "partial")


def test_what_a_core_is_handed_on_to_may_crash(stage: Stage, started: Started) -> None:
    """No core is taken of it, or there would be no end."""
    server, process = started("kill -SEGV $$"), stage.start("crashing", "1", "1000000")
    with server.named(process):
        crashes.die(process, ("byte", "s"))
        process.popen.wait(crashes.SECONDS)
    line, refused = crashes.decided(server.folder, 2)[::-1]
    assert line["pid"] == process.pid and line["passed_code"] == -11 and refused["outcome"] == "refused" and "RLIMIT_CORE" in refused["why"]


def test_systemd_may_listen_for_it(stage: Stage, started: Started) -> None:
    """The socket that it passes is served, and stays when the server ends; another one than what was named is refused."""
    folder = stage.folder()
    with socket.socket(socket.AF_UNIX) as listening:
        before = os.umask(0o177)
        listening.bind(str(folder / "socket"))
        os.umask(before)
        listening.listen()
        script = "import os, sys; os.dup2(%d, 3); os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); os.execv(sys.argv[1], sys.argv[1:])"
        prefix = [shutil.which("python3") or "python3", "-c", script % listening.fileno()]
        server = started(folder=folder, prefix=prefix, inherited=listening.fileno())
        assert server.crash(stage.start("crashing", "1", "1000000"), ("byte", "a"))["outcome"] in ("taken", "partial")
        assert server.end() == 0 and server.path.exists()
        other = stage.folder()
        wrong = started(folder=other, prefix=prefix, inherited=listening.fileno())
        assert wrong.popen.wait(crashes.SECONDS) == 1 and wrong.popen.stderr and b"systemd listens at" in wrong.popen.stderr.read()


def test_the_unit_suffices(stage: Stage, started: Started) -> None:
    """With the capabilities and system calls that gdbheapx-capture.service leaves it, another user's process is read as well as without."""
    for program in ("systemd-analyze", "setpriv"):
        need(program)
    if ctypes.util.find_library("seccomp") is None:
        pytest.skip("takes libseccomp")
    folder = stage.folder()
    unit = ROOT / "docs" / "how-to" / "examples" / "gdbheapx-capture.service"
    server = started("", folder=folder, prefix=units.under(str(unit), []))
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", "print('ready', flush=True); input()"]
    process = stage.spawn(command, stage.folder())
    assert process.popen.stdout and process.popen.stdout.readline() == b"ready\n"
    line = server.crash(process, ("signal", "SIGSEGV"))
    assert line["outcome"] == "taken" and line["program"] == "python3", line
    crashes.same_as_core(line["path"], folder / "core", folder)


@pytest.mark.parametrize(
    "words, code, told",
    [
        (("--listen", "relative"), 1, "absolute path"),
        (("--listen", "/tmp/socket"), 1, "others may write to /tmp"),
        (("7", "--listen", "/run/socket"), 2, "cannot be combined"),
        (("--listen", "/run/socket", "--pass-to", "/bin/x", "%P", "%I"), 2, "cannot fill in %I"),
    ],
)
def test_what_cannot_be_served_is_one_line(words: Tuple[str, ...], code: int, told: str) -> None:
    """Cause, then the next step."""
    done = heapx([], "capture", *words)
    assert done.code == code and told in done.stderr and done.stderr.count("\n") == 1, done.stderr
