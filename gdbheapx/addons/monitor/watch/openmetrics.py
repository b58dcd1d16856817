"""The last sample as metrics, and as OpenMetrics text for the node exporter's textfile collector; endpoint.py serves the same."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.monitor.memory_group import InContainer
from gdbheapx.addons.monitor.watch import machine, table
from gdbheapx.addons.monitor.watch.counters import ProcessCounters
from gdbheapx.addons.monitor.watch.samples import Sample, Sampler
from gdbheapx.report.text import make_printable

PREFIX = "gdbheapx_"
PROCESS = {
    "rss_bytes": ("resident_bytes", "resident memory of the process"),
    "anonymous_bytes": ("anonymous_bytes", "the part of it that belongs to no file and is no shared memory"),
    "swapped_bytes": ("swapped_bytes", "memory of the process that is in swap"),
    "threads": ("threads", "threads of the process"),
    "peak_bytes": ("peak_bytes", "the highest resident memory since the process began, as the kernel counts it (VmHWM)"),
}
"""Name -> (which of its counters, help)."""
SUMS = {
    "held_bytes": "memory that the allocator has from the OS",
    "used_bytes": "memory that the program has allocated and not freed",
    "kept_bytes": "free memory that the allocator keeps",
}


class Metric(NamedTuple):
    """Metric family: its name without PREFIX, and (labels, value) of each series."""

    name: str
    help: str
    samples: List[Tuple[Dict[str, str], float]]
    kind: str = "gauge"

    @property
    def unit(self) -> str:
        """Return the ending of the name if it is a unit of OpenMetrics; else an empty text."""
        return next((unit for unit in ("bytes", "seconds") if self.name.endswith("_" + unit)), "")


def escape_label(value: str) -> str:
    """A label's value, by the format's own rules."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def escape_help(text: str) -> str:
    """A HELP text."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def make_labels(pid: int, name: str, container: InContainer) -> Dict[str, str]:
    """Return the labels of one process. Characters that drive a terminal are made visible; an unknown label is left out, as Prometheus
    takes an empty one.
    """
    told = {"pid": str(pid), "name": make_printable(name), **container._asdict()}
    return {key: value for key, value in told.items() if value}


def metrics_of_process(sampler: Sampler, sample: Optional[Sample]) -> List[Metric]:
    """Return all metrics of one process; without a sample, only that it is not watched."""
    own = make_labels(sampler.pid, sampler.name, sampler.container())
    metrics = [Metric("up", "1 while the process is watched, 0 when it ended or the watch did", [(own, 1 if sample else 0)])]
    if sample is None:
        return metrics
    metrics.append(Metric("sample_timestamp_seconds", "when this was sampled", [(own, round(sample.unix_s, 3))]))
    metrics += _make_counter_metrics([(own, sample.counters)])
    by_name: Dict[str, Metric] = {}
    for place, watched in enumerate(sampler.watched):
        texts = {**{figure.key: figure.meaning for figure in watched.figures}, **SUMS}
        guessed = table.list_estimates(watched, sampler.is_exact)
        for key, value in table.allocator_figures(watched, sample, place).items():
            told = texts[key] + (" (estimated)" if key in guessed and key in SUMS else "")
            metric = by_name.setdefault(key, Metric("allocator_" + key, told, []))
            metric.samples.extend(_list_known({**own, "allocator": make_printable(watched.info.id)}, value))
    return metrics + list(by_name.values())


def of_machine(followed: machine.Machine, moment: machine.MachineMoment, most: int) -> List[Metric]:
    """The counters of the `most` largest processes, and how many there are: what one scrape costs, and Prometheus keeps, is bounded."""
    running = sorted(followed.running_now(), key=lambda one: -one.counters.resident_bytes)
    told = [(make_labels(one.pid, one.name, one.container), one.counters) for one in running[:most]]
    return [
        Metric("sample_timestamp_seconds", "when this was sampled", [({}, round(moment.unix_s, 3))]),
        Metric("processes", "processes that are followed", [({}, len(running))]),
        Metric("processes_left_out", "those of them that are too small to be among the series", [({}, max(0, len(running) - most))]),
        Metric("processes_unreadable", "processes that this user may not read", [({}, moment.unreadable)]),
        *_make_counter_metrics(told),
    ]


def _make_counter_metrics(of: Sequence[Tuple[Dict[str, str], ProcessCounters]]) -> List[Metric]:
    """Return the kernel's counters of each process as metrics."""
    return [
        Metric(key, told, [one for own, counters in of for one in _list_known(own, getattr(counters, field))])
        for key, (field, told) in PROCESS.items()
    ]


def _list_known(own: Dict[str, str], value: Optional[int]) -> List[Tuple[Dict[str, str], float]]:
    return [] if value is None else [(own, value)]


def openmetrics_text(metrics: List[Metric]) -> str:
    """Return the metrics as OpenMetrics text; a family without a series is left out."""
    lines: List[str] = []
    for metric in metrics:
        name = PREFIX + metric.name
        if metric.samples:
            lines += ["# TYPE %s %s" % (name, metric.kind), *(["# UNIT %s %s" % (name, metric.unit)] if metric.unit else [])]
            lines += ["# HELP %s %s" % (name, escape_help(metric.help))]
        for own, value in metric.samples:
            lines.append("%s{%s} %s" % (name, ",".join('%s="%s"' % (key, escape_label(told)) for key, told in own.items()), value))
    return "\n".join([*lines, "# EOF", ""])


class OpenMetrics:
    """A file that always holds the last sample, whole."""

    def __init__(self, path: str, sampler: Sampler) -> None:
        self._path, self._sampler = path, sampler
        self.end()

    def sample(self, sample: Sample) -> None:
        """Replace the file by this sample."""
        table.replace_whole_file(self._path, openmetrics_text(metrics_of_process(self._sampler, sample)))

    def end(self) -> None:
        """Write that nothing is watched any more: figures that stay would be taken for new ones."""
        table.replace_whole_file(self._path, openmetrics_text(metrics_of_process(self._sampler, None)))
