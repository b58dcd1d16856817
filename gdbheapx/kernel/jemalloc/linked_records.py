"""What the kernels take and give where they follow the heaps and rings that link jemalloc's extents."""

from typing import NamedTuple

IN_C = "NO_LINK LINKED_* LinkedList Linked"

NO_LINK = 0xFFFFFFFFFFFFFFFF
ANY = NO_LINK

LINKED_GOOD = 0
LINKED_UNREADABLE = 1
"""A link leads to what cannot be read, or is no address of an extent structure."""
LINKED_BACK = 2
"""A member's `prev` does not lead to the member that leads to it."""
LINKED_ALIEN = 3
"""A member says that it has another arena, state or size class."""
LINKED_FULL = 4
"""A slab without a free region, or without a used one."""
LINKED_CYCLE = 5
"""More members than there are extents."""


class LinkedList(NamedTuple):
    """One pairing heap (ph.h) or ring (ql.h) of extents."""

    head: int
    """The root or first member; 0 if there is none."""
    next_offset: int
    prev_offset: int
    child_offset: int
    """Of `lchild`; NO_LINK: it is a ring."""
    arena: int
    """What its members must say, and so the next two."""
    state: int
    szind: int
    """ANY: they may have any."""
    is_nonfull: bool
    """They are slabs with a free and a used region."""
    most: int
    """No more members than there can be."""


class Linked(NamedTuple):
    """What was found along one list, up to the first contradiction."""

    members: int
    bytes: int
    """The sizes of its extents."""
    problem: int
    """A LINKED_ number."""
    at: int
    """The member at which it contradicts, or the last one."""
    before: int
    """The member that leads to `at`; 0 for the first."""
