"""Which contradictions are told, and as what, after how many looks.

Files: budget.py, glibc/codes.py.
"""

from typing import Any, List, NamedTuple, Optional, Tuple

import pytest

from gdbheapx.budget import SURE_ATTEMPTS, Attempts
from gdbheapx.glibc import codes
from gdbheapx.glibc.context import passing_by, tell_if_it_stays
from gdbheapx.problems import Code, Diagnostic


class FakeTarget(NamedTuple):
    """What is asked of a target."""

    kind: str


class FakeGlibc(NamedTuple):
    """What is asked of a glibc."""

    id: str


class FakeContext:
    """What is asked of a context."""

    def __init__(self, kind: str, attempts: Attempts) -> None:
        self.target, self.glibc, self.attempts = FakeTarget(kind), FakeGlibc("glibc"), attempts
        self.told: List[Code] = []

    def report(self, code: Code, address: Optional[int], what: str, hint: Optional[str], is_passing: bool = False) -> None:
        self.told.append(code)


SLIGHT = Diagnostic(codes.CACHE_MISCOUNTS, 0x1000, "counts 7 chunks but lists 6", None)
BROKEN = Diagnostic(codes.CACHE_BROKEN, 0x2000, "the link leads to nowhere", None)
CHANGING = passing_by(codes.CACHES_CHANGING, "in the middle of a change")
Contradictions = Tuple[Any, ...]


def after(kind: str, *looks_at: Contradictions) -> List[Code]:
    """What is told after these looks, of which each could be followed by another but for the last."""
    attempts = Attempts()
    context: Any = FakeContext(kind, attempts)
    for number, found in enumerate(looks_at, 1):
        attempts.begin(number, number < len(looks_at))
        tell_if_it_stays(context, "caches", list(found), CHANGING, [SLIGHT])
    attempts.tell()
    return context.told  # type: ignore[no-any-return]


def test_one_look_proves_little_of_a_living_process() -> None:
    """A count that is one off is a step of the thread's own; on a core it is told, and a broken list is told of both."""
    assert after("live", (SLIGHT,)) == []
    assert after("core", (SLIGHT,)) == [SLIGHT.code]
    assert after("live", (SLIGHT, BROKEN)) == after("live", (BROKEN,)) == [BROKEN.code]


def test_what_stays_is_told() -> None:
    """The same at each look is told as it is; what was there once is in the middle of a change; what is gone is not told."""
    assert after("live", *[(BROKEN,)] * SURE_ATTEMPTS) == [BROKEN.code]
    assert after("live", (), (BROKEN,)) == [CHANGING.code]
    assert after("live", (BROKEN,), ()) == []
    assert after("live", (SLIGHT,), (SLIGHT,)) == [SLIGHT.code]


@pytest.mark.parametrize("is_explained", [False, True])
def test_what_is_sure_is_not_looked_for_again(is_explained: bool) -> None:
    """Three looks that show the same settle it, unless somebody is known to be changing it."""
    attempts, told = Attempts(), []  # type: ignore[var-annotated]
    for number in range(1, SURE_ATTEMPTS + 1):
        attempts.begin(number, True)
        attempts.contradicts("part", [BROKEN], lambda seen: told.append(len(seen.attempts)), is_explained)
    assert attempts.is_unsettled == is_explained
    assert told == ([] if is_explained else [SURE_ATTEMPTS])


def test_who_judges_by_itself_is_told_at_once() -> None:
    """A contradiction that waits for the next look everywhere else; work that is put off, and what was found, are shared."""
    attempts = Attempts()
    attempts.begin(1, True)
    own, told, done = attempts.apart(), [], []  # type: ignore[var-annotated]
    own.contradicts("part", [BROKEN], lambda seen: told.append(1))
    assert (told, attempts.is_unsettled, own.is_unsettled, own.can_wait) == ([1], False, False, True)
    own.mapped["glibc"] = [16]
    own.later(lambda: done.append(1))
    assert attempts.has_work and attempts.mapped == {"glibc": [16]}
    attempts.between()
    assert (done, attempts.has_work, own.has_work) == ([1], False, False)
