"""Takes a snapshot: runs the commands that a file can answer on one look, and keeps what they say.

`diff` is given the file of a snapshot, or a core or process of which one is taken by a program of its own.

A snapshot without names has numbers in place of what the program calls its own. Addresses are without where the process had its memory:
each mapping begins where its number says, and what lies in it keeps its offset. A snapshot is mailed: real addresses would show an attacker
of a process that still runs what address space layout randomisation hides. They stay as long as they were, so that tables stay straight.
Addresses below 4 GiB are those of programs linked to a fixed place; they show nothing.
"""

import contextlib
import json
import os
import re
import subprocess
import tempfile
import time
from bisect import bisect_right
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple, Union

from gdbheapx import command
from gdbheapx.allocators import REGISTRY
from gdbheapx.allocators.records import heap_sum
from gdbheapx.allocators.session import Session
from gdbheapx.analysis import pins
from gdbheapx.analysis.census import owned
from gdbheapx.analysis.overview import Overview
from gdbheapx.analysis.reachability.paths import PathStep
from gdbheapx.common import __version__, addon_loader, child_python
from gdbheapx.common.catalogue import ADDON_ALLOCATORS
from gdbheapx.common.errors import HeapxError, error_of_document
from gdbheapx.common.global_options import GLOBALS, STANDS_BY, split_words, unpack_words
from gdbheapx.common.model import HeapSum, Problem, TargetAddress
from gdbheapx.common.problems import FILE_NOT_FOUND, NO_ANSWER, NOT_IN_SNAPSHOT, OUT_OF_MEMORY, Severity
from gdbheapx.common.units import Sentence
from gdbheapx.inferior.base import Mapping, Target, format_utc
from gdbheapx.kernel.blocks.packed import Move
from gdbheapx.snapshot import container, graph, record
from gdbheapx.snapshot.record import GRAPH, OWNERS_KEPT, RecordedMapping, RecordedOutcome, RecordingSession, SnapshotHead, SnapshotRecord

FIRST, STEP = 1 << 44, 1 << 32
FIXED = 1 << 32
HEX = re.compile(r"\b0x([0-9a-f]{9,16})\b")
KEYS = {
    "signature": "type",
    "module": "module",
    "owner": "owner",
    "holders": "owner",
    "file": "file",
    "object": "module",
    "executable": "program",
    "thread": "thread",
    "path": "path",
    "function": "function",
}
"""Members of records and JSON objects that hold a name, and what is there instead, with a number."""
RUNTIMES = "python jvm perl ruby php lua redis bind postgresql nginx sqlite rust c++"
WORDS_OF_OURS = (
    "main thread auto manual huge used cached free text zeros global mapping block shared thread-local data stack registers "
    "list deque vector string dict"
)
ALLOCATORS = (*(name.split(".")[1] for name in REGISTRY if "." in name), *(name for files in ADDON_ALLOCATORS.values() for name in files))
OURS = frozenset([*owned.WORDS, *WORDS_OF_OURS.split(), *RUNTIMES.split(), *ALLOCATORS])
"""What gdbheapx says itself where names are."""
IN_SENTENCES = (
    "bytes block blocks arena arenas memory free used cached in of the a it is and by program heap heaps thread threads chunk chunks page "
    "pages share shared size sizes data stack root roots mapping mappings object objects type types list text zeros pool pools cache caches"
)
SENTENCES = frozenset(IN_SENTENCES.split())
"""Words of our own sentences and headings that programs name things by, too: they stay where they are not alone."""
WORDS = re.compile(r"[A-Za-z0-9_.:/<>~@*&\[\]()$+-]+")


STEP_OF_PATH = frozenset(PathStep._fields)
OF_BOOKS = frozenset(("inuse_bytes", "waiting"))
"""Members of a memory context, and of tasks of one name (analysis/addon_answers.py)."""


