"""The sentences of report and doctor about jemalloc, from figures alone.

Files: jemalloc/records.py, jemalloc/text.py.
"""

from typing import Any, List, Optional

import pytest

from gdbheapx.allocators.discovery import Owner
from gdbheapx.allocators.records import Instances
from gdbheapx.analysis import overview
from gdbheapx.common.model import Finding, TargetAddress
from gdbheapx.inferior.base import Module
from gdbheapx.jemalloc import text as jemalloc_findings
from gdbheapx.jemalloc import text as runtimes
from gdbheapx.jemalloc import verdict as jemalloc_verdict
from gdbheapx.jemalloc.find import UnreadJemalloc
from gdbheapx.jemalloc.records import (
    JemallocArena,
    JemallocBin,
    JemallocConditions,
    PublicNames,
    TickerArena,
    TickerReport,
    TickerThread,
)

MB = 1 << 20
UNPREFIXED = PublicNames("", "MALLOC_CONF")


def arena(index: int = 0, **fields: Any) -> JemallocArena:
    """A row with nothing in it but `fields`."""
    row = JemallocArena("jemalloc", index, TargetAddress(0x1000 * index), "auto", *([0] * (len(JemallocArena._fields) - 4)))
    return row._replace(dirty_decay_ms=10000)._replace(**fields)


