"""Sample as a row of named figures, the same for CSV and JSON lines; and the files, which are readable by their owner alone."""

import os
import stat
import time
from typing import Any, Dict, List, Optional

from gdbheapx.addons.monitor.watch.capture import TriggerDecision
from gdbheapx.addons.monitor.watch.returned import ReturnedStep
from gdbheapx.addons.monitor.watch.samples import Sample, Sampler, Watched, Watching
from gdbheapx.addons.monitor.watch.summary import VERDICT_KINDS, Over
from gdbheapx.errors import HeapxError
from gdbheapx.problems import CANNOT_WRITE, UNSAFE_PATH
from gdbheapx.report.encodings import encode_json
from gdbheapx.report.text import format_csv_line, safe_cell

FILE_MODE = 0o600
SUMS = ("held_bytes", "used_bytes", "kept_bytes")
PROCESS = ("rss_bytes", "anonymous_bytes", "swapped_bytes", "threads", "pss_bytes", "huge_bytes")
"""Keys of process_figures."""


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
    """JSON, one object a line: `start`, then `sample` and `returned`, at the end `end`. recorded.py reads them."""

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


class WatchJsonLines:
    """File of JSON lines, as `WatchTableLines` makes them."""

    def __init__(self, path: str, lines: WatchTableLines, every_s: float) -> None:
        self._lines, self._file = lines, Appended(path, None)
        self._file.line(lines.start(every_s))

    def sample(self, sample: Sample) -> None:
        """Append the line of a sample."""
        self._file.line(self._lines.sample(sample))

    def returned(self, step: ReturnedStep) -> None:
        """Append the line of a step at which memory was returned."""
        self._file.line(self._lines.returned(step))

    def decided(self, decision: TriggerDecision) -> None:
        """Append the line of a decision on a snapshot."""
        self._file.line(self._lines.decided(decision))

    def end(self, over: Over) -> None:
        """The last line."""
        self._file.line(self._lines.end(over))
