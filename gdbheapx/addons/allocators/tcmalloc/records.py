"""tcmalloc's answers and the records that C and Python share, with the native walks over spans and lists of free objects."""

from array import array
from typing import Annotated, Any, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.budget import Budget
from gdbheapx.common.columns import ADD, BYTES, IF_KNOWN, TEXT, Column, hidden_column
from gdbheapx.common.model import AllocatorInfo, Claim, HistogramRow, TargetAddress
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.blocks.slots import Frees, SlotRun
from gdbheapx.kernel.blocks.stream import CLASS_CACHED, CLASS_FREE, CLASS_OVERHEAD, CLASS_RETURNED, CLASS_USED
from gdbheapx.kernel.common.library import Kernel, NativeRows, address_of, finish_job, flatten_record

SIZE_CLASSES = 128
"""kClassSizesMax: room for so many, 0 being that of large blocks."""
SPAN_BYTES = 48

TC_USED, TC_CENTRAL, TC_TRANSFER, TC_CACHED, TC_FREE_SPAN, TC_RETURNED, TC_TAIL, TC_METADATA = range(8)
"""A block in use; a free object in its span; in a transfer cache; in a thread cache; pages that are free; the same, returned to the system;
what objects do not fill of a span; tcmalloc's own."""
TC_WORDS = ("used", "free", "transfer", "tcache", "free-span", "returned", "tail", "metadata")
TC_CLASS_OF = (CLASS_USED, CLASS_FREE, CLASS_CACHED, CLASS_CACHED, CLASS_RETURNED, CLASS_RETURNED, CLASS_OVERHEAD, CLASS_OVERHEAD)

TC_LARGE, TC_FREE_LABEL, TC_RETURNED_LABEL, TC_TAIL_LABEL = 0, SIZE_CLASSES, SIZE_CLASSES + 1, SIZE_CLASSES + 2
"""Labels of runs other than size classes: what sums are made by."""
TC_LABELS = SIZE_CLASSES + 3

SPAN_IN_USE, SPAN_ON_NORMAL, SPAN_ON_RETURNED = range(3)
"""Span::location."""

SPAN_GOOD = 0
SPAN_UNREADABLE = 1
"""A leaf leads to memory that cannot be read."""
SPAN_WRONG = 2
"""It has no page, leaves the address space, or has a location or a size class that there is none of."""
SPAN_LEAF = 3
"""A leaf cannot be read to its end."""

LIST_GOOD = 0
LIST_UNREADABLE = 1
LIST_LONG = 2
"""It goes on after as many objects as there may be."""
LIST_MISALIGNED = 3
"""A link that no object can have."""

MOST_SPAN_PROBLEMS = 1000
KIND_BITS = 3
"""What a free object's address is shifted by, to make room for its kind."""


class SpanLayout(NamedTuple):
    """Constants of one tcmalloc for the native walk."""

    little_endian: int
    page_shift: int
    leaf_bits: int
    """A leaf has so many bits of a page's number."""
    page_bits: int
    """A page's number has so many."""


class PageLeaf(NamedTuple):
    """A leaf of the page map."""

    place: int
    """In the root."""
    address: int


class TcSpan(NamedTuple):
    """A span."""

    address: int
    """Of struct Span."""
    start: int
    bytes: int
    size_class: int
    """0: one large block, or free."""
    location: int
    is_sampled: int
    refcount: int
    """Objects that are out: in use, or in a cache."""
    objects: int
    """That fit; 1 without a class."""
    list: int
    """The first free one; 0: none. Of a sampled block its StackTrace."""


class SpanTally(NamedTuple):
    """Sums over all spans of one label."""

    spans: int
    bytes: int
    objects: int
    """That fit; 1 for each span without a class."""
    listed: int
    """Of them those that are free in their spans, by refcount."""


class SpanRange(NamedTuple):
    """Spans that touch each other."""

    start: int
    end: int


class TcFreeList(NamedTuple):
    """A list of free objects, linked by their first words."""

    head: int
    most: int
    """Links that are followed."""
    kind: int
    """TC_ number."""
    start: int
    """Of the span that all its objects lie in; 0: they lie anywhere."""


