"""What ends an action in time: the user's patience, --max-stop, --max-seconds, a thread that is always inside.

Files: actions/calling.py, allocators/plan.py.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from gdbheapx.actions import calling
from gdbheapx.allocators.plan import in_time
from gdbheapx.common.budget import Budget
from gdbheapx.common.errors import Busy, OutOfTime, Refusal, StopOver
from gdbheapx.common.problems import BUSY, STOP_LIMIT


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
