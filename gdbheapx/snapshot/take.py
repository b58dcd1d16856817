"""Takes a snapshot: runs the commands that a file can answer on one look, and keeps what they say.

`diff` is given the file of a snapshot, or a core or process of which one is taken by a program of its own.
"""

import contextlib
import json
import os
import subprocess
import tempfile
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from gdbheapx import __version__, addon_loader, child_python, command
from gdbheapx.allocators.records import heap_sum
from gdbheapx.analysis import pins
from gdbheapx.analysis.overview import Overview
from gdbheapx.errors import HeapxError, error_of_document
from gdbheapx.inferior.base import Target, format_utc
from gdbheapx.invocation import GLOBALS, STANDS_BY, split_words, unpack_words
from gdbheapx.model import HeapSum, Problem
from gdbheapx.problems import FILE_NOT_FOUND, NO_ANSWER, NOT_IN_SNAPSHOT, OUT_OF_MEMORY, Severity
from gdbheapx.session import Session
from gdbheapx.snapshot import container, graph, names, record
from gdbheapx.snapshot.names import MovedAddresses
from gdbheapx.snapshot.record import GRAPH, OWNERS_KEPT, RecordedOutcome, RecordedProblem, RecordingSession, SnapshotHead, SnapshotRecord

STANDING = (
    ("arenas",),
    ("bins",),
    ("tcache",),
    ("tunables",),
    ("decay",),
    ("tickers",),
    ("malloc-info",),
    ("malloc-stats",),
    ("chunks", "--histogram"),
    ("what-if",),
)
"""These read what they show while the process is stopped."""
COLD = ("cold",)
"""Of pages a snapshot has only what was in swap."""
BY_ONE_LOOK = (
    ("report", "--deep", "--page", "--json"),
    ("pins",),
    ("census",),
    ("census", "--by", "size"),
    ("leaks",),
    ("owners", "--limit", str(OWNERS_KEPT)),
    COLD,
)
"""The first of them that reads every block does it for all."""
FAILED = (1, 2)
"""Codes of a program that has no answer."""
SNAPSHOT, CORE, PROCESS, CURRENT = "snapshot", "core", "process", "current"
"""What it may be; `current`: what gdb has."""


def take_snapshot(session: Session, has_names: bool, keeps_addresses: bool = False) -> SnapshotRecord:
    """The snapshot of one look. The process runs on when every block was read. `keeps_addresses`: mappings are not moved."""
    command.load_commands()
    target = session.target
    moved = MovedAddresses(target.mappings(), keeps_addresses)
    session.without_keys = True
    known = _list_known_names(target) if not has_names else []
    store = session.store = RecordingSession()
    for complaint in target.problems() if target.kind == "core" else ():  # what the core lacks, each answer from the snapshot lacks
        if complaint.code.nature in (Severity.DAMAGE, Severity.UNREAD):
            session.report(*complaint)
    first = _record_command(session, STANDING[0], [])
    walked, outcomes = [*session.problems], [first]
    standing = [words for words in STANDING if command.find_command(words[0]) is not None]  # an add-on may be missing
    outcomes += [_record_command(session, words, walked) for words in standing[1:]]
    is_live = target.kind == "live"
    session.heaps.may_be_none = True
    if session.heaps.all():
        store.share(pins.HEAPS, pins.read_heaps(session))
    cold = addon_loader.find_capability("cold")
    if cold is not None:
        store.share(cold.PAGES, cold.find_stopped_spans(session))
    sums = [heap_sum(heap.info.id, heap.histogram(), heap.arenas(), heap.totals()) for heap in session.heaps.all()]
    reading: List[Tuple[str, ...]] = [words for words in BY_ONE_LOOK if words != COLD or cold is not None]
    for place, words in enumerate(reading):
        if words == COLD and cold is not None and store.shared(cold.PAGES) is None:
            what = "nothing of the process was in swap" if is_live else "a %s does not say what was in swap" % target.kind
            outcomes.append(RecordedOutcome(error=what, hint="ask the process: gdbheapx -p PID cold --for 60", code=NOT_IN_SNAPSHOT))
        elif is_live and place and session.heaps.all() and store.shared("reach") is None:
            hint = "take the snapshot from a core, or where there is more memory"
            outcomes.append(RecordedOutcome(error="there was no room to look at every block at once", hint=hint, code=OUT_OF_MEMORY))
        else:
            outcomes.append(_record_command(session, words, walked))
    target.let_go()
    named: Dict[str, RecordedOutcome] = {}
    for words, outcome in zip([*standing, *reading], outcomes):
        named.setdefault(words[0], moved.value(outcome))
    report: Optional[Overview] = store.known("report")
    memory = report.memory if report is not None and is_live else None
    head = _make_head(session, moved, sums, None if memory is None else memory.total_bytes, has_names)
    record = SnapshotRecord(head, named, {})
    blocks, streams = graph.keep_graph(session, moved.moves(), has_names)
    if blocks is not None:
        store.kept(GRAPH, graph.KeptGraph, lambda: blocks)
    record = record._replace(models=store.encoded(moved.value), streams=streams)
    return record if has_names else names.remove_names(record, known)


def _record_command(session: Session, words: Sequence[str], walked: Sequence[Problem]) -> RecordedOutcome:
    """Run a command; what it finds is kept. `walked`: problems of the walk over the heaps, on which all rests."""
    declared = command.find_command(words[0])
    assert declared is not None, words
    before = len(session.problems)
    try:
        declared.run(session, command.parse_command(words, "gdbheapx").options)
    except HeapxError as error:
        return RecordedOutcome(error=error.message, hint=error.hint, code=error.code)
    problems = [RecordedProblem(*problem) for problem in [*walked, *session.problems[before:]]]
    return RecordedOutcome(session.partial and bool(problems), problems)


