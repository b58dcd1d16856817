"""What every shape is asked, and what each look costs it: the stop against its limit, and what changed in the sleeping process."""

import json
import os
import signal
import subprocess
from typing import Dict, List, NamedTuple, Optional, Tuple

from bench.timing import TOOL
from tests.support import memory_group

SECONDS = 120
"""A command that takes longer is ended: it has failed."""

EVERY = ("report", "arenas", "chunks --histogram", "bins", "tcache", "malloc-info", "malloc-stats", "tunables", "trim --dry-run", "doctor")
JEMALLOC = ("tickers", "decay", "purge --dry-run")
"""For a process with a jemalloc as well."""


class Load(NamedTuple):
    """What a stop is allowed to grow with."""

    heap_bytes: int
    """What the allocators took from the kernel, one page of each mapped chunk; no more than is in RAM."""
    members: int
    """Chunks on lists: in bins, fastbins and thread caches."""
    threads: int

    def limit(self) -> float:
        """Seconds that the process may stand still."""
        per_gb = 0.15 if (os.cpu_count() or 1) > 1 else 0.25
        return 0.10 + per_gb * self.heap_bytes / 1e9 + 25e-9 * self.members + 1e-4 * self.threads


class Look(NamedTuple):
    """One command on a process."""

    stop_seconds: Optional[float]
    """The longest stop, as the tool tells it; None if it told none."""
    changes: List[str]
    """What is not as it was before."""
    wrong: str
    """PARTIAL or FAILED, or nothing."""
    why: str


def answer(pid: int, words: str) -> Tuple[Optional[Dict[str, object]], str]:
    """The envelope of a command, or None and why there is none."""
    command = [TOOL, "--pid", str(pid), *words.split(), "--json"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        out, errors = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, "did not end in %d s" % SECONDS
    if process.returncode not in (0, 3, 4):
        return None, "exit code %d: %s" % (process.returncode, (errors.decode(errors="replace").strip().splitlines() or [""])[-1][:200])
    return json.loads(out), ""


def look(pid: int, words: str, group: memory_group.MemoryGroup) -> Look:
    """Run a command on a sleeping process, and compare the process with what it was."""
    before = group.moment()
    envelope, why = answer(pid, words)
    changes = memory_group.changes(before, group.moment())
    if envelope is None:
        return Look(None, changes, "FAILED", why)
    problems = envelope["problems"]
    assert isinstance(problems, list) and isinstance(envelope["target"], dict)
    wrong, why = ("PARTIAL", str(problems[0]["what"])[:200] if problems else "") if envelope["partial"] else ("", "")
    return Look(envelope["target"]["stopped_ms"] / 1000, changes, wrong, why)
