"""`export --format perfetto`: Perfetto's own messages read the graph back, with its objects, bytes, references and roots."""

import re
import stat
from array import array
from pathlib import Path
from typing import Any, List, Set

import pytest

from gdbheapx.addons.views import export as perfetto
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import find
from gdbheapx.analysis.reachability import dominance
from gdbheapx.inferior import target as elf_target
from tests.support import hostile, traces
from tests.support.jemallocs import contents
from tests.support.processes import Lasting, Stage, by_turns
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # what its libc has in use
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