def _make_head(session: Session, moved: MovedAddresses, sums: List[HeapSum], rss_bytes: Optional[int], has_names: bool) -> SnapshotHead:
    target: Any = session.target
    identity = target.identity() if has_names else target.identity()._replace(program=None, command_line=None, host=None)
    return SnapshotHead(
        version=__version__,
        taken=format_utc(time.time()),
        kind=target.kind,
        pid=target.pid,
        executable=target.executable,
        stopped_ms=getattr(target, "stopped_ms", None),
        stops=getattr(target, "stops", None),
        rss_bytes=rss_bytes,
        has_names=True,
        keeps_addresses=moved.is_kept,
        allocators=list(session.discovery.infos()),
        heaps=sums,
        mappings=moved.places(),
        core_written=identity.time if target.kind == "core" else None,
        ignored_bits=target.ignored_bits,
        program=identity.program,
        command_line=identity.command_line,
        host=identity.host,
        uptime_s=identity.uptime_s,
    )


def _list_known_names(target: Target) -> List[str]:
    """Names that sentences may have in them: of files, mappings, threads and the program."""
    names_ = {mapping.name for mapping in target.mappings()}
    names_ |= {name for module in target.modules() for name in (module.file_name, module.shown_name)} | {target.executable or ""}
    names_ |= {thread.name or "" for thread in target.threads()}
    return sorted(name for name in names_ if name and not name.startswith("["))


def detect_source(name: str) -> str:
    """Return the kind of source that the name is: snapshot, core or process. A URL is that of a snapshot."""
    if container.is_url(name):
        return SNAPSHOT
    if os.path.exists(name):
        return SNAPSHOT if container.is_snapshot(name) else CORE
    return PROCESS if name.isascii() and name.isdigit() else CORE


def check_source(name: str) -> None:
    """HeapxError where nothing has that name: raised before anything else is read."""
    if detect_source(name) != PROCESS and not os.path.exists(name):
        raise HeapxError(
            "%s is no file and no process id" % name, "give a snapshot, a core, or the id of a running process", code=FILE_NOT_FOUND
        )


def open_snapshot_source(name: str, more: Sequence[str] = ()) -> record.SnapshotRecord:
    """The snapshot, one that is taken with `more` options where it is none. HeapxError where there can be none."""
    what = detect_source(name)
    if what == SNAPSHOT:
        return record.open_snapshot(name)
    check_source(name)
    is_process = what == PROCESS
    with tempfile.TemporaryDirectory(prefix="gdbheapx-") as folder:
        path = os.path.join(folder, "snapshot")
        take_by_child(["--pid" if is_process else "--core", name], path, more)
        return record.open_snapshot(path)


def take_current(session: Session) -> Tuple[record.SnapshotRecord, str, str]:
    """Return the snapshot of the current target, its name and its kind. A target that is a snapshot already is taken as it is."""
    target = session.target
    path = getattr(target, "snapshot", None)
    if path is not None:
        return record.open_snapshot(path), path, SNAPSHOT
    made = take_snapshot(session, True, False)
    is_core = target.kind == "core"
    name = str(target.core_path if is_core else target.pid)
    return made, name, CURRENT if session.in_gdb else CORE if is_core else PROCESS


def take_by_child(target: List[str], path: str, more: Sequence[str] = ()) -> Dict[str, Any]:
    """Take a snapshot in a child process, whose effects on gdb and on memory end with it; return its document. HeapxError if there is no
    snapshot.
    """
    words = [*_make_options(), *target, "snapshot", path, "--json", *more]
    done = child_python.run_gdbheapx(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return _read_answer(done.returncode, done.stdout, target[-1], path)


class SnapshotStandby:
    """A program that waits to take snapshots of one process. From the second on it has nothing to import, and the process grows less before
    it is read. Where memory is scarce the kernel ends it first."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._popen: Optional[subprocess.Popen[bytes]] = None

    def take(self, path: str, more: Sequence[str] = ()) -> Dict[str, Any]:
        """See by_child."""
        if self._popen is None or self._popen.poll() is not None:
            words, pipe = [*_make_options(), "--pid", str(self._pid)], subprocess.PIPE
            self._popen = child_python.start_gdbheapx(words, {STANDS_BY: "1"}, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        popen = self._popen
        assert popen.stdin and popen.stdout
        try:
            popen.stdin.write(json.dumps(["snapshot", path, "--json", *more]).encode() + b"\n")
            popen.stdin.flush()
            code, text = json.loads(popen.stdout.readline())
        except (OSError, ValueError):  # it is gone
            popen.kill()
            code, text = popen.wait(), ""
        return _read_answer(code, text, str(self._pid), path)


def _read_answer(code: int, text: Union[str, bytes], name: str, path: str) -> Dict[str, Any]:
    told: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        told = json.loads(text)
    if code < 0 or code in FAILED or not (container.is_url(path) or os.path.exists(path)):
        error = (error_of_document(told) if told is not None else None) or HeapxError("it ended with %d" % code, code=NO_ANSWER)
        raise HeapxError("no snapshot of %s: %s" % (name, error.message), error.hint, code=error.code)
    return told or {}


def _make_options() -> List[str]:
    """The options that are the same for every command; inside gdb there are none."""
    return split_words(unpack_words(os.environ.get(GLOBALS, "")))[0]._replace(pid=None, core=None, snapshot=None).words()
