"""What a reader must know about one jemalloc before acting: why unused pages stay, and what to type next."""

from typing import List, Optional, Sequence

from gdbheapx import findings as codes
from gdbheapx import verdict
from gdbheapx.inferior.base import Module
from gdbheapx.jemalloc.messages import programs
from gdbheapx.jemalloc.messages.verdict import Figures
from gdbheapx.jemalloc.records import JemallocArena, JemallocConditions, TickerArena, TickerReport
from gdbheapx.model import Finding, Step
from gdbheapx.units import Said, Size, named, plural, say
from gdbheapx.verdict import SMALL_BYTES

PURGE = '"arena.4096.purge", NULL, NULL, NULL, 0'
"""4096 is MALLCTL_ARENAS_ALL in every release of 5."""


def findings(
    version: Optional[str], found: Figures, rows: Sequence[JemallocArena], state: JemallocConditions, tickers: TickerReport
) -> List[Finding]:
    """The findings, what keeps most memory first. `version`: for the sentences."""
    lines = [*_blind(version, tickers), *_unpurged(tickers), *_never_purged(tickers), *_without_threads(tickers)]
    lines += [*_background(found, state, tickers), *_many_arenas(found, rows, len(tickers.threads), state)]
    damaged = [row for row in rows if row.unparsed_bytes]
    if damaged:
        evidence = say("%s of extents", Size(sum(row.unparsed_bytes or 0 for row in damaged)))
        lines.append(Finding("part of the heap could not be read or is damaged", evidence, "see the problems below", codes.DAMAGED))
    if found.metadata_bytes is None:
        lines.append(_uncounted(state))
    if state.prof:
        hint = "the profile shows which callers allocated the memory in use: heapx profile -o FILE"
        lines.append(Finding("heap profiling is on", "opt.prof is true", hint, codes.PROFILING))
    return lines


def _uncounted(state: JemallocConditions) -> Finding:
    """Why its metadata is not known: said only as far as it is known."""
    if state.has_stats is False:
        hint = "the figures come only from the extents; jemalloc's metadata is not counted"
        why = "configured with --disable-stats (Rust: switch on the feature `stats`)"
        return Finding("this build keeps no statistics", why, hint, codes.NO_STATISTICS)
    what, hint = "jemalloc's metadata is unknown", "the other figures come from the extents"
    return Finding(what, "cannot read the counters of an arena", hint, codes.METADATA_UNKNOWN)


def _unused(arenas: Sequence[TickerArena]) -> int:
    return sum(arena.unused_bytes for arena in arenas)


def _hold(arenas: Sequence[TickerArena], which: str = "") -> Said:
    """`arena 3 holds 1.0 MiB of unused pages`, `arenas 1, 2 hold ...`; `which` stands behind the arenas."""
    return say("%s%s %s %s of unused pages", _named(arenas), which, "holds" if len(arenas) == 1 else "hold", Size(_unused(arenas)))


def _named(arenas: Sequence[TickerArena]) -> str:
    """Those that hold most first."""
    return named("arena", [arena.index for arena in sorted(arenas, key=lambda arena: -arena.unused_bytes)])


def _blind(version: Optional[str], tickers: TickerReport) -> List[Finding]:
    """Threads that never purge, in one sentence."""
    if not tickers.affected:
        return []
    lines, release = [], version or ""
    unknown, blind = (sum(thread.verdict == verdict for thread in tickers.threads) for verdict in ("unknown", "blind"))
    if blind:
        words = ("1 thread is", "its", "it never returns") if blind == 1 else ("%d threads are" % blind, "their", "they never return")
        what = "%s blind: %s first call to jemalloc was free(), and because of a bug in jemalloc %s %s unused pages"
        where = [arena for arena in tickers.arenas if arena.blind_threads]
        hint = "these arenas are still purged; gdbheapx tickers names the blind threads and shows who purges"
        if any(arena.verdict not in ("purged", "at-once") for arena in where):
            hint = "gdbheapx tickers names the threads; fixed in jemalloc 5.3.0; workaround: background_thread:true"
        lines.append(Finding(what % (*words[:2], release, words[2]), _held_by_blind(where), hint, codes.BLIND_THREADS))
    if unknown:
        what = "cannot determine the state of %s, and jemalloc %s has the bug that makes threads blind"
        known = what % (plural(unknown, "thread"), release)
        lines.append(Finding(known, "gdbheapx tickers shows why", None, codes.THREADS_NOT_JUDGED))
    return lines


def _held_by_blind(where: Sequence[TickerArena]) -> str:
    """What their arenas hold, and where nobody else purges them, the sign of that."""
    if not where:
        return "bound to no arena"
    kept = [arena for arena in where if _is_unpurged(arena)]
    if not kept:
        return _hold(where)
    if len(kept) == len(where):
        return say("%s, and no other thread purges them (%s)", _hold(where), _why(kept))
    return say("%s; no other thread purges %s (%s)", _hold(where), _named(kept), _why(kept))


def _unpurged(tickers: TickerReport) -> List[Finding]:
    """Arenas that nobody can purge, for other reasons than blind threads."""
    kept = [arena for arena in tickers.arenas if _is_unpurged(arena) and not arena.blind_threads]
    if not kept:
        return []
    return [Finding(say("%s, and no thread returns them to the OS", _hold(kept)), _why(kept), None, codes.UNPURGED)]


def _why(arenas: Sequence[TickerArena]) -> str:
    """Of the one that holds most."""
    largest = max(arenas, key=lambda arena: arena.unused_bytes)
    return largest.why if len(arenas) == 1 else "arena %d: %s" % (largest.index, largest.why)


