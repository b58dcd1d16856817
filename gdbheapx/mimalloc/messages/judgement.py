"""What `report` says of mimallocs beside the verdict."""

from typing import List, Sequence

from gdbheapx import findings, verdict
from gdbheapx.allocators.records import Judged, Surroundings
from gdbheapx.mimalloc.records import ABANDONED, MimallocArena, MimallocFacts
from gdbheapx.model import Finding
from gdbheapx.units import Size, plural, say, share

WORTH_BYTES = 4 << 20
"""Below this nothing is said of memory that waits."""
WORTH_SHARE = 16
"""Nor below so many parts of what is held."""


def judge(facts: Sequence[MimallocFacts], around: Surroundings) -> List[Judged]:
    """Each by itself. What was never handed out, or waits to be returned, takes memory only as far as anything does beside the rest."""
    judged = []
    for one in facts:
        name, used = one.info.id, sum(row.used_bytes for row in one.arenas)
        held, taken = sum(row.held_bytes for row in one.arenas), around.taken_bytes.get(name)
        gone = max(0, held - taken) if taken is not None else 0
        weighed = held - min(gone, sum(row.reserve_bytes + row.span_bytes for row in one.arenas))
        verdict_ = verdict.usual(weighed, used, taken, around.beyond_bytes if around.is_cut or not one.is_whole else 0)
        steps = verdict.what_is_in_use(verdict_.kind)
        judged.append(Judged(name, (name,), weighed, verdict_, findings_on(one), steps))
    return judged


def findings_on(facts: MimallocFacts) -> List[Finding]:
    """What stands out beside the verdict."""
    found, held = [], sum(row.held_bytes for row in facts.arenas)
    owned = [row for row in facts.arenas if row.owner != ABANDONED]
    waiting = sum(row.remote_free_bytes for row in owned)
    if waiting >= WORTH_BYTES and waiting * WORTH_SHARE >= held:
        found.append(_uncollected(owned, waiting, held))
    left = [row for row in facts.arenas if row.owner == ABANDONED]
    kept = sum(row.held_bytes - row.used_bytes for row in left)
    if facts.has_ended and kept >= WORTH_BYTES and kept * WORTH_SHARE >= held:
        what = say("%s of free memory are in pages whose threads have ended", Size(kept))
        hint = "mimalloc reuses them when a thread allocates such sizes; no call returns a page while one of its blocks is in use"
        found.append(Finding(what, say("%s of what is held", share(kept, held)), hint, findings.ABANDONED_PAGES))
    return found


def _uncollected(rows: Sequence[MimallocArena], waiting: int, held: int) -> Finding:
    most = max(rows, key=lambda row: row.remote_free_bytes)
    whole = sum(row.uncollected_bytes for row in rows)
    what = say("%s were freed by other threads and wait for the threads that own their pages", Size(waiting))
    thread = "thread %d" % most.lwp if most.lwp is not None else "arena %d" % most.index
    parts = (share(waiting, held), Size(whole), Size(most.remote_free_bytes), thread)
    evidence = say("%s of what is held, %s of it whole pages; %s of it belong to %s", *parts)
    count = sum(row.remote_free_bytes > 0 for row in rows)
    count = sum(row.remote_free_bytes > 0 for row in rows)
    whose = "it" if count == 1 else "each of %s" % plural(count, "thread")
    hint = "an owner collects when it allocates blocks of these sizes; a thread that sleeps never does: have %s call mi_collect(true)"
    return Finding(what, evidence, hint % whose, findings.UNCOLLECTED)
