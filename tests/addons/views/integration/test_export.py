"""`export`: each format is read back by what reads it, and its sums are those of `arenas`, `chunks` and `census`."""

import csv
import math
import re
import stat
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from tests.support import profiles
from tests.support.jemallocs import contents, start
from tests.support.processes import Stage, by_turns
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # what its Python writes and its libc has in use


def folded(path: Path) -> Dict[str, int]:
    """Bytes by stack."""
    rows: List[List[str]] = [line.rsplit(" ", 1) for line in path.read_text().splitlines()]
    assert len({stack for stack, _ in rows}) == len(rows), "a stack has one line"
    return {stack: int(number) for stack, number in rows}


@by_turns("way", ["glibc", "jemalloc"])
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


@by_turns("way", ["glibc", "jemalloc"], "core")
def test_pprof_has_the_same_sums(stage: Stage, kind: str, way: str, tmp_path: Path) -> None:
    """Blocks and bytes of the census, and a mapping of each location; pprof's own sum is the same."""
    target, file = contents(stage, way).target(kind), tmp_path / "made.pb.gz"
    used = heapx(target, "census", "--json").data["used"]
    for of in ("census", "owners"):
        outcome = heapx(target, "export", "--format", "pprof", "--of", of, "-o", str(file))
        assert outcome.code == 0 and stat.S_IMODE(file.stat().st_mode) == 0o600, outcome.stderr
        found = profiles.read(file)
        assert found.without_mapping == 0
        assert (sum(one.blocks for one in found.samples), sum(one.bytes for one in found.samples)) == (used["blocks"], used["bytes"])
    assert "%d total" % used["blocks"] in profiles.pprof("-top", "-sample_index=objects", str(file))
    assert "%dB total" % used["bytes"] in profiles.pprof("-top", "-unit=B", str(file))


@by_turns("way", ["glibc", "jemalloc"], "core")
def test_pprof_says_what_is_in_ram_and_what_is_kept(stage: Stage, kind: str, way: str, tmp_path: Path) -> None:
    """By owner, of a process: what of the blocks is in RAM and in swap; of a core that is unknown, and left out. The free bytes that blocks keep
    add up to those of `pins`."""
    target, file = contents(stage, way).target(kind), tmp_path / "made.pb.gz"
    assert heapx(target, "export", "--format", "pprof", "-o", str(file)).code == 0
    found = profiles.read(file)
    names = [name for name, _ in found.types]
    sums = dict(zip(names, (sum(column) for column in zip(*((one.blocks, one.bytes, *one.more) for one in found.samples)))))
    assert sums["fragmentation"] == heapx(target, "pins", "--json").data["kept_bytes"]
    assert sums["fragmentation"] > 0 or way == "jemalloc"  # whose slabs may be full: 5.3.1 fills the program's to the last region
    assert ("resident_space" in names) == ("swapped_space" in names) == target[0].startswith("--pid")
    if "resident_space" in names:
        assert sums["space"] * 0.9 < sums["resident_space"] + sums["swapped_space"] <= sums["space"]
        assert all(one.more[0] + one.more[1] <= one.bytes for one in found.samples)


def unsampled(text: str) -> Dict[Tuple[int, ...], Tuple[float, float]]:
    """Of each stack of a heap profile, as jeprof's AdjustSamples corrects it."""
    sample = int(re.match(r"heap_v2/(\d+)", text)[1])  # type: ignore[index]
    found = {}
    for stack, blocks, size in re.findall(r"^@([ 0-9a-fx]+)\n  t\*: (\d+): (\d+) ", text, re.M):
        scale = 1 / (1 - math.exp(-int(size) / int(blocks) / sample)) if int(blocks) else 1.0
        frames = tuple(int(word, 16) - 1 for word in reversed(stack.split()))
        found[frames] = (int(blocks) * scale, int(size) * scale)
    return found


