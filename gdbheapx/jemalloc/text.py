"""Make the pages and findings of one jemalloc, except the verdict and malloc_stats_print."""

from typing import Any, Container, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from gdbheapx.allocators import huge_pages
from gdbheapx.allocators.heap import plain_parts
from gdbheapx.allocators.measured import BACKGROUND, DECAY_USUAL, HPA_BOUND, MUZZY_NONE
from gdbheapx.allocators.records import AllocatorJudgement, AllocatorPart, Page, Surroundings
from gdbheapx.common import findings as codes
from gdbheapx.common import verdict
from gdbheapx.common.columns import COUNT, TEXT, Column, ColumnsTable, columns_of, sum_columns
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import AllocatorInfo, Finding, StepSentence
from gdbheapx.common.units import (
    Sentence,
    SentenceSize,
    count_noun,
    format_identifier,
    format_number,
    list_names,
    make_cells,
    make_sentence,
)
from gdbheapx.common.verdict import SMALL_BYTES
from gdbheapx.inferior.base import Module
from gdbheapx.jemalloc import verdict as jemalloc_verdict
from gdbheapx.jemalloc.decay import AT_ONCE, BLIND, QUIET_VERDICTS, THREAD_VERDICTS
from gdbheapx.jemalloc.options import JemallocTunables
from gdbheapx.jemalloc.records import (
    DecayRow,
    JemallocArena,
    JemallocBin,
    JemallocConditions,
    JemallocFacts,
    PublicNames,
    TickerArena,
    TickerReport,
    TickerThread,
)
from gdbheapx.jemalloc.verdict import JemallocVerdictFigures

_PURGE = "returns the unused pages of every arena to the OS now"
_DEFRAGMENT = "moves values together"
_PROGRAMS = {
    "redis-server": "redis-cli",
    "redis-check-rdb": "redis-cli",  # Debian's redis-server is a link to it
    "valkey-server": "valkey-cli",
    "keydb-server": "keydb-cli",
}
"""Programs that have commands of their own for it, and their clients."""


def suggest_background(names: PublicNames) -> Optional[str]:
    """The program's own switch of jemalloc's background threads, where it overrides what the environment asks for; None if that is not
    known. DuckDB 1 sets background_thread at its start (allocator_background_threads), DuckDB 2 heeds both."""
    is_duckdb = names.prefix == "duckdb_je_"
    return StepSentence("SET allocator_background_threads=true", "in DuckDB has its jemalloc purge on time") if is_duckdb else None


def _find_client(modules: Sequence[Module]) -> Optional[str]:
    files = {module.file_name for module in modules}
    return next((client for program, client in _PROGRAMS.items() if program in files), None)


def suggest_defragment(modules: Sequence[Module]) -> Optional[str]:
    """The program's own way to move its blocks together; None if it has none that is known here, or would refuse: Redis does it with the
    jemalloc of its own source alone, which is linked into it, and not with a library's (Debian).
    """
    client = _find_client(modules)
    if client is None or any(module.file_name.startswith("libjemalloc.") for module in modules):
        return None
    return StepSentence("%s CONFIG SET activedefrag yes" % client, _DEFRAGMENT)


def suggest_program_purge(modules: Sequence[Module], purgeable_bytes: Optional[int] = None) -> Optional[str]:
    """The program's own way to have jemalloc purge; None if it has none that is known here."""
    client = _find_client(modules)
    return StepSentence("%s MEMORY PURGE" % client, _PURGE, purgeable_bytes) if client is not None else None


PURGE_CALL = '"arena.4096.purge", NULL, NULL, NULL, 0'
"""4096 is MALLCTL_ARENAS_ALL in every release of 5."""
USUAL_DECAY = DECAY_USUAL.value.split(",")[1]
"""Without background threads, which may run already."""


