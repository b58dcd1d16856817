"""Count a tcmalloc's spans, follow its lists, compare both with its own counters, and add them up."""

import struct
from array import array
from collections import Counter
from itertools import chain, islice
from typing import TYPE_CHECKING, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.allocators.tcmalloc import codes, records
from gdbheapx.addons.allocators.tcmalloc.structure import (
    CentralList,
    PageMap,
    Tcmalloc,
    TcThreadCache,
    read_central_lists,
    read_thread_caches,
)
from gdbheapx.allocators.records import HeapContext
from gdbheapx.common.problems import PartialSink, ProblemCode
from gdbheapx.common.ranges import subtract_ranges, unite_ranges
from gdbheapx.common.units import count_noun, format_number
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.blocks.slots import SLOT_TWICE, Frees, SlotRun, SlotTallies, SlotWalker

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.tcmalloc.structure import TcmallocStructure

Contradiction = Tuple[ProblemCode, Optional[int], str]
FATAL = (4, 6, 7, 8, 11)
"""Signals of a fault or of abort(): what a thread met inside tcmalloc was wrong before."""
FRAME_BYTES = 512
"""Of a stack's top, where a thread in a system call has the address that it returns to."""
PIECE_BYTES = 8 << 20
"""Metadata comes from the system in pieces of so much at most (kMetadataAllocChunkSize), of which what was not used yet leads nowhere."""
METADATA_PAGE = 4096
EMPTY_COUNTS = bytes(METADATA_PAGE)
TRIED_SPANS = 64
OF_SPANS: Dict[int, Tuple[ProblemCode, str]] = {
    records.SPAN_UNREADABLE: (codes.SPAN_UNREADABLE, "cannot read the span that a page points to"),
    records.SPAN_WRONG: (codes.SPAN_WRONG, "this span has a length, a location or a size class that cannot be"),
    records.SPAN_LEAF: (codes.LEAF_UNREADABLE, "cannot read a leaf of the page map to its end"),
}
CHANGING_HINT = "a thread was inside tcmalloc: retry to see whether it persists"


class TcmallocCounts(NamedTuple):
    """Spans, central lists and thread caches of one tcmalloc."""

    leaves: Sequence[records.PageLeaf]
    spans: records.TcSpans
    central: Sequence[CentralList]
    caches: Sequence[TcThreadCache]
    has_all_caches: bool
    objects: "Counter[Tuple[int, int]]"
    """Free objects by (kind, size class)."""
    is_whole: bool

    def used_objects(self, size_class: int) -> int:
        """Return the number of objects out of their spans and in no cache."""
        tally = self.spans.tallies[size_class]
        return max(
            0, tally.objects - sum(self.objects[kind, size_class] for kind in (records.TC_CENTRAL, records.TC_TRANSFER, records.TC_CACHED))
        )


def count_tcmalloc(tcmalloc: Tcmalloc, around: HeapContext, report: PartialSink) -> TcmallocCounts:
    """Read spans, lists and caches; `report` hears what keeps figures from being complete."""
    target, known, kernel = around.target, tcmalloc.structure, around.kernel
    page_map, batch = known.page_map, known.sizes.batch
    layout = records.SpanLayout(1, page_map.page_shift, page_map.leaf_bits, page_map.page_bits)
    known_leaves = read_leaves(target, tcmalloc, report)
    spans = records.read_spans(kernel, target.bulk_source(), layout, known_leaves, known.sizes.object_bytes, around.budget)
    spans, unmapped = _is_mapped(target, spans)
    central, (caches, has_all_caches) = read_central_lists(target, known, report), read_thread_caches(target, known, report)
    objects = Counter({(records.TC_CENTRAL, number): tally.listed for number, tally in enumerate(spans.tallies[: records.SIZE_CLASSES])})
    for row in central:
        objects[records.TC_TRANSFER, row.size_class] += len(row.batches) * batch[row.size_class]
    for cache in caches:
        for size_class, _, length in cache.lists:
            objects[records.TC_CACHED, size_class] += length
    if not spans.is_whole:
        report(codes.SPANS_CUT, None, "out of time before all spans were read", "raise --max-seconds or --max-stop")
    for problem in spans.problems:
        code, what = OF_SPANS[problem.code]
        report(code, problem.address, what, "the pages from 0x%x on are missing" % problem.page)
    for start in unmapped:
        report(codes.SPAN_UNMAPPED, start, "this span lies in no memory of the process", "it is left out")
    is_whole = spans.is_whole and has_all_caches and not (spans.problem_count or unmapped)
    counts = TcmallocCounts(known_leaves, spans, central, caches, has_all_caches, objects, is_whole)
    if not is_whole:
        return counts
    found = list(check_counts(counts, read_stats(target, tcmalloc), known))
    return counts._replace(is_whole=not found) if report_contradictions(found, tcmalloc, target, central, report) else counts


