"""One look at all of a tcmalloc: its spans, every list of free objects, and what is left: the blocks in use."""

import struct
from array import array
from bisect import bisect_right
from collections import Counter
from itertools import chain, islice
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.records import HeapContext
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.blocks.slot_walker import SlotWalker
from gdbheapx.kernel.blocks.slots import SLOT_TWICE, Frees, SlotRun, SlotTallies
from gdbheapx.kernel.tcmalloc import records as api
from gdbheapx.kernel.tcmalloc import walkers
from gdbheapx.kernel.tcmalloc.records import FreeList, ListEnd, PageLeaf, SpanLayout, Spans
from gdbheapx.problems import Code, Report
from gdbheapx.ranges import subtract, union
from gdbheapx.tcmalloc import caches, codes
from gdbheapx.tcmalloc.caches import Caches, CentralList
from gdbheapx.tcmalloc.detect import Tcmalloc
from gdbheapx.tcmalloc.structure import PageMap

FATAL = (4, 6, 7, 8, 11)
"""Signals of a fault or of abort(): what a thread met inside tcmalloc was wrong before."""
FRAME_BYTES = 512
"""Of a stack's top, where a thread in a system call has the address that it returns to."""
PIECE_BYTES = 8 << 20
"""Metadata comes from the system in pieces of so much at most (kMetadataAllocChunkSize), of which what was not used yet leads nowhere."""
PAGE = 4096
TRIED_SPANS = 64
OF_SPANS: Dict[int, Tuple[Code, str]] = {
    api.SPAN_UNREADABLE: (codes.SPAN_UNREADABLE, "cannot read the span that a page leads to"),
    api.SPAN_WRONG: (codes.SPAN_WRONG, "this span has a length, a location or a size class that cannot be"),
    api.SPAN_LEAF: (codes.LEAF_UNREADABLE, "cannot read a leaf of the page map to its end"),
}
OF_LISTS: Dict[int, Tuple[Code, str]] = {
    api.LIST_UNREADABLE: (codes.FREE_LIST_UNREADABLE, "cannot read this free object, or its address is wrong"),
    api.LIST_LONG: (codes.FREE_LIST_BROKEN, "a list of free objects does not end where it should"),
    api.LIST_MISALIGNED: (codes.FREE_LIST_BROKEN, "a list of free objects leads to what is no object"),
}
CHANGING = "a thread was inside tcmalloc: retry to see whether it persists"
COUNTED = "what follows on this list counts as used"


class Listing(NamedTuple):
    """One list of free objects, and how it ended."""

    kind: int
    size_class: int
    place: int
    """Of the span, of the central list or of the thread cache, in their sequence."""
    expected: int
    """Objects by the counter that belongs to it."""
    slack: int
    """So many fewer or more it may have while a thread changes it."""


class Survey(NamedTuple):
    """All of it."""

    leaves: Sequence[PageLeaf]
    spans: Spans
    central: Sequence[CentralList]
    caches: Caches
    listings: Sequence[Listing]
    ends: Sequence[ListEnd]
    frees: Frees
    tallies: SlotTallies
    objects: "Counter[Tuple[int, int]]"
    """Free objects by (kind, size class)."""
    unmapped: Sequence[int]
    """Places of spans that lie in no memory of the process."""
    is_whole: bool
    is_changing: bool
    """A thread stands inside, or holds a lock."""


