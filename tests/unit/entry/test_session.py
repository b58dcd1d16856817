"""What a session does before its target is stopped."""

from types import SimpleNamespace
from typing import Any, List

from gdbheapx.budget import Budget
from gdbheapx.session import Session


def test_a_process_that_has_just_ended_is_prepared_for() -> None:
    """Its folder in /proc is gone: whoever stops it says that it has ended, and in words."""

    def anonymous_use() -> Any:
        return None

    target: Any = SimpleNamespace(anonymous_use=anonymous_use, identity=lambda: None, held_by_gdb=False)
    prepared: List[bool] = []
    discovery: Any = SimpleNamespace(prepare=lambda: prepared.append(True))
    session = Session(target, Budget(1.0), discovery=discovery)
    session.prepare()
    assert prepared and session.process is None