def list_findings(
    version: Optional[str],
    found: JemallocVerdictFigures,
    rows: Sequence[JemallocArena],
    state: JemallocConditions,
    tickers: TickerReport,
    bins: Sequence[JemallocBin] = (),
) -> List[Finding]:
    """The findings, what keeps most memory first. `version`: for the sentences."""
    lines = [*_report_blind(version, tickers, state), *_report_unpurged(tickers), *_report_never_purged(found, tickers, state)]
    lines += [*_report_without_threads(tickers), *_report_background(found, state, tickers)]
    lines += [*_report_many_arenas(found, rows, bins, len(tickers.threads), state), *_report_unheeded(state)]
    damaged = [row for row in rows if row.unparsed_bytes]
    if damaged:
        evidence = make_sentence("%s of extents", SentenceSize(sum(row.unparsed_bytes or 0 for row in damaged)))
        lines.append(Finding("part of the heap could not be read or is damaged", evidence, "see the problems below", codes.DAMAGED))
    if found.metadata_bytes is None:
        lines.append(_report_uncounted(state))
    if state.prof:
        lines.append(_report_profiling(state))
    return lines


def _report_profiling(state: JemallocConditions) -> Finding:
    """Report what a profile can show: only allocations made while sampling was on."""
    if state.prof_active is False:
        hint = "%s with true starts it; earlier allocations stay out of the profile" % state.names.call('"prof.active"')
        return Finding("heap profiling is on, but sampling is off", "opt.prof is true, prof.active is false", hint, codes.PROFILING)
    hint = "which callers allocated the memory in use: %s" % hint_command("profile -o heap.prof")
    if state.prof_asked is False:
        what, evidence = "heap profiling was switched on after the start", "opt.prof_active is false, prof.active is true"
        hint = "earlier allocations are not in the profile; how much it covers: %s" % hint_command("profile -o heap.prof")
        return Finding(what, evidence, hint, codes.PROFILING)
    return Finding("heap profiling is on", "opt.prof is true", hint, codes.PROFILING)


def _report_unheeded(state: JemallocConditions) -> List[Finding]:
    lines = []
    if state.unread_variables:
        evidence = "%s in the environment" % " and ".join(state.unread_variables)
        what = "options were set that this jemalloc does not read"
        lines.append(Finding(what, evidence, "this build reads %s" % state.names.conf_variable, codes.OPTIONS_UNREAD))
    if state.refused:
        evidence = ", ".join("%s (%s)" % (one.option, one.why) for one in state.refused)
        hint = "the options in force: %s" % hint_command("tunables")
        lines.append(Finding("options were set that are not in force", evidence, hint, codes.OPTIONS_REFUSED))
    return lines


def _report_uncounted(state: JemallocConditions) -> Finding:
    """Report why its metadata is unknown, as far as that is known."""
    if state.has_stats is False:
        hint = "the figures come only from the extents; jemalloc's metadata is not counted"
        why = "configured with --disable-stats (Rust: switch on the feature `stats`)"
        return Finding("this build keeps no statistics", why, hint, codes.NO_STATISTICS)
    what, hint = "jemalloc's metadata is unknown", "the other figures come from the extents"
    return Finding(what, "cannot read the counters of an arena", hint, codes.METADATA_UNKNOWN)


def _sum_unused(arenas: Sequence[TickerArena]) -> int:
    return sum(arena.unused_bytes for arena in arenas)


def _say_hold(arenas: Sequence[TickerArena], which: str = "") -> Sentence:
    verb = "holds" if len(arenas) == 1 else "hold"
    return make_sentence("%s%s %s %s of unused pages", _name_arenas(arenas), which, verb, SentenceSize(_sum_unused(arenas)))


def _name_arenas(arenas: Sequence[TickerArena]) -> str:
    return list_names("arena", [arena.index for arena in sorted(arenas, key=lambda arena: -arena.unused_bytes)])


