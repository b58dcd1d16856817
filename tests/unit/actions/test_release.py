"""Which allocators are asked to return memory, and what becomes of several."""

from types import SimpleNamespace
from typing import Any, List, Optional

import pytest

from gdbheapx.actions import call
from gdbheapx.errors import Refusal


def heap(name: str, owns: bool, command: Optional[str], is_owners: bool = False) -> Any:
    way = SimpleNamespace(command=command, is_owners=is_owners) if command else None
    return SimpleNamespace(info=SimpleNamespace(id=name, name=name, owns_malloc=owns), returning=way, kind=name)


class Asked:
    """A session with these heaps, the first of which is in use."""

    def __init__(self, *heaps: Any) -> None:
        self.heaps = SimpleNamespace(all=lambda: list(heaps), one=lambda: heaps[0])
        self.allocator_id: Optional[str] = None
        self.problems: List[Any] = []
        self.problem = lambda *told, partial: self.problems.append(told)

    def again(self) -> "Asked":
        self.allocator_id = None
        return self


BOTH = heap("je", True, "purge"), heap("tc", False, "purge")


def test_only_what_serves_is_asked() -> None:
    """A way that serves the owner of malloc alone is none beside another owner; where nothing is left, the owner is named."""
    own = heap("own", False, "trim", is_owners=True)
    assert [command for _, command in call.find_return_ways(Asked(*BOTH, own))] == ["purge", "purge"]  # type: ignore[arg-type]
    with pytest.raises(Refusal, match="never owns malloc here"):
        call.find_return_ways(Asked(heap("never", True, None), own))  # type: ignore[arg-type]


def test_one_refusal_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was done is told, with the refusal beside it; where nothing was done, it is refused."""

    def return_memory(session: Any, options: Any, command: str, portion: Any) -> Any:
        if session.allocator_id in options:
            raise Refusal("locked")
        return SimpleNamespace(data={"returned": 0})

    monkeypatch.setattr(call, "return_heap_memory", return_memory)
    session = Asked(*BOTH)
    assert [(name, way, done.data) for name, way, done in call.release_memory(session, ["je"])] == [("tc", "purge", {"returned": 0})]  # type: ignore[arg-type]
    assert [told[2] for told in session.problems] == ["locked"]
    with pytest.raises(Refusal, match="locked"):
        call.release_memory(Asked(*BOTH), ["je", "tc"])  # type: ignore[arg-type]
