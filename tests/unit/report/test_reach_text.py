"""What leaks, owners and refs say, from records made here.

Files: analysis/reachability/refs.py, report/leaks_text.py, report/reach_text.py.
"""

from typing import Any, List, Optional

import pytest

from gdbheapx import hints
from gdbheapx.analysis.reachability.leaks import Group, Leaks, LostMapping
from gdbheapx.analysis.reachability.owners import SHARED, Accumulation, Division, HoldingBlock, Owned, Owners, Suspect, named
from gdbheapx.analysis.reachability.refs import Chain, Holder, Refs, Step
from gdbheapx.command import Style
from gdbheapx.hints import ask
from gdbheapx.kernel.blocks.graph import EVIDENCE, Habit, Sum
from gdbheapx.model import Address
from gdbheapx.report import leaks_text, reach_text

NOTHING = Sum(0, 0)
LOST = Group(None, "root", 24, 2, 48, 5, 120, [Address(0x10), Address(0x20)])


def found(**fields: Any) -> Leaks:
    """Nothing is leaked, but for what is said."""
    plain = Leaks(Sum(90, 9000), NOTHING, {}, NOTHING, 0, (), (), (), (), False)
    return plain._replace(**fields)


def said(answer: Leaks, limit: Optional[int] = None) -> str:
    """The text of leaks."""
    return "\n".join(leaks_text.lines(Style(plain_bytes=False, color=False), answer, None, limit))


def test_leaks() -> None:
    """Each class has a line; roots, habits, lost mappings and low addresses are told where there are any."""
    assert "Leaked: nothing" in said(found()) and "Possibly" not in said(found()) and "owners" in said(found())
    text = said(found(leaked=Sum(7, 168), roots=2, groups=[LOST, LOST], maybe=Sum(1, 8), maybe_by={"inside": Sum(1, 8)}), 1)
    assert "168 bytes in 7 blocks" in text and "reachable from 2 leak roots" in text
    assert "To inspect one: " + ask("whatis 0x10") in text
    assert "whatis" not in "\n".join(leaks_text.lines(Style(plain_bytes=False, color=False), found(groups=[LOST]), None, None, False))
    assert "at most" not in text
    for leaked, can, wanted in ((Sum(7, 9000), True, True), (Sum(7, 8999), True, False), (Sum(7, 9000), False, False), (NOTHING, True, False)):
        lines = leaks_text.lines(Style(plain_bytes=False, color=False), found(leaked=leaked), None, None, can_look_again=can)
        assert (ask("leaks --weak") in "\n".join(lines)) == wanted
    text_of_some = said(found(leaked=Sum(7, 168), is_upper_bound=True))
    assert "Leaked: at most 168 bytes" in text_of_some and "fewer may be leaked" in text_of_some
    assert "only through a pointer into its middle" in text and "0x10" in text and "1 more group: " in text
    text = said(found(habits=[Habit(48, 3000, 6000)], low_addresses=True, mappings=[LostMapping(Address(0x7000), 4096, None, "")]))
    assert "48 bytes (3,000 blocks)" in text and "below 4 GiB" in text and "without a reference: 1 (4.0 KiB)" in text


def owned(name: str, *children: Owned) -> Owned:
    return Owned(name, "global", Address(0x10), 1000, 50.0, 3, None, None, children)


def test_owners() -> None:
    """A suspect is one sentence; rows below an owner are indented; what was not counted is no number."""
    point = Accumulation(Address(0x40), None, "block 0x40 (80 bytes)", 80, 7, 900, 2)
    whole = Owners([Suspect("g_index in app", "global", 1000, 50.0, point)], [owned("g_index in app", owned("inner"))], Sum(9, 2000), Sum(1, 10), 30)
    text = "\n".join(reach_text.owners_lines(Style(plain_bytes=False, color=False), whole))
    assert "Suspect: g_index in app keeps 1,000 bytes (50 %); most of it hangs off block 0x40 (80 bytes)\n" in text.replace("1000", "1,000")
    flat = whole._replace(suspects=[whole.suspects[0]._replace(accumulation=point._replace(steps=0))])
    assert "keeps 1000 bytes (50 %)\n" in "\n".join(reach_text.owners_lines(Style(plain_bytes=False, color=False), flat))
    assert "inner" in text and "?" in text and [row.owner for row in reach_text.flat(whole.owners, 0)] == ["g_index in app", "  inner"]
    assert "leaked: 10 bytes;" in text and "[leaked]" in text and "unread" not in text
    assert "leaked: at most 10 bytes;" in "\n".join(reach_text.owners_lines(Style(plain_bytes=False, color=False), whole._replace(leaked_is_upper_bound=True)))
    assert "No owner retains 20 % or more" in "\n".join(reach_text.owners_lines(Style(plain_bytes=False, color=False), whole._replace(suspects=[])))


