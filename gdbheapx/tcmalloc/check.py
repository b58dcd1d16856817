"""Which rules of tcmalloc are broken: lists and spans as the walk meets them, and what tcmalloc counts against what there is."""

from collections import Counter
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from gdbheapx.allocators.rules import INSIDE, MOST_BROKEN, BrokenRule, Suspect, collector, sorted_out
from gdbheapx.kernel.tcmalloc import records as api
from gdbheapx.model import Address
from gdbheapx.problems import Code, Diagnostic
from gdbheapx.tcmalloc import codes
from gdbheapx.tcmalloc.survey import Survey, stats
from gdbheapx.units import plural

if TYPE_CHECKING:
    from gdbheapx.tcmalloc.allocator import TcmallocHeap

OF_RULES = {code for code in vars(codes).values() if isinstance(code, Code)}
OF_OBJECTS = (codes.FREE_LIST_BROKEN, codes.FREED_TWICE)
"""Something wrote into a free object: the block before it may have been overrun."""
MOST_SUSPECTS = 20


class _Broken:
    """Each place once."""

    def __init__(self, heap: "TcmallocHeap", is_changing: bool) -> None:
        self._heap, self._evidence = heap, INSIDE if is_changing else None
        self.rows: Dict[Tuple[str, Optional[int]], BrokenRule] = {}

    def add(self, code: Code, address: Optional[int], what: str) -> None:
        key = (str(code), address)
        if key in self.rows or len(self.rows) >= MOST_BROKEN:
            return
        self.rows[key] = BrokenRule(
            allocator=self._heap.info.id,
            arena=0,
            code=code,
            address=Address(address) if address is not None else None,
            rule=str(code),
            abort=None,
            suspect=self._suspect(code, address),
            what=what,
            evidence=self._evidence,
        )

    def _suspect(self, code: Code, address: Optional[int]) -> Optional[Suspect]:
        if code not in OF_OBJECTS or address is None or len(self.rows) >= MOST_SUSPECTS:
            return None
        place = self._heap.block_at(address)
        before = place.previous if place is not None else None
        if before is None or before.status != "used":
            return None
        return Suspect(before.address, before.size_bytes, before.status)


def rules(heap: "TcmallocHeap") -> List[BrokenRule]:
    """All of them. Moments are reported: no rule is broken while a thread changes what it is about."""
    told: List[Diagnostic] = []
    own: Any = heap.anew(collector(told))
    survey: Survey = own.survey()
    broken = _Broken(own, survey.is_changing)
    known = OF_RULES
    sorted_out(told, known, heap.around.report, lambda diagnostic: broken.add(diagnostic.code, diagnostic.address, diagnostic.what))
    if survey.spans.is_whole:
        _lists(own, survey, broken)
        _central(survey, broken)
        _page_heap(own, survey, broken)
    return list(broken.rows.values())


def _lists(heap: "TcmallocHeap", survey: Survey, broken: _Broken) -> None:
    spans, structs = survey.spans.column("start"), survey.spans.column("address")
    for listing, end in zip(survey.listings, survey.ends):
        if end.problem or end.count == listing.expected:
            continue
        counts, size_class = (end.count, listing.expected), listing.size_class
        if listing.kind == api.TC_CENTRAL:
            what = "the span at 0x%x has %s on its list, and by its refcount %d"
            shown = what % (spans[listing.place], plural(counts[0], "free object"), counts[1])
            broken.add(codes.SPAN_COUNT, structs[listing.place], shown)
        elif listing.kind == api.TC_TRANSFER:
            what = "a batch of the transfer cache of class %d has %s instead of %d" % (size_class, plural(counts[0], "object"), counts[1])
            broken.add(codes.BATCH_COUNT, end.at or None, what)
        else:
            what = "the list of class %d of a thread cache has %s and says %d" % (size_class, plural(counts[0], "object"), counts[1])
            broken.add(codes.CACHE_COUNT, survey.caches.rows[listing.place].address, what)


def _central(survey: Survey, broken: _Broken) -> None:
    spans: Counter[int] = Counter()
    for size_class, location in zip(survey.spans.column("size_class"), survey.spans.column("location")):
        spans[size_class] += location == api.SPAN_IN_USE
    for row in survey.central:
        free = survey.objects[api.TC_CENTRAL, row.size_class]
        if row.counter != free:
            what = "class %d has %s in its spans, and counts %d" % (row.size_class, plural(free, "free object"), row.counter)
            broken.add(codes.CENTRAL_COUNT, row.address, what)
        if row.spans != spans[row.size_class]:
            what = "class %d has %s, and counts %d" % (row.size_class, plural(spans[row.size_class], "span"), row.spans)
            broken.add(codes.CENTRAL_SPANS, row.address, what)


def _page_heap(heap: "TcmallocHeap", survey: Survey, broken: _Broken) -> None:
    own = stats(heap.target, heap.tcmalloc)
    walked = [0, 0, 0]
    for size, location in zip(survey.spans.column("bytes"), survey.spans.column("location")):
        walked[0] += size
        if location:
            walked[location] += size
    if own and list(own) != walked:
        what = "the page heap counts %d bytes of spans, %d free and %d returned; its spans add up to %d, %d and %d" % (*own, *walked)
        broken.add(codes.HEAP_BYTES, heap.tcmalloc.structure.page_map.stats, what)
