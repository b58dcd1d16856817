"""Content of the page of a watch: its summary, curves, and the steps at which memory was returned. The page collects a fixed amount of
samples during the watch, and writes the file at its end.
"""

import os
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.monitor.watch import text
from gdbheapx.addons.monitor.watch.samples import Sample, Watching
from gdbheapx.addons.monitor.watch.summary import STOPPED, History, Over, Summary
from gdbheapx.addons.monitor.watch.table import heading_of_figure, list_estimates
from gdbheapx.addons.monitor.watch.trends import Curves, Point, ReturnedStep, Spread
from gdbheapx.command.output import OutputFile
from gdbheapx.common import __version__, addon_loader
from gdbheapx.common.hints import hint_about, write_commands
from gdbheapx.common.units import count_noun, format_duration, format_number
from gdbheapx.report.text import DrawnPath, UncutText, format_coordinate, make_printable

LOOKS = 6
"""Kinds of lines in style.css."""
OWN_LOOKS = {"RSS": 0, "threads": 0, "held": 1, "in use": 2}
"""Figures that look the same in every picture."""
LABELLED = 8
"""So many steps have their words in the picture; of more the lines alone."""
FLATTENS = 4
"""A figure that is so many times as high as the next one is in the table alone, as address space without memory may be."""
DAY_S = 86400.0
WIDTH, HEIGHT = 1000, 240
PROCESS = ("RSS", "anonymous", "swapped", "threads")
SUMS = ("held", "in use", "kept")
"""Of all allocators together, and of each."""
ENDS = {
    "process-ended": "the process crashed or exited",
    "other-program": "the process runs another program now (execve)",
    "stopped": "the watch was stopped",
    "times": "the watch had its samples",
    "open": "the file has no end: the watch goes on, or was killed",
}
WHY = {
    "leaks": "memory nothing references any more",
    "owners": "which variables, threads and blocks keep memory alive",
    "census": "memory in use by class, type and content",
    "report": "the parts of the memory",
    "pins": "which blocks in use keep free memory from being returned",
}
"""What is asked next, and what for; a command without an entry is a dry run."""
OPTION = "--html"


class Name(NamedTuple):
    """Name of a figure."""

    allocator: Optional[str]
    """None: the process has it; empty: all allocators together."""
    text: str
    is_size: bool
    is_estimate: bool


def list_figures(sample: Sample) -> List[Optional[int]]:
    """Every figure of a sample, in the order of names()."""
    counters = sample.counters
    figures: List[Optional[int]] = [counters.resident_bytes, counters.anonymous_bytes, counters.swapped_bytes, counters.threads]
    figures += [sample.held_bytes, sample.used_bytes, sample.kept_bytes]
    for reading in sample.readings:
        figures += [reading.held_bytes, reading.used_bytes, reading.kept_bytes, *reading.values]
    return figures


def list_figure_names(watching: Watching) -> List[Name]:
    """Return the names of a sample's figures, in their order."""
    all_names = [Name(None, name, name != "threads", False) for name in PROCESS]
    guessed = any(list_estimates(watched, watching.is_exact) for watched in watching.watched)
    all_names += [Name("", name, True, guessed and name != "held") for name in SUMS]
    for watched in watching.watched:
        own = list_estimates(watched, watching.is_exact)
        all_names += [Name(watched.info.id, name, True, bool(own) and name != "held") for name in SUMS]
        all_names += [
            Name(watched.info.id, heading_of_figure(figure.key), figure.key.endswith("_bytes"), figure.key in own)
            for figure in watched.figures
        ]
    return all_names


def format_utc_clock(unix_s: float, span_s: float) -> str:
    """A time in UTC, with the day where the watch took longer than one."""
    return time.strftime("%m-%d %H:%M" if span_s > DAY_S else "%H:%M:%S", time.gmtime(unix_s))


