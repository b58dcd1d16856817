"""The ring of arenas: main_arena first, then the newest thread arena to the oldest (malloc_info's order)."""

from typing import List, NamedTuple, Optional

from gdbheapx.budget import Budget
from gdbheapx.errors import Unreadable
from gdbheapx.glibc import codes
from gdbheapx.glibc.layouts import MALLOC_STATE
from gdbheapx.glibc.located import Glibc
from gdbheapx.inferior.base import Target
from gdbheapx.layout.view import View, read_view
from gdbheapx.problems import Report

NONCONTIGUOUS = 2
"""malloc_state.flags: the main arena has pieces that do not come from brk."""

MAX_ARENAS = 65536
"""Far above 8 per core: only there to end a broken ring."""

BETWEEN_CLOCKS = 128
"""Arenas or heaps that are read before it is asked whether time is up."""


class Arena(NamedTuple):
    """One malloc_state as it was read."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    address: int
    is_main: bool
    state: View

    @property
    def top(self) -> int:
        """Address of the top chunk; 0 if the arena was never used (top is 0, or points into the struct itself: initial_top)."""
        top = self.state["top"]
        return 0 if self.address <= top < self.address + self.state.size_bytes else top

    @property
    def is_contiguous(self) -> bool:
        """All of it came from brk."""
        return not self.state["flags"] & NONCONTIGUOUS

    @property
    def title(self) -> str:
        """For messages."""
        return "main_arena" if self.is_main else "arena %d" % self.index


def read_ring(target: Target, glibc: Glibc, report: Report, budget: Optional[Budget] = None) -> List[Arena]:
    """All arenas, following `next` from main_arena until it comes back; stops with a report where the ring is broken, or where time runs
    out.

    Arenas never disappear and new ones are linked right behind main_arena (arena.c: _int_new_arena).
    """
    found: List[Arena] = []
    seen = set()
    address = glibc.main_arena.address
    while address not in seen and len(found) < MAX_ARENAS:
        seen.add(address)
        if budget is not None and len(seen) % BETWEEN_CLOCKS == 0 and budget.expired():
            report(
                codes.RING_CUT, None, "the walk of the ring of arenas did not finish: %s" % budget.reason, "some arenas are missing here"
            )
            return found
        try:
            state = read_view(target, glibc.types, MALLOC_STATE.name, address)
        except Unreadable as problem:
            report(
                codes.RING_UNREADABLE,
                problem.address,
                "the ring of arenas leads to 0x%x, which cannot be read" % address,
                "the arenas after it are missing here",
            )
            return found
        if found and not _follows_heap_info(target, glibc, address):
            report(
                codes.RING_BROKEN,
                address,
                "the ring of arenas leads to 0x%x, which is not a malloc_state" % address,
                "the arenas after it are missing here",
            )
            return found
        found.append(Arena(len(found), address, address == glibc.main_arena.address, state))
        address = state["next"]
    if address != glibc.main_arena.address:
        report(codes.RING_OPEN, found[-1].address, "the ring of arenas does not lead back to main_arena", "arenas may be missing here")
    return found


def _follows_heap_info(target: Target, glibc: Glibc, address: int) -> bool:
    """A thread arena stands directly behind the heap_info of its first heap, whose ar_ptr points to it (arena.c: _int_new_arena)."""
    heap = address - glibc.heap_info.size_bytes
    try:
        return address % glibc.geometry.word_bytes == 0 and target.read_word(heap + glibc.heap_info.members["ar_ptr"].offset) == address
    except Unreadable:
        return False
