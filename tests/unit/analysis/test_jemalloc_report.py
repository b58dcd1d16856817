"""The sentences of report and doctor about jemalloc, from figures alone.

Files: jemalloc/records.py, jemalloc/messages/checkup.py, jemalloc/messages/findings.py, jemalloc/messages/judgement.py, jemalloc/messages/programs.py.
"""

from typing import Any, List, Optional

import pytest

from gdbheapx.allocators.discovery import Owner
from gdbheapx.allocators.records import Instances
from gdbheapx.analysis import overview
from gdbheapx.inferior.base import Module
from gdbheapx.jemalloc.detection.unread import Unread
from gdbheapx.jemalloc.messages import checkup as jemalloc_checkup
from gdbheapx.jemalloc.messages import findings as jemalloc_findings
from gdbheapx.jemalloc.messages import programs as runtimes
from gdbheapx.jemalloc.messages import verdict as jemalloc_verdict
from gdbheapx.jemalloc.records import (
    JemallocArena,
    JemallocBin,
    JemallocBuild,
    JemallocConditions,
    PublicNames,
    TickerArena,
    TickerReport,
    TickerThread,
)
from gdbheapx.model import Address, Finding

MB = 1 << 20
UNPREFIXED = PublicNames("", "MALLOC_CONF")


def arena(index: int = 0, **fields: Any) -> JemallocArena:
    """A row with nothing in it but `fields`."""
    row = JemallocArena("jemalloc", index, Address(0x1000 * index), "auto", *([0] * (len(JemallocArena._fields) - 4)))
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


def figures(**fields: Any) -> jemalloc_verdict.Figures:
    return jemalloc_verdict.Figures(0, 0, 0, 0, 0, 0, 0, 0, None)._replace(**fields)


def told(report: TickerReport, conditions: Optional[JemallocConditions] = None, **fields: Any) -> List[str]:
    """Findings as lines."""
    made = jemalloc_findings.findings("5.2.1", figures(**fields), [], conditions or state(), report)
    return ["%s: %s" % (finding.what, finding.evidence) for finding in made]


# ---------------------------------------------------------------------------------------------------- figures and verdict


def test_figures_add_up_to_active_unused_and_metadata() -> None:
    """Every byte of active pages has a part, by its own count."""
    rows = [arena(0, allocated_bytes=70, used_bytes=60, cached_bytes=10, active_bytes=100, rounding_bytes=10, sampled_rounding_bytes=4, dirty_bytes=30, muzzy_bytes=5, metadata_bytes=7, retained_bytes=1000)]
    found = jemalloc_verdict.sums(rows, [slabs(10, 20), slabs(4096, 500, "dirty")])
    assert (found.used_bytes, found.cached_bytes, found.free_regions_bytes, found.rounding_bytes, found.sampled_bytes) == (60, 10, 20, 6, 4)
    assert found.held_bytes == 100 + 35 + 7, "retained address space is no memory"
    assert sum(part.bytes or 0 for part in jemalloc_verdict.parts(found)) == found.held_bytes


def test_unknown_dirty_pages_stay_unknown() -> None:
    """Of one arena they are not known: nothing is said to be unused, nor what a purge would return."""
    rows = [arena(0, active_bytes=64 * MB, allocated_bytes=20 * MB, used_bytes=20 * MB, dirty_bytes=None, reclaimable_resident_bytes=None, muzzy_bytes=5), arena(1, dirty_bytes=30, muzzy_bytes=0)]
    found = jemalloc_verdict.sums(rows, [])
    assert (found.dirty_bytes, found.muzzy_bytes, found.told_unused_bytes) == (None, 5, None)
    assert ("dirty pages", None) in [(part.name, part.bytes) for part in jemalloc_verdict.parts(found)]
    judged = jemalloc_verdict.judge(found, [], UNPREFIXED)
    assert (judged.kind, judged.code) == ("inconclusive", "evidence-missing") and "%" not in str(judged.evidence), "no share of something unknown"


