"""Adds up what each owner has: pieces of mappings in, parts of the split out."""

from typing import Dict, List, Optional, Tuple

from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.memory.attribute import Piece
from gdbheapx.analysis.memory.kinds import Owner
from gdbheapx.inferior.base import MappingUse
from gdbheapx.model import MemoryPart

MOST_NAMES = 20
"""Parts of one kind that are named; the smaller ones are put together, for a program may have a thousand memfds."""

FIELDS = ("swapped_bytes", "shared_bytes", "pss_bytes", "droppable_bytes", "huge_bytes", "hugetlb_bytes")


class Sum:
    """One owner's figures while they grow."""

    def __init__(self) -> None:
        self.taken_bytes = 0
        self.mappings = 0
        self.figures: Dict[str, Optional[int]] = dict.fromkeys(FIELDS, 0)

    def add(self, name: str, value: Optional[int]) -> None:
        """One unknown makes the sum unknown."""
        before = self.figures[name]
        self.figures[name] = None if before is None or value is None else before + value

    def join(self, other: "Sum") -> None:
        """Take in another owner's."""
        self.taken_bytes += other.taken_bytes
        self.mappings += other.mappings
        for name, value in other.figures.items():
            self.add(name, value)


class Tally:
    """Every owner's sum."""

    def __init__(self, measure: str) -> None:
        self._live = measure == "resident"
        self._sums: Dict[Owner, Sum] = {}

    def add(self, piece: Piece, use: MappingUse) -> None:
        """One owner's part of one mapping."""
        total = self._sums.setdefault(piece.owner, Sum())
        total.taken_bytes += piece.taken_bytes
        total.mappings += 1
        total.add("swapped_bytes", piece.swapped_bytes)
        if not self._live:
            return
        shared, pss = _shared_and_pss(piece, use)
        total.add("shared_bytes", shared)
        total.add("pss_bytes", pss)
        total.add("droppable_bytes", _droppable(piece, use))
        total.add("huge_bytes", _share(use.huge_bytes, piece, use))
        total.add("hugetlb_bytes", use.hugetlb_bytes if piece.owner.kind == kinds.HUGETLB else 0)

    def parts(self) -> List[MemoryPart]:
        """Largest first."""
        rows = sorted(_with_few_names(self._sums).items(), key=lambda row: (-row[1].taken_bytes, row[0]))
        return [self._part(owner, total) for owner, total in rows]

    def _part(self, owner: Owner, total: Sum) -> MemoryPart:
        figures = total.figures if self._live else dict.fromkeys(FIELDS, None)
        return MemoryPart(
            kind=owner.kind,
            name=owner.name,
            resident_bytes=total.taken_bytes if self._live else None,
            dumped_bytes=None if self._live else total.taken_bytes,
            mappings=total.mappings,
            allocator=owner.allocator,
            program=owner.program,
            sure=owner.sure,
            **figures,
        )


def _with_few_names(sums: Dict[Owner, Sum]) -> Dict[Owner, Sum]:
    """The smallest of many names of one kind become one part."""
    found: Dict[Owner, Sum] = {}
    seen: Dict[str, int] = {}
    for owner, total in sorted(sums.items(), key=lambda row: -row[1].taken_bytes):
        seen[owner.kind] = seen.get(owner.kind, 0) + 1
        key = owner if seen[owner.kind] <= MOST_NAMES else Owner(owner.kind, "other memory of kind %s, under many names" % owner.kind)
        if key in found:
            found[key].join(total)
        else:
            found[key] = total
    return found


def _share(value: Optional[int], piece: Piece, use: MappingUse) -> Optional[int]:
    """A figure of the whole mapping, divided by what each owner has of its Rss."""
    if value is None or value == 0 or piece.taken_bytes == use.resident_bytes:
        return value
    return value * piece.taken_bytes // (use.resident_bytes or 1)


def _shared_and_pss(piece: Piece, use: MappingUse) -> Tuple[Optional[int], Optional[int]]:
    """Of a file's mapping the private copies have the private pages first: they are mapped once, unless the process forked."""
    if use.shared_bytes is None or use.pss_bytes is None:
        return _share(use.shared_bytes, piece, use), _share(use.pss_bytes, piece, use)
    own = use.resident_bytes - use.shared_bytes
    copied = min(use.resident_bytes, use.anonymous_bytes or 0)
    if piece.owner.kind in kinds.FILE and copied <= own:
        if piece.owner.kind == kinds.COPIED:
            return 0, piece.taken_bytes
        return use.shared_bytes, max(0, use.pss_bytes - copied)
    return _share(use.shared_bytes, piece, use), _share(use.pss_bytes, piece, use)


def _droppable(piece: Piece, use: MappingUse) -> Optional[int]:
    """What the kernel may take without swap. Locked pages stay."""
    if use.flags is not None and "lo" in use.flags:
        return 0
    if piece.owner.kind == kinds.CACHE:
        return piece.taken_bytes
    if piece.owner.kind == kinds.SHARED:
        return 0
    return _share(use.lazy_free_bytes or 0, piece, use)
