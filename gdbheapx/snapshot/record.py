"""The content of a snapshot, how commands record into it, and the target that answers from it."""

import json
import re
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence, TypeVar

from gdbheapx import command
from gdbheapx.allocators.session import Session
from gdbheapx.common import hints
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.model import AllocatorInfo, HeapSum, Problem
from gdbheapx.common.problems import NO_ANSWER, NOT_IN_SNAPSHOT, SNAPSHOT_DAMAGED, ProblemCode
from gdbheapx.inferior.base import Identity, Process, choose_program_name
from gdbheapx.snapshot import container

T = TypeVar("T")

HEAD, OUTCOMES, MODELS = "head", "outcomes", "models"
"""Parts of the file, JSON each."""
GRAPH = "graph"
"""Among the models: what of the graph of blocks is not in the streams (graph.py)."""
ELSEWHERE = "ask the process or its core: %s" % hints.hint_again()
OF_GRAPH = frozenset(("owners",))
"""Models that are kept for where there is no graph, and for `diff`."""
OWNERS_KEPT = 60
"""Owners in the list of a snapshot: those that retain most."""


class RecordedOutcome(NamedTuple):
    """Outcome of a command that was run for the snapshot; its results are among the models."""

    partial: bool = False
    problems: Sequence[Problem] = ()
    """Their codes are texts once they were read from a file."""
    error: Optional[str] = None
    """It found nothing: why, and what to do."""
    hint: Optional[str] = None
    code: Optional[str] = None
    """Of the error."""

    def tell(self, session: Session) -> None:
        """Note the problems again."""
        for code, where, what, hint in self.problems:
            session.problem(ProblemCode.of(code), where, what, hint, partial=self.partial)


class RecordedMapping(NamedTuple):
    """A mapping: its addresses in the snapshot."""

    start: int
    end: int
    name: str


class SnapshotHead(NamedTuple):
    """Facts about the snapshot: its target, its time, and the version of gdbheapx that took it."""

    version: str
    """Of gdbheapx."""
    taken: str
    """When memory was read: UTC, as `2026-11-30T12:00:00Z`."""
    kind: str
    """`live` or `core`."""
    pid: Optional[int]
    executable: Optional[str]
    stopped_ms: Optional[float]
    stops: Optional[int]
    rss_bytes: Optional[int]
    """Of a living process."""
    has_names: bool
    allocators: Sequence[AllocatorInfo]
    heaps: Sequence[HeapSum]
    mappings: Sequence[RecordedMapping]
    core_written: Optional[str] = None
    """When the file of a core was last written; None: no core, or unknown."""
    keeps_addresses: bool = False
    """Mappings are where they were."""
    ignored_bits: int = 0
    """Bits of a pointer that were no address: a snapshot that is older has none, and gives back none."""
    program: Optional[str] = None
    command_line: Optional[str] = None
    host: Optional[str] = None
    uptime_s: Optional[int] = None
    """These four as Identity has them; None in a snapshot that is older, and, except for the last, without names."""
    secret: Optional[str] = None
    """Of the marks of commands in its texts (hints.py): the file's own, for a process may read a file while its next one is taken."""

    @property
    def as_of(self) -> Optional[str]:
        """Return the time of the memory that is shown here, or None if unknown."""
        return self.taken if self.kind == "live" else self.core_written


