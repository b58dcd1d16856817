"""What `report` says of mimallocs beside the verdict."""

from typing import Iterator, List, Sequence

from gdbheapx import findings, verdict
from gdbheapx.addons.allocators.mimalloc.records import ABANDONED, MimallocArena, MimallocFacts
from gdbheapx.allocators import huge_pages
from gdbheapx.allocators.records import Judged, Surroundings
from gdbheapx.columns import add
from gdbheapx.hints import ask
from gdbheapx.model import Finding, Step
from gdbheapx.units import Size, join_sentences, plural, say, share

WORTH_BYTES = 4 << 20
"""Below this nothing is said of memory that waits."""
WORTH_SHARE = 16
"""Nor below so many parts of what is held."""


SETTINGS = {"purge_delay": "MIMALLOC_PURGE_DELAY=0", "decommit_delay": "MIMALLOC_DECOMMIT_DELAY=0"}
"""What returns free pages at once, by the option's name; measured."""
LAZY = "MIMALLOC_PURGE_DECOMMITS=1", "at the next start lets RSS fall at once, where MADV_FREE waits until memory is short"


def judge(facts: Sequence[MimallocFacts], around: Surroundings) -> List[Judged]:
    """Each by itself. What was never handed out, or waits to be returned, takes memory only as far as anything does beside the rest."""
    return [_judge(one, around) for one in facts]


def _judge(facts: MimallocFacts, around: Surroundings) -> Judged:
    name, rows = facts.info.id, facts.arenas
    used, held = sum(row.used_bytes for row in rows), sum(row.held_bytes for row in rows)
    given, taken = (around.taken(facts.returned) or 0) if facts.returned else 0, around.taken_bytes.get(name)
    taken = max(0, taken - given) if taken is not None else None
    gone = max(0, held - taken) if taken is not None else 0
    weighed = held - min(gone, sum(row.reserve_bytes + row.span_bytes for row in rows))
    overhead = sum(row.overhead_bytes + row.unparsed_bytes for row in rows)
    verdict_ = verdict.usual(weighed, used, taken, around.beyond_bytes if around.is_cut or not facts.is_whole else 0, overhead)
    lazy = given if facts.is_reset else min(given, around.droppable_bytes.get(name, 0))
    huge, reserved = [row.returned_huge_bytes for row in rows], sum(row.returned_bytes for row in rows)
    kept = huge_pages.Returned(name, reserved, given, add(huge), "given back, or never used", None, lazy)
    returned = huge_pages.judge(kept, around.huge_pages)
    judged = huge_pages.verdict(returned, given, weighed + given, verdict_)
    steps = [Step(*LAZY)] if facts.is_reset and returned is not None and judged.code == findings.GIVEN_BACK_IN_RAM else []
    steps += [*huge_pages.against(judged, returned), *_ways(facts, weighed), *verdict.what_is_in_use(verdict_.code)]
    return Judged(name, (name,), weighed + given, judged, findings_on(facts, weighed), steps if judged.kind != verdict.SMALL else [])


def _worth(size: int, held: int) -> bool:
    return size >= WORTH_BYTES and size * WORTH_SHARE >= held


def _ways(facts: MimallocFacts, held: int) -> Iterator[Step]:
    """What returns free memory, what returns most first."""
    rows = facts.arenas
    in_ram = add(row.unowned_collectable_resident_bytes for row in rows), add(row.collectable_resident_bytes for row in rows)
    unowned = sum(row.unowned_collectable_bytes for row in rows) if in_ram[0] is None else in_ram[0]
    own = sum(row.collectable_bytes for row in rows) if in_ram[1] is None else in_ram[1]
    most = ["at most " if part is None else "" for part in in_ram]  # a core does not tell which of them it has
    calls = [
        (unowned, say("by any one thread returns %s%s that no thread owns", most[0], Size(unowned))),
        (own, say("by each thread that owns pages returns %s%s", most[1], Size(own))),
    ]
    worth = [how for size, how in sorted(calls, key=lambda call: -call[0]) if _worth(size, held)]
    if worth:
        gained = None if None in in_ram else sum(size for size, _ in calls if _worth(size, held))
        why = join_sentences(", ", [say("called in the program %s to the OS", worth[0]), *worth[1:]])
        yield Step("mi_collect(true)", why, gained)
    setting = SETTINGS.get(facts.delay.name) if facts.delay is not None and facts.delay.ms != 0 else None
    if setting is not None and _worth(unowned + own, held):
        yield Step(setting, "at the next start returns free pages as soon as no block of them is in use")
    if _worth(sum(row.free_bytes + row.remote_free_bytes for row in rows if row.used_blocks), held):
        yield Step(ask("pins"), "shows which blocks keep the pages of freed ones")


def findings_on(facts: MimallocFacts, held: int) -> List[Finding]:
    """What stands out beside the verdict, of as much as that is about."""
    found = []
    owned = [row for row in facts.arenas if row.owner != ABANDONED]
    waiting = sum(row.remote_free_bytes for row in owned)
    if _worth(waiting, held):
        found.append(_uncollected(owned, waiting, held))
    kept = sum(row.free_bytes + row.remote_free_bytes for row in facts.arenas if row.owner == ABANDONED)
    if _worth(kept, held):
        what = say("%s of free blocks are in pages that no thread owns: %s", Size(kept), LEFT[facts.has_ended])
        hint = "mimalloc reuses them when a thread allocates such sizes; no call returns a page while one of its blocks is in use"
        found.append(Finding(what, say("%s of memory held", share(kept, held)), hint, findings.ABANDONED_PAGES, size_bytes=kept))
    return found


LEFT = {True: "their threads have ended", False: "they were full, or their threads have ended"}


def _uncollected(rows: Sequence[MimallocArena], waiting: int, held: int) -> Finding:
    most = max(rows, key=lambda row: row.remote_free_bytes)
    whole = sum(row.uncollected_bytes for row in rows)
    what = say("%s were freed by other threads and wait for the threads that own their pages", Size(waiting))
    thread = "thread %d" % most.lwp if most.lwp is not None else "arena %d" % most.index
    parts = (share(waiting, held), Size(whole), Size(most.remote_free_bytes), thread)
    evidence = say("%s of memory held, %s of it whole pages; %s of it belong to %s", *parts)
    count = sum(row.remote_free_bytes > 0 for row in rows)
    whose = "it" if count == 1 else "each of %s" % plural(count, "thread")
    hint = "an owner collects when it allocates blocks of these sizes; a thread that sleeps never does: have %s call mi_collect(true)"
    return Finding(what, evidence, hint % whose, findings.UNCOLLECTED, size_bytes=waiting)