def slabs(size: int, free: int, kind: str = "small") -> JemallocBin:
    return JemallocBin("jemalloc", 0, 5, kind, size, size, 10, None, 1, size, 0, 0, free // size, free)


def state(**fields: Any) -> JemallocConditions:
    return JemallocConditions(UNPREFIXED, True, True, "default", False, False, 0, False, True)._replace(**fields)


def thread(verdict: str) -> TickerThread:
    return TickerThread(allocator="jemalloc", lwp=7, name="worker", tsd=None, state="nominal", arena=1, ticks_left=None, verdict=verdict, row=8, why="", hint=None, allocated_bytes=None, deallocated_bytes=None)


def held_in(index: int, verdict: str, dirty: int, **fields: Any) -> TickerArena:
    known = {"allocator": "jemalloc", "index": index, "kind": "auto", "verdict": verdict, "why": "its only thread is blind", "dirty_bytes": dirty, "muzzy_bytes": 0}
    row = TickerArena(*([0] * len(TickerArena._fields)))._replace(**known)
    return row._replace(**fields)


def tickers(threads: List[TickerThread], arenas: List[TickerArena], affected: bool = True) -> TickerReport:
    return TickerReport(affected, threads, arenas, [])


def figures(**fields: Any) -> jemalloc_verdict.JemallocVerdictFigures:
    return jemalloc_verdict.JemallocVerdictFigures(0, 0, 0, 0, 0, 0, 0, 0, None)._replace(**fields)


def told(report: TickerReport, conditions: Optional[JemallocConditions] = None, **fields: Any) -> List[str]:
    """Findings as lines."""
    made = jemalloc_findings.list_findings("5.2.1", figures(**fields), [], conditions or state(), report)
    return ["%s: %s" % (finding.what, finding.evidence) for finding in made]


# ---------------------------------------------------------------------------------------------------- figures and verdict


def test_figures_add_up_to_active_unused_and_metadata() -> None:
    """Every byte of active pages has a part, by its own count."""
    rows = [arena(0, allocated_bytes=70, used_bytes=60, cached_bytes=10, active_bytes=100, rounding_bytes=10, sampled_rounding_bytes=4, dirty_bytes=30, muzzy_bytes=5, metadata_bytes=7, retained_bytes=1000)]
    found = jemalloc_verdict.sum_jemalloc_arenas(rows, [slabs(10, 20), slabs(4096, 500, "dirty")])
    assert (found.used_bytes, found.cached_bytes, found.free_regions_bytes, found.rounding_bytes, found.sampled_bytes) == (60, 10, 20, 6, 4)
    assert found.held_bytes == 100 + 35 + 7, "retained address space is no memory"
    assert sum(part.bytes or 0 for part in jemalloc_verdict.list_jemalloc_parts(found)) == found.held_bytes


def test_unknown_dirty_pages_stay_unknown() -> None:
    """Of one arena they are not known: nothing is said to be unused, nor what a purge would return."""
    rows = [arena(0, active_bytes=64 * MB, allocated_bytes=20 * MB, used_bytes=20 * MB, dirty_bytes=None, reclaimable_resident_bytes=None, muzzy_bytes=5), arena(1, dirty_bytes=30, muzzy_bytes=0)]
    found = jemalloc_verdict.sum_jemalloc_arenas(rows, [])
    assert (found.dirty_bytes, found.muzzy_bytes, found.told_unused_bytes) == (None, 5, None)
    assert ("dirty pages", None) in [(part.name, part.bytes) for part in jemalloc_verdict.list_jemalloc_parts(found)]
    judged = jemalloc_verdict.judge_jemalloc(found, [], UNPREFIXED)
    assert (judged.kind, judged.code) == ("inconclusive", "evidence-missing") and "%" not in str(judged.evidence), "no share of something unknown"


def test_unknown_caches_and_metadata_stay_unknown() -> None:
    """What is allocated counts as used then, and the parts show question marks, last."""
    rows = [arena(0, allocated_bytes=70, used_bytes=None, cached_bytes=None, active_bytes=100, metadata_bytes=None)]
    found = jemalloc_verdict.sum_jemalloc_arenas(rows, [])
    assert found.used_bytes == 70 and found.cached_bytes is None and found.metadata_bytes is None
    assert [part.bytes for part in jemalloc_verdict.list_jemalloc_parts(found)][-2:] == [None, None]


@pytest.mark.parametrize(
    "parts, kind",
    [
        ({"used_bytes": 1 * MB, "metadata_bytes": 3 * MB}, "small"),
        ({"used_bytes": 90 * MB, "dirty_bytes": 10 * MB}, "in-use"),
        ({"used_bytes": 40 * MB, "dirty_bytes": 60 * MB}, "kept"),
        ({"used_bytes": 120 * MB, "dirty_bytes": 40 * MB, "muzzy_bytes": 40 * MB}, "kept"),
        ({"used_bytes": 10 * MB, "free_regions_bytes": 10 * MB}, "fragmented"),
        ({"used_bytes": 70 * MB, "free_regions_bytes": 30 * MB}, "fragmented"),
        ({"used_bytes": 50 * MB, "free_regions_bytes": 25 * MB, "dirty_bytes": 25 * MB}, "in-use"),
        ({"used_bytes": 70 * MB, "dirty_bytes": 30 * MB}, "in-use"),
        ({"used_bytes": 5 * MB, "cached_bytes": 15 * MB}, "in-use"),
    ],
)
def test_the_verdict_follows_from_the_largest_part(parts: Any, kind: str) -> None:
    """Each kind by its shares of what is held."""
    judged = jemalloc_verdict.judge_jemalloc(figures(**parts), [slabs(224, parts.get("free_regions_bytes", 0))], UNPREFIXED)
    assert judged.kind == kind
    assert ("thread caches" in " ".join(line.what for line in judged.lines)) == ("cached_bytes" in parts)


# ---------------------------------------------------------------------------------------------------- findings


@pytest.mark.parametrize("verdict", ["ticking", "at-risk", "not-started", "not-applicable"])
def test_no_thread_is_accused_without_the_verdict(verdict: str) -> None:
    """Only `blind` is blind, however many pages an arena holds."""
    assert not [line for line in told(tickers([thread(verdict)], [held_in(0, "purged", 500 * MB)])) if "blind" in line]


def test_a_thread_that_cannot_be_judged_is_told() -> None:
    """But only where the build has the fault."""
    assert told(tickers([thread("unknown")], []))[0].startswith("cannot determine the state of 1 thread")
    assert not told(tickers([thread("unknown")], [], affected=False))


def test_arenas_that_no_thread_was_ever_bound_to() -> None:
    """Arenas of the program's own, and the one for large requests, are told as what they are; only automatic ones have had threads."""
    kinds = {kind: told(tickers([], [held_in(2, "no-threads", 3 * MB, kind=kind)]))[0] for kind in ("auto", "manual", "huge")}
    assert kinds["auto"].startswith("memory is left in arenas of threads that have exited")
    assert kinds["manual"] == "unused pages stay in arenas that the program made: arena 2 holds 3.0 MiB of unused pages; made by arenas.create, no thread is bound to them"
    assert "opt.oversize_threshold" in kinds["huge"] and "exited" not in kinds["huge"]


def test_without_an_arena_there_is_no_verdict() -> None:
    """Zeros that nobody read are no small heap."""
    found = jemalloc_verdict.sum_jemalloc_arenas([], [])
    judged = jemalloc_verdict.judge_jemalloc(found, [], UNPREFIXED)
    assert judged.kind == "inconclusive" and judged.lines[0].what == "Inconclusive" and jemalloc_verdict.list_jemalloc_parts(found) == []


# ---------------------------------------------------------------------------------------------------- next steps


def modules(*names: str) -> List[Module]:
    return [Module(name, 0x1000, True, None, None) for name in names]


@pytest.mark.parametrize("prefix, call, variable", [("", "mallctl(", "MALLOC_CONF="), ("je_", "je_mallctl(", "JE_MALLOC_CONF="), ("_rjem_", "_rjem_mallctl(", "_RJEM_MALLOC_CONF=")])
def test_steps_use_the_builds_own_names(prefix: str, call: str, variable: str) -> None:
    """The prefix of functions, in capitals for the environment."""
    steps = jemalloc_findings.list_next_steps("unused-pages", figures(dirty_bytes=50 * MB), tickers([], []), state(names=PublicNames(prefix, variable[:-1])), [])
    assert any(step.startswith(call) for step in steps) and any(step.startswith(variable) for step in steps)


def test_programs_that_can_purge_themselves() -> None:
    """Debian's redis-server is a link to redis-check-rdb."""
    for name in ("/usr/bin/redis-server", "/usr/bin/redis-check-rdb"):
        steps = jemalloc_findings.list_next_steps("unused-pages", figures(dirty_bytes=50 * MB), tickers([], []), state(), modules(name))
        assert "redis-cli MEMORY PURGE returns the unused pages of every arena to the OS now" in steps
        assert [getattr(step, "saves_bytes", None) for step in steps if "PURGE" in step] == [50 * MB]
    assert runtimes.suggest_program_purge(modules("/usr/sbin/named")) is None


# ---------------------------------------------------------------------------------------------------- what is not read


class Looked:
    """A session in which a jemalloc is there and cannot be read."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.discovery = self
        self.heaps = self

    def foreign_owner(self) -> Any:
        return self.owner

    def all(self) -> List[Any]:
        return []

    def unread(self) -> List[UnreadJemalloc]:
        return [UnreadJemalloc(Module("/srv/service", 0x1000, True, None, None), "jemalloc in /srv/service: no layouts", "make a pack")]

    def found(self, allocator: Any) -> Instances:
        return Instances((), self.unread() if allocator.name == "jemalloc" else ())


def test_memory_outside_is_not_called_foreign_while_a_jemalloc_is_unread() -> None:
    """A Rust program's jemalloc owns no malloc; what lies outside glibc may all be its: no verdict, and how to get one."""
    outside = Finding("most of the memory is not malloc's", "9 of 10 lie outside malloc", None)
    finding, steps = overview._find_unread(Looked(None), outside)  # type: ignore[arg-type]
    assert finding is not None and finding.what == "Inconclusive" and finding.details == outside.evidence
    assert steps == ["make a pack"]
    assert overview._find_unread(Looked(None), None) == (None, []), "where most is glibc's, that is judged"  # type: ignore[arg-type]


def test_the_unread_owner_of_malloc_is_named_with_its_hint() -> None:
    """Whatever lies where: nothing can be said of a process whose malloc is not read."""
    owner = Owner(Module("/srv/service", 0x1000, True, None, None), "jemalloc")
    finding, steps = overview._find_unread(Looked(owner), None)  # type: ignore[arg-type]
    assert finding is not None and "jemalloc owns malloc" in finding.evidence and steps == ["make a pack"]
