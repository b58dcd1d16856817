"""`capture --listen`: what the kernel connects for leaves the same snapshots as what it starts a handler for, and nothing ends the server.

Files: addons/monitor/capture/listener.py
"""

import ctypes.util
import os
import shutil
import signal
import socket
from pathlib import Path
from typing import Callable, Tuple

import pytest

from tests.support import crashes, units
from tests.support.paths import ROOT
from tests.support.processes import Stage
from tests.support.programs import need
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # it sets core_pattern, which is the machine's: no image may
RATE = "200000000"
Started = Callable[..., crashes.Server]


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
