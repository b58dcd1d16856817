"""jemalloc's circular lists (ql.h): a head that points to the first element, each element to the next one."""

from typing import List, NamedTuple, Optional

from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc.context import Context

MAX_ELEMENTS = 1 << 20
"""More elements than any process has threads: only there to end a broken list."""


class Ring(NamedTuple):
    """What one list holds."""

    elements: List[int]
    """Addresses, the first first; those before the damage if there is some."""
    where: Optional[int]
    """Address of the link that does not hold; None if the list is whole."""
    what: Optional[str]


def read_ring(context: Context, first: int, next_offset: int) -> Ring:
    """Every element of the list that begins at `first` (0: empty); next_offset is qre_next's place in an element."""
    found: List[int] = []
    seen = set()
    element = first
    while element and len(found) < MAX_ELEMENTS and not context.budget.expired():
        if element in seen:
            return Ring(found, found[-1] + next_offset, "leads back into the middle of its list")
        found.append(element)
        seen.add(element)
        try:
            element = context.target.read_word(element + next_offset)
        except Unreadable as problem:
            return Ring(found[:-1], problem.address, "cannot be read")
        if not element:
            return Ring(found, found[-1] + next_offset, "is null in a circular list")
        if element == first:
            return Ring(found, None, None)
    return Ring(found, None, None) if not first else Ring(found, element, "is where the walk ended")