def _report_blind(version: Optional[str], tickers: TickerReport, state: JemallocConditions) -> List[Finding]:
    """Threads that never purge, in one sentence."""
    if not tickers.affected:
        return []
    lines, release = [], version or ""
    unknown, blind = (sum(thread.verdict == verdict for thread in tickers.threads) for verdict in ("unknown", "blind"))
    if blind:
        words = ("is", "its", "it never returns") if blind == 1 else ("are", "their", "they never return")
        what = "%s %s blind: %s first call to jemalloc was free(), and because of a bug in jemalloc %s %s unused pages"
        where = [arena for arena in tickers.arenas if arena.blind_threads]
        hint = "these arenas are still purged; the blind threads, and who purges: %s" % hint_command("tickers")
        if any(arena.verdict not in ("purged", "at-once") for arena in where):
            around = state.names.call('"background_thread"') + " with true" if state.background_asked else BACKGROUND.value
            hint = "fixed in jemalloc 5.3.0; workaround: %s; the threads: %s" % (around, hint_command("tickers"))
        said = what % (count_noun(blind, "thread"), *words[:2], release, words[2])
        lines.append(Finding(said, _say_held_by_blind(where), hint, codes.BLIND_THREADS))
    if unknown:
        what = "cannot determine the state of %s, and jemalloc %s has the bug that makes threads blind"
        known = what % (count_noun(unknown, "thread"), release)
        lines.append(Finding(known, "the reason: %s" % hint_command("tickers"), None, codes.THREADS_NOT_JUDGED))
    return lines


def _say_held_by_blind(where: Sequence[TickerArena]) -> str:
    """Say how much the arenas of blind threads hold, and the sign that no other thread purges them."""
    if not where:
        return "bound to no arena"
    kept = [arena for arena in where if _is_unpurged(arena)]
    if not kept:
        late = [arena for arena in where if arena.costs_memory]
        return make_sentence("%s, long overdue (%s)", _say_hold(where), _explain_largest(late)) if late else _say_hold(where)
    if len(kept) == len(where):
        return make_sentence("%s, and no other thread purges them (%s)", _say_hold(where), _explain_largest(kept))
    return make_sentence("%s; no other thread purges %s (%s)", _say_hold(where), _name_arenas(kept), _explain_largest(kept))


def _report_unpurged(tickers: TickerReport) -> List[Finding]:
    kept = [arena for arena in tickers.arenas if _is_unpurged(arena) and not arena.blind_threads]
    if not kept:
        return []
    return [
        Finding(make_sentence("%s, and no thread returns them to the OS", _say_hold(kept)), _explain_largest(kept), None, codes.UNPURGED)
    ]


def _explain_largest(arenas: Sequence[TickerArena]) -> str:
    largest = max(arenas, key=lambda arena: arena.unused_bytes)
    return largest.why if len(arenas) == 1 else "arena %d: %s" % (largest.index, largest.why)


def _is_unpurged(arena: TickerArena) -> bool:
    return arena.verdict == "unpurged" and arena.unused_bytes > 0


def _report_never_purged(found: JemallocVerdictFigures, tickers: TickerReport, state: JemallocConditions) -> List[Finding]:
    """Decay switched off."""
    lines, off = [], [arena for arena in tickers.arenas if arena.verdict == "never"]
    if off:
        hint = "jemalloc's default is %s" % USUAL_DECAY
        if _is_overridden(state):
            hint = "opt.dirty_decay_ms is %s: the program changed it with mallctl" % state.dirty_decay_asked_ms
        lines.append(Finding("purging is switched off: dirty_decay_ms is -1", _say_hold(off), hint, codes.PURGING_OFF))
    muzzy = sum(arena.muzzy_bytes or 0 for arena in tickers.arenas if (arena.muzzy_decay_ms or 0) < 0)
    muzzy = muzzy if found.purgeable_bytes is None else min(muzzy, found.purgeable_bytes)
    if muzzy >= SMALL_BYTES:
        hint = "they are the kernel's to take when memory is short (MADV_FREE), and count in RSS until then"
        lines.append(
            Finding("muzzy pages are never purged: muzzy_decay_ms is -1", make_sentence("%s", SentenceSize(muzzy)), hint, codes.PURGING_OFF)
        )
    return lines


def _is_overridden(state: JemallocConditions) -> bool:
    """Return whether the program switched purging off, against the options."""
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


def _report_without_threads(tickers: TickerReport) -> List[Finding]:
    """Arenas that no thread is bound to."""
    lines = []
    for kind, what, why, who in _NO_THREADS:
        unbound = [arena for arena in tickers.arenas if arena.verdict == "no-threads" and arena.kind == kind]
        left = [arena for arena in unbound if arena.unused_bytes >= SMALL_BYTES]
        if left:
            hint = "it is returned to the OS when %s blocks there, or by a purge" % who
            lines.append(Finding(what, make_sentence("%s; %s", _say_hold(left), why), hint, codes.NO_THREADS))
    return lines