def step(number: int, root: Optional[str] = None, left_out: int = 0) -> Step:
    return Step(Address(number), 0, None, root, "start", left_out)


def test_a_long_chain_keeps_its_ends() -> None:
    """However few steps are shown, the root is one of them, and what is hidden adds up."""
    steps: List[Step] = [*(step(number) for number in range(1, 6)), step(6, left_out=100), *(step(number) for number in range(7, 10)), step(10, "g in app")]
    for depth in range(1, 12):
        shown = reach_text.shortened(steps, depth)
        assert len(shown) == min(depth, 10) and shown[-1].root == "g in app"
        assert len(shown) + sum(one.left_out for one in shown) == 110
    answer = Refs(Address(0x50), 8, 64, "start", [Chain(steps, True), Chain(steps[:2], False)], False)
    lines = list(reach_text.lines(Style(plain_bytes=False, color=False), answer, 1, 4))
    assert "+8" in lines[0] and "2 pointers; reachable" in lines[0] and "110 steps to a root" in lines[2]
    assert "106 steps not shown: --depth 10" in hints.bare("\n".join(lines)) and hints.bare(lines[-1]) == "1 more chain: --limit 2"
    assert reach_text.data(answer, 1, 4)["referrers"] == 2


@pytest.mark.parametrize("evidence", EVIDENCE)
def test_refs_and_leaks_say_the_same(evidence: str) -> None:
    """Held, maybe or leaked, by one table; nobody calls held what only a weak pointer leads to, neither with the holders of a block."""
    if evidence == "?":
        return
    answer = Refs(Address(0x50), 0, 64, evidence, [Chain([step(1), step(2, "g in app")], True)], False)
    head = next(iter(reach_text.lines(Style(plain_bytes=False, color=False), answer, 1, 4)))
    wanted = {"none": "leaked"}.get(evidence, "held" if evidence in ("start", "tag", "base", "habit") else "maybe")
    said_of_holder = Holder(Address(0x50), evidence, "g in app", 2, None).words()
    words = {"held": "; reachable", "maybe": "; possibly leaked: ", "leaked": "; leaked"}
    assert reach_text.data(answer, 1, 4)["class"] == wanted and [word for word in words.values() if word in head] == [words[wanted]]
    assert said_of_holder == {"held": "g in app, 2 steps", "leaked": "leaked"}.get(wanted, said_of_holder)
    assert wanted != "maybe" or "maybe: only" in said_of_holder


def test_suspects_have_the_types_that_whatis_knows() -> None:
    """Of a holder that is a block, of the block of a holder in which the pointer stands, of parts; a place alone has no type to show."""
    holders = ["block 0x20 (160 bytes)", "so+0x4f"]
    holding = [HoldingBlock(holders[0], Address(0x28), False), HoldingBlock(holders[0], Address(0x20), True), HoldingBlock(holders[1], Address(0x30), False)]
    parts = [Division("block 0x50 (9 bytes)", Address(0x50), 900, 45.0), Division("block 0x60 (9 bytes)", Address(0x60), 500, 25.0)]
    point = Accumulation(Address(0x10), None, "block 0x10 (72 bytes)", 72, 2, 1000, 0, parts)
    suspect = Suspect("block 0x10 (72 bytes)", SHARED, 1000, 50.0, point, holders=holders, holding=holding)
    answer = Owners([suspect], [], Sum(9, 2000), Sum(0, 0), 1000)
    assert "which block 0x20 (160 bytes) and so+0x4f hold" in reach_text.suspicion(suspect)
    known = named(answer, {0x20: "etree.XMLParser", 0x30: "etree._Context", 0x60: "Session"}).suspects[0]
    assert "which etree.XMLParser 0x20 and etree._Context of so+0x4f hold" in reach_text.suspicion(known)
    assert reach_text.suspicion(known).endswith("; largest parts: block 0x50 (9 bytes) (45 %), Session 0x60 (25 %)")
    assert ask("whatis 0x10") in "\n".join(reach_text.owners_lines(Style(plain_bytes=False, color=False), answer))
