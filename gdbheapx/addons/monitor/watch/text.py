"""The lines of `watch` for people: a row for each sample with the last ones as a sparkline, and the summary."""

import os
import time
from collections import deque
from typing import Deque, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from gdbheapx.addons.monitor.watch import summary as codes
from gdbheapx.addons.monitor.watch import trends as spikes
from gdbheapx.addons.monitor.watch.capture import TriggerDecision
from gdbheapx.addons.monitor.watch.samples import Sample, Watching
from gdbheapx.addons.monitor.watch.summary import History, Over, Summary
from gdbheapx.addons.monitor.watch.table import list_estimates
from gdbheapx.addons.monitor.watch.trends import LEAST_HEIGHT_PERCENT, LEAST_SWING_BYTES, ReturnedStep, SeriesChange, Spikes, Worth
from gdbheapx.analysis.memory_verdict import has_objects, is_seen
from gdbheapx.command import TextStyle
from gdbheapx.common.columns import BYTES, TEXT, Column
from gdbheapx.common.hints import hint_about
from gdbheapx.common.units import UNKNOWN, Sentence, SentenceSize, count_noun, format_duration, format_size, make_sentence
from gdbheapx.report import text
from gdbheapx.report.text import format_sentence, make_printable

BLOCKS, PLAIN = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588", "_.-~=+*#"
SHOWN, WHOLE = 20, 60
"""Samples in the sparkline of a row; points in that of the summary."""
LEAST_HEIGHT = 0.05
"""Of the highest value: so much lies at least between the bottom and the top of a sparkline."""
HEADING_EVERY = 40
LEAST_SHARE = 20
"""An allocator that holds less than one part in so many of what the largest does has no columns."""
SHORT_S = 600.0
"""A rate for an hour from less than this is called what it is."""


def has_blocks(environment: Mapping[str, str]) -> bool:
    """The terminal's character set is UTF-8, as the locale has it."""
    return "utf" in next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := environment.get(name))), "").lower()


def draw_sparkline(values: Sequence[float], levels: str) -> str:
    """Return one character for each value, from the lowest to the highest; a difference below 5 % is not stretched to the whole height."""
    if not values:
        return ""
    low, high = min(values), max(values)
    spare = max(0.0, abs(high) * LEAST_HEIGHT - (high - low)) / 2
    low, high = low - spare, high + spare
    step = (high - low) / (len(levels) - 1) if high > low else 0.0
    return "".join(levels[round((value - low) / step)] if step else levels[0] for value in values)