def _make_charts(watching: Watching, summary: Summary, points: Sequence[Point], all_names: Sequence[Name]) -> List[Dict[str, Any]]:
    """The process and its allocators; then each allocator that holds enough; then threads."""
    chosen = [name for name in all_names if (name.allocator, name.text) in ((None, "RSS"), (None, "swapped"), ("", "held"), ("", "in use"))]
    charts = [_make_chart(points, all_names, "Memory of the process", chosen)]
    for place in text.shown_places(summary.last):
        id_ = watching.watched[place].info.id
        own = [name for name in all_names if name.allocator == id_ and name.is_size and name.text not in ("held", "kept")]
        charts.append(_make_chart(points, all_names, "Memory of %s" % id_, own))
    charts.append(_make_chart(points, all_names, "Threads", [name for name in all_names if name.allocator is None and not name.is_size]))
    return [chart for chart in charts if chart["lines"]]


def _make_chart(points: Sequence[Point], all_names: Sequence[Name], title: str, chosen: Sequence[Name]) -> Dict[str, Any]:
    """Make a chart on one scale of the chosen figures that are ever known, more than 0, and not the same as another line. `ticks`: (place
    from above, value); `left_out`: (name, highest) of what would flatten every other line."""
    known: List[Tuple[Name, List[Optional[Spread]]]] = []
    for place, name in enumerate(all_names):
        figures = [point.figures[place] for point in points]
        is_there = name in chosen and any(figure is not None and figure.highest for figure in figures)
        if is_there and figures not in [other for _, other in known]:
            known.append((name, figures))
    is_size = all(name.is_size for name in chosen)
    tops = [max(figure.highest for figure in figures if figure is not None) for _, figures in known]
    left_out = []
    place = tops.index(max(tops)) if tops else 0
    if len(tops) > 2 and known[place][0].text not in OWN_LOOKS and tops[place] > FLATTENS * sorted(tops)[-2]:
        left_out.append((_label_of(known.pop(place)[0]), tops.pop(place)))
    steps = choose_ticks(max(tops, default=0), is_size)
    looks = iter([look for look in range(LOOKS) if look not in {OWN_LOOKS.get(name.text) for name, _ in known}] * len(known))
    times = [point.elapsed_s for point in points]
    lines = []
    for name, figures in known:
        look = OWN_LOOKS[name.text] if name.text in OWN_LOOKS else next(looks)
        lines.append(_make_line(name, times, figures, steps[-1], look))
    ticks = [(HEIGHT * (1 - value / steps[-1]), value) for value in steps]
    return {"title": title, "lines": lines, "ticks": ticks, "is_size": is_size, "left_out": left_out}


def _make_line(name: Name, times: Sequence[float], figures: Sequence[Optional[Spread]], top: int, look: int) -> Dict[str, Any]:
    """Return the curve of one figure over time: a path for each run of points at which it is known, the points that are a run of one, and
    areas between the lowest and the highest where there are such. `top`: the value at the upper edge; `last`: where it was known last."""
    first, span = (times[0], times[-1] - times[0]) if times else (0.0, 0.0)
    runs: List[List[Tuple[float, float, float, float]]] = [[]]
    for at, figure in zip(times, figures):
        if figure is None:
            runs.append([])
            continue
        shares = (min(1.0, max(0.0, value / top)) if top > 0 else 0.0 for value in (figure.mean, figure.lowest, figure.highest))
        mean, low, high = (HEIGHT * (1 - share) for share in shares)
        runs[-1].append((WIDTH * (at - first) / span if span > 0 else 0.0, mean, low, high))
    long = [run for run in runs if len(run) > 1]
    has_bands = any(figure is not None and figure.lowest != figure.highest for figure in figures)
    return {
        "look": look,
        "name": _label_of(name),
        "paths": [_draw_path([(x, mean) for x, mean, _, _ in run]) for run in long],
        "dots": [run[0][:2] for run in runs if len(run) == 1],
        "bands": [
            _draw_path([(x, high) for x, _, _, high in run] + [(x, low) for x, _, low, _ in reversed(run)], "z")
            for run in long
            if has_bands
        ],
        "last": next((figure.mean for figure in reversed(figures) if figure is not None), None),
    }


