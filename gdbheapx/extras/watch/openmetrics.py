"""The last sample as OpenMetrics text, for the textfile collector of Prometheus' node exporter."""

from typing import Dict, List, NamedTuple, Optional

from gdbheapx.extras.watch import table
from gdbheapx.extras.watch.samples import Sample, Sampler
from gdbheapx.report.text import printable

PREFIX = "gdbheapx_"
PROCESS = {
    "rss_bytes": "resident memory of the process",
    "anonymous_bytes": "the part of it that belongs to no file and is no shared memory",
    "swapped_bytes": "memory of the process that is in swap",
    "threads": "threads of the process",
}
SUMS = {
    "held_bytes": "what the allocator has from the OS, in use or kept",
    "used_bytes": "what the program has allocated and not freed",
    "kept_bytes": "what the program has freed and the allocator keeps",
}


class Metric(NamedTuple):
    """One gauge."""

    name: str
    help: str
    samples: List[str]


def escape(value: str) -> str:
    """A label's value: what drives a terminal is made visible first, then the format's own rules."""
    return printable(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def escape_help(text: str) -> str:
    """A HELP text."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class OpenMetrics:
    """A file that always holds the last sample, whole."""

    def __init__(self, path: str, sampler: Sampler) -> None:
        self._path, self._sampler = path, sampler
        self._labels = 'pid="%d",name="%s"' % (sampler.pid, escape(sampler.name))
        table.replace(path, self._text(None))

    def sample(self, sample: Sample) -> None:
        """This sample is the last one."""
        table.replace(self._path, self._text(sample))

    def end(self) -> None:
        """Nothing is watched any more: figures that stay would be taken for new ones."""
        table.replace(self._path, self._text(None))

    def _text(self, sample: Optional[Sample]) -> str:
        up = "1 while the process is watched, 0 when it ended or the watch did"
        metrics = [Metric("up", up, [self._one("up", "", 1 if sample else 0)])]
        if sample is not None:
            metrics += self._figures(sample)
        lines: List[str] = []
        for metric in metrics:
            if metric.samples:
                name = PREFIX + metric.name
                lines += ["# TYPE %s gauge" % name]
                lines += ["# UNIT %s %s" % (name, unit) for unit in ("bytes", "seconds") if name.endswith("_" + unit)]
                lines += ["# HELP %s %s" % (name, escape_help(metric.help)), *metric.samples]
        return "\n".join([*lines, "# EOF", ""])

    def _figures(self, sample: Sample) -> List[Metric]:
        taken = "sample_timestamp_seconds"
        metrics = [Metric(taken, "when this was sampled", [self._one(taken, "", round(sample.unix_s, 3))])]
        figures = table.process_figures(sample)
        metrics += [Metric(key, text, self._known(key, "", figures[key])) for key, text in PROCESS.items()]
        by_name: Dict[str, Metric] = {}
        for place, watched in enumerate(self._sampler.watched):
            labels = ',allocator="%s"' % escape(watched.info.id)
            texts = {**{figure.key: figure.meaning for figure in watched.figures}, **SUMS}
            guessed = table.estimates(watched, self._sampler.is_exact)
            for key, value in table.allocator_figures(watched, sample, place).items():
                told = texts[key] + (" (estimated)" if key in guessed and key in SUMS else "")
                metric = by_name.setdefault(key, Metric("allocator_" + key, told, []))
                metric.samples.extend(self._known("allocator_" + key, labels, value))
        return metrics + list(by_name.values())

    def _known(self, name: str, labels: str, value: Optional[int]) -> List[str]:
        return [] if value is None else [self._one(name, labels, value)]

    def _one(self, name: str, labels: str, value: float) -> str:
        return "%s%s{%s%s} %s" % (PREFIX, name, self._labels, labels, value)
