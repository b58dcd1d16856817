"""`export`: each format is read back by what reads it, and its sums are those of `arenas`, `chunks` and `census`."""

import stat
from pathlib import Path
from typing import Dict, List

import pytest

from tests.support.jemallocs import library as jemalloc
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # what its Python writes and its libc has in use


def contents(stage: Stage, way: str) -> Process:
    """Blocks that are told by their contents and their owners."""
    return stage.start("contents", env={"LD_PRELOAD": str(jemalloc())} if way == "jemalloc" else {})


def folded(path: Path) -> Dict[str, int]:
    """Bytes by stack."""
    rows: List[List[str]] = [line.rsplit(" ", 1) for line in path.read_text().splitlines()]
    assert len({stack for stack, _ in rows}) == len(rows), "a stack has one line"
    return {stack: int(number) for stack, number in rows}


@pytest.mark.parametrize("way", ["glibc", "jemalloc"])
def test_folded_stacks_sum_up_to_what_is_in_use(stage: Stage, kind: str, way: str, tmp_path: Path) -> None:
    """Of the census and of owners: the same sum, to the byte; what a variable of the program holds stands below it."""
    process = contents(stage, way)
    target = process.target(kind)
    used = heapx(target, "census", "--json").data["used"]["bytes"]
    for of in ("census", "owners"):
        file = tmp_path / of
        outcome = heapx(target, "export", "--format", "folded", "--of", of, "-o", str(file))
        assert outcome.code == 0 and not outcome.stdout, outcome.stderr
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert sum(folded(file).values()) == used
    placed = {stack: size for stack, size in folded(tmp_path / "owners").items() if stack.startswith("placed")}
    assert sum(placed.values()) >= 2000 * 1024
    rows = folded(tmp_path / "census")
    assert any(";numbers (double)" in stack and size >= 200 * 2400 for stack, size in rows.items())


def test_a_snapshot_has_the_census_and_no_owners(stage: Stage, core: str, tmp_path: Path) -> None:
    """The same stacks of the census from a snapshot as from the core that it was taken of; owners are refused in one line."""
    target, file = contents(stage, "glibc").target(core), str(tmp_path / "one.snap")
    assert heapx(target, "snapshot", file).code == 0
    words = ("export", "--format", "folded", "--of", "census")
    assert sorted(heapx(["--snapshot", file], *words).stdout.splitlines()) == sorted(heapx(target, *words).stdout.splitlines())
    refused = heapx(["--snapshot", file], "export", "--format", "folded")
    assert refused.code == 1 and len(refused.stderr.strip().splitlines()) == 1
