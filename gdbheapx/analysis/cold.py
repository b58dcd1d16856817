"""Which blocks in use nobody has touched for a while, by what they are and who owns them: pages' ages joined with the blocks there."""

from array import array
from typing import Annotated, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census import by_owner, residency
from gdbheapx.columns import BYTES, IF_ANY, TEXT, Column
from gdbheapx.kernel.common.copy import KIND_RESIDENT, KIND_SWAPPED
from gdbheapx.session import Session

IDLE, WRITTEN = "idle", "written"
"""How the age of pages is known: whether they were read or written to, or only whether they were written to."""
STALE, KNOWN = KIND_RESIDENT, KIND_SWAPPED
"""Bits of a page in Ages: not touched; whether it was touched is known. The numbers are those that `residency.Pages` sums up."""
AGES = "ages of pages"
"""Where what was found before the stop is kept, among the constants of all looks."""
CLASS, OWNER, BOTH = "class", "owner", "both"
LOCKED = "lo"
"""Of VmFlags."""


class Ages(NamedTuple):
    """What was watched of a process's pages while it ran."""

    means: str
    """IDLE or WRITTEN."""
    watched_s: float
    page_bytes: int
    ranges: Sequence[Tuple[int, int, bytes]]
    """Start, end, and for each page bits of STALE and KNOWN."""


class ColdRow(NamedTuple):
    """Blocks that are alike, or have one owner."""

    stale_bytes: Annotated[Optional[int], Column("stale", BYTES)]
    """Of blocks all of whose pages are in RAM and were not touched; None: the age of no page is known."""
    stale_blocks: Annotated[Optional[int], Column("blocks", goes=2)]
    partly_stale_bytes: Annotated[Optional[int], Column("in part", BYTES, shown=IF_ANY, goes=3)]
    """Bytes on untouched pages of blocks that lie on other pages, too."""
    swapped_bytes: Annotated[Optional[int], Column("swapped", BYTES, shown=IF_ANY)]
    resident_bytes: Annotated[Optional[int], Column("resident", BYTES, goes=4)]
    locked_bytes: Annotated[Optional[int], Column("locked", BYTES, shown=IF_ANY, goes=5)]
    """In mappings that mlock keeps in RAM."""
    unknown_bytes: Annotated[int, Column("age unknown", BYTES, shown=IF_ANY, goes=1)]
    """Neither warm nor cold: on pages of which it is not known whether they were touched; what is not in RAM is among them."""
    bytes: Annotated[int, Column("in use", BYTES)]
    """Of all these blocks."""
    blocks: int
    signature: Annotated[Optional[str], Column("what", TEXT)]
    """As in `census`; None: not named, or rows by owner."""
    owner: Annotated[Optional[str], Column("held by", TEXT)]
    """As in `owners`; None: leaked, or rows by class."""


class Cold(NamedTuple):
    """The answer."""

    rows: Sequence[ColdRow]
    """Those with most stale bytes first."""
    totals: ColdRow
    by: str
    means: Optional[str]
    """None: no page was watched."""
    watched_s: Optional[float]


class _Sum:
    """What is counted for a row."""

    def __init__(self) -> None:
        self.blocks = self.bytes = self.stale_blocks = self.stale = self.partly = self.known = 0
        self.resident = self.swapped = self.locked = 0

    def add(self, size: int, aged: Tuple[int, int], held: Tuple[int, int], locked: int) -> None:
        """One block."""
        stale, known = aged
        self.blocks += 1
        self.bytes += size
        self.known += known
        self.resident += held[0]
        self.swapped += held[1]
        self.locked += locked
        if stale and stale == size:
            self.stale_blocks += 1
            self.stale += size
        else:
            self.partly += stale

    def row(self, has_ages: bool, has_pages: bool, has_locks: bool, signature: Optional[str], owner: Optional[str]) -> ColdRow:
        """As it is shown; what could not be known is None."""
        return ColdRow(
            stale_bytes=self.stale if has_ages else None,
            stale_blocks=self.stale_blocks if has_ages else None,
            partly_stale_bytes=self.partly if has_ages else None,
            swapped_bytes=self.swapped if has_pages else None,
            resident_bytes=self.resident if has_pages else None,
            locked_bytes=self.locked if has_locks else None,
            unknown_bytes=self.bytes - self.known,
            bytes=self.bytes,
            blocks=self.blocks,
            signature=signature,
            owner=owner,
        )


Looked = Callable[[int, int], Tuple[int, int]]
"""Two sums of bytes of a block, by its address and size."""


def nothing(address: int, size: int) -> Tuple[int, int]:
    """Where nothing is known of any page."""
    return 0, 0


def aged(ages: Ages) -> residency.Pages:
    """Of a block the bytes on untouched pages, and those on pages whose age is known."""
    known = {(start, end): kinds for start, end, kinds in ages.ranges}
    return residency.Pages(list(known), ages.page_bytes, lambda start, end: known[start, end], lambda start, end: None)


def _locks(session: Session, page_bytes: int) -> Optional[residency.Pages]:
    use = session.target.memory_use()
    if use is None:
        return None
    is_locked = {(one.mapping.start, one.mapping.end): LOCKED in (one.flags or ()) for one in use.mappings}

    def kinds(start: int, end: int) -> bytes:
        return bytes([KIND_RESIDENT if is_locked[start, end] else 0]) * ((end - start) // page_bytes)

    return residency.Pages([pair for pair, locked in is_locked.items() if locked], page_bytes, kinds, lambda start, end: None)


def find(session: Session, by: str) -> Cold:
    """Of one look, with the ages that were found before it. HeapxError where there is no room for the graph."""
    ages: Optional[Ages] = session.constants.get(AGES)
    seen: List[Tuple[Optional[residency.Pages], Optional[residency.Pages]]] = []
    page = session.target.page_bytes
    found = by_owner.blocks(session, True, lambda graph: seen.append((residency.pages(session), _locks(session, page))))
    pages, locks = seen[0] if seen else (None, None)
    graph, labels, names = found.told.reach.graph, found.told.labels, found.told.names
    addresses, sizes = graph.columns(array("I", range(len(found.owners))))
    of_age: Looked = nothing if ages is None else aged(ages).of
    of_page: Looked = nothing if pages is None else pages.of
    of_lock: Looked = nothing if locks is None else locks.of
    sums: Dict[Tuple[int, int], _Sum] = {}
    for number, (address, size, owner) in enumerate(zip(addresses, sizes, found.owners)):
        key = 0 if by == OWNER else labels[number], 0 if by == CLASS else owner
        if key not in sums:
            sums[key] = _Sum()
        sums[key].add(size, of_age(address, size), of_page(address, size), of_lock(address, size)[0])
    has_pages = pages is not None and pages.is_whole
    whole, rows = _Sum(), []
    for (label, owner), one in sums.items():
        signature = names[label - 1] if label else None
        called = None if by == CLASS else found.names[owner]
        rows.append(one.row(ages is not None, has_pages, locks is not None, None if signature is None else signature.name, called))
        for name, figure in vars(one).items():
            setattr(whole, name, getattr(whole, name) + figure)
    rows.sort(key=lambda row: (-(row.stale_bytes or 0), -(row.swapped_bytes or 0), -row.bytes))
    totals = whole.row(ages is not None, has_pages, locks is not None, None, None)
    return Cold(rows, totals, by, None if ages is None else ages.means, None if ages is None else ages.watched_s)
