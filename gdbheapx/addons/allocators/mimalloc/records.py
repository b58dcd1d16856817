"""mimalloc's answers: records only. JSON's keys are the fields' names."""

from typing import Annotated, Mapping, NamedTuple, Optional, Sequence

from gdbheapx.columns import ADD, BYTES, IF_ANY, IF_KNOWN, TEXT, Column, hidden
from gdbheapx.model import AllocatorInfo, Claim, HistogramRow
from gdbheapx.ranges import Range

THREAD, ABANDONED, SHARED = "thread", "abandoned", "shared"
"""Whose an arena is: a thread's; pages that no thread owns, as theirs has ended or, in release 3, they were full; what all share."""


class MimallocArena(NamedTuple):
    """What one thread owns. held = used + free + remote-free + reserve + span + overhead + unparsed, to the byte."""

    allocator: str
    index: Annotated[int, Column("arena", TEXT)]  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    owner: Annotated[str, Column("owner", TEXT)]
    """`thread`, `abandoned` or `shared`."""
    lwp: Annotated[Optional[int], Column("thread", TEXT)]
    """None where it has none, or its thread could not be told."""
    name: Annotated[Optional[str], Column("name", TEXT, goes=2)]
    pages: Annotated[int, Column("pages", sums=ADD, goes=4)]
    held_bytes: Annotated[int, Column("held", BYTES, ADD)]
    """Pages, metadata, and free slices that were not returned to the OS yet."""
    used_blocks: Annotated[int, Column("blocks", sums=ADD, goes=3)]
    used_bytes: Annotated[int, Column("used", BYTES, ADD)]
    """Blocks as large as they are, not as was asked for."""
    free_blocks: Annotated[int, hidden(ADD)]
    free_bytes: Annotated[int, Column("free", BYTES, ADD)]
    remote_free_blocks: Annotated[int, hidden(ADD)]
    remote_free_bytes: Annotated[int, Column("freed by others", BYTES, ADD)]
    """Freed by other threads, and not collected by the owner: neither it nor the OS gets it before."""
    reserve_bytes: Annotated[int, Column("never used", BYTES, ADD, goes=1)]
    """Room of pages for blocks that were never handed out."""
    span_bytes: Annotated[int, Column("free spans", BYTES, ADD)]
    """Slices without a page that were used and wait to be returned to the OS."""
    overhead_bytes: Annotated[int, Column("overhead", BYTES, ADD, goes=5)]
    """Headers of segments and arenas, and what blocks leave of their pages."""
    unparsed_bytes: Annotated[int, Column("unparsed", BYTES, ADD, IF_ANY)]
    """Pages that are damaged; 0 unless there are some."""
    uncollected_pages: Annotated[int, hidden(ADD)]
    """Pages whose blocks are all free, some of them by other threads: they stay until the owner collects."""
    uncollected_bytes: Annotated[int, Column("whole pages of these", BYTES, ADD, IF_ANY, goes=6)]
    """Bytes of these pages."""
    empty_bytes: Annotated[int, hidden(ADD)]
    """Pages without a block in use that the owner keeps for the next allocations of their size."""
    collectable_bytes: Annotated[int, hidden(ADD)]
    """What mi_collect(true) would return to the OS if this thread called it: the pages of the last two figures, and
    free spans. 0 where no thread owns it."""
    collectable_resident_bytes: Annotated[Optional[int], hidden(ADD)]
    """What of it is in RAM; None on a core."""
    unowned_collectable_bytes: Annotated[int, hidden(ADD)]
    """What one call by any thread would return beside that: in release 3 free spans of arenas, in release 2 free spans and pages without a
    block in use of threads that have ended. 0 in rows of threads, and in release 1."""
    unowned_collectable_resident_bytes: Annotated[Optional[int], hidden(ADD)]
    """What of it is in RAM; None on a core."""
    returned_bytes: Annotated[int, hidden(ADD)]
    """Slices that were returned to the OS or never used; no part of held."""
    returned_resident_bytes: Annotated[Optional[int], Column("returned, resident", BYTES, ADD, IF_ANY)]
    """What of them is in RAM: given to MADV_FREE, so that the kernel takes it when it needs memory, or parts of huge pages; None on a
    core."""
    returned_huge_bytes: Annotated[Optional[int], hidden(ADD)]
    """Parts of huge pages among them; None on a core, and where the kernel does not tell."""
    resident_bytes: Annotated[Optional[int], Column("resident", BYTES, ADD, IF_KNOWN)]
    """Of held; None on a core."""


class MimallocBin(NamedTuple):
    """One block size that has pages."""

    allocator: str
    size_bytes: Annotated[int, Column("block size", BYTES)]
    pages: Annotated[int, Column("pages")]
    page_bytes: Annotated[int, Column("page bytes", BYTES, goes=3)]
    """Of all these pages."""
    used_blocks: Annotated[int, Column("used")]
    used_bytes: Annotated[int, Column("used bytes", BYTES)]
    free_blocks: Annotated[int, Column("free")]
    free_bytes: Annotated[int, Column("free bytes", BYTES)]
    remote_free_blocks: Annotated[int, Column("freed by others")]
    remote_free_bytes: Annotated[int, Column("their bytes", BYTES, goes=1)]
    reserve_bytes: Annotated[int, Column("never used", BYTES, goes=2)]


class Delay(NamedTuple):
    """The option that says when free pages are returned."""

    name: str
    """As the release calls it."""
    ms: int
    """-1: never."""


class MimallocFacts(NamedTuple):
    """See allocators.records.Facts; what has a default is its own."""

    info: AllocatorInfo
    arenas: Sequence[MimallocArena]
    totals: Mapping[str, Optional[int]]
    sizes: Sequence[HistogramRow]
    claims: Sequence[Claim]
    is_whole: bool = True
    """Everything could be read."""
    has_ended: bool = False
    """Pages that no thread owns are those of threads that have ended."""
    returned: Sequence[Range] = ()
    """What returned_bytes are, as ascending ranges."""
    delay: Optional[Delay] = None
    """When free pages are returned; None where the options cannot be read."""
    is_reset: Optional[bool] = None
    """They are given to MADV_FREE; None where the options cannot be read."""
