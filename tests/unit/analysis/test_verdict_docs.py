"""docs/verdicts.md names each verdict with each of its codes, and everything that one may lack, in the words that are said; and no other.

Files: findings.py, glibc/messages/verdict.py, jemalloc/messages/verdict.py, verdict.py.
"""

import ast
import inspect
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

import pytest

from gdbheapx import findings as codes
from gdbheapx import verdict
from gdbheapx.allocators import huge_pages
from gdbheapx.analysis import inside, memory_verdict, overview
from gdbheapx.analysis.memory import kinds
from gdbheapx.glibc.messages import verdict as glibc_verdict
from gdbheapx.inferior.base import HugePages
from gdbheapx.jemalloc.messages import verdict as jemalloc_verdict
from gdbheapx.kernel.blocks.graph import Sum
from tests.support.builders.records import MB, UNPREFIXED, part, split

PAGE = Path(__file__).parents[3] / "docs/reference/verdicts.md"
Pairs = Set[Tuple[str, str]]
SECTIONS = ("glibc", "jemalloc", "Any other allocator", "The memory as a whole")


def tables(section: str, first: str) -> Iterator[Dict[str, str]]:
    """Rows of the section's table whose first column has that name."""
    header: List[str] = []
    for line in re.split(r"^## ", PAGE.read_text(), flags=re.M):
        if not line.startswith(section):
            continue
        for row in line.splitlines():
            cells = [cell.strip() for cell in row.strip("|").split("|")] if row.startswith("|") else []
            if not cells or cells[0] == first or cells[0] in ("verdict", "figure"):
                header = cells
            elif header and header[0] == first and not cells[0].startswith("---"):
                assert len(cells) == len(header), row
                yield dict(zip(header, cells))


def quoted(cell: str) -> List[str]:
    """What stands in a code font."""
    return re.findall(r"`([^`]+)`", cell)


def documented(section: str) -> Pairs:
    return {(kind, code) for row in tables(section, "verdict") for kind in quoted(row["verdict"]) for code in quoted(row["code"])}


def given_back(kind: verdict.Verdict) -> Iterator[verdict.Verdict]:
    """The verdict on what was given back, for each cause."""
    for facts, huge in ((None, 60 * MB), (HugePages("never", True, 60 * MB), 0), (HugePages("never", True, 0), 0)):
        yield huge_pages.verdict(huge_pages.judge(huge_pages.Returned("malloc", None, 60 * MB, huge, "", None), facts), 60 * MB, 100 * MB, kind)


