"""How long a process will stand still while it is read: said before it is stopped, by its size, the kernel that reads and this machine."""

import time
from enum import Enum
from functools import cache
from typing import NamedTuple, Optional

from gdbheapx.units import plural


class Reads(Enum):
    """What a command reads of a process that stands still. The names are those of the table in docs/is-it-safe.md."""

    STATE = "what the allocator keeps beside its blocks"
    TOTALS = "each block's header"
    BLOCKS = "each block's header, one by one"
    CHECK = "each block's header and all lists"
    GRAPH = "each block, for what it points to"
    CENSUS = "each block, for what it points to and what it is"
    PINS = "each block twice"
    SNAPSHOT = "everything"


NO_HALVES = (Reads.GRAPH, Reads.CENSUS, Reads.PINS, Reads.SNAPSHOT)
"""A half of these is no answer."""
GIB = 1 << 30
C_MS = {
    Reads.STATE: 0.0,
    Reads.TOTALS: 270.0,
    Reads.BLOCKS: 350.0,
    Reads.CHECK: 550.0,
    Reads.GRAPH: 1150.0,
    Reads.CENSUS: 1900.0,
    Reads.PINS: 2200.0,
    Reads.SNAPSHOT: 2900.0,
}
"""Milliseconds for each GiB in RAM, of small blocks, by the C kernel: docs/is-it-safe.md has what was measured."""
PYTHON_MS = {
    Reads.STATE: 0.0,
    Reads.TOTALS: 2.0e3,
    Reads.BLOCKS: 2.0e3,
    Reads.CHECK: 47.0e3,
    Reads.GRAPH: 520.0e3,
    Reads.CENSUS: 900.0e3,
    Reads.PINS: 950.0e3,
    Reads.SNAPSHOT: 1020.0e3,
}
"""The same of its twin in Python."""
LEAST_MS, THREAD_MS = 3.0, 0.06
PATIENCE = 2.0
"""A stop that is predicted to be so many times as long as it may be, and of which a half is no answer, is not begun."""
LOOP, LOOP_S = 20_000, 0.00075
"""A loop, and the time it took where the figures above were measured."""


class Process(NamedTuple):
    """What is known of a process before it is stopped."""

    anonymous_bytes: int
    """Private memory in RAM, and what of it is in swap."""
    threads: int


@cache
def slowness() -> float:
    """How many times as long this machine takes, as busy as it is now, as the one where the figures were measured."""
    began = time.perf_counter()
    total = 0
    for number in range(LOOP):
        total += number & 7
    return max(0.25, (time.perf_counter() - began) / LOOP_S)


def predict_ms(reads: Reads, kernel: str, process: Process) -> float:
    """How long the process will stand still."""
    rate = (C_MS if kernel == "c" else PYTHON_MS)[reads]
    return round(slowness() * (LEAST_MS + THREAD_MS * process.threads + rate * process.anonymous_bytes / GIB), 1)


def is_hopeless(reads: Reads, kernel: str, predicted_ms: float, limit_s: float) -> bool:
    """There would be no answer within the limit: the process is not stopped for that."""
    over = predicted_ms / 1000 / limit_s
    if kernel != "c" and reads not in (Reads.STATE, Reads.TOTALS):
        return over > 1
    return reads in NO_HALVES and over > PATIENCE


def about(predicted_ms: float, kernel: str) -> str:
    """`about 40 s here (no C kernel)`."""
    return "about %s here%s" % (lasting(predicted_ms), "" if kernel == "c" else " (no C kernel)")


def lasting(predicted_ms: float) -> str:
    """A duration that is not known to the millisecond."""
    seconds = predicted_ms / 1000
    if seconds < 0.1:
        return "%d ms" % max(1, round(predicted_ms))
    return "%.1f s" % seconds if seconds < 3 else "%d s" % round(seconds) if seconds < 100 else plural(round(seconds / 60), "minute")


def next_step(predicted_ms: Optional[float], kernel: str, limit_s: float) -> str:
    """What to do where a process may not stand still for as long as its answer takes."""
    enough_s = max(predicted_ms or 0.0, limit_s * 1000) * 1.5 / 1000
    step = "allow more with --max-stop %d" % max(1, round(enough_s + 0.5)) if enough_s < 120 else ""
    kernels = [] if kernel == "c" else ["build the C kernel (`gdbheapx doctor`)"]
    return ", or ".join(filter(None, [*kernels, step, "ask of a core of it (gcore PID)"]))
