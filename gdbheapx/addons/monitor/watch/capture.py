"""Snapshots that a watch takes by itself: one before, and some when a rule holds, by a program of its own, within its limits. And that
program, which is on standby (SnapshotStandby in snapshot/take.py): what the first had to import the next has.

Rules: RSS grows at a rate that no swing explains; RSS is above a size; the kernel had to reclaim for the process's memory cgroup
(memory.events: high, max, oom; memory.failcnt), one of its limits is close, or tasks waited for memory (memory.pressure,
/proc/pressure/memory).
"""

import importlib
import json
import os
import sys
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.monitor.watch.counters import Counters, lacking_here
from gdbheapx.addons.monitor.watch.samples import Sample
from gdbheapx.addons.monitor.watch.trends import Series
from gdbheapx.app import runner, worker
from gdbheapx.app.invocation import Invocation, understand_words
from gdbheapx.command import parse_size, some_seconds
from gdbheapx.common.errors import HeapxError, Interrupted
from gdbheapx.common.global_options import GlobalOptions
from gdbheapx.common.units import SentenceSize, make_sentence
from gdbheapx.snapshot import take

GROWTH, ABOVE, PRESSURE, BEFORE = "growth", "above", "pressure", "before"
TAKEN, TOO_SOON, ENOUGH, FAILED = "taken", "too-soon", "enough", "failed"
GROWTH_S = 60.0
"""What goes up for a shorter time may come down again."""
PRESSURE_PERCENT = 10.0
"""Of the last ten seconds in which some task of the group waited for memory."""
TIMES_RSS, BESIDE_BYTES = 2, 64 << 20
"""What a snapshot takes at most: a copy, tables of blocks and their graph, which are smaller, and the program."""


class Rule(NamedTuple):
    """Condition for taking a snapshot."""

    kind: str
    bytes: int = 0
    """An hour, of GROWTH; of ABOVE the RSS."""
    percent: float = PRESSURE_PERCENT
    span_s: float = GROWTH_S
    """Of GROWTH: it is judged over at least so long."""


class TriggerDecision(NamedTuple):
    """Decision at a sample, and its reason."""

    unix_s: float
    rule: str
    outcome: str
    why: str
    path: Optional[str] = None
    size_bytes: Optional[int] = None
    stopped_ms: Optional[float] = None


def parse_capture_rule(text: str) -> Rule:
    """`growth=SIZE` (an hour) or `growth=SIZE/SECONDS`, `above=SIZE`, `pressure` or `pressure=PERCENT`. ValueError for anything else."""
    kind, equals, value = text.partition("=")
    if kind == GROWTH and value:
        rate, _, span = value.partition("/")
        return Rule(kind, parse_size(rate), span_s=some_seconds(span) if "/" in value else GROWTH_S)
    if kind == ABOVE and value:
        return Rule(kind, parse_size(value))
    if kind == PRESSURE and (not equals or 0 < float(value) <= 100):
        return Rule(kind, percent=float(value) if equals else PRESSURE_PERCENT)
    raise ValueError(text)


