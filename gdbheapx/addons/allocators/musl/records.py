"""musl's malloc answers with these: records only. JSON's keys are the fields' names."""

from typing import Annotated, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.columns import ADD, BYTES, IF_ANY, IF_KNOWN, PERCENT, TEXT, Column, hidden
from gdbheapx.model import Address, AllocatorInfo, Claim, HistogramRow


class MuslArena(NamedTuple):
    """All of one musl malloc. system = used + free + overhead + unparsed, to the byte."""

    allocator: str
    index: Annotated[int, Column("arena", TEXT)]  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """Always 0."""
    address: Address
    """Of __malloc_context."""
    groups: Annotated[int, Column("groups", sums=ADD, goes=3)]
    """Of slots; those in slots of others included."""
    system_bytes: Annotated[Optional[int], Column("system", BYTES, ADD)]
    """Mappings of groups, areas of metas, and what the dynamic linker gave of the ends of objects' data; None where part of it is not
    known."""
    used_blocks: Annotated[Optional[int], Column("blocks", sums=ADD, goes=2)]
    used_bytes: Annotated[Optional[int], Column("used", BYTES, ADD)]
    """What blocks in use may be as large as: their slots, but for 4 bytes of each. What was asked for stands in each block's header:
    MuslBin and the listing of blocks have it."""
    free_slots: Annotated[Optional[int], hidden(ADD)]
    free_bytes: Annotated[Optional[int], Column("free", BYTES, ADD)]
    overhead_bytes: Annotated[Optional[int], Column("overhead", BYTES, ADD)]
    """Metas, 4 bytes of each slot, heads of groups, and what groups do not fill of their mappings."""
    unparsed_bytes: Annotated[Optional[int], Column("unparsed", BYTES, ADD, IF_ANY)]
    """Groups that are damaged; 0 unless there are some."""
    donated_bytes: Annotated[Optional[int], hidden(ADD)]
    """In the unused ends of objects' data; part of system."""
    free_percent: Annotated[Optional[float], Column("free %", PERCENT, goes=1)]
    """100 x free / system, one decimal."""
    resident_bytes: Annotated[Optional[int], Column("resident", BYTES, ADD, IF_KNOWN)]
    """Of system; None on a core."""
    reclaimable_bytes: Annotated[int, hidden(ADD)] = 0
    """Nothing makes musl return memory."""

    @property
    def cached_bytes(self) -> int:
        """Threads cache nothing."""
        return 0

    @property
    def held_bytes(self) -> int:
        """What it took from the kernel; where that is not known, what is known to lie in it."""
        if self.system_bytes is not None:
            return self.system_bytes
        return sum(part or 0 for part in (self.used_bytes, self.free_bytes, self.overhead_bytes))


class MuslBin(NamedTuple):
    """One size class that has groups."""

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
