"""Many processes at once, sampled by their counters alone: which of them grow, and how fast. None is stopped, and no heap is read."""

import os
import resource
import time
from typing import Annotated, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.monitor.memory_group import InContainer
from gdbheapx.addons.monitor.watch.counters import Counters, ProcessCounters
from gdbheapx.addons.monitor.watch.table import format_utc_time
from gdbheapx.addons.monitor.watch.trends import Series
from gdbheapx.common.budget import Budget
from gdbheapx.common.columns import ADD, BYTES, IF_ANY, PLAIN, TEXT, Column, ColumnsTable, columns_of
from gdbheapx.common.units import SentenceSize, make_sentence
from gdbheapx.report.encodings import encode_json
from gdbheapx.report.text import make_printable

ALL = "ALL"
MOST_ROWS = 20
MOST_ENDED = 1000
"""Kept of processes that have ended: those that grew most."""
NAP_S = 0.2


class Grower(NamedTuple):
    """Process, and its growth."""

    pid: Annotated[int, Column("pid", PLAIN)]
    name: Annotated[str, Column("name", TEXT)]
    rss_bytes: Annotated[int, Column("RSS", BYTES, ADD)]
    """At its last sample."""
    grown_bytes: Annotated[int, Column("grown", BYTES, ADD)]
    """Since its first one."""
    sure_bytes_per_hour: Annotated[Optional[int], Column("at least, per hour", BYTES)]
    """Of the growth what no swing explains; None: too few samples, or too small to say anything."""
    anonymous_bytes: Annotated[int, Column("anonymous", BYTES, ADD, goes=2)]
    swapped_bytes: Annotated[Optional[int], Column("swapped", BYTES, None, IF_ANY, goes=1)]
    peak_bytes: Annotated[Optional[int], Column("peak", BYTES, goes=3)]
    """The highest RSS since it began (VmHWM)."""
    seen_s: Annotated[float, Column("seen, s", PLAIN, goes=4)]
    """From its first sample to its last."""
    ended: Annotated[str, Column("", TEXT, None, IF_ANY)]
    """`ended` where it is no more."""


class MachineMoment(NamedTuple):
    """State of all followed processes at one sample, or at the end."""

    kind: str
    unix_s: float
    elapsed_s: float
    samples: int
    processes: int
    """That run and are followed."""
    unreadable: int
    """That run, and this user may not read."""
    rows: Sequence[Grower]

    @property
    def anonymous_bytes(self) -> int:
        """Return the anonymous memory of the running processes together."""
        return sum(row.anonymous_bytes for row in self.rows if not row.ended)


class FollowedProcess:
    """Process that is followed."""

    def __init__(self, pid: int, counting: Counters, elapsed_s: float, is_judged: bool = True) -> None:
        self.pid, self.counting, self.since_s = pid, counting, elapsed_s
        self.name = "?"
        self.rss = Series() if is_judged else None
        self.first: Optional[ProcessCounters] = None
        self.last: Optional[ProcessCounters] = None
        self.last_s = elapsed_s
        self.has_ended = False

    def sample(self, elapsed_s: float) -> bool:
        """False once it has ended."""
        counters = self.counting.read()
        if counters is None:
            self.has_ended = True
            return False
        self.name = self.counting.name() or self.name  # of a container's first process: the runtime's, until it runs the program
        self.first, self.last, self.last_s = self.first or counters, counters, elapsed_s
        if self.rss is not None:
            self.rss.add(elapsed_s, counters.resident_bytes)
        return True

    def row(self) -> Optional[Grower]:
        """Return the growth so far; None before the first sample."""
        if self.first is None or self.last is None:
            return None
        change = self.rss.change() if self.rss is not None else None
        sure = change.sure_bytes_per_hour if change is not None else None
        last = self.last
        grown = last.resident_bytes - self.first.resident_bytes
        told = last.anonymous_bytes, last.swapped_bytes, last.peak_bytes
        return Grower(
            self.pid, self.name, last.resident_bytes, grown, sure, *told, round(self.last_s - self.since_s, 1), "ended" * self.has_ended
        )