def _report_background(found: JemallocVerdictFigures, state: JemallocConditions, tickers: TickerReport) -> List[Finding]:
    """Report which threads return pages, if there are pages to return."""
    if state.background_running:
        return []
    if state.background_enabled:
        what, hint = "background threads are enabled, but none is running", "%s with true starts them"
        switch = state.names.call('"background_thread"')
        return [Finding(what, "background_thread is true", hint % switch, codes.BACKGROUND_NOT_RUNNING)]
    if state.background_asked and state.background_enabled is False:
        what = "background threads were requested but are off"
        again = suggest_background(state.names) or "%s with true turns them on again" % state.names.call('"background_thread"')
        hint = "a child process has none after fork(), and a program can turn them off: %s" % again
        return [Finding(what, "opt.background_thread is true, the switch is false", hint, codes.BACKGROUND_LOST)]
    idle = [arena for arena in tickers.arenas if arena.verdict == "idle"]
    waiting = idle or [arena for arena in tickers.arenas if arena.verdict in ("purged", "degraded") and state.background_enabled is False]
    if _sum_unused(waiting) < 16 * SMALL_BYTES or 4 * _sum_unused(waiting) < found.unused_pages_bytes:
        return []
    what = "jemalloc returns pages only while threads call it: an idle thread returns nothing, whatever the decay time"
    off = "background threads are off" if state.background_enabled is False else "no background thread purges them"
    hint = "%s; with %s pages are returned on time" % (off, BACKGROUND.value)
    hint = off if suggest_background(state.names) else hint
    return [Finding(what, _say_hold(waiting, " of idle threads" if idle else ""), hint, codes.PURGED_BY_CALLS)]


def _report_many_arenas(
    found: JemallocVerdictFigures, rows: Sequence[JemallocArena], bins: Sequence[JemallocBin], threads: int, state: JemallocConditions
) -> List[Finding]:
    """narenas bounds automatic arenas alone, and muzzy pages stay by time in however few."""
    used = [row for row in rows if row.active_bytes and row.kind not in ("manual", "huge")]
    theirs = {row.index for row in used}
    spread = sum(row.dirty_bytes or 0 for row in used) + sum(row.bytes for row in bins if row.kind == "small" and row.arena in theirs)
    if len(used) <= 4 or spread < 16 * SMALL_BYTES or 2 * spread < found.held_bytes:
        return []
    counted = "%s for %s" % (count_noun(len(used), "arena"), count_noun(threads, "thread"))
    evidence = make_sentence("%s, %s in unused pages and free regions", counted, SentenceSize(spread))
    hint = "to concentrate free memory, at the cost of more lock contention, set a smaller N: %s" % state.names.setting("narenas:N")
    return [Finding("free memory is spread over many arenas", evidence, hint, codes.MANY_ARENAS)]


