"""What symbol tables tell of many words of a stack, and of thread-local storage: each table is read once.

Files: analysis/reachability/paths.py.
"""

from types import SimpleNamespace
from typing import List, cast

from gdbheapx.analysis.reachability.heap_graph import TargetSymbols
from gdbheapx.inferior.base import Function, Module, StackCall, StackCopy, StaticBlock, Target, Thread

MODULE = Module("/usr/bin/app", 0x1000, True, None, None)




def test_names_are_looked_up_once() -> None:
    """A thousand words of one call and of one variable ask for no more than the first one did."""
    asked: List[str] = []
    target = SimpleNamespace(
        calls=lambda stack: [StackCall(0x7000, 0x9000, 0x1234, False)],
        image_ranges=lambda: asked.append("images") or [(0x1000, 0x2000, MODULE)],
        functions=lambda module, exported: asked.append("functions") or [Function(0x1200, 0x1300, "work", False)],
        variables=lambda module: asked.append("variables") or [("t_cache", 16, 8, True), ("g_all", 16, 8, False)],
    )
    thread = Thread(7, "app", 0x5000, 0x7000, 0x1234)
    symbols = TargetSymbols(cast(Target, target), {7: StackCopy(0x7000, 0x1234, (), b"")}, [StaticBlock(-64, 64, MODULE)])
    for word in range(1000):
        assert symbols.in_stack(thread, 0x7000 + 8 * word) == "frame 0, work+0x34 in app"
        assert symbols.thread_local(thread, 0x5000 - 64 + 20) == "t_cache+0x4 in app"
    assert asked == ["images", "functions", "variables"]
