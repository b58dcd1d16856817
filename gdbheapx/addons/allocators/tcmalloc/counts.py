"""What a tcmalloc counts: spans by their refcounts, central lists, transfer caches, thread caches. No list of free objects is followed."""

import struct
from array import array
from collections import Counter
from itertools import islice
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.allocators.tcmalloc import accounts, caches, codes, walkers
from gdbheapx.addons.allocators.tcmalloc import native_records as api
from gdbheapx.addons.allocators.tcmalloc.accounts import Contradiction
from gdbheapx.addons.allocators.tcmalloc.caches import Caches, CentralList
from gdbheapx.addons.allocators.tcmalloc.detect import Tcmalloc
from gdbheapx.addons.allocators.tcmalloc.native_records import PageLeaf, SpanLayout, SpanRange, Spans, SpanTally
from gdbheapx.addons.allocators.tcmalloc.structure import PageMap
from gdbheapx.allocators.records import HeapContext
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.blocks.slots import SlotRun
from gdbheapx.problems import Code, Report
from gdbheapx.ranges import subtract, union
from gdbheapx.units import number

FATAL = (4, 6, 7, 8, 11)
"""Signals of a fault or of abort(): what a thread met inside tcmalloc was wrong before."""
FRAME_BYTES = 512
"""Of a stack's top, where a thread in a system call has the address that it returns to."""
PIECE_BYTES = 8 << 20
"""Metadata comes from the system in pieces of so much at most (kMetadataAllocChunkSize), of which what was not used yet leads nowhere."""
PAGE = 4096
EMPTY = bytes(PAGE)
TRIED_SPANS = 64
OF_SPANS: Dict[int, Tuple[Code, str]] = {
    api.SPAN_UNREADABLE: (codes.SPAN_UNREADABLE, "cannot read the span that a page points to"),
    api.SPAN_WRONG: (codes.SPAN_WRONG, "this span has a length, a location or a size class that cannot be"),
    api.SPAN_LEAF: (codes.LEAF_UNREADABLE, "cannot read a leaf of the page map to its end"),
}
CHANGING = "a thread was inside tcmalloc: retry to see whether it persists"


class Counts(NamedTuple):
    """All of it."""

    leaves: Sequence[PageLeaf]
    spans: Spans
    central: Sequence[CentralList]
    caches: Caches
    objects: "Counter[Tuple[int, int]]"
    """Free objects by (kind, size class)."""
    is_whole: bool

    def used_objects(self, size_class: int) -> int:
        """What is out of its spans, and in no cache."""
        tally = self.spans.tallies[size_class]
        return max(0, tally.objects - sum(self.objects[kind, size_class] for kind in (api.TC_CENTRAL, api.TC_TRANSFER, api.TC_CACHED)))


def count(tcmalloc: Tcmalloc, around: HeapContext, report: Report) -> Counts:
    """One look, which tells `report` what keeps its figures from being whole."""
    target, known, kernel = around.target, tcmalloc.structure, around.kernel
    page_map, batch = known.page_map, known.sizes.batch
    layout = SpanLayout(1, page_map.page_shift, page_map.leaf_bits, page_map.page_bits)
    known_leaves = leaves(target, tcmalloc, report)
    spans = walkers.spans(kernel, target.bulk_source(), layout, known_leaves, known.sizes.object_bytes, around.budget)
    spans, unmapped = _mapped(target, spans)
    central, threads = caches.central_lists(target, known, report), caches.thread_caches(target, known, report)
    objects = Counter({(api.TC_CENTRAL, number): tally.listed for number, tally in enumerate(spans.tallies[: api.SIZE_CLASSES])})
    for row in central:
        objects[api.TC_TRANSFER, row.size_class] += len(row.batches) * batch[row.size_class]
    for cache in threads.rows:
        for own in cache.lists:
            objects[api.TC_CACHED, own.size_class] += own.length
    if not spans.is_whole:
        report(codes.SPANS_CUT, None, "out of time before all spans were read", "raise --max-seconds or --max-stop")
    _tell_spans(target, spans, unmapped, report)
    is_whole = spans.is_whole and threads.is_whole and not (spans.problem_count or unmapped)
    counts = Counts(known_leaves, spans, central, threads, objects, is_whole)
    if not is_whole:
        return counts
    found = list(accounts.of_counts(counts, stats(target, tcmalloc), known))
    return counts._replace(is_whole=not found) if tell(found, tcmalloc, target, central, report) else counts


