"""How much of a target's anonymous memory an answer about blocks has looked at: what no reader knows may hold any number of them."""

from typing import Any, Dict, Iterable, NamedTuple, Optional, Sequence

from gdbheapx import problems
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.memory.attribute import Attribution, Piece, tell
from gdbheapx.analysis.split import Split
from gdbheapx.errors import HeapxError
from gdbheapx.hints import ask
from gdbheapx.inferior.base import MappingUse
from gdbheapx.kernel.blocks.graph import Sum
from gdbheapx.model import Address
from gdbheapx.session import Session
from gdbheapx.units import Said, Size, say, share

ENOUGH_PERCENT = 90
SMALL_BYTES = 1 << 20
"""Less than this without a reader is what the loader and small libraries map: it makes no answer partial."""
READ = frozenset((kinds.ALLOCATOR, kinds.RUNTIME))
UNREAD = frozenset((kinds.ANONYMOUS, kinds.BRK, kinds.NAMED))
"""Kinds of anonymous memory without a reader. Stacks, bss, generated code, files and shared memory are in neither."""
HINT = "blocks in there are missing from this answer: `%s` shows which allocators were found" % ask("doctor")


class Coverage(NamedTuple):
    """Anonymous memory in RAM or swap, or in the core, beside stacks, bss, generated code and shared memory."""

    anonymous_bytes: int
    read_bytes: int
    """Of allocators that were read, and of runtimes that are known."""
    largest: Optional[Address] = None
    """The largest mapping without a reader."""

    @property
    def is_low(self) -> bool:
        """A zero in the answer may be any number."""
        unread_bytes = self.anonymous_bytes - self.read_bytes
        return unread_bytes >= SMALL_BYTES and 100 * self.read_bytes < ENOUGH_PERCENT * self.anonymous_bytes

    def words(self) -> Said:
        """`looked at 8.0 KiB of 89.9 MiB (0 %)`."""
        read, whole = self.read_bytes, self.anonymous_bytes
        return say("looked at %s of %s (%s)", Size(read), Size(whole), share(read, whole))

    def document(self) -> Dict[str, Any]:
        """The member of an envelope."""
        percent = 1000 * self.read_bytes // self.anonymous_bytes / 10 if self.anonymous_bytes else 100.0
        return {"anonymous_bytes": self.anonymous_bytes, "read_bytes": self.read_bytes, "share_percent": percent}


def tell_coverage(session: Session) -> Optional[Coverage]:
    """Return the coverage of an answer about blocks; the answer is partial where it is low. None where it is unknown: of remote targets,
    of snapshots of earlier releases, and where one allocator alone is asked for."""
    try:
        coverage: Optional[Coverage] = session.kept("coverage", Optional[Coverage], lambda: measure(session))
    except HeapxError:
        if session.target.has_memory:
            raise
        coverage = None
    return note(session, coverage)


def note(session: Session, coverage: Optional[Coverage]) -> Optional[Coverage]:
    """Put it into the envelope, and among the problems if it is low."""
    if coverage is not None:
        session.coverage = coverage.document()
    if coverage is not None and coverage.is_low:
        unread = Size(coverage.anonymous_bytes - coverage.read_bytes)
        what = say("%s of anonymous memory belong to no allocator or runtime that is read here: %s", unread, coverage.words())
        session.problem(problems.MEMORY_UNREAD, None if coverage.largest is None else str(coverage.largest), what, HINT)
    return coverage


def measure(session: Session) -> Optional[Coverage]:
    """Return the coverage of a process or core that can be read now."""
    target, use = session.target, session.target.memory_use()
    if use is None or session.allocator_id is not None:
        return None
    claims = {heap.info.id: heap.claims() for heap in session.heaps.all()}
    told = tell(target, session.kernel, use, session.budget)
    return _sum(Attribution(target, session.kernel, told.use, claims, told.pages).pieces(), told.use.mappings)


def of_split(session: Session, split: Optional[Split]) -> Optional[Coverage]:
    """Return the coverage of memory that is split already."""
    if split is None or split.attribution is None or session.allocator_id is not None:
        return None
    made = _sum((piece for pieces in split.pieces.values() for piece in pieces), split.attribution.mappings)
    return session.kept("coverage", Optional[Coverage], lambda: made)


def _sum(pieces: Iterable[Piece], mappings: Sequence[MappingUse]) -> Coverage:
    read_bytes, unread_bytes, largest = 0, 0, (0, 0)
    for piece in pieces:
        size_bytes = piece.taken_bytes + (piece.swapped_bytes or 0)
        if piece.owner.kind in READ:
            read_bytes += size_bytes
        elif piece.owner.kind in UNREAD:
            unread_bytes += size_bytes
            largest = max(largest, (size_bytes, mappings[piece.place].mapping.start))
    return Coverage(read_bytes + unread_bytes, read_bytes, Address(largest[1]) if largest[0] else None)


def unless_zero(total: Optional[Sum], coverage: Optional[Coverage]) -> Optional[Sum]:
    """Return the sum; None for a sum of nothing where much was not read."""
    return None if total is not None and not total.blocks and coverage is not None and coverage.is_low else total


def counted(total: Optional[Sum], coverage: Optional[Coverage] = None) -> Dict[str, Optional[int]]:
    """Return blocks and bytes as JSON has them."""
    known = unless_zero(total, coverage)
    return {"blocks": None, "bytes": None} if known is None else {"blocks": known.blocks, "bytes": known.bytes}