def thin_points(points: Sequence[Tuple[float, float]], most: int) -> List[float]:
    """Return at most so many values, each the mean of its neighbours."""
    each = -(-len(points) // most) if points else 1
    groups = [points[at : at + each] for at in range(0, len(points), each)]
    return [sum(value for _, value in group) / len(group) for group in groups]


def format_local_time(unix_s: float) -> str:
    """Local time."""
    return time.strftime("%H:%M:%S", time.localtime(unix_s))


class Text:
    """Makes the lines."""

    def __init__(self, sampler: Watching, style: TextStyle, environment: Optional[Mapping[str, str]] = None) -> None:
        self._sampler, self._style = sampler, style
        self._levels = BLOCKS if has_blocks(os.environ if environment is None else environment) else PLAIN
        self._last: Deque[float] = deque(maxlen=SHOWN)
        self._known: Dict[Tuple[int, str], int] = {}
        """The last estimates."""
        self._rows = 0
        self._places: Optional[List[int]] = None
        """Allocators that have columns; known with the first sample."""
        self._columns: List[Column] = []
        self._staying: List[int] = []
        """The columns that the terminal has room for."""
        self._width = style.width if style.wraps else None
        self._name = "%s (pid %d)" % (make_printable(sampler.name), sampler.pid)

    def start(self, every_s: float) -> Iterator[str]:
        """Yield the lines on the watched process and allocators, and the means."""
        how = "each sample stops it for as long as a walk takes (--exact)" if self._sampler.is_exact else "without stopping it"
        yield from self._wrap_sentence("watching %s every %g s, %s; Ctrl-C ends with a summary" % (self._name, every_s, how))
        for watched in self._sampler.watched:
            version = " %s" % watched.info.version if watched.info.version else ""
            guessed = list_estimates(watched, self._sampler.is_exact)
            note = "; ~ estimated, thread caches count as used; (..) carried over from an earlier sample" * bool(guessed)
            yield from self._wrap_sentence("%s%s in %s%s" % (watched.info.id, version, make_printable(watched.info.object or "?"), note))
        if not self._sampler.watched:
            why = hint_about("process", str(self._sampler.pid), "doctor")
            yield from self._wrap_sentence("no allocator can be read here: RSS and threads alone are watched; the reason: %s" % why)

    def _wrap_sentence(self, sentence: str) -> List[str]:
        return text.wrap_sentence(format_sentence(self._style, sentence), self._width)

    def sample(self, sample: Sample) -> Iterator[str]:
        """Yield one row, below a heading every HEADING_EVERY rows."""
        if self._places is None:
            self._places = shown_places(sample)
        if not self._columns:
            self._columns = self._made_columns()
            self._staying = text.choose_staying(self._columns, self._column_widths(), self._width)
            hidden = [column.heading for place, column in enumerate(self._columns) if place not in self._staying]
            yield from text.note_hidden(hidden, False, self._width)
        if self._rows % HEADING_EVERY == 0:
            yield self._format_row([column.heading for column in self._columns])
        self._rows += 1
        self._last.append(sample.counters.resident_bytes)
        cells = [
            format_local_time(sample.unix_s),
            *(self._format_size(size_bytes) for size_bytes in (sample.counters.resident_bytes, sample.counters.anonymous_bytes)),
        ]
        cells.append("?" if sample.counters.threads is None else str(sample.counters.threads))
        for place in self._places:
            watched, reading = self._sampler.watched[place], sample.readings[place]
            cells.append("|")
            guessed = list_estimates(watched, self._sampler.is_exact)
            values = {figure.key: value for figure, value in zip(watched.figures, reading.values) if figure.is_shown}
            for key, value in {**values, "used_bytes": reading.used_bytes}.items():
                cells.append(self._format_estimate((place, key), value) if key in guessed else self._format_size(value))
        if self._sampler.is_exact:
            cells.append("?" if sample.stopped_ms is None else "%.1f ms" % sample.stopped_ms)
        yield self._format_row([*cells, draw_sparkline(self._last, self._levels)])

    def _format_row(self, cells: Sequence[str]) -> str:
        """Return a row of the columns that the terminal has room for; the curve gets the room that is left."""
        widths = self._column_widths()
        shown = [cells[place].rjust(widths[place]) for place in self._staying if 0 < place < len(cells) - 1]
        row = "  ".join([cells[0].ljust(widths[0]), *shown])
        if len(cells) - 1 not in self._staying:
            return row
        return "%s  %s" % (row, cells[-1] if self._width is None else cells[-1][-max(1, self._width - len(row) - text.GAP) :])

    def decided(self, decision: TriggerDecision) -> Iterator[str]:
        """Yield the decision on a snapshot, with its reason."""
        told = "%s  snapshot %s (%s: %s)" % (format_local_time(decision.unix_s), decision.outcome, decision.rule, decision.why)
        if decision.path is not None:
            size_ = format_size(decision.size_bytes, self._style.plain_bytes)
            stopped = "" if decision.stopped_ms is None else ", paused the process for %.0f ms" % decision.stopped_ms
            told += ": %s, %s%s" % (make_printable(decision.path), size_, stopped)
        yield from self._wrap_sentence(told)

    def _made_columns(self) -> List[Column]:
        columns = [Column("time", TEXT), Column("RSS", BYTES), Column("anonymous", BYTES, goes=4), Column("threads", goes=5)]
        for place in self._places or ():
            watched = self._sampler.watched[place]
            columns.append(Column("|"))
            for figure in watched.figures:
                if figure.is_shown:
                    heading = figure.heading.rstrip("~") if self._sampler.is_exact else figure.heading
                    columns.append(Column(heading, BYTES, goes=figure.goes))
            columns.append(Column("used~" if list_estimates(watched, self._sampler.is_exact) else "used", BYTES))
        if self._sampler.is_exact:
            columns.append(Column("stopped", TEXT, goes=2))
        return [*columns, Column("RSS so far", TEXT, goes=1)]

    def _column_widths(self) -> List[int]:
        of_size = 14 if self._style.plain_bytes else 11
        return [of_size if column.unit == BYTES else max(8 * (column.unit == TEXT), len(column.heading)) for column in self._columns]

    def _format_size(self, value: Optional[int]) -> str:
        return format_size(value, self._style.plain_bytes)

    def _format_estimate(self, key: Tuple[int, str], value: Optional[int]) -> str:
        """Return an estimate as text; one that was not made for this sample is shown with its last value, in parentheses."""
        if value is not None:
            self._known[key] = value
            return self._format_size(value)
        return "(%s)" % format_size(self._known[key], self._style.plain_bytes) if key in self._known else UNKNOWN

    def returned(self, step: ReturnedStep) -> Iterator[str]:
        """Memory was returned to the OS."""
        line = make_sentence(
            "%s  %s were returned to the OS since the sample before", format_local_time(step.unix_s), SentenceSize(step.returned_bytes)
        )
        yield from self._wrap_sentence(line)

    def end(self, over: Over, history: History) -> Iterator[str]:
        """The summary."""
        summary = over.summary
        yield ""
        if summary is None:
            yield from self._wrap_sentence("%s %s before the first sample" % (self._name, ENDS[over.why]))
            return
        span = summary.last.elapsed_s - summary.first.elapsed_s
        if self._places is None:
            self._places = shown_places(summary.last)
        missed = "; %s late and left out" % count_noun(summary.missed, "sample") if summary.missed else ""
        samples = count_noun(summary.samples, "sample")
        why = "" if over.why in (codes.TIMES, codes.STOPPED) else " %s;" % ENDS[over.why]
        yield from self._wrap_sentence("%s%s watched for %s (%s)%s" % (self._name, why, format_duration(span), samples, missed))
        yield "%s  RSS from start to end" % draw_sparkline(thin_points(history.rss.points(), WHOLE), self._levels)
        for line in self._summary_lines(summary):
            yield from self._wrap_sentence(line)

    def _summary_lines(self, summary: Summary) -> Iterator[str]:
        guessed = any(list_estimates(self._sampler.watched[place], self._sampler.is_exact) for place in self._places or ())
        note = " (estimated)" * guessed
        for name, change in (("RSS", summary.rss), ("in use" + note, summary.used), ("free" + note, summary.kept)):
            if change is not None:
                yield format_growth(name, change, has_rate=not summary.steps)
        yield from format_peaks(summary)
        yield format_verdict(summary)
        if summary.spikes is not None:
            yield of_spikes(summary.spikes)
        yield from format_end_state(summary)
        for step in summary.last_steps:
            yield of_step(step)
        if summary.undecided_bytes:
            yield of_undecided(summary.undecided_bytes)
        if summary.worth is not None:
            yield of_worth(summary.worth, summary.steps)
        for command in next_commands(summary):
            yield make_sentence("next: %s", hint_about("process", str(self._sampler.pid), command))


ENDS = {
    codes.ENDED: "crashed or exited",
    codes.EXECUTED: "runs another program now (execve): start the watch again",
    codes.STOPPED: "is no longer watched",
    codes.TIMES: "was watched",
    codes.OPEN: "is still watched, or its watch was killed",
}


VERDICTS = {
    codes.UNKNOWN: "No verdict yet: watch for at least 10 s and 5 samples",
    codes.STEADY: "RSS did not grow",
    codes.SWINGS: "RSS swings by more than it grew or fell: watch for longer",
    codes.SHRANK: "RSS fell",
    codes.IN_USE: "Growing: memory in use, and RSS with it: a leak, or a cache that still fills",
    codes.RETURNED: "RSS grew, at least half of it memory that came back after a return to the OS",
    codes.KEPT: "Kept: RSS grew, and at least half of that is free memory that malloc keeps",
    codes.HELD: "RSS grew with the memory that the allocator holds; the part in use is unknown: try --exact",
    codes.TOUCHED: "RSS grew by memory that the allocator already held and the program now touched",
    codes.POOLS: "RSS grew in memory that a runtime in the process manages itself",
    codes.ELSEWHERE: "RSS grew outside malloc: `report` names the mappings, stacks and files",
    codes.GREW: "RSS grew; no allocator can be read here",
}


def shown_places(sample: Sample) -> List[int]:
    """Return the places of the allocators that have columns: not those that hold next to nothing compared with another."""
    held = [reading.held_bytes or 0 for reading in sample.readings]
    return [place for place, size_bytes in enumerate(held) if size_bytes * LEAST_SHARE >= max(held)]


def format_growth(name: str, change: SeriesChange, has_rate: bool = True) -> Sentence:
    """Return the first and last value, and the rate: a rate says nothing where memory was returned meanwhile."""
    grown = change.last - change.first
    hourly = change.bytes_per_hour
    rate = make_sentence("; %s%s an hour", "+" if hourly >= 0 else "-", SentenceSize(abs(hourly))) if has_rate and has_trend(change) else ""
    short = " (from %s only)" % format_duration(change.span_s) if rate and change.span_s < SHORT_S else ""
    ends = (SentenceSize(change.first), SentenceSize(change.last), "+" if grown >= 0 else "-", SentenceSize(abs(grown)))
    return make_sentence(
        "%s: %s -> %s, %s%s%s%s; lowest %s, highest %s", name, *ends, rate, short, SentenceSize(change.lowest), SentenceSize(change.highest)
    )


def has_trend(change: SeriesChange) -> bool:
    """A rate says something."""
    return not change.is_noise and change.is_lasting and (change.drift > 0) == (change.bytes_per_hour > 0)


def format_peaks(summary: Summary) -> Iterator[Sentence]:
    """The highest RSS that the kernel saw, and what its cgroup used at most."""
    peak, group = summary.peak_bytes, summary.last.counters.group_peak_bytes
    if peak is not None:
        is_hidden = peak - summary.seen_peak_bytes >= max(LEAST_SWING_BYTES, peak * LEAST_HEIGHT_PERCENT // 100)
        yield make_sentence("peak RSS since it started: %s (VmHWM)%s", SentenceSize(peak), ", which no sample has seen" * is_hidden)
    if group is not None:
        yield make_sentence("cgroup peak: %s (includes page cache and other processes)", SentenceSize(group))


WHOSE = {
    spikes.ALLOCATORS: "memory of the allocators",
    spikes.MAPPINGS: "address space that comes and goes outside the allocators: a runtime's pools, or mappings of its own",
    spikes.TOUCHED: "memory that is mapped all the time: free memory of the allocator or of a runtime's pools that is used again",
    spikes.FILES: "files, or shared memory",
    spikes.MIXED: "now of one kind, now of another",
    None: "of unknown memory",
}


def of_spikes(found: Spikes) -> Sentence:
    """`5 spikes of +300 MiB, one every 4 s: memory of the allocators`."""
    often = ", one every %g s" % found.period_s if found.period_s is not None else ""
    most = make_sentence(" (the largest +%s)", SentenceSize(found.largest_bytes)) if found.largest_bytes > found.bytes * 1.1 else ""
    return make_sentence("%s of +%s%s%s: %s", count_noun(found.number, "spike"), SentenceSize(found.bytes), most, often, WHOSE[found.whose])


def format_verdict(summary: Summary) -> Sentence:
    """Return the verdict on RSS."""
    if summary.code == codes.POOLS and summary.pool is not None:
        program = summary.pool.program
        what, is_slow = "objects" if has_objects(program) else "own memory", not is_seen(program)
        figures = program, what, SentenceSize(summary.pool.bytes), summary.pool.name, ", or its collector lets it grow" * is_slow
        return make_sentence("Growing: %s's %s, +%s in %s: a leak, or a cache that still fills%s", *figures)
    is_all = summary.code == codes.KEPT and summary.used is not None and (summary.used.is_noise or summary.used.drift < 0)
    return make_sentence("%s%s", VERDICTS[summary.code], "; memory in use did not grow" * is_all)


def format_end_state(summary: Summary) -> Iterator[Sentence]:
    """Yield how much of the memory that allocators hold is in use at the end."""
    last = summary.last
    if last.held_bytes and last.used_bytes is not None and last.kept_bytes is not None:
        ram = make_sentence("")
        if summary.kept_resident_bytes is not None and summary.kept_resident_bytes < last.kept_bytes:
            ram = make_sentence(" (at most %s of it resident)", SentenceSize(summary.kept_resident_bytes))
        yield make_sentence(
            "allocators hold %s: %s in use, %s free%s",
            SentenceSize(last.held_bytes),
            SentenceSize(last.used_bytes),
            SentenceSize(last.kept_bytes),
            ram,
        )
        if summary.is_mostly_kept:
            yield make_sentence("Most of the resident memory may be free, not in use")


def of_step(step: ReturnedStep) -> Sentence:
    """Return how much memory came back after one return, and when."""
    start = make_sentence(
        "%s: %s were returned to the OS (RSS %s -> %s)",
        format_local_time(step.unix_s),
        SentenceSize(step.returned_bytes),
        SentenceSize(step.rss_before_bytes),
        SentenceSize(step.rss_after_bytes),
    )
    after = format_duration(step.observed_s)
    if step.most_s is not None:
        back = make_sentence("; nearly all of it was back in RAM after %s", format_duration(step.most_s))
    elif step.half_s is not None:
        back = make_sentence(
            "; half of it was back in RAM after %s, %s after %s", format_duration(step.half_s), SentenceSize(step.back_bytes), after
        )
    elif step.back_bytes * 20 < step.returned_bytes:
        back = make_sentence("; next to nothing of it came back in %s", after)
    else:
        back = make_sentence("; %s of it came back in %s", SentenceSize(step.back_bytes), after)
    used = make_sentence(", %s of it still in use", SentenceSize(step.back_used_bytes)) if step.back_used_bytes and step.back_bytes else ""
    return make_sentence("%s%s%s", start, back, used)


def of_undecided(undecided_bytes: int) -> Sentence:
    """Return the sentence on memory that left RAM and belongs to no step."""
    return make_sentence("Another %s left RAM; whether the program freed it is unknown: try --exact", SentenceSize(undecided_bytes))


def of_worth(worth: Worth, steps: int) -> Sentence:
    """Return the verdict on a timer."""
    sizes = (SentenceSize(worth.returned_bytes), count_noun(worth.steps, "step"), SentenceSize(worth.stayed_bytes))
    what = make_sentence("of %s that %s returned, %s stayed returned", *sizes)
    half = ": half of the returned memory is back after %s" % format_duration(worth.half_s) if worth.half_s is not None else ""
    if worth.code == "too-early":
        return make_sentence("There is no verdict on a periodic trim or purge until 30 s after one: watch for longer")
    if worth.code == "pays":
        return make_sentence("a periodic trim or purge pays here: %s", what)
    if worth.code == "does-not-pay":
        return make_sentence("a periodic trim or purge does not pay here%s; %s", half, what)
    return make_sentence("a periodic trim or purge pays in part here%s; %s", half, what)


def next_commands(summary: Summary) -> List[str]:
    """Return the commands to ask about the process next."""
    commands: List[str] = []
    if summary.code in (codes.IN_USE, codes.HELD):
        commands += ["leaks", "owners", "census"]
    if summary.code == codes.POOLS and summary.pool is not None and is_seen(summary.pool.program):
        commands += ["owners", "census"]
    if summary.code in (codes.POOLS, codes.ELSEWHERE, codes.GREW):
        commands += ["report"]
    pays = summary.worth is None or summary.worth.code != "does-not-pay"
    if pays and (summary.code == codes.KEPT or summary.is_mostly_kept):
        commands += [*(summary.returns_by or ["report"]), "pins"]
    return commands