class TcListEnd(NamedTuple):
    """The end of a list: its members, and the problem that stopped it."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record
    problem: int
    """LIST_ number."""
    at: int
    """The object whose link is wrong, or that cannot be read."""


class SpanProblem(NamedTuple):
    """Damage of a span."""

    code: int
    address: int
    """Of the struct, or of the leaf."""
    page: int
    """Address of the page that led there."""


class SpanSums(NamedTuple):
    """Sums of a walk over the page map."""

    ended: int
    spans: int
    runs: int
    held: int
    """SpanRanges."""
    problems: int
    told: int


class ListSums(NamedTuple):
    """Sums of following all lists."""

    ended: int
    objects: int


class TcSpans(NamedTuple):
    """The page map."""

    is_whole: bool
    """False: the budget expired."""
    spans: "Annotated[array[int], 'Q']"
    """TcSpan, row by row, by address of their memory."""
    runs: "Annotated[array[int], 'Q']"
    """Of kernel.blocks.slots: their objects."""
    problems: Sequence[SpanProblem]
    problem_count: int
    tallies: Sequence[SpanTally]
    """By label, LABELS of them."""
    held: Sequence[SpanRange]
    """By address."""

    def column(self, name: str) -> "array[int]":
        """Return one member of all spans."""
        return self.spans[TcSpan._fields.index(name) :: len(TcSpan._fields)]


def read_spans(
    kernel: Kernel, source: BulkSource, layout: SpanLayout, leaves: Sequence[PageLeaf], sizes: Sequence[int], budget: Budget
) -> TcSpans:
    """Walk the spans of these leaves and return their objects as runs of slots. `sizes`: object bytes of each of SIZE_CLASSES, 0 for
    none.
    """
    library, opened, sums = kernel.library, kernel.open(source), NativeRows(SpanSums, 1)
    numbers, places, classes = flatten_record(layout), flatten_record(leaves), array("Q", sizes)
    arguments = (opened.handle, address_of(numbers), address_of(places), len(leaves), address_of(classes))
    with finish_job(library, "tc_spans", opened, budget, *arguments) as job:
        library.heapx_tc_spans_sums(job, address_of(sums.numbers))
        (known,) = sums.records(1)
        found, runs = _make_array(TcSpan, known.spans), _make_array(SlotRun, known.runs)
        problems, tallies, held = NativeRows(SpanProblem, known.told), NativeRows(SpanTally, TC_LABELS), NativeRows(SpanRange, known.held)
        library.heapx_tc_spans_result(job, *map(address_of, (found, runs, problems.numbers, tallies.numbers, held.numbers)))
    told = problems.records(known.told), known.problems
    return TcSpans(bool(known.ended), found, runs, *told, tallies.records(TC_LABELS), held.records(known.held))


def follow_objects(
    kernel: Kernel, source: BulkSource, little_endian: bool, lists: "array[int]", most: int, budget: Budget
) -> Tuple[bool, Sequence[TcListEnd], Frees]:
    """Follow lists of free objects: whether there was time for all, the end of each, and the objects for the walker over slots.

    `lists`: TcFreeList, row by row; `most`: the number of objects that may exist.
    """
    library, opened, sums = kernel.library, kernel.open(source), NativeRows(ListSums, 1)
    count = len(lists) // len(TcFreeList._fields)
    ends = NativeRows(TcListEnd, count)
    arguments = (opened.handle, int(little_endian), address_of(lists), count, most, address_of(ends.numbers))
    with finish_job(library, "tc_lists", opened, budget, *arguments) as job:
        library.heapx_tc_lists_sums(job, address_of(sums.numbers))
        (known,) = sums.records(1)
        objects = array("Q", bytes(8 * known.objects))
        library.heapx_tc_lists_result(job, address_of(objects))
    objects = kernel.in_order(objects)  # address and kind (KIND_BITS)
    kinds = array("B", bytes(-(-len(objects) // 8) * 8))
    library.heapx_tc_lists_split(address_of(objects), len(objects), address_of(kinds))
    return bool(known.ended), ends.records(count), Frees(objects, kinds[: len(objects)])


def _make_array(kind: Any, count: int) -> "array[int]":
    return array("Q", (0,)) * (len(kind._fields) * count)


class TcArena(NamedTuple):
    """Totals of one tcmalloc, which has one page heap. system = used + central + transfer + cached + tails + free + returned, to the
    byte.
    """

    allocator: str
    index: Annotated[int, Column("arena", TEXT)]  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """Always 0."""
    address: TargetAddress
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
    free_exclusive_bytes: Annotated[Optional[int], hidden_column(ADD)]
    """The part of it that the machine gets back: not shared with a forked process, and no part of a huge page in use."""
    returned_bytes: Annotated[int, Column("returned", BYTES, ADD, goes=2)]
    """Address space that is kept without memory."""
    metadata_bytes: Annotated[int, Column("metadata", BYTES, ADD, goes=3)]
    """Address space of spans, leaves of the page map and thread caches; not part of system, and mostly never touched."""

    @property
    def held_bytes(self) -> int:
        """Bytes taken from the kernel, metadata included."""
        return self.system_bytes - self.returned_bytes + self.metadata_bytes


class TcBin(NamedTuple):
    """A size class that has spans; class 0 has blocks with a span of their own."""

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
