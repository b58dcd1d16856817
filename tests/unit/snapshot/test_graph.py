"""gdbheapx/snapshot/graph.py"""

from types import SimpleNamespace
from typing import Any

import pytest

from gdbheapx.analysis.census import find
from gdbheapx.analysis.reachability import dominance
from gdbheapx.errors import HeapxError
from gdbheapx.snapshot import graph


@pytest.mark.parametrize("error", [HeapxError("stopped after --max-seconds 1", "give it more time"), ValueError("too many blocks")])
def test_a_graph_that_cannot_be_made_leaves_the_rest(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The file is without it, and the answer partial: what else was found stays."""
    told = []

    def refuse(*given: Any) -> None:
        raise error

    monkeypatch.setattr(dominance, "tally_owners", refuse)
    session: Any = SimpleNamespace(
        shared=lambda name: SimpleNamespace(reach=None, called=None, paths=None) if name == find.TOLD else None,
        budget=SimpleNamespace(progress=SimpleNamespace(stage="")),
        problem=lambda *words, **more: told.append((words, more)),
    )
    assert graph.keep_graph(session, [], True) == (None, {})
    (words, more), hint = told[0], getattr(error, "hint", None)
    assert words[2:] == ("the graph of blocks is not in the snapshot: %s" % error, hint) and more.get("partial", True) and len(told) == 1