def _draw_path(points: Sequence[Tuple[float, float]], end: str = "") -> DrawnPath:
    return DrawnPath("M" + "L".join("%s %s" % (format_coordinate(x), format_coordinate(y)) for x, y in points) + end)


def choose_ticks(most: int, is_size: bool) -> List[int]:
    """Values for the lines of a scale, from 0 to the first that is not below `most`: two to six, round: sizes in binary."""
    step = 1
    while step * 5 < most:
        step = step * 2 if is_size or str(step)[0] in "15" else step * 5 // 2
    count = max(1, -(-most // step))
    return [step * number for number in range(count + 1)]


def _label_of(name: Name) -> str:
    return name.text + (" ~" if name.is_estimate else "")


def _make_marks(steps: Sequence[ReturnedStep], first_s: float, span: float) -> List[Dict[str, Any]]:
    """Memory was returned; half of it, nearly all of it was back."""
    marks = []
    for place, step in enumerate(steps, 1):
        events = [(0.0, "returned", "gone-mark"), (step.half_s, "half back", "back-mark"), (step.most_s, "back", "back-mark")]
        if step.half_s is not None and step.half_s == step.most_s:
            del events[1]
        for row, (after_s, what, look) in enumerate(events):
            if after_s is not None and span > 0:
                x = min(1.0, max(0.0, (step.at_s + after_s - first_s) / span)) * WIDTH
                words = "%d %s" % (place, what) if len(steps) <= LABELLED else ""
                marks.append({"x": x, "text": words, "look": look, "y": 14.0 + 16 * row})
    return marks


def _make_table(
    watching: Watching, summary: Summary, points: Sequence[Point], all_names: Sequence[Name]
) -> Tuple[List[Tuple[str, str]], List[Tuple[str, List[Tuple[Optional[int], bool]]]]]:
    """Headings, and a row for each point. Figures that are never known or always 0 are left out, and sums where there is one allocator."""
    alone = len(watching.watched) == 1
    shown = []
    for place, name in enumerate(all_names):
        if any((one := point.figures[place]) is not None and one.highest for point in points) and not (alone and name.allocator == ""):
            shown.append((place, name))
    headings = [("time (UTC)", "")]
    for _, name in shown:
        whose = "%s " % name.allocator if name.allocator else "all " if name.allocator == "" else ""
        headings.append((whose + _label_of(name), ""))
    first = summary.first
    span = summary.last.elapsed_s - first.elapsed_s
    rows = []
    for point in points:
        cells = [(None if (one := point.figures[place]) is None else one.mean, name.is_size) for place, name in shown]
        rows.append((format_utc_clock(first.unix_s + point.elapsed_s - first.elapsed_s, span), cells))
    return headings, rows


class Page:
    """Takes samples, and writes a page of them once."""

    def __init__(self, path: str, watching: Watching, every_s: float, file: Optional[str] = None, left_out: int = 0) -> None:
        """HeapxError where there can be no page. `file`: the one that the samples are read from."""
        self._pages = addon_loader.load_capability("pages", "watch --html")
        self._pages.make_environment()
        OutputFile(path, OPTION).drop()  # so that it is known now, not after a week
        self._path, self._watching, self._every_s, self.file = path, watching, every_s, file
        self.left_out = left_out
        self._curves = Curves()
        self._is_done = False

    def sample(self, sample: Sample) -> None:
        """Take one more sample."""
        self._curves.add(sample.elapsed_s, list_figures(sample))

    def end(self, over: Over, history: History) -> List[str]:
        """Write it. Gives the line that says so; none where there was no sample, or it was written before."""
        if self._is_done or over.summary is None:
            return []
        self._is_done = True
        values = self._make_values(over.summary, list(history.steps.kept))
        page = self._pages.render_page("watch.html", values, os.path.dirname(os.path.abspath(__file__)))
        OutputFile(self._path, OPTION).finish(page.encode("utf-8", "backslashreplace"))
        return ["the page is in %s" % make_printable(self._path)]

    def stop(self, history: History) -> None:
        """Whatever ends the watch: what was sampled until then is not lost."""
        if not self._is_done:
            self.end(Over(STOPPED, history.summary(STOPPED, 0)), history)

    def _make_values(self, summary: Summary, returns: Sequence[ReturnedStep]) -> Dict[str, Any]:
        """Return the values for the template."""
        watching, points = self._watching, self._curves.points()
        span = summary.last.elapsed_s - summary.first.elapsed_s
        all_names = list_figure_names(watching)
        table = _make_table(watching, summary, points, all_names)
        note = " ~" if any(name.is_estimate for name in all_names) else ""
        rows = (("RSS", summary.rss), ("held by allocators", summary.held), ("in use" + note, summary.used), ("free" + note, summary.kept))
        longest_s = max((change.span_s for _, change in rows if change is not None), default=text.SHORT_S)
        steps = []
        for step in returns:
            times = (step.half_s, step.most_s, step.observed_s)
            half, most, observed = (format_duration(seconds) if seconds is not None else "never" for seconds in times)
            steps.append((step, format_utc_clock(step.unix_s, span), half, most, observed))
        return {
            "title": "%s, process %d, over time" % (watching.name, watching.pid),
            "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "version": __version__,
            "facts": self._list_facts(summary, span),
            "ended": ENDS[summary.why],
            "verdict": text.format_verdict(summary),
            "lines": [
                *text.format_peaks(summary),
                *([text.of_spikes(summary.spikes)] if summary.spikes is not None else []),
                *text.format_end_state(summary),
                *([text.of_undecided(summary.undecided_bytes)] if summary.undecided_bytes else []),
            ],
            "has_returned": summary.steps > 0,
            "growth": [(name, change, not summary.steps and text.has_trend(change)) for name, change in rows if change is not None],
            "short": format_duration(longest_s) if longest_s < text.SHORT_S and not summary.steps else None,
            "worth": text.of_worth(summary.worth, summary.steps) if summary.worth is not None else None,
            "steps": steps,
            "more_steps": summary.steps - len(returns),
            "charts": _make_charts(watching, summary, points, all_names),
            "marks": _make_marks(returns, summary.first.elapsed_s, span),
            "times": [format_utc_clock(summary.first.unix_s + span * part, span) for part in (0, 0.5, 1)],
            "asked": [
                (
                    UncutText(write_commands(hint_about("process", str(watching.pid), command))),
                    WHY.get(command, "how much a %s would return to the OS" % command.split()[0]),
                )
                for command in text.next_commands(summary)
            ],
            "each": max((point.samples for point in points), default=1),
            "headings": table[0],
            "rows": table[1],
            "has_estimates": any(name.is_estimate for name in all_names),
            "width": WIDTH,
            "height": HEIGHT,
        }

    def _list_facts(self, summary: Summary, span: float) -> List[Tuple[str, str]]:
        watching = self._watching
        day = "%Y-%m-%d %H:%M:%S"
        times = tuple(time.strftime(day, time.gmtime(sample.unix_s)) for sample in (summary.first, summary.last))
        how = "it was paused for each sample (--exact)" if watching.is_exact else "it was never stopped"
        missed = "; %s late and left out" % count_noun(summary.missed, "sample") if summary.missed else ""
        told = [("Process", "%s, %d" % (watching.name, watching.pid)), ("Watched", "%s to %s UTC (%s)" % (*times, format_duration(span)))]
        told += [
            ("Samples", "%s, one every %g s%s; %s" % (format_number(summary.samples), self._every_s, missed, how)),
            ("End", ENDS[summary.why]),
        ]
        for watched in watching.watched:
            told.append(
                ("Allocator", "%s %s in %s" % (watched.info.id, watched.info.version or "(version not known)", watched.info.object or "?"))
            )
        if self.file is not None:
            told.append(("Read from", self.file))
        earlier = getattr(watching, "earlier", 0)
        if earlier:
            told.append(("Before it", "%d earlier in the same file, which this page leaves out" % earlier))
        if self.left_out:
            told.append(("Left out", "%s of the file" % count_noun(self.left_out, "damaged line")))
        return told
