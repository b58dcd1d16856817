"""The sentences of report and doctor about jemalloc, from figures alone.

Files: jemalloc/records.py, jemalloc/text.py.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from gdbheapx.allocators.discovery import Owner
from gdbheapx.allocators.records import Instances
from gdbheapx.analysis import overview
from gdbheapx.common.model import Finding
from gdbheapx.inferior.base import Module
from gdbheapx.jemalloc import text as jemalloc_findings
from gdbheapx.jemalloc import verdict as jemalloc_verdict
from gdbheapx.jemalloc.find import UnreadJemalloc
from gdbheapx.jemalloc.records import PublicNames
from tests.support.builders.records import MB, UNPREFIXED, conditions, jemalloc_arena, modules, slabs, tickers


def figures(**fields: Any) -> jemalloc_verdict.JemallocVerdictFigures:
    return jemalloc_verdict.JemallocVerdictFigures(0, 0, 0, 0, 0, 0, 0, 0, None)._replace(**fields)


# ---------------------------------------------------------------------------------------------------- figures and verdict


def test_figures_add_up_to_active_unused_and_metadata() -> None:
    """Every byte of active pages has a part, by its own count."""
    row = jemalloc_arena(0, allocated_bytes=70, used_bytes=60, cached_bytes=10, active_bytes=100, rounding_bytes=10, sampled_rounding_bytes=4)
    row = row._replace(dirty_bytes=30, muzzy_bytes=5, metadata_bytes=7, retained_bytes=1000)
    found = jemalloc_verdict.sum_jemalloc_arenas([row], [slabs(10, 20), slabs(4096, 500, "dirty")])
    assert (found.used_bytes, found.cached_bytes, found.free_regions_bytes, found.rounding_bytes, found.sampled_bytes) == (60, 10, 20, 6, 4)
    assert found.held_bytes == 100 + 35 + 7, "retained address space is no memory"
    assert sum(part.bytes or 0 for part in jemalloc_verdict.list_jemalloc_parts(found)) == found.held_bytes


def test_unknown_dirty_pages_stay_unknown() -> None:
    """Of one arena they are not known: nothing is said to be unused, nor what a purge would return."""
    row = jemalloc_arena(0, active_bytes=64 * MB, allocated_bytes=20 * MB, used_bytes=20 * MB, muzzy_bytes=5)
    row = row._replace(dirty_bytes=None, reclaimable_resident_bytes=None)
    found = jemalloc_verdict.sum_jemalloc_arenas([row, jemalloc_arena(1, dirty_bytes=30, muzzy_bytes=0)], [])
    assert (found.dirty_bytes, found.muzzy_bytes, found.told_unused_bytes) == (None, 5, None)
    assert ("dirty pages", None) in [(part.name, part.bytes) for part in jemalloc_verdict.list_jemalloc_parts(found)]
    judged = jemalloc_verdict.judge_jemalloc(found, [], UNPREFIXED)
    assert (judged.kind, judged.code) == ("inconclusive", "evidence-missing") and "%" not in str(judged.evidence), "no share of something unknown"


def test_unknown_caches_and_metadata_stay_unknown() -> None:
    """What is allocated counts as used then, and the parts show question marks, last."""
    rows = [jemalloc_arena(0, allocated_bytes=70, used_bytes=None, cached_bytes=None, active_bytes=100, metadata_bytes=None)]
    found = jemalloc_verdict.sum_jemalloc_arenas(rows, [])
    assert found.used_bytes == 70 and found.cached_bytes is None and found.metadata_bytes is None
    assert [part.bytes for part in jemalloc_verdict.list_jemalloc_parts(found)][-2:] == [None, None]


def test_without_an_arena_there_is_no_verdict() -> None:
    """Zeros that nobody read are no small heap."""
    found = jemalloc_verdict.sum_jemalloc_arenas([], [])
    judged = jemalloc_verdict.judge_jemalloc(found, [], UNPREFIXED)
    assert judged.kind == "inconclusive" and judged.lines[0].what == "Inconclusive" and jemalloc_verdict.list_jemalloc_parts(found) == []


# ---------------------------------------------------------------------------------------------------- next steps


@pytest.mark.parametrize("prefix, variable", [("", "MALLOC_CONF"), ("je_", "JE_MALLOC_CONF"), ("_rjem_", "_RJEM_MALLOC_CONF")])
def test_steps_use_the_builds_own_names(prefix: str, variable: str) -> None:
    """The prefix of functions, in capitals for the environment."""
    state = conditions(names=PublicNames(prefix, variable))
    steps = jemalloc_findings.list_next_steps("unused-pages", figures(dirty_bytes=50 * MB), tickers([], []), state, [])
    assert any(step.startswith(prefix + "mallctl(") for step in steps) and any(step.startswith(variable + "=") for step in steps)


def test_programs_that_can_purge_themselves() -> None:
    """Debian's redis-server is a link to redis-check-rdb."""
    for name in ("/usr/bin/redis-server", "/usr/bin/redis-check-rdb"):
        steps = jemalloc_findings.list_next_steps("unused-pages", figures(dirty_bytes=50 * MB), tickers([], []), conditions(), modules(name))
        assert "redis-cli MEMORY PURGE returns the unused pages of every arena to the OS now" in steps
        assert [getattr(step, "saves_bytes", None) for step in steps if "PURGE" in step] == [50 * MB]
    assert jemalloc_findings.suggest_program_purge(modules("/usr/sbin/named")) is None


# ---------------------------------------------------------------------------------------------------- what is not read


def look(owner: Any) -> Any:
    """A session in which a jemalloc is there and cannot be read."""
    unread = [UnreadJemalloc(Module("/srv/service", 0x1000, True, None, None), "jemalloc in /srv/service: no layouts", "make a pack")]

    def found(allocator: Any) -> Instances:
        return Instances((), unread if allocator.name == "jemalloc" else ())

    discovery = SimpleNamespace(foreign_owner=lambda: owner, unread=lambda: unread, found=found)
    return SimpleNamespace(discovery=discovery, heaps=SimpleNamespace(all=list))


def test_memory_outside_is_not_called_foreign_while_a_jemalloc_is_unread() -> None:
    """A Rust program's jemalloc owns no malloc; what lies outside glibc may all be its: no verdict, and how to get one."""
    outside = Finding("most of the memory is not malloc's", "9 of 10 lie outside malloc", None)
    finding, steps = overview._find_unread(look(None), outside)
    assert finding is not None and finding.what == "Inconclusive" and finding.details == outside.evidence
    assert steps == ["make a pack"]
    assert overview._find_unread(look(None), None) == (None, []), "where most is glibc's, that is judged"


def test_the_unread_owner_of_malloc_is_named_with_its_hint() -> None:
    """Whatever lies where: nothing can be said of a process whose malloc is not read."""
    owner = Owner(Module("/srv/service", 0x1000, True, None, None), "jemalloc")
    finding, steps = overview._find_unread(look(owner), None)
    assert finding is not None and "jemalloc owns malloc" in finding.evidence and steps == ["make a pack"]
