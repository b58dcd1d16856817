"""Broken rules as they are collected: each place once, and whether an unfinished change may explain it."""

from bisect import bisect_right
from typing import Dict, List, Optional, Sequence, Tuple

from gdbheapx.allocators.rules import INSIDE, MOST_BROKEN, BrokenRule
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.heap import moment
from gdbheapx.model import Address
from gdbheapx.problems import Code

FATAL = (4, 6, 7, 8, 11)
"""Signals of a fault or of abort(): what a thread met inside jemalloc was wrong before."""


def is_changing(context: Context) -> bool:
    """A thread stood in jemalloc's own code, and not because it crashed there. Where the program contains jemalloc, its code does not
    tell."""
    if any(thread.signal in FATAL for thread in context.target.threads()[:1]) or context.jemalloc.module.is_executable:
        return False
    return bool(moment.threads_inside(context).surely)


class Findings:
    """All of one heap."""

    def __init__(self, context: Context, arenas: Sequence[Tuple[int, int, int]]) -> None:
        """`arenas`: (address, end, index) of each arena_t, sorted."""
        self._context, self._arenas, self._starts = context, arenas, [one[0] for one in arenas]
        self._found: Dict[Tuple[str, Optional[int]], BrokenRule] = {}
        self._is_changing = is_changing(context)

    @property
    def rows(self) -> List[BrokenRule]:
        """In the order found."""
        return list(self._found.values())

    def _arena_of(self, address: Optional[int]) -> Optional[int]:
        place = bisect_right(self._starts, address) - 1 if address is not None else -1
        return self._arenas[place][2] if place >= 0 and address is not None and address < self._arenas[place][1] else None

    def add(self, code: Code, address: Optional[int], what: str, arena: Optional[int] = None, is_fixed: bool = False) -> None:
        """One more, unless it is there already. `is_fixed`: no step of jemalloc's own changes it."""
        key = (str(code), address)
        if key in self._found or len(self._found) >= MOST_BROKEN:
            return
        self._found[key] = BrokenRule(
            allocator=self._context.jemalloc.id,
            arena=arena if arena is not None else self._arena_of(address),
            code=code,
            address=Address(address) if address is not None else None,
            rule=str(code),
            abort=None,
            suspect=None,
            what=what,
            evidence=INSIDE if self._is_changing and not is_fixed else None,
        )
