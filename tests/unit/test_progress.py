"""What is said on standard error while something lasts."""

import sys

import pytest

from gdbheapx.budget import Budget, Progress


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_said_within_two_seconds_then_less_and_less_often() -> None:
    """A line after 2, 4, 8 seconds, each with what is being done; none without a stage, and one for a long slice."""
    clock, said = Clock(), []  # type: Clock, List[str]
    progress = Progress(said.append, clock)
    for step in range(30):
        clock.now = 100.0 + step
        progress.tick()
    assert said == []
    clock, said = Clock(), []
    progress = Progress(said.append, clock)
    progress.stage = "reading"
    for step in (0.5, 1.9, 2.0, 2.5, 3.9, 4.1, 7.9, 8.0, 40.0, 41.0):
        clock.now = 100.0 + step
        progress.tick()
    assert said == ["reading, 2 s so far", "reading, 4 s so far", "reading, 8 s so far", "reading, 40 s so far"]


def test_a_budget_that_is_asked_says_it() -> None:
    """Whoever asks whether there is time left lets the progress be said."""
    clock, said = Clock(), []  # type: Clock, List[str]
    budget = Budget()
    budget.progress = Progress(said.append, clock)
    budget.progress.stage = "reading"
    clock.now += 3
    assert not budget.expired()
    assert said == ["reading, 3 s so far"]


def test_without_standard_error_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has none where the descriptor was closed before it began, as in what the kernel starts."""
    clock = Clock()
    progress = Progress(clock=clock)
    progress.stage = "reading"
    monkeypatch.setattr(sys, "stderr", None)
    clock.now += 3
    progress.tick()
