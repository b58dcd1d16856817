"""The overview of one target: split, totals, verdict, size classes, findings, next steps. What `report` shows."""

from typing import Annotated, Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import allocators
from gdbheapx.allocators.heap import AllocatorInstance
from gdbheapx.allocators.records import AllocatorJudgement, AllocatorPart, Facts, OfAllocator, Surroundings, heap_sum
from gdbheapx.allocators.session import Session
from gdbheapx.analysis import inside, memory_verdict, split
from gdbheapx.analysis.addon_answers import Books
from gdbheapx.analysis.inside import InsideAnswer, PageReader, RuntimeTable
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.reachability.owners import LeakSuspect
from gdbheapx.analysis.split import Split, SplitMemory, count_taken, split_memory
from gdbheapx.common import addon_loader, findings, verdict
from gdbheapx.common.hints import hint_command, words_of
from gdbheapx.common.model import AllocatorInfo, Finding, HeapSum, HistogramRow, MemoryPart, NextStep, StepAdvice, StepSentence
from gdbheapx.common.problems import STACK_LISTS_CUT, ZEROS_NOT_SOUGHT
from gdbheapx.common.units import make_sentence
from gdbheapx.common.verdict import HELD_BY_PROGRAM, HeapVerdict
from gdbheapx.inferior.base import Target

TOP_CLASSES = 5
_KEPT_PAGES = (findings.FREED_AND_HELD, findings.UNUSED_PAGES, findings.ARENAS_LEFT, findings.UNMERGED, findings.GIVEN_BACK_IN_RAM)


class Overview(NamedTuple):
    """Content of `report`."""

    split: Optional[Sequence[MemoryPart]]
    """The memory by whose it is, largest first; None where the target does not show (remote)."""
    memory: Optional[SplitMemory]
    """The sums of the split."""
    verdict: HeapVerdict
    """Whether it is malloc at all, and an allocator that is read here; if so that on the allocator that holds most."""
    verdicts: Dict[str, HeapVerdict]
    """By allocator, the one that holds most first; copies that are one to their user together, under the first one's id."""
    held: Dict[str, Sequence[AllocatorPart]]
    """By id: the parts of what it holds, where its arenas do not say that."""
    totals: Dict[str, Mapping[str, Optional[int]]]
    """By allocator id."""
    heaps: Sequence[HeapSum]
    """What each holds and has in use."""
    arenas: Sequence[Annotated[Any, OfAllocator("arenas")]]
    """All, in the allocators' order; text shows the biggest."""
    sizes: Sequence[HistogramRow]
    """The size classes that hold most used bytes, largest first."""
    findings: Sequence[Finding]
    """All that was found, the lines of the verdicts first: who asks for a code finds it here."""
    next: Sequence[NextStep]
    """Those of `next_steps` without target."""
    allocators: Sequence[AllocatorInfo]
    """The owner of malloc first, as in the envelope."""
    shown: Sequence[str]
    """Ids of the allocators that hold enough of the memory to be spoken of, as keys of `verdicts`."""
    inside: Optional[InsideAnswer]
    """The part in use; None where it was not looked at."""
    runtimes: Optional[Sequence[RuntimeTable]]
    """For each runtime that is read (CPython, a JVM) a table in which every byte of memory.total_bytes is once; None where that was not
    looked at."""
    books: Optional[Books] = None
    """What BIND's server itself counts, by memory context; None: no such program, or its contexts were not found."""
    next_steps: Sequence[StepAdvice] = ()
    """What to do next, first things first."""

    def without(self, is_refused: Callable[[str], bool]) -> "Overview":
        """Return the overview without steps that would be refused where it is read."""
        words = [words_of(step.command) for step in self.next_steps]
        kept = [step for step, asked in zip(self.next_steps, words) if asked is None or not is_refused(asked)]
        return self if len(kept) == len(words) else self._replace(next_steps=kept, next=[step.bare for step in kept])


MOST_BLOCKS = 1 << 18
"""With more of them the settings are not weighed: the process would be stopped for longer than the report takes."""

DOCTOR = StepSentence(hint_command("doctor"), "lists the parts that were found and those that are missing")


