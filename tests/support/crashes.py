"""Crashes whose core the kernel hands to a handler: core_pattern is another one until the handler has begun, and for the others what it was."""

import fcntl
import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import pytest

from tests.support import kernelcore
from tests.support.processes import Process
from tests.support.tool import ROOT, heapx

SECONDS, BEGIN_SECONDS = 120, 60
ACCOUNTS = ("arenas", "bins", "tcache", "leaks", "owners")
SCRIPT = """#!/bin/sh
export PYTHONPATH=%(root)s
if [ "$1" = "$(cat %(folder)s/pid)" ]; then
  : > %(folder)s/begun
  exec %(command)s
fi
[ "$2" = 0 ] || exec cat > "/proc/$1/cwd/core"
"""
"""What other processes leave meanwhile goes where it went before."""
MODES = Path("/proc/sys/kernel/core_modes")


def reason() -> Optional[str]:
    """Why no handler can be tried here; None if one can."""
    if os.geteuid() or not os.access(str(kernelcore.PATTERN), os.W_OK):
        return "kernel.core_pattern cannot be set here (root alone may)"
    if kernelcore.PATTERN.read_text().strip() != "core":
        return "kernel.core_pattern is not `core`: what other processes leave meanwhile would go astray"
    try:
        kernelcore.PATTERN.write_text("core")
    except OSError as error:
        return "kernel.core_pattern cannot be set here (%s)" % error.strerror
    return None


def capture_words(folder: Path, *more: str) -> str:
    """The handler's command with its files in this folder, for a shell; `$1` is the process."""
    own = ("--to", str(folder / "to"), "--log", str(folder / "log"), "--max-seconds", "60")
    return "%s -m gdbheapx capture $1 %s" % (shlex.quote(sys.executable), " ".join([*own, *more]))


def keeping(core: Path) -> Sequence[str]:
    """Options of a handler that have the core go on to a file."""
    return "--pass-to", "/bin/sh", "-c", "'cat > %s'" % core


@contextmanager
def handled(folder: Path, pid: int, command: str) -> Iterator[None]:
    """The kernel starts this command for a crash of this process, as soon as the body has it crash: it is waited for."""
    for name in ("pid", "begun"):
        (folder / name).unlink(missing_ok=True)
    script = write_script(folder, command)
    (folder / "pid").write_text("%d\n" % pid)
    with pattern("|%s %%P %%c" % script, (folder / "begun").exists):
        yield


def write_script(folder: Path, command: str) -> Path:
    """The program that handles a core of the process whose id is in the file `pid` of the folder by this command."""
    script = folder / "handler"
    script.write_text(SCRIPT % {"root": shlex.quote(str(ROOT)), "folder": shlex.quote(str(folder)), "command": command})
    script.chmod(stat.S_IRWXU)
    return script


@contextmanager
def pattern(text: str, has_begun: Callable[[], bool]) -> Iterator[None]:
    """core_pattern is this until what the body has crash is being handled."""
    with kernelcore.locked(fcntl.LOCK_EX):
        why = reason()
        if why:
            pytest.skip(why)
        before = kernelcore.PATTERN.read_text()
        try:
            kernelcore.PATTERN.write_text(text)
            yield
            until = time.monotonic() + BEGIN_SECONDS
            while not has_begun():
                assert time.monotonic() < until, "the kernel has not started the handler"
                time.sleep(0.001)
        finally:
            kernelcore.PATTERN.write_text(before)


def crash(process: Process, folder: Path, how: Sequence[str], command: str) -> None:
    """Have it crash: by a byte of its own, or by a signal; the handler has ended afterwards, for the kernel waits for it."""
    with handled(folder, process.pid, command):
        die(process, how)
    process.popen.wait(SECONDS)


def die(process: Process, how: Sequence[str]) -> None:
    """Have it crash."""
    if how[0] == "byte":
        process.send(how[1].encode())
    else:
        os.kill(process.pid, signal.Signals[how[1]])


