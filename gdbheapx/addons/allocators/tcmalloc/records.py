"""tcmalloc answers with these: records only. JSON's keys are the fields' names."""

from typing import Annotated, Mapping, NamedTuple, Optional, Sequence

from gdbheapx.columns import ADD, BYTES, IF_KNOWN, TEXT, Column, hidden
from gdbheapx.model import Address, AllocatorInfo, Claim, HistogramRow


class TcArena(NamedTuple):
    """All of one tcmalloc, which has one page heap. system = used + central + transfer + cached + tails + free + returned, to the byte."""

    allocator: str
    index: Annotated[int, Column("arena", TEXT)]  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """Always 0."""
    address: Address
    """Of the page map's root."""
    spans: Annotated[int, Column("spans", sums=ADD, goes=6)]
    system_bytes: Annotated[int, Column("system", BYTES, ADD)]
    """Of all spans, those included that were returned to the OS."""
    used_blocks: Annotated[Optional[int], Column("blocks", sums=ADD, goes=5)]
    used_bytes: Annotated[Optional[int], Column("used", BYTES, ADD)]
    """By size class: what was asked for may be less. Where thread caches are unknown they are in here."""
    central_bytes: Annotated[Optional[int], Column("central", BYTES, ADD)]
    """Free objects of spans that have others in use or in caches."""
    transfer_bytes: Annotated[Optional[int], Column("transfer", BYTES, ADD)]
    """Free objects on their way between threads."""
    cached_bytes: Annotated[Optional[int], Column("cached", BYTES, ADD)]
    """In thread caches; None where these were not found."""
    tail_bytes: Annotated[int, Column("tails", BYTES, ADD, goes=4)]
    """Ends of spans that hold no whole object."""
    free_bytes: Annotated[int, Column("free spans", BYTES, ADD)]
    """Unused pages that the OS has not got back."""
    free_resident_bytes: Annotated[Optional[int], Column("free, resident", BYTES, ADD, IF_KNOWN)]
    free_exclusive_bytes: Annotated[Optional[int], hidden(ADD)]
    """The part of it that the machine gets back: not shared with a forked process, and no part of a huge page in use."""
    returned_bytes: Annotated[int, Column("returned", BYTES, ADD, goes=2)]
    """Address space that is kept without memory."""
    metadata_bytes: Annotated[int, Column("metadata", BYTES, ADD, goes=3)]
    """Address space of spans, leaves of the page map and thread caches; not part of system, and mostly never touched."""

    @property
    def held_bytes(self) -> int:
        """What it has from the kernel, its metadata included."""
        return self.system_bytes - self.returned_bytes + self.metadata_bytes


class TcBin(NamedTuple):
    """One size class that has spans; class 0 is blocks with a span of their own."""

    allocator: str
    size_class: Annotated[int, Column("class")]
    size_bytes: Annotated[Optional[int], Column("size", BYTES)]
    """Of an object; None for class 0."""
    spans: Annotated[int, Column("spans")]
    objects: Annotated[int, Column("objects", goes=1)]
    used_objects: Annotated[Optional[int], Column("used")]
    used_bytes: Annotated[Optional[int], Column("used bytes", BYTES)]
    central_objects: Annotated[int, Column("central")]
    central_bytes: Annotated[int, Column("central bytes", BYTES)]
    transfer_objects: Annotated[int, Column("transfer", goes=3)]
    transfer_bytes: Annotated[int, Column("transfer bytes", BYTES, goes=2)]
    cached_objects: Annotated[Optional[int], Column("cached", goes=3)]
    cached_bytes: Annotated[Optional[int], Column("cached bytes", BYTES, goes=2)]


class TcFacts(NamedTuple):
    """See allocators.records.Facts; what has a default is its own."""

    info: AllocatorInfo
    arenas: Sequence[TcArena]
    totals: Mapping[str, Optional[int]]
    sizes: Sequence[HistogramRow]
    claims: Sequence[Claim]
    is_whole: bool = True
    """Everything could be read."""
    release_rate: Optional[str] = None
    """TCMALLOC_RELEASE_RATE of the process's environment; None: not set, or not known."""
    is_aggressive: bool = False
    """TCMALLOC_AGGRESSIVE_DECOMMIT is in force."""
