"""One look at one target: what was found in it, what went wrong, how long it may take."""

from typing import List, Optional

from gdbheapx.budget import Budget
from gdbheapx.model import AllocatorInfo, Problem
from gdbheapx.target.base import Target


class Session:
    """Everything a command may ask for. Made anew for every command; nothing outlives it but what the target caches."""

    def __init__(self, target: Target, budget: Optional[Budget] = None, allocator_id: Optional[str] = None) -> None:
        self.target = target
        self.budget = budget or Budget()
        self.allocator_id = allocator_id
        self.problems = []  # type: List[Problem]
        self.partial = False

    def problem(self, where: Optional[str], what: str, hint: Optional[str] = None, partial: bool = True) -> None:
        """Record what could not be read or does not hold; partial unless it leaves the answer whole."""
        self.problems.append(Problem(where, what, hint))
        self.partial = self.partial or partial

    def allocators(self) -> List[AllocatorInfo]:
        """What the envelope lists; finds the allocators on first use."""
        return []

    def prepare(self) -> None:
        """Do now, before a live process is stopped, whatever does not need it stopped (symbols, types, addresses)."""
