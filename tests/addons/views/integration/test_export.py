"""`export`: each format is read back by what reads it, and its sums are those of `arenas`, `chunks` and `census`.

`export --format perfetto`: Perfetto's own messages read the graph back, with its objects, bytes, references and roots.
"""

import csv
import math
import re
import stat
from array import array
from pathlib import Path
from typing import Any, Dict, List, Set, Tuple

import pytest

from gdbheapx.addons.views import export as perfetto
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import find
from gdbheapx.analysis.reachability import dominance
from gdbheapx.inferior import target as elf_target
from tests.support import hostile, profiles, traces
from tests.support.jemallocs import contents, start
from tests.support.processes import Lasting, Stage, by_turns
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

READS = pytest.mark.once  # no image has Perfetto's messages, nor a network to fetch them


def exported(target: Any, file: Path, *words: str) -> traces.Trace:
    """The trace of a target."""
    outcome = heapx(target, "export", "--format", "perfetto", "-o", str(file), *words)
    assert outcome.code == 0 and not outcome.stdout and stat.S_IMODE(file.stat().st_mode) == 0o600, outcome.stderr
    return traces.read(file)


def reached(trace: traces.Trace) -> Set[int]:
    """Ids of what the roots lead to."""
    found: Set[int] = set()
    left: List[int] = list(trace.roots)
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += [target for _, target in trace.objects[one][2]]
    return found


@by_turns("way", ["glibc", "jemalloc"])
@READS
def test_blocks_bytes_and_roots(lasting: Lasting, kind: str, way: str, tmp_path: Path) -> None:
    """Every block of the census once, with its bytes and signature; every reference leads to an object; what is leaked nothing leads to."""
    target = lasting.of(kind, contents, way).target(kind)
    census = heapx(target, "census", "--json").data
    leaked = heapx(target, "leaks", "--no-weak", "--json").data["classes"]["leaked"]
    trace = exported(target, tmp_path / "made.pftrace")
    blocks = {id_: one for id_, one in trace.objects.items() if one[1]}
    assert sum(one[1] for one in blocks.values()) == census["used"]["bytes"]
    assert len(blocks) <= census["used"]["blocks"]
    named: Any = {}
    for (name, _), size, _ in blocks.values():
        named[name] = named.get(name, 0) + size
    for row in census["rows"]:
        if row["signature"]:
            expected = sum(one["bytes"] for one in census["rows"] if one["signature"] == row["signature"])
            assert named[row["signature"]] == expected
    targets = {target for one in trace.objects.values() for _, target in one[2]}
    assert targets <= set(trace.objects) and {"ROOT_STICKY_CLASS", "ROOT_NATIVE_STACK"} <= set(trace.roots.values())
    there = reached(trace)
    lost = sum(one[1] for id_, one in blocks.items() if id_ not in there)
    assert abs(lost - leaked["bytes"]) <= leaked["bytes"] // 10 + 4096
    assert [one[1:] for one in trace.packets] == [(number, number < len(trace.packets) - 1) for number in range(len(trace.packets))]


@READS
def test_it_is_the_graph(lasting: Lasting, core: str, tmp_path: Path) -> None:
    """Nodes, bytes and references, each with its offset, are those of the kernel's graph of the same core."""
    target = lasting.of(core, contents, "glibc").target(core)
    trace = exported(target, tmp_path / "made.pftrace")
    session = Session(elf_target.open_elf_target(core=target[target.index("--core") + 1]))
    told = find.label_blocks(session, lambda graph: None, is_cut=True, contents=True)
    tallied = dominance.tally_owners(session, told.reach, told.called)
    graph, blocks = tallied.graph, told.reach.numbers.blocks
    addresses, sizes = graph.columns(array("I", range(blocks)))
    assert len(trace.objects) == graph.nodes
    assert sum(len(one[2]) for one in trace.objects.values()) == graph.numbers().edges
    assert len(trace.roots) == graph.nodes - told.reach.roots_from
    for node in range(blocks):
        expected = [("+0x%x" % (8 * edge.slot), addresses[edge.node]) for edge in graph.edges(node) if edge.node < blocks]
        found = trace.objects[addresses[node]]
        assert found[1] == sizes[node] and [edge for edge in found[2] if edge[1] in trace.objects and edge in expected] == expected
    assert list(graph.each_edges(0, graph.nodes)) == [
        [(edge.node, edge.slot) for edge in graph.edges(node)] or () for node in range(graph.nodes)
    ]


@by_turns("way", ["glibc", "jemalloc"], "core")
@READS
def test_owners_stand_for_their_blocks(lasting: Lasting, kind: str, way: str, tmp_path: Path) -> None:
    """The same bytes in fewer objects, all of which the roots lead to."""
    target = lasting.of(kind, contents, way).target(kind)
    trace = exported(target, tmp_path / "made.pftrace", "--of", "owners")
    assert sum(one[1] for one in trace.objects.values()) == heapx(target, "census", "--json").data["used"]["bytes"]
    assert reached(trace) == set(trace.objects) and len(trace.objects) < 1000
    assert any(one[0][0].startswith("placed") for id_, one in trace.objects.items() if id_ in trace.roots)


def test_too_many_objects_are_gathered(lasting: Lasting, core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit owners stand for their blocks, and a note says so; the answer is whole."""
    target = lasting.of(core, contents, "glibc").target(core)
    session = Session(elf_target.open_elf_target(core=target[target.index("--core") + 1]))
    monkeypatch.setattr(perfetto, "MOST_OBJECTS", 100)
    found = list(perfetto.find_objects(session, False))
    assert [problem.code for problem in session.problems] == ["objects-gathered"] and not session.partial
    assert sum(one.size_bytes for one in found) == heapx(target, "census", "--json").data["used"]["bytes"]


@by_turns("name", hostile.OF_THREADS)
@READS
def test_hostile_names_stay_names(stage: Stage, kind: str, name: str, tmp_path: Path) -> None:
    """Of a thread, and of the program's file: one line of UTF-8 each."""
    process = hostile.start(stage, tmp_path / "record", name)
    for words in ((), ("--of", "owners")):
        trace = exported(process.target(kind), tmp_path / "made.pftrace", *words)
        texts = [text for one in trace.objects.values() for text in (*one[0], *(field for field, _ in one[2]))]
        assert all(text.isprintable() for text in [*texts, *trace.commands]) and any("thread" in text for text in texts)


@READS
def test_a_snapshot_has_the_same_objects(lasting: Lasting, core: str, tmp_path: Path) -> None:
    """With the same classes, bytes and references as the core that it was taken of."""
    target, file = lasting.of(core, contents, "glibc").target(core), str(tmp_path / "one.snap")
    assert heapx(target, "snapshot", file).code == 0
    told = []
    for number, one in enumerate((target, ["--snapshot", file])):
        trace = exported(one, tmp_path / ("made%d" % number))
        rows = [
            ([re.sub("0x[0-9a-f]{9,}", "", text) for text in name], size, sorted(field for field, _ in edges))
            for name, size, edges in trace.objects.values()
        ]
        told.append((sorted(map(str, rows)), sorted(trace.roots.values())))
    for one, other in zip(*told):
        assert one == other
