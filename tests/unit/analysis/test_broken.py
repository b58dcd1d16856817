"""Which broken rules are told: those that every look at a living process has shown; which of them are a finding, and how they read.

Files: allocators/rules.py.
"""

from typing import Any, Iterator, List, Optional, Sequence

import pytest

from gdbheapx.allocators.rules import LOCKED, BrokenRule, Suspect
from gdbheapx.analysis import broken
from gdbheapx.budget import SURE_ATTEMPTS, Attempts
from gdbheapx.model import Address
from gdbheapx.problems import Code, Severity

CODE = Code("made-up-damage", Severity.DAMAGE)


def rule(name: str, address: int, evidence: Optional[str] = None, suspect: Optional[Suspect] = None) -> BrokenRule:
    return BrokenRule(
        allocator="fake",
        arena=1,
        code=CODE,
        address=Address(address),
        rule=name,
        abort="it is wrong",
        suspect=suspect,
        what="what is wrong",
        evidence=evidence,
    )


class FakeHeap:
    """A heap that has these broken rules, look by look."""

    def __init__(self, *looks: Sequence[BrokenRule]) -> None:
        self._looks = iter(looks)

    def rules(self) -> Iterator[BrokenRule]:
        return iter(next(self._looks))


class Told:
    """Collects notes."""

    def __init__(self) -> None:
        self.codes: List[str] = []

    def __call__(self, code: Code, where: Any, what: str, hint: Any = None, partial: bool = True) -> None:
        self.codes.append(code)


def look(*rows: Sequence[BrokenRule]) -> Any:
    """(what the last look gives, the notes, whether another one is wanted) after these looks of a living process."""
    heap: Any = FakeHeap(*rows)
    attempts, told, found = Attempts(), Told(), broken.Broken(())
    for number in range(1, len(rows) + 1):
        attempts.begin(number, number < 8)
        found = broken.check_heaps([heap], attempts, told)
    unsettled = attempts.is_unsettled
    attempts.tell()
    return found, told.codes, unsettled


A, B = rule("a", 16), rule("b", 32)
WAITS = rule("a", 16, LOCKED)


@pytest.mark.parametrize(
    "rows, kept, is_finding, codes, unsettled",
    [
        ([[]], [], False, [], False),
        ([[A]], [A], True, [], True),
        ([[A, B], [A]], [A], True, [], True),
        ([[A], []], [], False, [], False),
        ([[], [A]], [], False, [], True),
        ([[A]] * SURE_ATTEMPTS, [A], True, [], False),
        ([[WAITS]], [WAITS], False, ["check-unsettled"], True),
        ([[WAITS]] * SURE_ATTEMPTS, [WAITS], False, ["check-unsettled"], True),
        ([[WAITS, B]], [WAITS, B], True, ["check-unsettled"], True),
    ],
)
def test_what_every_look_shows(rows: Any, kept: Any, is_finding: bool, codes: Any, unsettled: bool) -> None:
    """What one look did not show is a change under way; what a lock explains is no finding, and makes the answer partial."""
    found, told, again = look(*rows)
    assert (list(found.rows), found.is_finding, told, again) == (kept, is_finding, codes, unsettled)


def test_a_look_whose_work_is_put_off_proves_nothing() -> None:
    """What it does not show is not gone: the next look is the first that has all."""
    heap: Any = FakeHeap([], [A], [A])
    attempts, told = Attempts(), Told()
    attempts.begin(1, True)
    attempts.later(lambda: None)
    assert list(broken.check_heaps([heap], attempts, told).rows) == []
    attempts.between()
    for number in (2, 3):
        attempts.begin(number, True)
        assert list(broken.check_heaps([heap], attempts, told).rows) == [A]
