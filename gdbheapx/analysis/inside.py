"""Analyse the memory in use beyond its sums for `report`: the owners of most of it, and its types."""

from typing import List, NamedTuple, Optional, Sequence, Union

from gdbheapx import findings, problems, verdict
from gdbheapx.analysis import memory_verdict, next_steps, page_parts, pins, runtime_tables
from gdbheapx.analysis.census import block, find, owned, registry, slabs
from gdbheapx.analysis.census.world import Recogniser, World
from gdbheapx.analysis.naming import paths
from gdbheapx.analysis.page_parts import PageParts
from gdbheapx.analysis.reachability import dominance, heap_graph, leaks, owners
from gdbheapx.analysis.reachability.garbage import Garbage
from gdbheapx.analysis.reachability.heap_graph import is_leak_unknown, lacks_holders
from gdbheapx.analysis.runtime_tables import RuntimeTable, Watch
from gdbheapx.analysis.split import Split, count_taken
from gdbheapx.errors import HeapxError
from gdbheapx.hints import hint_command
from gdbheapx.kernel.blocks.graph import NativeSum
from gdbheapx.model import Finding, StepSentence
from gdbheapx.session import Session
from gdbheapx.stops import Reads
from gdbheapx.units import SentenceSize, count_noun, format_share, join_sentences, make_sentence
from gdbheapx.verdict import HELD_BY_PROGRAM, LEAKED_PERCENT, LEAKED_PERCENT_1_0, SMALL_BYTES, WORTH_BYTES, HeapVerdict

MOST_ROWS = 5
LOST_PERCENT = 5
PINNED = (findings.FREE_BETWEEN, findings.FREE_REGIONS, findings.PART_HELD)
"""Codes of verdicts by which much free memory is not returned for the blocks beside it."""


class InsideAnswer(NamedTuple):
    """The part in use."""

    used: NativeSum
    leaked: Optional[NativeSum]
    """Nothing leads there; None where there was no room to find out, or it is unknown (see Leaks). `leaks` looks closer."""
    suspect: Optional[owners.LeakSuspect]
    """Who keeps most of it; None where nobody keeps a fifth."""
    classes: Sequence[find.CensusRow]
    """What most of it is, the largest first."""
    leaked_is_upper_bound: bool = False
    """Something that may hold blocks was not read."""
    together: Sequence[owners.OwnedMemory] = ()
    """See Owners."""
    own_allocator: Optional[slabs.Slabs] = None
    """See Census."""
    lost_mappings: Sequence[leaks.LostByName] = ()
    """With LOST_PERCENT of the memory or more."""
    may_be_garbage: bool = False
    """What is called leaked may wait for its collector."""
    garbage: Optional[Garbage] = None
    """Objects in cycles that wait for a collector, by a runtime that counts references; None: none, or it was not looked for."""


def is_much_leaked(inside: Optional[InsideAnswer], whole_bytes: int = 0) -> bool:
    """True if the look at all blocks proves that nothing points to much of the memory in use. `whole_bytes`: of the process, where most of
    it is not malloc's."""
    if inside is None or inside.leaked_is_upper_bound or inside.may_be_garbage:
        return False
    return _is_much(inside.leaked, max(inside.used.bytes, whole_bytes))


def _is_much(part: Union[NativeSum, Garbage, None], used_bytes: int) -> bool:
    if part is None or part.bytes < SMALL_BYTES:
        return False
    return part.bytes >= WORTH_BYTES or 100 * part.bytes >= LEAKED_PERCENT * used_bytes


def find_much_garbage(code: Optional[str], inside: Optional[InsideAnswer]) -> Optional[Garbage]:
    """Return the garbage that waits for a collector, if it is much of the memory that such a verdict calls in use."""
    if inside is None or code not in (*HELD_BY_PROGRAM, findings.MOSTLY_RUNTIME) or not _is_much(inside.garbage, inside.used.bytes):
        return None
    return inside.garbage


def is_leak_undecided(code: Optional[str], inside: Optional[InsideAnswer]) -> bool:
    """True if a verdict with that code would be `leaked` by what was not looked at, or could not be read."""
    if code not in HELD_BY_PROGRAM:
        return False
    if inside is None or inside.leaked is None or inside.may_be_garbage:
        return True
    return inside.leaked_is_upper_bound and _is_much(inside.leaked, inside.used.bytes)


