"""How long a process will stand still while it is read: said before it is stopped, by its size and this machine."""

import time
from enum import Enum
from functools import cache
from typing import NamedTuple, Optional, Tuple

from gdbheapx.units import plural


class Reads(Enum):
    """What a command reads of a process that stands still. The names are those of the table in docs/explanation/is-it-safe.md."""

    STATE = "the allocator's own structures"
    LISTS = "the lists of free blocks"
    TOTALS = "each block's header"
    REPORT = "each block's header, and the kinds of other memory"
    BLOCKS = "each block's header, one by one"
    CHECK = "each block's header and all lists"
    GRAPH = "each block, for its pointers"
    OWNERS = "each block, for its pointers and its owner"
    WEAK = "each block twice, for pointers of any form"
    CENSUS = "each block, for its pointers and its type"
    PINS = "each block twice"
    SNAPSHOT = "everything"
    COPY = "all memory that it has touched, once; the copy is read while the process runs on"


NO_HALVES = (Reads.GRAPH, Reads.OWNERS, Reads.WEAK, Reads.CENSUS, Reads.PINS, Reads.SNAPSHOT)
"""A half of these is no answer."""
GIB = 1 << 30
READ_STOP_S = 2.0
"""How long a live process may stand still at a time for what reads it."""


class Cost(NamedTuple):
    """Milliseconds that a process stands still."""

    fixed: float
    mapping: float
    """For each of its mappings."""
    small: float
    """For each GiB of small blocks side by side."""
    large: float
    """For each GiB of blocks with a mapping of their own."""
    rest: float
    """For each GiB of its other memory: nobody's, or what runtimes cut themselves."""
    thread: float = 0.12
    """For each of its threads, and its arena or cache."""


COST = {
    Reads.STATE: Cost(2, 0.003, 0, 0, 0),
    Reads.LISTS: Cost(2, 0.003, 500, 0, 0),
    Reads.TOTALS: Cost(2.5, 0.003, 180, 1, 2, 0.15),
    Reads.REPORT: Cost(5, 0.017, 200, 60, 120, 0.3),
    Reads.BLOCKS: Cost(4, 0.0035, 600, 50, 30),
    Reads.CHECK: Cost(7, 0.008, 2500, 90, 300),
    Reads.GRAPH: Cost(6, 0.04, 1500, 550, 1600),
    Reads.OWNERS: Cost(6, 0.04, 1500, 550, 1600),
    Reads.WEAK: Cost(7, 0.045, 2200, 550, 1500),
    Reads.CENSUS: Cost(8, 0.04, 2100, 700, 3400),
    Reads.PINS: Cost(8, 0.04, 2300, 550, 3000),
    Reads.SNAPSHOT: Cost(14, 0.055, 4800, 800, 4000),
    Reads.COPY: Cost(4, 0.01, 240, 240, 240),
}
"""tests/wild/test_predicted_stops.py holds what was measured against it."""
HEADER_MS = {Reads.TOTALS: (0.0012, 6), Reads.REPORT: (0.0012, 22), Reads.BLOCKS: (0.0036, 12)}
"""Of small blocks that are larger than 16 KiB, so that their headers alone are read: for each, and for each GiB."""
TABLES = {
    Reads.CHECK: 0.1,
    Reads.GRAPH: 0.4,
    Reads.WEAK: 0.4,
    **dict.fromkeys((Reads.OWNERS, Reads.CENSUS, Reads.PINS, Reads.SNAPSHOT), 1.2),
}
"""For what a process is copied, where there is room for the copy and for as much of its small blocks in tables: those of 100 bytes."""
LISTED_TABLES, LISTED_MS = 0.5, 450
"""Of what walks: where lists are long, for their links, and milliseconds for each GiB of small blocks."""
TABLE_BLOCK_BYTES, POINTER_BYTES = 100, 16
"""Where it is known how many small blocks there are: of each as much as of one so large, and for each word that may be a pointer."""
THREAD_MS, MODULE_MS = 0.06, 0.1
"""Of a short stop, for each thread; of others, for each object that is loaded."""
SHORT_MS, SHORT_GIB_MS, MARKS_GIB_MS = 0.6, 0.7, 15.0
"""Of a stop after which all but little is copied already: at least, and for each GiB."""
PATIENCE = 2.0
"""A stop that is predicted to be so many times as long as it may be, and of which a half is no answer, is not begun."""
LOOP, LOOP_S, LOOPS, MOST_LOOPS = 20_000, 0.00056, 5, 20
"""A loop, the time it took where the figures above were measured, how often it is tried, and how often more at most."""
BUSY, MOST_SPARE, WAIT_MS = 1.25, 2.0, 20.0
"""From which crowding on a prediction is a bound; how many times as long as in the mean a stop may wait then; and how long one wait is, for
each other that wants the same CPU."""
KNOWN_NS = 10_000_000
"""Of so much time of a CPU it is told how much was waited for it."""


