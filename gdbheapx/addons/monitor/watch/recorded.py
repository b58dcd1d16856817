"""A watch that has written its samples (--jsonl), read again: each value is read as the type it must have, or left out."""

import calendar
import json
import math
import time
from typing import Any, BinaryIO, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.monitor.watch.counters import ProcessCounters
from gdbheapx.addons.monitor.watch.samples import Sample, Watched
from gdbheapx.addons.monitor.watch.summary import ENDED, EXECUTED, OPEN, STOPPED, TIMES, History, Over
from gdbheapx.addons.monitor.watch.table import heading_of_figure
from gdbheapx.allocators.answers import Figure, Reading
from gdbheapx.errors import HeapxError
from gdbheapx.files import open_regular
from gdbheapx.model import AllocatorInfo
from gdbheapx.problems import FILE_UNREADABLE, WRONG_FILE
from gdbheapx.snapshot import container

HINT = "give a file that `gdbheapx -p PID watch --jsonl FILE` has written"
START = b'{"kind": "start"'
"""How the line of a start begins, as table.py writes it."""
MOST_LINE_BYTES = 1 << 20
MOST_ALLOCATORS, MOST_FIGURES = 16, 64
"""Of one process, and of one allocator: more make a page that no browser opens."""
MOST = 1 << 62
"""What is larger is no figure."""


class Source(NamedTuple):
    """Watched process as the file describes it; implements Watching of samples.py."""

    name: str
    pid: int
    is_exact: bool
    watched: Sequence[Watched]
    every_s: float
    earlier: int
    """Watches that the file has before this one."""


class _Start(NamedTuple):
    pid: int
    name: str
    every_s: float
    stops_the_process: bool
    allocators: Sequence[Mapping[str, Any]]


class _Figures(NamedTuple):
    figures: Sequence[str]
    estimates: Sequence[str] = ()
    returns_by: Optional[str] = None


class _Sample(NamedTuple):
    time: str
    elapsed_s: float
    rss_bytes: int
    anonymous_bytes: int
    allocators: Mapping[str, Mapping[str, Optional[int]]]
    swapped_bytes: Optional[int] = None
    threads: Optional[int] = None
    virtual_bytes: Optional[int] = None
    peak_bytes: Optional[int] = None
    group_peak_bytes: Optional[int] = None
    stopped_ms: Optional[float] = None
    pools: Optional[Mapping[str, int]] = None


class _End(NamedTuple):
    why: str
    missed: int = 0


class RecordedWatch:
    """The last watch in a file."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._file: BinaryIO = open(open_regular(path), "rb")
            self.source = self._read_start(*self._last_start())
        except OSError as error:
            raise HeapxError("cannot read %s: %s" % (path, error.strerror or error), HINT, code=FILE_UNREADABLE)

    def _last_start(self) -> Tuple[bytes, int]:
        """The line with which the last watch begins, and how many there are."""
        start, count, at = None, 0, 0
        while True:
            line = self._file.readline(MOST_LINE_BYTES)
            if not line:
                break
            at += len(line)
            if line.startswith(START):
                start, count = (line, at), count + 1
        if start is None:
            raise HeapxError("%s has no samples of a watch" % self._path, HINT, code=WRONG_FILE)
        self._file.seek(start[1])
        return start[0], count

    def _read_start(self, line: bytes, count: int) -> Source:
        try:
            start: _Start = container.decode_value(_Start, json.loads(line))
            if len(start.allocators) > MOST_ALLOCATORS:
                raise container.WrongValue("too many allocators")
            watched = [_read_watched(allocator) for allocator in start.allocators]
        except (ValueError, RecursionError):
            raise HeapxError("%s is damaged: its last watch has no start" % self._path, HINT, code=WRONG_FILE)
        return Source(start.name, start.pid, start.stops_the_process, watched, start.every_s, count - 1)

    def samples(self) -> Iterator[Sample]:
        """Yield the samples in their order. `ended` is known after them."""
        self.left_out, self._end, last = 0, _End(OPEN), -1.0
        while True:
            line = self._file.readline(MOST_LINE_BYTES)
            if not line or (not line.endswith(b"\n") and len(line) < MOST_LINE_BYTES):  # one that is being written
                return
            try:
                event = json.loads(line)
                kind = event.get("kind") if isinstance(event, dict) else None
                if kind == "sample":
                    sample = self._make_sample(container.decode_value(_Sample, event))
                    if sample.elapsed_s < last:
                        raise container.WrongValue("earlier than the one before")
                    last = sample.elapsed_s
                    yield sample
                elif kind == "end":
                    end: _End = container.decode_value(_End, event)
                    self._end = end if end.why in (ENDED, EXECUTED, STOPPED, TIMES) else self._end
                elif kind not in ("returned", "snapshot"):  # the first follows from the samples, the other is another file
                    raise container.WrongValue("neither")
            except (ValueError, OverflowError, RecursionError):
                self.left_out += 1

    def ended(self, history: History) -> Over:
        """Return the end, with the summary of what was added to `history`."""
        return Over(self._end.why, history.summary(self._end.why, max(0, self._end.missed)))

    def _make_sample(self, line: _Sample) -> Sample:
        if not (math.isfinite(line.elapsed_s) and 0 <= line.elapsed_s < MOST):
            raise container.WrongValue("no time")
        counters = [_checked_figure(number) for number in (line.rss_bytes, line.anonymous_bytes)]
        if counters[0] is None or counters[1] is None:
            raise container.WrongValue("no counters")
        readings = [_read_reading(watched, line.allocators.get(watched.info.id, {})) for watched in self.source.watched]
        others = line.swapped_bytes, line.threads, line.virtual_bytes, line.peak_bytes, line.group_peak_bytes
        made = ProcessCounters(counters[0], counters[1], *map(_checked_figure, others))
        pools = None if line.pools is None else {name: size for name, size in line.pools.items() if _checked_figure(size) is not None}
        return Sample(parse_utc_time(line.time), line.elapsed_s, made, None, readings, line.stopped_ms, pools)


def _read_watched(allocator: Mapping[str, Any]) -> Watched:
    more: _Figures = container.decode_value(_Figures, allocator)
    if len(more.figures) > MOST_FIGURES:
        raise container.WrongValue("too many figures")
    figures = [Figure(key, heading_of_figure(key), "", key in more.estimates) for key in more.figures]
    return Watched(container.decode_value(AllocatorInfo, allocator), figures, more.returns_by)


def _read_reading(watched: Watched, values: Mapping[str, Optional[int]]) -> Reading:
    own: List[Optional[int]] = [_checked_figure(values.get(figure.key)) for figure in watched.figures]
    held, used, kept, returnable = (_checked_figure(values.get(key + "_bytes")) for key in ("held", "used", "kept", "returnable"))
    return Reading(own, held, used, kept, returnable)


def _checked_figure(value: Optional[int]) -> Optional[int]:
    return value if value is not None and 0 <= value < MOST else None


def parse_utc_time(text: str) -> float:
    """The reverse of table.when(). ValueError where it is none."""
    whole, _, part = text.rstrip("Z").partition(".")
    if len(part) != 3 or not part.isdigit():
        raise ValueError(text)
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + int(part) / 1000