def with_open(judged: HeapVerdict, inside: Optional[InsideAnswer]) -> HeapVerdict:
    """Complete the verdict: if it may be `leaked`, add the missing evidence and the command that decides, and drop the words that it is
    no leak; also where much is garbage.
    """
    garbage = find_much_garbage(judged.code, inside)
    if garbage is None and not is_leak_undecided(judged.code, inside):
        return judged
    if inside is not None and garbage is not None:
        of_used = (
            SentenceSize(garbage.bytes),
            SentenceSize(inside.used.bytes),
            format_share(garbage.bytes, inside.used.bytes),
            garbage.runtime,
        )
        evidence = make_sentence("%s of %s in use (%s) are %s objects in cycles that wait for its collector", *of_used)
        hint = "%s shows what frees them" % hint_command("leaks")
        line = Finding("Garbage", evidence, hint, findings.COLLECTOR_CYCLES, size_bytes=garbage.bytes)
        return judged._replace(lines=[judged.lines[0], line, *judged.lines[1:]])
    if inside is None:
        lacking = make_sentence("its blocks were not read: %s shows whether some are leaked", hint_command("leaks"))
    elif inside.leaked is None:
        lacking = make_sentence("it is unknown whether some are leaked: memory that may reference its blocks was not read (see the notes)")
    elif not _is_much(inside.leaked, inside.used.bytes):
        lacking = make_sentence("%s shows whether some of it is garbage that is not collected yet", hint_command("leaks"))
    else:
        leaked, used = inside.leaked.bytes, inside.used.bytes
        figures = make_sentence("at most %s of %s in use (%s)", SentenceSize(leaked), SentenceSize(used), format_share(leaked, used))
        why = "memory that may reference these blocks was not read (see the notes)"
        lacking = make_sentence(
            "%s are leaked: %s",
            figures,
            "part of that may be garbage, which %s shows" % hint_command("leaks") if inside.may_be_garbage else why,
        )
    first = judged.lines[0]
    hint = join_sentences("; ", [*([first.hint] if first.hint else []), lacking])
    return judged._replace(lines=[first._replace(hint=hint), *judged.lines[1:]])


def leaks_steps(session: Session, judged: HeapVerdict, inside: Optional[InsideAnswer]) -> List[StepSentence]:
    """Return the steps that come first where much is leaked, or may be; else no step."""
    if judged.kind == verdict.LEAKED or is_much_leaked(inside):
        return [
            StepSentence(hint_command("leaks"), "lists the memory that nothing references any more" + session.stands_still(Reads.GRAPH))
        ]
    if find_much_garbage(judged.code, inside) is not None:
        return [StepSentence(hint_command("leaks"), "lists the garbage by class, and how to free it" + session.stands_still(Reads.GRAPH))]
    if not is_leak_undecided(judged.code, inside):
        return []
    if inside is None or inside.may_be_garbage:
        why = "shows whether part of it is leaked (nothing references it any more)"
        return [StepSentence(hint_command("leaks"), why + session.stands_still(Reads.GRAPH))]
    codes = {problem.code for problem in session.problems}
    why = "before the next core includes mapped files, which this core lacks and which may reference these blocks"
    step = StepSentence("echo 0x3f > /proc/PID/coredump_filter", why)
    return [
        StepSentence(hint_command("leaks"), "lists unreferenced blocks of the memory read"),
        *([step] if problems.FILES_NOT_DUMPED in codes else []),
    ]


def with_leaked(judged: HeapVerdict, inside: Optional[InsideAnswer], whole_bytes: int = 0) -> HeapVerdict:
    """Put the leak first in the verdict where the look at all blocks proves that much of the memory in use is leaked. `whole_bytes` as of
    is_much_leaked().
    """
    is_judged = judged.kind not in (verdict.SMALL, verdict.INCONCLUSIVE)
    whole = 0 if judged.code in HELD_BY_PROGRAM else whole_bytes
    if inside is None or inside.leaked is None or not is_judged or not is_much_leaked(inside, whole):
        return with_open(judged, inside)
    used, leaked = inside.used.bytes, inside.leaked
    evidence = make_sentence(
        "%s of %s in use (%s) that nothing points to", SentenceSize(leaked.bytes), SentenceSize(used), format_share(leaked.bytes, used)
    )
    hint = "%s groups them by size and content, with the blocks behind them" % hint_command("leaks")
    first = Finding("Leaked", evidence, hint, findings.LEAKED, count_noun(leaked.blocks, "block"), leaked.bytes)
    held = judged.lines[0]._replace(hint=None) if judged.code == findings.IN_USE else judged.lines[0]
    made = verdict.of_lines([first, held, *judged.lines[1:]], verdict.less_sure(["hidden pointers"], judged.sure))
    was_said = judged.code in HELD_BY_PROGRAM and 100 * leaked.bytes >= LEAKED_PERCENT_1_0 * used
    return made if was_said else made._replace(kind_1_0=judged.kind_1_0, code_1_0=judged.code_1_0)


