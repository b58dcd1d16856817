"""Blocks that runtimes have cut themselves: which of them a graph is given."""

from typing import Any, Dict, Optional

import pytest

from gdbheapx.analysis.census import registry
from gdbheapx.analysis.census.world import Inner


class Session:
    """Of one look."""

    def __init__(self, shared: Optional[Dict[str, Any]] = None) -> None:
        self._shared = shared or {}

    def shared(self, name: str) -> Any:
        return self._shared.get(name)


def test_garbage_is_no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for its collector is left out for who asks what is leaked; what is freed at once is not."""
    pools = Inner(iter(()), "python", "block of a pool", [(0, 4096)])
    slots = Inner(iter(()), "ruby", "object in a slot", [(8192, 12288)], is_collected=True)
    monkeypatch.setattr(registry, "find_runtime_memory", lambda session: [pools, slots])
    every, leakable = registry.find_further(Session()), registry.find_further(Session(), garbage=False)  # type: ignore[arg-type]
    assert (list(every.taken), list(leakable.taken)) == ([(0, 4096), (8192, 12288)], [(0, 4096)])
    assert len(leakable.blocks) == 1