def make_overview(
    session: Session,
    deep: Optional[bool] = None,
    page: Optional[PageReader] = None,
    advisable: Callable[[AllocatorInstance], FrozenSet[str]] = lambda heap: frozenset(),
) -> Overview:
    """Everything at once: each allocator is walked one time. There may be none. `deep`: look at all blocks in use, whatever that
    takes; False: at none; None: where that is quick. `page`: collects what a page shows beyond. `advisable`: which of the
    commands that return a heap's memory would not be refused."""
    target, heaps = session.target, session.heaps.all()
    facts = [heap.facts() for heap in heaps]
    known = allocators.by_name()
    names = {fact.info.id: known[fact.info.name].part_name(fact.info.id, len(facts) == 1) for fact in facts}
    memory = split_memory(target, session.kernel, {fact.info.id: fact.claims for fact in facts}, session.budget, names)
    if memory is not None and memory.zeros_until is not None:
        what = "the search for pages of zeros in the core ended here: %s" % session.budget.reason
        session.report(ZEROS_NOT_SOUGHT, memory.zeros_until, what, "the split includes memory that was reserved and never used")
    cut_at = memory.attribution.stacks.cut_at if memory is not None and memory.attribution is not None else None
    if cut_at is not None:
        what = "the walk over the lists of stacks ended here: %s" % session.budget.reason
        session.report(STACK_LISTS_CUT, cut_at, what, "which threads ended and were never joined is unknown")
    is_several = sum(bool(fact.sizes) for fact in facts) > 1
    classes = [row._replace(allocator=fact.info.id if is_several else None) for fact in facts for row in fact.sizes]
    classes.sort(key=lambda row: -row.used_bytes)
    may = {fact.info.id: advisable(heap) for heap, fact in zip(heaps, facts)}
    judged = _judge_allocators(target, facts, memory, may)
    shown = [judgement for judgement in judged if memory_verdict.has_much_memory(memory, judgement.ids)]
    main, steps = _make_verdict(session, memory, judged, shown)
    main = memory_verdict.with_verdict_1_0(main, memory)
    looked_at = memory_verdict.measure_split_coverage(session, memory)
    if looked_at is not None and looked_at.is_low:
        main = main._replace(sure=verdict.less_sure(["memory without a reader"], main.sure))
    if not inside.is_mostly_seen(memory):
        session.is_copied_whole = False
    known_runtimes = inside.Runtimes(session, memory, deep)
    heap_sums = [heap_sum(fact.info.id, fact.sizes, fact.arenas, fact.totals) for fact in facts]
    addon = addon_loader.find_capability("books")
    books = addon.find_bind_books(session, sum(heap.used_bytes for heap in heap_sums)) if addon is not None else None
    deeper = known_runtimes.steps(main.code)
    steps = [*deeper, *steps] if main.code in verdict.HELD_BY_PROGRAM else [*steps, *deeper]
    steps = [*steps, *_suggest_settings(session, main, may)]
    if page is not None:
        page.read_heaps(session, facts)
    looked, tables, pinned = inside.find_inside(session, main, deep, known_runtimes, page)
    main = inside.with_objects(main, memory_verdict.find_largest_program(memory), tables)
    whole_bytes = memory.memory.total_bytes if memory is not None else 0
    steps = [*inside.steps_to_fields(looked), *steps[:1], *inside.steps_to_suspect(looked, whole_bytes), *steps[1:]]
    main, judged, steps = _with_leaked(session, main, judged, steps, looked, whole_bytes)
    shown = [judgement for judgement in judged if judgement.allocator in {one.allocator for one in shown}]
    said = [*main.lines, *(line for judgement in shown for line in judgement.verdict.lines)]
    client = memory_verdict.make_client_options(None if session.without_names else target.identity().command_line)
    by_command: Dict[str, StepAdvice] = {}  # in its first form: an allocator may name one that the memory as a whole asks for
    for step in steps:
        one = StepAdvice(None, step)
        if isinstance(step, StepSentence):
            command, why = (memory_verdict.add_client_options(part, client) for part in (step.command, step.why))
            one = StepAdvice(command, why, step.saves_bytes, step.saves_bytes is not None)
        by_command.setdefault(one.command or one.why, one)
    advice = list(by_command.values())
    beside = [*memory_verdict.find_memory_findings(memory), *(finding for judgement in judged for finding in judgement.findings)]
    beside += split.find_copied_pages(session, memory)
    beside += [pinned] if pinned is not None else []
    beside += memory_verdict.find_unloaded_findings(session, looked.used, looked.leaked) if looked is not None else []
    made = Overview(
        split=memory.parts if memory is not None else None,
        memory=memory.memory if memory is not None else None,
        verdict=verdict.with_causes(main, [*main.lines, *beside]),
        verdicts={one.allocator: verdict.with_causes(one.verdict, [*one.verdict.lines, *one.findings]) for one in judged},
        held={judgement.allocator: judgement.parts for judgement in judged if judgement.parts},
        totals={fact.info.id: fact.totals for fact in facts},
        heaps=heap_sums,
        arenas=[row for fact in facts for row in fact.arenas],
        sizes=[row for row in classes[:TOP_CLASSES] if row.used_bytes],
        findings=list(dict.fromkeys([*said, *beside])),
        next=[step.bare for step in advice],
        next_steps=advice,
        allocators=[fact.info for fact in facts],
        shown=[judgement.allocator for judgement in shown],
        inside=looked,
        runtimes=tables,
        books=books,
    )
    return made


