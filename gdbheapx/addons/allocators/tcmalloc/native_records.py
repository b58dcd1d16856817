"""What the two kernels take and give where they walk tcmalloc's page map and its lists of free objects (src/pagemap.h, span.h,
thread_cache.h of gperftools); both fill exactly these records."""

from array import array
from typing import Annotated, NamedTuple, Sequence

from gdbheapx.kernel.blocks.records import CLASS_CACHED, CLASS_FREE, CLASS_OVERHEAD, CLASS_RETURNED, CLASS_USED

SIZE_CLASSES = 128
"""kClassSizesMax: room for so many, 0 being that of large blocks."""
SPAN_BYTES = 48

TC_USED, TC_CENTRAL, TC_TRANSFER, TC_CACHED, TC_FREE_SPAN, TC_RETURNED, TC_TAIL, TC_METADATA = range(8)
"""A block in use; a free object in its span; in a transfer cache; in a thread cache; pages that are free; the same, returned to the system;
what objects do not fill of a span; tcmalloc's own."""
WORDS = ("used", "free", "transfer", "tcache", "free-span", "returned", "tail", "metadata")
TC_CLASS_OF = (
    *(CLASS_USED, CLASS_FREE, CLASS_CACHED, CLASS_CACHED),
    *(CLASS_RETURNED, CLASS_RETURNED, CLASS_OVERHEAD, CLASS_OVERHEAD),
)

TC_LARGE, TC_FREE_LABEL, TC_RETURNED_LABEL, TC_TAIL_LABEL = 0, SIZE_CLASSES, SIZE_CLASSES + 1, SIZE_CLASSES + 2
"""Labels of runs beside those of size classes: what sums are made by."""
LABELS = SIZE_CLASSES + 3

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
"""It goes on behind as many objects as there may be."""
LIST_MISALIGNED = 3
"""A link that no object can have."""

MOST_SPAN_PROBLEMS = 1000
KIND_BITS = 3
"""What a free object's address is shifted by, to have its kind beside it."""


class SpanLayout(NamedTuple):
    """What is constant about one copy."""

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
    """One span."""

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
    """All spans of one label."""

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


class FreeList(NamedTuple):
    """One list of free objects, linked by their first words."""

    head: int
    most: int
    """Links that are followed."""
    kind: int
    """TC_ number."""
    start: int
    """Of the span that all its objects lie in; 0: they lie anywhere."""


class ListEnd(NamedTuple):
    """How one ended."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record
    problem: int
    """LIST_ number."""
    at: int
    """The object whose link is wrong, or that cannot be read."""


class SpanProblem(NamedTuple):
    """What is wrong with a span."""

    code: int
    address: int
    """Of the struct, or of the leaf."""
    page: int
    """Address of the page that led there."""


class SpanSums(NamedTuple):
    """How a walk of the page map ended."""

    ended: int
    spans: int
    runs: int
    held: int
    """SpanRanges."""
    problems: int
    told: int


class ListSums(NamedTuple):
    """How following all lists ended."""

    ended: int
    objects: int


class Spans(NamedTuple):
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
        """One member of all spans."""
        return self.spans[TcSpan._fields.index(name) :: len(TcSpan._fields)]


class Listed(NamedTuple):
    """What is on lists."""

    is_whole: bool
    ends: "Annotated[array[int], 'Q']"
    """ListEnd, row by row, of each list."""
    objects: "Annotated[array[int], 'Q']"
    """Address and kind (KIND_BITS), sorted."""

    def end(self, place: int) -> ListEnd:
        """Of one list."""
        width = len(ListEnd._fields)
        return ListEnd._make(self.ends[width * place : width * (place + 1)])
