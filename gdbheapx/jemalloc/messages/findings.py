"""What a reader must know about one jemalloc before acting: why unused pages stay, and what to type next."""

from typing import List, Optional, Sequence

from gdbheapx import findings as codes
from gdbheapx import verdict
from gdbheapx.allocators.measured import BACKGROUND, DECAY_USUAL, HPA_BOUND, MUZZY_NONE
from gdbheapx.hints import ask
from gdbheapx.inferior.base import Module
from gdbheapx.jemalloc.messages import programs
from gdbheapx.jemalloc.messages.verdict import Figures
from gdbheapx.jemalloc.records import JemallocArena, JemallocBin, JemallocConditions, TickerArena, TickerReport
from gdbheapx.model import Finding, Step
from gdbheapx.units import Said, Size, named, plural, say
from gdbheapx.verdict import SMALL_BYTES

PURGE = '"arena.4096.purge", NULL, NULL, NULL, 0'
"""4096 is MALLCTL_ARENAS_ALL in every release of 5."""
USUAL_DECAY = DECAY_USUAL.value.split(",")[1]
"""Beside background threads, which may run already."""


def findings(
    version: Optional[str],
    found: Figures,
    rows: Sequence[JemallocArena],
    state: JemallocConditions,
    tickers: TickerReport,
    bins: Sequence[JemallocBin] = (),
) -> List[Finding]:
    """The findings, what keeps most memory first. `version`: for the sentences."""
    lines = [*_blind(version, tickers, state), *_unpurged(tickers), *_never_purged(found, tickers, state), *_without_threads(tickers)]
    lines += [*_background(found, state, tickers), *_many_arenas(found, rows, bins, len(tickers.threads), state), *_unheeded(state)]
    damaged = [row for row in rows if row.unparsed_bytes]
    if damaged:
        evidence = say("%s of extents", Size(sum(row.unparsed_bytes or 0 for row in damaged)))
        lines.append(Finding("part of the heap could not be read or is damaged", evidence, "see the problems below", codes.DAMAGED))
    if found.metadata_bytes is None:
        lines.append(_uncounted(state))
    if state.prof:
        lines.append(_profiled(state))
    return lines


def _profiled(state: JemallocConditions) -> Finding:
    """What a profile can show: only what was allocated while sampling was on."""
    if state.prof_active is False:
        hint = "%s with true starts it; earlier allocations stay out of the profile" % state.names.call('"prof.active"')
        return Finding("heap profiling is on, but sampling is off", "opt.prof is true, prof.active is false", hint, codes.PROFILING)
    hint = "which callers allocated the memory in use: %s" % ask("profile -o heap.prof")
    if state.prof_asked is False:
        what, evidence = "heap profiling was switched on after the start", "opt.prof_active is false, prof.active is true"
        hint = "earlier allocations are not in the profile; how much it covers: %s" % ask("profile -o heap.prof")
        return Finding(what, evidence, hint, codes.PROFILING)
    return Finding("heap profiling is on", "opt.prof is true", hint, codes.PROFILING)


def _unheeded(state: JemallocConditions) -> List[Finding]:
    """Options that somebody set and that do nothing."""
    lines = []
    if state.unread_variables:
        evidence = "%s in the environment" % " and ".join(state.unread_variables)
        what = "options were set that this jemalloc does not read"
        lines.append(Finding(what, evidence, "this build reads %s" % state.names.conf_variable, codes.OPTIONS_UNREAD))
    if state.refused:
        evidence = ", ".join("%s (%s)" % (one.option, one.why) for one in state.refused)
        hint = "the options in force: %s" % ask("tunables")
        lines.append(Finding("options were set that are not in force", evidence, hint, codes.OPTIONS_REFUSED))
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


