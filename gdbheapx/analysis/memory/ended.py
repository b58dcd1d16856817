"""Ended threads whose stacks are still there, and the functions that those ran which nobody has joined."""

from collections import Counter
from typing import Dict, NamedTuple, Optional, Sequence

from gdbheapx.analysis.memory.attribute import Attribution
from gdbheapx.analysis.memory.stacks import UNJOINED
from gdbheapx.inferior.base import Target

MOST_STARTS = 3
"""Functions that are named."""


class ThreadStart(NamedTuple):
    """A function that was given to pthread_create."""

    function: str
    """With its object; `app+0x1189` where no symbol tells its name."""
    threads: int


class EndedThreads(NamedTuple):
    """By the C library's lists of stacks."""

    unjoined: int
    """Threads that have ended and that nobody has joined, nor detached."""
    unjoined_bytes: int
    """Of their stacks in RAM, of a core its bytes."""
    unjoined_virtual_bytes: int
    """Addresses of these stacks, with their guards."""
    cached: int
    """Stacks of other ended threads, which are kept for reuse (40 MiB of addresses at most, by default)."""
    cached_virtual_bytes: int
    starts: Sequence[ThreadStart]
    """What most of the unjoined ones ran."""


def find(target: Target, attribution: Attribution, bytes_of: Dict[str, int]) -> Optional[EndedThreads]:
    """None where the lists were not found. `bytes_of`: by name of an owner what it has."""
    lists = attribution.stacks.lists
    if lists is None:
        return None
    unjoined, cached = lists
    virtual = [sum(thread.stack[1] - thread.stack[0] for thread in threads) for threads in lists]
    ran = Counter(thread.start for thread in unjoined if thread.start is not None).most_common(MOST_STARTS)
    starts = [ThreadStart(target.function_name(address) or hex(address), count) for address, count in ran]
    return EndedThreads(len(unjoined), bytes_of.get(UNJOINED.name, 0), virtual[0], len(cached), virtual[1], starts)
