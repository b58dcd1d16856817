"""Made-up records for the verdicts: parts of memory, arenas and threads of both allocators, with nothing in them but what a test says."""

from typing import Any, List, Optional, Sequence

from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.memory.attribute import ThreadStacks
from gdbheapx.analysis.pins import PinRow, PinsAnswer
from gdbheapx.analysis.split import Split, SplitMemory
from gdbheapx.common.model import MemoryPart, TargetAddress, UnclaimedMapping
from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.inferior.base import Module
from gdbheapx.jemalloc.records import JemallocArena, JemallocBin, JemallocConditions, PublicNames, TickerArena, TickerReport, TickerThread

MB = 1 << 20
UNPREFIXED = PublicNames("", "MALLOC_CONF")
UNKNOWN_NAMES = PublicNames(None, None)


def part(kind: str, resident: Optional[int], **more: Any) -> MemoryPart:
    """One line of a split."""
    known = {"name": kind, "dumped_bytes": None, "swapped_bytes": 0, "shared_bytes": 0, "pss_bytes": resident, "droppable_bytes": 0, "huge_bytes": 0}
    known.update({"hugetlb_bytes": 0, "mappings": 1, "program": None, "sure": "certain"})
    known.update(more)
    known.setdefault("allocator", "glibc" if kind == kinds.ALLOCATOR else None)
    return MemoryPart(kind=kind, resident_bytes=resident, **known)  # type: ignore[arg-type]


def split(
    parts: Sequence[MemoryPart], pss: Optional[int] = None, unclaimed: bool = True, thread_stacks: Optional[ThreadStacks] = None, **sums: Any
) -> Split:
    """A split with these lines, and sums."""
    total = sum(one.resident_bytes or 0 for one in parts)
    mappings = [UnclaimedMapping(TargetAddress(0x7F0000000000), TargetAddress(0x7F0000100000), MB, None, 0)] if unclaimed else []
    memory = SplitMemory("resident", total, 0, 0, {}, 0, 0, 0, 0, 0, total if pss is None else pss, 0, 0, 0, 0, [], mappings, None, thread_stacks)
    return Split(list(parts), memory._replace(**sums))


def glibc_arena(index: int = 0, **fields: Any) -> ArenaTotals:
    """An arena of glibc."""
    row = ArenaTotals(*([0] * len(ArenaTotals._fields)))._replace(allocator="glibc", index=index, address=TargetAddress(0x1000), kind="thread" if index else "main")
    return row._replace(locked=False)._replace(**fields)


def jemalloc_arena(index: int = 0, **fields: Any) -> JemallocArena:
    """An arena of jemalloc."""
    row = JemallocArena("jemalloc", index, TargetAddress(0x1000 * index), "auto", *([0] * (len(JemallocArena._fields) - 4)))
    return row._replace(dirty_decay_ms=10000)._replace(**fields)


def pin_group(kept: int, blocks: int = 0, size: int = 0, **fields: Any) -> PinRow:
    """Blocks that keep so many bytes."""
    row = PinRow(*([None] * len(PinRow._fields)))._replace(module="", sure="", where="hole", places=1, alone_bytes=0, allocator="glibc", arenas=[0])
    row = row._replace(kept_bytes=kept, pins_blocks=blocks, pins_bytes=blocks * size, kept_for_each=kept / (blocks * size) if blocks else None)
    return row._replace(size_bytes=size or None, status="used" if blocks else None)._replace(**fields)


def pins_kept(*groups: PinRow) -> PinsAnswer:
    """All that is kept."""
    whole = sum(one.kept_bytes for one in groups)
    return PinsAnswer(whole, groups, [], has_owners=True, held_bytes=2 * whole, is_cut=False, may_be_stale=False)


def slabs(size: int, free: int, kind: str = "small") -> JemallocBin:
    """A size class with so many free bytes."""
    return JemallocBin("jemalloc", 0, 5, kind, size, size, 10, None, 1, size, 0, 0, free // size, free)


def conditions(**fields: Any) -> JemallocConditions:
    """A jemalloc whose background threads are off."""
    return JemallocConditions(UNPREFIXED, True, True, "default", False, False, 0, False, True)._replace(**fields)


def ticker_thread(verdict: str) -> TickerThread:
    """A thread with that verdict."""
    return TickerThread(allocator="jemalloc", lwp=7, name="worker", tsd=None, state="nominal", arena=1, ticks_left=None, verdict=verdict, row=8, why="", hint=None, allocated_bytes=None, deallocated_bytes=None)


def ticker_arena(index: int, verdict: str, dirty: int, **fields: Any) -> TickerArena:
    """An arena with that verdict, which holds so many unused bytes."""
    row = TickerArena(*([0] * len(TickerArena._fields)))._replace(allocator="jemalloc", index=index, kind="auto", verdict=verdict)
    return row._replace(why="its only thread is blind", dirty_bytes=dirty, muzzy_bytes=0)._replace(**fields)


def tickers(threads: Sequence[TickerThread], arenas: Sequence[TickerArena], affected: bool = True) -> TickerReport:
    """The answer of `tickers`."""
    return TickerReport(affected, list(threads), list(arenas), [])


def modules(*names: str) -> List[Module]:
    """Loaded files of these names."""
    return [Module(name, 0x1000, True, None, None) for name in names]
