"""Predicted pause of a process while it is read, computed before it is stopped from its size and this machine's speed."""

import time
from enum import Enum
from functools import cache
from typing import NamedTuple, Optional

from gdbheapx.common.units import count_noun


class Reads(Enum):
    """Reads that a command makes of a stopped process. The names are those of the table in docs/explanation/is-it-safe.md."""

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
COUNTED_BYTES = 512 << 20
"""From how much in small blocks on they are counted before the process is stopped."""
READ_STOP_S = 2.0
"""How long a live process may be stopped at a time for what reads it."""


WALK_MS = {
    Reads.STATE: (0, 0, 0),
    Reads.LISTS: (500, 0, 0),
    Reads.TOTALS: (200, 1, 2),
    Reads.REPORT: (200, 60, 120),
    Reads.BLOCKS: (600, 50, 30),
    Reads.CHECK: (2500, 90, 300),
    Reads.GRAPH: (1500, 550, 1600),
    Reads.OWNERS: (1500, 550, 1600),
    Reads.WEAK: (2200, 550, 1500),
    Reads.CENSUS: (2100, 700, 3400),
    Reads.PINS: (2300, 550, 3000),
    Reads.SNAPSHOT: (4800, 800, 4000),
}
"""Milliseconds that a walk in the stop takes for each GiB of small blocks side by side, of blocks with a mapping of their own, and of other
memory: no one's, or what runtimes cut themselves. tests/wild/test_predicted_stops.py holds what was measured against it."""
COPY_MS = 200
"""The same of a copy, whatever is in the memory."""
WALK_FIXED_MS, COPY_FIXED_MS, MAPPING_MS, THREAD_MS = 40, 3, 0.01, 0.15
"""What a process is stopped for whatever its size, for each of its mappings, and for each of its threads."""
HEADER_MS = {Reads.TOTALS: (0.0012, 6), Reads.REPORT: (0.0012, 22), Reads.BLOCKS: (0.0036, 12)}
"""Of small blocks that are larger than 16 KiB, so that a walk reads their headers alone: for each, and for each GiB."""
LEAST_TABLES = 0.1
TABLES = {
    Reads.GRAPH: 0.4,
    Reads.WEAK: 0.4,
    **dict.fromkeys((Reads.OWNERS, Reads.CENSUS, Reads.PINS, Reads.SNAPSHOT), 1.2),
}
"""What is made of a copy in tables needs as much room as so much of its small blocks: those of 100 bytes. Others need LEAST_TABLES."""
TABLE_BLOCK_BYTES, POINTER_BYTES = 100, 16
"""Where it is known how many small blocks there are: of each as much as of one so large, and for each word that may be a pointer."""
SHORT_MS, SHORT_THREAD_MS, SHORT_GIB_MS, MARKS_GIB_MS = 0.6, 0.06, 0.7, 15.0
"""Of a stop after which all but little is copied already: at least, for each thread, and for each GiB."""
PATIENCE = 2.0
"""A stop that is predicted to be so many times as long as it may be, and of which a half is no answer, is not begun."""
LOOP, LOOP_S, LOOPS = 20_000, 0.00056, 5
"""A loop, the time it took where the figures above were measured, and how often it is tried."""


class StoppedProcess(NamedTuple):
    """Properties of a process known before it is stopped."""

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
    has_swapped: bool = False
    """Some of it is in swap, which a copy would bring back."""


@cache
def measure_slowness() -> float:
    """Return the ratio of this machine's time to that of the machine where the figures were measured."""
    took_s = []
    for _ in range(LOOPS):
        began, total = time.thread_time(), 0
        for number in range(LOOP):
            total += number & 7
        took_s.append(time.thread_time() - began)
    return max(0.5, min(took_s) / LOOP_S)


def in_stop(reads: Reads, process: StoppedProcess) -> Reads:
    """Return what is read of a process while it is stopped: a copy of everything, or what is asked for where a walk is shorter or there
    is no room for a copy."""
    if reads in HEADER_MS and process.small_blocks is None and (process.small_bytes or 0) >= COUNTED_BYTES:
        return reads  # they may be large: a walk over headers may be far shorter
    if process.has_swapped and reads not in (*NO_HALVES, Reads.CHECK):
        return reads  # a walk leaves alone what is in swap and none of its structures
    is_shorter = reads in NO_HALVES or predict_ms(Reads.COPY, process) <= predict_ms(reads, process)
    return Reads.COPY if is_shorter and copy_bytes(reads, process) <= process.room_bytes else reads