class SnapshotRecord(NamedTuple):
    """Whole content of a snapshot."""

    head: SnapshotHead
    outcomes: Dict[str, RecordedOutcome]
    """By command."""
    models: Dict[str, Any]
    """By name, as codec.encoded() gives them."""
    streams: Mapping[str, container.PackedPart] = {}
    """The numbers of the graph (graph.py)."""

    def parts(self) -> Dict[str, container.PackedPart]:
        """Return the parts of the file."""
        secret, parts = hints.new_secret(), {}
        for name, value in ((HEAD, self.head._replace(secret=secret)), (OUTCOMES, self.outcomes), (MODELS, self.models)):
            encoded = value if name == MODELS else container.encode_value(value)
            text = json.dumps(encoded, separators=(",", ":"), allow_nan=False)
            parts[name] = container.pack_part([text.replace(hints.SECRET, secret).encode("ascii")])
        return {**parts, **self.streams}

    def model(self, name: str, kind: Any) -> Any:
        """Return the model of this name, as this type. HeapxError if there is none, or it is something else."""
        if name not in self.models:
            outcome = self.outcomes.get(name, RecordedOutcome())
            if outcome.error is not None:
                raise HeapxError(outcome.error, outcome.hint, code=ProblemCode.of(outcome.code or NO_ANSWER))
            raise HeapxError("this snapshot does not have that", ELSEWHERE, code=NOT_IN_SNAPSHOT)
        try:
            return container.decode_value(kind, self.models[name])
        except (container.WrongValue, RecursionError) as error:
            raise HeapxError("the snapshot is not whole: %s" % error, container.HINT, code=SNAPSHOT_DAMAGED)


def open_snapshot(path: str) -> SnapshotRecord:
    """The snapshot of that file. HeapxError where it is none, or damaged."""
    parts = container.read_file(path)
    try:
        texts = [parts.pop(name).bytes(path).decode("ascii") for name in (HEAD, OUTCOMES, MODELS)]
        head = container.decode_value(SnapshotHead, json.loads(texts[0]))
        is_marked = re.fullmatch("[0-9a-f]{%d}" % len(hints.SECRET), head.secret or "") is not None
        outcomes, models = (json.loads(text.replace(head.secret, hints.SECRET) if is_marked else text) for text in texts[1:])
        if not isinstance(models, dict):
            raise container.WrongValue("no models")
        return SnapshotRecord(head._replace(secret=None), container.decode_value(Dict[str, RecordedOutcome], outcomes), models, parts)
    except (KeyError, ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).split("\n")[0][:200]
        why = "it has no part %s" % error if isinstance(error, KeyError) else why
        raise HeapxError("%s is not whole: %s" % (path, why), container.HINT, code=SNAPSHOT_DAMAGED)


class RecordingSession:
    """Keeps the models of the commands that run on it; they share one look at memory."""

    def __init__(self) -> None:
        self._known: Dict[str, Any] = {}
        self._shared: Dict[str, Any] = {}

    def kept(self, name: str, kind: Any, make: Callable[[], T]) -> T:
        """Made once."""
        if name not in self._known:
            self._known[name] = make()
        model: T = self._known[name]
        return model

    def known(self, name: str) -> Any:
        """Return the model of this name made so far, or None."""
        return self._known.get(name)

    def encoded(self, change: Callable[[Any], Any]) -> Dict[str, Any]:
        """Return all models, changed, for the file."""
        return {name: container.encode_value(change(model)) for name, model in self._known.items()}

    def shared(self, name: str) -> Any:
        """Return the value that another command has made of memory, or None."""
        return self._shared.get(name)

    def share(self, name: str, value: Any) -> None:
        """Store a value for commands that come later."""
        self._shared[name] = value


class ReadingSession:
    """Gives the models of a snapshot back, with what was wrong when they were made. `unpack` gives what commands share of its graph."""

    def __init__(self, record: SnapshotRecord, session: Session, unpack: Callable[[], Mapping[str, Any]]) -> None:
        self._record, self._session, self._unpack = record, session, unpack
        self._shared: Optional[Dict[str, Any]] = None

    def kept(self, name: str, kind: Any, make: Callable[[], T]) -> T:
        """Return the recorded model; a model that the graph gives more precisely is made from the graph."""
        if name in OF_GRAPH and GRAPH in self._record.models:
            return make()
        model: T = self._record.model(name, kind)
        self._record.outcomes.get(name, RecordedOutcome()).tell(self._session)
        return model

    def shared(self, name: str) -> Any:
        """Return the value from the graph, or one that an earlier part of this command has made of it, or None."""
        if self._shared is None:
            self._shared = dict(self._unpack()) if GRAPH in self._record.models else {}
        return self._shared.get(name)

    def share(self, name: str, value: Any) -> None:
        """Store a value for the rest of this command."""
        if self._shared is not None:
            self._shared[name] = value