def _make_verdict(
    session: Session, memory: Optional[Split], judged: Sequence[AllocatorJudgement], shown: Sequence[AllocatorJudgement]
) -> Tuple[HeapVerdict, Sequence[str]]:
    """Judge the largest part of the memory, or the allocator that holds most of it; and return the next steps."""
    target = session.target
    is_hidden = session.discovery.may_be_hidden()
    is_open = is_hidden or any(judgement.verdict.code == findings.EVIDENCE_MISSING for judgement in judged)
    large = memory_verdict.judge_memory(memory, target.lost_bytes(), is_open, not judged)
    if large is not None and large[0].kind == verdict.INCONCLUSIVE:
        beside = [line for judgement in judged for line in _find_beside(judgement.verdict)]
        return large[0]._replace(lines=[*large[0].lines, *beside]), [DOCTOR]
    foreign = session.discovery.foreign_owner()
    if large is None or memory_verdict.may_be_mallocs(large[0]) or (foreign is not None and foreign.is_anywhere):
        unread, steps = _find_unread(session, large[0].lines[0] if large is not None else None)
        if unread is not None:
            return verdict.of_lines([unread]), steps
    if large is not None:
        largest, program = large
        cause = memory_verdict.find_stack_cause(memory) if largest.code == findings.MOSTLY + kinds.STACK else None
        code = cause.code if cause is not None else None
        program = program or memory_verdict.find_program_with_cache(memory)
        steps = [*memory_verdict.make_memory_steps(target, largest.code, program, bool(session.heaps.all()), code, bool(shown))]
        first, *rest = largest.lines
        if largest.kind == verdict.RUNTIME and first.hint is None and steps:  # its own command says what it keeps
            first = first._replace(hint=make_sentence("that is normal unless it keeps growing: %s", steps[0]))
        lines = [first, *rest, *(line for judgement in shown for line in _find_beside(judgement.verdict))]
        if largest.code == findings.MOSTLY + kinds.CACHE and program is None and shown:  # nothing of that is the program's
            steps += inside.make_inside_steps(shown[0].verdict.code, session)
        return largest._replace(lines=lines), [*steps, *(step for judgement in shown for step in judgement.next_steps)]
    if not judged and session.discovery.unused():
        unused = [Finding("Small", copy.what, copy.hint, findings.SMALL_HEAP) for copy in session.discovery.unused()]
        return verdict.of_lines(unused), []
    if not judged:
        known = "how much memory is in use and how much is free is unknown"
        nothing = verdict.inconclusive_finding("no allocator could be read", known, None, findings.NO_ALLOCATOR)
        return verdict.of_lines([nothing]), [DOCTOR]
    main = judged[0].verdict
    if is_hidden and main.kind != verdict.INCONCLUSIVE:
        main = main._replace(sure=verdict.less_sure(["the owner of malloc"], main.sure))
    programs = memory.runtimes() if memory is not None else []
    of_programs, of_allocators = memory_verdict.in_malloc(target, programs), _collect_steps(target, shown or judged)
    is_free = main.kind in (verdict.KEPT, verdict.FRAGMENTED)  # it is not the programs' to explain
    steps = [*inside.make_inside_steps(main.code, session), *(of_allocators + of_programs if is_free else of_programs + of_allocators)]
    cause = memory_verdict.find_stack_cause(memory)
    if main.kind == verdict.SMALL and cause is not None:
        steps = memory_verdict.make_memory_steps(target, None, None, cause=cause.code)
    return main._replace(lines=[*main.lines, *memory_verdict.find_beside(memory)]), steps


