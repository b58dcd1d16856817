"""The plans of a purge and of the cure of blind threads."""

from typing import Any, Callable, List, Mapping, Optional, Sequence

from gdbheapx.allocators.plan import FUTEX, CurePlan, Held, Plan, Span, Suspect, SystemCall, Troubles, in_time
from gdbheapx.allocators.predicted import Predicted, total
from gdbheapx.allocators.records import HeapContext
from gdbheapx.errors import Refusal
from gdbheapx.inferior.standing import Standing
from gdbheapx.jemalloc.detection import layouts
from gdbheapx.jemalloc.detection.detect import Jemalloc
from gdbheapx.jemalloc.messages.tickers import TickersAnswer
from gdbheapx.jemalloc.plan import code, hooks, locks
from gdbheapx.jemalloc.plan.purge_answer import unused_pages
from gdbheapx.jemalloc.purging.tickers import BACKGROUND_NAME, BLIND, UNKNOWN
from gdbheapx.jemalloc.records import JemallocArena, TickerReport
from gdbheapx.model import AllocatorInfo
from gdbheapx.problems import NOT_FOUND, Report

ALL = 4096
"""MALLCTL_ARENAS_ALL (jemalloc_macros.h.in), the same in every release of 5."""
WAITS = ("futex", "restart_syscall")
"""What a background thread sleeps in between two rounds."""
BYPASS = "arenas_tdata_bypass"

DONTNEED, FREE, OTHER_ADVICE = 4, 8, (14, 15, 16, 17)
"""MADV_...: HUGEPAGE, NOHUGEPAGE, DONTDUMP and DODUMP only tune."""
SYSTEM_CALLS = (
    SystemCall("madvise", (None, None, DONTNEED)),
    SystemCall("madvise", (None, None, FREE)),
    *(SystemCall("madvise", (None, None, advice), may_fail=True) for advice in OTHER_ADVICE),
    SystemCall("munmap"),
    SystemCall("mmap", may_fail=True),
    SystemCall("mprotect", may_fail=True),
    SystemCall("sched_yield", (), may_fail=True),
    SystemCall("clock_gettime", ()),
    *FUTEX,
)
"""What pages.c, mutex.c, nstime.c and spin.h may make for a purge: extents are merged, their records come from new pages; the time comes
from the kernel only where the vDSO has none."""

Open = Callable[[Report], Any]
"""Gives a JemallocMalloc that has read nothing yet: the process ran meanwhile."""


def check_names(found: Jemalloc) -> None:
    """Refusal if global locks cannot be seen: a call could wait for ever for one that a stopped thread holds."""
    if found.symbols.by_structure:
        raise Refusal(
            "jemalloc in %s was found by its structure alone, which does not show its global locks" % found.module.name,
            "give its debug file or a pack of this build (--debug-dir DIR, --symbols DIR); where there is none, as for most wheels, "
            "only the program itself can purge, and jemalloc does so over time by its decay",
        )


def spans(around: HeapContext, found: Jemalloc) -> List[Span]:
    """The code of this jemalloc; Refusal if it is not known."""
    known = code.spans(around.target, found.module, found.symbols.prefix, found.symbols.public_names.prefix)
    if known is None:
        raise Refusal(
            "jemalloc's functions in %s were not found, so gdbheapx cannot determine whether a thread is inside one" % found.module.name
        )
    return known


