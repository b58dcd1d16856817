"""Prediction of the effect of settings before a restart: settings of each allocator, and those that are common to all (huge pages, page
size, a restart); and as text.
"""

from typing import Annotated, Any, Collection, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import allocators
from gdbheapx.actions.call import find_advisable
from gdbheapx.allocators.answers import BOUNDED, EXACT, Effect, Requests, of_classes
from gdbheapx.allocators.heap import Allocator, AllocatorInstance
from gdbheapx.allocators.measured import saved_percent
from gdbheapx.allocators.plan import ALL
from gdbheapx.allocators.records import Page, heap_sum
from gdbheapx.allocators.session import Session
from gdbheapx.common.columns import BYTES, TEXT, Column, ColumnsTable, columns_of, hidden_column
from gdbheapx.common.hints import hint_command, words_of
from gdbheapx.common.model import StepSentence
from gdbheapx.common.ranges import unite_ranges
from gdbheapx.common.units import Sentence, SentenceSize, format_size, make_cells, make_sentence
from gdbheapx.inferior.base import MappingUse

EVEN_BYTES, EVEN_SHARE = 256 << 10, 64
"""By so much, and by this part (1/EVEN_SHARE) of RSS, two runs of one program differ without any setting: pages of files that the kernel
maps around a fault, where the stack begins, addresses."""
LEAST_PART = 32
"""Less than this part (1/LEAST_PART) of RSS is not worth a change."""
WITHOUT_VARIABLE = ("restart", "huge-pages", "page-size", "trim", "purge")
"""Codes of what no variable of the environment sets."""
PAGE_CLASS_BYTES = 16 << 10
"""Of a larger block the last page may never have been written: what its size class adds need not be in RAM."""
OTHER_SHARE, OTHER_BYTES, THREAD_BYTES = 4, 6 << 20, 3 << 20
"""What another allocator had at most beyond the most that there ever was, in what bench/what_if.py ran: this part (1/OTHER_SHARE) of it, so
much for itself, and so much for each thread, those included that ended and left an arena."""
LIBRARY_BYTES = 2 << 20
"""What a library that has malloc, and those that only it needs (such as C++'s), have in RAM themselves."""
PRELOAD = "LD_PRELOAD"
PAGES_BYTES = (16 << 10, 64 << 10)
"""Sizes of pages that kernels are built with."""


class Outcome(NamedTuple):
    """Setting, and the memory of the process with it."""

    setting: Annotated[str, Column("setting", TEXT)]
    code: str
    allocator: Annotated[Optional[str], Column("allocator", TEXT, goes=2)]
    """Whose setting it is; None: it is for all memory."""
    kind: Annotated[str, hidden_column()]
    """`exact`: it follows from the heap as it is; `bounded`: it depends on time and order."""
    saves_least_bytes: Annotated[Optional[int], hidden_column()]
    """RSS falls by so much at least; below 0: it may rise. None: not known."""
    saves_most_bytes: Annotated[Optional[int], Column("saves at most", BYTES)]
    then_least_bytes: Annotated[Optional[int], Column("RSS then, least", BYTES)]
    """With what two runs differ by. None: not known."""
    then_most_bytes: Annotated[Optional[int], Column("most", BYTES)]
    is_in_force: Annotated[bool, hidden_column()]
    """The process has it already, or it would change nothing."""
    why: Annotated[str, Column("rests on", TEXT, goes=1)]
    cost: Annotated[str, Column("cost", TEXT, goes=4)]
    acts_on_bytes: Annotated[Optional[int], Column("acts on", BYTES)]
    """What it is made for: the part of the free memory that it bears on, which is no bound. None: not known."""
    measured_percent: Annotated[Optional[int], hidden_column()] = None
    """What it saved of RSS where it was measured against what keeps memory here (docs/reference/advice.md). None: no program says that it
    helps here, so it is not advised."""
    harm: Annotated[int, hidden_column()] = 0
    """Of settings that save alike the lower one comes first: what a call returns, system calls and page faults, locks."""

    @property
    def is_advised(self) -> bool:
        """A call that returns memory now, or a setting that was measured to help."""
        return self.measured_percent is not None or (self.kind == EXACT and not self.is_in_force and (self.saves_least_bytes or 0) > 0)


SHOWN_PERCENT = 125
"""For rank(): weight of what was computed from this process, against what a setting saved in others."""