def test_a_profile_is_that_of_jeprof(stage: Stage, kind: str, tmp_path: Path) -> None:
    """Stack by stack what jeprof makes of `profile`; pprof finds the functions in the program's file by its mappings and build-ids."""
    process = start(stage, "preload", "prof", "4", conf="prof:true,lg_prof_sample:12")
    target, file = process.target(kind), tmp_path / "made.pb.gz"
    expected = unsampled(heapx(target, "profile").stdout.decode())
    assert heapx(target, "export", "--format", "pprof", "--of", "profile", "-o", str(file)).code == 0
    found = profiles.read(file)
    assert found.without_mapping == 0 and found.period == 4096
    got = {tuple(int(frame, 16) for frame in one.frames): (one.blocks, one.bytes) for one in found.samples}
    assert set(got) == {stack for stack, (blocks, _) in expected.items() if blocks}
    for stack, (blocks, size) in got.items():
        assert abs(blocks - expected[stack][0]) <= 0.5 and abs(size - expected[stack][1]) <= 0.5
    name, build_id = found.mappings[1]
    assert name == str(process.executable) and re.fullmatch("[0-9a-f]{40}", build_id)
    assert "large_maker" in profiles.pprof("-top", str(file))


def test_a_snapshot_has_the_same_stacks(stage: Stage, core: str, tmp_path: Path) -> None:
    """Of the census and of owners, as the core that it was taken of."""
    target, file = contents(stage, "glibc").target(core), str(tmp_path / "one.snap")
    assert heapx(target, "snapshot", file).code == 0
    for of in ("census", "owners"):
        words = ("export", "--format", "folded", "--of", of)
        assert sorted(heapx(["--snapshot", file], *words).stdout.splitlines()) == sorted(heapx(target, *words).stdout.splitlines())
    rows = [list(csv.DictReader(heapx(one, "export", "--format", "csv", "--of", "census").stdout.decode().splitlines())) for one in (["--snapshot", file], target)]
    parts = [sorted((row["usable_bytes"], row["class"], row["signature"]) for row in some) for some in rows]
    assert parts[0] == parts[1] and {row["size_bytes"] + row["arena"] for row in rows[0]} == {""}


def rows_of(file: Path) -> List[Dict[str, str]]:
    """The rows as Python's csv reads them."""
    with open(file, newline="") as text:
        return list(csv.DictReader(text, strict=True))


@by_turns("way", ["glibc", "jemalloc"])
def test_csv_has_every_block_once(stage: Stage, kind: str, way: str, tmp_path: Path) -> None:
    """The rows are those of `chunks --json`; sums are those of `arenas`; blocks in use are those of the census."""
    target, file = contents(stage, way).target(kind), tmp_path / "made.csv"
    outcome = heapx(target, "export", "--format", "csv", "-o", str(file))
    assert outcome.code == 0 and stat.S_IMODE(file.stat().st_mode) == 0o600, outcome.stderr
    rows = rows_of(file)
    keys = ("address", "size_bytes", "usable_bytes", "status", "arena", "allocator")
    listed = heapx(target, "chunks", "--json").data["chunks"]
    expected = [tuple("" if one[key] is None else str(one[key]) for key in keys) for one in listed]
    assert sorted(tuple(row[key] for key in keys) for row in rows) == sorted(expected)
    arenas = heapx(target, "arenas", "--json").data
    used = sum(int(row["size_bytes"]) for row in rows if row["status"] == "used")
    assert used == sum(one["used_bytes"] for one in arenas["arenas"])
    inside = heapx(target, "census", "--json").data["used"]
    in_use = [row for row in rows if row["class"] == "used"]
    assert len(in_use) >= inside["blocks"] and sum(int(row["usable_bytes"]) for row in in_use) >= inside["bytes"]


@by_turns("way", ["glibc", "jemalloc"], "core")
def test_csv_of_the_census_adds_up(stage: Stage, kind: str, way: str, tmp_path: Path) -> None:
    """Blocks and bytes by signature are the rows of `census`."""
    target, file = contents(stage, way).target(kind), tmp_path / "made.csv"
    assert heapx(target, "export", "--format", "csv", "--of", "census", "-o", str(file)).code == 0
    found: Dict[str, List[int]] = {}
    for row in rows_of(file):
        assert row["class"] == "used"
        sums = found.setdefault(row["signature"], [0, 0])
        sums[0] += 1
        sums[1] += int(row["usable_bytes"])
    wanted: Dict[str, List[int]] = {}
    for one in heapx(target, "census", "--json").data["rows"]:
        sums = wanted.setdefault(one["signature"] or "", [0, 0])
        sums[0] += one["blocks"]
        sums[1] += one["bytes"]
    named = {name: sums for name, sums in wanted.items() if name}
    assert len(named) >= 5 and {name: sums for name, sums in found.items() if name} == named