def list_next_steps(
    code: Optional[str], found: JemallocVerdictFigures, tickers: TickerReport, state: JemallocConditions, modules: Sequence[Module]
) -> List[str]:
    """Commands to type, calls to make, settings for the next start."""
    names = state.names
    blind = any(thread.verdict == "blind" for thread in tickers.threads)
    steps: List[str] = [StepSentence(hint_command("tickers"), "names the threads that never purge, and shows what helps")] if blind else []
    if code in (codes.UNUSED_PAGES, codes.PART_HELD) and found.worth_purging:
        why = "shows for each arena how long unused pages may stay, when it last returned some, and which threads can do it"
        steps.append(StepSentence(hint_command("decay"), why))
        outside = "; from outside: %s" % hint_command("purge") if found.can_purge else ""
        gained = None if found.is_core else found.purgeable_bytes
        call = StepSentence(
            names.call(PURGE_CALL),
            make_sentence("in the program returns %s to the OS now%s", SentenceSize(found.purgeable_bytes), outside),
            gained,
        )
        steps.append(suggest_program_purge(modules, gained) or call)
        steps += _list_preventions(tickers, state)
    is_much = code in (codes.UNUSED_PAGES, codes.PART_HELD) and 4 * found.huge_dirty_bytes > found.in_memory.held_bytes
    if is_much and found.dirty_mult is not None and found.dirty_mult < 0:
        steps.append(StepSentence(names.setting(HPA_BOUND.value), "at the next start bounds the dirty pages in huge pages"))
    if code == codes.FREE_REGIONS or (code == codes.PART_HELD and 10 * found.free_regions_bytes > found.held_bytes):
        steps.append(
            StepSentence(hint_command("bins"), "shows for each size class how many regions are free in slabs that are still in use")
        )
        steps += [hint for hint in [suggest_defragment(modules)] if hint]
    steps += verdict.what_is_in_use(code)
    if code == codes.IN_USE and state.has_prof and not state.prof:
        steps.append(StepSentence(names.setting("prof:true"), "at the next start records which code allocates"))
    if state.prof and state.prof_active is not False:
        steps.append(StepSentence(hint_command("profile -o heap.prof"), "writes which code allocated the memory in use, for jeprof"))
    elif state.prof and code == codes.IN_USE:
        steps.append(StepSentence(names.call('"prof.active"'), "with true in the program: records which code allocates from then on"))
    if 10 * (found.cached_bytes or 0) > found.held_bytes:
        steps.append(StepSentence(hint_command("tcache"), "shows what each thread's cache holds"))
    return steps


def _list_preventions(tickers: TickerReport, state: JemallocConditions) -> List[str]:
    """List settings that keep unused pages from staying again; none that is in force, that the program overrides, or that does not act
    on these pages."""
    kept = [arena for arena in tickers.arenas if arena.unused_bytes]
    is_timed = not kept or any(arena.dirty_bytes or (arena.muzzy_decay_ms or 0) >= 0 for arena in kept)
    is_off, steps, settings = is_timed and not state.background_running, [], []
    own = suggest_background(state.names)
    if is_off and (own or state.background_asked):
        switch = state.names.call('"background_thread"')
        steps.append(own or StepSentence(switch, "with true in this process turns background threads on: they were requested, and are off"))
    elif is_off:
        settings.append(BACKGROUND.value)
    if any(arena.verdict == "never" for arena in kept) and not _is_overridden(state):
        settings.append(USUAL_DECAY)
    if any(arena.muzzy_bytes and (arena.muzzy_decay_ms or 0) < 0 for arena in kept):
        settings.append(MUZZY_NONE.value)
    if settings:
        steps.append(StepSentence(state.names.setting(",".join(settings)), "at the next start prevents it from happening again"))
    return steps


def judge_jemallocs(facts: Sequence[JemallocFacts], around: Surroundings) -> List[AllocatorJudgement]:
    """Judge each instance by itself. A variable that one of them does not read may be another's."""
    read = {one.conditions.names.conf_variable for one in facts}
    return [_judge_one(one, around, read) for one in facts]


def _judge_one(facts: JemallocFacts, around: Surroundings, read: Container[Optional[str]]) -> AllocatorJudgement:
    unread = [name for name in facts.conditions.unread_variables if name not in read]
    state = facts.conditions._replace(unread_variables=unread)
    figures = jemalloc_verdict.make_jemalloc_figures(facts, around)
    cure = jemalloc_verdict.make_jemalloc_huge_cure(state.names, state.thp)
    retained = figures.retained_bytes, figures.returned_resident_bytes, figures.returned_huge_bytes
    returned = huge_pages.judge_huge_pages(huge_pages.Returned("jemalloc", *retained, "retained", cure), around.huge_pages)
    judged = jemalloc_verdict.judge_jemalloc(figures, facts.bins, state.names, returned)
    steps = list_next_steps(judged.code, figures, facts.tickers, state, around.modules)
    lines = list_findings(facts.info.version, figures, facts.arenas, state, facts.tickers, facts.bins)
    parts, name = jemalloc_verdict.list_jemalloc_parts(figures), facts.info.id
    steps = [*huge_pages.huge_page_steps(judged, returned), *steps]
    held = figures.in_memory.held_bytes
    held = held if figures.taken_bytes is None or figures.present else min(held, figures.taken_bytes)
    return AllocatorJudgement(name, (name,), held, judged, lines, steps, parts)


