"""Sample as a row of named figures, the same for CSV and JSON lines; and the files, which are readable by their owner alone. A watch that
has written its samples (--jsonl) is read again: each value is read as the type it must have, or left out."""

import calendar
import json
import math
import os
import stat
import time
from typing import Any, BinaryIO, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.monitor.watch.capture import TriggerDecision
from gdbheapx.addons.monitor.watch.counters import ProcessCounters
from gdbheapx.addons.monitor.watch.samples import Sample, Sampler, Watched, Watching
from gdbheapx.addons.monitor.watch.summary import ENDED, EXECUTED, OPEN, STOPPED, TIMES, VERDICT_KINDS, History, Over
from gdbheapx.addons.monitor.watch.trends import ReturnedStep
from gdbheapx.allocators.answers import Figure, Reading
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.files import open_regular
from gdbheapx.common.model import AllocatorInfo
from gdbheapx.common.problems import CANNOT_WRITE, FILE_UNREADABLE, UNSAFE_PATH, WRONG_FILE
from gdbheapx.report.encodings import encode_json
from gdbheapx.report.text import format_csv_line, safe_cell
from gdbheapx.snapshot import container

FILE_MODE = 0o600
SUMS = ("held_bytes", "used_bytes", "kept_bytes")
PROCESS = ("rss_bytes", "anonymous_bytes", "swapped_bytes", "threads", "pss_bytes", "huge_bytes")
"""Keys of process_figures."""
HINT = "give a file that `gdbheapx -p PID watch --jsonl FILE` has written"
START = b'{"kind": "start"'
"""How the line of a start begins, as WatchTableLines writes it."""
MOST_LINE_BYTES = 1 << 20
MOST_ALLOCATORS, MOST_FIGURES = 16, 64
"""Of one process, and of one allocator: more make a page that no browser opens."""
MOST = 1 << 62
"""What is larger is no figure."""


def make_write_error(path: str, error: OSError) -> HeapxError:
    """Return the error for a file that cannot be written."""
    return HeapxError("cannot write to %s: %s" % (path, error.strerror or error), "choose another file", code=CANNOT_WRITE)


class Appended:
    """A file that grows line by line, each handed on at once. One that is there already is continued if its first line is ours."""

    def __init__(self, path: str, head: Optional[str]) -> None:
        """`head`: the first line; None: there is none, and any file is continued."""
        self._path = path
        try:
            if os.path.islink(path) and os.lstat(path).st_uid not in (0, os.geteuid()):
                raise HeapxError(
                    "%s is a symbolic link owned by another user; gdbheapx does not follow it" % path,
                    "choose another file",
                    code=UNSAFE_PATH,
                )
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
            descriptor = os.open(path, flags, FILE_MODE)
        except OSError as error:
            raise make_write_error(path, error)
        self._file: Any = open(descriptor, "wb", buffering=0)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            self._file.close()
            what = "belongs to another user" if stat.S_ISREG(status.st_mode) else "is not a regular file"
            raise HeapxError("%s %s; gdbheapx does not write to it" % (path, what), "choose another file", code=UNSAFE_PATH)
        os.fchmod(descriptor, FILE_MODE)
        if head is not None and status.st_size:
            first = os.pread(descriptor, len(os.fsencode(head)) + 1, 0)
            if first != os.fsencode(head) + b"\n":
                self._file.close()
                raise HeapxError("%s exists, and its columns are others" % path, "choose another file, or move it away", code=CANNOT_WRITE)
        elif head is not None:
            self.line(head)

    def line(self, text: str) -> None:
        """Append one line, in one piece."""
        left = memoryview(text.encode("utf-8", "backslashreplace") + b"\n")
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise make_write_error(self._path, error)


