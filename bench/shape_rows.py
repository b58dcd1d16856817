"""Each bad shape looked at by each reading command: how long that stops it, and that it is as before."""

import time
from pathlib import Path
from typing import Dict, List

from bench.bad_shapes import SHAPES, Shape, build, prove, start
from bench.looks import EVERY, JEMALLOC, Look, answer, look
from bench.rows import Row, progress
from bench.shape_process import ShapeProcess, load, settle
from bench.shape_programs import Broken, Unavailable
from bench.timing import RUNS
from tests.support import memory_group

ROUNDS = max(3, RUNS // 5)
HOPELESS = 3
"""A command that is this many times over its limit in the first round is not asked again."""


class Subject:
    """A sleeping process that no look has changed: after one that did, another of the same shape takes its place."""

    def __init__(self, shape: Shape, command: List[str]) -> None:
        self._shape = shape
        self._command = command
        self._begin()

    def _begin(self) -> None:
        self.process = start(self._shape, self._command)
        self._group = memory_group.MemoryGroup(self.process.pid)
        self._group.__enter__()
        if not settle(self._group.moment):
            self.end()
            raise Broken("%s: the process does not come to rest" % self._shape.title)

    @property
    def reason(self) -> str:
        """Why page faults are not known; empty if they are."""
        return self._group.reason

    def look(self, words: str) -> Look:
        """One command."""
        found = look(self.process.pid, words, self._group)
        if found.changes:
            self.end()
            self._begin()
        return found

    def end(self) -> None:
        """End it."""
        self._group.__exit__(None, None, None)
        self.process.end()


def rounds(subject: Subject, commands: List[str], limit: float) -> Dict[str, List[Look]]:
    """Every command once in each round; what is hopeless once."""
    looks = {words: [] for words in commands}  # type: Dict[str, List[Look]]
    for number in range(ROUNDS):
        for words in commands[number:] + commands[:number]:
            before = looks[words]
            if not before or (before[0].stop_seconds is not None and before[0].stop_seconds < HOPELESS * limit):
                before.append(subject.look(words))
    return looks


def row(title: str, words: str, limit: float, looks: List[Look]) -> Row:
    """The shortest of the stops; a change or a failure in any of the looks."""
    stops = [one.stop_seconds for one in looks if one.stop_seconds is not None]
    changed = next((one.changes for one in looks if one.changes), [])
    wrong = [next((one.wrong for one in looks if one.wrong), ""), "CHANGED" if changed else ""]
    notes = [next((one.why for one in looks if one.why), ""), ", ".join(changed), "" if len(looks) > 1 else "one look"]
    figure = "%s: %s" % (title, words)
    return Row(figure, limit, min(stops, default=float("nan")), "s", "; ".join(filter(None, notes)), " ".join(filter(None, wrong)))


def own_clock(process: ShapeProcess, words: str, limit: float) -> float:
    """The longest gap that the process itself saw during a look, awake; the shortest of as many looks as there are rounds."""
    gaps = []  # type: List[float]
    while not gaps or (len(gaps) < ROUNDS and gaps[0] < HOPELESS * limit):
        process.watch_clock(True)
        answer(process.pid, words)
        gaps.append(process.record().longest_gap_ns / 1e9)
        process.watch_clock(False)
    return min(gaps)


def measure_shape(name: str, folder: Path) -> List[Row]:
    """The rows of one shape; one row that says why where it is not what it should be."""
    try:
        return looked_at(SHAPES[name], folder)
    except Unavailable as error:
        progress("%s is not measured: %s" % (SHAPES[name].title, error))
        return []
    except Broken as error:
        return [Row(SHAPES[name].title, None, float("nan"), "s", str(error), "FAILED")]


def looked_at(shape: Shape, folder: Path) -> List[Row]:
    """A row for each command, and one for the process's own clock."""
    command = build(shape, folder)
    begun = time.monotonic()
    process = start(shape, command)
    seconds = time.monotonic() - begun
    try:
        facts = prove(shape, process)
    finally:
        process.end()
    allowed = load(facts)
    what = ", ".join("%s %d" % (key, facts[key]) for key in shape.must)
    told = (shape.title, seconds, what, allowed.heap_bytes / 1e9, allowed.members, allowed.threads)
    progress("%s: ready after %.1f s, %s; heap of %.2f GB, %d list members, %d threads" % told)
    commands = list(EVERY + (JEMALLOC if shape.jemalloc else ()))
    subject = Subject(shape, command)
    try:
        if subject.reason:
            progress("page faults are not compared: " + subject.reason)
        looks = rounds(subject, commands, allowed.limit())
        gap = own_clock(subject.process, "arenas", allowed.limit())
    finally:
        subject.end()
    rows = [row(shape.title, words, allowed.limit(), looks[words]) for words in commands]
    return [*rows, Row("%s: arenas, by its own clock" % shape.title, allowed.limit(), gap, "s")]