def show_parts(name: str, parts: Sequence[AllocatorPart], totals: Mapping[str, Optional[int]]) -> Page:
    """Show the parts of what an instance holds, and what it retains."""
    yield from plain_parts(name, parts)
    retained, resident = totals.get("retained_bytes"), totals.get("retained_resident_bytes")
    if retained and resident is None:
        yield make_sentence(
            "plus %s retained: address space returned to the OS; it is unknown whether some of it is still in RAM", SentenceSize(retained)
        )
    elif retained and retained > (resident or 0):
        yield make_sentence("plus %s retained (address space only, not resident)", SentenceSize(retained - (resident or 0)))


TOTAL_WORDS = ("allocated", "active", "metadata", "resident", "mapped", "retained")
"""malloc_stats_print's first line, in its order."""


def sum_arena_rows(rows: Sequence[JemallocArena]) -> Dict[str, Optional[int]]:
    """The sums over its arenas; unknown where none could be read, as there is always one."""
    return {**sum_columns(JemallocArena, rows, must_exist=True), "arenas": len(rows)}


def show_arenas(rows: Sequence[JemallocArena], totals: Mapping[str, Optional[int]]) -> Page:
    """Show a line for each arena, a line of sums, and jemalloc's six totals."""
    yield ColumnsTable(columns_of(JemallocArena), rows, {**totals, "index": "total", "kind": ""})
    six = ["%s: %s" % (word.capitalize() if word == "allocated" else word, "%s") for word in TOTAL_WORDS]
    yield make_cells(", ".join(six), *(SentenceSize(totals[word + "_bytes"]) for word in TOTAL_WORDS))


def show_bins(rows: Sequence[JemallocBin]) -> Page:
    """Size classes with what they hold, then unused extents."""
    lines = []
    for row in rows:
        shown: Dict[str, Any] = {**row._asdict(), "index": "" if row.index is None else row.index}
        if row.kind != "small" and row.min_size_bytes != row.max_size_bytes:
            shown["max_size_bytes"] = make_cells("%s-%s", SentenceSize(row.min_size_bytes), SentenceSize(row.max_size_bytes))
        shown["slabs"] = row.slabs if row.slabs is not None else row.extents
        if row.index is None:
            shown.update(dict.fromkeys(("used_blocks", "used_bytes", "cached_blocks", "cached_bytes"), ""))
        lines.append(shown)
    yield ColumnsTable(columns_of(JemallocBin), lines)
    if not rows:
        yield "no extents"


SHOWN_THREADS = 12
"""Threads that are named in one sentence."""
BLIND_ONES = "their first call was free(), so they never got a decay ticker and never return pages"
SMALL_ARENA_BYTES = 1 << 20
"""An idle arena that holds less needs no sentence of its own, nor do QUIET ones."""


class UnreadJemallocRow(NamedTuple):
    """A jemalloc that is there and is not read."""

    object: str
    version_text: Optional[str]
    page_bytes: Optional[int]
    affected: Optional[bool]
    """Its release has the bug."""
    why: str


