"""The rows of a census as they are asked for: by what blocks are, by whose they are, or by size; all, or those like a name."""

from typing import Dict, List, Optional, Sequence, Tuple

from gdbheapx.analysis.census.find import Census, CensusRow
from gdbheapx.session import Session

SIGNATURE, MODULE, SIZE = "signature", "module", "size"


def rows(session: Session, found: Census, by: str, like: Optional[str]) -> List[CensusRow]:
    """The rows. `like`: a part of what they are called, small and large letters alike."""
    chosen = [row for row in found.rows if like is None or like.lower() in (row.signature or "not named").lower()]
    if by == MODULE:
        return _by_module(chosen, found.bytes)
    return session.kept("census by size", List[CensusRow], lambda: _by_size(session)) if by == SIZE else chosen


def _by_module(chosen: Sequence[CensusRow], whole: int) -> List[CensusRow]:
    sums: Dict[str, Tuple[int, int, CensusRow]] = {}
    for row in chosen:
        blocks, total, first = sums.get(row.module, (0, 0, row))
        sums[row.module] = (blocks + row.blocks, total + row.bytes, first)
    found = [
        first._replace(
            signature=None,
            sure="",
            size_bytes=None,
            blocks=blocks,
            bytes=total,
            share_percent=round(100.0 * total / whole, 1) if whole else 0.0,
        )
        for blocks, total, first in sums.values()
    ]
    return sorted(found, key=lambda row: -row.bytes)


def _by_size(session: Session) -> List[CensusRow]:
    """Of malloc's blocks alone, with their headers, as `chunks --histogram` has them: what runtimes cut up themselves has no such sizes."""
    whole = sum(row.used_bytes for heap in session.heaps.all() for row in heap.histogram())
    found = [
        CensusRow(
            signature=None,
            module="",
            sure="",
            size_bytes=row.max_size_bytes,
            blocks=row.used_chunks,
            bytes=row.used_bytes,
            share_percent=round(100.0 * row.used_bytes / whole, 1) if whole else 0.0,
            sample=None,
        )
        for heap in session.heaps.all()
        for row in heap.histogram()
        if row.used_chunks
    ]
    return sorted(found, key=lambda row: -row.bytes)
