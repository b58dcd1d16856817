"""musl's malloc as the registry has it, and its verdict: in use, or free slots that it keeps, which nothing makes it return."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, List, Optional, Sequence

from gdbheapx.addons.allocators.gates import GATES
from gdbheapx.addons.allocators.musl.records import MuslArena, MuslFacts
from gdbheapx.allocators.heap import Allocator, AllocatorInstance
from gdbheapx.allocators.records import AllocatorJudgement, HeapContext, Instances, NeverReturns, Page, Surroundings
from gdbheapx.common import findings, verdict
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import Finding, StepSentence
from gdbheapx.common.units import SentenceSize, format_share, make_sentence
from gdbheapx.common.verdict import SMALL_BYTES, HeapVerdict, of_lines
from gdbheapx.inferior.base import Target

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.musl.detect import Musl

GATE = GATES[__name__]
NEVER_RETURNS = NeverReturns(
    "musl's malloc returns nothing when it is asked: it unmaps a group of slots as soon as the last block in it is freed",
    "`%s` shows which blocks keep free slots; free these, or allocate what lives long before what lives short" % hint_command("pins"),
)


class MuslEntry(Allocator["Musl", MuslFacts]):
    """musl's mallocng."""

    name, fingerprint = GATE.name, GATE.fingerprint
    statuses = ("used", "free", "metadata")
    never_returns = NEVER_RETURNS
    has_caches, part_words = False, "groups and metas"
    known_capabilities = GATE.capabilities
    records = MappingProxyType(
        {"arenas": "gdbheapx.addons.allocators.musl.records.MuslArena", "bins": "gdbheapx.addons.allocators.musl.records.MuslBin"}
    )

    def find(self, target: Target) -> Instances:
        """Every copy, by its secret."""
        if not GATE.may_be_in(target):
            return Instances(())
        from gdbheapx.addons.allocators.musl.detect import find_musls

        return find_musls(target)

    def open(self, located: "Musl", around: HeapContext) -> AllocatorInstance:
        """Open one of them."""
        from gdbheapx.addons.allocators.musl.heap import MuslMalloc

        return MuslMalloc(located, around)

    def part_name(self, allocator_id: str, is_alone: bool) -> str:
        """Call it malloc where it is the only heap."""
        return super().part_name("malloc" if is_alone else allocator_id, is_alone)

    def judge(self, facts: Sequence[MuslFacts], around: Surroundings) -> List[AllocatorJudgement]:
        """Judge each heap."""
        return [_judge_heap(one, around) for one in facts]

    def page(self, name: str, answer: Any) -> Page:
        """Return a table of size classes; there are no settings."""
        return super().page(name, answer) if name == "bins" and answer else ["musl's malloc has no %s" % name]


NO_CALL = "musl has no malloc_trim and no setting: it unmaps a group of slots as soon as the last block in it is freed"
STOPPED = "musl stopped the process: the heap is damaged, or a stack guard was overwritten"
STOPPED_HOW = "it stands on the instruction by which musl's checks raise SIGSEGV"
STOPPED_HINT = "`%s` shows damage; where there is none, a pointer was freed twice, or was never malloc's" % hint_command("check")
MUCH_OVERHEAD = 4
"""Reported from this part (1/MUCH_OVERHEAD) of what is held."""


def _judge_heap(facts: MuslFacts, around: Surroundings) -> AllocatorJudgement:
    """Make the verdict and findings on one heap."""
    row, name = facts.arenas[0], facts.info.id
    taken = around.taken_bytes.get(name)
    held, untouched = row.held_bytes, _count_untouched(facts, around, taken)
    free = row.free_bytes or 0
    beyond = around.beyond_bytes if around.is_cut or not facts.is_whole else 0
    judged = verdict.usual_verdict(held - untouched, held - untouched - free, taken, beyond)
    steps = verdict.what_is_in_use(judged.code)
    if judged.code in (findings.FREED_AND_HELD, findings.PART_HELD):
        steps.append(StepSentence(hint_command("pins"), "shows which blocks keep free slots"))
    if judged.kind != verdict.INCONCLUSIVE:
        judged = _describe_verdict(judged, row, held - untouched)
    if facts.has_stopped:
        judged, steps = (
            verdict.with_end(judged, Finding(STOPPED, STOPPED_HOW, STOPPED_HINT, findings.ABORTED_IN_MALLOC)),
            [StepSentence(hint_command("check"), "shows which rules of malloc are broken, and where"), *steps],
        )
    told = held if taken is None else min(held, taken)
    return AllocatorJudgement(name, (name,), told, judged, _make_findings(row, told), steps)


def _describe_verdict(judged: HeapVerdict, row: MuslArena, held_bytes: int) -> HeapVerdict:
    """Rewrite the verdict with the figures of groups: musl cannot return free slots besides blocks in use."""
    whole, used, free = row.held_bytes, row.used_bytes or 0, row.free_bytes or 0
    if judged.code == findings.SMALL_HEAP:
        return of_lines(
            [judged.lines[0]._replace(evidence=make_sentence("%s requested from the kernel", SentenceSize(whole)))], judged.sure
        )
    details = make_sentence("%s (%s) are free slots", SentenceSize(free), format_share(free, whole))
    if judged.code == findings.FREED_AND_HELD:
        evidence = make_sentence(
            "%s (%s) are free slots in groups that also have blocks in use", SentenceSize(free), format_share(free, whole)
        )
        details = make_sentence("%s (%s) are in use by the program", SentenceSize(used), format_share(used, whole))
        line = Finding("Fragmented", evidence, NO_CALL, findings.FREE_REGIONS, size_bytes=free)
    else:
        evidence = make_sentence("%s are %s", verdict.part_of(used, whole), verdict.ALLOCATED)
        hint = verdict.GROWING_HINT if judged.code == findings.IN_USE else NO_CALL
        line = Finding("In use", evidence, hint, judged.code, size_bytes=used)
    untouched = whole - held_bytes
    more = make_sentence("; %s in large blocks were never written to", SentenceSize(untouched)) if untouched > SMALL_BYTES else ""
    return of_lines([line._replace(details=make_sentence("%s%s", details, more))], judged.sure)


def _count_untouched(facts: MuslFacts, around: Surroundings, taken: Optional[int]) -> int:
    """Return the bytes of large blocks that are not resident."""
    if taken is None or facts.arenas[0].held_bytes - taken <= SMALL_BYTES:
        return 0
    ranges = facts.own_mappings
    known = around.taken(ranges) if ranges else None
    return 0 if known is None else max(0, sum(end - start for start, end in ranges) - known)


def _make_findings(row: MuslArena, told_bytes: int) -> List[Finding]:
    """Make a finding on overhead, unless memory was never written: then its share is unknown."""
    overhead = row.overhead_bytes or 0
    if row.held_bytes - told_bytes > SMALL_BYTES or overhead * MUCH_OVERHEAD < row.held_bytes or overhead < 16 * SMALL_BYTES:
        return []
    known = make_sentence("%s of %s; what requests are rounded up by is more", SentenceSize(overhead), SentenceSize(row.held_bytes))
    what = "much of the memory is metas, headers, and what groups leave of their pages"
    hint = "fewer, larger blocks have less of it; `%s` shows slack by size class" % hint_command("bins")
    return [Finding(what, known, hint, findings.METADATA, size_bytes=overhead)]


ALLOCATOR = MuslEntry()