def of_glibc() -> Iterator[verdict.Verdict]:
    sums = glibc_verdict.Figures(100 * MB, 50 * MB, 0, 50 * MB, 0, 0, 0, 40 * MB, None, 0, 0, 2, 2, None, between_bytes=10 * MB)

    def on(**fields: Any) -> verdict.Verdict:
        return glibc_verdict.verdict_on(sums._replace(**fields))

    small = on(system_bytes=MB // 2, used_bytes=0, free_bytes=0)
    yield from (small, glibc_verdict.with_abort(small), on(), on(used_bytes=90 * MB, free_bytes=10 * MB), on(used_bytes=70 * MB, free_bytes=30 * MB))
    yield from (on(between_bytes=35 * MB), on(left_arenas=1, left_bytes=50 * MB), on(unmerged_bytes=50 * MB), on(unparsed_bytes=50 * MB), *given_back(on()))
    filled = huge_pages.Blockless("malloc", 60 * MB, 60 * MB, 100 * MB, "", [])
    yield glibc_verdict.verdict_on(sums, huge_pages.judge_blockless(filled, None), filled)


def of_jemalloc() -> Iterator[verdict.Verdict]:
    def on(**fields: Any) -> verdict.Verdict:
        return jemalloc_verdict.judge(jemalloc_verdict.Figures(0, 0, 0, 0, 0, 0, 0, 0, None)._replace(**fields), [], UNPREFIXED)

    yield from (on(), on(is_known=False), on(used_bytes=90 * MB), on(used_bytes=50 * MB, dirty_bytes=50 * MB), on(used_bytes=70 * MB, dirty_bytes=30 * MB))
    yield from (on(used_bytes=50 * MB, free_regions_bytes=50 * MB), on(used_bytes=50 * MB, dirty_bytes=None), *given_back(on(used_bytes=90 * MB)))


def of_any() -> Iterator[verdict.Verdict]:
    yield from (verdict.usual(100 * MB, used * MB, taken) for used in (90, 60, 40) for taken in (MB // 2, 100 * MB, 50 * MB))


def of_memory() -> Iterator[verdict.Verdict]:
    for kind in [*memory_verdict._WHAT, kinds.RUNTIME]:
        large = memory_verdict.judge(split([part(kind, 90 * MB, program="JVM" if kind == kinds.RUNTIME else None)]))
        assert large is not None
        yield large.verdict
    yield inside.with_leaked(verdict.usual(100 * MB, 90 * MB, 100 * MB), inside.Inside(Sum(9, 90 * MB), Sum(3, 9 * MB), None, ()))
    lost = memory_verdict.judge(split([part(kinds.ANONYMOUS, 90 * MB)]), None)
    assert lost is not None
    yield lost.verdict


def said_in(function: Any) -> Pairs:
    """Codes that a function's Findings have, of verdicts that there are none."""
    names = {node.attr for node in ast.walk(ast.parse(inspect.getsource(function).lstrip())) if isinstance(node, ast.Attribute)}
    return {(verdict.INCONCLUSIVE, value) for name, value in vars(codes).items() if name in names and isinstance(value, str)}


@pytest.mark.parametrize("section, made", list(zip(SECTIONS, (of_glibc, of_jemalloc, of_any, of_memory))), ids=SECTIONS)
def test_each_verdict_stands_there(section: str, made: Any) -> None:
    """With its code, and nothing that no figures lead to."""
    found: Pairs = {(one.kind, str(one.code)) for one in made()}
    if made is of_memory:
        found |= said_in(overview._verdict) & {(verdict.INCONCLUSIVE, codes.NO_ALLOCATOR)} | said_in(overview._unread)
    assert found == documented(section)


def test_no_verdict_is_left_out() -> None:
    """All kinds that there are, and all codes of verdicts: those that findings.py has under that heading."""
    pairs = {pair for section in SECTIONS for pair in documented(section)}
    assert {kind for kind, _ in pairs} == set(verdict.KINDS) - {verdict.GROWING}
    block = inspect.getsource(codes).partition("# ---- verdicts on an allocator")[2].partition("# ---- findings")[0]
    named = {value for name, value in vars(codes).items() if re.search(r"^%s = " % name, block, re.M)}
    assert {code for _, code in pairs if not code.startswith(codes.MOSTLY)} == named | {codes.GIVEN_BACK_IN_RAM}


def lacking(module: Any) -> Set[str]:
    """What its verdicts may say that they lack: names in lists of `told`, and what is added to `missing`."""
    found: Set[str] = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        value: Optional[ast.AST] = None
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("told", "missing"):
            value = node.value
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "append" and getattr(getattr(node.func, "value", None), "id", "") == "missing":
            value = node
        found |= {one.value for one in ast.walk(value) if isinstance(one, ast.Constant) and isinstance(one.value, str)} if value is not None else set()
    return found


@pytest.mark.parametrize("section, module", list(zip(SECTIONS, (glibc_verdict, jemalloc_verdict, verdict))), ids=SECTIONS[:3])
def test_what_a_verdict_lacks_stands_there(section: str, module: Any) -> None:
    """In the words of its sentence, with what follows."""
    rows = list(tables(section, "figure"))
    assert all(row["then"] for row in rows)
    found = lacking(module) | ({"which blocks are in RAM"} if module is verdict else set())
    assert {word for row in rows for word in quoted(row["called"])} == found


def test_each_verdict_says_what_would_change_it() -> None:
    """Also those of allocators whose tables are held by nothing else."""
    rows = [row for section in (*SECTIONS, "tcmalloc", "musl") for row in tables(section, "verdict")]
    assert len(rows) > 30 and not [row for row in rows if not row["what would change it"]]