class Captures:
    """Snapshots taken by one watch."""

    def __init__(
        self,
        pid: int,
        rules: Sequence[Rule],
        folder: str,
        most: int,
        gap_s: float,
        words: Sequence[str] = (),
        counting: Optional[Counters] = None,
    ) -> None:
        """`most`: snapshots after the first; `gap_s`: at least so long between two; `words`: more options of `snapshot`; `counting`:
        reports a lack of memory."""
        self._pid, self._rules, self._folder, self._most, self._gap_s, self._words = pid, rules, folder, most, gap_s, words
        self._counting = counting
        self._standby = take.SnapshotStandby(pid)
        self._rss = Series()
        """Since the last snapshot: what was before it is in that one."""
        self._paths: List[str] = []
        self._last_s: Optional[float] = None
        self._said: Dict[str, str] = {}
        """The last decision by rule: it is not reported twice."""

    def add(self, sample: Sample) -> Iterator[TriggerDecision]:
        """Take one more sample and yield the decisions at it; taking a snapshot lasts as long as `snapshot` does."""
        if not self._paths and self._last_s is None:
            yield self._take_snapshot(sample, BEFORE, "the watch begins")
        self._rss.add(sample.elapsed_s, sample.counters.resident_bytes)
        for one in self._rules:
            why = self._explain_rule(one, sample)
            if why is None:
                self._said.pop(one.kind, None)
                continue
            decision = self._decide_on_rule(one, sample, why)
            if decision.outcome in (TAKEN, FAILED) or self._said.get(one.kind) != decision.outcome:
                yield decision
            self._said[one.kind] = decision.outcome

    def pair(self) -> Tuple[str, ...]:
        """The first and the last that were taken, for `diff`; empty where there are no two."""
        return (self._paths[0], self._paths[-1]) if len(self._paths) > 1 else ()

    def _explain_rule(self, one: Rule, sample: Sample) -> Optional[str]:
        rss = sample.counters.resident_bytes
        if one.kind == ABOVE:
            return str(make_sentence("RSS is %s, above %s", SentenceSize(rss), SentenceSize(one.bytes))) if rss > one.bytes else None
        if one.kind == PRESSURE:
            return self._counting.pressure(one.percent) if self._counting is not None else None
        change = self._rss.change()
        sure = change.sure_bytes_per_hour if change is not None and change.span_s >= one.span_s else None
        if change is None or sure is None or sure < one.bytes:
            return None
        return str(
            make_sentence(
                "RSS grows by at least %s an hour (%s in %d s)", SentenceSize(sure), SentenceSize(change.lasting), round(change.span_s)
            )
        )

    def _decide_on_rule(self, one: Rule, sample: Sample, why: str) -> TriggerDecision:
        if len(self._paths) - 1 >= self._most:
            return TriggerDecision(sample.unix_s, one.kind, ENOUGH, "%s; %d were taken" % (why, self._most))
        if self._last_s is not None and sample.elapsed_s - self._last_s < self._gap_s:
            return TriggerDecision(sample.unix_s, one.kind, TOO_SOON, "%s; the last one is less than %g s old" % (why, self._gap_s))
        return self._take_snapshot(sample, one.kind, why)

    def _take_snapshot(self, sample: Sample, kind: str, why: str) -> TriggerDecision:
        self._last_s = sample.elapsed_s
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(sample.unix_s))
        path = os.path.join(self._folder, "gdbheapx-%d-%s-%s.snap" % (self._pid, moment, kind))
        rss = sample.counters.resident_bytes
        lacking = lacking_here(self._pid, TIMES_RSS * rss + BESIDE_BYTES) if self._counting is not None else None
        if lacking is not None:
            return TriggerDecision(sample.unix_s, kind, FAILED, "%s; no snapshot of %d: %s" % (why, self._pid, lacking))
        try:
            told = self._standby.take(path, self._words)
        except HeapxError as error:
            return TriggerDecision(sample.unix_s, kind, FAILED, "%s; %s" % (why, error.line()))
        self._paths.append(path)
        self._rss = Series()
        data, target = told.get("data") or {}, told.get("target") or {}
        return TriggerDecision(sample.unix_s, kind, TAKEN, why, path, data.get("file_bytes"), target.get("stopped_ms"))


MOST_BYTES = 1 << 18
"""Of names of modules."""


class Noted:
    """Import hook of sys.meta_path that writes down the imports of this process, and finds no module itself."""

    def __init__(self, file: int) -> None:
        self._file, self._pid = file, os.getpid()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if os.getpid() == self._pid:  # a child may have closed the file
            os.write(self._file, name.encode() + b"\n")


def stand_by(asked: GlobalOptions, answer_it: Callable[[Invocation], int]) -> int:
    """Answer commands, each a line of JSON with its words on standard input, by a line of exit code and text, until there are no more."""
    worker.serve_parent()
    names = worker.open_temporary()

    def answer_and_note_imports(invocation: Invocation) -> int:
        worker.raise_priority()
        sys.meta_path.insert(0, Noted(names))
        return answer_it(invocation)

    with open(0, "rb", closefd=False) as lines:
        for line in lines:
            words = json.loads(line)
            try:
                code, text = worker.answer_in_child(understand_words(asked, words), answer_and_note_imports)
            except Interrupted as error:
                code, text = worker.NO_ANSWER, runner.envelope_of_words(words, error).encode()
            os.write(1, json.dumps([code, text.decode("utf-8", "replace")]).encode() + b"\n")
            for name in os.pread(names, MOST_BYTES, 0).decode().split():
                try:
                    importlib.import_module(name)
                except Exception:  # it was missing in the child as well
                    pass
    return 0
