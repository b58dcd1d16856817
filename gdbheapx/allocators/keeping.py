"""Free memory that an allocator cannot return: the rule that keeps it, and its size by the allocator's own figures."""

from typing import Mapping, NamedTuple, Optional, Sequence

from gdbheapx.columns import add_values
from gdbheapx.kernel.blocks.pages import APART, EDGE, HOLE, RESERVE, ROOM, PinShape

PAGE = "page"
"""On pages that are shared with blocks in use: the ends of free memory that is otherwise returned."""
SMALL = "hole"
"""Free memory too small to hold a page that could be returned."""
FAST_LIST = "fastbin"
"""The same, on lists from which blocks are not merged until memory is short or returned."""
THREAD_TOP = "thread-top"
"""The end of a thread arena, which nothing returns but free() itself."""
MAIN_TOP = "main-top"
"""What is left of the main arena's end when the rest is returned."""
FOREIGN_BREAK = "foreign-break"
"""The main arena's end, which cannot be returned: the break is not where it ends, other code moved it."""
ENDED_ARENA = "ended-arena"
"""In an arena to which no thread is attached any more."""
SLAB = "slab"
"""Free regions of slabs that have regions in use: only a slab that is wholly free is returned."""
SPAN = "span"
"""Free objects of spans that have objects in use or in caches: only a span that is wholly free is returned."""
GROUP = "group"
"""Free slots of groups that have slots in use: a group is returned with its last block."""

USUAL: Mapping[int, str] = {EDGE: PAGE, HOLE: SMALL, RESERVE: "end", ROOM: SLAB, APART: ENDED_ARENA}
"""By situation."""


class ArenaKeeps(NamedTuple):
    """Free memory that stays in one arena."""

    arena: int
    kept_bytes: Optional[int]
    """Free bytes that stay, by the figures of `arenas`; None where these are not known."""
    reserve: Optional[str] = None
    """Where-word of its end; None: as in Keeping.words."""
    is_end_pinned: bool = True
    """By the block below. False: something else keeps the end, or nothing does."""
    returned_end_bytes: int = 0
    """Of its end, with free blocks below, what is returned."""


class Term(NamedTuple):
    """A part of the sum that gives what is kept, by the figures of `arenas`."""

    name: str
    bytes: int
    is_taken_off: bool = False


class Keeping(NamedTuple):
    """Free memory that stays in one heap, and by which rules."""

    shape: PinShape
    arenas: Sequence[ArenaKeeps] = ()
    terms: Sequence[Term] = ()
    """Empty: there are no figures to compare with."""
    words: Mapping[int, str] = USUAL
    """Where-words by situation."""
    returnable_bytes: Optional[int] = None
    """Free memory that can be returned, beside what is kept; None where it is not known."""

    @property
    def kept_bytes(self) -> Optional[int]:
        """Bytes that stay by the figures of `arenas`; None if unknown for an arena."""
        return add_values(arena.kept_bytes for arena in self.arenas) if self.terms else None
