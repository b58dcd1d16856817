"""trim --every: how it ends is how its last round would have ended alone.

Files: actions/call.py, actions/preflight.py.
"""

import os
from types import SimpleNamespace
from typing import Any, List

import pytest

from gdbheapx.actions import call, preflight
from gdbheapx.errors import Busy, HeapxError, Refusal, UnreadableMemory

OPTIONS = SimpleNamespace(every=0.0, above=1, times=2, pad=0)
DONE = SimpleNamespace(
    trouble=None,
    data={},
    predicted=SimpleNamespace(resident_bytes=1),
    before=SimpleNamespace(rss_bytes=2, anonymous_bytes=2),
    after=SimpleNamespace(rss_bytes=1, anonymous_bytes=1),
)


def rows_of(monkeypatch: pytest.MonkeyPatch, outcomes: List[Any], rows: List[Any], above: int = 1) -> None:
    """The rounds of a process that lives, with these outcomes."""

    def run(*_: Any) -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, HeapxError):
            raise outcome
        return outcome

    session: Any = SimpleNamespace(target=SimpleNamespace(pid=os.getpid()), budget=SimpleNamespace(expired=lambda: False))
    monkeypatch.setattr(preflight, "require_gdb", lambda *_: None)
    monkeypatch.setattr(call, "return_heap_memory", run)
    options = SimpleNamespace(**{**vars(OPTIONS), "above": above})
    for row in call.run_rounds(session, options, lambda: session):
        rows.append(row["message"])


@pytest.mark.parametrize("last", [Busy("a thread is inside malloc"), UnreadableMemory(0x1000)])
def test_refused_last(monkeypatch: pytest.MonkeyPatch, last: HeapxError) -> None:
    """Exit code 1 and the one line of the refusal, behind all rows."""
    rows: List[str] = []
    with pytest.raises(Refusal) as caught:
        rows_of(monkeypatch, [DONE, last], rows)
    assert rows == ["trimmed", last.line()]
    assert (caught.value.line(), caught.value.code, caught.value.exit_code) == (last.line(), last.code, 1)


def test_refused_and_then_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a trim that was done at its second try."""
    rows: List[str] = []
    rows_of(monkeypatch, [Busy("a thread is inside malloc"), DONE], rows)
    assert rows == ["a thread is inside malloc", "trimmed"]


def test_nothing_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the limit nothing is asked."""
    rows: List[str] = []
    rows_of(monkeypatch, [], rows, above=1 << 60)
    assert rows == ["below the limit"] * 2
