"""Every kind of verdict is one of a closed set, has its old name beside it, and contradicts nothing of the same answer; which broken rules are a finding.

Files: common/verdict.py, analysis/inside.py, allocators/answers.py, report/overview_text.py.
"""

import inspect
import re
from types import SimpleNamespace
from typing import Any, Iterator, List, Optional, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbheapx.allocators.answers import LOCKED, BrokenRule, RuleSuspect
from gdbheapx.analysis import inside
from gdbheapx.analysis.census import block
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.overview import Overview, make_overview
from gdbheapx.command import TextStyle
from gdbheapx.common import findings as codes
from gdbheapx.common import verdict
from gdbheapx.common.budget import Budget
from gdbheapx.common.model import Finding, TargetAddress
from gdbheapx.common.problems import ProblemCode, Severity
from gdbheapx.kernel.blocks.graph import NativeSum
from gdbheapx.report import overview_text
from gdbheapx.report.text import format_page
from tests.support.builders.recorded import FirstPages, Recorded, recorded, use
from tests.support.builders.records import MB

OLD = {
    codes.IN_USE: "leak-like",
    codes.PART_HELD: "mixed",
    codes.LEAKED: "leaked",
    codes.FREED_AND_HELD: "hoarding",
    codes.ARENAS_LEFT: "hoarding",
    codes.UNMERGED: "hoarding",
    codes.UNUSED_PAGES: "hoarding",
    codes.GIVEN_BACK_IN_RAM: "hoarding",
    codes.BLOCKLESS: "huge-pages",
    codes.FREE_BETWEEN: "fragmented",
    codes.FREE_REGIONS: "fragmented",
    codes.SMALL_HEAP: "small",
    codes.ABORTED_IN_MALLOC: "small",
    codes.EVIDENCE_MISSING: "unread",
    codes.OWNER_UNREAD: "unread",
    codes.ALLOCATOR_UNREAD: "unread",
    codes.NO_ALLOCATOR: "unread",
}
"""What release 1.0 called each; huge pages that malloc gave back were its `huge-pages`, too."""
MOSTLY = [codes.MOSTLY + value for name, value in vars(kinds).items() if name.isupper() and isinstance(value, str)]
sizes = st.integers(0, 400 * MB)


def of(code: str) -> verdict.HeapVerdict:
    return verdict.of_lines([Finding("", "", None, code)])


def test_each_code_has_a_kind_and_its_old_one() -> None:
    """Also the kinds of parts that no allocator has."""
    block = inspect.getsource(codes).partition("# ---- verdicts on an allocator")[2].partition("# ---- findings")[0]
    named = {value for name, value in vars(codes).items() if re.search(r"^%s = " % name, block, re.M)}
    assert set(OLD) == named | {codes.GIVEN_BACK_IN_RAM}
    for code in [*OLD, *MOSTLY]:
        made = of(code)
        assert made.kind in verdict.KINDS and made.kind != verdict.GROWING, "that takes two readings"
        assert (made.kind_1_0, made.code_1_0) == (OLD.get(code, "not-malloc"), code)
    assert {of(code).kind for code in MOSTLY if code != codes.MOSTLY_RUNTIME} == {verdict.IN_USE} and of(codes.MOSTLY_RUNTIME).kind == verdict.RUNTIME


def texts(judged: verdict.HeapVerdict) -> Iterator[str]:
    for line in judged.lines:
        yield from (str(text) for text in (line.what, line.evidence, line.details, line.hint) if text is not None)


@given(sizes, sizes, st.one_of(st.none(), sizes), sizes, st.booleans(), st.booleans())
def test_a_proven_leak_is_the_verdict(used: int, free: int, taken: Optional[int], leaked: int, is_bound: bool, may_be_garbage: bool) -> None:
    """From 5 % of the memory in use or 16 MiB on, whatever the kind would be; and what was looked at is not called open."""
    judged = verdict.usual_verdict(used + free, used, taken)
    found = inside.InsideAnswer(NativeSum(9, used), NativeSum(3, min(leaked, used)), None, (), leaked_is_upper_bound=is_bound, may_be_garbage=may_be_garbage)
    lost = min(leaked, used)
    is_much = lost >= MB and (lost >= 16 * MB or 100 * lost >= 5 * used)
    made = inside.with_leaked(judged, found)
    is_proven = is_much and not is_bound and not may_be_garbage and judged.kind not in (verdict.SMALL, verdict.INCONCLUSIVE)
    assert made.kind == (verdict.LEAKED if is_proven else judged.kind) and made.kind in verdict.KINDS
    if not is_proven or judged.code not in verdict.HELD_BY_PROGRAM or 10 * lost < used:
        assert (made.kind_1_0, made.code_1_0) == (judged.kind_1_0, judged.code_1_0), "a script of 1.0 sees what it saw"
    said = " ".join(texts(made))
    assert "leak only if" not in said and "not looked at" not in said and (made.kind != verdict.LEAKED or "normal unless" not in said)


