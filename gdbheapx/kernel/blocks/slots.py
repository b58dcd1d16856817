"""Slots of equal size, for every allocator that cuts its memory into them: what the walk over them takes and gives (slot_walker.py).

An allocator says where its slots are (SlotRun) and which of them are free: by a mask in the run, by a sorted list of addresses (Frees), or
by both. What is left is in use. One whose blocks do not fill their slots reads these itself, by a `slot_reader` (slots.h) in C, and gives
the names of the two functions that pass it on.
"""

from array import array
from typing import NamedTuple, Sequence

SLOT_PAUSED = 0
SLOT_READ = 1
SLOT_UNREADABLE = 2
"""What tells the block in a used slot cannot be read, or tells one that leaves the slot."""
SLOT_STRAY = 3
"""An address that is on a list of free ones begins no slot."""
SLOT_TWICE = 4
"""It is on lists more than once."""
SLOT_OWN = 16
"""From here on an allocator's own."""
SLOT_KINDS = 64
MOST_SLOT_PROBLEMS = 1000
"""That are told one by one; all are counted."""
MASK_SLOTS = 64


class SlotRun(NamedTuple):
    """Slots side by side. Runs are given in the order of addresses, without overlap: where slots of one run lie in a slot of another, that
    one is given as what lies before it, the slot itself, and what lies behind it."""

    start: int
    slot_bytes: int
    slots: int
    usable_bytes: int
    """Of a slot's bytes."""
    arena: int
    """Index, or NO_ARENA."""
    label: int
    """What sums are made by, such as a size class."""
    kind: int
    """Of slots that are not free: the allocator's own number for the status."""
    free_kind: int
    """Of those that are free by the mask."""
    free_mask: int
    """Bit i: slot i is free. Slots from MASK_SLOTS on have none."""
    base: int
    """What the allocator's own reader must know besides, such as where a header lies; told with each problem."""
    is_read: bool
    """Slots are looked into by the allocator's own reader, if it has one."""
    tag: int
    """One more number for it."""


class Frees(NamedTuple):
    """Slots that are free by the allocator's lists."""

    addresses: "array[int]" = array("Q")
    """array('Q'): where they begin, sorted."""
    kinds: "array[int]" = array("B")
    """array('B'): the status of each."""


NO_FREES = Frees()


class SlotTally(NamedTuple):
    """Sums of the slots with one label."""

    used_slots: int
    free_slots: int
    """By the mask."""
    listed_slots: int
    """By a list."""
    used_bytes: int
    """What the program may use of used slots."""
    free_bytes: int
    """The same of all that are free, which count as whole slots."""
    slot_bytes: int
    """All slots, whole."""
    broken_slots: int
    """Slots about which what lies in them contradicts the rest: those in use count as whole slots, unless the block is known."""


class SlotProblem(NamedTuple):
    """Contradiction of one slot, or of one address of a list."""

    address: int
    base: int
    """SlotRun.base; 0 of an address that is in no slot."""
    code: int
    """A SLOT_ number, or the allocator's own."""


class SlotSums(NamedTuple):
    """End of a reading of all slots."""

    ended: int
    at: int
    problems: int
    told: int
    strays: int


class SlotTallies(NamedTuple):
    """Counts of all slots."""

    is_whole: bool
    """False: the budget expired before the slot at `at`."""
    at: int
    tallies: Sequence[SlotTally]
    """By label."""
    problems: Sequence[SlotProblem]
    problem_count: int
    strays: int
    """Addresses of the list that are no slot, or one again."""


class SlotReader(NamedTuple):
    """An allocator's own way to read used slots."""

    blocks: str
    """The functions of the C kernel, which take what heapx_slot_blocks and heapx_slot_tally_new take."""
    tally: str
    prototypes: str
