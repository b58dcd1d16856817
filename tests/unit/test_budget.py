"""gdbheapx/budget.py"""

import time

import pytest

from gdbheapx.budget import Budget, Still
from gdbheapx.errors import StopOver
from gdbheapx.problems import CUT, STOP_LIMIT

pytestmark = pytest.mark.once  # numbers alone


def test_walks_end_before_the_stop_does() -> None:
    """A tenth of a stop is left for its end; what is cut for that has a code of its own."""
    still = Still()
    budget = Budget(None, still)
    assert not budget.expired() and budget.slice_s(5) == 5
    still.begin(time.monotonic() + 1.0, 1.0)
    assert not budget.expired() and budget.slice_s(5) < 0.9
    still.begin(time.monotonic() + 0.05, 1.0)
    assert budget.expired() and budget.is_stop_over and budget.code == STOP_LIMIT and "--max-stop 1" in (budget.reason or "")
    assert budget.slice_s(5) == 0
    still.check()  # it stands still for another moment


def test_nothing_is_read_behind_it() -> None:
    """A process that ran on for its time is not read any more, until it is stopped again; one that was let go in time is."""
    still = Still()
    still.begin(time.monotonic() - 0.01, 1.0)
    for _ in range(2):
        with pytest.raises(StopOver):
            still.check()
        still.end(is_over=True)
    still.end()
    still.check()
    assert not Budget(None, still).expired()


def test_a_process_that_runs_limits_nothing() -> None:
    """Before and after its stop the work has all the time there is."""
    still = Still()
    budget = Budget(None, still)
    still.begin(time.monotonic() + 100, 100)
    still.end()
    assert budget.slice_s(1e6) == 1e6 and not budget.expired() and budget.code == CUT


def test_who_interrupts_a_stop_that_is_over() -> None:
    """What ends reading then is the limit, and no Ctrl-C."""
    still = Still()
    budget = Budget(None, still)
    still.begin(time.monotonic() - 1, 1)
    budget.interrupt()
    assert budget.is_stop_over and not budget.interrupted