def report_contradictions(
    found: Sequence[Contradiction], tcmalloc: Tcmalloc, target: Target, central: Sequence[CentralList], report: PartialSink
) -> Sequence[Contradiction]:
    """Report contradictions; as one change in progress, if a thread is inside."""
    if found and is_changing(target, tcmalloc, central):
        _, address, what = found[0]
        more = " (and %s more like this)" % format_number(len(found) - 1) if len(found) > 1 else ""
        report(codes.LISTS_CHANGING, address, what + more, CHANGING_HINT)
        return found
    for code, address, what in found:
        report(code, address, what, None)
    return found


def read_leaves(target: Target, tcmalloc: Tcmalloc, report: PartialSink) -> List[records.PageLeaf]:
    """Return the leaves of the page map's root, each once."""
    page_map = tcmalloc.structure.page_map
    data = target.read_prefix(page_map.root, 8 * page_map.root_words)
    if len(data) < 8 * page_map.root_words:
        what = "cannot read the root of the page map"
        report(codes.ROOT_UNREADABLE, page_map.root + len(data), what, "spans beyond are missing")
    size, memory = 8 << page_map.leaf_bits, unite_ranges([(mapping.start, mapping.end) for mapping in target.mappings()])
    listed = [
        (at // 8 + place, address)
        for at in range(0, len(data), METADATA_PAGE)
        if data[at : at + METADATA_PAGE] != EMPTY_COUNTS
        for place, address in enumerate(array("Q", data[at : min(at + METADATA_PAGE, len(data) // 8 * 8)]))
        if address
    ]
    often = Counter(address for _, address in listed)
    own = {address: _find_place(target, page_map, address) for address, count in often.items() if count > 1}
    found: List[records.PageLeaf] = []
    for place, address in listed:
        if own.get(address, place) != place or address % 8 or subtract_ranges([(address, address + size)], memory):
            what = "the page map points to a leaf that is in no memory, or belongs to another place"
            report(codes.LEAF_BROKEN, page_map.root + 8 * place, what, "spans in it are missing")
        else:
            found.append(records.PageLeaf(place, address))
    return found


def _find_place(target: Target, page_map: PageMap, leaf: int) -> Optional[int]:
    """The place of a leaf that the root has at several: that of the pages whose spans it leads to."""
    words = array("Q", target.read_prefix(leaf, 8 << page_map.leaf_bits))
    for at, span in islice(((at, span) for at, span in enumerate(words) if span), TRIED_SPANS):
        data = target.read_prefix(span, 8)
        start = int.from_bytes(data, "little")
        if len(data) == 8 and start & (1 << page_map.leaf_bits) - 1 == at:
            return start >> page_map.leaf_bits
    return None


def _is_mapped(target: Target, spans: records.TcSpans) -> Tuple[records.TcSpans, List[int]]:
    """Spans without those that lie in no memory of the process, and where these begin."""
    memory = unite_ranges([(mapping.start, mapping.end) for mapping in target.mappings()])
    outside = subtract_ranges(spans.held, memory)
    if not outside:
        return spans, []
    ranges = [(start, start + size) for start, size in zip(spans.column("start"), spans.column("bytes"))]
    bad = {place for place, (start, end) in enumerate(ranges) if any(start < last and first < end for first, last in outside[:1000])}
    width, run_width = len(records.TcSpan._fields), len(SlotRun._fields)
    addresses = {spans.column("address")[place] for place in bad}
    kept, runs = array("Q"), array("Q")
    for place in range(len(ranges)):
        if place not in bad:
            kept.extend(spans.spans[width * place : width * (place + 1)])
    base = SlotRun._fields.index("base")
    for at in range(0, len(spans.runs), run_width):
        if spans.runs[at + base] not in addresses:
            runs.extend(spans.runs[at : at + run_width])
    tallies, held = _count_spans(kept)
    return spans._replace(spans=kept, runs=runs, tallies=tallies, held=held), sorted(ranges[place][0] for place in bad)


def _count_spans(rows: "array[int]") -> Tuple[List[records.SpanTally], List[records.SpanRange]]:
    """Return the sums and the joined ranges of spans: TcSpan, row by row."""
    sums, width = [[0] * len(records.SpanTally._fields) for _ in range(records.TC_LABELS)], len(records.TcSpan._fields)
    spans = [records.TcSpan._make(rows[at : at + width]) for at in range(0, len(rows), width)]
    for span in spans:
        out_of_use = {records.SPAN_ON_NORMAL: records.TC_FREE_LABEL, records.SPAN_ON_RETURNED: records.TC_RETURNED_LABEL}
        listed = max(0, span.objects - span.refcount) if span.size_class else 0
        own = sums[out_of_use.get(span.location, span.size_class)]
        own[:] = [before + more for before, more in zip(own, (1, span.bytes, span.objects, listed))]
    held = unite_ranges((span.start, span.start + span.bytes) for span in spans)
    return [records.SpanTally(*row) for row in sums], [records.SpanRange(*row) for row in held]


def is_changing(target: Target, tcmalloc: Tcmalloc, central: Sequence[CentralList]) -> bool:
    """A thread executes tcmalloc's code, or in a call that this made, or holds a lock, and not because it crashed there."""
    threads = target.threads()
    if any(thread.signal in FATAL for thread in threads[:1]):
        return False
    if any(row.lock for row in central):
        return True
    code = target.code_ranges(tcmalloc.module)
    if tcmalloc.module.is_executable:
        return False
    for thread in threads:
        words = [] if thread.stack_pointer is None else target.words_in(target.read_prefix(thread.stack_pointer & -8, FRAME_BYTES))
        if any(start <= word < end for word in (thread.pc or 0, *words) for start, end in code):
            return True
    return False


def find_metadata(tcmalloc: Tcmalloc, counts: TcmallocCounts, target: Target) -> List[Tuple[int, int]]:
    """Return the ranges that hold spans, leaves and thread caches: no list has them, so they are what lies around those in the same
    mapping, up to the next span.
    """
    page_map, cache_bytes = tcmalloc.structure.page_map, tcmalloc.structure.sizes.cache_bytes
    own = [(page, page + METADATA_PAGE) for page in {address & -METADATA_PAGE for address in counts.spans.column("address")}]
    tables = [(leaf.address, 8 << page_map.leaf_bits) for leaf in counts.leaves]
    for address, size in [*tables, *((cache.address, cache_bytes) for cache in counts.caches)]:
        own.append((address // METADATA_PAGE * METADATA_PAGE, -(-(address + size) // METADATA_PAGE) * METADATA_PAGE))
    held = counts.spans.held
    pieces: List[Tuple[int, int]] = []
    known = sorted([*((start, end, True) for start, end in unite_ranges(own)), *((start, end, False) for start, end in held)])
    last, was_own = 0, False
    for start, end, is_own in known:
        if last < start <= last + PIECE_BYTES and (is_own or was_own):
            pieces.append((last, start))
        if is_own:
            pieces.append((start, end))
        last, was_own = max(last, end), is_own
    memory = unite_ranges([(mapping.start, mapping.end) for mapping in target.mappings() if mapping.writable and not mapping.is_file])
    data = [(start, end) for start, _, end in target.writable_segments(tcmalloc.module)]
    joined = unite_ranges(pieces)
    return subtract_ranges(joined, unite_ranges([*held, *subtract_ranges(joined, memory), *data]))


def read_stats(target: Target, tcmalloc: Tcmalloc) -> Tuple[int, ...]:
    """The page heap's own: bytes of all spans, of free ones, of returned ones; empty if they cannot be read."""
    data = target.read_prefix(tcmalloc.structure.page_map.stats, 24)
    return struct.unpack("<3Q", data) if len(data) == 24 else ()


def check_counts(counts: "TcmallocCounts", stats: Sequence[int], known: "TcmallocStructure") -> Iterator[Contradiction]:
    """Yield contradictions that need no list. `stats`: the page heap's own three figures, empty where they cannot be read."""
    tallies, sizes = counts.spans.tallies, known.sizes.object_bytes
    for row in counts.central:
        number, tally = row.size_class, tallies[row.size_class]
        if row.counter != tally.listed:
            what = "class %d has %s in its spans, and counts %d" % (number, count_noun(tally.listed, "free object"), row.counter)
            yield codes.CENTRAL_COUNT, row.address, what
        if row.spans != tally.spans:
            yield codes.CENTRAL_SPANS, row.address, "class %d has %s, and counts %d" % (number, count_noun(tally.spans, "span"), row.spans)
        cached = counts.objects[records.TC_TRANSFER, number] + counts.objects[records.TC_CACHED, number]
        if cached > tally.objects - tally.listed:
            what = "caches hold %s of class %d, and %d are out of its spans"
            yield codes.CENTRAL_COUNT, row.address, what % (count_noun(cached, "object"), number, tally.objects - tally.listed)
    for cache in counts.caches:
        listed = sum(length * sizes[size_class] for size_class, _, length in cache.lists)
        if cache.size_bytes != listed:
            what = "a thread cache counts %d bytes, and its lists add up to %d" % (cache.size_bytes, listed)
            yield codes.CACHE_COUNT, cache.address, what
    walked = [sum(tally.bytes for tally in tallies), tallies[records.TC_FREE_LABEL].bytes, tallies[records.TC_RETURNED_LABEL].bytes]
    if list(stats) != walked:
        what = "the page heap counts %s bytes of spans, %s free and %s returned; its spans add up to %d, %d and %d"
        yield codes.HEAP_BYTES, known.page_map.stats, what % (*(stats or ("unknown",) * 3), *walked)


def check_lists(counts: "TcmallocCounts", survey: "TcmallocSurvey") -> Iterator[Contradiction]:
    """Yield lists that contradict their counter or hold objects of another class."""
    spans, structs = counts.spans.column("start"), counts.spans.column("address")
    for listing, end in zip(survey.listings, survey.ends):
        if end.problem or end.count == listing.expected:
            continue
        figures = listing.size_class, count_noun(end.count, "object"), listing.expected
        if listing.kind == records.TC_CENTRAL:
            what = "the span at 0x%x has %s on its list, and by its refcount %d"
            in_span = spans[listing.place], count_noun(end.count, "free object"), listing.expected
            yield codes.SPAN_COUNT, structs[listing.place], what % in_span
        elif listing.kind == records.TC_TRANSFER:
            yield codes.BATCH_COUNT, end.at or None, "a batch of the transfer cache of class %d has %s instead of %d" % figures
        else:
            what = "the list of class %d of a thread cache has %s and says %d" % figures
            yield codes.CACHE_COUNT, counts.caches[listing.place].address, what
    listed: Counter[int] = Counter()
    for listing, end in zip(survey.listings, survey.ends):
        listed[listing.size_class] += end.count
    for row in counts.central:
        own, inside = listed[row.size_class], survey.tallies.tallies[row.size_class].listed_slots
        if own != inside:
            what = "lists of class %d have %s; %s lie in its spans" % (row.size_class, count_noun(own, "object"), format_number(inside))
            yield codes.LIST_CLASS, row.address, what


LIST_PROBLEMS: Dict[int, Tuple[ProblemCode, str]] = {
    records.LIST_UNREADABLE: (codes.FREE_LIST_UNREADABLE, "cannot read this free object, or its address is wrong"),
    records.LIST_LONG: (codes.FREE_LIST_BROKEN, "a list of free objects does not end where it should"),
    records.LIST_MISALIGNED: (codes.FREE_LIST_BROKEN, "a list of free objects points to something that is not an object"),
}
COUNTED_HINT = "objects behind it on this list count as used"


class FreeListing(NamedTuple):
    """The owner of a followed list."""

    kind: int
    size_class: int
    place: int
    """Of the span, of the central list or of the thread cache, in their sequence."""
    expected: int
    """Objects by the counter that belongs to it."""
    slack: int
    """So many fewer or more it may have while a thread changes it."""


class TcmallocSurvey(NamedTuple):
    """Followed lists of one tcmalloc."""

    listings: Sequence[FreeListing]
    ends: Sequence[records.TcListEnd]
    frees: Frees
    tallies: SlotTallies


def survey_tcmalloc(tcmalloc: Tcmalloc, around: HeapContext, counts: TcmallocCounts, report: PartialSink) -> TcmallocSurvey:
    """Walk over what was counted, and report where the lists differ."""
    target, kernel = around.target, around.kernel
    lists, listings = _make_lists(tcmalloc, counts)
    most = sum(tally.objects for tally in counts.spans.tallies) + sum(listing.slack for listing in listings)
    has_followed, ends, frees = records.follow_objects(kernel, target.bulk_source(), True, lists, most, around.budget)
    survey = TcmallocSurvey(listings, ends, frees, make_tcmalloc_walker(counts, frees, around).tally())
    is_whole = has_followed and survey.tallies.is_whole
    if counts.spans.is_whole and not is_whole:
        report(codes.SPANS_CUT, None, "out of time before all lists were read", "raise --max-seconds or --max-stop")
    is_told = _report_lists(target, tcmalloc, counts, survey, report)
    if counts.spans.is_whole and is_whole and not is_told:
        report_contradictions(list(check_lists(counts, survey)), tcmalloc, target, counts.central, report)
    return survey


def make_tcmalloc_walker(counts: TcmallocCounts, frees: Frees, around: HeapContext) -> SlotWalker:
    """Over its objects."""
    source, runs = around.target.bulk_source(), counts.spans.runs
    return SlotWalker(around.kernel, source, runs, records.TC_CLASS_OF, records.TC_LABELS, around.budget, frees)


def _make_lists(tcmalloc: Tcmalloc, counts: TcmallocCounts) -> "Tuple[array[int], List[FreeListing]]":
    batch = tcmalloc.structure.sizes.batch
    columns = zip(*(counts.spans.column(name) for name in ("list", "objects", "size_class", "refcount", "start")))
    lists: List[records.TcFreeList] = []
    listings: List[FreeListing] = []
    for place, (head, objects, size_class, refcount, start) in enumerate(columns):
        if size_class and (head or objects != refcount):
            lists.append(records.TcFreeList(head, objects, records.TC_CENTRAL, start))
            listings.append(FreeListing(records.TC_CENTRAL, size_class, place, objects - refcount, 0))
    for place, row in enumerate(counts.central):
        count = batch[row.size_class]
        lists += [records.TcFreeList(head, count, records.TC_TRANSFER, 0) for head in row.batches]
        listings += [FreeListing(records.TC_TRANSFER, row.size_class, place, count, 0)] * len(row.batches)
    for place, cache in enumerate(counts.caches):
        for size_class, head, length in cache.lists:
            slack = 2 * batch[size_class]
            lists.append(records.TcFreeList(head, length + slack, records.TC_CACHED, 0))
            listings.append(FreeListing(records.TC_CACHED, size_class, place, length, slack))
    return array("Q", chain.from_iterable(lists)), listings


def _report_lists(target: Target, tcmalloc: Tcmalloc, counts: TcmallocCounts, survey: TcmallocSurvey, report: PartialSink) -> bool:
    """Reports lists that do not end, or hold what is no object; whether there is one."""
    broken = [end for end in survey.ends if end.problem]
    if not broken and not survey.tallies.problems:
        return False
    changing = is_changing(target, tcmalloc, counts.central)
    for end in broken:
        code, what = LIST_PROBLEMS[end.problem]
        report(codes.LISTS_CHANGING if changing else code, end.at, what, COUNTED_HINT)
    for problem in survey.tallies.problems:
        code, what, hint = codes.FREE_LIST_BROKEN, "a list of free objects holds an address that is no object's", "it is left out"
        if problem.code == SLOT_TWICE:
            code, what, hint = codes.FREED_TWICE, "this object is on lists of free objects more than once", "it was freed twice"
        report(codes.LISTS_CHANGING if changing else code, problem.address, what, hint)
    return True
