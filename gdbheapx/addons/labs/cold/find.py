"""Find the blocks in use that were not touched for a while, by type and owner: the ages of pages joined with their blocks."""

from array import array
from bisect import bisect_left
from typing import Annotated, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.records import Page
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import owned
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.common.columns import BYTES, IF_ANY, TEXT, Column, ColumnsTable, columns_of
from gdbheapx.common.hints import hint_again
from gdbheapx.common.units import SentenceSize, count_noun, format_duration, format_share, make_sentence
from gdbheapx.kernel.blocks.graph import Graph
from gdbheapx.kernel.common.copy import KIND_RESIDENT, KIND_SWAPPED
from gdbheapx.kernel.common.library import address_of, native_job, take_rows

COLD_RESIDENT, COLD_SWAPPED, COLD_STALE, COLD_KNOWN, COLD_LOCKED, COLD_SEEN = 1, 2, 4, 8, 16, 32
"""Bits of a page: it is in RAM, in swap, was not touched while it was watched; whether it was touched is known; mlock keeps it in RAM;
whether it is in RAM or in swap is known."""
Span = Tuple[int, int, bytes]
"""Start and end of whole pages, and the bits of each."""
IDLE, WRITTEN = "idle", "written"
"""How the age of pages is known: whether they were read or written to, or only whether they were written to."""
STALE, KNOWN = COLD_STALE, COLD_KNOWN
"""Bits of a page in Ages."""
AGES = "ages of pages"
"""Where what was found before the stop is kept, among the constants of all looks."""
PAGES = "cold: pages"
"""What was known of pages when a snapshot's look began."""
CLASS, OWNER, BOTH = "class", "owner", "both"
LOCKED = "lo"
"""Of VmFlags."""
BITS = bytes({KIND_RESIDENT: COLD_RESIDENT, KIND_SWAPPED: COLD_SWAPPED}.get(kind, 0) | COLD_SEEN for kind in range(256))
"""By the kind of a page that owned.Pages has."""


class Ages(NamedTuple):
    """Ages of a process's pages, as watched while it ran."""

    means: str
    """IDLE or WRITTEN."""
    watched_s: float
    page_bytes: int
    ranges: Sequence[Tuple[int, int, bytes]]
    """Start, end, and for each page bits of STALE and KNOWN."""
    read_bytes: Optional[int] = None
    """Of stale pages so many bytes were read, it is not known which; None: reads are not known, or all are."""


class ColdSum(NamedTuple):
    """Blocks of one owner and one class."""

    owner: int
    label: int
    blocks: int
    bytes: int
    cold_blocks: int
    cold_bytes: int
    """Of blocks all of whose pages are stale or in swap."""
    partly_bytes: int
    """On such pages, of the other blocks."""
    known_bytes: int
    """On pages of which it is known whether they were touched: those in swap count, too."""
    resident_bytes: int
    swapped_bytes: int
    locked_bytes: int
    unseen_bytes: int
    """On pages of which that is not known."""


class ColdRow(NamedTuple):
    """Blocks that are alike, or have one owner."""

    cold_bytes: Annotated[Optional[int], Column("cold", BYTES)]
    """Of blocks all of whose pages were not touched while they were watched, or are in swap; None: nothing is known of their pages."""
    cold_blocks: Annotated[Optional[int], Column("blocks", goes=2)]
    partly_cold_bytes: Annotated[Optional[int], Column("in part", BYTES, shown=IF_ANY, goes=3)]
    """Bytes on such pages of blocks that lie on other pages, too."""
    swapped_bytes: Annotated[Optional[int], Column("swapped", BYTES, shown=IF_ANY)]
    resident_bytes: Annotated[Optional[int], Column("resident", BYTES, goes=4)]
    locked_bytes: Annotated[Optional[int], Column("locked", BYTES, shown=IF_ANY, goes=5)]
    """In mappings that mlock keeps in RAM."""
    unknown_bytes: Annotated[int, Column("age unknown", BYTES, shown=IF_ANY, goes=1)]
    """Neither warm nor cold: on pages in RAM of which it is not known whether they were touched, or that are nowhere."""
    bytes: Annotated[int, Column("in use", BYTES)]
    """Of all these blocks."""
    blocks: int
    signature: Annotated[Optional[str], Column("type", TEXT)]
    """As in `census`; None: not named, or rows by owner."""
    owner: Annotated[Optional[str], Column("held by", TEXT)]
    """As in `owners`; None: leaked, or rows by class."""


