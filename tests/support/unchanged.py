"""Holds a sleeping process against itself: what a look at it may not cost it."""

from contextlib import contextmanager
from typing import Iterator

import pytest

from tests.support import at_rest, memory_group

EVERY = (
    "report", "arenas", "chunks", "chunks --histogram", "bins", "tcache", "malloc-info", "malloc-stats", "tunables", "trim --dry-run",
    "doctor", "check", "what-if", "whatis 4096", "leaks --list", "census", "census --copies", "cold", "pins", "pins --no-owners",
    "leaks --weak", "owners", "refs 4096", "snapshot /dev/null", "watch --times 3 --every 0.05", "watch --times 2 --every 0.05 --exact",
    "export --format folded",
)
WALKERS = ("report", "arenas", "chunks", "check", "census", "leaks --weak", "owners", "snapshot /dev/null", "watch --times 3 --every 0.05")
"""Commands that read an allocator each in a way of its own; the others read it as one of these."""
JEMALLOC = ("tickers", "decay", "purge --dry-run", "profile")


@contextmanager
def unchanged(*pids: int) -> Iterator[None]:
    """The processes, at rest, have the same VmPTE, VmSwap and Rss after the body as before it, and took no page fault in it.

    They are in a memory cgroup of their own meanwhile. Where none can be made, the first three are compared, and a test whose body
    passed is skipped with the reason. A process that was forked must have been woken once since: its first wake copies a page. No page of
    a file is in their memory any more when the body begins, so that one that a look reads without need is seen.
    """
    for pid in pids:
        at_rest.page_out(pid)
    with memory_group.MemoryGroup(*pids) as group:
        before = group.moment()
        yield
        changes = memory_group.changes(before, group.moment())
    assert not changes, "the look changed the process: " + ", ".join(changes)
    if group.reason:
        pytest.skip("VmPTE, VmSwap and Rss are as before; page faults are not known: " + group.reason)