def _with_leaked(
    session: Session,
    main: HeapVerdict,
    judged: List[AllocatorJudgement],
    steps: Sequence[str],
    found: Optional[InsideAnswer],
    total_bytes: int = 0,
) -> Tuple[HeapVerdict, List[AllocatorJudgement], Sequence[str]]:
    """The verdict, that of each allocator, and the order of steps, by what the look at all blocks proves, or would."""
    now_main = inside.with_leaked(main, found, total_bytes)
    first = inside.leaks_steps(session, now_main, found)
    decided = len(judged) if found is None else 1  # what was found is of all together: of the largest, whose verdict that of the whole is
    made = [*(one._replace(verdict=inside.with_leaked(one.verdict, found)) for one in judged[:decided]), *judged[decided:]]
    now = {line: new.verdict.lines[0] for old, new in zip(judged, made) for line in old.verdict.lines[:1]}
    if now and now_main.kind != verdict.LEAKED and main.code not in verdict.HELD_BY_PROGRAM:
        # what it says of the allocators beside is what their own verdicts say
        now_main = now_main._replace(lines=[now.get(line, line) for line in now_main.lines])
    return now_main, made, [*first, *steps]


def _suggest_settings(session: Session, judged: HeapVerdict, may: Mapping[str, FrozenSet[str]]) -> Sequence[StepSentence]:
    """The two that help most, where malloc keeps what is free."""
    has_free = judged.kind in (verdict.KEPT, verdict.FRAGMENTED) or judged.code == findings.PART_HELD
    predictor, heaps = addon_loader.find_capability("settings"), session.heaps.all()
    if predictor is None or session.target.kind != "live" or not has_free or judged.kind_1_0 == verdict.HUGE_PAGES_1_0:
        return []
    if sum(row.used_chunks + (row.free_chunks or 0) for heap in heaps for row in heap.histogram()) > MOST_BLOCKS:
        return [StepSentence(hint_command("what-if"), "shows what a setting would save")]
    ways = [heap.returning.command for heap in heaps if heap.returning is not None]
    step = predictor.best(predictor.what_if(session), [way for way in ways if not any(way in allowed for allowed in may.values())])
    return [step] if step is not None else []


def _judge_allocators(
    target: Target, facts: Sequence[Facts], memory: Optional[Split], advisable: Mapping[str, FrozenSet[str]]
) -> List[AllocatorJudgement]:
    """Judge each allocator by itself, the one that holds most first."""
    if not facts:
        return []
    ids = [fact.info.id for fact in facts]
    around = Surroundings(
        len(target.threads()),
        target.modules(),
        target.huge_pages(),
        is_core=target.kind == "core",
        taken_bytes=memory_verdict.sum_taken(memory, ids),
        hugetlb_bytes=memory_verdict.sum_taken(memory, ids, kinds.HUGETLB),
        droppable_bytes=memory_verdict.sum_droppable(memory, ids),
        taken=memory.in_ram_or_swap if memory is not None else lambda ranges: None,
        core_runs=memory.core_runs() if memory is not None else None,
        beyond_bytes=memory_verdict.unread_bytes(memory, target.lost_bytes()),
        advisable=advisable,
        is_cut=target.lost_bytes() != 0,
        are_zeros_silent=memory is not None and memory.are_zeros_silent,
        rss_bytes=memory.memory.total_bytes if memory is not None and target.kind == "live" else None,
    )
    names = {fact.info.name for fact in facts}
    present = [allocator for allocator in allocators.all_allocators() if allocator.name in names]
    returning = {allocator.returning.command for allocator in present if allocator.returning is not None}
    made: List[AllocatorJudgement] = []
    for allocator in present:
        for judgement in allocator.judge([fact for fact in facts if fact.info.name == allocator.name], around):
            steps, judged = [], judgement.verdict
            for step in judgement.next_steps:
                command = words_of(step.command) if isinstance(step, StepSentence) else None
                is_call = command is not None and command.split()[0] in returning
                if not is_call or any(command in advisable.get(name, ()) for name in judgement.ids):
                    steps.append(step)
            if around.is_core:  # no second look at a process that has ended is advised
                lines = [line._replace(hint=verdict.GREW_HINT) if line.hint is verdict.GROWING_HINT else line for line in judged.lines]
                judged = judged._replace(lines=lines)
            made.append(judgement._replace(verdict=judged, next_steps=steps))
    return sorted(made, key=lambda judgement: -judgement.held_bytes)


