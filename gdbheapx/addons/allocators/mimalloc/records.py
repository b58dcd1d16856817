"""mimalloc's answers and the records that C and Python share, with the native follower of its free lists."""

from array import array
from typing import Annotated, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.budget import Budget
from gdbheapx.common.columns import ADD, BYTES, IF_ANY, IF_KNOWN, TEXT, Column, hidden_column
from gdbheapx.common.model import AllocatorInfo, Claim, HistogramRow
from gdbheapx.common.ranges import Range
from gdbheapx.common.units import Sentence, SentenceSize, make_cells
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.blocks.stream import CLASS_CACHED, CLASS_FREE, CLASS_OVERHEAD, CLASS_RESERVE, CLASS_RETURNED, CLASS_USED
from gdbheapx.kernel.common.library import Kernel, NativeRows, address_of, finish_job, flatten_pairs

MI_USED, MI_FREE, MI_REMOTE, MI_RESERVE, MI_SPAN, MI_RETURNED, MI_METADATA = range(7)
"""MI_REMOTE: freed by another thread, and not collected by the page's owner."""
MI_WORDS = ("used", "free", "remote-free", "reserve", "span", "returned", "metadata")
PAD_BYTES = 8
"""At the end of each block in builds that pad them."""
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


class MiFreeList(NamedTuple):
    """A list of free blocks, linked by their first words."""

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


class MiListPage(NamedTuple):
    """The blocks of one page; pages are given by address, without overlap."""

    start: int
    block_bytes: int
    blocks: int
    """That were ever handed out."""


class MiListEnd(NamedTuple):
    """The end of a list: its members, and the problem that stopped it."""

    members: int
    problem: int
    at: int
    """The member that cannot be, or be read."""


class FreeBlocks(NamedTuple):
    """The members of all lists."""

    is_whole: bool
    """False: the budget expired; lists from the first without an end on were not followed."""
    addresses: "Annotated[array[int], 'Q']"
    """Sorted."""
    kinds: "Annotated[array[int], 'B']"
    ends: Sequence[MiListEnd]
    """Of each list that was followed."""
    shared: "Annotated[array[int], 'Q']"
    """By page: members of lists of all pages."""
    twice: int
    """Members that are on lists more than once."""


def follow_free_lists(
    kernel: Kernel, source: BulkSource, lists: Sequence[MiFreeList], pages: Sequence[MiListPage], budget: Budget
) -> FreeBlocks:
    """Members of these lists, without what damage leads to."""
    library, opened = kernel.library, kernel.open(source)
    rows, blocks = flatten_pairs(lists), flatten_pairs(pages)
    arguments = (opened.handle, address_of(rows), len(lists), address_of(blocks), len(pages))
    with finish_job(library, "mimalloc_lists", opened, budget, *arguments) as job:
        followed = array("Q", [0])
        found = array("Q", bytes(8 * library.heapx_mimalloc_lists_count(job, address_of(followed))))
        ends, shared = NativeRows(MiListEnd, followed[0]), array("Q", bytes(8 * len(pages)))
        library.heapx_mimalloc_lists_result(job, address_of(found), address_of(ends.numbers), address_of(shared))
    ordered, kinds = kernel.in_order(found), array("B", bytes(len(found)))
    twice = library.heapx_mimalloc_lists_split(address_of(ordered), len(ordered), address_of(kinds))
    return FreeBlocks(followed[0] == len(lists), ordered, kinds, ends.records(followed[0]), shared, twice)


THREAD, ABANDONED, SHARED = "thread", "abandoned", "shared"
"""Whose an arena is: a thread's; pages that no thread owns, as theirs has ended or, in release 3, they were full; what all share."""


