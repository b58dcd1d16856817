"""What a snapshot holds, and how commands put it there and get it back."""

import json
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence, TypeVar

from gdbheapx.errors import HeapxError
from gdbheapx.model import AllocatorInfo, HeapSum
from gdbheapx.problems import NOT_IN_SNAPSHOT, SNAPSHOT_DAMAGED
from gdbheapx.snapshot import codec, container

T = TypeVar("T")

HEAD, ANSWERS, MODELS = "head", "answers", "models"
"""Parts of the file, JSON each."""
OF_GRAPH = frozenset(("owners",))
"""Models that are kept for where there is no graph, and for `diff`."""


class Told(NamedTuple):
    """A problem, as it was told."""

    code: str
    where: Optional[str]
    what: str
    hint: Optional[str]


class Recorded(NamedTuple):
    """What a command said; of one whose answer is made again of models only what went wrong."""

    data: Any = None
    lines: Sequence[str] = ()
    plain: Sequence[str] = ()
    """The same with --bytes."""
    finding: bool = False
    document: bool = False
    partial: bool = False
    problems: Sequence[Told] = ()
    error: Optional[str] = None
    """There was no answer: why, and what to do."""
    hint: Optional[str] = None
    code: Optional[str] = None
    """Of the error; snapshots of early versions have none."""


class Place(NamedTuple):
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
    mappings: Sequence[Place]
    core_written: Optional[str] = None
    """When the file of a core was last written; None: no core, or unknown."""

    @property
    def as_of(self) -> Optional[str]:
        """When memory was as it is told here; None: unknown."""
        return self.taken if self.kind == "live" else self.core_written


class Record(NamedTuple):
    """All of it."""

    head: Head
    answers: Dict[str, Recorded]
    """By command."""
    models: Dict[str, Any]
    """By name, as codec.encoded() gives them."""
    streams: Mapping[str, container.Packed] = {}
    """The numbers of the graph (graph.py)."""

    def parts(self) -> Dict[str, container.Packed]:
        """Of the file."""
        return {
            HEAD: _dumped(codec.encoded(self.head)),
            ANSWERS: _dumped(codec.encoded(self.answers)),
            MODELS: _dumped(self.models),
            **self.streams,
        }


def _dumped(value: Any) -> container.Packed:
    return container.packed_part([json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")])


def opened(path: str) -> Record:
    """The snapshot of that file. HeapxError where it is none, or damaged."""
    parts = container.read(path)
    try:
        head, answers, models = (json.loads(parts.pop(name).bytes(path).decode("ascii")) for name in (HEAD, ANSWERS, MODELS))
        if not isinstance(models, dict):
            raise codec.Wrong("no models")
        return Record(codec.decoded(Head, head), codec.decoded(Dict[str, Recorded], answers), models, parts)
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
        found: T = self._known[name]
        return found

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
    """Gives the models of a snapshot back. `shared`: what is made of its graph, when it is asked for; None where it has none."""

    def __init__(self, models: Mapping[str, Any], shared: Optional[Callable[[], Mapping[str, Any]]] = None) -> None:
        self._models, self._make = models, shared
        self._shared: Optional[Dict[str, Any]] = None

    def kept(self, name: str, kind: Any, make: Callable[[], T]) -> T:
        """As it was; what the graph tells better is made of it."""
        if name in OF_GRAPH and self._make is not None:
            return make()
        if name not in self._models:
            raise HeapxError("this snapshot does not have that", container.HINT, code=NOT_IN_SNAPSHOT)
        try:
            found: T = codec.decoded(kind, self._models[name])
            return found
        except (codec.Wrong, RecursionError) as error:
            raise HeapxError("the snapshot is not whole: %s" % error, container.HINT, code=SNAPSHOT_DAMAGED)

    def shared(self, name: str) -> Any:
        """What the graph tells, or an earlier part of this command has made of it."""
        if self._shared is None:
            self._shared = dict(self._make()) if self._make is not None else {}
        return self._shared.get(name)

    def share(self, name: str, value: Any) -> None:
        """For the rest of this command."""
        if self._shared is not None:
            self._shared[name] = value
