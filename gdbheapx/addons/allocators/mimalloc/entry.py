"""mimalloc as the registry has it, its page `arenas`, and the verdict and findings that `report` shows."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Optional, Sequence

from gdbheapx.addons.allocators.gates import GATES, MI_NEVER_RETURNS
from gdbheapx.addons.allocators.mimalloc.records import ABANDONED, MimallocArena, MimallocFacts, describe_collections
from gdbheapx.allocators import huge_pages
from gdbheapx.allocators.heap import Allocator, AllocatorInstance
from gdbheapx.allocators.records import AllocatorJudgement, ArenaRow, HeapContext, Instances, Page, Surroundings
from gdbheapx.common import findings, verdict
from gdbheapx.common.columns import ColumnsTable, add_values, columns_of
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import Finding, StepSentence
from gdbheapx.common.units import SentenceSize, count_noun, format_share, join_sentences, make_cells, make_sentence
from gdbheapx.inferior.base import Target

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.mimalloc.detect import Mimalloc

GATE = GATES[__name__]
CLASSES_BYTES, SLICE_BYTES = 128 << 10, 64 << 10
"""MI_MEDIUM_OBJ_SIZE_MAX, MI_SEGMENT_SLICE_SIZE."""


class MimallocEntry(Allocator["Mimalloc", MimallocFacts]):
    """Any mimalloc: a process can have several, hidden in libraries."""

    name, fingerprint = GATE.name, GATE.fingerprint
    part_words = "pages and metadata"
    preload = "libmimalloc.so.2"
    has_caches, never_returns = False, MI_NEVER_RETURNS
    statuses = ("used", "free", "remote-free", "reserve", "span", "returned", "metadata")
    known_capabilities = GATE.capabilities
    records = MappingProxyType(
        {
            "arenas": "gdbheapx.addons.allocators.mimalloc.records.MimallocArena",
            "bins": "gdbheapx.addons.allocators.mimalloc.records.MimallocBin",
            "tunables": "gdbheapx.addons.allocators.mimalloc.detect.MimallocTunables",
        }
    )

    def preload_bytes(self, request_bytes: int) -> int:
        """Round up to a size class of 64-bit machines; a larger block begins on a slice of a segment and ends with the request."""
        from gdbheapx.allocators.answers import four_to_a_doubling

        return four_to_a_doubling(request_bytes) if request_bytes <= CLASSES_BYTES else -(-request_bytes // SLICE_BYTES) * SLICE_BYTES

    def find(self, target: Target) -> Instances:
        """Every one of them, by its texts and its structures."""
        modules = GATE.hidden_in(target)
        if not modules:
            return Instances(())
        from gdbheapx.addons.allocators.mimalloc.detect import find_mimallocs

        return find_mimallocs(target, modules)

    def open(self, located: "Mimalloc", around: HeapContext) -> AllocatorInstance:
        """Open one of them."""
        from gdbheapx.addons.allocators.mimalloc.heap import MimallocHeap

        return MimallocHeap(located, around)

    def arenas_page(self, rows: Sequence[ArenaRow], totals: Mapping[str, Optional[int]]) -> Page:
        """Yield a table with a row for each owner and the sums, then sentences on what the table leaves out."""
        yield ColumnsTable(columns_of(MimallocArena), rows, {**totals, "index": "total"})
        if totals.get("remote_free_bytes"):
            what = "freed by others: %s wait for their owners, which collect them only when they allocate; %s of it are whole pages"
            yield make_cells(what, SentenceSize(totals["remote_free_bytes"]), SentenceSize(totals["uncollected_bytes"]))
        yield from describe_collections(totals)
        in_ram = totals.get("returned_resident_bytes") or 0
        if in_ram:
            yield make_cells("plus %s returned to the OS or never used, but in RAM (not part of held)", SentenceSize(in_ram))
        if (totals.get("returned_bytes") or 0) > in_ram:
            yield make_cells(
                "plus %s of address space: returned to the OS, or never used", SentenceSize((totals["returned_bytes"] or 0) - in_ram)
            )

    def page(self, name: str, answer: Any) -> Page:
        """Options as they are in force."""
        from gdbheapx.addons.allocators.mimalloc.detect import make_options_page

        return make_options_page(answer) if name == "tunables" else super().page(name, answer)

    def judge(self, facts: Sequence[MimallocFacts], around: Surroundings) -> List[AllocatorJudgement]:
        """Judge each heap. Blocks never handed out and free spans count only as far as they are resident."""
        return [_judge_heap(one, around) for one in facts]


WORTH_BYTES = 4 << 20
"""Below this nothing is said of memory that waits."""
WORTH_SHARE = 16
"""Nor below so many parts of what is held."""


DELAY_SETTINGS = {"purge_delay": "MIMALLOC_PURGE_DELAY=0", "decommit_delay": "MIMALLOC_DECOMMIT_DELAY=0"}
"""What returns free pages at once, by the option's name; measured."""
LAZY_STEP = "MIMALLOC_PURGE_DECOMMITS=1", "at the next start lets RSS fall at once, where MADV_FREE waits until memory is short"


