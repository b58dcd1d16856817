"""Each threshold of the verdicts, by the last figure below it and the first that reaches it.

Files: common/verdict.py.
"""

import inspect
import re
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Sequence

import pytest

from gdbheapx.allocators import huge_pages
from gdbheapx.analysis import inside, memory_verdict
from gdbheapx.analysis.memory import kinds
from gdbheapx.common import findings as codes
from gdbheapx.common import verdict
from gdbheapx.glibc.verdict import GLIBC_RULES
from gdbheapx.jemalloc.verdict import JEMALLOC_RULES
from gdbheapx.kernel.blocks.graph import NativeSum
from tests.support.builders.records import MB, part, split

pytestmark = pytest.mark.once  # pure functions


class Edge(NamedTuple):
    """The least size of which something is said."""

    least: int
    is_said: Callable[[int], bool]


def code_of(held: int, used: int, free: int, between: int = 0, rules: Sequence[verdict.VerdictRule] = verdict.USUAL_RULES) -> str:
    """The code of the verdict on these figures."""
    return verdict.find_possible_rules(rules, [verdict.HeapCase(held, used, free, between=between)])[0].code


def kept(held: int, free: int) -> bool:
    return code_of(held, held - free, free) == codes.FREED_AND_HELD


def spread(between: int, free: int) -> bool:
    return code_of(100 * MB, 60 * MB, free, between, JEMALLOC_RULES) == codes.FREE_REGIONS


def matters(held: int, total: int) -> bool:
    return memory_verdict.has_much_memory(split([part(kinds.ALLOCATOR, held), part(kinds.STACK, total - held)]), ["glibc"])


def leaked(leaked_bytes: int) -> verdict.HeapVerdict:
    """The verdict on 100 MiB, all in use."""
    return inside.with_leaked(verdict.usual_verdict(100 * MB, 100 * MB, 100 * MB), inside.InsideAnswer(NativeSum(9, 100 * MB), NativeSum(3, leaked_bytes), None, ()))


def given_back(resident: int) -> huge_pages.Returned:
    return huge_pages.Returned("jemalloc", 80 * MB, resident, None, "retained", None)


EDGES: Dict[str, Edge] = {
    "SMALL_BYTES": Edge(MB, lambda size: code_of(size, size, 0) != codes.SMALL_HEAP),
    "LITTLE_BYTES": Edge(8 * MB, lambda size: code_of(size, size, 0, rules=JEMALLOC_RULES) != codes.SMALL_HEAP),
    "IN_USE_SHARE": Edge(80 * MB, lambda size: code_of(100 * MB, size, 100 * MB - size) == codes.IN_USE),
    "KEPT_PERCENT": Edge(50 * MB, lambda size: kept(100 * MB, size)),
    "MUCH_BYTES": Edge(64 * MB + 1, lambda size: kept(150 * MB, size)),
    "MUCH_KEPT_PARTS": Edge(100 * MB, lambda size: kept(300 * MB, size)),
    "MOST_PARTS": Edge(30 * MB + 1, lambda size: code_of(100 * MB, 40 * MB, 60 * MB, size, GLIBC_RULES) == codes.FREE_BETWEEN),
    "SPREAD_PARTS": Edge(25 * MB, lambda size: spread(size, MB)),
    "SPREAD_RATIO": Edge(30 * MB, lambda size: spread(size, 15 * MB)),
    "WORTH_BYTES": Edge(16 * MB, lambda size: huge_pages.judge_huge_pages(given_back(size), None) is not None),
    "HUGE_SHARE": Edge(25 * MB, lambda size: huge_pages.decides_verdict(size, 100 * MB)),
    "SMALL_HUGE_BYTES": Edge(4 * MB, lambda size: huge_pages.is_worth_telling(size, 10 * MB)),
    "MATTERS": Edge(100 * MB, lambda size: matters(size, 1000 * MB)),
    "MATTERS_BYTES": Edge(8 * MB, lambda size: matters(size, 20 * MB)),
    "MUCH_SHARE": Edge(25 * MB, lambda size: bool(memory_verdict.find_beside(split([part(kinds.ALLOCATOR, 100 * MB - size), part(kinds.STACK, size)])))),
    "CACHE_PERCENT": Edge(50 * MB, lambda size: memory_verdict.judge_memory(split([part(kinds.CACHE, size), part(kinds.ALLOCATOR, 40 * MB), part(kinds.STACK, 60 * MB - size)])) is not None),
    "LEAKED_PERCENT": Edge(5 * MB, lambda size: leaked(size).kind == verdict.LEAKED),
    "LEAKED_PERCENT_1_0": Edge(10 * MB, lambda size: leaked(size).kind_1_0 == "leaked"),
}
"""By the constant of verdict.py."""


@pytest.mark.parametrize("name", EDGES)
def test_a_threshold_is_where_it_is(name: str) -> None:
    """One byte less is another answer: a threshold that moves, up or down, fails here."""
    assert [EDGES[name].is_said(EDGES[name].least - less) for less in (1, 0)] == [False, True]


def test_every_threshold_has_a_case() -> None:
    """Every constant of that part of verdict.py."""
    block = inspect.getsource(verdict).partition("# ---- thresholds")[2].partition("# ---- kinds")[0]
    assert set(EDGES) == {name for line in re.findall(r"^([A-Z][A-Z0-9_, ]+) = ", block, re.M) for name in line.split(", ")}


PARTS = {2: "half", 3: "a third", 4: "a quarter"}
TIMES = {2: "twice"}
KEPT = [PARTS[100 // verdict.KEPT_PERCENT], PARTS[verdict.MUCH_KEPT_PARTS], "%d MiB" % (verdict.MUCH_BYTES / MB)]
LEAST = ["%d MiB" % (size / MB) for size in (verdict.SMALL_BYTES, verdict.LITTLE_BYTES)]
FIGURES: Dict[str, List[List[str]]] = {
    codes.SMALL_HEAP: [LEAST, LEAST[:1], LEAST[1:]],
    codes.IN_USE: [["%d %%" % (100 * verdict.IN_USE_SHARE)]],
    codes.FREED_AND_HELD: [KEPT],
    codes.FREE_BETWEEN: [KEPT],
    codes.UNUSED_PAGES: [KEPT],
    codes.FREE_REGIONS: [KEPT, [PARTS[verdict.SPREAD_PARTS], TIMES[verdict.SPREAD_RATIO]]],
    codes.GIVEN_BACK_IN_RAM: [[PARTS[verdict.HUGE_SHARE]]],
    codes.BLOCKLESS: [[PARTS[verdict.HUGE_SHARE]]],
    codes.LEAKED: [["2 GiB", "64 MiB", "%d %%" % verdict.LEAKED_PERCENT, LEAST[0], "%d MiB" % (verdict.WORTH_BYTES / MB)]],
}
"""By code, as docs/reference/verdicts.md has them in the conditions of its rows."""


def test_the_page_has_these_figures() -> None:
    """Of each rule of each allocator; a row without any refers to another one."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "verdicts.md").read_text()
    rows = re.findall(r"^\| `[\w-]+` \| `([\w-]+)`[^|]* \| (.+?) \|", page, re.M)
    figures = [(code, re.findall(r"\d+ (?:%|[MG]iB)|\bhalf\b|\ba (?:third|quarter|fifth|tenth)\b|\btwice\b", condition)) for code, condition in rows]
    assert not [(code, found) for code, found in figures if found and found not in FIGURES.get(code, ())]
    assert {code for code, found in figures if found} == set(FIGURES)
