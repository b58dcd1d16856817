"""What a setting would change: the two ends of RSS, and what is not known.

Files: allocators/answers.py, addons/labs/what_if.py.
"""

from types import SimpleNamespace
from typing import Any, List

import pytest

from gdbheapx.addons.labs import what_if as predict
from gdbheapx.allocators import measured
from gdbheapx.allocators.answers import BOUNDED, EXACT, Effect, Requests, effect_of_restart, four_to_a_doubling, in_force, of_classes
from gdbheapx.allocators.measured import ARENA_ONE, MXFAST, TCACHE_COUNT, TRIM_THRESHOLD, Case, Setting
from gdbheapx.analysis import overview
from gdbheapx.common import findings as codes
from gdbheapx.common import verdict
from gdbheapx.common.hints import strip_targets
from gdbheapx.common.model import AllocatorInfo, HistogramRow
from gdbheapx.inferior.base import Module

pytestmark = pytest.mark.once  # arithmetic

MIB = 1 << 20


def effect(least: object, most: object, may_peak: bool = False) -> Effect:
    return Effect("arenas", "A=1", BOUNDED, least, most, "", "", may_peak=may_peak)  # type: ignore[arg-type]


def test_ends_leave_room_for_what_two_runs_differ_by() -> None:
    """RSS less what is saved, either way."""
    even = predict._even_bytes(64 * MIB, 0)
    assert predict._even_bytes(64 * MIB, 4096) == even + 2 * MIB == predict.EVEN_BYTES + 64 * MIB // predict.EVEN_SHARE + 2 * MIB
    told = predict.make_outcome("x", effect(MIB, 2 * MIB), 64 * MIB, 80 * MIB, even)
    assert (told.then_least_bytes, told.then_most_bytes) == (62 * MIB - even, 63 * MIB + even)


def test_at_worst_the_peak_stays() -> None:
    """What may keep all that was ever in RAM has the peak as its upper end."""
    told = predict.make_outcome("x", effect(0, MIB, may_peak=True), 64 * MIB, 80 * MIB, 0)
    assert told.saves_least_bytes == -16 * MIB
    assert predict.make_outcome("x", effect(0, MIB, may_peak=True), 64 * MIB, None, 0).then_most_bytes is None


def test_unknown_stays_unknown() -> None:
    """A core does not tell RSS; an end that is not known is no figure."""
    assert predict.make_outcome("x", effect(0, MIB), None, None, None)[4:8] == (0, MIB, None, None)
    assert predict.make_outcome("x", effect(None, MIB), 64 * MIB, None, 0).then_most_bytes is None


def test_a_core_weighs_a_setting_by_the_memory_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """1/32 of it, as of RSS: 100 KiB in caches of 200 MiB are no reason for a change, neither of the process nor of its core."""
    monkeypatch.setattr(measured, "CASES", [Case(TCACHE_COUNT.text, codes.THREAD_CACHES, 100, 24)])
    few, many = tried(TCACHE_COUNT, codes.THREAD_CACHES, 100 << 10), tried(TCACHE_COUNT, codes.THREAD_CACHES, 20 * MIB)
    assert [predict.make_outcome("x", one, None, None, None, 200 * MIB).is_advised for one in (few, many)] == [False, True]
    assert [predict.make_outcome("x", one, 200 * MIB, None, 0).is_advised for one in (few, many)] == [False, True]


def test_nothing_is_called_in_a_core() -> None:
    """A row with `trim` or `purge` would be advice that is refused."""
    session, heap = SimpleNamespace(target=SimpleNamespace(kind="core")), SimpleNamespace(returning=object())
    assert predict._predict_returned(session, heap) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("advisable, expected", [({"trim", "trim --dry-run"}, ["trim"]), ({"trim --dry-run"}, [])])