def test_unknown_caches_and_metadata_stay_unknown() -> None:
    """What is allocated counts as used then, and the parts show question marks, last."""
    rows = [arena(0, allocated_bytes=70, used_bytes=None, cached_bytes=None, active_bytes=100, metadata_bytes=None)]
    found = jemalloc_verdict.sums(rows, [])
    assert found.used_bytes == 70 and found.cached_bytes is None and found.metadata_bytes is None
    assert [part.bytes for part in jemalloc_verdict.parts(found)][-2:] == [None, None]


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
    judged = jemalloc_verdict.judge(figures(**parts), [slabs(224, parts.get("free_regions_bytes", 0))], UNPREFIXED)
    assert judged.kind == kind
    assert ("thread caches" in " ".join(line.what for line in judged.lines)) == ("cached_bytes" in parts)


def test_a_purge_is_only_promised_where_it_gives_something() -> None:
    """Free regions are not reached by it, and the sentence says so."""
    judged = jemalloc_verdict.judge(figures(used_bytes=10 * MB, free_regions_bytes=30 * MB), [slabs(224, 29 * MB), slabs(32, 1 * MB)], UNPREFIXED)
    hint = judged.lines[0].hint or ""
    assert "29.0 MiB in regions of 224 bytes" in hint and "32 bytes" not in hint and "no purge reaches these" in hint


# ---------------------------------------------------------------------------------------------------- findings


def test_blind_threads_in_one_sentence() -> None:
    """Number, release, arenas with the largest first, bytes, and that nobody else purges them."""
    report = tickers([thread("blind"), thread("blind")], [held_in(1, "unpurged", 5 * MB, blind_threads=1), held_in(4, "unpurged", 20 * MB, blind_threads=1)])
    (line,) = told(report)
    assert line.startswith("2 threads are blind: their first call to jemalloc was free(), and because of a bug in jemalloc 5.2.1 they never return unused pages")
    assert "arenas 4, 1 hold 25.0 MiB of unused pages, and no other thread purges them (arena 4: its only thread is blind)" in line


def test_one_blind_thread_whose_arena_others_purge() -> None:
    """Singular, and no alarm: the hint says that the arena is purged all the same."""
    made = jemalloc_findings.findings("5.2.1", figures(), [], state(), tickers([thread("blind")], [held_in(3, "purged", MB, blind_threads=1)]))
    assert made[0].what.startswith("1 thread is blind: its first call") and "it never returns" in made[0].what
    assert made[0].evidence == "arena 3 holds 1.0 MiB of unused pages" and "still purged" in (made[0].hint or "")


@pytest.mark.parametrize("verdict", ["ticking", "at-risk", "not-started", "not-applicable"])
def test_no_thread_is_accused_without_the_verdict(verdict: str) -> None:
    """Only `blind` is blind, however many pages an arena holds."""
    assert not [line for line in told(tickers([thread(verdict)], [held_in(0, "purged", 500 * MB)])) if "blind" in line]


def test_a_thread_that_cannot_be_judged_is_told() -> None:
    """But only where the build has the fault."""
    assert told(tickers([thread("unknown")], []))[0].startswith("cannot determine the state of 1 thread")
    assert not told(tickers([thread("unknown")], [], affected=False))


