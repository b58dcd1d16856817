"""tcmalloc's page map and lists in Python: what spans.c and lists.c do."""

from array import array
from typing import Any, List, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.blocks.slots import Frees, SlotRun
from gdbheapx.kernel.common.twin.source import Reader
from gdbheapx.kernel.tcmalloc import records as api
from gdbheapx.kernel.tcmalloc.records import FreeList, Listed, PageLeaf, SpanLayout, SpanProblem, SpanRange, Spans, SpanTally, TcSpan
from gdbheapx.ranges import union

LEAF_BLOCK = 128 << 10
PAGE_BYTES = 4096


class _Memory:
    """Small reads, through the page that was read last but some."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._pages: Any = {}

    def read(self, address: int, size: int) -> bytes:
        """Whole, or shorter."""
        page = address // PAGE_BYTES * PAGE_BYTES
        if address + size > page + PAGE_BYTES:
            return self._reader.read(address, size)
        if page not in self._pages:
            if len(self._pages) > 4096:
                self._pages.clear()
            self._pages[page] = self._reader.read(page, PAGE_BYTES)
        return self._pages[page][address - page : address - page + size]  # type: ignore[no-any-return]


class _Walk:
    """One walk of the page map."""

    def __init__(self, reader: Reader, layout: SpanLayout, sizes: Sequence[int]) -> None:
        self.reader, self.memory, self.layout, self.sizes = reader, _Memory(reader), layout, sizes
        self.order: Any = "little" if layout.little_endian else "big"
        self.spans: List[TcSpan] = []
        self.runs = array("Q")
        self.problems: List[SpanProblem] = []
        self.problem_count = 0

    def tell(self, code: int, address: int, page: int) -> None:
        self.problem_count += 1
        if len(self.problems) < api.MOST_SPAN_PROBLEMS:
            self.problems.append(SpanProblem(code, address, page << self.layout.page_shift))

    def take_span(self, address: int, page: int) -> int:
        """How many pages it has; 0: it does not begin there."""
        layout, data = self.layout, self.memory.read(address, api.SPAN_BYTES)
        if len(data) < api.SPAN_BYTES:
            self.tell(api.SPAN_UNREADABLE, address, page)
            return 0
        start, length, head = (int.from_bytes(data[at : at + 8], self.order) for at in (0, 8, 32))
        if start != page:
            return 0
        size_class, location = data[42], data[43] & 3
        has_class = location == api.SPAN_IN_USE and size_class != 0
        no_class = has_class and not (size_class < api.SIZE_CLASSES and self.sizes[size_class])
        if not 0 < length <= (1 << layout.page_bits) - page or location > api.SPAN_ON_RETURNED or no_class:
            self.tell(api.SPAN_WRONG, address, page)
            return 0
        size = length << layout.page_shift
        made = TcSpan(
            address=address,
            start=page << layout.page_shift,
            bytes=size,
            size_class=size_class if has_class else 0,
            location=location,
            is_sampled=data[43] >> 2 & 1,
            refcount=int.from_bytes(data[40:42], self.order),
            objects=size // self.sizes[size_class] if has_class else 1,
            list=head if has_class or (location == api.SPAN_IN_USE and data[43] & 4) else 0,
        )
        self.spans.append(made)
        self.add_runs(made)
        return length

    def add_run(self, start: int, size: int, count: int, label: int, kind: int, base: int) -> None:
        made = dict.fromkeys(SlotRun._fields, 0)
        made.update(start=start, slot_bytes=size, slots=count, usable_bytes=size, label=label, kind=kind)
        made.update(free_kind=api.TC_CENTRAL, base=base)
        self.runs.extend(made.values())

    def add_runs(self, span: TcSpan) -> None:
        if span.location == api.SPAN_ON_NORMAL:
            self.add_run(span.start, span.bytes, 1, api.TC_FREE_LABEL, api.TC_FREE_SPAN, span.address)
        elif span.location == api.SPAN_ON_RETURNED:
            self.add_run(span.start, span.bytes, 1, api.TC_RETURNED_LABEL, api.TC_RETURNED, span.address)
        elif not span.size_class:
            self.add_run(span.start, span.bytes, 1, api.TC_LARGE, api.TC_USED, span.address)
        else:
            size = self.sizes[span.size_class]
            filled = size * span.objects
            if span.objects:
                self.add_run(span.start, size, span.objects, span.size_class, api.TC_USED, span.address)
            if filled < span.bytes:
                self.add_run(span.start + filled, span.bytes - filled, 1, api.TC_TAIL_LABEL, api.TC_TAIL, span.address)


def counted(rows: "array[int]") -> Tuple[List[SpanTally], List[SpanRange]]:
    """The sums and the joined ranges of spans: TcSpan, row by row."""
    sums, width = [[0] * len(SpanTally._fields) for _ in range(api.LABELS)], len(TcSpan._fields)
    known = [TcSpan._make(rows[at : at + width]) for at in range(0, len(rows), width)]
    for span in known:
        out_of_use = {api.SPAN_ON_NORMAL: api.TC_FREE_LABEL, api.SPAN_ON_RETURNED: api.TC_RETURNED_LABEL}
        listed = max(0, span.objects - span.refcount) if span.size_class else 0
        own = sums[out_of_use.get(span.location, span.size_class)]
        own[:] = [before + more for before, more in zip(own, (1, span.bytes, span.objects, listed))]
    held = union((span.start, span.start + span.bytes) for span in known)
    return [SpanTally(*row) for row in sums], [SpanRange(*row) for row in held]


def spans(reader: Reader, layout: SpanLayout, leaves: Sequence[PageLeaf], sizes: Sequence[int], budget: Budget) -> Spans:
    """See walkers.spans."""
    walk, page, in_leaf, is_whole = _Walk(reader, layout, sizes), 0, 1 << layout.leaf_bits, False
    try:
        for leaf in leaves:
            first = leaf.place << layout.leaf_bits
            for begin in range(0, 8 * in_leaf, LEAF_BLOCK):
                if budget.expired():
                    return _answer(False, walk)
                size = min(LEAF_BLOCK, 8 * in_leaf - begin)
                data = reader.read(leaf.address + begin, size)
                for at in _words(data):
                    here = first + (begin + at) // 8
                    address = int.from_bytes(data[at : at + 8], walk.order)
                    if here >= page and not address & 7:
                        page = here + (walk.take_span(address, here) or 1)
                if len(data) < size:
                    page = max(page, first + (begin + len(data)) // 8)
                    if page < first + in_leaf:
                        walk.tell(api.SPAN_LEAF, leaf.address + 8 * (page - first), page)
                    break
        is_whole = True
    except KeyboardInterrupt:
        budget.interrupt()
    return _answer(is_whole, walk)


def _answer(is_whole: bool, walk: _Walk) -> Spans:
    rows = array("Q", [number for row in walk.spans for number in row])
    return Spans(is_whole, rows, walk.runs, walk.problems, walk.problem_count, *counted(rows))


def _words(data: bytes) -> Sequence[int]:
    """Where words that are not 0 begin."""
    if not any(data):
        return ()
    return [at for at in range(0, len(data) - 7, 8) if data[at : at + 8] != b"\0\0\0\0\0\0\0\0"]


def follow(reader: Reader, little_endian: bool, lists: "array[int]", most: int, budget: Budget) -> Listed:
    """See walkers.follow."""
    memory, order, width = _Memory(reader), "little" if little_endian else "big", len(FreeList._fields)
    objects: List[int] = []
    ends = array("Q", bytes(8 * 3 * (len(lists) // width)))
    is_whole = False
    try:
        for place in range(len(lists) // width):
            head, limit, kind, _ = lists[width * place : width * (place + 1)]
            count, problem, at, next_object = 0, api.LIST_GOOD, 0, head
            while next_object and not problem:
                at = next_object
                if (count & 1023 == 0) and budget.expired():
                    return Listed(False, ends, array("Q", sorted(objects)))
                if at & 7 or at >> (64 - api.KIND_BITS):
                    problem = api.LIST_MISALIGNED
                elif count >= limit or len(objects) >= most:
                    problem = api.LIST_LONG
                else:
                    data = memory.read(at, 8)
                    if len(data) < 8:
                        problem = api.LIST_UNREADABLE
                    else:
                        objects.append(at << api.KIND_BITS | kind)
                        count, next_object = count + 1, int.from_bytes(data, order)  # type: ignore[arg-type]
                ends[3 * place : 3 * place + 3] = array("Q", (count, problem, at))
        is_whole = True
    except KeyboardInterrupt:
        budget.interrupt()
    return Listed(is_whole, ends, array("Q", sorted(objects)))


def frees(objects: "array[int]") -> Frees:
    """See walkers.frees."""
    mask = (1 << api.KIND_BITS) - 1
    return Frees(array("Q", [number >> api.KIND_BITS for number in objects]), array("B", [number & mask for number in objects]))
