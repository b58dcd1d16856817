"""What the two kernels take and give where they follow mimalloc's free lists; both fill exactly these records."""

from array import array
from typing import Annotated, NamedTuple, Sequence

from gdbheapx.kernel.blocks.records import CLASS_CACHED, CLASS_FREE, CLASS_OVERHEAD, CLASS_RESERVE, CLASS_RETURNED, CLASS_USED

MI_USED, MI_FREE, MI_REMOTE, MI_RESERVE, MI_SPAN, MI_RETURNED, MI_METADATA = range(7)
"""MI_REMOTE: freed by another thread, and not collected by the page's owner."""
WORDS = ("used", "free", "remote-free", "reserve", "span", "returned", "metadata")
PAD_BYTES = 8
"""Behind each block of a build that pads them."""
PADDING = (PAD_BYTES, PAD_BYTES, PAD_BYTES, 0, 0, 0, 0)
"""By kind: what a block has beyond its usable bytes there."""
MI_CLASS_OF = (CLASS_USED, CLASS_FREE, CLASS_CACHED, CLASS_RESERVE, CLASS_FREE, CLASS_RETURNED, CLASS_OVERHEAD)

LIST_GOOD = 0
LIST_STRAY = 1
"""A member is no block of the page, or, of a list of all pages, of none."""
LIST_LONG = 2
"""More members than there are blocks: it comes back to one that it had."""
LIST_UNREADABLE = 3
LIST_KIND_BITS = 3
"""Blocks begin at multiples of 8."""


class FreeList(NamedTuple):
    """One list of free blocks, linked by their first words."""

    head: int
    """0: it is empty."""
    page: int
    """Place in the pages; their number for a list whose members lie in any of them."""
    kind: int
    """MI_ number of its members, below 1 << LIST_KIND_BITS."""
    null: int
    """What a link to nothing is, once it is decoded: 0, or in builds that encode lists the address of the page or heap."""
    is_encoded: bool
    key: int
    turn: int
    """The two keys."""


class ListPage(NamedTuple):
    """The blocks of one page; pages are given by address, without overlap."""

    start: int
    block_bytes: int
    blocks: int
    """That were ever handed out."""


class ListEnd(NamedTuple):
    """How far a list was followed."""

    members: int
    problem: int
    at: int
    """The member that cannot be, or be read."""


class FreeBlocks(NamedTuple):
    """All members of all lists."""

    is_whole: bool
    """False: the budget expired; lists from the first without an end on were not followed."""
    addresses: "Annotated[array[int], 'Q']"
    """Sorted."""
    kinds: "Annotated[array[int], 'B']"
    ends: Sequence[ListEnd]
    """Of each list that was followed."""
    shared: "Annotated[array[int], 'Q']"
    """By page: members of lists of all pages."""
    twice: int
    """Members that are on lists more than once."""
