"""Text of reports: the head at 80 columns, tables, and what leaks, owners and refs say.

Files: report/overview_text.py, analysis/overview.py, analysis/reachability/refs.py, report/reach_text.py.
"""

import itertools
from typing import Any, Dict, List, Optional

import pytest

from gdbheapx.analysis.overview import Brief, may_have_suspect
from gdbheapx.analysis.reachability.owners import SHARED, Accumulation, Division, HoldingBlock, LeakSuspect, Owners, add_owner_types
from gdbheapx.analysis.reachability.refs import Refs, RefsChain, RefsStep
from gdbheapx.analysis.split import SplitMemory
from gdbheapx.command import TextStyle
from gdbheapx.common import hints, units
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import AllocatorInfo, Finding, MemoryPart, StepAdvice, TargetAddress
from gdbheapx.common.verdict import HeapVerdict
from gdbheapx.kernel.blocks.graph import NativeSum
from gdbheapx.report import overview_text, reach_text, text
from gdbheapx.report.text import format_on_screen, format_page, format_sentence

MB = 1 << 20
TERMINAL = TextStyle(False, False, 80, True, wraps=True)
LABELS = ("Process", "Allocator", "Verdict", "Next")


def target(kind: str, **more: Any) -> Dict[str, Any]:
    facts = {
        "kind": kind,
        "pid": 4711,
        "core": "/tmp/core" if kind == "core" else None,
        "snapshot": "a.snap" if kind == "snapshot" else None,
        "program": "shop",
        "command_line": "./shop --port 80",
        "host": "web3",
        "time": "2026-11-30T12:00:00Z",
        "uptime_s": 90_061,
        "pause_ms": 11.8,
        "pauses": 1,
    }
    return {**facts, **({"taken": "2026-11-30T12:00:01Z", "taken_of": "core"} if kind == "snapshot" else {}), **more}


def part(name: str, size: int) -> MemoryPart:
    return MemoryPart("anonymous", name, size, None, None, None, None, None, None, None, 1, None, None, "certain")


def memory(measure: str = "resident") -> SplitMemory:
    known = {"measure": measure, "total_bytes": 100 * MB, "swapped_bytes": 7 * MB}
    return SplitMemory(**{name: known.get(name) for name in SplitMemory._fields})  # type: ignore[arg-type]


def brief(letters: int = 1, looked: bool = True, suspect: bool = True) -> Brief:
    """With texts so many times as long."""
    info = AllocatorInfo("glibc", "glibc", "2.36", "libc.so.6", None, None, None, True)
    point = Accumulation(*(None for _ in Accumulation._fields))  # type: ignore[arg-type]
    owner = LeakSuspect("shop._cache" * letters, "global", 60 * MB, 60.2, point, "dict of 60,000 entries " * letters)
    return Brief(
        allocators=[info] * letters,
        memory=memory(),
        largest=[part("malloc (arenas)" + " and such" * letters, 60 * MB)] * 3,
        verdict=HeapVerdict("in-use", [Finding("in use " * letters, "60.0 MiB of 61.0 MiB " * letters, None)], "in-use"),
        was_looked=looked,
        suspect=owner if suspect else None,
        next=StepAdvice(hint_command("owners"), "shows who"),
    )


def shown(made: Brief, about: Dict[str, Any], where: str = "-p 4711", style: TextStyle = TERMINAL) -> List[str]:
    style = style._replace(command_line=lambda words: "gdbheapx %s %s" % (where, words))
    lines = (format_sentence(style, line) for line in overview_text.format_brief(style, made, about))
    return "".join(format_on_screen(style, line) for line in lines).splitlines()


@pytest.mark.parametrize(("kind", "letters"), list(itertools.product(("live", "core", "snapshot"), (1, 3, 40))))
def test_it_has_a_dozen_lines_and_every_part(kind: str, letters: int) -> None:
    """However long names, command lines and sentences are; the command is never cut."""
    about = target(kind, command_line="./shop " + "x" * 9 * letters, program="shop" * letters, pauses=letters)
    where = "--core /var/crash/%s/core" % "/".join(["folder"] * letters)
    lines = shown(brief(letters), about, where)
    assert len(lines) <= 12 and all(len(line) <= 80 or where.split()[1] in line for line in lines), lines
    assert all(any(line.startswith(label) for line in lines) for label in LABELS), lines
    assert any(line.startswith("RSS") for line in lines) and any(line.startswith("Suspect") for line in lines)
    assert ("gdbheapx %s owners" % where).split() == " ".join(lines).partition("Next")[2].split()
    assert any(line.endswith("60.0 MiB (60 %)") for line in lines[-5:]), "a name is cut, not the figure"


def test_nothing_is_known() -> None:
    """A remote stub tells little: what it does not tell is left out, or a question mark."""
    about = target("remote", **dict.fromkeys(("program", "command_line", "host", "time", "uptime_s", "pause_ms", "pauses", "pid")))
    lines = shown(brief()._replace(memory=None, allocators=[]), about)
    assert lines[0] == "Process    ?" and any(line.startswith("Memory     ?") for line in lines) and "None" not in "".join(lines)


def test_a_suspect_that_was_not_sought_is_not_denied() -> None:
    """No suspect where all blocks were looked at is an answer; where they were not, it is none."""
    kept = [brief(looked=looked, suspect=False) for looked in (True, False)]
    of_looked, of_others = ("\n".join(shown(made, target("live"))) for made in kept)
    assert "No owner retains" in of_looked and "not looked for" in of_others
    assert may_have_suspect(kept[1]) and not may_have_suspect(kept[0])


@pytest.mark.parametrize(
    "size, shown",
    [(0, "0 B"), (9999, "9,999 B"), (10000, "9.8 KiB"), (-20480, "-20.0 KiB"), (1 << 20, "1.0 MiB"), (1023 * 1024 + 1000, "1.0 MiB"), (1 << 60, "1024.0 PiB")],
)
def test_sizes_for_people(size: int, shown: str) -> None:
    """Small ones to the byte, others in the largest unit that leaves at most four digits."""
    assert units.table_size(size) == shown


HEADERS, ROWS = ("name", "bytes"), [["one", "1"], ["a longer one", "12,345"]]


def test_a_table_looks_the_same_without_tabulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Header, rule, rows, with the same columns."""
    pytest.importorskip("tabulate")
    with_it = text.format_table(HEADERS, ROWS, "lr")
    monkeypatch.setattr(text, "_tabulate", None)
    monkeypatch.setattr(text, "_looked_for_tabulate", True)
    assert text.format_table(HEADERS, ROWS, "lr") == with_it
    assert with_it[-1].endswith("12,345") and with_it[-2].endswith(" 1") and set(with_it[1]) == {"-", " "}


@pytest.mark.parametrize("told, shown", [("plain", "plain"), ("\x1b[2J", "\\x1b[2J"), ("a\nb", "a\\nb"), ("\u00e9", "\\xe9"), ("\u2028", "\\u2028"), ("\udcff", "\\udcff")])
def test_names_cannot_drive_the_terminal(told: str, shown: str) -> None:
    """Control characters, line ends and letters beyond ASCII are escaped, in a cell as in a line."""
    assert text.make_printable(told) == text.escape_line(told) == shown
    assert shown in text.format_table(["name"], [[told]], "l")[-1]


def test_tabs_stay_and_documents_keep_letters() -> None:
    """A document for another program has its paths as they are, but no line end inside a line."""
    assert text.escape_line("a\tb\x07") == "a\tb\\x07"
    assert text.escape_line("/srv/\u00e9\n/x\t", document=True) == "/srv/\u00e9\\012/x\t"


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
