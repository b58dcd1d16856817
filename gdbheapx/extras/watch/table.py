"""One sample as a row of named figures: the same for CSV and JSON lines."""

import csv
import io
import time
from typing import Any, Dict, List, Optional, Sequence

from gdbheapx.extras.watch.files import Appended
from gdbheapx.extras.watch.returned import Step
from gdbheapx.extras.watch.run import Over
from gdbheapx.extras.watch.samples import Sample, Sampler, Watched, Watching
from gdbheapx.report.json import encode
from gdbheapx.report.text import printable

SUMS = ("held_bytes", "used_bytes", "kept_bytes")
FORMULA = ("=", "+", "-", "@")
"""A spreadsheet takes a cell that begins so for a formula."""


def when(unix_s: float) -> str:
    """UTC, with milliseconds."""
    whole, part = divmod(round(unix_s * 1000), 1000)
    return "%s.%03dZ" % (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)), part)


def heading(key: str) -> str:
    """A figure's name, from its key."""
    return (key[: -len("_bytes")] if key.endswith("_bytes") else key).replace("_", " ")


def estimates(one: Watched, is_exact: bool) -> List[str]:
    """Which of the figures are estimates while the process runs; what follows from one is one, too."""
    found = [figure.key for figure in one.figures if figure.is_estimate]
    return [*found, "used_bytes", "kept_bytes"] if found and not is_exact else []


def process_figures(sample: Sample) -> Dict[str, Optional[int]]:
    """What the kernel says."""
    pages = sample.pages
    return {
        "rss_bytes": sample.counters.resident_bytes,
        "anonymous_bytes": sample.counters.anonymous_bytes,
        "swapped_bytes": sample.counters.swapped_bytes,
        "threads": sample.counters.threads,
        "pss_bytes": pages.proportional_bytes if pages else None,
        "huge_bytes": pages.huge_bytes if pages else None,
    }


def allocator_figures(one: Watched, sample: Sample, place: int) -> Dict[str, Optional[int]]:
    """What one allocator says."""
    reading = sample.readings[place]
    found = {figure.key: value for figure, value in zip(one.figures, reading.values)}
    return {**found, **{key: getattr(reading, key) for key in SUMS}}


class Csv:
    """A row for each sample; unknown is an empty cell."""

    def __init__(self, path: str, sampler: Sampler) -> None:
        self._sampler = sampler
        name = printable(sampler.name)
        self._name = "'" + name if name.startswith(FORMULA) else name
        columns = ["time", "elapsed_s", "pid", "name", "stopped_ms", *PROCESS]
        for one in sampler.watched:
            columns += ["%s.%s" % (one.info.id, key) for key in (*(figure.key for figure in one.figures), *SUMS)]
        self._file = Appended(path, row(columns))

    def sample(self, sample: Sample) -> None:
        """One row."""
        cells: List[Any] = [when(sample.unix_s), "%.3f" % sample.elapsed_s, self._sampler.pid, self._name, sample.stopped_ms]
        cells += process_figures(sample).values()
        for place, one in enumerate(self._sampler.watched):
            cells += allocator_figures(one, sample, place).values()
        self._file.line(row(cells))


PROCESS = ("rss_bytes", "anonymous_bytes", "swapped_bytes", "threads", "pss_bytes", "huge_bytes")
"""Keys of process_figures."""


def row(cells: Sequence[Any]) -> str:
    """One line of CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(["" if cell is None else cell for cell in cells])
    return out.getvalue()


class Lines:
    """JSON, one object a line: `start`, then `sample` and `returned`, at the end `end`. recorded.py reads them."""

    def __init__(self, sampler: Watching) -> None:
        self._sampler = sampler

    def start(self, every_s: float) -> str:
        """What is watched, and how."""
        sampler = self._sampler
        allocators = [
            {
                **one.info._asdict(),
                "figures": [figure.key for figure in one.figures],
                "estimates": estimates(one, sampler.is_exact),
                "returns_by": one.returns_by,
            }
            for one in sampler.watched
        ]
        told = {"pid": sampler.pid, "name": sampler.name, "every_s": every_s, "stops_the_process": sampler.is_exact}
        return encode({"kind": "start", "time": when(time.time()), **told, "allocators": allocators})

    def sample(self, sample: Sample) -> str:
        """One sample."""
        own = {
            one.info.id: {**allocator_figures(one, sample, place), "returnable_bytes": sample.readings[place].returnable_bytes}
            for place, one in enumerate(self._sampler.watched)
        }
        told = {"kind": "sample", "time": when(sample.unix_s), "elapsed_s": sample.elapsed_s, "stopped_ms": sample.stopped_ms}
        figures = {**process_figures(sample), "virtual_bytes": sample.counters.virtual_bytes}
        return encode({**told, **figures, "allocators": own})

    def returned(self, step: Step) -> str:
        """A step at which memory was returned."""
        return encode({"kind": "returned", **step_figures(step)})

    def end(self, over: Over) -> str:
        """The summary."""
        found = over.summary
        told: Dict[str, Any] = {"kind": "end", "time": when(time.time()), "why": over.why, "samples": 0}
        if found is not None:
            growth = {key: getattr(found, key) for key in ("rss", "used", "kept", "held")}
            told.update(samples=found.samples, missed=found.missed, code=found.code, is_mostly_kept=found.is_mostly_kept)
            told["kept_resident_bytes"] = found.kept_resident_bytes
            told["growth"] = growth
            told.update(steps=found.steps, last_steps=[step_figures(one) for one in found.last_steps], worth=found.worth)
        return encode(told)


def step_figures(step: Step) -> Dict[str, Any]:
    """One step."""
    found: Dict[str, Any] = {"time": when(step.unix_s), "elapsed_s": step.at_s}
    keys = ("rss_before_bytes", "rss_after_bytes", "returned_bytes", "back_bytes", "back_used_bytes", "half_s", "most_s", "observed_s")
    found.update({key: getattr(step, key) for key in keys})
    return found


class JsonLines:
    """The same lines in a file."""

    def __init__(self, path: str, lines: Lines, every_s: float) -> None:
        self._lines, self._file = lines, Appended(path, None)
        self._file.line(lines.start(every_s))

    def sample(self, sample: Sample) -> None:
        """One line."""
        self._file.line(self._lines.sample(sample))

    def returned(self, step: Step) -> None:
        """One line."""
        self._file.line(self._lines.returned(step))

    def end(self, over: Over) -> None:
        """The last line."""
        self._file.line(self._lines.end(over))