def _blind(version: Optional[str], tickers: TickerReport, state: JemallocConditions) -> List[Finding]:
    """Threads that never purge, in one sentence."""
    if not tickers.affected:
        return []
    lines, release = [], version or ""
    unknown, blind = (sum(thread.verdict == verdict for thread in tickers.threads) for verdict in ("unknown", "blind"))
    if blind:
        words = ("is", "its", "it never returns") if blind == 1 else ("are", "their", "they never return")
        what = "%s %s blind: %s first call to jemalloc was free(), and because of a bug in jemalloc %s %s unused pages"
        where = [arena for arena in tickers.arenas if arena.blind_threads]
        hint = "these arenas are still purged; the blind threads, and who purges: %s" % ask("tickers")
        if any(arena.verdict not in ("purged", "at-once") for arena in where):
            around = state.names.call('"background_thread"') + " with true" if state.background_asked else BACKGROUND.value
            hint = "fixed in jemalloc 5.3.0; workaround: %s; the threads: %s" % (around, ask("tickers"))
        said = what % (plural(blind, "thread"), *words[:2], release, words[2])
        lines.append(Finding(said, _held_by_blind(where), hint, codes.BLIND_THREADS))
    if unknown:
        what = "cannot determine the state of %s, and jemalloc %s has the bug that makes threads blind"
        known = what % (plural(unknown, "thread"), release)
        lines.append(Finding(known, "the reason: %s" % ask("tickers"), None, codes.THREADS_NOT_JUDGED))
    return lines


def _held_by_blind(where: Sequence[TickerArena]) -> str:
    """What their arenas hold, and where nobody else purges them, the sign of that."""
    if not where:
        return "bound to no arena"
    kept = [arena for arena in where if _is_unpurged(arena)]
    if not kept:
        late = [arena for arena in where if arena.costs_memory]
        return say("%s, long overdue (%s)", _hold(where), _why(late)) if late else _hold(where)
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


def _never_purged(found: Figures, tickers: TickerReport, state: JemallocConditions) -> List[Finding]:
    """Decay switched off."""
    lines, off = [], [arena for arena in tickers.arenas if arena.verdict == "never"]
    if off:
        hint = "jemalloc's default is %s" % USUAL_DECAY
        if _is_overridden(state):
            hint = "opt.dirty_decay_ms is %s: the program changed it with mallctl" % state.dirty_decay_asked_ms
        lines.append(Finding("purging is switched off: dirty_decay_ms is -1", _hold(off), hint, codes.PURGING_OFF))
    muzzy = sum(arena.muzzy_bytes or 0 for arena in tickers.arenas if (arena.muzzy_decay_ms or 0) < 0)
    muzzy = muzzy if found.purgeable_bytes is None else min(muzzy, found.purgeable_bytes)
    if muzzy >= SMALL_BYTES:
        hint = "they are the kernel's to take when memory is short (MADV_FREE), and count in RSS until then"
        lines.append(Finding("muzzy pages are never purged: muzzy_decay_ms is -1", say("%s", Size(muzzy)), hint, codes.PURGING_OFF))
    return lines


def _is_overridden(state: JemallocConditions) -> bool:
    """Where purging is off: the options did not ask for that, the program did."""
    return state.dirty_decay_asked_ms is not None and state.dirty_decay_asked_ms >= 0