class MimallocArena(NamedTuple):
    """The pages of one thread. held = used + free + remote-free + reserve + span + overhead + unparsed, to the byte."""

    allocator: str
    index: Annotated[int, Column("arena", TEXT)]  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    owner: Annotated[str, Column("owner", TEXT)]
    """`thread`, `abandoned` or `shared`."""
    lwp: Annotated[Optional[int], Column("thread", TEXT)]
    """None where it has none, or its thread is unknown."""
    name: Annotated[Optional[str], Column("name", TEXT, goes=2)]
    pages: Annotated[int, Column("pages", sums=ADD, goes=4)]
    held_bytes: Annotated[int, Column("held", BYTES, ADD)]
    """Pages, metadata, and free slices that were not returned to the OS yet."""
    used_blocks: Annotated[int, Column("blocks", sums=ADD, goes=3)]
    used_bytes: Annotated[int, Column("used", BYTES, ADD)]
    """Blocks as large as they are, not as was asked for."""
    free_blocks: Annotated[int, hidden_column(ADD)]
    free_bytes: Annotated[int, Column("free", BYTES, ADD)]
    remote_free_blocks: Annotated[int, hidden_column(ADD)]
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
    uncollected_pages: Annotated[int, hidden_column(ADD)]
    """Pages whose blocks are all free, some of them by other threads: they stay until the owner collects."""
    uncollected_bytes: Annotated[int, Column("whole pages of these", BYTES, ADD, IF_ANY, goes=6)]
    """Bytes of these pages."""
    empty_bytes: Annotated[int, hidden_column(ADD)]
    """Pages without a block in use that the owner keeps for the next allocations of their size."""
    collectable_bytes: Annotated[int, hidden_column(ADD)]
    """What mi_collect(true) would return to the OS if this thread called it: the pages of the last two figures, and
    free spans. 0 where no thread owns it."""
    collectable_resident_bytes: Annotated[Optional[int], hidden_column(ADD)]
    """What of it is in RAM; None on a core."""
    unowned_collectable_bytes: Annotated[int, hidden_column(ADD)]
    """What one call by any thread would return in addition: in release 3 free spans of arenas, in release 2 free spans and pages without a
    block in use of threads that have ended. 0 in rows of threads, and in release 1."""
    unowned_collectable_resident_bytes: Annotated[Optional[int], hidden_column(ADD)]
    """What of it is in RAM; None on a core."""
    returned_bytes: Annotated[int, hidden_column(ADD)]
    """Slices that were returned to the OS or never used; no part of held."""
    returned_resident_bytes: Annotated[Optional[int], Column("returned, resident", BYTES, ADD, IF_ANY)]
    """What of them is in RAM: given to MADV_FREE, so that the kernel takes it when it needs memory, or parts of huge pages; None on a
    core."""
    returned_huge_bytes: Annotated[Optional[int], hidden_column(ADD)]
    """Parts of huge pages among them; None on a core, and where the kernel does not say."""
    resident_bytes: Annotated[Optional[int], Column("resident", BYTES, ADD, IF_KNOWN)]
    """Of held; None on a core."""


COLLECT_CALLS = (
    ("unowned_collectable", "mi_collect(true), called by any one thread, would return memory that no thread owns: "),
    ("collectable", "mi_collect(true), called by each of these threads, would return empty pages and spans: "),
)


def describe_collections(totals: Mapping[str, Optional[int]]) -> Iterator[Sentence]:
    """Yield sentences on what mi_collect(true) would return, by its caller."""
    for name, what in COLLECT_CALLS:
        resident = totals.get(name + "_resident_bytes")
        if not totals.get(name + "_bytes"):
            continue
        if resident is None:
            yield make_cells(what + "%s (how much is in RAM is unknown)", SentenceSize(totals[name + "_bytes"]))
        elif resident:
            yield make_cells(what + "%s in RAM", SentenceSize(resident))


class MimallocBin(NamedTuple):
    """A block size that has pages."""

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
    delay: Optional[Tuple[str, int]] = None
    """Name and ms (-1: never) of the option that says when free pages are returned; None where the options cannot be read."""
    is_reset: Optional[bool] = None
    """They are given to MADV_FREE; None where the options cannot be read."""
