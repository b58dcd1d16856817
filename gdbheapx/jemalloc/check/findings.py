"""Broken rules as they are collected: each place once, and whether an unfinished change may explain it."""

from bisect import bisect_right
from typing import Dict, FrozenSet, List, Optional, Sequence, Tuple

from gdbheapx.allocators.rules import INSIDE, LOCKED, MOST_BROKEN, BrokenRule
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.heap.arenas import Arena, threads_inside
from gdbheapx.jemalloc.plan import locks
from gdbheapx.model import Address
from gdbheapx.problems import Code

FATAL = (4, 6, 7, 8, 11)
"""Signals of a fault or of abort(): what a thread met inside jemalloc was wrong before."""


def is_changing(context: Context) -> bool:
    """A thread stood in jemalloc's own code, and not because it crashed there. Where the program contains jemalloc, its code does not
    tell."""
    if has_crashed(context) or context.jemalloc.module.is_executable:
        return False
    return bool(threads_inside(context).surely)


def has_crashed(context: Context) -> bool:
    """The process ended by a fault or by abort()."""
    return any(thread.signal in FATAL for thread in context.target.threads()[:1])


def locked(context: Context, arenas: Sequence[Arena]) -> FrozenSet[int]:
    """Indexes of arenas that a thread holds a lock of: what it was changing there is half done. A crash has stopped everything."""
    if has_crashed(context):
        return frozenset()
    threads = {thread.lwp for thread in context.target.threads()}
    return frozenset(arena.index for arena in arenas if any(lock.owner in threads for lock in locks.of_arena(context, arena)))


class Findings:
    """All of one heap."""

    def __init__(self, context: Context, arenas: Sequence[Arena]) -> None:
        size = context.types.size_bytes("arena_s")
        self._context, self._listed = context, arenas
        self._arenas = sorted((arena.address, arena.address + size, arena.index) for arena in arenas)
        self._starts = [span[0] for span in self._arenas]
        self._locked: List[FrozenSet[int]] = []
        self._found: Dict[Tuple[str, Optional[int]], BrokenRule] = {}
        self._is_changing = is_changing(context)

    @property
    def rows(self) -> List[BrokenRule]:
        """In the order found."""
        return list(self._found.values())

    def _arena_of(self, address: Optional[int]) -> Optional[int]:
        place = bisect_right(self._starts, address) - 1 if address is not None else -1
        return self._arenas[place][2] if place >= 0 and address is not None and address < self._arenas[place][1] else None

    def _evidence(self, arena: Optional[int]) -> Optional[str]:
        """What may explain a contradiction in this arena, or in one that nothing tells."""
        if self._is_changing:
            return INSIDE
        if not self._locked:
            self._locked.append(locked(self._context, self._listed))
        return LOCKED if arena in self._locked[0] or (arena is None and self._locked[0]) else None

    def add(self, code: Code, address: Optional[int], what: str, arena: Optional[int] = None, is_fixed: bool = False) -> None:
        """One more, unless it is there already. `is_fixed`: no step of jemalloc's own changes it."""
        key = (str(code), address)
        if key in self._found or len(self._found) >= MOST_BROKEN:
            return
        arena = arena if arena is not None else self._arena_of(address)
        self._found[key] = BrokenRule(
            allocator=self._context.jemalloc.id,
            arena=arena,
            code=code,
            address=Address(address) if address is not None else None,
            rule=str(code),
            abort=None,
            suspect=None,
            what=what,
            evidence=None if is_fixed else self._evidence(arena),
        )
