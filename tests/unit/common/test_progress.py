"""What is said on standard error while something lasts."""

import os
import sys
from typing import Optional

import pytest

from gdbheapx.common.budget import Budget, Progress, terminal_line


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_said_within_two_seconds_then_less_and_less_often() -> None:
    """A line after 2, 4, 8 seconds, each with what is being done; none without a stage, and one for a long slice."""
    clock, said = Clock(), []  # type: Clock, list[str]
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
    clock, said = Clock(), []  # type: Clock, list[str]
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


def test_a_terminal_has_one_line_that_goes_away() -> None:
    """From two seconds on it is written anew five times a second, and is empty at the end; what was never shown is not wiped."""
    clock, shown = Clock(), []  # type: Clock, list[str]
    progress = Progress(clock=clock, show=shown.append)
    assert progress.is_on_terminal and not Progress(shown.append).is_on_terminal
    progress.stage = "reading"
    progress.end()
    for step in (1.9, 2.0, 2.1, 2.3, 2.4):
        clock.now = 100.0 + step
        progress.tick()
    assert shown == ["reading, 2 s so far", "reading, 2 s so far"]
    progress.end()
    progress.end()
    assert shown[2:] == [""]


def test_per_cent_and_time_left_of_what_is_measured() -> None:
    """By how long the stage itself has lasted; below 2 % nothing is foretold, and what the stage before has measured is forgotten."""
    clock, said, done = Clock(), [], [0]  # type: Clock, list[str], list[int]
    progress = Progress(said.append, clock)
    progress.stage = "preparing"
    clock.now += 10
    progress.stage = "reading"
    progress.measure(lambda: done[0], 200)
    for step, now in ((0, 10), (3, 20), (50, 40), (300, 80)):
        done[0], clock.now = step, 100.0 + now
        progress.tick()
    progress.stage = "following"
    clock.now += 100
    progress.tick()
    assert said == [
        "reading, 10 s so far",
        "reading, 20 s so far",
        "reading, 40 s so far, 25 %, about 90 s left",
        "reading, 80 s so far, 100 %, about 0 s left",
        "following, 180 s so far",
    ]


def test_that_the_process_runs_again_is_said() -> None:
    """Once it does, behind all else."""
    clock, said, stopped = Clock(), [], [True]  # type: Clock, list[str], list[bool]
    progress = Progress(said.append, clock)
    progress.has_let_go = lambda: not stopped[0]
    progress.stage = "finding owners"
    progress.measure(lambda: 1, 4)
    for now in (2, 4):
        clock.now, stopped[0] = 100.0 + now, now == 2
        progress.tick()
    assert said == [
        "finding owners, 2 s so far, 25 %, about 6 s left",
        "finding owners, 4 s so far, 25 %, about 12 s left (the process is running again)",
    ]


def test_what_is_measured_goes_on_by_another_name() -> None:
    """`fleet` counts its cores in the name."""
    clock, said = Clock(), []  # type: Clock, list[str]
    progress = Progress(said.append, clock)
    progress.stage = "0 of 4 cores"
    progress.measure(lambda: 1, 4)
    clock.now += 6
    progress.name("1 of 4 cores")
    progress.tick()
    progress.measure(None, 0)
    clock.now += 6
    progress.tick()
    assert said == ["1 of 4 cores, 6 s so far, 25 %, about 18 s left", "1 of 4 cores, 12 s so far"]


@pytest.mark.parametrize("term", ["dumb", None])
def test_no_line_is_rewritten_where_it_cannot_be(monkeypatch: pytest.MonkeyPatch, term: Optional[str]) -> None:
    """TERM=dumb, or none."""
    if term is None:
        monkeypatch.delenv("TERM", raising=False)
    else:
        monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(os, "isatty", lambda descriptor: True)
    assert terminal_line() is None


def test_the_line_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer one would not be wiped: it is cut."""
    written = []  # type: list[bytes]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(os, "isatty", lambda descriptor: True)
    monkeypatch.setattr(os, "get_terminal_size", lambda descriptor: os.terminal_size((20, 50)))
    show = terminal_line()
    assert show is not None
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda descriptor, data: written.append(data))
        show("reading all blocks")
        show("")
    assert written == [b"\r\x1b[Kgdbheapx: reading a", b"\r\x1b[K"]
