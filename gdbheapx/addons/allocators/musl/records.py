"""musl's answers and the records that C and Python share, with the native walk over groups and slots."""

from array import array
from typing import Annotated, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.budget import Budget
from gdbheapx.common.columns import ADD, BYTES, IF_ANY, IF_KNOWN, PERCENT, TEXT, Column, hidden_column
from gdbheapx.common.model import AllocatorInfo, Claim, HistogramRow, TargetAddress
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.blocks.slots import SlotRun, SlotWalker
from gdbheapx.kernel.blocks.stream import CLASS_FREE, CLASS_OVERHEAD, CLASS_USED
from gdbheapx.kernel.common.library import Kernel, NativeRows, address_of, finish_job, flatten_record

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
MUSL_LABELS = HEAD_LABEL + 1
"""Sums are made by class, and those of the heads of groups apart."""

MUSL_USED, MUSL_FREE, MUSL_METADATA = range(3)
MUSL_WORDS = ("used", "free", "metadata")
MUSL_CLASS_OF = (CLASS_USED, CLASS_FREE, CLASS_OVERHEAD)

PLACE_MAPPED, PLACE_NESTED, PLACE_DONATED, PLACE_LOST = range(4)
"""Of a group: in a mapping of its own; in a slot of another; in the unused end of an object's data; in a slot of a group that is broken."""

GROUP_GOOD = 0
GROUP_AREA_UNREADABLE = 1
"""The area of metas cannot be read; so later ones on the list are unknown."""
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
"""A byte that is always 0 is not: in the header, or after the block, which something has written past."""
HEADER_SLACK = 19
"""More is left of the slot than it has."""
HEADER_STALE = 20
"""The slot is taken, and its header is that of a freed block, or of none: a thread is handing it out, or freeing it (malloc fills it in
after it has let the lock go, free() empties it before it says that the slot is free)."""
HEADER_USED = 21
"""The slot is free, and has the header of a block in use."""
TAG_NESTED, TAG_SHORT, TAG_BIG = 1, 2, 4
"""Of a group's head in a run, with the address of its meta: it lies in a slot of another group; words have 4 bytes."""
HEAD_BACK = 22
"""The first word of a group does not lead back to its meta."""
HEAD_MARK = 23
"""A group lies in a slot that is not marked as a group's."""

HEADER_HALF = 24
"""The slot says that its block begins further on, and no header there leads back; or a header has its offset alone, or the mark of a group
that is not there: malloc (enframe, alloc_group) has written a part of it, or it is damaged."""

MOST_MUSL_PROBLEMS = 1000


class MuslLayout(NamedTuple):
    """Context of one mallocng for the native walk."""

    word_bytes: int
    little_endian: bool
    secret: int
    first_area: int
    most_areas: int
    """What all memory could hold."""
    page_bytes: int


class MuslGroup(NamedTuple):
    """A group of slots."""

    address: int
    """struct group; its first slot is UNIT_BYTES after."""
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
    """GROUP_GOOD, or why its slots are not listed."""
    is_freeable: bool


class MuslProblem(NamedTuple):
    """Damage of an area, a meta or a group."""

    code: int
    address: int
    meta: int
    """0 for an area."""


class MuslClass(NamedTuple):
    """Groups of one class, as far as they are good."""

    groups: int
    slots: int
    """Without those that hold groups."""
    free_slots: int
    slot_bytes: int
    """Of all these slots."""
    free_bytes: int
    """Of the free ones, without their trailers."""
    counted_slots: int
    """As usage_by_class has them: donated groups are not in it, and slots that hold groups are."""

    @property
    def used_slots(self) -> int:
        """Number of slots with blocks in use."""
        return self.slots - self.free_slots

    @property
    def used_bytes(self) -> int:
        """Most bytes that these blocks may have."""
        return self.slot_bytes - TRAILER_BYTES * self.slots - self.free_bytes


class MuslHeld(NamedTuple):
    """Sums over groups that are good."""

    groups: int
    own_bytes: int
    """In mappings of their own, or donated."""
    rest_bytes: int
    """Outside slots: heads, ends of mappings, and what groups leave of the slots that they lie in."""
    donated_bytes: int
    lost_bytes: int
    """In slots of broken ones."""


class MuslSums(NamedTuple):
    """Sums over all groups, and whether the walk reached its end."""

    ended: int
    areas: int
    groups: int
    runs: int
    held: int
    alone: int
    problems: int
    told: int


class MuslGroups(NamedTuple):
    """The groups of one mallocng."""

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
        """Return one member of all groups."""
        return self.groups[MuslGroup._fields.index(name) :: len(MuslGroup._fields)]


def count_slot_units(size_class: int) -> int:
    """A slot of this class, in units; 0 for one of its own."""
    return SIZE_CLASSES[size_class] if size_class < MUSL_CLASSES else 0


def find_most_bytes(size_class: int) -> int:
    """The largest block of a class."""
    return count_slot_units(size_class) * UNIT_BYTES - TRAILER_BYTES


