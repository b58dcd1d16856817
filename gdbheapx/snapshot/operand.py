"""What `diff` is given: the file of a snapshot, or a core or process of which one is taken."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import Dict, List, Optional, Tuple

import gdbheapx
from gdbheapx.errors import HeapxError, said
from gdbheapx.invocation import GLOBALS, split, unpack
from gdbheapx.problems import FILE_NOT_FOUND, NO_ANSWER, SHELL_ONLY
from gdbheapx.session import Session
from gdbheapx.snapshot import container, record, take

FAILED = 1


SNAPSHOT, CORE, PROCESS, CURRENT = "snapshot", "core", "process", "current"
"""What it may be; `current`: what gdb has."""


def form(name: str) -> str:
    """Which of them this is."""
    if os.path.exists(name):
        return SNAPSHOT if container.is_snapshot(name) else CORE
    return PROCESS if name.isascii() and name.isdigit() else CORE


def opened(name: str) -> record.Record:
    """The snapshot. HeapxError where there can be none."""
    what = form(name)
    if what == SNAPSHOT:
        return record.opened(name)
    is_process = what == PROCESS
    if not is_process and not os.path.exists(name):
        raise HeapxError(
            "%s is no file and no process id" % name, "give a snapshot, a core, or the id of a running process", code=FILE_NOT_FOUND
        )
    with tempfile.TemporaryDirectory(prefix="gdbheapx-") as folder:
        path = os.path.join(folder, "snapshot")
        _take(["--pid" if is_process else "--core", name], path, name)
        return record.opened(path)


def current(session: Session) -> Tuple[record.Record, str, str]:
    """Of what gdbheapx itself looks at: the snapshot, and how it is named. One that is a snapshot already is taken as it is."""
    target = session.target
    path = getattr(target, "snapshot", None)
    if path is not None:
        return record.opened(path), path, SNAPSHOT
    made = take.take(session, True, False)
    is_core = target.kind == "core"
    name = str(target.core_path if is_core else target.pid)
    return made, name, CURRENT if session.in_gdb else CORE if is_core else PROCESS


def _take(target: List[str], path: str, name: str) -> None:
    """By a program of its own: what it does to gdb and to memory ends with it."""
    words = [*_program(), *target, "snapshot", path, "--json"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment())
    if done.returncode == FAILED or not os.path.exists(path):
        error = _error(done.stdout) or HeapxError("it ended with %d" % done.returncode, code=NO_ANSWER)
        raise HeapxError("no snapshot of %s: %s" % (name, error.message), error.hint, code=error.code)


def _error(text: bytes) -> Optional[HeapxError]:
    try:
        return said(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _program() -> List[str]:
    """gdbheapx with the options that are the same for every command: as it was started; inside a gdb, which was not started by it, the same
    modules by a Python of this machine."""
    program = sys.argv[0] if sys.argv else ""
    if GLOBALS in os.environ and os.path.isfile(program):
        asked = split(unpack(os.environ[GLOBALS]))[0]._replace(pid=None, core=None, snapshot=None)
        return [sys.executable, program, *asked.words()]
    return [_python(), "-m", "gdbheapx.cli"]


def _python() -> str:
    """gdb's own sys.executable may be gdb."""
    own = sys.executable or ""
    found = own if os.path.basename(own).startswith("python") and os.path.isfile(own) else shutil.which("python3")
    if found is None:
        raise HeapxError(
            "there is no python3 to take a snapshot with", "take it in a shell: gdbheapx --pid N snapshot FILE", code=SHELL_ONLY
        )
    return found


def _environment() -> Dict[str, str]:
    """The child has no target of ours, and finds our modules."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(gdbheapx.__file__)))
    path = os.pathsep.join(one for one in (home, os.environ.get("PYTHONPATH")) if one)
    return {**os.environ, GLOBALS: "", "PYTHONPATH": path}