class Machine:
    """Processes that `which` names: ALL, the name of programs, or the path of a control group, with those below it. Without `is_judged`
    another program judges growth, so neither earlier samples nor processes that have ended are kept.
    """

    def __init__(self, which: str, counting: Callable[[int], Counters] = Counters, proc: str = "/proc", is_judged: bool = True) -> None:
        self._which, self._counting, self._proc, self._is_judged = which, counting, proc, is_judged
        self._running: Dict[int, FollowedProcess] = {}
        self._ended: List[FollowedProcess] = []
        self.unreadable = 0
        """At the last sample: there, and not to be read by this user."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < hard:  # a folder of /proc stays open for each
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def sample(self, elapsed_s: float) -> None:
        """Sample all processes now; those that began meanwhile are followed from here on."""
        for pid, one in list(self._running.items()):
            if not one.sample(elapsed_s):
                del self._running[pid]
                if self._is_judged:
                    self._ended.append(one)
        self.unreadable = 0
        for entry in os.listdir(self._proc):
            if entry.isdigit() and int(entry) not in self._running and int(entry) != os.getpid() and self._is_wanted(entry):
                try:
                    one = FollowedProcess(int(entry), self._counting(int(entry)), elapsed_s, self._is_judged)
                except OSError:
                    self.unreadable += os.path.exists(os.path.join(self._proc, entry))
                    continue
                if one.sample(elapsed_s):
                    self._running[one.pid] = one
        if len(self._ended) > 2 * MOST_ENDED:
            grown = [(one, one.row()) for one in self._ended]
            grown.sort(key=lambda pair: pair[1].grown_bytes if pair[1] is not None else 0, reverse=True)
            self._ended = [one for one, _ in grown[:MOST_ENDED]]

    def _is_wanted(self, entry: str) -> bool:
        """Threads of the kernel have no memory of their own. Names come from comm and exe: to read a command line is to read a process."""
        if self._which.startswith("/"):
            groups = [line.split(":", 2)[-1] for line in self._read_proc_file(entry, "cgroup").splitlines()]
            return any(group == self._which or group.startswith(self._which.rstrip("/") + "/") for group in groups)
        if self._which != ALL:
            try:
                program = os.path.basename(os.readlink(os.path.join(self._proc, entry, "exe")))
            except OSError:
                program = ""
            return self._which in (self._read_proc_file(entry, "comm").rstrip("\n"), program)
        return self._read_proc_file(entry, "statm").split(" ")[0] not in ("", "0")

    def _read_proc_file(self, entry: str, name: str) -> str:
        try:
            with open(os.path.join(self._proc, entry, name), encoding="utf-8", errors="surrogateescape") as file:
                return file.read()
        except OSError:
            return ""

    def rows(self) -> List[Grower]:
        """Return the processes, those that grew most first."""
        found = (one.row() for one in (*self._running.values(), *self._ended))
        return sorted((row for row in found if row is not None), key=lambda row: (-(row.sure_bytes_per_hour or 0), -row.grown_bytes))

    def running_now(self) -> Iterator[Tuple[int, str, ProcessCounters, InContainer]]:
        """Yield (pid, name, counters, current container) of the running processes, as of the last sample."""
        for one in self._running.values():
            if one.last is not None:
                yield one.pid, one.name, one.last, one.counting.container()

    @property
    def running(self) -> int:
        """Return how many processes are followed."""
        return len(self._running)


def sample_machine(machine: Machine, every_s: float, times: Optional[int], budget: Budget, clock: Any = time) -> Iterator[MachineMoment]:
    """A moment for each sample, and once more the last one, as the end. A sample that is late is not made up for."""
    began, taken, turn = clock.monotonic(), 0, 0

    def make_moment(kind: str, now_s: float) -> MachineMoment:
        return MachineMoment(kind, clock.time(), now_s, taken, machine.running, machine.unreadable, machine.rows())

    while times is None or taken < times:
        if budget.expired():
            break
        now_s = round(clock.monotonic() - began, 3)
        machine.sample(now_s)
        taken += 1
        yield make_moment("machine", now_s)
        turn = max(turn, int((clock.monotonic() - began) / every_s)) + 1
        until = began + turn * every_s
        while (times is None or taken < times) and not budget.expired() and clock.monotonic() < until:
            clock.sleep(min(NAP_S, max(0.0, until - clock.monotonic())))
    budget.heed()
    yield make_moment("end", round(clock.monotonic() - began, 3))


def machine_json_line(moment: MachineMoment) -> str:
    """Return the moment as JSON: for a sample the rows that grow fastest, at the end all rows."""
    rows = moment.rows if moment.kind == "end" else moment.rows[:MOST_ROWS]
    told = {
        "kind": moment.kind,
        "time": format_utc_time(moment.unix_s),
        **moment._asdict(),
        "anonymous_bytes": moment.anonymous_bytes,
        "rows": rows,
    }
    del told["unix_s"]
    return encode_json(told)


def machine_page(moment: MachineMoment) -> Iterator[Any]:
    """Yield the moment for people: a line for a sample; at the end a table."""
    if moment.kind != "end":
        first = next((row for row in moment.rows if row.sure_bytes_per_hour and not row.ended), None)
        told = format_utc_time(moment.unix_s), _count_processes(moment.processes), SentenceSize(moment.anonymous_bytes)
        if first is None:
            yield make_sentence("%s  %s, %s of anonymous memory", *told)
        else:
            fastest = make_printable(first.name), first.pid, SentenceSize(first.sure_bytes_per_hour or 0)
            yield make_sentence("%s  %s, %s of anonymous memory; fastest: %s (%d), %s an hour", *told, *fastest)
        return
    yield ""
    yield ColumnsTable(columns_of(Grower), [row._replace(name=make_printable(row.name)) for row in moment.rows[:MOST_ROWS]])
    if len(moment.rows) > MOST_ROWS:
        yield "and %s: --json" % _count_processes(len(moment.rows) - MOST_ROWS)
    if moment.unreadable:
        yield "%s could not be read: run as root" % _count_processes(moment.unreadable)


def _count_processes(count: int) -> str:
    return "1 process" if count == 1 else "%d processes" % count