class Process(NamedTuple):
    """What is known of a process before it is stopped."""

    anonymous_bytes: int
    """Private memory in RAM, and what of it is in swap."""
    threads: int
    mappings: int = 0
    small_bytes: Optional[int] = None
    """What of it are small blocks side by side; None: it is not known, and all of it may be."""
    large_bytes: int = 0
    """What of it are blocks with a mapping of their own."""
    room_bytes: int = 0
    """How much memory there is here for a copy of it."""
    small_blocks: Optional[int] = None
    """How many small blocks there are, where they are large enough to be counted beforehand."""
    pointers: Optional[int] = None
    """How many words of them may be pointers to others, at most."""
    has_long_lists: bool = False
    """So many free blocks are in lists which a walk has to follow that these take longer than the walk."""
    lists_lead_far: bool = False
    """The same where blocks are asked for; totals are told without the lists."""
    modules: int = 0
    """Objects that are loaded."""
    rehearsed_ms: float = 0.0
    """What the answer took when it was made as the process ran, but for the walks."""
    crowding: float = 1.0
    """How many times as long as its work takes whoever looks at it has needed, as others had the CPUs."""

    @property
    def spare(self) -> float:
        """How many times as long as in the mean a stop may last for that: others may need the CPUs just then."""
        return min(self.crowding, MOST_SPARE)

    @property
    def is_bounded(self) -> bool:
        """What is said of its stop is the most that it may be."""
        return self.crowding > BUSY

    def waiting(self, took_ms: float) -> float:
        """How long this takes while others have the CPUs, at most, to two digits."""
        return float("%.2g" % (took_ms * self.crowding * self.spare + WAIT_MS * (self.crowding - 1)))


@cache
def slowness() -> float:
    """How many times as long this machine takes as the one where the figures were measured."""
    return max(0.5, min(_loop_s() for _ in range(LOOPS)) / LOOP_S)


def _loop_s() -> float:
    began = time.thread_time()
    total = 0
    for number in range(LOOP):
        total += number & 7
    return time.thread_time() - began


