"""The parts of a report that read every block: owners, leaks, classes, tables of runtimes, and the parts of a page."""

from typing import Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

from gdbheapx.allocators.records import Facts
from gdbheapx.allocators.session import Session
from gdbheapx.analysis import memory_verdict, pins
from gdbheapx.analysis.addon_answers import Garbage
from gdbheapx.analysis.census import block, find, owned, registry
from gdbheapx.analysis.census.find import Census, CensusLook
from gdbheapx.analysis.census.owned import FlameFrame
from gdbheapx.analysis.census.world import CensusTarget, Inner, Recogniser, RuntimeLabels, Signature
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.memory.kinds import MemoryOwner
from gdbheapx.analysis.reachability import dominance, heap_graph, leaks, owners, paths
from gdbheapx.analysis.reachability.heap_graph import HeldByField, ManagedHeap, is_leak_unknown, lacks_holders
from gdbheapx.analysis.reachability.owners import Owners
from gdbheapx.analysis.split import Split, count_taken
from gdbheapx.common import findings, problems, verdict
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import GUESS, Finding, SplitPart, StepSentence
from gdbheapx.common.ranges import Range
from gdbheapx.common.stops import Reads
from gdbheapx.common.units import Sentence, SentenceSize, count_noun, format_share, join_sentences, make_sentence
from gdbheapx.common.verdict import HELD_BY_PROGRAM, LEAKED_PERCENT, LEAKED_PERCENT_1_0, MATTERS, SMALL_BYTES, WORTH_BYTES, HeapVerdict
from gdbheapx.kernel.blocks.graph import NativeSum

USED, FREE, OVERHEAD, ABSENT = "runtime-used", "runtime-free", "runtime-overhead", "not-in-ram"
GARBAGE = "runtime-garbage"
OWNED, OTHER, KEPT, REMAINDER = "malloc-owned", "malloc-other", "malloc-free", "remainder"
UNNAMED = (kinds.ANONYMOUS, kinds.BRK)


class RuntimeTable(NamedTuple):
    """The whole memory of the process, by what one runtime in it has."""

    name: str
    """`CPython`, `JVM`, `V8`, `PostgreSQL`, `Perl`, `Ruby`, `PHP`."""
    rows: Sequence[SplitPart]
    """Kinds of rows: `runtime-used`, `runtime-garbage` (unreachable objects that are not collected yet), `runtime-free`, `runtime-overhead`
    (what the runtime cut up itself), `malloc-owned` (blocks that its objects are or own, or that have its header), `malloc-other`,
    `malloc-free` (what the allocator keeps), `not-in-ram` (below 0: part of the lines above it), `remainder`; else the kind of a part of
    the split."""
    sum_bytes: int
    """Of all rows: memory.total_bytes."""
    remainder_bytes: int
    """Anonymous memory of which nothing shows what it is: one of the rows."""


