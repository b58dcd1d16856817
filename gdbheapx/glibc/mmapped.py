"""Chunks with a mapping of their own: in no list, found by scanning, proven by mp_'s counters (malloc.c: sysmalloc_mmap)."""

from array import array
from typing import List, NamedTuple, Optional, Sequence

from gdbheapx.errors import UnreadableMemory
from gdbheapx.glibc import codes
from gdbheapx.glibc.context import Context, find_reaches, private_mappings, tell_unless_changing, unite_mappings
from gdbheapx.glibc.records import MmappedTotals
from gdbheapx.hints import hint_command
from gdbheapx.inferior.base import Mapping
from gdbheapx.kernel.glibc.records import MmappedChunks, MmappedFound, MmappedSearch
from gdbheapx.problems import Diagnostic
from gdbheapx.ranges import Range, subtract_ranges

MOST_LEFT_BYTES = 1 << 20
"""65,536 times that a block was remapped."""

MOST_GUARD_BYTES = 64 << 10
"""Memory that cannot be read is a reserve where it is larger, and no chunk begins there."""


class Mmapped(NamedTuple):
    """The mmapped chunks that were found."""

    chunks: MmappedChunks
    complete: bool
    """Their number and bytes are those of mp_.n_mmaps and mp_.mmapped_mem."""
    has_searched: bool = True
    """Wherever one can be, or until there were enough."""


def read_mmapped_counters(context: Context) -> Optional[MmappedTotals]:
    """mp_.n_mmaps and mp_.mmapped_mem; None, and a report, if mp_ cannot be read or one of the two contradicts the other."""
    try:
        mp = context.glibc.read_mp(context.target)
    except UnreadableMemory as problem:
        context.report(codes.MP_UNREADABLE, problem.address, "cannot read mp_", "mmapped chunks are not counted")
        return None
    chunks, bytes_ = mp["n_mmaps"], mp["mmapped_mem"]
    if chunks < 0 or not _is_consistent(context, chunks, bytes_):
        what = "mp_ counts %d mmapped chunks of %d bytes" % (chunks, bytes_)
        hint = "one of these counts is wrong, so mmapped chunks are unknown"
        changing = "mmapped chunks are being made or freed: mp_ is in the middle of a change"
        complaint = Diagnostic(codes.MP_DISAGREES, context.glibc.mp.address, what, hint)
        tell_unless_changing(context, [complaint], codes.MAPPED_CHANGING, changing)
        return None
    return MmappedTotals(chunks, bytes_)


def _is_consistent(context: Context, chunks: int, bytes_: int) -> bool:
    """Return True if both counters are 0, or both are positive with at least a page for each chunk. With 2.43 some bytes stay counted
    after blocks were remapped: two words for each time (is_ahead).
    """
    if not chunks:
        return not bytes_ or (context.glibc.traits.mmapped_trailer and bytes_ < MOST_LEFT_BYTES)
    return bytes_ >= chunks * context.glibc.geometry.page_bytes


def is_ahead(context: Context, counted: MmappedTotals) -> bool:
    """mp_.mmapped_mem is no number of whole pages: glibc 2.43 counts mremapped blocks too large, and only the blocks themselves tell by how
    much."""
    return context.glibc.traits.mmapped_trailer and bool((counted.bytes or 0) % context.glibc.geometry.page_bytes)


def find_mmapped_chunks(context: Context, heaps: Sequence[Range], counted: Optional[MmappedTotals]) -> Mmapped:
    """Every mmapped chunk, as many as `counters` says, outside the arenas' own ranges `heaps` and what other allocators hold; reports when
    they do not add up to mp_."""
    if counted is None or not counted.chunks or counted.bytes is None:
        return Mmapped(MmappedChunks(array("Q")), counted is not None)
    ranges = find_mmapped_ranges(context, heaps)
    data = context.target.data_ranges(sorted(ranges))
    ranges = ranges if data is None or data else []
    limits = find_reaches(context.target, ranges, sorted([*heaps, *context.others()]))
    trailer, pages = context.glibc.traits.mmapped_trailer, context.ram.pages
    search = MmappedSearch(trailer, counted.chunks, counted.bytes, pages, data or (), limits=limits)
    is_blind = _is_blind(context)
    scanned = context.walker.scan_mmapped(ranges, search._replace(most_pages=0 if is_blind else None))
    if not scanned.complete and not context.budget.expired():
        _report_missing(context, scanned, counted, ranges)
    return Mmapped(scanned.chunks, scanned.complete, not is_blind)


def _is_blind(context: Context) -> bool:
    """Return True if it is unknown which pages of the process were ever touched. Then only likely places of headers are read, because
    reading others changes the process.
    """
    return context.ram.pages is None and context.target.kind != "core"


def find_mmapped_ranges(context: Context, heaps: Sequence[Range]) -> List[Range]:
    """Return ranges where mmapped chunks can begin, smallest first, as a runtime's own are large. The first page of one may be protected
    by now, as a whole block may be, or as a guard is.
    """
    taken = sorted([*heaps, *context.others()])
    mappings = [mapping for mapping in private_mappings(context.target) if not _is_named(mapping.name)]
    plain = unite_mappings(mapping for mapping in mappings if mapping.readable and mapping.writable)
    others = unite_mappings(mapping for mapping in mappings if not (mapping.readable and mapping.writable) and _may_begin(mapping))
    left = subtract_ranges(sorted([*plain, *others]), taken)
    return sorted(left, key=lambda pair: (pair[1] - pair[0], pair))


def _may_begin(mapping: Mapping) -> bool:
    return mapping.readable or mapping.size_bytes <= MOST_GUARD_BYTES


def _is_named(name: str) -> bool:
    """The program has said what the memory is for (prctl PR_SET_VMA_ANON_NAME), and it is not malloc (glibc.mem.decorate_maps, 2.39)."""
    return name.startswith("[anon:") and "glibc: malloc" not in name


def _report_missing(context: Context, scanned: MmappedFound, counted: MmappedTotals, ranges: Sequence[Range]) -> None:
    text = "found %d mmapped chunks of %d bytes, mp_ counts %s of %s"
    what = text % (len(scanned.chunks), scanned.chunks.bytes, counted.chunks, counted.bytes)
    if _is_blind(context):
        why = "without /proc/PID/pagemap gdbheapx does not search for the others, because that would touch all memory"
        hint = why + ": run gdbheapx as root on the machine of the process"
        context.report(codes.MAPPED_NOT_SOUGHT, context.glibc.mp.address, what, hint)
        return
    hint = (
        "a header is damaged (`%s` shows where), or in memory that was not dumped" % hint_command("check")
        if context.target.kind == "core"
        else "a header is damaged (`%s` shows where), or in swap, or one was just being made or freed: then retry" % hint_command("check")
    )
    changing = "mmapped chunks are being made or freed: their number does not match mp_"
    complaint = Diagnostic(codes.MAPPED_MISSING, context.glibc.mp.address, what, hint)
    tell_unless_changing(context, [complaint], codes.MAPPED_CHANGING, changing)