class MovedAddresses:
    """Map from the real addresses of all mappings to those in the snapshot. `is_kept`: both are equal."""

    def __init__(self, mappings: Sequence[Mapping], is_kept: bool = False) -> None:
        self.is_kept = is_kept
        self._starts: List[int] = []
        self._rows: List[Tuple[int, int, int, str]] = []
        at, end = FIRST, 0
        for mapping in sorted(mappings):
            if mapping.start < FIXED:
                continue
            if is_kept:
                at = mapping.start
            elif mapping.start != end:  # what lies side by side stays so
                at = -(-at // STEP) * STEP
            self._starts.append(mapping.start)
            self._rows.append((mapping.start, mapping.end, at, mapping.name))
            at, end = at + mapping.end - mapping.start, mapping.end

    def places(self) -> List[RecordedMapping]:
        """Return all mappings at their addresses in the snapshot."""
        return [RecordedMapping(seems, seems + end - start, name) for start, end, seems, name in self._rows]

    def moves(self) -> List[Move]:
        """Return the moves of all memory, by address."""
        return [(0, FIXED, 0), *((start, end, seems) for start, end, seems, _ in self._rows)]

    def address(self, value: int) -> int:
        """Return the address in the snapshot; one that lies in no mapping keeps its distance to the mapping before it, if that is near,
        else it is hidden.
        """
        if value < FIXED or self.is_kept:
            return value
        place = bisect_right(self._starts, value) - 1
        if place < 0:
            return FIXED
        start, end, seems, _ = self._rows[place]
        return seems + value - start if value - start <= -(-(end - start) // STEP) * STEP else FIXED

    def text(self, text: str) -> str:
        """Return the text with all addresses in it moved."""
        return HEX.sub(lambda match: "0x%0*x" % (len(match.group(1)), self.address(int(match.group(1), 16))), text)

    def value(self, value: Any) -> Any:
        """Records with addresses in them."""
        return replace_names(value, self.text, self.address)


def replace_names(value: Any, text: Callable[[str], str], address: Callable[[int], int]) -> Any:
    """Return a copy of the value with every text and every address replaced; keys of mappings are members' names, and allocators'."""
    if isinstance(value, TargetAddress):
        return TargetAddress(address(value))
    if isinstance(value, Sentence):
        return Sentence(text(value), text(value.plain))
    if isinstance(value, str):
        return text(value)
    names = getattr(value, "_fields", None)
    if names is not None:
        return type(value)(*(replace_names(member, text, address) for member in value))
    if isinstance(value, dict):
        return {key: replace_names(member, text, address) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(replace_names(member, text, address) for member in value)
    return value


def list_strings(record: SnapshotRecord) -> List[str]:
    """Every text in it, once, sorted."""
    all_texts: Set[str] = set()

    def keep_text(text: str) -> str:
        all_texts.add(text)
        return text

    replace_names([record.head, record.outcomes, record.models], keep_text, int)
    return sorted(all_texts)


def escape_shown_name(name: str) -> str:
    """A name as lines of text have it, control and non-ASCII characters escaped: what report.text.make_printable() makes of it."""
    return "".join(
        letter if " " <= letter <= "~" else letter.encode("unicode_escape", "backslashreplace").decode("ascii") for letter in name
    )


class NameNumbers:
    """Gives every name a number."""

    def __init__(self, known: Iterable[str]) -> None:
        self._numbers: Dict[str, str] = {}
        self._counts: Dict[str, int] = {}
        self._odd: List[str] = []
        self._seen = 0
        for name in known:
            self.instead(name, "name")
            for part in name.split("/"):
                self.instead(part, "name")

    def instead(self, name: str, kind: str) -> str:
        """Return the replacement of a name; a name is replaced by the same everywhere."""
        if not name or name in OURS or name.isdigit():
            return name
        if name not in self._numbers:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[name] = "%s-%d" % (kind, self._counts[kind])
            self._numbers.setdefault(escape_shown_name(name), self._numbers[name])  # as tables have it
        return self._numbers[name]

    def gather(self, value: Any, key: str = "") -> None:
        """Learns the names in records, by the members in which they are."""
        names: Sequence[str] = getattr(value, "_fields", ())
        if isinstance(value, str):
            if key in KEYS:
                self.instead(value, KEYS[key])
        elif isinstance(value, dict):
            for name, member in value.items():
                self.gather(member, name)
            if isinstance(value.get("name"), str) and (set(value) == STEP_OF_PATH or "retained_bytes" in value or OF_BOOKS & set(value)):
                self.instead(value["name"], "owner")
        elif names:
            for name, member in zip(names, value):
                self.gather(member, name)
        elif isinstance(value, (list, tuple)):
            for member in value:
                self.gather(member, key)

    def text(self, text: str) -> str:
        """A text without them: whole, or where they are in it as words."""
        if text in OURS or text in self._numbers:
            return self._numbers.get(text, text)
        if self._seen != len(self._numbers):  # names that are no single word; there are few of them
            self._seen = len(self._numbers)
            self._odd = sorted((name for name in self._numbers if not WORDS.fullmatch(name)), key=len, reverse=True)
        for name in self._odd:
            if name in text:
                text = text.replace(name, self._numbers[name])
        return WORDS.sub(lambda match: self._replace_word(match.group()), text)

    def _replace_word(self, word: str) -> str:
        if word.strip(".:()[],") in SENTENCES:
            return word
        if word in self._numbers:
            return self._numbers[word]
        bare = word.strip(".:()[]")
        if bare != word and bare in self._numbers:
            return word.replace(bare, self._numbers[bare])
        for between in ("+0x", "/", ":"):
            if between in word:
                parts = word.split(between)
                return between.join(self._numbers.get(part, part) for part in parts)
        return word


def remove_names(record: SnapshotRecord, known: Iterable[str]) -> SnapshotRecord:
    """The record without names. `known`: those of files and threads, which are in sentences."""
    nameless = NameNumbers(known)
    nameless.gather([record.head, record.outcomes, record.models])

    head, outcomes, models = (
        replace_names(value, nameless.text, int) for value in (record.head, dict(record.outcomes), dict(record.models))
    )
    infos = [info._replace(object=nameless.instead(info.object, "module"), build_id=None) for info in record.head.allocators]
    kept = {name: getattr(record.head, name) for name in ("version", "taken", "core_written", "kind")}
    return SnapshotRecord(head._replace(has_names=False, allocators=infos, **kept), outcomes, models, record.streams)


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
    left_out = () if addon_loader.has_capability("page_parts") else ("--page",)
    reading = [tuple(word for word in words if word not in left_out) for words in BY_ONE_LOOK if words != COLD or cold is not None]
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
    return record if has_names else remove_names(record, known)


def _record_command(session: Session, words: Sequence[str], walked: Sequence[Problem]) -> RecordedOutcome:
    """Run a command; what it finds is kept. `walked`: problems of the walk over the heaps, on which all rests."""
    declared = command.find_command(words[0])
    assert declared is not None, words
    before = len(session.problems)
    try:
        declared.run(session, command.parse_command(words, "gdbheapx").options)
    except HeapxError as error:
        return RecordedOutcome(error=error.message, hint=error.hint, code=error.code)
    problems = [*walked, *session.problems[before:]]
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
        hint = "give a snapshot, a core, or the id of a running process"
        raise HeapxError("%s is no file and no process id" % name, hint, code=FILE_NOT_FOUND)


def open_snapshot_source(name: str, more: Sequence[str] = ()) -> record.SnapshotRecord:
    """The snapshot, one that is taken with `more` options where it is none. HeapxError where there can be none."""
    what = detect_source(name)
    if what == SNAPSHOT:
        return record.open_snapshot(name)
    check_source(name)
    with tempfile.TemporaryDirectory(prefix="gdbheapx-") as folder:
        path = os.path.join(folder, "snapshot")
        take_by_child(["--pid" if what == PROCESS else "--core", name], path, more)
        return record.open_snapshot(path)


def take_current(session: Session) -> Tuple[record.SnapshotRecord, str, str]:
    """Return the snapshot of the current target, its name and its kind. A target that is a snapshot already is taken as it is."""
    target = session.target
    path = getattr(target, "snapshot", None)
    if path is not None:
        return record.open_snapshot(path), path, SNAPSHOT
    is_core = target.kind == "core"
    name = str(target.core_path if is_core else target.pid)
    return take_snapshot(session, True, False), name, CURRENT if session.in_gdb else CORE if is_core else PROCESS


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
        """See take_by_child()."""
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
