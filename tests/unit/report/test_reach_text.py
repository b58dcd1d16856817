"""What leaks, owners and refs say, from records made here.

Files: analysis/reachability/refs.py, report/reach_text.py, report/reach_text.py.
"""

from typing import List, Optional

from gdbheapx import hints
from gdbheapx.analysis.reachability.owners import SHARED, Accumulation, Division, HoldingBlock, LeakSuspect, Owners, add_owner_types
from gdbheapx.analysis.reachability.refs import Refs, RefsChain, RefsStep
from gdbheapx.command import TextStyle
from gdbheapx.hints import hint_command
from gdbheapx.kernel.blocks.graph import NativeSum
from gdbheapx.model import TargetAddress
from gdbheapx.report import reach_text
from gdbheapx.report.text import format_page


def step(number: int, root: Optional[str] = None, left_out: int = 0) -> RefsStep:
    return RefsStep(TargetAddress(number), 0, None, root, "start", left_out)


def test_a_long_chain_keeps_its_ends() -> None:
    """However few steps are shown, the root is one of them, and what is hidden adds up."""
    steps: List[RefsStep] = [*(step(number) for number in range(1, 6)), step(6, left_out=100), *(step(number) for number in range(7, 10)), step(10, "g in app")]
    for depth in range(1, 12):
        shown = reach_text.shorten_chain(steps, depth)
        assert len(shown) == min(depth, 10) and shown[-1].root == "g in app"
        assert len(shown) + sum(one.left_out for one in shown) == 110
    answer = Refs(TargetAddress(0x50), 8, 64, "start", [RefsChain(steps, True), RefsChain(steps[:2], False)], False)
    lines = list(reach_text.format_refs(TextStyle(plain_bytes=False, color=False), answer, 1, 4))
    assert "+8" in lines[0] and "2 pointers; reachable" in lines[0] and "110 steps to a root" in lines[2]
    assert "106 steps not shown: --depth 10" in hints.strip_targets("\n".join(lines)) and hints.strip_targets(lines[-1]) == "1 more chain: --limit 2"
    assert reach_text.make_refs_data(answer, 1, 4)["referrers"] == 2


def test_suspects_have_the_types_that_whatis_knows() -> None:
    """Of a holder that is a block, of the block of a holder in which the pointer stands, of parts; a place alone has no type to show."""
    holders = ["block 0x20 (160 bytes)", "so+0x4f"]
    holding = [HoldingBlock(holders[0], TargetAddress(0x28), False), HoldingBlock(holders[0], TargetAddress(0x20), True), HoldingBlock(holders[1], TargetAddress(0x30), False)]
    parts = [Division("block 0x50 (9 bytes)", TargetAddress(0x50), 900, 45.0), Division("block 0x60 (9 bytes)", TargetAddress(0x60), 500, 25.0)]
    point = Accumulation(TargetAddress(0x10), None, "block 0x10 (72 bytes)", 72, 2, 1000, 0, parts)
    suspect = LeakSuspect("block 0x10 (72 bytes)", SHARED, 1000, 50.0, point, holders=holders, holding=holding)
    answer = Owners([suspect], [], NativeSum(9, 2000), NativeSum(0, 0), 1000)
    assert "which block 0x20 (160 bytes) and so+0x4f hold" in reach_text.describe_suspicion(suspect)
    known = add_owner_types(answer, {0x20: "etree.XMLParser", 0x30: "etree._Context", 0x60: "Session"}).suspects[0]
    assert "which etree.XMLParser 0x20 and etree._Context of so+0x4f hold" in reach_text.describe_suspicion(known)
    assert reach_text.describe_suspicion(known).endswith("; largest parts: block 0x50 (9 bytes) (45 %), Session 0x60 (25 %)")
    assert hint_command("whatis 0x10") in "\n".join(format_page(TextStyle(plain_bytes=False, color=False), reach_text.make_owners_page(answer)))
