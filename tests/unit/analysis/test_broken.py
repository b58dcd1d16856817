"""Which broken rules are a finding, and how they read.

Files: allocators/answers.py.
"""

from typing import Any, Iterator, List, Optional, Sequence

import pytest

from gdbheapx.allocators.answers import LOCKED, BrokenRule, RuleSuspect
from gdbheapx.analysis.census import block
from gdbheapx.model import TargetAddress
from gdbheapx.problems import ProblemCode, Severity

CODE = ProblemCode("made-up-damage", Severity.DAMAGE)


def rule(name: str, address: int, evidence: Optional[str] = None, suspect: Optional[RuleSuspect] = None) -> BrokenRule:
    return BrokenRule(
        allocator="fake",
        arena=1,
        code=CODE,
        address=TargetAddress(address),
        rule=name,
        abort="it is wrong",
        suspect=suspect,
        what="what is wrong",
        evidence=evidence,
    )


class FakeHeap:
    """A heap that has these broken rules."""

    def __init__(self, rows: Sequence[BrokenRule]) -> None:
        self._rows = rows

    def rules(self) -> Iterator[BrokenRule]:
        return iter(self._rows)


class Told:
    """Collects notes."""

    def __init__(self) -> None:
        self.codes: List[str] = []

    def __call__(self, code: ProblemCode, where: Any, what: str, hint: Any = None, partial: bool = True) -> None:
        self.codes.append(code)


A, B = rule("a", 16), rule("b", 32)
WAITS = rule("a", 16, LOCKED)


@pytest.mark.parametrize(
    "rows, is_finding, codes",
    [([], False, []), ([A], True, []), ([WAITS], False, ["check-unsettled"]), ([WAITS, B], True, ["check-unsettled"])],
)
def test_what_is_a_finding(rows: Any, is_finding: bool, codes: Any) -> None:
    """What a lock explains is none, and makes the answer partial."""
    heap: Any = FakeHeap(rows)
    told = Told()
    found = block.check_heaps([heap], told)
    assert (list(found), any(row.is_sure for row in found), told.codes) == (rows, is_finding, codes)