@pytest.mark.parametrize("code", sorted(codes.CAUSES))
def test_causes_are_the_findings_of_the_answer(code: str) -> None:
    """Each once, with its bytes and its cure; what is no cause is none."""
    line: Any = Finding("", "", "do that", code, size_bytes=7)
    made = verdict.with_causes(of(codes.IN_USE), [Finding("", "", None, codes.IN_USE), line, line])
    assert made.causes == [verdict.VerdictCause(code, 7, "do that")] and made.confidence == made.sure


CODE = ProblemCode("made-up-damage", Severity.DAMAGE)


def rule(name: str, address: int, evidence: Optional[str] = None, suspect: Optional[RuleSuspect] = None) -> BrokenRule:
    return BrokenRule(
        allocator="fake",
        arena=1,
        code=CODE,
        address=TargetAddress(address),
        rule=name,
        abort="it is wrong",
        suspect=suspect,
        what="what is wrong",
        evidence=evidence,
    )


class FakeHeap:
    """A heap that has these broken rules."""

    def __init__(self, rows: Sequence[BrokenRule]) -> None:
        self._rows = rows

    def rules(self) -> Iterator[BrokenRule]:
        return iter(self._rows)


class Told:
    """Collects notes."""

    def __init__(self) -> None:
        self.codes: List[str] = []

    def __call__(self, code: ProblemCode, where: Any, what: str, hint: Any = None, partial: bool = True) -> None:
        self.codes.append(code)


A, B = rule("a", 16), rule("b", 32)
WAITS = rule("a", 16, LOCKED)


@pytest.mark.parametrize(
    "rows, is_finding, codes",
    [([], False, []), ([A], True, []), ([WAITS], False, ["check-unsettled"]), ([WAITS, B], True, ["check-unsettled"])],
)
def test_what_is_a_finding(rows: Any, is_finding: bool, codes: Any) -> None:
    """What a lock explains is none, and makes the answer partial."""
    heap: Any = FakeHeap(rows)
    told = Told()
    found = block.check_heaps([heap], told)
    assert (list(found), any(row.is_sure for row in found), told.codes) == (rows, is_finding, codes)


def seen(target: Recorded) -> Overview:
    """What is said of a process without an allocator that can be read."""

    def report(code: str, address: Optional[int], what: str, hint: Optional[str]) -> None:
        raise AssertionError(what)

    discovery = SimpleNamespace(unused=list, unread=list, foreign_owner=lambda: None, inner=list, may_be_hidden=lambda: False)
    known = {"target": target, "kernel": FirstPages(target), "budget": Budget(), "discovery": discovery, "heaps": SimpleNamespace(all=list)}
    session: Any = SimpleNamespace(**known, allocator_id=None, is_copied_whole=False, without_names=True, kept=lambda name, kind, make: make(), report=report)
    return make_overview(session)


def text(found: Overview, plain: bool = False) -> str:
    style = TextStyle(plain, False)
    return "\n".join(line for page in (overview_text.format_overview(found), overview_text.format_last_lines(style, found, 99)) for line in format_page(style, page))


def test_a_process_without_an_allocator_is_split() -> None:
    """A static Go program: its heap is the verdict, and there are no arenas."""
    go = recorded("go-1.26-cgo-linux-6.18.smaps", modules=["/srv/service"], sections=[".gopclntab"])
    found = seen(go)
    assert found.split is not None and found.split[0].program == "Go"
    assert (found.verdict.kind, found.verdict.code, list(found.arenas)) == ("runtime", "mostly-runtime", [])
    assert "Go: heap" in text(found) and found.next[0].command is not None


def test_a_small_process_without_an_allocator_gets_no_verdict() -> None:
    """It is said that there is none to read."""
    found = seen(Recorded([use(0x10000, 0x20000, resident=0x8000)]))
    assert (found.verdict.kind, found.verdict.code) == ("inconclusive", "no-allocator")
    assert "no allocator could be read" in text(found)


@pytest.mark.parametrize("absent, says", [(49 * MB, "  49.0 MiB of it are not in RAM; owners and types below count them"), (5 * MB, None)])
def test_blocks_that_nobody_wrote_to_are_in_no_share_of_rss(absent: int, says: Optional[str]) -> None:
    """62 MiB in blocks of a process of 23 MiB: what of them takes no memory is said where their owners follow."""
    found = seen(recorded("go-1.26-cgo-linux-6.18.smaps", modules=["/srv/service"], sections=[".gopclntab"]))
    looked = inside.InsideAnswer(NativeSum(9, 62 * MB), NativeSum(0, 0), None, (), absent_bytes=absent)
    lines = text(found._replace(inside=looked)).split("\n")
    after = lines[lines.index("In use: 62.0 MiB in 9 blocks") + 1]
    assert (after == says) is (says is not None)
