"""work.py: how much parsing may cost, and what becomes of a file that costs more."""

from typing import Iterator

import pytest

from gdbheapx import budget
from gdbheapx.budget import WORK, TooMuchWork, WorkCounter, ends_with_work
from gdbheapx.problems import CUT, WORK_LIMIT


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Nothing is left for another test."""
    WORK.begin()
    yield
    WORK.is_over = budget.never_expires
    WORK.exceeded.clear()
    WORK.begin()


def test_a_bound_is_one_file_s() -> None:
    """What is beyond it is too much, and stays so; another file has its own, and a new look counts from zero."""
    one, other, passing = WorkCounter("one", 10), WorkCounter("other", 10), WorkCounter("passing", 10, lasts=False)
    one.spend(6)
    WORK.begin()
    one.spend(10)
    with pytest.raises(TooMuchWork) as raised:
        one.spend()
    other.spend(10)
    WORK.begin()
    with pytest.raises(TooMuchWork):
        one.spend()
    with pytest.raises(TooMuchWork):
        passing.spend(11)
    WORK.begin()
    passing.spend(10)
    assert raised.value.code == WORK_LIMIT and list(WORK.exceeded) == ["one", "passing"]


def test_all_files_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many that cost little each are too much, too; they have one line."""
    monkeypatch.setattr(budget, "MOST_IN_ALL", budget.ASK_STEPS)
    for number in range(2):
        WorkCounter("part %d" % number).spend(budget.ASK_STEPS // 2 - 1)
    with pytest.raises(TooMuchWork):
        WorkCounter("last").spend(budget.ASK_STEPS)
    assert list(WORK.exceeded) == [budget.IN_ALL]


def test_time_is_asked_for() -> None:
    """Each so many steps; where it is up parsing ends, and that is no file's fault."""
    asked = []
    WORK.is_over = lambda: bool(asked.append(WORK.steps)) or len(asked) > 2  # type: ignore[func-returns-value]
    counter, ended = WorkCounter("one"), None
    for _ in range(8 * budget.ASK_STEPS // 1024):
        try:
            counter.spend(1024)
        except TooMuchWork as error:
            ended = error
            break
    assert [steps // budget.ASK_STEPS for steps in asked] == [1, 2, 3] and ended is not None and ended.code == CUT and not WORK.exceeded


def test_what_came_before_is_kept() -> None:
    """A generator ends where its work does."""
    counter = WorkCounter("one", 3)

    @ends_with_work
    def count() -> Iterator[int]:
        for number in range(10):
            counter.spend()
            yield number

    assert list(count()) == [0, 1, 2]