def leaves(target: Target, tcmalloc: Tcmalloc, report: Report) -> List[PageLeaf]:
    """Of the page map's root: each leaf once, in memory."""
    page_map = tcmalloc.structure.page_map
    data = target.read_prefix(page_map.root, 8 * page_map.root_words)
    if len(data) < 8 * page_map.root_words:
        what = "cannot read the root of the page map"
        report(codes.ROOT_UNREADABLE, page_map.root + len(data), what, "spans beyond are missing")
    size, memory = 8 << page_map.leaf_bits, union([(mapping.start, mapping.end) for mapping in target.mappings()])
    listed = [
        (at // 8 + place, address)
        for at in range(0, len(data), PAGE)
        if any(data[at : at + PAGE])
        for place, address in enumerate(array("Q", data[at : min(at + PAGE, len(data) // 8 * 8)]))
        if address
    ]
    often = Counter(address for _, address in listed)
    own = {address: _place_of(target, page_map, address) for address, count in often.items() if count > 1}
    found: List[PageLeaf] = []
    for place, address in listed:
        if own.get(address, place) != place or address % 8 or subtract([(address, address + size)], memory):
            what = "the page map leads to a leaf that is in no memory, or belongs to another place"
            report(codes.LEAF_BROKEN, page_map.root + 8 * place, what, "spans that it leads to are missing", target.kind == "live")
        else:
            found.append(PageLeaf(place, address))
    return found


def _place_of(target: Target, page_map: PageMap, leaf: int) -> Optional[int]:
    """The place of a leaf that the root has at several: that of the pages whose spans it leads to."""
    words = array("Q", target.read_prefix(leaf, 8 << page_map.leaf_bits))
    for at, span in islice(((at, span) for at, span in enumerate(words) if span), TRIED_SPANS):
        data = target.read_prefix(span, 8)
        start = int.from_bytes(data, "little")
        if len(data) == 8 and start & (1 << page_map.leaf_bits) - 1 == at:
            return start >> page_map.leaf_bits
    return None


def look(tcmalloc: Tcmalloc, around: HeapContext, report: Report) -> Survey:
    """The walk, which tells `report` what keeps its figures from being whole."""
    target, known, kernel = around.target, tcmalloc.structure, around.kernel
    source, page_map, sizes = target.bulk_source(), known.page_map, known.sizes.object_bytes
    layout = SpanLayout(1, page_map.page_shift, page_map.leaf_bits, page_map.page_bits)
    known_leaves = leaves(target, tcmalloc, report)
    spans = walkers.spans(kernel, source, layout, known_leaves, sizes, around.budget)
    spans, unmapped = _mapped(target, spans)
    central, threads = caches.central_lists(target, known, report), caches.thread_caches(target, known, report)
    changing = is_changing(target, tcmalloc, central)
    lists, listings = _lists(tcmalloc, spans, central, threads)
    most = sum(spans.column("objects")) + sum(listing.slack for listing in listings)
    followed = walkers.follow(kernel, source, True, lists, most, around.budget)
    ends = [followed.end(number) for number in range(len(listings))]
    frees = walkers.frees(kernel, followed)
    walker = walkers.slot_walker(kernel, source, spans.runs, frees, around.budget)
    tallies = walker.tally()
    is_whole = spans.is_whole and followed.is_whole and tallies.is_whole and threads.is_whole
    if not (spans.is_whole and followed.is_whole and tallies.is_whole):
        report(codes.SPANS_CUT, None, "out of time before all spans and lists were read", "raise --max-seconds or --max-stop")
    _tell_spans(target, spans, unmapped, report)
    told = _tell_lists(target, listings, ends, tallies, changing, report)
    objects = _objects(spans, sizes, frees) if tallies.problem_count else _counted(listings, ends)
    is_whole = is_whole and not (spans.problem_count or unmapped or told)
    survey = Survey(known_leaves, spans, central, threads, listings, ends, frees, tallies, objects, unmapped, is_whole, changing)
    return survey._replace(is_whole=_is_consistent(target, tcmalloc, survey, report)) if is_whole else survey


def _is_consistent(target: Target, tcmalloc: Tcmalloc, survey: Survey, report: Report) -> bool:
    """What it counts is what there is; else it is reported: as one moment, where a thread stands inside."""
    from gdbheapx.tcmalloc.accounts import contradictions

    found = list(contradictions(survey, stats(target, tcmalloc), tcmalloc.structure.page_map.stats))
    is_live = target.kind == "live"
    if found and survey.is_changing:
        _, address, what = found[0]
        more = " (and %d more like this)" % (len(found) - 1) if len(found) > 1 else ""
        report(codes.LISTS_CHANGING, address, what + more, CHANGING, is_live)
        return False
    for code, address, what in found:
        report(code, address, what, None, is_live)
    return not found


def _counted(listings: Sequence[Listing], ends: Sequence[ListEnd]) -> "Counter[Tuple[int, int]]":
    objects: Counter[Tuple[int, int]] = Counter()
    for listing, end in zip(listings, ends):
        objects[listing.kind, listing.size_class] += end.count
    return objects


def _objects(spans: Spans, sizes: Sequence[int], frees: Frees) -> "Counter[Tuple[int, int]]":
    """The same where lists hold what is no object, or one twice: each is looked up."""
    objects: Counter[Tuple[int, int]] = Counter()
    columns = [spans.column(name) for name in ("start", "size_class", "objects")]
    starts, before = columns[0], 0
    for address, kind in zip(frees.addresses, frees.kinds):
        place = bisect_right(starts, address) - 1
        if address == before or place < 0 or not columns[1][place]:
            continue
        number, rest = divmod(address - starts[place], sizes[columns[1][place]])
        if not rest and number < columns[2][place]:
            objects[kind, columns[1][place]] += 1
        before = address
    return objects


def walker_of(survey: Survey, around: HeapContext) -> SlotWalker:
    """Over its objects."""
    return walkers.slot_walker(around.kernel, around.target.bulk_source(), survey.spans.runs, survey.frees, around.budget)


def _mapped(target: Target, spans: Spans) -> Tuple[Spans, List[int]]:
    """Spans without those that lie in no memory of the process, and the places of these."""
    memory = union([(mapping.start, mapping.end) for mapping in target.mappings()])
    ranges = [(start, start + size) for start, size in zip(spans.column("start"), spans.column("bytes"))]
    outside = subtract(union(ranges), memory)
    if not outside:
        return spans, []
    bad = {place for place, (start, end) in enumerate(ranges) if any(start < last and first < end for first, last in outside[:1000])}
    width, run_width = len(api.TcSpan._fields), len(SlotRun._fields)
    addresses = {spans.column("address")[place] for place in bad}
    kept, runs = array("Q"), array("Q")
    for place in range(len(ranges)):
        if place not in bad:
            kept.extend(spans.spans[width * place : width * (place + 1)])
    base = SlotRun._fields.index("base")
    for at in range(0, len(spans.runs), run_width):
        if spans.runs[at + base] not in addresses:
            runs.extend(spans.runs[at : at + run_width])
    return spans._replace(spans=kept, runs=runs), sorted(ranges[place][0] for place in bad)


def _lists(tcmalloc: Tcmalloc, spans: Spans, central: Sequence[CentralList], threads: Caches) -> "Tuple[array[int], List[Listing]]":
    batch = tcmalloc.structure.sizes.batch
    columns = zip(*(spans.column(name) for name in ("list", "objects", "size_class", "refcount", "start")))
    rows = [
        (FreeList(head, objects, api.TC_CENTRAL, start), Listing(api.TC_CENTRAL, size_class, place, objects - refcount, 0))
        for place, (head, objects, size_class, refcount, start) in enumerate(columns)
        if size_class and (head or objects != refcount)
    ]
    for place, row in enumerate(central):
        count = batch[row.size_class]
        listing = Listing(api.TC_TRANSFER, row.size_class, place, count, 0)
        rows += [(FreeList(one.head, count, api.TC_TRANSFER, 0), listing) for one in row.batches]
    for place, cache in enumerate(threads.rows):
        for own in cache.lists:
            slack = 2 * batch[own.size_class]
            made = FreeList(own.head, own.length + slack, api.TC_CACHED, 0)
            rows.append((made, Listing(api.TC_CACHED, own.size_class, place, own.length, slack)))
    return array("Q", chain.from_iterable(made for made, _ in rows)), [listing for _, listing in rows]


def is_changing(target: Target, tcmalloc: Tcmalloc, central: Sequence[CentralList]) -> bool:
    """A thread stands in tcmalloc's code, or in a call that this made, or holds a lock, and not because it crashed there."""
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


def _tell_spans(target: Target, spans: Spans, unmapped: Sequence[int], report: Report) -> None:
    for problem in spans.problems:
        code, what = OF_SPANS[problem.code]
        report(code, problem.address, what, "the pages from 0x%x on are missing" % problem.page, target.kind == "live")
    for start in unmapped:
        what = "this span lies in no memory of the process"
        report(codes.SPAN_UNMAPPED, start, what, "it is left out", target.kind == "live")


def _tell_lists(
    target: Target,
    listings: Sequence[Listing],
    ends: Sequence[ListEnd],
    tallies: SlotTallies,
    changing: bool,
    report: Report,
) -> int:
    """Reports lists that do not end, or hold what is no object; how many."""
    is_live, told = target.kind == "live", 0

    def tell(code: Code, address: int, what: str, hint: str) -> None:
        report(codes.LISTS_CHANGING if changing else code, address, what, hint, is_live)

    for _, end in zip(listings, ends):
        if end.problem:
            code, what = OF_LISTS[end.problem]
            tell(code, end.at, what, COUNTED)
            told += 1
    for problem in tallies.problems:
        if problem.code == SLOT_TWICE:
            tell(codes.FREED_TWICE, problem.address, "this object is on lists of free objects more than once", "it was freed twice")
        else:
            tell(codes.FREE_LIST_BROKEN, problem.address, "a list of free objects holds an address that is no object's", "it is left out")
        told += 1
    return told


def metadata(tcmalloc: Tcmalloc, survey: Survey, target: Target) -> List[Tuple[int, int]]:
    """What holds spans, leaves and thread caches. No list has it: it is what lies around those, up to the next span, in the same memory."""
    page_map, cache_bytes = tcmalloc.structure.page_map, tcmalloc.structure.sizes.cache_bytes
    columns = [survey.spans.column(name) for name in ("address", "start", "bytes")]
    own = [(page, page + PAGE) for page in {address // PAGE * PAGE for address in columns[0]}]
    for leaf in survey.leaves:
        own.append((leaf.address // PAGE * PAGE, -(-(leaf.address + (8 << page_map.leaf_bits)) // PAGE) * PAGE))
    own += [(cache.address // PAGE * PAGE, -(-(cache.address + cache_bytes) // PAGE) * PAGE) for cache in survey.caches.rows]
    held = union([(start, start + size) for start, size in zip(*columns[1:])])
    pieces: List[Tuple[int, int]] = []
    known = sorted([*((start, end, True) for start, end in union(own)), *((start, end, False) for start, end in held)])
    last, was_own = 0, False
    for start, end, is_own in known:
        if last < start <= last + PIECE_BYTES and (is_own or was_own):
            pieces.append((last, start))
        if is_own:
            pieces.append((start, end))
        last, was_own = max(last, end), is_own
    memory = union([(mapping.start, mapping.end) for mapping in target.mappings() if mapping.writable and not mapping.is_file])
    data = [(start, end) for start, _, end in target.writable_segments(tcmalloc.module)]
    joined = union(pieces)
    return subtract(joined, union([*held, *subtract(joined, memory), *data]))


def stats(target: Target, tcmalloc: Tcmalloc) -> Tuple[int, ...]:
    """The page heap's own: bytes of all spans, of free ones, of returned ones; empty if they cannot be read."""
    data = target.read_prefix(tcmalloc.structure.page_map.stats, 24)
    return struct.unpack("<3Q", data) if len(data) == 24 else ()