class TickersAnswer(NamedTuple):
    """The answer of `tickers` for all jemallocs of a process."""

    found: Sequence[Tuple[AllocatorInfo, TickerReport]]
    unread: Sequence[UnreadJemallocRow] = ()
    """Those that are there and are not read, of whose threads nothing is known."""
    cured: Optional[Sequence[Any]] = None
    """What became of each blind thread; None where nothing was asked for."""
    stopped_ms: Optional[float] = None
    unsure: bool = False
    """None was found in memory of which parts are missing."""

    def without(self, refused: Container[Tuple[str, Optional[str]]]) -> "TickersAnswer":
        """No advice that would be refused: (id of the heap, code of the advice)."""
        kept = [
            (info, report._replace(advice=[advice for advice in report.advice if (info.id, advice.code) not in refused]))
            for info, report in self.found
        ]
        return self._replace(found=kept)

    @property
    def is_finding(self) -> bool:
        """Pages of an arena go unpurged, or are long overdue."""
        return any(row.costs_memory for _, report in self.found for row in report.arenas)

    @property
    def is_strict_finding(self) -> bool:
        """Return whether there is a finding or a blind thread, harmless or not."""
        return self.is_finding or any(row.verdict == BLIND for _, report in self.found for row in report.threads)

    @property
    def is_done(self) -> bool:
        """The process was changed."""
        return self.cured is not None

    @property
    def data(self) -> Dict[str, Any]:
        """The command's data."""
        reports = [report for _, report in self.found]
        threads = [row for report in reports for row in report.threads]
        return {
            "affected": True if any(report.affected for report in reports) else None if self.unread or self.unsure else False,
            "threads": threads,
            "counts": _count_verdicts(threads),
            "arenas": [row for report in reports for row in report.arenas],
            "unread": self.unread,
            "advice": list(dict.fromkeys(one for report in reports for one in report.advice)),
            **({"cured": self.cured, "stopped_ms": self.stopped_ms} if self.is_done else {}),
        }

    @property
    def page(self) -> Page:
        """The verdict in a sentence, the threads, the arenas, what to do."""
        if self.cured is not None:
            yield from show_cured(self.cured, self.stopped_ms)
        if not self.found and not self.unread:
            missing = ", but memory or files that would show one are missing" if self.unsure else ""
            yield "no jemalloc was found in this process%s" % missing
        for one in self.unread:
            release = {True: ", its release has the bug", False: ", its release does not have the bug", None: ""}[one.affected]
            yield "cannot read the jemalloc in %s: it is unknown whether a thread is blind%s" % (one.object.rsplit("/", 1)[-1], release)
        for place, (info, report) in enumerate(self.found):
            if place or self.unread:
                yield ""
            name = "%s %s (%s)" % (info.id, info.version or "of unknown version", info.object)
            counts = ["%d %s" % (count, verdict) for verdict, count in _count_verdicts(report.threads).items() if count]
            if report.affected:
                threads = count_noun(len(report.threads), "thread")
                yield "%s has the bug: of %s, %s" % (name, threads, ", ".join(counts) or "none could be read")
            else:
                yield "%s does not have the bug: a thread's first call may be free()" % name
            yield ""
            yield from _show_threads(report.threads)
            yield ""
            yield from _show_ticker_arenas(report.arenas)
            yield from ["", "What helps:"] if report.advice else ()
            for line in report.advice:
                yield "  %s (%s)" % (line.what, line.evidence)
                yield from ["    %s" % line.hint] if line.hint else ()


class DecayAnswer(NamedTuple):
    """The answer of `decay`."""

    rows: Sequence[DecayRow]

    @property
    def page(self) -> Page:
        """Show a line for each arena and state."""
        several = len({row.allocator for row in self.rows}) > 1
        shown = [{**row._asdict(), "arena": "%s %d" % (row.allocator, row.arena)} for row in self.rows]
        yield ColumnsTable(columns_of(DecayRow), shown if several else self.rows)
        worth = [row for row in self.rows if (row.bytes or 0) >= SMALL_ARENA_BYTES and row.driven != AT_ONCE]
        yield from dict.fromkeys("arena %d, %s: %s" % (row.arena, row.state, row.why) for row in worth)


def _count_verdicts(threads: Sequence[TickerThread]) -> Dict[str, int]:
    return {verdict: sum(row.verdict == verdict for row in threads) for verdict in THREAD_VERDICTS}


def _show_threads(rows: Sequence[TickerThread]) -> Page:
    """The most pressing first; then why, once for all threads with one reason."""
    ordered = sorted(rows, key=lambda row: (THREAD_VERDICTS.index(row.verdict), row.lwp or 0))
    texts = [{"name": row.name or "", "tsd": str(row.tsd or "none"), "arena": "-" if row.arena is None else row.arena} for row in ordered]
    yield ColumnsTable(columns_of(TickerThread), [{**row._asdict(), **text} for row, text in zip(ordered, texts)])
    reasons: Dict[Tuple[str, str], List[TickerThread]] = {}
    for row in ordered:
        if row.verdict in ("blind", "at-risk", "unknown"):
            reasons.setdefault((row.verdict, row.why + ("; %s" % row.hint if row.hint else "")), []).append(row)
    for (judged, why), members in reasons.items():
        many = BLIND_ONES if judged == BLIND and len(members) > 1 else why
        yield "%s: %s: %s" % (judged, list_names("thread", [format_identifier(row.lwp) for row in members], SHOWN_THREADS), many)


