"""What a purge would give back, and the plans of a purge and of the cure of blind threads."""

from typing import Any, Callable, List, Mapping, Optional, Sequence

from gdbheapx.allocators.plan import FUTEX, Change, CurePlan, Held, Plan, Span, Suspect, SystemCall, Troubles, in_time
from gdbheapx.allocators.records import HeapContext
from gdbheapx.allocators.returning import DryRun, Portion, Predicted
from gdbheapx.columns import BYTES, TEXT, Column, Table, add
from gdbheapx.errors import HeapxError, Refusal
from gdbheapx.hints import ask
from gdbheapx.inferior.standing import Standing
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import layouts
from gdbheapx.jemalloc.detection.detect import Jemalloc
from gdbheapx.jemalloc.detection.traces import BACKGROUND_NAME
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.jemalloc.help import PURGE
from gdbheapx.jemalloc.messages.tickers import TickersAnswer
from gdbheapx.jemalloc.messages.verdict import huge_dirty_hint
from gdbheapx.jemalloc.plan import code, locks
from gdbheapx.jemalloc.purging.tickers import BLIND, UNKNOWN
from gdbheapx.jemalloc.records import JemallocArena, TickerReport
from gdbheapx.model import AllocatorInfo
from gdbheapx.problems import NOT_FOUND, Report

KEYS = (
    *("allocator", "index", "huge_dirty_bytes", "dirty_bytes", "muzzy_bytes"),
    *("reclaimable_bytes", "reclaimable_resident_bytes", "reclaimable_exclusive_bytes"),
)
_COLUMNS = (
    Column("arena", TEXT, field="index"),
    Column("dirty", BYTES, field="dirty_bytes"),
    Column("muzzy", BYTES, field="muzzy_bytes"),
    Column("resident", BYTES, field="reclaimable_resident_bytes"),
)
DEFAULT_HOOKS = ("ehooks_default_extent_hooks", "extent_hooks_default")
"""jemalloc's own: from 5.3.0 in ehooks.c, before in extent.c."""
ALL = 4096
"""MALLCTL_ARENAS_ALL (jemalloc_macros.h.in), the same in every release of 5."""
WAITS = ("futex", "restart_syscall")
"""What a background thread sleeps in between two rounds."""
BYPASS = "arenas_tdata_bypass"

DONTNEED, FREE, OTHER_ADVICE = 4, 8, (14, 15, 16, 17)
"""MADV_...: HUGEPAGE, NOHUGEPAGE, DONTDUMP and DODUMP only tune."""
SYSTEM_CALLS = (
    *(SystemCall("madvise", (None, None, advice)) for advice in (DONTNEED, FREE)),
    *(SystemCall("madvise", (None, None, advice), may_fail=True) for advice in OTHER_ADVICE),
    SystemCall("munmap"),
    *(SystemCall(name, may_fail=True) for name in ("mmap", "mprotect", "sched_yield")),
    SystemCall("clock_gettime"),
    *FUTEX,
)
"""What pages.c, mutex.c, nstime.c and spin.h may make for a purge: extents are merged, their records come from new pages; the time comes
from the kernel only where the vDSO has none."""

Open = Callable[[Report], Any]
"""Gives a JemallocMalloc that has read nothing yet: the process ran meanwhile."""


def dry_run(
    rows: Sequence[JemallocArena], arena: Optional[int], page_bytes: int, is_live: bool, dirty_mult: Optional[int] = None
) -> DryRun:
    """What a purge of one arena, or of all, would give back; HeapxError where there is no such arena. `dirty_mult`: of the huge page
    allocator."""
    purged = [row for row in rows if arena in (None, row.index)]
    if not purged:
        raise HeapxError("arena %s not found" % arena, "see " + ask("arenas"), code=NOT_FOUND)
    shown = [row for row in purged if row.reclaimable_bytes or row.reclaimable_bytes is None]
    table = Table(_COLUMNS, shown) if shown else None
    made = DryRun(PURGE, unused(purged, page_bytes), [{key: getattr(row, key) for key in KEYS} for row in purged], table, is_live)
    huge = sum(row.huge_dirty_bytes or 0 for row in purged)
    return made._replace(unreached=huge_dirty_hint(huge, dirty_mult) if huge else None)