def copy_bytes(reads: Reads, process: StoppedProcess) -> int:
    """Return the bytes that a copy of the process takes, and the tables made from it."""
    small = process.anonymous_bytes if process.small_bytes is None else min(process.anonymous_bytes, process.small_bytes)
    tables = int(TABLES.get(reads, LEAST_TABLES) * small)
    if reads in TABLES and process.small_blocks is not None and process.pointers is not None:
        known = int(TABLES[reads] * TABLE_BLOCK_BYTES * process.small_blocks) + POINTER_BYTES * process.pointers
        tables = min(tables, known)
    return process.anonymous_bytes + tables


def predict_ms(reads: Reads, process: StoppedProcess) -> float:
    """Return how long the process will be stopped, to two digits."""
    total = process.anonymous_bytes
    if reads == Reads.COPY:
        fixed, by_size = COPY_FIXED_MS, COPY_MS * total / GIB
    else:
        small = total if process.small_bytes is None else min(total, process.small_bytes)
        large = min(total - small, process.large_bytes)
        small_ms, large_ms, rest_ms = WALK_MS[reads]
        of_small = small_ms * small / GIB
        if process.small_blocks is not None and reads in HEADER_MS:
            header_ms, page_ms = HEADER_MS[reads]
            of_small = min(of_small, header_ms * process.small_blocks + page_ms * small / GIB)
        fixed, by_size = WALK_FIXED_MS, of_small + (large_ms * large + rest_ms * (total - small - large)) / GIB
    took_ms = fixed + by_size + MAPPING_MS * process.mappings + THREAD_MS * process.threads
    return _two_digits(measure_slowness() * took_ms)


def predict_short_ms(process: StoppedProcess, by_marks: bool = False) -> float:
    """Return the same where it was copied while it ran: its page tables are scanned, and what it wrote to in the last moment is read.
    `by_marks`: an older kernel shows the mark of a write of each page."""
    gib_ms = MARKS_GIB_MS if by_marks else SHORT_GIB_MS
    took_ms = SHORT_MS + MAPPING_MS * process.mappings + SHORT_THREAD_MS * process.threads + gib_ms * process.anonymous_bytes / GIB
    return _two_digits(measure_slowness() * took_ms)


def _two_digits(took_ms: float) -> float:
    return float("%.2g" % took_ms)


def is_hopeless(reads: Reads, predicted_ms: float, limit_s: float) -> bool:
    """Return True if there would be no answer within the limit: the process is not stopped for that."""
    return reads in NO_HALVES and predicted_ms / 1000 / limit_s > PATIENCE


def format_about(predicted_ms: float) -> str:
    """`about 40 s`."""
    return "about " + format_lasting(predicted_ms)


def format_prediction(predicted_ms: float, limit_s: float) -> str:
    """`(pauses the process for about 12 ms, at most 2 s)`."""
    return "(pauses the process for %s, at most %g s)" % (format_about(predicted_ms), limit_s)


def format_paused(longest_ms: float, count: Optional[int]) -> str:
    """`paused the process for 12 ms`, once it is over."""
    many = " (the longest of %s)" % count_noun(count, "pause") if count is not None and count > 1 else ""
    return "paused %s%s" % (format_lasting(longest_ms), many)


def format_lasting(predicted_ms: float) -> str:
    """A duration that is not known to the millisecond."""
    seconds = predicted_ms / 1000
    if seconds < 0.1:
        return "%d ms" % max(1, round(predicted_ms))
    return "%.1f s" % seconds if seconds < 3 else "%d s" % round(seconds) if seconds < 100 else count_noun(round(seconds / 60), "minute")


def next_step(predicted_ms: Optional[float], limit_s: float) -> str:
    """Return the advice for a process that may not be stopped for as long as its answer takes."""
    enough_s = max(predicted_ms or 0.0, limit_s * 1000) * 1.5 / 1000
    step = "allow more with --max-stop %d" % max(1, round(enough_s + 0.5)) if enough_s < 120 else ""
    return ", or ".join(filter(None, [step, "ask of a core of it (gcore PID)"]))