def replace_whole_file(path: str, text: str) -> None:
    """Replace the whole file, so that no reader ever sees a part. One that is there already passes on its mode and
    group: who lets a collector of another user read it does so once, beforehand."""
    folder, name = os.path.split(path)
    apart = os.path.join(folder, ".%s.%d-%s" % (name, os.getpid(), os.urandom(4).hex()))
    try:
        descriptor = os.open(apart, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            try:
                _pass_on(path, descriptor)
                left = memoryview(text.encode("utf-8", "backslashreplace"))
                while left:
                    left = left[os.write(descriptor, left) :]
            finally:
                os.close(descriptor)
            os.rename(apart, path)
        except BaseException:
            os.unlink(apart)
            raise
    except OSError as error:
        raise make_write_error(path, error)


def _pass_on(path: str, descriptor: int) -> None:
    """Mode and group of a regular file of ours. Who may not give the group leaves the mode, too."""
    try:
        status = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return
    try:
        if status.st_gid != os.fstat(descriptor).st_gid:
            os.fchown(descriptor, -1, status.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & 0o666)
    except OSError:
        pass


def format_utc_time(unix_s: float) -> str:
    """UTC, with milliseconds."""
    whole, part = divmod(round(unix_s * 1000), 1000)
    return "%s.%03dZ" % (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)), part)


def heading_of_figure(key: str) -> str:
    """A figure's name, from its key."""
    return (key[: -len("_bytes")] if key.endswith("_bytes") else key).replace("_", " ")


def list_estimates(watched: Watched, is_exact: bool) -> List[str]:
    """Return the keys of the figures that are estimates while the process runs; a figure that follows from an estimate is one, too."""
    keys = [figure.key for figure in watched.figures if figure.is_estimate]
    return [*keys, "used_bytes", "kept_bytes"] if keys and not is_exact else []


def process_figures(sample: Sample) -> Dict[str, Optional[int]]:
    """Return the kernel's figures of a sample."""
    pages = sample.pages
    return {
        "rss_bytes": sample.counters.resident_bytes,
        "anonymous_bytes": sample.counters.anonymous_bytes,
        "swapped_bytes": sample.counters.swapped_bytes,
        "threads": sample.counters.threads,
        "pss_bytes": pages.proportional_bytes if pages else None,
        "huge_bytes": pages.huge_bytes if pages else None,
    }


def allocator_figures(watched: Watched, sample: Sample, place: int) -> Dict[str, Optional[int]]:
    """Return the figures of one allocator in a sample."""
    reading = sample.readings[place]
    figures = {figure.key: value for figure, value in zip(watched.figures, reading.values)}
    return {**figures, **{key: getattr(reading, key) for key in SUMS}}


class Csv:
    """A row for each sample; unknown is an empty cell."""

    def __init__(self, path: str, sampler: Sampler) -> None:
        self._sampler = sampler
        self._name = safe_cell(sampler.name)
        columns = ["time", "elapsed_s", "pid", "name", "stopped_ms", *PROCESS]
        for watched in sampler.watched:
            columns += ["%s.%s" % (watched.info.id, key) for key in (*(figure.key for figure in watched.figures), *SUMS)]
        self._file = Appended(path, format_csv_line(columns))

    def sample(self, sample: Sample) -> None:
        """Append one row."""
        cells: List[Any] = [format_utc_time(sample.unix_s), "%.3f" % sample.elapsed_s, self._sampler.pid, self._name, sample.stopped_ms]
        cells += process_figures(sample).values()
        for place, watched in enumerate(self._sampler.watched):
            cells += allocator_figures(watched, sample, place).values()
        self._file.line(format_csv_line(cells))