def _judge_heap(facts: MimallocFacts, around: Surroundings) -> AllocatorJudgement:
    name, rows = facts.info.id, facts.arenas
    used, held = sum(row.used_bytes for row in rows), sum(row.held_bytes for row in rows)
    given, taken = (around.taken(facts.returned) or 0) if facts.returned else 0, around.taken_bytes.get(name)
    taken = max(0, taken - given) if taken is not None else None
    gone = max(0, held - taken) if taken is not None else 0
    weighed = held - min(gone, sum(row.reserve_bytes + row.span_bytes for row in rows))
    overhead = sum(row.overhead_bytes + row.unparsed_bytes for row in rows)
    verdict_ = verdict.usual_verdict(weighed, used, taken, around.beyond_bytes if around.is_cut or not facts.is_whole else 0, overhead)
    lazy = given if facts.is_reset else min(given, around.droppable_bytes.get(name, 0))
    huge, reserved = [row.returned_huge_bytes for row in rows], sum(row.returned_bytes for row in rows)
    kept = huge_pages.Returned(name, reserved, given, add_values(huge), "given back, or never used", None, lazy)
    returned = huge_pages.judge_huge_pages(kept, around.huge_pages)
    judged = huge_pages.add_huge_page_verdict(returned, given, weighed + given, verdict_)
    steps = [StepSentence(*LAZY_STEP)] if facts.is_reset and returned is not None and judged.code == findings.GIVEN_BACK_IN_RAM else []
    steps += [*huge_pages.huge_page_steps(judged, returned), *_list_ways(facts, weighed), *verdict.what_is_in_use(verdict_.code)]
    return AllocatorJudgement(
        name, (name,), weighed + given, judged, make_mimalloc_findings(facts, weighed), steps if judged.kind != verdict.SMALL else []
    )


def _is_worth(size: int, held: int) -> bool:
    return size >= WORTH_BYTES and size * WORTH_SHARE >= held


def _list_ways(facts: MimallocFacts, held: int) -> Iterator[StepSentence]:
    """Yield the steps that return free memory, the most effective first."""
    rows = facts.arenas
    in_ram = add_values(row.unowned_collectable_resident_bytes for row in rows), add_values(row.collectable_resident_bytes for row in rows)
    unowned = sum(row.unowned_collectable_bytes for row in rows) if in_ram[0] is None else in_ram[0]
    own = sum(row.collectable_bytes for row in rows) if in_ram[1] is None else in_ram[1]
    most = ["at most " if part is None else "" for part in in_ram]  # a core does not tell which of them it has
    calls = [
        (unowned, make_sentence("by any one thread returns %s%s that no thread owns", most[0], SentenceSize(unowned))),
        (own, make_sentence("by each thread that owns pages returns %s%s", most[1], SentenceSize(own))),
    ]
    worth = [how for size, how in sorted(calls, key=lambda call: -call[0]) if _is_worth(size, held)]
    if worth:
        gained = None if None in in_ram else sum(size for size, _ in calls if _is_worth(size, held))
        why = join_sentences(", ", [make_sentence("called in the program %s to the OS", worth[0]), *worth[1:]])
        yield StepSentence("mi_collect(true)", why, gained)
    setting = DELAY_SETTINGS.get(facts.delay[0]) if facts.delay is not None and facts.delay[1] != 0 else None
    if setting is not None and _is_worth(unowned + own, held):
        yield StepSentence(setting, "at the next start returns free pages as soon as no block of them is in use")
    if _is_worth(sum(row.free_bytes + row.remote_free_bytes for row in rows if row.used_blocks), held):
        yield StepSentence(hint_command("pins"), "shows which blocks keep the pages of freed ones")


def make_mimalloc_findings(facts: MimallocFacts, held: int) -> List[Finding]:
    """Return further findings; `held`: the bytes that it is about."""
    found = []
    owned = [row for row in facts.arenas if row.owner != ABANDONED]
    waiting = sum(row.remote_free_bytes for row in owned)
    if _is_worth(waiting, held):
        found.append(_make_uncollected(owned, waiting, held))
    kept = sum(row.free_bytes + row.remote_free_bytes for row in facts.arenas if row.owner == ABANDONED)
    if _is_worth(kept, held):
        what = make_sentence("%s of free blocks are in pages that no thread owns: %s", SentenceSize(kept), LEFT_BY[facts.has_ended])
        hint = "mimalloc reuses them when a thread allocates such sizes; no call returns a page while one of its blocks is in use"
        found.append(
            Finding(what, make_sentence("%s of memory held", format_share(kept, held)), hint, findings.ABANDONED_PAGES, size_bytes=kept)
        )
    return found


LEFT_BY = {True: "their threads have ended", False: "they were full, or their threads have ended"}


def _make_uncollected(rows: Sequence[MimallocArena], waiting: int, held: int) -> Finding:
    most = max(rows, key=lambda row: row.remote_free_bytes)
    whole = sum(row.uncollected_bytes for row in rows)
    what = make_sentence("%s were freed by other threads and wait for the threads that own their pages", SentenceSize(waiting))
    thread = "thread %d" % most.lwp if most.lwp is not None else "arena %d" % most.index
    parts = (format_share(waiting, held), SentenceSize(whole), SentenceSize(most.remote_free_bytes), thread)
    evidence = make_sentence("%s of memory held, %s of it whole pages; %s of it belong to %s", *parts)
    count = sum(row.remote_free_bytes > 0 for row in rows)
    whose = "it" if count == 1 else "each of %s" % count_noun(count, "thread")
    hint = "an owner collects when it allocates blocks of these sizes; a thread that sleeps never does: have %s call mi_collect(true)"
    return Finding(what, evidence, hint % whose, findings.UNCOLLECTED, size_bytes=waiting)


ALLOCATOR = MimallocEntry()