class Purge(Plan):
    """mallctl("arena.<i>.purge") or "arena.<i>.decay" of one jemalloc; `arena` None: all."""

    system_calls = SYSTEM_CALLS
    warming = b"version\0"
    """CTL_RO_NL_GEN (ctl.c): takes no lock and bears null for what it would fill, which others, such as arenas.narenas up to 5.2.1, do
    not."""

    def __init__(self, around: HeapContext, found: Jemalloc, open_anew: Open, arena: Optional[int], what: str) -> None:
        self.around, self.target, self.budget, self.found, self.arena = around, around.target, around.budget, found, arena
        self._open = open_anew
        check_names(found)
        name = "arena.%d.%s" % (ALL if arena is None else arena, what)
        function = found.symbols.public("mallctl")
        if function is None:
            raise Refusal("mallctl not found in %s" % found.module.name, "see `gdbheapx doctor`")
        self.address = function.address
        self.shown = '%s("%s", 0, 0, 0, 0)' % (function.name, name)
        self.text, self.arguments = name.encode() + b"\0", [0, 0, 0, 0]
        entry = found.symbols.public("malloc")
        self.entries = [entry.address] if entry is not None else []
        self._read()

    def _read(self) -> None:
        """Everything anew."""
        self.troubles = Troubles()
        self.malloc = self._open(self.troubles.report)

    def spans(self) -> List[Span]:
        return spans(self.around, self.found)

    def check(self) -> None:
        self.spans()
        arenas = self.malloc.arena_list()
        hooks.check(self.malloc.context, arenas, {one.index for one in arenas if self.arena in (None, one.index)})

    def locks(self) -> List[Held]:
        self._read()
        held = locks.held(self.malloc.context, self.malloc.arena_list())
        return held + [Held("an arena (%s)" % one, None) for one in self.troubles.found]

    def predict(self) -> Predicted:
        rows = self._rows()
        in_time(self.budget)
        if self.arena is not None and not rows:
            raise Refusal("arena %d not found" % self.arena, "see `gdbheapx arenas`", code=NOT_FOUND)
        self.troubles.refuse("jemalloc's heap", "a call could crash the process", "see `gdbheapx arenas`")
        hooks.check(self.malloc.context, self.malloc.arena_list(), {row.index for row in rows})
        resident, exclusive = (
            total([row.reclaimable_resident_bytes for row in rows]),
            total([row.reclaimable_exclusive_bytes for row in rows]),
        )
        return Predicted(sum(row.reclaimable_bytes or 0 for row in rows), resident, exclusive, self._pages(rows))

    def kept(self) -> Mapping[str, Optional[int]]:
        self._read()
        return self._pages(self._rows())

    def _rows(self) -> Sequence[JemallocArena]:
        return [row for row in self.malloc.arenas() if self.arena in (None, row.index)]

    def _pages(self, rows: Sequence[JemallocArena]) -> Mapping[str, Optional[int]]:
        return unused_pages(rows, self.malloc.context.geometry.page_bytes)

    def waits_inside(self, thread: Standing) -> bool:
        calls = self.target.arch.system_calls
        numbers = [calls.numbers[name] for name in WAITS] if calls is not None else []
        return thread.name == BACKGROUND_NAME and thread.system_call in numbers

    def suits(self, thread: Standing) -> Optional[str]:
        """Only a thread that jemalloc knows and that ticks: calling on one that only ever freed would make it blind."""
        seen = self.malloc.seen()
        for tsd, judgement in zip(seen.tsds.records, seen.judgements):
            if tsd.lwp != thread.lwp:
                continue
            if not tsd.is_nominal:
                return "%s does not use jemalloc like an ordinary thread (its tsd is %s)" % (thread.who, tsd.state or "unknown")
            if tsd.reentrancy_level:
                return "%s is inside jemalloc (reentrancy_level %d)" % (thread.who, tsd.reentrancy_level)
            if judgement.verdict in (BLIND, UNKNOWN):
                return "%s is %s" % (thread.who, judgement.verdict)
            return None
        return "%s has no readable tsd" % thread.who


class Cure(CurePlan):
    """arenas_tdata_bypass of each blind thread is reset; the next tick makes the ticker. Nothing is called."""

    byte = BYPASS
    system_calls = SYSTEM_CALLS
    done = "%s was set and is 0 now; the next tick creates its ticker" % BYPASS

    def __init__(self, around: HeapContext, found: Jemalloc, open_anew: Open) -> None:
        if not layouts.has_ticker_bug(found.types, found.version):
            raise Refusal("jemalloc %s does not have this bug: no thread can be blind" % found.version_name, "see `gdbheapx decay`")
        check_names(found)
        self.around, self.found, self._open = around, found, open_anew

    def spans(self) -> List[Span]:
        return spans(self.around, self.found)

    def look(self, only: Optional[int]) -> List[Suspect]:
        malloc = self._open(_unheard)
        place = malloc.context.types.place("tsd_s", BYPASS)
        if place is None or place.size_bytes != 1:
            raise Refusal("this build's tsd has no %s: nothing to cure" % BYPASS)
        seen = malloc.seen()
        pairs = list(zip(seen.tsds.records, seen.judgements))
        if only is not None:
            pairs = [(tsd, judgement) for tsd, judgement in pairs if tsd.lwp == only]
            if not pairs:
                raise Refusal("thread %d not found" % only, "see `gdbheapx tickers`", code=NOT_FOUND)
            judgement = pairs[0][1]
            if judgement.verdict != BLIND:
                raise Refusal("thread %d is not blind (%s: %s)" % (only, judgement.verdict, judgement.why), "see `gdbheapx tickers`")
        blind = [tsd for tsd, judgement in pairs if judgement.verdict == BLIND]
        return [Suspect(tsd.lwp, tsd.address + place.offset if tsd.address is not None else None) for tsd in blind]

    def report(self) -> TickerReport:
        made: TickerReport = self._open(_unheard).tickers()
        return made

    def answer(self, info: AllocatorInfo, report: TickerReport, cured: Sequence[Any], stopped_ms: Optional[float]) -> TickersAnswer:
        return TickersAnswer([(info, report)] if report is not None else [], (), cured, stopped_ms)


def _unheard(*complaint: Any, **more: Any) -> None:
    """What cannot be read makes a thread's verdict unknown, and such a thread is not touched."""