def _show_ticker_arenas(rows: Sequence[TickerArena]) -> Page:
    """Show who purges each arena, then the meaning, for those where that is not plain."""
    background = any(row.background_thread is not None for row in rows)
    shown = [{**row._asdict(), "background_thread": (row.background_thread or "off") if background else None} for row in rows]
    yield ColumnsTable(columns_of(TickerArena), shown)
    for row in rows:
        if row.verdict not in QUIET_VERDICTS and (row.verdict != "idle" or row.unused_bytes >= SMALL_ARENA_BYTES):
            muzzy = ", %s muzzy" if row.muzzy_bytes != 0 else ""
            sizes = [SentenceSize(row.dirty_bytes), SentenceSize(row.muzzy_bytes)][: 2 if muzzy else 1]
            yield make_cells("arena %d is %s: %s; it holds %s dirty" + muzzy, row.index, row.verdict, row.why, *sizes)


def show_cured(threads: Sequence[Any], stopped_ms: Optional[float]) -> Page:
    """Show the result for each blind thread."""
    for row in threads:
        yield "%s thread %s%s: %s" % ("cured    " if row.cured else "NOT cured", row.lwp, " (%s)" % row.name if row.name else "", row.why)
    if not threads:
        yield "no thread is blind: nothing was written"
    if any(row.cured for row in threads):
        yield "their unused pages are returned as they work, within the decay time; `%s` returns them now" % hint_command("purge")
    if stopped_ms is not None:
        yield "the process was stopped for %.1f ms in total, and is running again" % stopped_ms
    yield ""


_TUNABLE_COLUMNS = (Column("name", TEXT, field="name"), Column("value", COUNT, field="value"), Column("meaning", TEXT, field="meaning"))


def show_tunables(found: JemallocTunables) -> Page:
    """Sources, options, background threads."""
    for source in found.sources or ():
        yield "%s: %s" % (source.name, source.text)
    if not found.sources:
        yield "no option was set, as far as gdbheapx can see" if found.sources is not None else "what options were set is unknown"
    for option in found.refused:
        yield "not in force: %s, set in %s: %s" % (option.option, option.source, option.why)
    for name in found.unread_variables:
        yield "%s is in the environment, and this jemalloc does not read it" % name
    if found.tunables is None:
        yield "options have no names in this build: their values are unknown"
    yield ""
    rows = []
    for one in found.tunables or ():
        set_in, value = "set in %s" % one.set_in if one.set_in else "", make_cells("%s", _show_one(one.value, one.unit))
        if one.now is not None and one.now != one.value:
            value = make_cells("%s (now %s)", _show_one(one.value, one.unit), _show_one(one.now, one.unit))
        rows.append({"name": one.name, "value": value, "meaning": "; ".join(part for part in (one.meaning, set_in) if part)})
    if rows:
        yield ColumnsTable(_TUNABLE_COLUMNS, rows)
        yield ""
    yield _say_background(found)


def _say_background(found: JemallocTunables) -> str:
    threads = found.background_threads
    if not threads.enabled:
        return "background threads: off" if threads.enabled is False else "background threads: unknown"
    if threads.max is None:
        return "background threads: %s are running" % format_number(threads.running)
    text = "background threads: %s of at most %s are running; " % (format_number(threads.running), format_number(threads.max))
    if threads.runs is None:
        return text + "this build does not count their runs"
    return text + "%s runs so far, one every %.0f ms" % (format_number(threads.runs), threads.run_interval_ms or 0)


def _show_one(value: Any, unit: Optional[str]) -> Union[str, SentenceSize]:
    if value is None:
        return "?"
    if isinstance(value, bool):
        return "true" if value else "false"
    if unit == "bytes":
        return SentenceSize(value)
    return "%d ms" % value if unit == "ms" else str(value)