def scheduled() -> Tuple[int, int]:
    """For how many nanoseconds this thread had a CPU, and waited for one; (0, 0) where this kernel does not tell."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            ran, waited = file.read().split()[:2]
        return int(ran), int(waited)
    except (OSError, ValueError):
        return 0, 0


def crowding(since: Tuple[int, int]) -> float:
    """How many times as long as its work takes this thread has needed since scheduled() was asked; it works on where that is short."""
    ran, waited = 0, 0
    for _ in range(MOST_LOOPS):
        ran, waited = (now - before for now, before in zip(scheduled(), since))
        if ran >= KNOWN_NS:
            break
        _loop_s()
    return 1 + waited / ran if ran else 1.0


def in_stop(reads: Reads, process: Process) -> Reads:
    """What is read of it while it stands still: a copy of everything, or what is asked for where there is no room for one."""
    has_lists = process.has_long_lists or (process.lists_lead_far and reads == Reads.BLOCKS)
    follows = reads in HEADER_MS and has_lists and predict_ms(Reads.COPY, process) < predict_ms(reads, process)
    is_copied = (reads in TABLES or follows) and copy_bytes(reads, process) <= process.room_bytes
    return Reads.COPY if is_copied else reads


def copy_bytes(reads: Reads, process: Process) -> int:
    """How much memory a copy of it takes, and what is made of it in tables."""
    small = process.anonymous_bytes if process.small_bytes is None else min(process.anonymous_bytes, process.small_bytes)
    tables = int(TABLES.get(reads, LISTED_TABLES) * small)
    if reads in TABLES and process.small_blocks is not None and process.pointers is not None:
        known = int(TABLES[reads] * TABLE_BLOCK_BYTES * process.small_blocks) + POINTER_BYTES * process.pointers
        tables = min(tables, known)
    return process.anonymous_bytes + tables


def predict_ms(reads: Reads, process: Process) -> float:
    """How long the process will stand still, to two digits; at most, where others have the CPUs, too."""
    reads = Reads.TOTALS if reads == Reads.LISTS and process.lists_lead_far else reads
    cost, total = COST[reads], process.anonymous_bytes
    small = total if process.small_bytes is None else min(total, process.small_bytes)
    large = min(total - small, process.large_bytes)
    of_small = cost.small * small
    if process.small_blocks is not None and reads in HEADER_MS:
        header_ms, page_ms = HEADER_MS[reads]
        of_small = min(of_small, header_ms * process.small_blocks * GIB + page_ms * small)
    of_small += LISTED_MS * small if process.has_long_lists and reads in HEADER_MS else 0
    by_size = (of_small + cost.large * large + cost.rest * (total - small - large)) / GIB
    fixed = cost.fixed + cost.mapping * process.mappings + cost.thread * process.threads + MODULE_MS * process.modules
    return process.waiting(slowness() * (fixed + by_size) + (0 if reads == Reads.COPY else process.rehearsed_ms))


def predict_short_ms(process: Process, by_marks: bool = False) -> float:
    """The same where it was copied while it ran: its page tables are scanned, and what it wrote to in the last moment is read. `by_marks`:
    an older kernel tells the mark of a write of each page."""
    gib_ms = MARKS_GIB_MS if by_marks else SHORT_GIB_MS
    took = slowness() * (SHORT_MS + 0.01 * process.mappings + THREAD_MS * process.threads + gib_ms * process.anonymous_bytes / GIB)
    return process.waiting(took)


def is_hopeless(reads: Reads, process: Process, predicted_ms: float, limit_s: float) -> bool:
    """There would be no answer within the limit: the process is not stopped for that. What it may last at most does not decide it."""
    over = predicted_ms / process.spare / 1000 / limit_s
    return reads in NO_HALVES and over > PATIENCE


def about(predicted_ms: float, process: Process) -> str:
    """`about 40 s`; `at most 0.4 s (the CPUs are busy)`."""
    return _how_long(predicted_ms, process) + (" (the CPUs are busy)" if process.is_bounded else "")


def pauses(predicted_ms: float, process: Process, limit_s: float) -> str:
    """`(pauses the process for about 12 ms, at most 2 s)`."""
    limit = "" if process.is_bounded and predicted_ms <= limit_s * 1000 else ", at most %g s" % limit_s
    why = ": the CPUs are busy" if process.is_bounded else ""
    return "(pauses the process for %s%s%s)" % (_how_long(predicted_ms, process), limit, why)


def _how_long(predicted_ms: float, process: Process) -> str:
    return "%s %s" % ("at most" if process.is_bounded else "about", lasting(predicted_ms))


def paused(longest_ms: float, count: Optional[int]) -> str:
    """`paused the process for 12 ms`, once it is over."""
    many = " (the longest of %s)" % plural(count, "pause") if count is not None and count > 1 else ""
    return "paused %s%s" % (lasting(longest_ms), many)


def lasting(predicted_ms: float) -> str:
    """A duration that is not known to the millisecond."""
    seconds = predicted_ms / 1000
    if seconds < 0.1:
        return "%d ms" % max(1, round(predicted_ms))
    return "%.1f s" % seconds if seconds < 3 else "%d s" % round(seconds) if seconds < 100 else plural(round(seconds / 60), "minute")


def next_step(predicted_ms: Optional[float], limit_s: float) -> str:
    """What to do where a process may not stand still for as long as its answer takes."""
    enough_s = max(predicted_ms or 0.0, limit_s * 1000) * 1.5 / 1000
    step = "allow more with --max-stop %d" % max(1, round(enough_s + 0.5)) if enough_s < 120 else ""
    return ", or ".join(filter(None, [step, "ask of a core of it (gcore PID)"]))