def unused(rows: Sequence[JemallocArena], page_bytes: int) -> Predicted:
    """The unused pages of these arenas, dirty and muzzy ones, which a purge gives back."""
    dirty, muzzy, size, resident, exclusive = (add(getattr(row, name) for row in rows) for name in KEYS[3:])
    dirty_pages, muzzy_pages = (None if part is None else part // page_bytes for part in (dirty, muzzy))
    return Predicted(size, resident, exclusive, {"dirty_pages": dirty_pages, "muzzy_pages": muzzy_pages})


def check_hooks(context: Context, arenas: Sequence[Arena], only: Optional[int]) -> None:
    """Refusal unless all of these arenas, or the only one that is meant, have jemalloc's own: a purge calls them, and what others do and
    lock cannot be told. Unknown ones are not believed to be its own."""
    own = [symbol.address for symbol in map(context.symbols.find, DEFAULT_HOOKS) if symbol is not None]
    for arena in arenas:
        if only not in (None, arena.index):
            continue
        base = arena.read().get("base")
        hooks = context.view("base_s", base).get("ehooks.ptr", "extent_hooks") if base else None
        if not own or not hooks:
            raise Refusal("cannot determine whether arena %d uses custom extent hooks" % arena.index, "see " + ask("doctor"))
        if hooks not in own:
            raise Refusal(
                "arena %d uses custom extent hooks; their side effects are unknown" % arena.index, "purge another arena with --arena I"
            )


class OfJemalloc(Change):
    """A change of one jemalloc whose code and locks are known."""

    system_calls = SYSTEM_CALLS
    jemalloc: Jemalloc

    def of(self, jemalloc: Jemalloc) -> None:
        """Refusal if its global locks cannot be seen: a call could wait for ever for one that a stopped thread holds."""
        self.jemalloc, self.module = jemalloc, jemalloc.module
        if jemalloc.symbols.by_structure:
            raise Refusal(
                "jemalloc in %s was found by its structure alone, which does not show its global locks" % jemalloc.module.name,
                "give its debug file (--debug-dir DIR); where there is none, as for most wheels, "
                "only the program itself can purge, and jemalloc does so over time by its decay",
            )

    def spans(self) -> List[Span]:
        symbols = self.jemalloc.symbols
        call = symbols.public_names.call('"arena.%d.purge", NULL, NULL, NULL, 0' % ALL)
        spans = code.spans(self.target, self.module, symbols.prefix, symbols.public_names.prefix)
        return self.known(spans, "jemalloc", "only the program itself can purge, with %s; jemalloc does so over time by its decay" % call)


class Purge(OfJemalloc, Plan):
    """mallctl("arena.<i>.purge") or "arena.<i>.decay" of one arena or of all."""

    warming = b"version\0"
    """CTL_RO_NL_GEN (ctl.c): takes no lock and bears null for what it would fill, which others, such as arenas.narenas up to 5.2.1, do
    not."""
    arguments = (0, 0, 0, 0)
    damaged = ("jemalloc's heap", "a call could crash the process", "see " + ask("arenas"))

    def __init__(self, around: HeapContext, anew: Open, portion: Portion, jemalloc: Jemalloc) -> None:
        self.of(jemalloc)
        super().__init__(around, anew, portion, jemalloc.module, "mallctl", jemalloc.symbols.public)
        name = "arena.%d.%s" % (ALL if portion.arena is None else portion.arena, "decay" if portion.is_decayed else "purge")
        self.shown = '%s("%s", 0, 0, 0, 0)' % (self.shown[:-2], name)
        self.text = name.encode() + b"\0"
        self.malloc: Any = anew(_unheard)

    def check(self) -> None:
        super().check()
        self._check_hooks(self.anew(_unheard))

    def _check_hooks(self, malloc: Any) -> None:
        check_hooks(malloc.context, malloc.arena_list(), self.portion.arena)

    def locks(self) -> List[Held]:
        troubles = Troubles()
        self.malloc = self.anew(troubles.report)
        held = locks.held(self.malloc.context, self.malloc.arena_list())
        return held + [Held("an arena (%s)" % line, None) for line in troubles.found]

    def predict(self) -> Predicted:
        predicted = super().predict()
        self._check_hooks(self.anew(_unheard))
        return predicted

    def look(self, heap: Any) -> Predicted:
        predicted = self._unused(heap)
        in_time(self.budget)
        if self.portion.arena not in (None, *(row.index for row in heap.arenas())):
            raise Refusal("arena %s not found" % self.portion.arena, "see " + ask("arenas"), code=NOT_FOUND)
        return predicted

    def kept(self) -> Optional[Mapping[str, Optional[int]]]:
        return self._unused(self.anew(_unheard)).kept

    def _unused(self, heap: Any) -> Predicted:
        return unused([row for row in heap.arenas() if self.portion.arena in (None, row.index)], heap.context.geometry.page_bytes)

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


class Cure(OfJemalloc, CurePlan):
    """arenas_tdata_bypass of each blind thread is reset; the next tick makes the ticker. Nothing is called."""

    byte = BYPASS
    done = "%s was set and is 0 now; the next tick creates its ticker" % BYPASS

    def __init__(self, around: HeapContext, anew: Open, jemalloc: Jemalloc) -> None:
        if not layouts.has_ticker_bug(jemalloc.types, jemalloc.version):
            raise Refusal("jemalloc %s does not have this bug: no thread can be blind" % jemalloc.version_name, "see " + ask("decay"))
        self.of(jemalloc)
        self.target, self.anew = around.target, anew

    def look(self, only: Optional[int]) -> List[Suspect]:
        malloc = self.anew(_unheard)
        place = malloc.context.types.place("tsd_s", BYPASS)
        if place is None or place.size_bytes != 1:
            raise Refusal("this build's tsd has no %s: nothing to cure" % BYPASS)
        seen = malloc.seen()
        pairs = list(zip(seen.tsds.records, seen.judgements))
        if only is not None:
            pairs = [(tsd, judgement) for tsd, judgement in pairs if tsd.lwp == only]
            if not pairs:
                raise Refusal("thread %d not found" % only, "see " + ask("tickers"), code=NOT_FOUND)
            judgement = pairs[0][1]
            if judgement.verdict != BLIND:
                raise Refusal("thread %d is not blind (%s: %s)" % (only, judgement.verdict, judgement.why), "see " + ask("tickers"))
        blind = [tsd for tsd, judgement in pairs if judgement.verdict == BLIND]
        return [Suspect(tsd.lwp, tsd.address + place.offset if tsd.address is not None else None) for tsd in blind]

    def read(self) -> TickerReport:
        report: TickerReport = self.anew(_unheard).tickers()
        return report

    def answer(self, info: AllocatorInfo, report: TickerReport, cured: Sequence[Any], stopped_ms: Optional[float]) -> TickersAnswer:
        return TickersAnswer([(info, report)] if report is not None else [], (), cured, stopped_ms)


def _unheard(*complaint: Any, **more: Any) -> None:
    """What cannot be read makes a thread's verdict unknown, and such a thread is not touched."""