def test_other_reasons_why_pages_stay() -> None:
    """Decay switched off, threads gone, nobody purging although background threads are on, idle threads."""
    assert "dirty_decay_ms is -1: arena 2 holds 3.0 MiB" in told(tickers([], [held_in(2, "never", 3 * MB)]))[0]
    assert told(tickers([], [held_in(2, "no-threads", 3 * MB)]))[0].endswith("arena 2 holds 3.0 MiB of unused pages; no thread is bound to them")
    assert not told(tickers([], [held_in(2, "no-threads", MB // 2)]))
    assert told(tickers([], [held_in(2, "unpurged", MB)]))[0].startswith("arena 2 holds 1.0 MiB of unused pages, and no thread returns them to the OS")
    for verdict, idle in (("purged", ""), ("idle", " of idle threads")):
        (line,) = told(tickers([], [held_in(2, verdict, 40 * MB)]), dirty_bytes=40 * MB)
        assert line.startswith("jemalloc returns pages only while threads call it") and line.endswith("arena 2%s holds 40.0 MiB of unused pages" % idle)
    assert not told(tickers([], [held_in(2, "purged", 40 * MB)]), state(background_running=2, background_enabled=True), dirty_bytes=40 * MB)


def test_arenas_that_no_thread_was_ever_bound_to() -> None:
    """Arenas of the program's own, and the one for large requests, are told as what they are; only automatic ones have had threads."""
    kinds = {kind: told(tickers([], [held_in(2, "no-threads", 3 * MB, kind=kind)]))[0] for kind in ("auto", "manual", "huge")}
    assert kinds["auto"].startswith("memory is left in arenas of threads that have exited")
    assert kinds["manual"] == "unused pages stay in arenas that the program made: arena 2 holds 3.0 MiB of unused pages; made by arenas.create, no thread is bound to them"
    assert "opt.oversize_threshold" in kinds["huge"] and "exited" not in kinds["huge"]


def test_missing_statistics_are_said_only_where_they_are_known_to_be_missing() -> None:
    """Metadata that could not be read is no --disable-stats."""
    for has_stats, words in ((False, "configured with --disable-stats"), (True, "cannot read the counters of an arena"), (None, "cannot read the counters of an arena")):
        (line,) = told(tickers([], []), state(has_stats=has_stats), metadata_bytes=None)
        assert line.endswith(words) or words in line
        assert ("--disable-stats" in line) is (has_stats is False)


def test_without_an_arena_there_is_no_verdict() -> None:
    """Zeros that nobody read are no small heap."""
    found = jemalloc_verdict.sums([], [])
    judged = jemalloc_verdict.judge(found, [], UNPREFIXED)
    assert judged.kind == "inconclusive" and judged.lines[0].what == "Inconclusive" and jemalloc_verdict.parts(found) == []


def test_background_threads_lost_by_a_fork() -> None:
    """Asked for at the start and off now."""
    line = told(tickers([], []), state(background_asked=True, background_enabled=False))[0]
    assert line.startswith("background threads were requested but are off")


def test_free_memory_spread_over_arenas() -> None:
    """Many arenas that together hold more than is used."""
    rows = [arena(index, active_bytes=10 * MB, dirty_bytes=10 * MB) for index in range(12)]
    found = jemalloc_findings.findings("5.3.0", figures(used_bytes=50 * MB, dirty_bytes=120 * MB), rows, state(), tickers([thread("ticking")] * 3, []))
    assert found[-1].evidence.startswith("12 arenas for 3 threads")


def test_a_list_of_arenas_is_cut() -> None:
    """Eight are named, the rest is a number."""
    line = told(tickers([], [held_in(index, "never", MB) for index in range(100)]))[0]
    assert "arenas 0, 1, 2, 3, 4, 5, 6, 7 and 92 more hold 100.0 MiB" in line


# ---------------------------------------------------------------------------------------------------- next steps


def modules(*names: str) -> List[Module]:
    return [Module(name, 0x1000, True, None, None) for name in names]


@pytest.mark.parametrize("prefix, call, variable", [("", "mallctl(", "MALLOC_CONF="), ("je_", "je_mallctl(", "JE_MALLOC_CONF="), ("_rjem_", "_rjem_mallctl(", "_RJEM_MALLOC_CONF=")])
def test_steps_use_the_builds_own_names(prefix: str, call: str, variable: str) -> None:
    """The prefix of functions, in capitals for the environment."""
    steps = jemalloc_findings.next_steps("unused-pages", figures(dirty_bytes=50 * MB), tickers([], []), state(names=PublicNames(prefix, variable[:-1])), [])
    assert any(step.startswith(call) for step in steps) and any(step.startswith(variable) for step in steps)


def test_steps_of_a_leak() -> None:
    """A profile where one is kept; else how to have one, if the build can."""
    steps = {
        name: " ".join(jemalloc_findings.next_steps("in-use", figures(), tickers([], []), conditions, []))
        for name, conditions in {"on": state(prof=True), "off": state(), "never": state(has_prof=False)}.items()
    }
    assert "profile -o heap.prof" in steps["on"] and "prof:true" in steps["off"] and "prof" not in steps["never"]


def test_programs_that_can_purge_themselves() -> None:
    """Debian's redis-server is a link to redis-check-rdb."""
    for name in ("/usr/bin/redis-server", "/usr/bin/redis-check-rdb"):
        steps = jemalloc_findings.next_steps("unused-pages", figures(dirty_bytes=50 * MB), tickers([], []), state(), modules(name))
        assert "redis-cli MEMORY PURGE returns the unused pages of every arena to the OS now" in steps
        assert [getattr(step, "saves_bytes", None) for step in steps if "PURGE" in step] == [50 * MB]
    assert runtimes.purge_hint(modules("/usr/sbin/named")) is None


# ---------------------------------------------------------------------------------------------------- doctor and split


def build(**fields: Any) -> JemallocBuild:
    made = JemallocBuild("jemalloc", "5.3.0-0-g5", "_rjem_je_", PublicNames("_rjem_", "_RJEM_MALLOC_CONF"), 20, 3, 4096, 16, 36, 232, 48, (18, 18), True, 9, True, True, False, 4, "static-tls")
    return made._replace(**fields)


def test_doctor_of_a_prefixed_build() -> None:
    """Who gets memory here is said where it is not malloc."""
    rows = jemalloc_checkup.checks(build(), 4, False)
    assert "code that calls _rjem_malloc gets its memory here" in rows[0].found
    assert "code that calls" not in jemalloc_checkup.checks(build(names=UNPREFIXED), 4, True)[0].found
    assert all(row.ok is not False for row in rows)


def test_doctor_tells_what_proves_a_layout_without_a_slab() -> None:
    """Arenas that name themselves; and the names of a build whose prefix is not known."""
    assert "3 arenas have their own index" in jemalloc_checkup.checks(build(calibrated_slabs=0), 4, True)[1].found
    assert "1 arena has its own index" in jemalloc_checkup.checks(build(calibrated_slabs=0, named_arenas=1), 4, True)[1].found
    assert "it reads options from _RJEM_MALLOC_CONF" in jemalloc_checkup.checks(build(), 4, False)[0].found
    assert "unknown" in jemalloc_checkup.checks(build(names=PublicNames(None, None)), 4, False)[0].found


def test_doctor_says_what_is_not_well() -> None:
    """No slab to prove it on, still being initialised, threads whose tsd is lost."""
    assert "not yet verified on any slab" in jemalloc_checkup.checks(build(calibrated_slabs=0), 4, True)[1].found
    assert jemalloc_checkup.checks(build(is_initialized=False), 4, True)[1].ok is False
    some, none = (jemalloc_checkup.checks(build(threads_with_tsd=number), 4, True)[-1] for number in (3, None))
    assert some.ok is False and "3 of 4" in some.found
    assert none.ok is False and "not found" in none.found


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

    def unread(self) -> List[Unread]:
        return [Unread(Module("/srv/service", 0x1000, True, None, None), "jemalloc in /srv/service: no layouts", "make a pack")]

    def found(self, allocator: Any) -> Instances:
        return Instances((), self.unread() if allocator.name == "jemalloc" else ())


def test_memory_outside_is_not_called_foreign_while_a_jemalloc_is_unread() -> None:
    """A Rust program's jemalloc owns no malloc; what lies outside glibc may all be its: no verdict, and how to get one."""
    outside = Finding("most of the memory is not malloc's", "9 of 10 lie outside malloc", None)
    finding, steps = overview._unread(Looked(None), outside)  # type: ignore[arg-type]
    assert finding is not None and finding.what == "Inconclusive" and finding.details == outside.evidence
    assert steps == ["make a pack"]
    assert overview._unread(Looked(None), None) == (None, []), "where most is glibc's, that is judged"  # type: ignore[arg-type]


def test_the_unread_owner_of_malloc_is_named_with_its_hint() -> None:
    """Whatever lies where: nothing can be said of a process whose malloc is not read."""
    owner = Owner(Module("/srv/service", 0x1000, True, None, None), "jemalloc")
    finding, steps = overview._unread(Looked(owner), None)  # type: ignore[arg-type]
    assert finding is not None and "jemalloc owns malloc" in finding.evidence and steps == ["make a pack"]
