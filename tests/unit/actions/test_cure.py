"""A cure within --max-stop: either nothing was written, or what was written is told.

Files: actions/calling.py, allocators/plan.py.
"""

from types import SimpleNamespace
from typing import Any, List

import pytest

from gdbheapx.actions import calling
from gdbheapx.allocators.plan import Suspect
from gdbheapx.errors import Busy, OutOfTime

FIRST = calling.Tries(1, [])


class Control:
    """Two threads, a byte of each that is 1. `writes`: how many come before the time is up."""

    pid = 77

    def __init__(self, writes: int) -> None:
        self._writes = writes
        self.written: List[int] = []
        self.is_committed = False
        self.target = SimpleNamespace(max_stop_s=0.5, read_prefix=lambda address, size_bytes: b"\1")

    @property
    def is_late(self) -> bool:
        return len(self.written) >= self._writes

    def commit(self) -> None:
        self.is_committed = True

    def threads(self) -> List[Any]:
        return [SimpleNamespace(lwp=lwp, name="worker", who="thread %d" % lwp) for lwp in (1, 2)]

    def write(self, address: int, data: bytes) -> None:
        assert self.is_committed, "a read after it may be cut off"
        self.written.append(address)


def made(writes: int) -> Any:
    """A cure of both."""
    found = calling.Cure.__new__(calling.Cure)
    wanted: Any = found
    wanted.control, wanted.only, wanted.done = Control(writes), None, {}
    wanted.inside = SimpleNamespace(why=lambda thread: None)
    wanted.sandbox = SimpleNamespace(against=lambda lwp, who: None)
    suspects = [Suspect(lwp, 0x1000 * lwp) for lwp in (1, 2)]
    wanted.plan = SimpleNamespace(look=lambda only: suspects, before=b"\1", after=b"\0", done="cured", byte="tickers", read=lambda: "report")
    return wanted


def test_nothing_is_written_when_the_time_is_up() -> None:
    """It is refused, with nothing done."""
    one = made(0)
    with pytest.raises(OutOfTime, match="nothing was changed"):
        one.now(FIRST)
    assert not one.control.written and not one.done


def test_who_was_cured_is_told() -> None:
    """The time is up after the first thread: the second has its turn in the next stop, and the first one's cure is no refusal."""
    one = made(1)
    with pytest.raises(Busy, match="--max-stop"):
        one.now(FIRST)
    assert one.control.written == [0x1000] and [row.cured for row in one.last(FIRST)] == [True, False]


def test_in_time_all_are_cured() -> None:
    """Both, in one stop."""
    one = made(9)
    assert [row.cured for row in one.now(FIRST)] == [True, True] and one.control.written == [0x1000, 0x2000]