class Server:
    """`capture --listen` with its socket, snapshots and log in a folder. Cores go on to its file `core`, or to `command`, in which `$1` is the process."""

    def __init__(self, folder: Path, command: str = "", *more: str, prefix: Sequence[str] = (), inherited: Optional[int] = None) -> None:
        if not MODES.exists() or "socket" not in MODES.read_text().split():
            pytest.skip("this kernel connects to no sockets (Linux 6.17)")
        self.folder, self.path = folder, folder / "socket"
        folder.chmod(stat.S_IRWXU)
        (folder / "pid").write_text("")
        words = ["--to", str(folder / "to"), "--log", str(folder / "log"), "--max-seconds", "60", *more]
        words += ["--pass-to", str(write_script(folder, command or "sh -c 'cat > \"%s\"'" % (folder / "core"))), "%P", "%c"]
        tool = [*prefix, sys.executable, "-m", "gdbheapx", "capture", "--listen", str(self.path), *words]
        kept = () if inherited is None else (inherited,)
        pipe = subprocess.PIPE
        self.popen = subprocess.Popen(tool, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, cwd=str(ROOT), pass_fds=kept)
        self.said = self.popen.stdout.readline()

    def children(self) -> List[int]:
        """Each handles something, or has ended a moment ago."""
        return [int(word) for word in Path("/proc/%d/task/%d/children" % (self.popen.pid, self.popen.pid)).read_text().split()]

    @contextmanager
    def named(self, process: Process, pid: Optional[int] = None, form: str = "@@") -> Iterator[None]:
        """core_pattern names the socket until what the body has crash is being handled."""
        (self.folder / "pid").write_text("%d\n" % (pid or process.pid))
        before = self.children()
        with pattern(form + str(self.path), lambda: bool(set(self.children()) - set(before)) or process.popen.poll() is not None):
            yield

    def crash(self, process: Process, how: Sequence[str], form: str = "@@") -> Dict[str, Any]:
        """Have it crash; its line of the log, when it is gone."""
        with self.named(process, form=form):
            die(process, how)
        process.popen.wait(SECONDS)
        return self.line(process.pid)

    def line(self, pid: int) -> Dict[str, Any]:
        """What the log says of a process."""
        until = time.monotonic() + SECONDS
        while True:
            found = [one for one in decided(self.folder, 0) if one.get("pid") == pid]
            if found:
                return found[-1]
            assert time.monotonic() < until and self.popen.poll() is None, "nothing is said"
            time.sleep(0.01)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its exit code."""
        self.popen.send_signal(number)
        code = self.popen.wait(SECONDS)
        self.popen.stdout.close()
        self.popen.stderr.close()
        return code


def captured(process: Process, how: Sequence[str], folder: Path, server: Optional[Server] = None, form: str = "@@") -> Dict[str, Any]:
    """Have it crash; the log's line of it. The core goes on to the file `core` of the folder, by a handler of its own or by this server of the folder."""
    if server is not None:
        return server.crash(process, how, form)
    crash(process, folder, how, capture_words(folder, *keeping(folder / "core")))
    (line,) = decided(folder)
    return line


def decided(folder: Path, count: int = 1) -> List[Dict[str, Any]]:
    """The log, when it has so many lines: without core_pipe_limit the process may be gone before them."""
    path, until = folder / "log", time.monotonic() + SECONDS
    path.touch()
    while path.read_text().count("\n") < count:
        assert time.monotonic() < until, "nothing is said"
        time.sleep(0.01)
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_places(value: Any) -> Any:
    """Without addresses, which a snapshot moves, and sentences, which have them."""
    if isinstance(value, dict):
        return {key: without_places(one) for key, one in value.items() if key not in ("address", "chunk", "tcache", "why", "where", "command")}
    if isinstance(value, list):
        return [without_places(one) for one in value]
    return None if isinstance(value, str) and "0x" in value else value


def same_as_core(snapshot: str, core: Path, folder: Path) -> None:
    """Assert that the snapshot answers as one of the core does."""
    own = str(folder / "own.snap")
    assert heapx(["--core", str(core)], "snapshot", own).code in (0, 4)
    for name in ACCOUNTS:
        same(name, ["--snapshot", own], snapshot)
    assert heapx(["--snapshot", snapshot], "report").code in (0, 4)


def same(name: str, of_core: List[str], snapshot: str) -> None:
    """Assert that one command has the same answer, places left out."""
    core, crashed = heapx(of_core, name, "--json"), heapx(["--snapshot", snapshot], name, "--json")
    assert core.code == crashed.code in (0, 4), (name, crashed.stderr)
    assert without_places(core.envelope["data"]) == without_places(crashed.envelope["data"]), name
