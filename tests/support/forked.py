"""A family of forked processes that share pages: what an action on one of them takes from it, and what from the machine."""

import os
import signal
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

from tests.support.tool import heapx

MIB = 1 << 20
SLACK_BYTES = 64 << 10
"""What a call, and a server that is woken by it, may touch or copy."""


def rollup(pid: int, key: str) -> int:
    """A line of smaps_rollup, in bytes."""
    for line in Path("/proc/%d/smaps_rollup" % pid).read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def children(pid: int) -> List[int]:
    """Processes that it has forked, the oldest first."""
    return sorted(int(word) for path in Path("/proc/%d/task" % pid).glob("*/children") for word in path.read_text().split())


class Taken(NamedTuple):
    """What was foretold of an action, and what the kernel says came of it, in bytes."""

    foretold: int
    foretold_exclusive: int
    left_process: int
    """Fall of the process's anonymous RSS."""
    left_machine: int
    """Fall of the whole family's proportional share: each page counts once, however many of them have it."""


def machine(family: Sequence[int]) -> int:
    """Anonymous memory of a family that the machine has given it."""
    return sum(rollup(pid, "Pss_Anon") for pid in family)


def act(pid: int, family: Sequence[int], words: str) -> Taken:
    """Let the command (`trim` or `purge`) foretell, then act on one process of a family, and measure from outside."""
    foretold = predicted(pid, words)
    before, all_before = rollup(pid, "Anonymous"), machine(family)
    done = heapx(["--pid", str(pid)], *words.split(), "--yes", "--wait", "50", "--json").data
    assert done["trouble"] is None and done["way"] in ("gdb-call", "register-call")
    return Taken(foretold["resident"], foretold["exclusive"], before - rollup(pid, "Anonymous"), all_before - machine(family))


def predicted(pid: int, words: str) -> Dict[str, int]:
    """Resident and exclusive bytes of a dry run; `report`'s totals agree with it."""
    dry: Dict[str, Any] = heapx(["--pid", str(pid)], *words.split(), "--dry-run", "--json").data
    return {"resident": dry["predicted_resident_bytes"], "exclusive": dry["predicted_exclusive_bytes"]}


def check(taken: Taken, slack_bytes: int = SLACK_BYTES) -> None:
    """RSS fell by what was foretold as resident, and the machine got what was foretold as exclusive."""
    for what, foretold, found in (("RSS", taken.foretold, taken.left_process), ("machine", taken.foretold_exclusive, taken.left_machine)):
        assert abs(found - foretold) <= slack_bytes, "%s: %r" % (what, taken)


def end(pids: Sequence[int]) -> None:
    """End a family whose first member may not do it."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
