"""What the two kernels take and give where they walk musl's groups (src/malloc/mallocng/meta.h); both fill exactly these records."""

from array import array
from typing import Annotated, List, NamedTuple, Sequence, Tuple

from gdbheapx.kernel.blocks.records import CLASS_FREE, CLASS_OVERHEAD, CLASS_USED

UNIT_BYTES = 16
TRAILER_BYTES = 4
"""IB: what the header of the next slot takes of this one's end."""
AREA_BYTES = 4096
MUSL_CLASSES = 48
OWN_CLASS = 63
"""A mapping of its own."""
SIZE_CLASSES = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 31, 36, 42, 50, 63, 72, 84, 102, 127),
    *(146, 170, 204, 255, 292, 340, 409, 511, 584, 682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095),
    *(4680, 5460, 6552, 8191),
)
"""Slots of each class, in units."""
HEAD_LABEL = 64
LABELS = HEAD_LABEL + 1
"""Sums are made by class, and those of the heads of groups apart."""

MUSL_USED, MUSL_FREE, MUSL_METADATA = range(3)
WORDS = ("used", "free", "metadata")
MUSL_CLASS_OF = (CLASS_USED, CLASS_FREE, CLASS_OVERHEAD)

PLACE_MAPPED, PLACE_NESTED, PLACE_DONATED, PLACE_LOST = range(4)
"""Of a group: in a mapping of its own; in a slot of another; in the unused end of an object's data; in a slot of a group that is broken."""

GROUP_GOOD = 0
GROUP_AREA_UNREADABLE = 1
"""The area of metas cannot be read; so those behind it on the list are not known."""
GROUP_AREA_CHECK = 2
"""It does not begin with the secret, or has another number of metas: the list ends here."""
GROUP_AREA_AGAIN = 3
"""The list of areas comes back to one that it had."""
GROUP_CLASS = 4
"""A size class that there is none of, or a group of it that cannot be so long."""
GROUP_MASKS = 5
"""A slot is free in both masks, or one is free that the group does not have."""
GROUP_PLACE = 6
"""It lies at no unit, or leaves the address space, or its mapping is too short or too long for its slots."""
GROUP_OVERLAP = 7
"""It lies across another group, or in a slot that is free."""
GROUP_OUTSIDE = 8
"""A group that was cut out of another's slot lies in none."""
GROUP_UNMAPPED = 9
"""It reaches beyond the memory of the process."""

GROUP_MAKING = 10
"""A thread is making it, and has not written yet what it is (alloc_group); or gives it up, and its slot is free already (free_group)."""

HEADER_INDEX = 16
"""The index of the slot in the header of a used block is another's. From blocks.slots.SLOT_OWN on."""
HEADER_OFFSET = 17
"""Its way back to the group's begin is wrong."""
HEADER_ZERO = 18
"""A byte that is always 0 is not: in the header, or behind the block, which something has written past."""
HEADER_SLACK = 19
"""More is left of the slot than it has."""
HEADER_STALE = 20
"""The slot is taken, and its header is that of a freed block, or of none: a thread is handing it out, or freeing it (malloc fills it in
after it has let the lock go, free() empties it before it says that the slot is free)."""
HEADER_USED = 21
"""The slot is free, and has the header of a block in use."""
TAG_NESTED, TAG_SHORT = 1, 2
"""Of a group's head in a run, beside the address of its meta: it lies in a slot of another group; words have 4 bytes."""
HEAD_BACK = 22
"""The first word of a group does not lead back to its meta."""
HEAD_MARK = 23
"""A group lies in a slot that is not marked as a group's."""

HEADER_HALF = 24
"""The slot says that its block begins further on, and no header there leads back; or a header has its offset alone, or the mark of a group
that is not there: malloc (enframe, alloc_group) has written a part of it, or it is damaged."""

MOST_MUSL_PROBLEMS = 1000


class MuslLayout(NamedTuple):
    """Where one copy keeps its list of areas."""

    word_bytes: int
    little_endian: bool
    secret: int
    first_area: int
    most_areas: int
    """What all memory could hold."""
    page_bytes: int


class MuslGroup(NamedTuple):
    """One group of slots."""

    address: int
    """struct group; its first slot is UNIT_BYTES behind."""
    meta: int
    bytes: int
    """All of it, the rest of its mapping included."""
    slot_bytes: int
    slots: int
    free_slots: int
    nested_slots: int
    """Slots that hold groups."""
    size_class: int
    place: int
    """PLACE_ number."""
    problem: int
    """GROUP_GOOD, or why its slots are not told."""
    is_freeable: bool


class MuslProblem(NamedTuple):
    """What is wrong with an area, a meta or a group."""

    code: int
    address: int
    meta: int
    """0 for an area."""


class MuslClass(NamedTuple):
    """Groups of one class, as far as they are good."""

    groups: int
    slots: int
    """But for those that hold groups."""
    free_slots: int
    slot_bytes: int
    """Of all these slots."""
    free_bytes: int
    """Of the free ones, without their trailers."""
    counted_slots: int
    """As usage_by_class has them: donated groups are not in it, and slots that hold groups are."""

    @property
    def used_slots(self) -> int:
        """With blocks in use."""
        return self.slots - self.free_slots

    @property
    def used_bytes(self) -> int:
        """What these blocks may be as large as."""
        return self.slot_bytes - TRAILER_BYTES * self.slots - self.free_bytes


class MuslHeld(NamedTuple):
    """Sums over groups that are good."""

    groups: int
    own_bytes: int
    """In mappings of their own, or donated."""
    rest_bytes: int
    """Beside slots: heads, ends of mappings, and what groups leave of the slots that they lie in."""
    donated_bytes: int
    lost_bytes: int
    """In slots of broken ones."""


class MuslSums(NamedTuple):
    """How a look at all groups ended."""

    ended: int
    areas: int
    groups: int
    runs: int
    held: int
    alone: int
    problems: int
    told: int


class Groups(NamedTuple):
    """All groups of one copy."""

    is_whole: bool
    """False: the budget expired."""
    areas: "Annotated[array[int], 'Q']"
    """Of metas, sorted."""
    held: "Annotated[array[int], 'Q']"
    """Begin and end of what good groups hold in mappings of their own or donated, those side by side as one."""
    alone: "Annotated[array[int], 'Q']"
    """The same of groups with one slot, which is in use, in a mapping."""
    classes: Sequence[MuslClass]
    """By class."""
    sums: MuslHeld
    problems: Sequence[MuslProblem]
    problem_count: int
    groups: "Annotated[array[int], 'Q']"
    """MuslGroup, row by row, by address; empty where no rows were asked for, as `runs`."""
    runs: "Annotated[array[int], 'Q']"
    """Of kernel.blocks.slots, of those that are good."""
    def ranges(self, name: str) -> List[Tuple[int, int]]:
        """`held` or `alone`, as (begin, end)."""
        numbers = getattr(self, name)
        return list(zip(numbers[::2], numbers[1::2]))

    def column(self, name: str) -> "array[int]":
        """One member of all groups."""
        return self.groups[MuslGroup._fields.index(name) :: len(MuslGroup._fields)]


def slot_units(size_class: int) -> int:
    """A slot of this class, in units; 0 for one of its own."""
    return SIZE_CLASSES[size_class] if size_class < MUSL_CLASSES else 0


def most_bytes(size_class: int) -> int:
    """The largest block of a class."""
    return slot_units(size_class) * UNIT_BYTES - TRAILER_BYTES
