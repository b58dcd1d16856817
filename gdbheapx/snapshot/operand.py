"""What `diff` is given: the file of a snapshot, or a core or process of which one is taken."""

import os
import subprocess
import sys
import tempfile
from typing import List

from gdbheapx.asked import GLOBALS, unpack
from gdbheapx.errors import HeapxError
from gdbheapx.snapshot import container, record

NO_ANSWER = 1


SNAPSHOT, CORE, PROCESS = "snapshot", "core", "process"
"""What it may be."""


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
        raise HeapxError("%s is no file and no process id" % name, "give a snapshot, a core, or the id of a running process")
    with tempfile.TemporaryDirectory(prefix="gdbheapx-") as folder:
        path = os.path.join(folder, "snapshot")
        _take(["--pid" if is_process else "--core", name], path, name)
        return record.opened(path)


def _take(target: List[str], path: str, name: str) -> None:
    """By a program of its own: what it does to gdb and to memory ends with it."""
    program = sys.argv[0]
    if GLOBALS not in os.environ or not os.path.isfile(program):
        raise HeapxError("%s is no snapshot" % name, "take one first: gdbheapx %s %s snapshot FILE" % (target[0], name))
    words = [sys.executable, program, *unpack(os.environ[GLOBALS]), *target, "snapshot", path]
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, GLOBALS: ""})
    if done.returncode == NO_ANSWER or not os.path.exists(path):
        said = done.stderr.decode("utf-8", "replace").strip().split("\n")[-1].replace("gdbheapx: ", "", 1)
        raise HeapxError("no snapshot of %s: %s" % (name, said or "it ended with %d" % done.returncode), None)