def test_a_call_that_would_be_refused_is_no_row(monkeypatch: pytest.MonkeyPatch, advisable: Any, expected: List[str]) -> None:
    """It is asked what `report` asks before it advises the call."""
    monkeypatch.setattr(predict, "find_advisable", lambda session, heap: advisable)
    heap: Any = SimpleNamespace(
        returning=SimpleNamespace(command="trim"),
        would_return=lambda portion: SimpleNamespace(predicted=SimpleNamespace(resident_bytes=MIB)),
    )
    session: Any = SimpleNamespace(target=SimpleNamespace(kind="live"))
    assert [effect.code for effect in predict._predict_returned(session, heap)] == expected


def test_what_is_in_force_changes_nothing() -> None:
    """Both ends are RSS as it is."""
    told = predict.make_outcome(None, in_force("arenas", "A=1", "one"), 64 * MIB, None, 0)
    assert told.is_in_force and (told.kind, told.saves_least_bytes, told.saves_most_bytes) == (EXACT, 0, 0)


def tried(setting: Setting, cause: str, acts_on_bytes: int) -> Effect:
    return Effect("own", setting.text, BOUNDED, 0, 20 * MIB, "", "a cost", acts_on_bytes=acts_on_bytes, by=setting, causes=(cause,))


def test_a_setting_is_advised_where_it_was_measured_against_what_keeps_memory_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What saves most of what it acts on is first, of those alike the least harm; the same setting against another cause, one that acts on
    little, one that is in force and one without a case are not shown but named."""
    cases = [(TRIM_THRESHOLD, codes.MAIN_TOP, 50), (MXFAST, codes.UNMERGED, 10), (ARENA_ONE, codes.MAIN_TOP, 95), (TCACHE_COUNT, codes.THREAD_CACHES, 5)]
    monkeypatch.setattr(measured, "CASES", [Case(setting.text, cause, 100, after) for setting, cause, after in cases])
    most, less = tried(MXFAST, codes.UNMERGED, 13 * MIB), tried(TRIM_THRESHOLD, codes.MAIN_TOP, 12 * MIB)
    none = [tried(ARENA_ONE, codes.MAIN_TOP, 20 * MIB), tried(TCACHE_COUNT, codes.THREAD_CACHES, MIB), effect(0, 20 * MIB)]
    sure = Effect("trim", "gdbheapx trim", EXACT, 9 * MIB, 9 * MIB, "", "faults", acts_on_bytes=9 * MIB)
    effects = [*none, in_force("arenas", "B=1", "one"), sure, less, most]
    outcomes = [predict.make_outcome("x", one, 64 * MIB, 64 * MIB, 0) for one in effects]
    found = predict.WhatIf(64 * MIB, 64 * MIB, sorted(outcomes, key=predict.rank_outcome))
    assert [one.setting for one in found.settings if one.is_advised] == [most.setting, "gdbheapx trim", less.setting]
    first = "%s acts on 13.0 MiB of 64.0 MiB, and saved up to 90 %% where it was measured (cost: a cost)" % most.setting
    second = "gdbheapx trim saves 9.0 MiB of 64.0 MiB (cost: faults)"
    assert strip_targets(str(predict.best(found))) == "what-if shows what a setting saves: %s; %s" % (first, second)
    assert getattr(predict.best(found), "saves_bytes", None) == 9 * MIB  # of the one that is known here
    near = [predict.make_outcome("x", one, 64 * MIB, 64 * MIB, 0) for one in (tried(MXFAST, codes.UNMERGED, 11 * MIB), sure)]
    assert sorted(near, key=predict.rank_outcome)[0].setting == "gdbheapx trim"  # it is known here, the other where it was measured
    assert strip_targets(str(predict.best(found, ["own"]))) == "what-if shows what a setting saves: %s" % second
    assert predict.best(found, ["own", "trim"]) is None
    page = list(map(str, predict.format_what_if(found)))
    assert page[-1].count("; ") == 2 and page[-1].startswith("Not shown") and page[-2] == "In force, or without effect: B=1"


@pytest.mark.parametrize("holder, owns, count", [("libc.so.6", True, 3), ("program", True, 0), ("libc.so.6", False, 0)])
def test_no_library_takes_the_place_of_a_malloc_inside_the_program(holder: str, owns: bool, count: int) -> None:
    """Nor of one that the program does not call: LD_PRELOAD would change nothing there."""
    info = AllocatorInfo("glibc", "glibc", "2.36", holder, None, None, None, owns)
    heap: Any = SimpleNamespace(info=info, requests=lambda: [Requests(10, 480, 240, 24, 40)], arenas=list)
    own = predict._predict_other_allocators(of(Module("/bin/program", 0, True, None, None)), heap, [effect_of_restart(4096)], 64 * MIB, 400)
    assert len(own) == count and {one.least_bytes for one in own} <= {-(16 + 6 + 3) * MIB - 80} and {one.most_bytes for one in own} <= {400}


def test_a_library_that_goes_takes_its_own_memory_along() -> None:
    """All that the heap has in RAM, but for the blocks in the other's sizes. Requests follow from its classes."""
    info = AllocatorInfo("jemalloc", "jemalloc", "5.3.0", "libjemalloc.so.2", None, None, None, True)
    heap: Any = SimpleNamespace(info=info, requests=list, arenas=list, histogram=lambda: [HistogramRow(64, 64, 1000, 64000, 0, 0, 0)])
    own = predict._predict_other_allocators(of(Module("/bin/program", 0, True, None, None)), heap, [effect_of_restart(4096)], 64 * MIB, MIB)
    assert {one.most_bytes for one in own} == {MIB - 1000 * 64 + predict.LIBRARY_BYTES} and len(own) == 2


