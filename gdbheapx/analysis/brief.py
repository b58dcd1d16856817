"""The head of `report`: what it comes to, in a dozen lines. `report --brief` is no more than that."""

from typing import NamedTuple, Optional, Sequence

from gdbheapx.analysis.overview import Overview
from gdbheapx.analysis.reachability.owners import LeakSuspect
from gdbheapx.analysis.split import SplitMemory, count_taken
from gdbheapx.model import AllocatorInfo, MemoryPart, StepAdvice
from gdbheapx.verdict import HELD_BY_PROGRAM, HeapVerdict

MOST_PARTS = 3
LEAST_PERCENT = 5
"""Of all memory: who keeps less explains nothing of it."""


class Brief(NamedTuple):
    """Members as in Overview, where it has them."""

    allocators: Sequence[AllocatorInfo]
    """Those that hold enough of the memory to be spoken of; all of them where none does."""
    memory: Optional[SplitMemory]
    largest: Sequence[MemoryPart]
    """The largest parts of the split."""
    verdict: HeapVerdict
    was_looked: bool
    """All blocks in use were looked at."""
    suspect: Optional[LeakSuspect]
    """Who keeps most of them; None also where nobody keeps a fifth."""
    next: Optional[StepAdvice]


def shorten_overview(overview: Overview) -> Brief:
    """Return the head of this overview."""
    steps = overview.next_steps or [StepAdvice(*step) for step in overview.next]  # an older snapshot has these alone
    parts = sorted(overview.split or (), key=lambda part: -count_taken(part))
    return Brief(
        allocators=[info for info in overview.allocators if info.id in overview.shown] or overview.allocators,
        memory=overview.memory,
        largest=parts[:MOST_PARTS],
        verdict=overview.verdict,
        was_looked=overview.inside is not None,
        suspect=overview.inside.suspect if overview.inside is not None else None,
        next=next((step for step in steps if step.command is not None), next(iter(steps), None)),
    )


def is_large(brief: Brief) -> bool:
    """Return True if the suspect keeps enough to be named in the head."""
    least = LEAST_PERCENT * brief.memory.total_bytes if brief.memory is not None else 0
    return brief.suspect is not None and 100 * brief.suspect.retained_bytes >= least


def may_have_suspect(brief: Brief) -> bool:
    """True if a look at all blocks, which there was not, would say who keeps most of the memory."""
    return not brief.was_looked and brief.verdict.code in HELD_BY_PROGRAM