def _is_unpurged(arena: TickerArena) -> bool:
    return arena.verdict == "unpurged" and arena.unused_bytes > 0


def _never_purged(tickers: TickerReport) -> List[Finding]:
    """Decay switched off."""
    off = [arena for arena in tickers.arenas if arena.verdict == "never"]
    if not off:
        return []
    hint = "jemalloc's default is dirty_decay_ms:10000"
    return [Finding("purging is switched off: dirty_decay_ms is -1", _hold(off), hint, codes.PURGING_OFF)]


_TICKS = "a thread that ticks frees"
_NO_THREADS = (
    ("auto", "memory is left in arenas whose threads have exited", "no thread is bound to them", "other threads free"),
    ("manual", "unused pages stay in arenas that the program made", "made by arenas.create, no thread is bound to them", _TICKS),
    (
        *("huge", "unused pages stay in the arena for large requests"),
        *("opt.oversize_threshold sends them there, no thread is bound to it", _TICKS),
    ),
)
"""(kind of arena, what, why no thread looks after it, who could): automatic arenas have had threads, the others never need one."""


def _without_threads(tickers: TickerReport) -> List[Finding]:
    """Arenas that no thread is bound to."""
    lines = []
    for kind, what, why, who in _NO_THREADS:
        unbound = [arena for arena in tickers.arenas if arena.verdict == "no-threads" and arena.kind == kind]
        left = [arena for arena in unbound if arena.unused_bytes >= SMALL_BYTES]
        if left:
            hint = "it is returned to the OS when %s blocks there, or by a purge" % who
            lines.append(Finding(what, say("%s; %s", _hold(left), why), hint, codes.NO_THREADS))
    return lines


def _background(found: Figures, state: JemallocConditions, tickers: TickerReport) -> List[Finding]:
    """Who gives pages back, where there are pages to give."""
    if state.background_running:
        return []
    if state.background_enabled:
        what, hint = "background threads are enabled, but none is running", "%s with true starts them"
        switch = state.names.call('"background_thread"')
        return [Finding(what, "background_thread is true", hint % switch, codes.BACKGROUND_NOT_RUNNING)]
    if state.background_asked and state.background_enabled is False:
        what = "background threads were requested but are off"
        hint = "a child process has none after fork(): it must turn them on again with %s" % state.names.call('"background_thread"')
        return [Finding(what, "opt.background_thread is true, the switch is false", hint, codes.BACKGROUND_LOST)]
    idle = [arena for arena in tickers.arenas if arena.verdict == "idle"]
    waiting = idle or [arena for arena in tickers.arenas if arena.verdict in ("purged", "degraded")]
    if _unused(waiting) < 16 * SMALL_BYTES or 4 * _unused(waiting) < found.unused_pages_bytes or state.background_enabled is None:
        return []
    what = "jemalloc returns pages only while threads call it: an idle thread returns nothing, whatever the decay time"
    hint = "background threads are off; with background_thread:true pages are returned on time"
    return [Finding(what, _hold(waiting, ", whose threads are idle," if idle else ""), hint, codes.PURGED_BY_CALLS)]


def _many_arenas(found: Figures, rows: Sequence[JemallocArena], threads: int, state: JemallocConditions) -> List[Finding]:
    used = [row for row in rows if row.active_bytes]
    spread = found.unused_pages_bytes + found.free_regions_bytes
    if len(used) <= 4 or spread < 16 * SMALL_BYTES or 2 * spread < found.held_bytes:
        return []
    evidence = say("%d arenas for %s, %s in unused pages and free regions", len(used), plural(threads, "thread"), Size(spread))
    hint = "to concentrate free memory, at the cost of more lock contention, set a smaller N: %s" % state.names.setting("narenas:N")
    return [Finding("free memory is spread over many arenas", evidence, hint, codes.MANY_ARENAS)]


def next_steps(kind: str, found: Figures, tickers: TickerReport, state: JemallocConditions, modules: Sequence[Module]) -> List[str]:
    """Commands to type, calls to make, settings for the next start."""
    names = state.names
    blind = any(thread.verdict == "blind" for thread in tickers.threads)
    steps: List[str] = [Step("tickers", "names the threads that never purge, and shows what helps")] if blind else []
    if kind in (verdict.HOARDING, verdict.MIXED) and found.worth_purging:
        why = "shows for each arena how long unused pages may stay, when it last returned some, and which threads can do it"
        steps.append(Step("decay", why))
        outside = "; from outside: gdbheapx purge" if found.can_purge else ""
        call = Step(names.call(PURGE), say("in the program returns %s to the OS now%s", Size(found.told_unused_bytes), outside))
        steps.append(programs.purge_hint(modules) or call)
        off = any(arena.verdict == "never" for arena in tickers.arenas)
        settings = ["background_thread:true"] * (not state.background_running) + ["dirty_decay_ms:10000"] * off
        if settings:
            steps.append(Step(names.setting(",".join(settings)), "at the next start prevents it from happening again"))
    if kind == verdict.FRAGMENTED or (kind == verdict.MIXED and 10 * found.free_regions_bytes > found.held_bytes):
        steps.append(Step("bins", "shows for each size class how many regions are free in slabs that are still in use"))
        steps += [hint for hint in [programs.defragment_hint(modules)] if hint]
    steps += verdict.what_is_in_use(kind)
    if kind == verdict.LEAK_LIKE and state.has_prof and not state.prof:
        steps.append(Step(names.setting("prof:true"), "at the next start records which code allocates"))
    if state.prof:
        steps.append(Step("profile -o FILE", "writes which code allocated the memory in use, for jeprof"))
    return steps