def _find_beside(judged: HeapVerdict) -> Sequence[Finding]:
    """Return the line for an allocator that holds the smaller part."""
    return () if judged.kind == verdict.SMALL else judged.lines[:1]


def _find_unread(session: Session, outside: Optional[Finding]) -> Tuple[Optional[Finding], Sequence[str]]:
    """Return the finding for an allocator that is not read here and owns malloc, or may have the memory outside those that are; and the
    steps for it.
    """
    owner, unread = session.discovery.foreign_owner(), session.discovery.unread()
    if owner is None:
        if outside is None or not unread:
            return None, []
        name = next(allocator.name for allocator in allocators.all_allocators() if session.discovery.found(allocator).unread)
        what = "%s is present, cannot be read, and may own most of the memory" % name
        finding = verdict.inconclusive_finding(what, outside.evidence, unread[0].what, findings.ALLOCATOR_UNREAD)
        return finding, [unreadable.hint for unreadable in unread if unreadable.hint] or ["doctor shows what is missing"]
    what = "%s owns malloc, and gdbheapx cannot read it" % (owner.allocator or "another allocator")
    where = "generated code, bss or others" if owner.is_anywhere else "other anonymous mappings"
    hint = "its memory is not in the arenas below; it counts as %s above" % where if session.heaps.all() else None
    finding = verdict.inconclusive_finding(what, "the process calls malloc in %s" % owner.file, hint, findings.OWNER_UNREAD)
    hints = [unreadable.hint for unreadable in unread if unreadable.module.base == owner.module.base and unreadable.hint]
    return finding, hints or [owner.hint or "use the statistics of the allocator that owns malloc"]


def _collect_steps(target: Target, judged: Sequence[AllocatorJudgement]) -> List[str]:
    """Return the next steps of the allocators that hold enough to be worth it."""
    steps: List[str] = []
    for judgement in judged:
        steps += [step for step in judgement.next_steps if step not in steps]
    if not steps and judged and all(judgement.verdict.kind == verdict.SMALL for judgement in judged):
        return ["if the process is still large, its memory is not in %s" % ("this heap" if len(judged) == 1 else "these heaps")]
    if not steps:
        shown = [StepSentence(hint_command("arenas"), "shows what could be read of each arena")] if judged else []
        return [*shown, DOCTOR]
    if target.kind == "core" and judged[0].verdict.code in (*_KEPT_PAGES, findings.PART_HELD):
        steps.append("on the live process the same commands also show what is in RAM")
    return steps


MOST_PARTS = 3


class Brief(NamedTuple):
    """Members as in Overview, where it has them."""

    allocators: Sequence[AllocatorInfo]
    """Those that hold enough of the memory to be spoken of; all of them where none does."""
    memory: Optional[SplitMemory]
    largest: Sequence[MemoryPart]
    """The largest parts of the split."""
    verdict: HeapVerdict
    was_looked: bool
    """All blocks in use were looked at."""
    suspect: Optional[LeakSuspect]
    """Who keeps most of them; None also where no one keeps a fifth."""
    next: Optional[StepAdvice]


def shorten_overview(overview: Overview) -> Brief:
    """Return the head of this overview."""
    steps = overview.next_steps or [StepAdvice(*step) for step in overview.next]  # an older snapshot has these alone
    parts = sorted(overview.split or (), key=lambda part: -count_taken(part))
    return Brief(
        allocators=[info for info in overview.allocators if info.id in overview.shown] or overview.allocators,
        memory=overview.memory,
        largest=parts[:MOST_PARTS],
        verdict=overview.verdict,
        was_looked=overview.inside is not None,
        suspect=overview.inside.suspect if overview.inside is not None else None,
        next=next((step for step in steps if step.command is not None), next(iter(steps), None)),
    )


def is_large(brief: Brief) -> bool:
    """Return True if the suspect keeps enough to be named in the head."""
    return inside.is_large_suspect(brief.suspect, brief.memory.total_bytes if brief.memory is not None else 0)


def may_have_suspect(brief: Brief) -> bool:
    """True if a look at all blocks, which there was not, would say who keeps most of the memory."""
    return not brief.was_looked and brief.verdict.code in HELD_BY_PROGRAM
