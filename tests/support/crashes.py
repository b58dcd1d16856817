"""Crashes whose core the kernel hands to a handler: core_pattern is another one until the handler has begun, and for the others what it was."""

import fcntl
import json
import os
import shlex
import signal
import stat
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

import pytest

from tests.support import kernelcore
from tests.support.processes import Process
from tests.support.tool import ROOT, heapx

SECONDS, BEGIN_SECONDS = 120, 20
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


def capture_words(*words: str) -> str:
    """The handler's command, for a shell; `$1` is the process."""
    return "%s -m gdbheapx.cli capture $1 %s" % (shlex.quote(sys.executable), " ".join(words))


@contextmanager
def handled(folder: Path, pid: int, command: str) -> Iterator[None]:
    """The kernel starts this command for a crash of this process, as soon as the body has it crash: it is waited for."""
    script = folder / "handler"
    for name in ("pid", "begun"):
        (folder / name).unlink(missing_ok=True)
    script.write_text(SCRIPT % {"root": shlex.quote(str(ROOT)), "folder": shlex.quote(str(folder)), "command": command})
    script.chmod(stat.S_IRWXU)
    (folder / "pid").write_text("%d\n" % pid)
    with kernelcore.locked(fcntl.LOCK_EX):
        why = reason()
        if why:
            pytest.skip(why)
        before = kernelcore.PATTERN.read_text()
        try:
            kernelcore.PATTERN.write_text("|%s %%P %%c" % script)
            yield
            until = time.monotonic() + BEGIN_SECONDS
            while not (folder / "begun").exists():
                assert time.monotonic() < until, "the kernel has not started the handler"
                time.sleep(0.001)
        finally:
            kernelcore.PATTERN.write_text(before)


def crash(process: Process, folder: Path, how: Sequence[str], command: str) -> None:
    """Have it crash: by a byte of its own, or by a signal; the handler has ended afterwards, for the kernel waits for it."""
    with handled(folder, process.pid, command):
        if how[0] == "byte":
            assert process.popen.stdin
            process.popen.stdin.write(how[1].encode())
            process.popen.stdin.flush()
        else:
            os.kill(process.pid, signal.Signals[how[1]])
    process.popen.wait(SECONDS)


def decided(folder: Path, count: int = 1) -> List[Dict[str, Any]]:
    """The log, when it has so many lines: without core_pipe_limit the process may be gone before them."""
    path, until = folder / "log", time.monotonic() + SECONDS
    while not path.exists() or path.read_text().count("\n") < count:
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