class WhatIf(NamedTuple):
    """The answer."""

    rss_bytes: Optional[int]
    """As it is; None on a core, which lacks it."""
    peak_bytes: Optional[int]
    """The most that it ever was."""
    settings: Sequence[Outcome]
    """What may save most comes first."""
    even_bytes: Optional[int] = None
    """By so much two runs differ without any setting, as a rule: both ends have room for it. None: RSS is not known."""
    ignores_environment: Optional[bool] = None
    """It was started with other rights than its caller's: no variable is heeded, and none is here. None: not known."""


def what_if(session: Session) -> WhatIf:
    """Return the prediction for all heaps, computed once for each session."""
    return session.kept("what-if", WhatIf, lambda: _predict_settings(session))


def _predict_settings(session: Session) -> WhatIf:
    target = session.target
    use, page = target.memory_use(), target.page_bytes
    is_live = use is not None and use.measure == "resident"
    uses: Sequence[MappingUse] = use.mappings if use is not None and is_live else ()
    rss = sum(one.resident_bytes for one in uses) if is_live else None
    present = sum(row.resident_bytes for row in use.mappings) if use is not None else None
    peak = use.peak_bytes if use is not None and is_live else None
    found: List[Tuple[Optional[str], Effect]] = []
    for heap in session.heaps.all():
        if not heap_sum(heap.info.id, heap.histogram(), heap.arenas(), heap.totals()).held_bytes:
            continue
        spans = unite_ranges((claim.start & -page, -(-claim.end // page) * page) for claim in heap.claims())
        in_ram = session.ram.of(spans, False)
        resident = in_ram.resident_bytes if in_ram is not None else None
        returned = _predict_returned(session, heap)
        own = [_with_returned_by_call(effect, returned) for effect in heap.what_if()]
        is_small = rss is not None and resident is not None and resident * LEAST_PART < rss
        others = () if is_small else _predict_other_allocators(session, heap, own, peak, resident)
        for effect in (*returned, *own):  # no setting of a heap saves more than it has in RAM
            is_bounded = resident is not None and effect.most_bytes is not None
            found.append((heap.info.id, effect._replace(most_bytes=min(resident or 0, effect.most_bytes or 0)) if is_bounded else effect))
        found += [(heap.info.id, effect) for effect in others]
    found += [(None, effect) for effect in (*_huge_pages(session, uses), *_predict_page_sizes(session, uses))]
    ignores = target.ignores_environment()
    even = _even_bytes(rss, page if any(one.huge_bytes for one in uses) else 0) if rss is not None else None
    heeded = [(allocator, effect) for allocator, effect in found if not ignores or effect.code in WITHOUT_VARIABLE]
    settings = [make_outcome(allocator, effect, rss, peak, even, present) for allocator, effect in heeded]
    return WhatIf(rss, peak, sorted(settings, key=rank_outcome), even, ignores)


def _with_returned_by_call(effect: Effect, returned: Sequence[Effect]) -> Effect:
    """A restart returns what a call can return, too."""
    return effect._replace(least_bytes=returned[0].least_bytes) if effect.code == "restart" and returned else effect


def rank_outcome(one: Outcome) -> Tuple[bool, bool, int, int, int]:
    """Return the sort key of an outcome: advised ones first, then by the savings on the memory they act on, then by the least harm.
    Savings computed from this process count a quarter more than savings measured in others.
    """
    about = (one.acts_on_bytes or 0) * (one.measured_percent or SHOWN_PERCENT)
    return not one.is_advised, one.is_in_force, -about, one.harm, -(one.saves_most_bytes or 0)


def _even_bytes(rss: int, page_bytes: int) -> int:
    """`page_bytes`: of a process that has huge pages; 0: it has none. One more is a matter of what the kernel has at hand."""
    return EVEN_BYTES + rss // EVEN_SHARE + page_bytes * page_bytes // 8


def make_outcome(
    allocator: Optional[str], effect: Effect, rss: Optional[int], peak: Optional[int], even: Optional[int], present: Optional[int] = None
) -> Outcome:
    """The memory that a process would have with a setting. `present`: the bytes of all its memory, of a core those in the file: a setting
    that acts on little of them is not worth a change.
    """
    least, most = effect.least_bytes, effect.most_bytes
    if effect.may_peak and least is not None:
        least = None if rss is None or peak is None else min(least, 0) + rss - peak
    low = high = None
    if rss is not None and even is not None:
        low = None if most is None else max(0, rss - most - even)
        high = None if least is None else rss - least + even
    measured = None
    is_large = (effect.acts_on_bytes or 0) * LEAST_PART >= (rss or present or 1 << 20)
    if effect.by is not None and not effect.is_in_force and is_large:  # saved where the same cause kept the memory
        measured = saved_percent(effect.by, effect.causes) or None
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
        acts_on_bytes=effect.acts_on_bytes,
        measured_percent=measured,
        harm=effect.by.harm + 1 if effect.by is not None else 0,
    )


def best(found: WhatIf, refused: Collection[str] = ()) -> Optional[StepSentence]:
    """The two that help most, with their cost. None: nothing is worth it. `refused`: words of what would not be done."""
    rss = found.rss_bytes
    if rss is None:
        return None
    worth = [one for one in found.settings if one.is_advised and one.code not in refused and (one.acts_on_bytes or 0) * LEAST_PART > rss]
    named = sorted(worth, key=rank_outcome)[:2]
    if not named:
        return None
    said, saved = [_describe_outcome(one, rss) for one in named], [one.saves_least_bytes for one in named if one.measured_percent is None]
    return StepSentence(
        hint_command("what-if"),
        make_sentence("shows what a setting saves: " + "; ".join(["%s"] * len(said)), *said),
        saved[0] if saved else None,
    )


def _describe_outcome(one: Outcome, rss: int) -> Sentence:
    if one.measured_percent is None:
        setting = "`%s`" % one.setting if words_of(one.setting) is not None else one.setting
        return make_sentence("%s saves %s of %s (cost: %s)", setting, SentenceSize(one.saves_least_bytes), SentenceSize(rss), one.cost)
    text = "%s acts on %s of %s, and saved up to %s %% where it was measured (cost: %s)"
    return make_sentence(text, one.setting, SentenceSize(one.acts_on_bytes), SentenceSize(rss), str(one.measured_percent), one.cost)


def _predict_returned(session: Session, heap: AllocatorInstance) -> List[Effect]:
    """Return the memory that the heap gives back on request (trim, purge); nothing if the call would be refused: on a core, without gdb."""
    way = heap.returning
    if way is None or session.target.kind == "core" or way.command not in find_advisable(session, heap):
        return []
    resident = heap.would_return(ALL).predicted.resident_bytes
    why = "whole free pages that are in RAM"
    if resident is None:
        why += ": which are is not known here"
    cost = "a page fault for each page that is used again"
    return [Effect(way.command, hint_command(way.command), EXACT, resident, resident, why, cost, acts_on_bytes=resident)]


def _predict_other_allocators(
    session: Session, heap: AllocatorInstance, own: Sequence[Effect], peak: Optional[int], resident: Optional[int]
) -> List[Effect]:
    """Its blocks in use in another allocator's sizes, where what was asked for is known. None of a malloc that the program has in itself:
    no library takes its place."""
    target, known = session.target, allocators.by_name()[heap.info.name]
    modules = target.modules()
    if not heap.info.owns_malloc or not modules or modules[0].file_name == heap.info.object:
        return []
    asked = heap.requests() or (of_classes(heap.histogram(), known.preload_bytes) if known.preload else ())
    made, free = [], next((one.acts_on_bytes for one in own if one.code == "restart"), None)
    now = sum(one.now_bytes for one in asked)
    unwritten = max(0, now - resident) if resident is not None else 0
    library = LIBRARY_BYTES if known.preload else 0
    threads = max(len(target.threads()), len(heap.arenas()))
    beyond = None if peak is None else peak // OTHER_SHARE + OTHER_BYTES + THREAD_BYTES * threads + unwritten
    has = target.environment_variable(PRELOAD)
    for other in allocators.all_allocators() if asked else ():
        if other.preload and other.name != heap.info.name:
            least = sum(max(one.asked_bytes, one.blocks * _in_ram(other, one)) for one in asked)
            most = sum(one.blocks * other.preload_bytes(one.most_bytes) for one in asked)
            why = "blocks in use take %s now, %s to %s in its size classes; at most as far beyond the peak as was ever measured"
            setting = "%s=%s" % (PRELOAD, other.preload) + (" (instead of its present value, or in front of it)" if has else "")
            told = format_size(now), format_size(least), format_size(most)
            saves = None if free is None else free + now - least
            if saves is not None and resident is not None:
                saves = min(resident, max(saves, resident - least)) + library
            loses = None if beyond is None else -beyond
            cost = "another allocator: test it"
            made.append(Effect("size-classes", setting, BOUNDED, loses, saves, why % told, cost, may_peak=True))
    return made


def _in_ram(other: Allocator[Any, Any], request: Requests) -> int:
    """Return the least resident bytes of one block in the other allocator, by its size class; 0 for a large block, whose last page may
    never have been written.
    """
    return other.preload_bytes(request.least_bytes) if request.most_bytes <= PAGE_CLASS_BYTES else 0


def _huge_pages(session: Session, uses: Sequence[MappingUse]) -> List[Effect]:
    """Return the savings without huge pages: pages of them that hold zeros, and are resident only since huge pages come whole. The
    program may have written such zeros itself.
    """
    huge = [one for one in uses if one.huge_bytes and not one.mapping.is_file and not one.mapping.shared]
    if not huge:
        return []
    zeros = session.ram.zero_huge_bytes(
        [(one.mapping.start, one.mapping.end) for one in huge], session.target.bulk_source(), session.budget
    )
    why = "pages of zeros in huge pages: at most they would not be in RAM; zeros that the program wrote stay"
    if zeros is None:
        zeros, why = sum(one.huge_bytes or 0 for one in huge), "all that huge pages hold: which of it is zeros was not read"
    cost = "a page fault for each page, and more misses of the TLB"
    return [Effect("huge-pages", "prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)", BOUNDED, 0, zeros, why, cost)]


def _predict_page_sizes(session: Session, uses: Sequence[MappingUse]) -> List[Effect]:
    """Larger pages come whole, too: of private memory, where it lies now."""
    page, made = session.target.page_bytes, []
    own = [one for one in uses if one.resident_bytes and not one.mapping.is_file and not one.mapping.shared]
    present = [(one, list(session.target.present_ranges(one.mapping.start, one.mapping.end))) for one in own]
    if not own or not all(ranges for _, ranges in present):
        return []
    for wide in PAGES_BYTES:
        if wide <= page:
            continue
        more = 0
        for one, ranges in present:
            wider = unite_ranges(
                [(max(one.mapping.start, start & -wide), min(one.mapping.end, -(-end // wide) * wide)) for start, end in ranges]
            )
            more += sum(end - start for start, end in wider) - sum(end - start for start, end in ranges)
        why = "private memory where it lies now, in whole pages of that size; files are left out"
        made.append(Effect("page-size", "a kernel with pages of %d KiB" % (wide >> 10), EXACT, -more, -more, why, "fewer page faults"))
    return made


NO_SETTING = "page-size"
"""A kernel with other pages: not set for one process; --json has it."""


def format_what_if(found: WhatIf) -> Page:
    """The memory now, and with each setting."""
    if found.rss_bytes is not None:
        yield make_cells("RSS now: %s, peak: %s", SentenceSize(found.rss_bytes), SentenceSize(found.peak_bytes))
    if found.ignores_environment:
        yield make_cells("The process runs with other rights than its caller (AT_SECURE) and ignores environment variables: none is shown.")
    settings = [row for row in found.settings if row.code != NO_SETTING]
    shown, rows = [], []
    for row in sorted(settings, key=lambda row: row.kind != EXACT):
        is_known = row.is_advised or row.kind == EXACT  # computed for this process; and it may save 1 % of RSS
        saves = found.rss_bytes is None or row.saves_most_bytes is None or 100 * row.saves_most_bytes >= found.rss_bytes
        if is_known and saves and not row.is_in_force:
            measured = "" if row.measured_percent is None else "; measured in such a program: up to %d %% less" % row.measured_percent
            shown.append(row)
            rows.append({**row._asdict(), "allocator": row.allocator or "all", "why": row.why + measured})
    yield ColumnsTable(columns_of(Outcome), rows) if rows else "No setting was measured to help against this kind of memory."
    in_force = [row.setting for row in settings if row.is_in_force]
    if in_force:
        yield "In force, or without effect: %s" % "; ".join(in_force)
    others = dict.fromkeys(row.setting for row in settings if row not in shown and not row.is_in_force)  # several heaps may have one
    if others:
        yield "Not shown, as they save less than 1 %% or were not measured to help here (--json has them): %s" % "; ".join(others)
