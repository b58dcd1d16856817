"""What a setting would change before anybody restarts: of each allocator its own, and what is the same for all (huge pages, the size of
pages, a restart)."""

from typing import Annotated, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.effects import BOUNDED, EXACT, Effect
from gdbheapx.allocators.heap import Heap
from gdbheapx.allocators.returning import ALL
from gdbheapx.columns import BYTES, IF_ANY, TEXT, Column, hidden
from gdbheapx.inferior.base import MappingUse
from gdbheapx.ranges import union
from gdbheapx.session import Session

EVEN_BYTES, EVEN_SHARE = 256 << 10, 64
"""By so much, and by this part (1/EVEN_SHARE) of RSS, two runs of one program differ without any setting: pages of files that the kernel
maps around a fault, where the stack begins, addresses."""
PAGES_BYTES = (16 << 10, 64 << 10)
"""Sizes of pages that kernels are built with."""
MOST_READ_BYTES = 256 << 20
"""More than this is not read for zeros: it would be half of a stop."""


class Outcome(NamedTuple):
    """One setting, and the memory with it."""

    setting: Annotated[str, Column("setting", TEXT)]
    code: str
    allocator: Annotated[Optional[str], Column("allocator", TEXT, goes=2)]
    """Whose setting it is; None: it is for all memory."""
    kind: Annotated[str, Column("kind", TEXT, goes=3)]
    """`exact`: it follows from the heap as it is; `bounded`: it depends on time and order."""
    saves_least_bytes: Annotated[Optional[int], hidden()]
    """RSS falls by so much at least; below 0: it may rise. None: not known."""
    saves_most_bytes: Annotated[Optional[int], Column("saves at most", BYTES)]
    then_least_bytes: Annotated[Optional[int], Column("RSS then, least", BYTES)]
    """With what two runs differ by. None: not known."""
    then_most_bytes: Annotated[Optional[int], Column("most", BYTES)]
    is_in_force: Annotated[bool, Column("in force", TEXT, shown=IF_ANY)]
    """The process has it already, or it would change nothing."""
    why: Annotated[str, Column("rests on", TEXT, goes=1)]
    cost: Annotated[str, Column("cost", TEXT, goes=4)]


class WhatIf(NamedTuple):
    """The answer."""

    rss_bytes: Optional[int]
    """As it is; None on a core, which does not tell it."""
    peak_bytes: Optional[int]
    """The most that it ever was."""
    settings: Sequence[Outcome]
    """What may save most comes first."""


def what_if(session: Session) -> WhatIf:
    """Of all heaps."""
    use = session.target.memory_use()
    is_live = use is not None and use.measure == "resident"
    uses: Sequence[MappingUse] = use.mappings if use is not None and is_live else ()
    rss = sum(one.resident_bytes for one in uses) if is_live else None
    peak = use.peak_bytes if use is not None and is_live else None
    found: List[Tuple[Optional[str], Effect]] = []
    for heap in session.heaps.all():
        found += [(heap.info.id, effect) for effect in (*_returned(session, heap), *heap.what_if())]
    found += [(None, effect) for effect in (*_huge_pages(session, uses), *_pages(session, uses))]
    settings = [outcome(allocator, effect, rss, peak) for allocator, effect in found]
    return WhatIf(rss, peak, sorted(settings, key=lambda one: (one.is_in_force, -(one.saves_most_bytes or 0))))


def outcome(allocator: Optional[str], effect: Effect, rss: Optional[int], peak: Optional[int]) -> Outcome:
    """The memory that a process would have with a setting."""
    least, most = effect.least_bytes, effect.most_bytes
    if effect.may_peak and least is not None:
        least = None if rss is None or peak is None else min(least, rss - peak)
    low = high = None
    if rss is not None:
        even = EVEN_BYTES + rss // EVEN_SHARE
        low = None if most is None else max(0, rss - most - even)
        high = None if least is None else rss - least + even
    return Outcome(
        setting=effect.setting,
        code=effect.code,
        allocator=allocator,
        kind=effect.kind,
        saves_least_bytes=least,
        saves_most_bytes=most if rss is None or most is None else min(rss, most),
        then_least_bytes=low,
        then_most_bytes=high,
        is_in_force=effect.is_in_force,
        why=effect.why,
        cost=effect.cost,
    )


def _returned(session: Session, heap: Heap) -> List[Effect]:
    """What the heap gives back when it is asked to, unless the call would be refused."""
    way = heap.returning
    if way is None or not session.heaps.dry_run(heap):
        return []
    resident = heap.would_return(ALL).predicted.resident_bytes
    why = "whole free pages that are in RAM"
    if resident is None:
        why += ": which are is not known here"
    cost = "a page fault for each page that is used again"
    return [Effect(way.command, "gdbheapx %s" % way.command, EXACT, resident, resident, why, cost)]


def _huge_pages(session: Session, uses: Sequence[MappingUse]) -> List[Effect]:
    """What is in RAM only because huge pages come whole: pages of them that hold zeros. A program may have written zeros itself."""
    huge = [one for one in uses if one.huge_bytes and not one.mapping.is_file and not one.mapping.shared]
    setting, cost = "prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)", "a page fault for each page, and more misses of the TLB"
    if not huge:
        return []
    total = sum(one.huge_bytes or 0 for one in huge)
    zeros = _zeros(session, huge) if total <= MOST_READ_BYTES else None
    if zeros is None:
        why = "parts of huge pages that hold zeros: which these are was not read"
        return [Effect("huge-pages", setting, BOUNDED, 0, total, why, cost)]
    why = "pages of zeros in huge pages: at most they would not be in RAM; zeros that the program wrote stay"
    return [Effect("huge-pages", setting, BOUNDED, 0, zeros, why, cost)]


def _zeros(session: Session, huge: Sequence[MappingUse]) -> Optional[int]:
    """Bytes of pages in huge pages that hold zeros alone. Only what is in RAM is read: another page would come in by that."""
    page = session.target.page_bytes
    step = page * (page // 8)  # what one entry of the page table's second level maps
    pieces = []
    for one in huge:
        for start in range(-(-one.mapping.start // step) * step, one.mapping.end - step + 1, step):
            known = session.ram.of([(start, start + step)], False)
            if known is not None and known.huge_bytes == step:
                pieces.append((start, start + step))
    if session.ram.pages is None or not session.ram.pages.scans:
        return None
    written = session.kernel.written(session.target.bulk_source(), pieces, page, session.budget)
    if written.until is not None:
        return None
    return sum(end - start for start, end in pieces) - sum(end - start for start, end in zip(written.bounds[::2], written.bounds[1::2]))


def _pages(session: Session, uses: Sequence[MappingUse]) -> List[Effect]:
    """Larger pages come whole, too: of private memory, where it lies now."""
    page, made = session.target.page_bytes, []
    own = [one for one in uses if one.resident_bytes and not one.mapping.is_file and not one.mapping.shared]
    present = [(one, list(session.target.present_ranges(one.mapping.start, one.mapping.end))) for one in own]
    if not own or not all(ranges for _, ranges in present):
        return []
    for size in PAGES_BYTES:
        if size <= page:
            continue
        more = 0
        for one, ranges in present:
            wider = union([(max(one.mapping.start, start & -size), min(one.mapping.end, -(-end // size) * size)) for start, end in ranges])
            more += sum(end - start for start, end in wider) - sum(end - start for start, end in ranges)
        why = "private memory where it lies now, in whole pages of that size; files are left out"
        made.append(Effect("page-size", "a kernel with pages of %d KiB" % (size >> 10), EXACT, -more, -more, why, "fewer page faults"))
    return made