class Watch:
    """Reader of data that is only available while the process is stopped, with the census: it is called when all is read."""

    def __init__(self, split: Split, page_bytes: int) -> None:
        self._split, self._page = split, page_bytes
        self.pools: Dict[str, Dict[MemoryOwner, int]] = {}
        """By module: what of its pieces is in RAM, by whose it is in the split."""
        self.absent_bytes = 0
        """Of large blocks in use."""

    def __call__(self, inner: Sequence[Inner], large: Sequence[Tuple[int, int]]) -> None:
        """`large`: (address, size) of blocks in use that are large."""
        for module in {memory.module for memory in inner}:
            self.pools[module] = self._split.held([part for memory in inner if memory.module == module for part in memory.taken])
        whole: List[Range] = []
        for address, size in large:
            start, end = -(-address // self._page) * self._page, (address + size) & -self._page
            if start < end:
                whole.append((start, end))
        held_bytes = self._split.in_ram(whole)
        if held_bytes is not None:
            self.absent_bytes = max(0, sum(end - start for start, end in whole) - held_bytes)


def make_runtime_table(recogniser: Recogniser, split: Split, looked: CensusLook, watch: Watch) -> RuntimeTable:
    """Make the table of one recogniser."""
    words, live = recogniser.table, split.memory.measure == "resident"
    assert words is not None
    held = watch.pools.get(recogniser.module, {})
    absent = "not in RAM" if live else "not in the core (never touched, or zeros)"
    managed = [memory for memory in looked.census.managed if memory.module == recogniser.module]
    heaps = looked.told.reach.regions.managed if looked.told is not None else ()
    pools = _make_pool_rows(words.pools, managed, heaps, sum(held.values()), absent) if managed else []
    allocators_bytes = sum(count_taken(part) for part in split.parts if part.kind == kinds.ALLOCATOR)
    allocators_bytes -= sum(size for owner, size in held.items() if owner.kind == kinds.ALLOCATOR)
    malloc = _make_malloc_rows(recogniser, words, looked.outside, allocators_bytes, watch.absent_bytes, absent)
    own: List[SplitPart] = []
    others: List[SplitPart] = []
    remainder, guesses = 0, []
    for part in split.parts:
        if part.kind == kinds.ALLOCATOR or not count_taken(part):
            continue
        pieces = [size for owner, size in held.items() if (owner.kind, owner.name) == (part.kind, part.name)]
        size = count_taken(part) - sum(pieces)
        is_own_with_pieces = part.kind == kinds.RUNTIME and part.program == words.name and pieces
        if part.kind in UNNAMED or part.sure == GUESS or is_own_with_pieces:
            remainder += size
            guesses += [part.name] if part.sure == GUESS else []
        else:
            (own if part.program == words.name else others).append(SplitPart(part.kind, part.name, size))
    may_be = ", maybe %s" % ", ".join(guesses) if guesses else ""
    rest = SplitPart(REMAINDER, "remainder: anonymous memory that nothing names%s" % may_be, remainder)
    rows = [*pools, *own, *malloc, *others, rest]
    return RuntimeTable(words.name, rows, sum(row.bytes for row in rows), remainder)


def _make_pool_rows(
    name: str, managed: Sequence[find.Managed], heaps: Sequence[ManagedHeap], held_bytes: int, absent: str
) -> List[SplitPart]:
    """Make the rows for the memory that the runtime cut up itself. Of a heap of objects what is free and not in RAM is no row."""
    used, free = sum(memory.used_bytes for memory in managed), sum(memory.free_bytes for memory in managed)
    overhead = sum(memory.overhead_bytes for memory in managed)
    missing = sum(memory.taken_bytes for memory in managed) - held_bytes
    if not heaps:
        rows = [
            SplitPart(USED, "%s: blocks in use" % name, used),
            SplitPart(FREE, "%s: free blocks and pools" % name, free),
            SplitPart(OVERHEAD, "%s: headers, and rest of pools" % name, overhead),
        ]
        return [*rows, SplitPart(ABSENT, "%s: of the above, %s" % (name, absent), -missing)] if missing else rows
    garbage = sum(heap.garbage_bytes or 0 for heap in heaps)
    is_known = all(heap.garbage_bytes is not None for heap in heaps)
    absent_free = min(free, max(0, missing))
    rows = [
        SplitPart(USED, "%s: objects" % name if is_known else "%s: objects, garbage included" % name, used - garbage),
        SplitPart(GARBAGE, "%s: garbage, not collected yet" % name, garbage),
        SplitPart(OVERHEAD, "%s: rest of allocation buffers" % name, overhead),
        SplitPart(FREE, "%s: free, and not returned" % name, free - absent_free),
        SplitPart(ABSENT, "%s: of the above, %s" % (name, absent), absent_free - missing),
    ]
    return [row for row in rows if row.bytes or row.kind in (USED, FREE)]


def _make_malloc_rows(
    recogniser: Recogniser, words: RuntimeLabels, outside: Dict[Optional[Signature], int], held_bytes: int, absent_bytes: int, absent: str
) -> List[SplitPart]:
    """Make the rows for the allocators' memory: the blocks by owner, and the rest by difference."""
    own: Dict[str, int] = {}
    libraries = {one.module: one.line_of_library for one in registry.list_recognisers() if one.line_of_library}
    for signature, size in outside.items():
        line = libraries.get(signature.module) or recogniser.line_in_tables(signature) if signature is not None and size else None
        if line is not None:
            own[line] = own.get(line, 0) + size
    rows = [SplitPart(OWNED, name, size) for name, size in sorted(own.items(), key=lambda pair: -pair[1])]
    used = sum(outside.values())
    rows.append(SplitPart(OTHER, words.other if own.keys() - set(libraries.values()) else words.none, used - sum(own.values())))
    kept = held_bytes - used + absent_bytes
    rows.append(SplitPart(KEPT, "malloc: free and overhead", max(0, kept)))
    missing = absent_bytes - min(0, kept)
    return [*rows, SplitPart(ABSENT, "malloc: of the blocks above, %s" % absent, -missing)] if missing else rows


MOST_ROWS = 5
LOST_PERCENT = 5
PINNED = (findings.FREE_BETWEEN, findings.FREE_REGIONS, findings.PART_HELD)
"""Codes of verdicts by which much free memory is not returned for the blocks next to it."""


class PageReader(Protocol):
    """Add-on's collector of what only a page shows."""

    owner_levels: int
    most_owners: int
    """How deep owners are wanted, and how many at each level."""

    def read_heaps(self, session: Session, facts: Sequence[Facts]) -> None:
        """Read the heaps, before anything else is."""

    def add_blocks(self, census: Census, owners: Optional[Owners], flame: Optional[Sequence[FlameFrame]]) -> None:
        """Take what the blocks are and who keeps them; None: that was not found."""


class InsideAnswer(NamedTuple):
    """The part in use."""

    used: NativeSum
    leaked: Optional[NativeSum]
    """Nothing leads there; None where there was no room to find out, or it is unknown (see Leaks). `leaks` looks closer."""
    suspect: Optional[owners.LeakSuspect]
    """Who keeps most of it; None where no one keeps a fifth."""
    classes: Sequence[find.CensusRow]
    """What most of it is, the largest first."""
    leaked_is_upper_bound: bool = False
    """Something that may hold blocks was not read."""
    together: Sequence[owners.OwnedMemory] = ()
    """See Owners."""
    own_allocator: Optional[find.Slabs] = None
    """See Census."""
    lost_mappings: Sequence[leaks.LostByName] = ()
    """With LOST_PERCENT of the memory or more."""
    may_be_garbage: bool = False
    """What is called leaked may wait for its collector."""
    garbage: Optional[Garbage] = None
    """Objects in cycles that wait for a collector, by a runtime that counts references; None: none, or it was not looked for."""
    fields: Sequence[HeldByField] = ()
    """What objects of a runtime with a collector hold, by class and field, the largest first."""
    absent_bytes: int = 0
    """Pages of large blocks in use that are not in RAM, or not in the core."""


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


def _of_used(part: Union[NativeSum, Garbage], inside: InsideAnswer) -> Sentence:
    used = inside.used.bytes
    return make_sentence("%s of %s in use (%s)", SentenceSize(part.bytes), SentenceSize(used), format_share(part.bytes, used))


def with_open(judged: HeapVerdict, inside: Optional[InsideAnswer]) -> HeapVerdict:
    """Complete the verdict: if it may be `leaked`, add the missing evidence and the command that decides, and drop the words that it is
    no leak; also where much is garbage.
    """
    garbage, first, leaks_command = find_much_garbage(judged.code, inside), judged.lines[0], hint_command("leaks")
    if inside is not None and garbage is not None:
        evidence = make_sentence("%s are %s objects in cycles that wait for its collector", _of_used(garbage, inside), garbage.runtime)
        hint = "%s shows what frees them" % leaks_command
        line = Finding("Garbage", evidence, hint, findings.COLLECTOR_CYCLES, size_bytes=garbage.bytes)
        return judged._replace(lines=[first, line, *judged.lines[1:]])
    if not is_leak_undecided(judged.code, inside):
        return judged
    if inside is None:
        lacking = make_sentence("its blocks were not read: %s shows whether some are leaked", leaks_command)
    elif inside.leaked is None:
        lacking = make_sentence("it is unknown whether some are leaked: memory that may reference its blocks was not read (see the notes)")
    elif not _is_much(inside.leaked, inside.used.bytes):
        lacking = make_sentence("%s shows whether some of it is garbage that is not collected yet", leaks_command)
    else:
        why = "memory that may reference these blocks was not read (see the notes)"
        if inside.may_be_garbage:
            why = "part of that may be garbage, which %s shows" % leaks_command
        lacking = make_sentence("at most %s are leaked: %s", _of_used(inside.leaked, inside), why)
    hint = join_sentences("; ", [*([first.hint] if first.hint else []), lacking])
    return judged._replace(lines=[first._replace(hint=hint), *judged.lines[1:]])


def leaks_steps(session: Session, judged: HeapVerdict, inside: Optional[InsideAnswer]) -> List[StepSentence]:
    """Return the steps that come first where much is leaked, or may be; else no step."""
    if judged.kind == verdict.LEAKED or is_much_leaked(inside):
        why = "lists the memory that nothing references any more"
    elif find_much_garbage(judged.code, inside) is not None:
        why = "lists the garbage by class, and how to free it"
    elif not is_leak_undecided(judged.code, inside):
        return []
    elif inside is None or inside.may_be_garbage:
        why = "shows whether part of it is leaked (nothing references it any more)"
    else:
        steps = [StepSentence(hint_command("leaks"), "lists unreferenced blocks of the memory read")]
        if problems.FILES_NOT_DUMPED in {problem.code for problem in session.problems}:
            why = "before the next core includes mapped files, which this core lacks and which may reference these blocks"
            steps.append(StepSentence("echo 0x3f > /proc/PID/coredump_filter", why))
        return steps
    return [StepSentence(hint_command("leaks"), why + session.stands_still(Reads.GRAPH))]


def with_leaked(judged: HeapVerdict, inside: Optional[InsideAnswer], whole_bytes: int = 0) -> HeapVerdict:
    """Put the leak first in the verdict where the look at all blocks proves that much of the memory in use is leaked. `whole_bytes` as of
    is_much_leaked().
    """
    is_judged, is_held = judged.kind not in (verdict.SMALL, verdict.INCONCLUSIVE), judged.code in HELD_BY_PROGRAM
    leaked = inside.leaked if inside is not None else None
    if inside is None or leaked is None or not is_judged or not is_much_leaked(inside, 0 if is_held else whole_bytes):
        return with_open(judged, inside)
    evidence = make_sentence("%s that nothing points to", _of_used(leaked, inside))
    absent_bytes = leaked.bytes + inside.absent_bytes - inside.used.bytes  # if no block that is held was ever touched
    if absent_bytes > MATTERS * leaked.bytes:
        evidence = make_sentence("%s, at least %s of it not in memory", evidence, SentenceSize(absent_bytes))
    hint = "%s groups them by size and content, with the blocks behind them" % hint_command("leaks")
    first = Finding("Leaked", evidence, hint, findings.LEAKED, count_noun(leaked.blocks, "block"), leaked.bytes)
    held = judged.lines[0]._replace(hint=None) if judged.code == findings.IN_USE else judged.lines[0]
    made = verdict.of_lines([first, held, *judged.lines[1:]], verdict.less_sure(["hidden pointers"], judged.sure))
    was_said = is_held and 100 * leaked.bytes >= LEAKED_PERCENT_1_0 * inside.used.bytes
    return made if was_said else made._replace(kind_1_0=judged.kind_1_0, code_1_0=judged.code_1_0)


def with_objects(judged: HeapVerdict, program: Optional[str], tables: Optional[Sequence[RuntimeTable]]) -> HeapVerdict:
    """Add the bytes used by objects and the free bytes to the verdict, where most of the memory is a runtime's whose pools were read."""
    rows = [row for table in tables or () if table.name == program for row in table.rows]
    used, free = (next((row.bytes for row in rows if row.kind == kind), None) for kind in (USED, FREE))
    if judged.code != findings.MOSTLY_RUNTIME or used is None or free is None:
        return judged
    first = judged.lines[0]
    details = make_sentence("its objects use %s, %s are free; %s", SentenceSize(used), SentenceSize(free), first.details)
    return judged._replace(lines=[first._replace(details=details), *judged.lines[1:]])


def is_mostly_seen(split: Optional[Split]) -> bool:
    """Return True if a third of what the kernel cannot take back lies in blocks that are read: their owners explain the memory."""
    if split is None:
        return True
    blocks = sum(count_taken(part) for part in split.parts if part.allocator is not None or memory_verdict.is_seen(part.program))
    return 3 * blocks >= split.memory.total_bytes - sum(part.droppable_bytes or 0 for part in split.parts)


class Runtimes:
    """The runtimes of a target that have a table."""

    def __init__(self, session: Session, split: Optional[Split], deep: Optional[bool]) -> None:
        self.split, self._session = split, session
        self._deep = deep
        self.world: Optional[CensusTarget] = None
        self.found: Sequence[Recogniser] = ()
        self._names: Sequence[str] = ()
        if split is None or not session.heaps.all():
            return
        # all memory is read then, not the heap alone
        if deep or (deep is None and heap_graph.is_small_heap(session) and split.memory.total_bytes <= heap_graph.SMALL_HEAP_BYTES):
            self.world = CensusTarget(session)
            tabled = [one for one in registry.list_recognisers() if one.table is not None]
            self.found = [recogniser for recogniser in tabled if recogniser.is_here(self.world)]
        else:  # by names of files: a process that stands still is not searched for a hint
            known = {one.table.name for one in registry.list_recognisers() if one.table is not None}
            self._names = [name for name in split.runtimes() if name in known]

    def steps(self, code: Optional[str]) -> List[StepSentence]:
        """Return the command to type where the runtimes, or the blocks that such a verdict speaks of, were not looked at."""
        what, session = [], self._session
        if code in HELD_BY_PROGRAM and self._deep is None and session.target.has_memory and not heap_graph.is_small_heap(session):
            what.append("shows how much of it is leaked, and the owners and types of the rest")
        if self._names:
            what.append("adds a table of all memory by use: %s, malloc and other mappings" % " and ".join(self._names))
        return [StepSentence(hint_command("report --deep"), "; ".join(what) + session.stands_still(Reads.CENSUS))] if what else []


def find_inside(
    session: Session, judged: HeapVerdict, deep: Optional[bool], runtimes: Runtimes, page: Optional[PageReader] = None
) -> Tuple[Optional[InsideAnswer], Optional[Sequence[RuntimeTable]], Optional[Finding]]:
    """Analyse the memory in use, where the verdict, a runtime, a page or the user asks for it: return what is in use, the tables of
    runtimes, and which blocks keep most of the free memory from being returned. A result is None if it was
    not looked for, or not found: the problems say why.
    """
    inside, tables, pinned = None, None, None
    if not session.heaps.all():
        return inside, tables, pinned
    is_deep, is_core = deep or (deep is None and heap_graph.is_small_heap(session)), session.target.kind == "core"
    is_all_small = runtimes.split is not None and runtimes.split.memory.total_bytes <= heap_graph.SMALL_HEAP_BYTES
    is_mostly = (judged.code or "").startswith(findings.MOSTLY)
    is_worth_it = judged.code in HELD_BY_PROGRAM or (is_mostly and is_all_small)  # mappings are read then
    asked = is_deep and (is_worth_it or (page is not None and is_core))
    what = "the memory in use by owner"
    try:
        if asked or runtimes.found or (deep and (is_core or judged.kind != verdict.FRAGMENTED)):
            inside, tables = _look_at_blocks(session, runtimes, page)
        what = "the blocks that keep free memory from being returned"
        if is_deep and judged.code in PINNED and (is_core or inside is None):  # a process runs on after one look
            pinned = pins.pins_finding(session.kept("pins", pins.PinsAnswer, lambda: pins.find_pins(session)))
    except HeapxError as error:
        session.problem(problems.NO_ANSWER, None, "%s was left out: %s" % (what, error), error.hint, partial=session.budget.expired())
    return inside, tables, pinned


def _look_at_blocks(
    session: Session, runtimes: Runtimes, page: Optional[PageReader]
) -> Tuple[InsideAnswer, Optional[Sequence[RuntimeTable]]]:
    heap_graph.check_owners_fit(session)
    split = runtimes.split
    memory_verdict.note_coverage(session, memory_verdict.measure_split_coverage(session, split))
    watch = Watch(split, session.target.page_bytes) if split is not None else None
    looked = find.take_census(session, runtimes.world, watch)
    tables, census, labels = None, looked.census, looked.told
    if split is not None and watch is not None:
        tables = [make_runtime_table(recogniser, split, looked, watch) for recogniser in runtimes.found]
    inside = InsideAnswer(
        used=NativeSum(census.blocks, census.bytes),
        leaked=None,
        suspect=None,
        classes=census.rows[:MOST_ROWS],
        own_allocator=census.own_allocator,
        may_be_garbage=labels is not None and labels.paths is not None and labels.paths.has_garbage,
        absent_bytes=watch.absent_bytes if watch is not None else 0,
    )
    if labels is not None:
        session.budget.progress.stage = "finding who keeps most"
        depth, rows = (1, 1) if page is None else (page.owner_levels, page.most_owners)
        tallied = dominance.tally_owners(session, labels.reach, labels.called, labels.paths)
        answer = block.with_names(session, tallied, dominance.find_owners(tallied, depth, rows))
        whole = split.memory.total_bytes if split is not None else 0
        lost = leaks.group_lost_mappings(labels.reach, max(1, whole * LOST_PERCENT // 100))
        if is_leak_unknown(session, answer.leaked):
            answer = answer._replace(leaked=None)
        inside = inside._replace(
            leaked=answer.leaked,
            suspect=answer.suspects[0] if answer.suspects else None,
            together=answer.together,
            lost_mappings=lost,
            garbage=paths.find_garbage(session, labels.reach, tallied.paths),
            fields=answer.fields,
        )
        if page is not None:
            page.add_blocks(census, answer, owned.paths_of(session, labels, tallied).flame())
    elif page is not None:
        page.add_blocks(census, None, None)
    inside = inside._replace(leaked_is_upper_bound=lacks_holders(session))  # now that all problems are known
    return inside if not is_leak_unknown(session) else inside._replace(lost_mappings=()), tables


LEAST_PERCENT = 5
"""Of all memory: who keeps less explains nothing of it."""


def is_large_suspect(suspect: Optional[owners.LeakSuspect], whole_bytes: int) -> bool:
    """Return True if the suspect keeps enough of the process's memory to be named first."""
    return suspect is not None and 100 * suspect.retained_bytes >= LEAST_PERCENT * whole_bytes


def steps_to_suspect(found: Optional[InsideAnswer], whole_bytes: int) -> List[StepSentence]:
    """Return the command to type where several owners hold a large suspect: no row of an owner refers to it."""
    suspect = found.suspect if found is not None and is_large_suspect(found.suspect, whole_bytes) else None
    if suspect is None or suspect.kind != owners.SHARED or suspect.accumulation.address is None:
        return []
    return [StepSentence(hint_command("refs %s", suspect.accumulation.address), "shows what points to the suspect's memory")]


def steps_to_fields(found: Optional[InsideAnswer]) -> List[StepSentence]:
    """Return the command to type where objects of a runtime with a collector hold blocks."""
    if found is None or not found.fields:
        return []
    why = "lists %s classes and fields with the malloc memory that their objects hold" % found.fields[0].runtime
    if any(held.garbage_bytes for held in found.fields):
        why += ", and how many of these are garbage"
    return [StepSentence(hint_command("owners"), why)]


def make_inside_steps(code: Optional[str], session: Session) -> List[StepSentence]:
    """Commands that go on from such a verdict; the first says for how long a process is stopped for them."""
    is_held, steps = code in HELD_BY_PROGRAM, []
    stop = session.stands_still(Reads.CENSUS if is_held else Reads.PINS)
    if is_held:
        steps.append(StepSentence(hint_command("owners"), "shows which variables and threads keep memory alive" + stop))
        steps.append(StepSentence(hint_command("census"), "shows memory in use by class, type and content"))
        steps.append(StepSentence(hint_command("leaks"), "lists the memory that nothing references any more"))
    if code in PINNED:
        why = "shows which blocks in use keep free memory from being returned" + ("" if is_held else stop)
        steps.append(StepSentence(hint_command("pins"), why))
    return steps