_TICKS = "a thread that ticks frees"
_NO_THREADS = (
    ("auto", "memory is left in arenas of threads that have exited", "no thread is bound to them", "other threads free"),
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
        again = programs.background_hint(state.names) or "%s with true turns them on again" % state.names.call('"background_thread"')
        hint = "a child process has none after fork(), and a program can turn them off: %s" % again
        return [Finding(what, "opt.background_thread is true, the switch is false", hint, codes.BACKGROUND_LOST)]
    idle = [arena for arena in tickers.arenas if arena.verdict == "idle"]
    waiting = idle or [arena for arena in tickers.arenas if arena.verdict in ("purged", "degraded") and state.background_enabled is False]
    if _unused(waiting) < 16 * SMALL_BYTES or 4 * _unused(waiting) < found.unused_pages_bytes:
        return []
    what = "jemalloc returns pages only while threads call it: an idle thread returns nothing, whatever the decay time"
    off = "background threads are off" if state.background_enabled is False else "no background thread purges them"
    hint = "%s; with %s pages are returned on time" % (off, BACKGROUND.value)
    hint = off if programs.background_hint(state.names) else hint
    return [Finding(what, _hold(waiting, " of idle threads" if idle else ""), hint, codes.PURGED_BY_CALLS)]


def _many_arenas(
    found: Figures, rows: Sequence[JemallocArena], bins: Sequence[JemallocBin], threads: int, state: JemallocConditions
) -> List[Finding]:
    """narenas bounds automatic arenas alone, and muzzy pages stay by time in however few."""
    used = [row for row in rows if row.active_bytes and row.kind not in ("manual", "huge")]
    theirs = {row.index for row in used}
    spread = sum(row.dirty_bytes or 0 for row in used) + sum(row.bytes for row in bins if row.kind == "small" and row.arena in theirs)
    if len(used) <= 4 or spread < 16 * SMALL_BYTES or 2 * spread < found.held_bytes:
        return []
    evidence = say("%s for %s, %s in unused pages and free regions", plural(len(used), "arena"), plural(threads, "thread"), Size(spread))
    hint = "to concentrate free memory, at the cost of more lock contention, set a smaller N: %s" % state.names.setting("narenas:N")
    return [Finding("free memory is spread over many arenas", evidence, hint, codes.MANY_ARENAS)]


def next_steps(
    code: Optional[str], found: Figures, tickers: TickerReport, state: JemallocConditions, modules: Sequence[Module]
) -> List[str]:
    """Commands to type, calls to make, settings for the next start."""
    names = state.names
    blind = any(thread.verdict == "blind" for thread in tickers.threads)
    steps: List[str] = [Step(ask("tickers"), "names the threads that never purge, and shows what helps")] if blind else []
    if code in (codes.UNUSED_PAGES, codes.PART_HELD) and found.worth_purging:
        why = "shows for each arena how long unused pages may stay, when it last returned some, and which threads can do it"
        steps.append(Step(ask("decay"), why))
        outside = "; from outside: %s" % ask("purge") if found.can_purge else ""
        gained = None if found.is_core else found.purgeable_bytes
        call = Step(names.call(PURGE), say("in the program returns %s to the OS now%s", Size(found.purgeable_bytes), outside), gained)
        steps.append(programs.purge_hint(modules, gained) or call)
        steps += _against_hoarding(tickers, state)
    is_much = code in (codes.UNUSED_PAGES, codes.PART_HELD) and 4 * found.huge_dirty_bytes > found.in_memory.held_bytes
    if is_much and found.dirty_mult is not None and found.dirty_mult < 0:
        steps.append(Step(names.setting(HPA_BOUND.value), "at the next start bounds the dirty pages in huge pages"))
    if code == codes.FREE_REGIONS or (code == codes.PART_HELD and 10 * found.free_regions_bytes > found.held_bytes):
        steps.append(Step(ask("bins"), "shows for each size class how many regions are free in slabs that are still in use"))
        steps += [hint for hint in [programs.defragment_hint(modules)] if hint]
    steps += verdict.what_is_in_use(code)
    if code == codes.IN_USE and state.has_prof and not state.prof:
        steps.append(Step(names.setting("prof:true"), "at the next start records which code allocates"))
    if state.prof and state.prof_active is not False:
        steps.append(Step(ask("profile -o heap.prof"), "writes which code allocated the memory in use, for jeprof"))
    elif state.prof and code == codes.IN_USE:
        steps.append(Step(names.call('"prof.active"'), "with true in the program: records which code allocates from then on"))
    if 10 * (found.cached_bytes or 0) > found.held_bytes:
        steps.append(Step(ask("tcache"), "shows what each thread's cache holds"))
    return steps


def _against_hoarding(tickers: TickerReport, state: JemallocConditions) -> List[str]:
    """What keeps unused pages from staying again: nothing that is asked for already, that the program overrides, or that does not act on
    these pages."""
    kept = [arena for arena in tickers.arenas if arena.unused_bytes]
    is_timed = not kept or any(arena.dirty_bytes or (arena.muzzy_decay_ms or 0) >= 0 for arena in kept)
    is_off, steps, settings = is_timed and not state.background_running, [], []
    own = programs.background_hint(state.names)
    if is_off and (own or state.background_asked):
        switch = state.names.call('"background_thread"')
        steps.append(own or Step(switch, "with true in this process turns background threads on: they were requested, and are off"))
    elif is_off:
        settings.append(BACKGROUND.value)
    if any(arena.verdict == "never" for arena in kept) and not _is_overridden(state):
        settings.append(USUAL_DECAY)
    if any(arena.muzzy_bytes and (arena.muzzy_decay_ms or 0) < 0 for arena in kept):
        settings.append(MUZZY_NONE.value)
    if settings:
        steps.append(Step(state.names.setting(",".join(settings)), "at the next start prevents it from happening again"))
    return steps