class ColdPart(NamedTuple):
    """Blocks of one class and one owner: what a snapshot keeps."""

    signature: Optional[str]
    owner: Optional[str]
    sums: ColdSum


class Cold(NamedTuple):
    """The answer."""

    rows: Sequence[ColdRow]
    """Those with most cold bytes first."""
    totals: ColdRow
    by: str
    means: Optional[str]
    """None: no page was watched, and only what is in swap is cold."""
    watched_s: Optional[float]
    read_bytes: Optional[int]
    """Of pages that were not written to: so many bytes were read, it is not known which. None: reads are not known, or are in the rows."""


class _Addresses(Sequence[int]):
    """Addresses of all blocks, ascending; for bisect."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._count = graph, graph.numbers().blocks

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number):  # type: ignore[no-untyped-def]
        return self._graph.blocks([number])[0][0]


def _combine_bits(bits: bytes, more: bytes) -> bytes:
    return (int.from_bytes(bits, "little") | int.from_bytes(more, "little")).to_bytes(len(bits), "little")


def apply_ages(start: int, end: int, bits: bytes, ages: Ages) -> bytes:
    """The bits of a mapping's pages, with what was watched of them."""
    made, page = bytearray(bits), ages.page_bytes
    for first, behind, kinds in ages.ranges:
        low, high = max(start, first), min(end, behind)
        if low < high:
            place = slice((low - start) // page, (high - start) // page)
            made[place] = _combine_bits(bytes(made[place]), kinds[(low - first) // page : (high - first) // page])
    return bytes(made)


def find_aged_spans(session: Session, ages: Optional[Ages], is_asked: Callable[[int, int], bool]) -> List[Span]:
    """Return the spans of the requested mappings, as they are now."""
    pages, use, page = owned.read_page_states(session), session.target.memory_use(), session.target.page_bytes
    made = []
    for one in () if use is None else use.mappings:
        start, end = one.mapping.start, one.mapping.end
        if not is_asked(start, end):
            continue
        told = pages.told(start, end) if pages is not None else None
        bits = bytes((end - start) // page) if told is None else told.translate(BITS)
        if LOCKED in (one.flags or ()):
            bits = _combine_bits(bits, bytes([COLD_LOCKED]) * len(bits))
        made.append((start, end, bits if ages is None else apply_ages(start, end, bits, ages)))
    return made


def of_blocks(session: Session, ages: Optional[Ages], graph: Graph) -> List[Span]:
    """Return the spans of the mappings in which blocks lie."""
    addresses = _Addresses(graph)

    def has_blocks(start: int, end: int) -> bool:
        at = bisect_left(addresses, start)
        reaches = at and sum(graph.blocks([at - 1])[0]) > start
        return bool(reaches) or (at < len(addresses) and addresses[at] < end)

    return find_aged_spans(session, ages, has_blocks)


def find_stopped_spans(session: Session) -> Optional[List[Span]]:
    """Return the spans of all mappings with a part in RAM or in swap, before the snapshot releases the process. None: nothing is in swap,
    and then pages without a watch have no age.
    """
    use = session.target.memory_use()
    if use is None or not any(one.swapped_bytes for one in use.mappings):
        return None
    there = {one.mapping.start for one in use.mappings if one.resident_bytes or one.swapped_bytes}
    return find_aged_spans(session, None, lambda start, end: start in there)


def make_cold_row(found: ColdSum, signature: Optional[str], owner: Optional[str]) -> ColdRow:
    """Make the row that is shown; a value that could not be known is None."""
    is_seen, has_ages = not found.unseen_bytes, bool(found.known_bytes)
    return ColdRow(
        cold_bytes=found.cold_bytes if is_seen or has_ages else None,
        cold_blocks=found.cold_blocks if is_seen or has_ages else None,
        partly_cold_bytes=found.partly_bytes if is_seen or has_ages else None,
        swapped_bytes=found.swapped_bytes if is_seen else None,
        resident_bytes=found.resident_bytes if is_seen else None,
        locked_bytes=found.locked_bytes if is_seen else None,
        unknown_bytes=found.bytes - found.known_bytes,
        bytes=found.bytes,
        blocks=found.blocks,
        signature=signature,
        owner=owner,
    )


def sum_cold(
    library: Any, graph: Graph, owners: "Optional[array[int]]", labels: "Optional[array[int]]", spans: Sequence[Span], page_bytes: int
) -> List[ColdSum]:
    """array('I') of a number for each block; None: all have 0. `spans`: ascending, without overlap. Where the graph's budget expires, of
    the first blocks alone. MemoryError."""
    blocks = graph.numbers().blocks
    if any(some is not None and len(some) < blocks for some in (owners, labels)):
        raise ValueError("a number for each block")
    if page_bytes & (page_bytes - 1):
        raise ValueError("a page is a power of two")
    bounds, kinds = array("Q"), bytearray()
    for start, end, some in spans:
        if len(some) * page_bytes != end - start or (bounds and start < bounds[-2]):
            raise ValueError("the bits of each page of ascending spans")
        bounds.extend((start, end, len(kinds)))
        kinds += some
    places = [None if some is None else address_of(some) for some in (owners, labels)]
    told = array("B", kinds)
    work = library.heapx_cold_new(graph.handle, *places, address_of(bounds), len(spans), address_of(told), page_bytes)
    with native_job(work, library.heapx_cold_free):
        graph.run(lambda seconds: library.heapx_cold_slice(work, seconds), lambda: int(library.heapx_cold_done(work)), blocks)
        width = len(ColdSum._fields)
        out = take_rows(lambda where, room: library.heapx_cold_found(work, where, room), width)
        return [ColdSum(*out[first : first + width]) for first in range(0, len(out), width)]


def sum_cold_bytes(some: Sequence[ColdSum]) -> ColdSum:
    """Return the sum of all of them."""
    return ColdSum(*map(sum, zip(*some))) if some else ColdSum(*[0] * len(ColdSum._fields))


def _find_parts(session: Session, ages: Optional[Ages]) -> List[ColdPart]:
    """Find the parts of one snapshot of the heap. HeapxError where there is no room for the graph."""
    seen: List[List[Span]] = [session.shared(PAGES)] if session.shared(PAGES) is not None else []
    found = owned.find_owned_blocks(session, True, lambda graph: None if seen else seen.append(of_blocks(session, ages, graph)))
    told, names = found.told, found.told.names
    spans_, page = seen[-1] if seen else (), session.target.page_bytes
    session.budget.progress.stage = "adding up the blocks of each page"
    sums = sum_cold(session.kernel.library, told.reach.graph, found.owners, told.labels, spans_, page)
    heap_graph.check_time(session)
    alike: Dict[Tuple[Optional[str], Optional[str]], List[ColdSum]] = {}
    for one in sums:
        signature = names[one.label - 1] if one.label else None
        alike.setdefault((None if signature is None else signature.name, found.names[one.owner]), []).append(one)
    return [ColdPart(*called, sum_cold_bytes(some)) for called, some in alike.items()]


def find_cold(session: Session, by: str) -> Cold:
    """Find cold memory, with the ages that were found before the process was stopped. HeapxError where there is no room for the graph."""
    ages: Optional[Ages] = session.constants.get(AGES)
    parts: Sequence[ColdPart] = session.kept("cold", List[ColdPart], lambda: _find_parts(session, ages))
    alike: Dict[Tuple[Optional[str], Optional[str]], List[ColdSum]] = {}
    for part in parts:
        called = None if by == OWNER else part.signature, None if by == CLASS else part.owner
        alike.setdefault(called, []).append(part.sums)
    rows = [make_cold_row(sum_cold_bytes(some), *called) for called, some in alike.items()]
    rows.sort(key=lambda one: (-(one.cold_bytes or 0), -(one.partly_cold_bytes or 0), -one.bytes))
    watched = (None, None, None) if ages is None else (ages.means, ages.watched_s, ages.read_bytes)
    return Cold(rows, make_cold_row(sum_cold_bytes([part.sums for part in parts]), None, None), by, *watched)


MOST_ROWS = 20
MEANS = {
    IDLE: "Measured by idle page tracking: reads and writes.",
    WRITTEN: "Measured by write protection: includes memory that was only read (--reads counts that by mapping).",
}
ACCESSES = "Measured by write protection and the kernel's marks of accesses: reads and writes."
SWAPPED = "%s in swap, untouched since the kernel swapped it out"
BESIDE = "One hot block makes its whole page look hot, so this is a lower bound."
READ = "Measured by write protection; %s of the pages without a write were read (unknown which): at least %s was neither."
UNWATCHED = "Memory in RAM was not watched: add --for SECONDS"
UNKNOWN = "Age unknown: %s, on pages that are not in RAM, were mapped while watching, or are shared"


def make_cold_data(cold: Cold, limit: Optional[int]) -> Dict[str, Any]:
    """The `data` member."""
    return {**cold._asdict(), "rows": list(cold.rows[:limit]), "rows_in_all": len(cold.rows)}


def make_cold_page(cold: Cold, limit: Optional[int]) -> Page:
    """The sum, by what means it is known, and the rows."""
    whole = cold.totals
    is_watched, has_swap = cold.means is not None, whole.swapped_bytes != 0
    tells_reads = cold.means == IDLE or cold.read_bytes == 0
    if whole.cold_bytes is None:
        yield make_sentence(
            "In use: %s in %s; the age of their pages is unknown", SentenceSize(whole.bytes), count_noun(whole.blocks, "block")
        )
    elif not is_watched and not has_swap:
        yield make_sentence("In swap: 0 B of %s in use", SentenceSize(whole.bytes))
    else:
        how = "Untouched for %s" if tells_reads else "Not written to for %s"
        ways = [how % format_duration(cold.watched_s or 0), "or wholly in swap"] if is_watched else ["Wholly in swap"]
        of, blocks = format_share(whole.cold_bytes, whole.bytes), count_noun(whole.cold_blocks or 0, "block")
        said = " ".join(ways if has_swap else ways[:1])
        yield make_sentence("%s: %s of %s in use (%s), in %s", said, SentenceSize(whole.cold_bytes), SentenceSize(whole.bytes), of, blocks)
    if cold.read_bytes:
        yield make_sentence(READ, SentenceSize(cold.read_bytes), SentenceSize(max(0, (whole.cold_bytes or 0) - cold.read_bytes)))
    else:
        yield UNWATCHED if cold.means is None else ACCESSES if cold.read_bytes == 0 else MEANS[cold.means]
    if whole.swapped_bytes:
        yield make_sentence(SWAPPED, SentenceSize(whole.swapped_bytes))
    if whole.cold_bytes:
        yield BESIDE
    if whole.unknown_bytes and is_watched:
        yield make_sentence(UNKNOWN, SentenceSize(whole.unknown_bytes))
    if not is_watched and not has_swap:
        return  # no row would say anything
    shown = cold.rows[: MOST_ROWS if limit is None else limit]
    if shown:
        yield ""
        rows = []
        for row in shown:
            signature = "(all)" if cold.by == OWNER else row.signature or "not named"
            rows.append({**row._asdict(), "signature": signature, "owner": "(all)" if cold.by == CLASS else row.owner or "leaked"})
        yield ColumnsTable(columns_of(ColdRow), rows)
    if len(shown) < len(cold.rows):
        yield "%s: %s" % (count_noun(len(cold.rows) - len(shown), "more row"), hint_again("--limit %d", len(cold.rows)))