def of(module: Module) -> Any:
    """A session with one thread and no LD_PRELOAD."""
    target = SimpleNamespace(modules=lambda: [module], threads=lambda: [1], environment_variable=lambda name: None)
    return SimpleNamespace(target=target)


@pytest.mark.parametrize("size, block", [(24, 32), (20000, 0)])
def test_the_end_of_a_large_block_need_not_be_in_ram(size: int, block: int) -> None:
    """Of a small one, what its size class adds is."""
    allocator: Any = SimpleNamespace(preload_bytes=lambda request_bytes: -(-request_bytes // 16) * 16)
    assert predict._in_ram(allocator, Requests(1, size, size, size, size)) == block


def test_a_block_in_a_class_was_asked_for_as_more_than_the_next_smaller_one() -> None:
    """A row that holds several classes counts from its first."""
    rows = [HistogramRow(64, 64, 3, 192, 0, 0, 0), HistogramRow(160, 192, 2, 352, 0, 0, 0), HistogramRow(80, 80, 0, 0, 1, 80, 0)]
    assert of_classes(rows, four_to_a_doubling) == [(3, 192, 147, 49, 64), (2, 352, 258, 129, 192)]


def test_a_restart_returns_what_a_call_can() -> None:
    """Where no call is known, RSS stays at worst."""
    trim = Effect("trim", "gdbheapx trim", EXACT, 9 * MIB, 9 * MIB, "", "")
    for calls, least_bytes in (([trim], 9 * MIB), ([], 0)):
        assert predict._with_returned_by_call(effect_of_restart(12 * MIB), calls).least_bytes == least_bytes


def test_variables_that_are_not_heeded_are_not_advised() -> None:
    """Of a program that runs with other rights than its caller's."""
    page = "\n".join(map(str, predict.format_what_if(predict.WhatIf(None, None, [], None, True))))
    assert "ignores environment variables" in page


def test_a_report_does_not_weigh_settings_of_large_heaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process would stand still for longer than was said before."""
    monkeypatch.setattr(predict, "what_if", lambda session: pytest.fail("a walk more"))
    row = HistogramRow(32, 32, overview.MOST_BLOCKS, 0, 1, 0, 0)
    session: Any = SimpleNamespace(target=SimpleNamespace(kind="live"), heaps=SimpleNamespace(all=lambda: [SimpleNamespace(histogram=lambda: [row])]))
    (step,) = overview._suggest_settings(session, verdict.usual_verdict(100 << 20, 0, 100 << 20), {})
    assert strip_targets(str(step)) == "what-if shows what a setting would save"