class WithoutMemory:
    """Has nothing but what it was given: everything else would be read from memory."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise HeapxError("a snapshot has no memory, and this needs some", ELSEWHERE, code=NOT_IN_SNAPSHOT)


class RecordedInfos(WithoutMemory):
    """Replaces the discovery of allocators."""

    def __init__(self, infos: Sequence[AllocatorInfo]) -> None:
        self._found = infos

    def infos(self) -> Sequence[AllocatorInfo]:
        """Return the allocators as the envelope shows them."""
        return self._found


class Snapshot(Process, WithoutMemory):
    """Target for the runner that answers from a snapshot file."""

    kind = "snapshot"
    has_memory = False
    debugger_version: Optional[str] = None
    held_by_gdb, held_by_caller = True, False
    stop = still = None
    """It cannot be stopped."""

    def __init__(self, path: str, record: Optional[SnapshotRecord] = None) -> None:
        """`record`: what the file of this name has, where it was read before."""
        self.record: SnapshotRecord = record if record is not None else open_snapshot(path)
        head = self.record.head
        self.snapshot: str = path
        self.pid, self.executable = head.pid, head.executable
        self.ignored_bits = head.ignored_bits
        self.stopped_ms, self.stops = head.stopped_ms, head.stops
        self.discovery = RecordedInfos(head.allocators)

    def identity(self) -> Identity:
        """Return the identity of the process when memory was read."""
        head = self.record.head
        program = head.program or choose_program_name(None, "", head.executable)
        return Identity(program, head.command_line, head.host, head.as_of, head.uptime_s)

    def facts(self) -> Dict[str, Any]:
        """Return the facts with the time and kind of the target when the snapshot was taken."""
        return {**Process.facts(self), "taken": self.record.head.taken, "taken_of": self.record.head.kind}

    def prepare(self, asked: command.Command, session: Session, options: command.Options) -> None:
        """The session for a command. HeapxError for one that needs memory."""
        check_recorded(asked, options)
        session.store = session.store or ReadingSession(self.record, session, lambda: self.unpacked(session))
        self.record.outcomes.get(asked.name, RecordedOutcome()).tell(session)

    def unpacked(self, session: Session) -> Dict[str, Any]:
        """Return the values that commands share that need the graph. The problems of the census when the snapshot was taken are noted
        again.
        """
        from gdbheapx.analysis.census import find
        from gdbheapx.analysis.reachability import heap_graph
        from gdbheapx.snapshot import graph

        self.record.outcomes.get("census", RecordedOutcome()).tell(session)
        told = graph.open_kept_census(session, self.record.models[GRAPH], self.record.streams, self.snapshot)
        return {find.TOLD: told, heap_graph.REACH: told.reach}


def check_recorded(asked: command.Command, options: command.Options) -> None:
    """HeapxError for a command, or options of it, that no snapshot answers."""
    if not asked.snapshot:
        raise HeapxError("a snapshot does not answer `%s`: it has no memory" % asked.name, ELSEWHERE, code=NOT_IN_SNAPSHOT)
    if isinstance(asked.snapshot, str) and not getattr(options, asked.snapshot):
        raise HeapxError(
            "a snapshot answers `%s` only with --%s" % (asked.name, asked.snapshot), "add it; or " + ELSEWHERE, code=NOT_IN_SNAPSHOT
        )
    if asked.acts is not None and asked.acts(options):
        raise HeapxError("a snapshot is no process: nothing can be changed", "ask the process: --pid N", code=NOT_IN_SNAPSHOT)
    if options.allocator is not None:
        raise HeapxError("a snapshot has the allocators together", "take it with --allocator; or " + ELSEWHERE, code=NOT_IN_SNAPSHOT)