def with_objects(judged: HeapVerdict, program: Optional[str], tables: Optional[Sequence[RuntimeTable]]) -> HeapVerdict:
    """Add the bytes used by objects and the free bytes to the verdict, where most of the memory is a runtime's whose pools were read."""
    rows = [row for table in tables or () if table.name == program for row in table.rows]
    used, free = (next((row.bytes for row in rows if row.kind == kind), None) for kind in (runtime_tables.USED, runtime_tables.FREE))
    if judged.code != findings.MOSTLY_RUNTIME or used is None or free is None:
        return judged
    first = judged.lines[0]
    details = make_sentence("its objects use %s, %s are free; %s", SentenceSize(used), SentenceSize(free), first.details)
    return judged._replace(lines=[first._replace(details=details), *judged.lines[1:]])


def is_mostly_seen(split: Optional[Split]) -> bool:
    """Return True if a third of what the kernel cannot take back lies in blocks that are read: their owners explain the memory."""
    if split is None:
        return True
    blocks = sum(count_taken(part) for part in split.parts if part.allocator is not None or next_steps.is_seen(part.program))
    return 3 * blocks >= split.memory.total_bytes - sum(part.droppable_bytes or 0 for part in split.parts)


class Runtimes:
    """The runtimes of a target that have a table."""

    def __init__(self, session: Session, split: Optional[Split], deep: Optional[bool]) -> None:
        self.split, self._session = split, session
        self._deep = deep
        self.world: Optional[World] = None
        self.found: Sequence[Recogniser] = ()
        self._names: Sequence[str] = ()
        if split is None or not session.heaps.all():
            return
        # all memory is read then, not the heap alone
        if deep or (deep is None and heap_graph.is_small_heap(session) and split.memory.total_bytes <= heap_graph.SMALL_HEAP_BYTES):
            self.world = World(session)
            self.found = registry.find_tabled(self.world)
        else:  # by names of files: a process that stands still is not searched for a hint
            self._names = [name for name in split.runtimes() if name in registry.names_with_tables()]

    def steps(self, code: Optional[str]) -> List[StepSentence]:
        """Return the command to type where the runtimes, or the blocks that such a verdict speaks of, were not looked at."""
        what = []
        if (
            code in HELD_BY_PROGRAM
            and self._deep is None
            and self._session.target.has_memory
            and not heap_graph.is_small_heap(self._session)
        ):
            what.append("shows how much of it is leaked, and the owners and types of the rest")
        if self._names:
            what.append("adds a table of all memory by use: %s, malloc and other mappings" % " and ".join(self._names))
        return [StepSentence(hint_command("report --deep"), "; ".join(what) + self._session.stands_still(Reads.CENSUS))] if what else []


class InsideReading(NamedTuple):
    """Results of the look at all blocks."""

    inside: Optional[InsideAnswer]
    tables: Optional[Sequence[RuntimeTable]]
    pinned: Optional[Finding]
    """Which blocks keep most of the free memory from being returned."""
    page: Optional[PageParts] = None
    """Those that were given, with what was seen."""


NOTHING = InsideReading(None, None, None)


def find_inside(
    session: Session, judged: HeapVerdict, deep: Optional[bool], runtimes: Runtimes, page: Optional[PageParts] = None
) -> InsideReading:
    """Analyse the memory in use, where the verdict, a runtime, a page or the user asks for it; a result is None if it was not looked for,
    or not found: the problems say why.
    """
    looked = _look_inside(session, judged, deep, runtimes, page)
    return looked if looked.page is not None else looked._replace(page=page)