def tell(
    found: Sequence[Contradiction], tcmalloc: Tcmalloc, target: Target, central: Sequence[CentralList], report: Report
) -> Sequence[Contradiction]:
    """Report contradictions: as one moment, where a thread stands inside."""
    is_live = target.kind == "live"
    if found and is_changing(target, tcmalloc, central):
        _, address, what = found[0]
        more = " (and %s more like this)" % number(len(found) - 1) if len(found) > 1 else ""
        report(codes.LISTS_CHANGING, address, what + more, CHANGING, is_live)
        return found
    for code, address, what in found:
        report(code, address, what, None, is_live)
    return found


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
        if data[at : at + PAGE] != EMPTY
        for place, address in enumerate(array("Q", data[at : min(at + PAGE, len(data) // 8 * 8)]))
        if address
    ]
    often = Counter(address for _, address in listed)
    own = {address: _place_of(target, page_map, address) for address, count in often.items() if count > 1}
    found: List[PageLeaf] = []
    for place, address in listed:
        if own.get(address, place) != place or address % 8 or subtract([(address, address + size)], memory):
            what = "the page map points to a leaf that is in no memory, or belongs to another place"
            report(codes.LEAF_BROKEN, page_map.root + 8 * place, what, "spans in it are missing", target.kind == "live")
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


def _mapped(target: Target, spans: Spans) -> Tuple[Spans, List[int]]:
    """Spans without those that lie in no memory of the process, and where these begin."""
    memory = union([(mapping.start, mapping.end) for mapping in target.mappings()])
    outside = subtract(spans.held, memory)
    if not outside:
        return spans, []
    ranges = [(start, start + size) for start, size in zip(spans.column("start"), spans.column("bytes"))]
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
    tallies, held = _count_spans(kept)
    return spans._replace(spans=kept, runs=runs, tallies=tallies, held=held), sorted(ranges[place][0] for place in bad)


def _count_spans(rows: "array[int]") -> Tuple[List[SpanTally], List[SpanRange]]:
    """Return the sums and the joined ranges of spans: TcSpan, row by row."""
    sums, width = [[0] * len(SpanTally._fields) for _ in range(api.LABELS)], len(api.TcSpan._fields)
    spans = [api.TcSpan._make(rows[at : at + width]) for at in range(0, len(rows), width)]
    for span in spans:
        out_of_use = {api.SPAN_ON_NORMAL: api.TC_FREE_LABEL, api.SPAN_ON_RETURNED: api.TC_RETURNED_LABEL}
        listed = max(0, span.objects - span.refcount) if span.size_class else 0
        own = sums[out_of_use.get(span.location, span.size_class)]
        own[:] = [before + more for before, more in zip(own, (1, span.bytes, span.objects, listed))]
    held = union((span.start, span.start + span.bytes) for span in spans)
    return [SpanTally(*row) for row in sums], [SpanRange(*row) for row in held]


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


def metadata(tcmalloc: Tcmalloc, counts: Counts, target: Target) -> List[Tuple[int, int]]:
    """What holds spans, leaves and thread caches. No list has it: it is what lies around those, up to the next span, in the same memory."""
    page_map, cache_bytes = tcmalloc.structure.page_map, tcmalloc.structure.sizes.cache_bytes
    own = [(page, page + PAGE) for page in {address & -PAGE for address in counts.spans.column("address")}]
    for leaf in counts.leaves:
        own.append((leaf.address // PAGE * PAGE, -(-(leaf.address + (8 << page_map.leaf_bits)) // PAGE) * PAGE))
    own += [(cache.address // PAGE * PAGE, -(-(cache.address + cache_bytes) // PAGE) * PAGE) for cache in counts.caches.rows]
    held = counts.spans.held
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