def read_groups(
    kernel: Kernel, source: BulkSource, layout: MuslLayout, memory: "array[int]", with_rows: bool, budget: Budget
) -> MuslGroups:
    """Walk areas, metas and groups; `with_rows`: return their slots as runs, too. Damage is listed and left out. `memory`: array('Q') of
    begin and end of each range of the process, sorted.
    """
    library, opened, numbers, counts = kernel.library, kernel.open(source), flatten_record(layout), NativeRows(MuslSums, 1)
    arguments = (opened.handle, address_of(numbers), address_of(memory), len(memory) // 2, with_rows)
    with finish_job(library, "musl_groups", opened, budget, *arguments) as job:
        library.heapx_musl_groups_sums(job, address_of(counts.numbers))
        (known,) = counts.records(1)
        areas, held, alone = (_make_array(count) for count in (known.areas, 2 * known.held, 2 * known.alone))
        classes, sums, problems = NativeRows(MuslClass, HEAD_LABEL), NativeRows(MuslHeld, 1), NativeRows(MuslProblem, MOST_MUSL_PROBLEMS)
        library.heapx_musl_groups_result(job, *map(address_of, (areas, held, alone, classes.numbers, sums.numbers, problems.numbers)))
        rows = _make_array(len(MuslGroup._fields) * known.groups), _make_array(len(SlotRun._fields) * known.runs)
        library.heapx_musl_groups_rows(job, *map(address_of, rows))
    told = problems.records(known.told)
    return MuslGroups(bool(known.ended), areas, held, alone, classes.records(HEAD_LABEL), sums.records(1)[0], told, known.problems, *rows)


def _make_array(count: int) -> "array[int]":
    return array("Q", (0,)) * count


def make_musl_slot_walker(kernel: Kernel, source: BulkSource, runs: Sequence[int], budget: Budget) -> SlotWalker:
    """Over the slots of these groups."""
    assert isinstance(runs, array)
    return SlotWalker(kernel, source, runs, MUSL_CLASS_OF, MUSL_LABELS, budget, reader="musl")


class MuslArena(NamedTuple):
    """Totals of one mallocng. system = used + free + overhead + unparsed, to the byte."""

    allocator: str
    index: Annotated[int, Column("arena", TEXT)]  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """Always 0."""
    address: TargetAddress
    """Of __malloc_context."""
    groups: Annotated[int, Column("groups", sums=ADD, goes=3)]
    """Of slots; those in slots of others included."""
    system_bytes: Annotated[Optional[int], Column("system", BYTES, ADD)]
    """Mappings of groups, areas of metas, and what the dynamic linker gave of the ends of objects' data; None where part of it is not
    known."""
    used_blocks: Annotated[Optional[int], Column("blocks", sums=ADD, goes=2)]
    used_bytes: Annotated[Optional[int], Column("used", BYTES, ADD)]
    """What blocks in use may be as large as: their slots, less 4 bytes each. The requested size is in each block's header:
    MuslBin and the listing of blocks have it."""
    free_slots: Annotated[Optional[int], hidden_column(ADD)]
    free_bytes: Annotated[Optional[int], Column("free", BYTES, ADD)]
    overhead_bytes: Annotated[Optional[int], Column("overhead", BYTES, ADD)]
    """Metas, 4 bytes of each slot, heads of groups, and what groups do not fill of their mappings."""
    unparsed_bytes: Annotated[Optional[int], Column("unparsed", BYTES, ADD, IF_ANY)]
    """Groups that are damaged; 0 unless there are some."""
    donated_bytes: Annotated[Optional[int], hidden_column(ADD)]
    """In the unused ends of objects' data; part of system."""
    free_percent: Annotated[Optional[float], Column("free %", PERCENT, goes=1)]
    """100 x free / system, one decimal."""
    resident_bytes: Annotated[Optional[int], Column("resident", BYTES, ADD, IF_KNOWN)]
    """Of system; None on a core."""
    reclaimable_bytes: Annotated[int, hidden_column(ADD)] = 0
    """Nothing makes musl return memory."""

    @property
    def cached_bytes(self) -> int:
        """Threads cache nothing."""
        return 0

    @property
    def held_bytes(self) -> int:
        """Bytes taken from the kernel; where that is unknown, the known parts of it."""
        if self.system_bytes is not None:
            return self.system_bytes
        return sum(part or 0 for part in (self.used_bytes, self.free_bytes, self.overhead_bytes))


class MuslBin(NamedTuple):
    """A size class that has groups."""

    allocator: str
    size_class: Annotated[int, Column("class")]
    """Place in size_classes; 63: blocks with a mapping of their own."""
    min_size_bytes: Annotated[Optional[int], Column("from", BYTES, goes=2)]
    """The smallest request that goes here; for a smaller one no slot of its own class was free."""
    max_size_bytes: Annotated[Optional[int], Column("to", BYTES)]
    """The largest; None for class 63."""
    groups: Annotated[int, Column("groups")]
    slots: Annotated[int, Column("slots", goes=3)]
    used_slots: Annotated[int, Column("used")]
    used_bytes: Annotated[int, Column("used bytes", BYTES)]
    """What was asked for."""
    free_slots: Annotated[int, Column("free")]
    free_bytes: Annotated[int, Column("free bytes", BYTES)]
    slack_bytes: Annotated[int, Column("slack", BYTES, goes=1)]
    """What blocks do not fill of their slots, headers included."""


class MuslFacts(NamedTuple):
    """See allocators.records.Facts; what has a default is its own."""

    info: AllocatorInfo
    arenas: Sequence[MuslArena]
    totals: Mapping[str, Optional[int]]
    sizes: Sequence[HistogramRow]
    claims: Sequence[Claim]
    is_whole: bool = True
    """Everything could be read."""
    has_stopped: bool = False
    """A core of a process that ended by musl's own check."""
    own_mappings: Sequence[Tuple[int, int]] = ()
    """Of blocks that have one: sorted, and all in use."""
