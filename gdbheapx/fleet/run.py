"""A look at each of many cores, by a program of its own: a core that is bad, or huge, ends nothing else."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.asked import GLOBALS, unpack
from gdbheapx.budget import Budget
from gdbheapx.errors import HeapxError
from gdbheapx.fleet import documents, views

WHOLE, PARTIAL = 0, 4
POLL_SECONDS = 0.02
GRACE_SECONDS = 30.0
"""What a look may take beyond twice its limit before it is ended: opening a core is not part of the limit."""
NAME = re.compile(r"[^A-Za-z0-9._-]")
MOST_NAME = 100
MOST_ERROR = 8192


class Core(NamedTuple):
    """One core and its document."""

    path: str
    document: str


class Work(NamedTuple):
    """A look that runs."""

    core: Core
    state: Optional[Tuple[int, int]]
    process: "subprocess.Popen[bytes]"
    out: IO[bytes]
    err: IO[bytes]
    began: float


class Done(NamedTuple):
    """What a run of the fleet leaves."""

    rows: Sequence[documents.Row]
    made: int
    kept: int
    """Documents of an earlier run that still hold."""
    missing: int
    """Cores that were not looked at: somebody interrupted."""


def run(cores: Sequence[str], directory: str, workers: Optional[int], max_seconds: Optional[float], budget: Budget) -> Done:
    """Make what documents are lacking, then read all of them."""
    child = _child(max_seconds)
    folder(directory)
    every = list({one.document: one for one in (core(path, directory) for path in cores)}.values())
    views.write(directory)
    queue = [one for one in every if not is_whole(one)]
    kept, made = len(every) - len(queue), 0
    running: List[Work] = []
    limit = None if max_seconds is None else 2 * max_seconds + GRACE_SECONDS
    at_once = max(1, workers or len(os.sched_getaffinity(0)))
    try:
        while (queue or running) and not budget.interrupted:
            while queue and len(running) < at_once:
                running.append(_begin(queue.pop(0), child))
            time.sleep(POLL_SECONDS)
            ended = [one for one in running if _has_ended(one, limit)]
            for one in ended:
                running.remove(one)
                _finish(one)
                made += 1
            budget.progress.stage = "%d of %d cores" % (kept + made, len(every))
            budget.progress.tick()
    finally:
        for one in running:
            _end(one)
    there = [one for one in every if os.path.exists(one.document)]
    rows = [documents.row(one.document) for one in there if not budget.interrupted or is_whole(one)]
    return Done(rows, made, kept, len(queue) + len(running))


def core(path: str, directory: str) -> Core:
    """The core, and where its document lies: by its name, told apart by its real path."""
    whole = os.path.realpath(path)
    mark = hashlib.sha256(os.fsencode(whole)).hexdigest()[:12]
    return Core(whole, os.path.join(directory, "%s-%s.json" % (NAME.sub("_", os.path.basename(whole)[:MOST_NAME]) or "core", mark)))


def folder(directory: str) -> None:
    """The folder for the documents, readable only by its owner where it is made here."""
    try:
        if not os.path.isdir(directory):
            os.mkdir(directory, 0o700)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise HeapxError("cannot write to %s" % directory, "choose another folder with -o DIR")
    except OSError as error:
        raise HeapxError("cannot make the folder %s: %s" % (directory, error.strerror), "choose another with -o DIR")


def is_whole(one: Core) -> bool:
    """An earlier run has made its document, and the core is as it was then. One that failed is looked at again."""
    try:
        source = documents.loaded(one.document).get(documents.SOURCE)
    except documents.Damaged:
        return False
    if not isinstance(source, dict) or source.get("exit_code") != WHOLE:
        return False
    return (source.get("size_bytes"), source.get("modified_ns")) == _state(one.path)


def _state(path: str) -> Optional[Tuple[int, int]]:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns


def _child(max_seconds: Optional[float]) -> List[str]:
    """The tool itself, with the options that stood before the command."""
    program = sys.argv[0]
    if GLOBALS not in os.environ or not os.path.isfile(program):
        raise HeapxError(
            "fleet starts programs of its own and is not available inside gdb", "run it in a shell: gdbheapx fleet CORE... -o DIR"
        )
    words = [sys.executable, program, *unpack(os.environ[GLOBALS])]
    return [*words, "report", "--json", "--no-deep", *(["--max-seconds", "%g" % max_seconds] if max_seconds is not None else [])]


def _begin(one: Core, child: Sequence[str]) -> Work:
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    environment = {name: value for name, value in os.environ.items() if name != GLOBALS}
    state = _state(one.path)
    process = subprocess.Popen(
        [*child, "--core=" + one.path], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
    )
    return Work(one, state, process, out, err, time.monotonic())


def _has_ended(one: Work, limit: Optional[float]) -> bool:
    if one.process.poll() is None and limit is not None and time.monotonic() - one.began > limit:
        _kill(one)
    return one.process.poll() is not None


def _kill(one: Work) -> None:
    """With the gdb that it may have started."""
    try:
        os.killpg(one.process.pid, signal.SIGKILL)
    except OSError:
        pass  # it has ended
    one.process.wait()


def _end(one: Work) -> None:
    _kill(one)
    one.out.close()
    one.err.close()


def _finish(one: Work) -> None:
    """Its document, whatever became of it."""
    code = one.process.returncode
    one.out.seek(0)
    content = one.out.read(documents.MOST_BYTES + 1)
    one.err.seek(max(0, os.fstat(one.err.fileno()).st_size - MOST_ERROR))
    said = one.err.read().decode("utf-8", "replace").strip().split("\n")[-1].replace("gdbheapx: ", "", 1)
    _end(one)
    found = _parsed(content) if code in (WHOLE, PARTIAL) else None
    if found is None and code in (WHOLE, PARTIAL):
        code = 1
    size, modified = one.state if one.state is not None else (None, None)
    error = None if found is not None else said or ("a signal ended it: %d" % -code if code < 0 else "it ended with %d" % code)
    source = {"core": one.core.path, "size_bytes": size, "modified_ns": modified, "exit_code": code, "error": error}
    empty: Dict[str, Any] = {"schema": documents.SCHEMA, "command": "report", "data": None, "partial": False, "problems": []}
    _write(one.core.document, {**(empty if found is None else found), documents.SOURCE: source})


def _parsed(content: bytes) -> Optional[Dict[str, Any]]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("data"), dict) else None


def _write(path: str, document: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    views.replace(path, json.dumps(document) + "\n")
