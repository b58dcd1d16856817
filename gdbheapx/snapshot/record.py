"""What a snapshot holds, and how commands put it there and get it back."""

import json
import re
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence, TypeVar

from gdbheapx import hints
from gdbheapx.errors import HeapxError
from gdbheapx.model import AllocatorInfo, HeapSum
from gdbheapx.problems import NO_ANSWER, NOT_IN_SNAPSHOT, SNAPSHOT_DAMAGED, Code
from gdbheapx.session import Session
from gdbheapx.snapshot import codec, container

T = TypeVar("T")

HEAD, OUTCOMES, MODELS = "head", "outcomes", "models"
"""Parts of the file, JSON each."""
GRAPH = "graph"
"""Among the models: what of the graph of blocks is not in the streams (graph.py)."""
ELSEWHERE = "ask the process or its core: %s" % hints.again()
OF_GRAPH = frozenset(("owners",))
"""Models that are kept for where there is no graph, and for `diff`."""
OWNERS_KEPT = 60
"""Owners in the list of a snapshot: those that retain most."""


class RecordedProblem(NamedTuple):
    """A problem, as it was when the snapshot was taken."""

    code: str
    where: Optional[str]
    what: str
    hint: Optional[str]


class Outcome(NamedTuple):
    """How a command ended that was run for the snapshot; what it found is among the models."""

    partial: bool = False
    problems: Sequence[RecordedProblem] = ()
    error: Optional[str] = None
    """It found nothing: why, and what to do."""
    hint: Optional[str] = None
    code: Optional[str] = None
    """Of the error."""

    def tell(self, session: Session) -> None:
        """Note the problems again."""
        for code, where, what, hint in self.problems:
            session.problem(Code.of(code), where, what, hint, partial=self.partial)


class RecordedMapping(NamedTuple):
    """A mapping: its addresses in the snapshot."""

    start: int
    end: int
    name: str


class Head(NamedTuple):
    """Of what, when and by whom it was taken."""

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
    """These four as Identity has them; None in a snapshot that is older, and, but for the last, without names."""
    secret: Optional[str] = None
    """Of the marks of commands in its texts (hints.py): the file's own, for a process may read a file while its next one is taken."""

    @property
    def as_of(self) -> Optional[str]:
        """When memory was as it is told here; None: unknown."""
        return self.taken if self.kind == "live" else self.core_written


class Record(NamedTuple):
    """All of it."""

    head: Head
    outcomes: Dict[str, Outcome]
    """By command."""
    models: Dict[str, Any]
    """By name, as codec.encoded() gives them."""
    streams: Mapping[str, container.Packed] = {}
    """The numbers of the graph (graph.py)."""

    def parts(self) -> Dict[str, container.Packed]:
        """Of the file."""
        secret = hints.new_secret()
        return {
            HEAD: _dumped(codec.encoded(self.head._replace(secret=secret)), secret),
            OUTCOMES: _dumped(codec.encoded(self.outcomes), secret),
            MODELS: _dumped(self.models, secret),
            **self.streams,
        }

    def model(self, name: str, kind: Any) -> Any:
        """What stands under this name, as this type; HeapxError where there is nothing, or something else."""
        if name not in self.models:
            outcome = self.outcomes.get(name, Outcome())
            if outcome.error is not None:
                raise HeapxError(outcome.error, outcome.hint, code=Code.of(outcome.code or NO_ANSWER))
            raise HeapxError("this snapshot does not have that", ELSEWHERE, code=NOT_IN_SNAPSHOT)
        try:
            return codec.decoded(kind, self.models[name])
        except (codec.Wrong, RecursionError) as error:
            raise HeapxError("the snapshot is not whole: %s" % error, container.HINT, code=SNAPSHOT_DAMAGED)


def _dumped(value: Any, secret: str) -> container.Packed:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return container.packed_part([text.replace(hints.SECRET, secret).encode("ascii")])


def opened(path: str) -> Record:
    """The snapshot of that file. HeapxError where it is none, or damaged."""
    parts = container.read(path)
    try:
        texts = [parts.pop(name).bytes(path).decode("ascii") for name in (HEAD, OUTCOMES, MODELS)]
        head = codec.decoded(Head, json.loads(texts[0]))
        is_marked = re.fullmatch("[0-9a-f]{%d}" % len(hints.SECRET), head.secret or "") is not None
        outcomes, models = (json.loads(text.replace(head.secret, hints.SECRET) if is_marked else text) for text in texts[1:])
        if not isinstance(models, dict):
            raise codec.Wrong("no models")
        return Record(head._replace(secret=None), codec.decoded(Dict[str, Outcome], outcomes), models, parts)
    except (KeyError, ValueError, RecursionError) as error:
        raise HeapxError("%s is not whole: %s" % (path, _cause(error)), container.HINT, code=SNAPSHOT_DAMAGED)


def _cause(error: Exception) -> str:
    if isinstance(error, KeyError):
        return "it has no part %s" % error
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error).split("\n")[0][:200]


class Taking:
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
        """What stands under this name by now; None: nothing."""
        return self._known.get(name)

    def encoded(self, change: Callable[[Any], Any]) -> Dict[str, Any]:
        """All of them, changed, for the file."""
        return {name: codec.encoded(change(model)) for name, model in self._known.items()}

    def shared(self, name: str) -> Any:
        """What another command has made of memory; None: nothing."""
        return self._shared.get(name)

    def share(self, name: str, value: Any) -> None:
        """For commands that come later."""
        self._shared[name] = value


class Reading:
    """Gives the models of a snapshot back, with what was wrong when they were made. `unpack` gives what commands share of its graph."""

    def __init__(self, record: Record, session: Session, unpack: Callable[[], Mapping[str, Any]]) -> None:
        self._record, self._session, self._unpack = record, session, unpack
        self._shared: Optional[Dict[str, Any]] = None

    def kept(self, name: str, kind: Any, make: Callable[[], T]) -> T:
        """As it was; what the graph tells better is made of it."""
        if name in OF_GRAPH and GRAPH in self._record.models:
            return make()
        model: T = self._record.model(name, kind)
        self._record.outcomes.get(name, Outcome()).tell(self._session)
        return model

    def shared(self, name: str) -> Any:
        """What the graph tells, or an earlier part of this command has made of it; None: nothing."""
        if self._shared is None:
            self._shared = dict(self._unpack()) if GRAPH in self._record.models else {}
        return self._shared.get(name)

    def share(self, name: str, value: Any) -> None:
        """For the rest of this command."""
        if self._shared is not None:
            self._shared[name] = value
