"""By how much each part of a process's memory grew from one look to a later one: in RAM (in a core: in bytes of the file), and in use."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.split import Memory
from gdbheapx.model import MemoryPart
from gdbheapx.snapshot.record import Outcome, Record

ALL, MALLOC, RSS = "all", "malloc", "rss"
"""What a limit can be set on: every part that grew; what is in use in allocators; the whole, where what fell counts against what grew."""
OF = (ALL, MALLOC, RSS)
RESIDENT, DUMPED = "resident", "dumped"
KIND_OF_ALLOCATOR = "allocator"
Key = Tuple[str, str, Optional[str]]
"""(kind, name, allocator) of a part."""


class Part(NamedTuple):
    """One part of the memory, such as an allocator, a runtime's pools, stacks."""

    what: str
    kind: str
    """As in the split of `report`."""
    allocator: Optional[str]
    diff_bytes: Optional[int]
    """Of a process in RAM, in swap or in huge pages, of a core in the file; None where it is not known of both by the same measure."""
    old_bytes: Optional[int]
    new_bytes: Optional[int]
    used_diff_bytes: Optional[int] = None
    """Of an allocator: in use, touched or not; None for other parts and where it is not known."""
    used_old_bytes: Optional[int] = None
    used_new_bytes: Optional[int] = None
    only: Optional[str] = None
    """`old` or `new`: the other one does not have it at all. None also where the two cannot be compared."""

    @property
    def grown_bytes(self) -> int:
        """The larger of the two, as far as it is known; never below 0."""
        return max(0, self.diff_bytes or 0, self.used_diff_bytes or 0)


class Growth(NamedTuple):
    """Of the whole, by part."""

    measure: Optional[str]
    """`resident` (two processes) or `dumped` (two cores); None: the two cannot be compared so."""
    all_bytes: Optional[int]
    """What all parts together grew by, those that fell left out; of an allocator the larger of what it has in RAM and in use."""
    malloc_bytes: Optional[int]
    """What is in use in all allocators; negative where it fell."""
    rss_bytes: Optional[int]
    """RSS, or the bytes of the core; negative where it fell."""
    parts: Sequence[Part]
    """The largest growth first, then what fell; those that did not change are left out."""
    lacking: Sequence[str]
    """Why something is unknown."""

    def of(self, what: str) -> Optional[int]:
        """What a limit is compared with; None where it is not known."""
        return {ALL: self.all_bytes, MALLOC: self.malloc_bytes, RSS: self.rss_bytes}[what]

    def at_least(self, what: str) -> int:
        """The growth that is certain whatever is unknown."""
        known = self.of(what)
        if known is not None:
            return known
        return sum(part.grown_bytes for part in self.parts) if what == ALL else 0


class Looked(NamedTuple):
    """One side."""

    measure: Optional[str]
    total_bytes: Optional[int]
    parts: Optional[Dict[Key, int]]
    used: Dict[str, int]
    """By allocator."""
    is_used_known: bool
    lacking: Sequence[str]


class Compared(NamedTuple):
    """Of what `report` found, what is compared."""

    memory: Optional[Memory]
    split: Optional[Sequence[MemoryPart]]


def growth(old: Record, new: Record) -> Growth:
    """From the one to the other."""
    by_name = old.head.has_names and new.head.has_names
    sides = [_side(name, record, by_name) for name, record in (("old", old), ("new", new))]
    before, after = sides
    lacking = [why for side in sides for why in side.lacking]
    measure = before.measure if before.measure == after.measure else None
    if measure is None and None not in (before.measure, after.measure):
        lacking.append("one is a process and one a core: bytes in RAM and bytes in a file cannot be compared")
    parts = _parts(before, after, measure is not None)
    is_used_known = before.is_used_known and after.is_used_known
    used = sum(after.used.values()) - sum(before.used.values()) if is_used_known else None
    rss = None
    if measure is not None and before.total_bytes is not None and after.total_bytes is not None:
        rss = after.total_bytes - before.total_bytes
    all_ = (
        sum(part.grown_bytes for part in parts) if measure is not None else None
    )  # what an allocator has in RAM is known without its heaps
    return Growth(measure, all_, used, rss, parts, lacking)


def _parts(old: Looked, new: Looked, is_comparable: bool) -> List[Part]:
    before, after = ((side.parts or {}) if is_comparable else {} for side in (old, new))
    keys: Dict[Key, None] = dict.fromkeys([*before, *after])
    with_part = {allocator for _, _, allocator in keys}
    for name in dict.fromkeys([*old.used, *new.used]):
        if name not in with_part:
            keys[KIND_OF_ALLOCATOR, name, name] = None
    parts = []
    for key in keys:
        kind, name, allocator = key
        was, now = (side.get(key, 0) if is_comparable else None for side in (before, after))
        only = None if not is_comparable or (key in before) == (key in after) else "old" if key in before else "new"
        is_known = old.is_used_known and new.is_used_known
        used_then, used_now = (side.used.get(allocator, 0) if is_known and allocator is not None else None for side in (old, new))
        parts.append(Part(name, kind, allocator, _less(was, now), was, now, _less(used_then, used_now), used_then, used_now, only))
    changed = [part for part in parts if part.diff_bytes or part.used_diff_bytes]
    return sorted(changed, key=lambda part: (-part.grown_bytes, part.diff_bytes or 0, part.what))


def _less(before: Optional[int], after: Optional[int]) -> Optional[int]:
    return None if before is None or after is None else after - before


def _side(side: str, record: Record, by_name: bool) -> Looked:
    """What a snapshot has of it: the split of `report`, the sums of the heaps."""
    lacking = []
    memory, rows = record.model("report", Compared) if "report" in record.models else Compared(None, None)
    parts = _split(rows or (), memory.measure == RESIDENT, by_name) if memory is not None else None
    if parts is None:
        why = record.outcomes.get("report", Outcome()).error or "it has no split of the memory"
        lacking.append("%s: memory outside malloc is unknown (%s)" % (side, why))
    unread = [allocator.id for allocator in record.head.allocators if allocator.layout is None]
    is_cut = record.outcomes.get("arenas", Outcome()).partial
    if unread or not record.head.heaps:
        why = "%s could not be read" % unread[0] if unread else "no allocator was read"
        lacking.append("%s: memory in use is unknown (%s)" % (side, why))
    elif is_cut:
        lacking.append("%s: the heaps were not read whole" % side)
    is_used_known = bool(record.head.heaps) and not unread and not is_cut
    used: Dict[str, int] = {}
    for heap in record.head.heaps:
        used[heap.allocator] = used.get(heap.allocator, 0) + heap.used_bytes
    total = None if memory is None else memory.total_bytes
    return Looked(memory.measure if memory is not None and parts is not None else None, total, parts, used, is_used_known, lacking)


def _split(rows: Sequence[MemoryPart], is_live: bool, by_name: bool) -> Optional[Dict[Key, int]]:
    """By part; None where there is none. Names that were replaced by numbers mean nothing elsewhere: then by kind alone. Memory in swap and
    in pages of hugetlbfs is not in RSS, and memory all the same."""
    sizes: Dict[Key, int] = {}
    for row in rows:
        size = row.resident_bytes if is_live else row.dumped_bytes
        if size is None:
            return None
        key = row.kind, row.name if by_name else row.kind, row.allocator
        beside = (row.swapped_bytes or 0) + (row.hugetlb_bytes or 0) if is_live else 0
        sizes[key] = sizes.get(key, 0) + size + beside
    return sizes or None