def _look_inside(
    session: Session, judged: HeapVerdict, deep: Optional[bool], runtimes: Runtimes, page: Optional[PageParts]
) -> InsideReading:
    is_deep, looked = deep or (deep is None and heap_graph.is_small_heap(session)), NOTHING
    if not session.heaps.all():
        return looked
    is_core, told = session.target.kind == "core", "the memory in use by owner"
    try:
        is_all_small = runtimes.split is not None and runtimes.split.memory.total_bytes <= heap_graph.SMALL_HEAP_BYTES
        is_worth_it = judged.code in HELD_BY_PROGRAM or (
            (judged.code or "").startswith(findings.MOSTLY) and is_all_small
        )  # mappings are read then
        asked = is_deep and (is_worth_it or (page is not None and is_core))
        if asked or runtimes.found or (deep and (is_core or judged.kind != verdict.FRAGMENTED)):
            looked = _of_blocks(session, runtimes, page)
        told = "the blocks that keep free memory from being returned"
        if is_deep and judged.code in PINNED and (is_core or looked is NOTHING):  # a process runs on after one look
            looked = looked._replace(pinned=pins.pins_finding(session.kept("pins", pins.PinsAnswer, lambda: pins.find_pins(session))))
    except HeapxError as error:
        session.problem(problems.NO_ANSWER, None, "%s was left out: %s" % (told, error), error.hint, partial=session.budget.expired())
    return looked


def _of_blocks(session: Session, runtimes: Runtimes, page: Optional[PageParts]) -> InsideReading:
    heap_graph.check_owners_fit(session)
    split = runtimes.split
    memory_verdict.note_coverage(session, memory_verdict.measure_split_coverage(session, split))
    watch = Watch(split, session.target.page_bytes) if split is not None else None
    looked = find.take_census(session, runtimes.world, watch)
    made = runtime_tables.make_runtime_tables(runtimes.found, split, looked, watch) if split is not None and watch is not None else None
    suspect, leaked, garbage = None, None, None
    lost: Sequence[leaks.LostByName] = ()
    together: Sequence[owners.OwnedMemory] = ()
    if looked.reach is not None and looked.names is not None:
        session.budget.progress.stage = "finding who keeps most"
        depth, rows = (1, 1) if page is None else (page_parts.OWNER_LEVELS, page_parts.MOST_OWNERS)
        tallied = dominance.tally_owners(session, looked.reach, looked.names, looked.paths)
        told = block.with_names(session, tallied, dominance.find_owners(tallied, depth, rows))
        whole = split.memory.total_bytes if split is not None else 0
        lost = leaks.group_lost_mappings(looked.reach, max(1, whole * LOST_PERCENT // 100))
        if is_leak_unknown(session, told.leaked):
            told = told._replace(leaked=None)
        garbage = paths.find_garbage(session, looked.reach, tallied.paths)
        suspect, leaked, together = told.suspects[0] if told.suspects else None, told.leaked, told.together
        if page is not None and looked.told is not None:
            page = page._replace(owners=told, flame=owned.paths_of(session, looked.told, tallied).flame())
    census = looked.census
    if page is not None:
        more = max(0, len(census.rows) - page_parts.MOST_ROWS)
        largest = census.rows[: page_parts.MOST_ROWS]
        page = page._replace(census=page_parts.PageCensus(census.blocks, census.bytes, census.named_bytes, largest, more))
    inside = InsideAnswer(
        used=NativeSum(census.blocks, census.bytes),
        leaked=leaked,
        suspect=suspect,
        classes=census.rows[:MOST_ROWS],
        leaked_is_upper_bound=lacks_holders(session),
        together=together,
        own_allocator=census.own_allocator,
        lost_mappings=() if is_leak_unknown(session) else lost,
        may_be_garbage=looked.paths is not None and looked.paths.has_garbage,
        garbage=garbage,
    )
    return InsideReading(inside, made, None, page)


def steps_to_suspect(found: Optional[InsideAnswer]) -> List[StepSentence]:
    """Return the command to type where several owners hold a suspect: no row of an owner refers to it."""
    suspect = found.suspect if found is not None else None
    if suspect is None or suspect.kind != owners.SHARED or suspect.accumulation.address is None:
        return []
    return [StepSentence(hint_command("refs %s", suspect.accumulation.address), "shows what points to the suspect's memory")]


def make_inside_steps(code: Optional[str], session: Session) -> List[StepSentence]:
    """Commands that go on from such a verdict; the first says for how long a process stands still for them."""
    stop = session.stands_still(Reads.CENSUS if code in HELD_BY_PROGRAM else Reads.PINS)
    held = [
        StepSentence(hint_command("owners"), "shows which variables and threads keep memory alive" + stop),
        StepSentence(hint_command("census"), "shows memory in use by class, type and content"),
        StepSentence(hint_command("leaks"), "lists the memory that nothing references any more"),
    ]
    kept = [
        StepSentence(
            hint_command("pins"),
            "shows which blocks in use keep free memory from being returned" + ("" if code in HELD_BY_PROGRAM else stop),
        )
    ]
    return [*(held if code in HELD_BY_PROGRAM else []), *(kept if code in PINNED else [])]