class WatchTableLines:
    """JSON, one object a line: `start`, then `sample` and `returned`, at the end `end`. RecordedWatch reads them."""

    def __init__(self, sampler: Watching) -> None:
        self._sampler = sampler

    def start(self, every_s: float) -> str:
        """Return the line that says which process and allocators are watched, and by which means."""
        sampler = self._sampler
        allocators = [
            {
                **watched.info._asdict(),
                "figures": [figure.key for figure in watched.figures],
                "estimates": list_estimates(watched, sampler.is_exact),
                "returns_by": watched.returns_by,
            }
            for watched in sampler.watched
        ]
        told = {"pid": sampler.pid, "name": sampler.name, "every_s": every_s, "stops_the_process": sampler.is_exact}
        return encode_json({"kind": "start", "time": format_utc_time(time.time()), **told, "allocators": allocators})

    def sample(self, sample: Sample) -> str:
        """Return the line of one sample."""
        own = {
            watched.info.id: {**allocator_figures(watched, sample, place), "returnable_bytes": sample.readings[place].returnable_bytes}
            for place, watched in enumerate(self._sampler.watched)
        }
        told = {"kind": "sample", "time": format_utc_time(sample.unix_s), "elapsed_s": sample.elapsed_s, "stopped_ms": sample.stopped_ms}
        figures = process_figures(sample)
        figures.update({key: getattr(sample.counters, key) for key in ("virtual_bytes", "peak_bytes", "group_peak_bytes")})
        return encode_json({**told, **figures, "allocators": own, "pools": sample.pools})

    def returned(self, step: ReturnedStep) -> str:
        """A step at which memory was returned."""
        return encode_json({"kind": "returned", **step_figures(step)})

    def decided(self, decision: TriggerDecision) -> str:
        """Return the line of a decision on a snapshot, with its reason."""
        return encode_json(
            {"kind": "snapshot", "time": format_utc_time(decision.unix_s), **{k: v for k, v in decision._asdict().items() if k != "unix_s"}}
        )

    def end(self, over: Over) -> str:
        """The summary."""
        summary = over.summary
        told: Dict[str, Any] = {"kind": "end", "time": format_utc_time(time.time()), "why": over.why, "samples": 0}
        if summary is not None:
            growth = {key: getattr(summary, key) for key in ("rss", "used", "kept", "held")}
            told.update(
                samples=summary.samples,
                missed=summary.missed,
                code=summary.code,
                verdict=VERDICT_KINDS[summary.code],
                is_mostly_kept=summary.is_mostly_kept,
            )
            told["kept_resident_bytes"] = summary.kept_resident_bytes
            told["growth"] = growth
            told.update(steps=summary.steps, last_steps=[step_figures(step) for step in summary.last_steps], worth=summary.worth)
            told.update(peak_bytes=summary.peak_bytes, group_peak_bytes=summary.last.counters.group_peak_bytes, spikes=summary.spikes)
            told["pool"] = summary.pool
        return encode_json(told)


def step_figures(step: ReturnedStep) -> Dict[str, Any]:
    """Return the figures of one step."""
    figures: Dict[str, Any] = {"time": format_utc_time(step.unix_s), "elapsed_s": step.at_s}
    keys = ("rss_before_bytes", "rss_after_bytes", "returned_bytes", "back_bytes", "back_used_bytes", "half_s", "most_s", "observed_s")
    figures.update({key: getattr(step, key) for key in keys})
    return figures


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
    """The last watch in a file, and the watched process as the file describes it; implements Watching of samples.py."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._file: BinaryIO = open(open_regular(path), "rb")
            line, count = self._last_start()
        except OSError as error:
            raise HeapxError("cannot read %s: %s" % (path, error.strerror or error), HINT, code=FILE_UNREADABLE)
        try:
            start: _Start = container.decode_value(_Start, json.loads(line))
            if len(start.allocators) > MOST_ALLOCATORS:
                raise container.WrongValue("too many allocators")
            self.watched = [_read_watched(allocator) for allocator in start.allocators]
        except (ValueError, RecursionError):
            raise HeapxError("%s is damaged: its last watch has no start" % path, HINT, code=WRONG_FILE)
        self.name, self.pid, self.every_s, self.is_exact = start.name, start.pid, start.every_s, start.stops_the_process
        self.earlier = count - 1
        """Watches that the file has before this one."""

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
        readings = [_read_reading(watched, line.allocators.get(watched.info.id, {})) for watched in self.watched]
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
    """The reverse of format_utc_time(). ValueError where it is none."""
    whole, _, part = text.rstrip("Z").partition(".")
    if len(part) != 3 or not part.isdigit():
        raise ValueError(text)
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + int(part) / 1000
