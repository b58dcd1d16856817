"""How much parsing may cost, what becomes of a file that costs more, and interrupts, each case in a Python of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from gdbheapx.common import budget
from gdbheapx.common.budget import WORK, TooMuchWork, WorkCounter, ends_with_work
from gdbheapx.common.problems import CUT, WORK_LIMIT


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


ROOT = Path(__file__).parents[3]
SECONDS = 60
HEAD = """
import os, signal, time
from gdbheapx.common.budget import SAME_S, Interrupts
heard, number = [], int(signal.%s)
def send():
    os.kill(os.getpid(), number)
"""
TWICE_AT_ONCE = """
with Interrupts(heard.append) as interrupts:
    send(); send()
print(len(heard), len(interrupts.heard))
"""
TWICE = """
try:
    with Interrupts(heard.append) as interrupts:
        send(); time.sleep(SAME_S * 1.1); send()
except KeyboardInterrupt:
    print(len(heard), len(interrupts.heard))
"""
AFTERWARDS = """
with Interrupts(heard.append, restores=False) as interrupts:
    send()
send()
print(len(heard), len(interrupts.heard))
"""
RESTORED = """
signal.signal(number, lambda number, frame: print("mine", end=" "))
with Interrupts(heard.append) as interrupts:
    send()
send()
print(len(heard), len(interrupts.heard))
"""
NONE_CAME = """
before = signal.getsignal(number)
with Interrupts(heard.append, restores=False) as interrupts:
    pass
print(signal.getsignal(number) == before)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize(
    "code, printed",
    [(TWICE_AT_ONCE, "1 1"), (TWICE, "1 2"), (AFTERWARDS, "1 1"), (RESTORED, "mine 1 1"), (NONE_CAME, "True")],
    ids=["twice at once", "twice", "afterwards", "restored", "none came"],
)
def test_what_is_heard(name: str, code: str, printed: str) -> None:
    """The first asks; the same once more at once is the same; a later one stops; after a command that ends its process it takes nothing away."""
    words = [sys.executable, "-c", HEAD % name + code]
    done = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    assert done.stdout == printed + "\n", done.stderr
