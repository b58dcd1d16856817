"""Which code is jemalloc's, by the symbol table of the object that it is linked into; and what ends an action in time.

Files: glibc/plan.py, jemalloc/plan.py.
"""

from types import SimpleNamespace
from typing import Any, List, Tuple

import pytest

from gdbheapx.actions import calling
from gdbheapx.allocators.plan import in_time
from gdbheapx.common.budget import Budget
from gdbheapx.common.errors import Busy, OutOfTime, Refusal, StopOver
from gdbheapx.common.problems import BUSY, STOP_LIMIT
from gdbheapx.inferior.base import Function
from gdbheapx.jemalloc import plan
from gdbheapx.jemalloc.plan import GAP_BYTES, MARGIN_BYTES

PREFIX, PUBLIC = "xy_je_", "xy_"
BASE = 0x400000


def spans(*functions: Tuple[int, int, str, bool]) -> List[Tuple[int, int]]:
    """What is enclosed, relative to BASE."""
    listed = sorted(Function(BASE + start, BASE + end, name, local) for start, end, name, local in functions)
    return [(one.start - BASE, one.end - BASE) for one in plan.enclose_functions(listed, PREFIX, PUBLIC)]


def test_static_functions_lie_between_named_ones() -> None:
    """A gap as large as ctl.c's static functions is closed, a larger one is not."""
    near = (
        (0x10000, 0x10100, "xy_je_arena_new", True),
        (0x30000, 0x30100, "arena_i_purge_ctl", True),
        (0x40000, 0x40100, "xy_je_tsd_fetch", True),
    )
    assert spans(*near) == [(0x10000 - MARGIN_BYTES, 0x40100 + MARGIN_BYTES)]
    far = 0x10100 + GAP_BYTES
    assert len(spans(near[0], (far, far + 16, "xy_je_tsd_fetch", True))) == 2


@pytest.mark.parametrize("name, local", [("main", False), ("worker", False), ("_ZN5arrow6BufferD0Ev", True), ("_RNvCs1_4main4main", True)])
def test_no_span_reaches_over_the_programs_own(name: str, local: bool) -> None:
    """main between jemalloc's cold functions and the others: a thread that waits in it is outside."""
    found = spans((0x1000, 0x1100, "xy_je_malloc_default.cold", True), (0x1200, 0x1300, name, local), (0x1400, 0x1500, "xy_malloc", False))
    assert found == [(0x1000 - MARGIN_BYTES, 0x1200), (0x1300, 0x1500 + MARGIN_BYTES)]


def test_public_functions_are_jemallocs_own() -> None:
    """They carry the public prefix alone; another function with it is the program's."""
    assert spans((0x1000, 0x1100, "xy_mallctl", False), (0x1200, 0x1300, "xy_je_arena_new", True)) == [
        (0x1000 - MARGIN_BYTES, 0x1300 + MARGIN_BYTES)
    ]
    assert spans((0x1000, 0x1100, "xy_start", False)) == []


@pytest.mark.parametrize(
    "names, is_one",
    [
        (["malloc", "free", "mallctl", "_Znwm", "_ZdlPvmSt11align_val_t", "_init"], True),
        (["malloc", "free"], False),
        (["malloc", "free", "mallctl", "rocksdb_open"], False),
        ([], False),
    ],
)
def test_a_library_is_known_by_what_it_offers(names: List[str], is_one: bool) -> None:
    """All that it offers is jemalloc's, and mallctl is among it; its file may have any name."""
    assert plan.is_jemalloc_library(iter(names), "", "") == is_one
    assert (
        plan.is_jemalloc_library(iter("xy_" + name if name in ("malloc", "free", "mallctl") else name for name in names), "xy_je_", "xy_") == is_one
    )


class Held:
    """A control that counts how often the process is held."""

    ours, is_cut, is_late, pid = True, False, False, 77

    def __init__(self) -> None:
        self.holds = 0
        self.target = SimpleNamespace(max_stop_s=0.3)

    def hold(self) -> None:
        self.holds += 1

    def let_go(self) -> None:
        pass


def never(tries: calling.Tries) -> None:
    raise Busy("a thread is inside malloc")


def test_waiting_ends_with_the_users_patience() -> None:
    """Ctrl-C while it waits for a better moment: no further stop, and it is called what it is."""
    budget, control = Budget(), Held()
    budget.interrupt()
    wanted: Any = control
    with pytest.raises(OutOfTime, match="stopped by Ctrl-C before everything was checked") as caught:
        calling.attempt_action(wanted, 20, budget, never, calling.refuse_as_busy)
    assert control.holds == 1 and caught.value.hint is None


def test_in_vain_it_is_too_busy() -> None:
    """Each stop found a thread inside: as many as were asked for, and a refusal that says so."""
    control = Held()
    wanted: Any = control
    with pytest.raises(Refusal, match="the process is too busy: a thread is inside malloc .stopped 3 times.") as caught:
        calling.attempt_action(wanted, 2, Budget(), never, calling.refuse_as_busy)
    assert control.holds == 3 and caught.value.code == BUSY


@pytest.mark.parametrize("ends", [StopOver(), Refusal("the heap was not read to its end"), OutOfTime("cut", None, code=STOP_LIMIT)])
def test_a_stop_has_its_limit(ends: BaseException) -> None:
    """However it shows that the process stood still for too long: no further stop, nothing is begun, and it is called so."""
    control = Held()
    control.is_cut = control.is_late = True
    wanted: Any = control

    def act(tries: calling.Tries) -> None:
        raise ends

    with pytest.raises(OutOfTime, match="process 77 was let go after --max-stop 0.3, .*: nothing was changed") as caught:
        calling.attempt_action(wanted, 20, Budget(), act, calling.refuse_as_busy)
    assert control.holds == 1 and caught.value.code == STOP_LIMIT and caught.value.hint == "allow more with --max-stop 1"
    with pytest.raises(OutOfTime):
        calling.begin_action(wanted)


def test_time_that_is_up_is_no_damage() -> None:
    """--max-seconds is named, with the way to have more of it; with time left nothing is said."""
    in_time(Budget(100))
    budget = Budget(0.0)
    budget.expired()
    with pytest.raises(OutOfTime, match="stopped after --max-seconds 0 before") as caught:
        in_time(budget)
    assert caught.value.hint == "raise --max-seconds"
