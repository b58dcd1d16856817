"""References between Ruby's objects, and words that Ruby leaves behind, which own nothing.

Files: addons/runtimes/ruby/__init__.py, addons/runtimes/ruby/objects.py, kernel/blocks/stale.h.
"""

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Set, Tuple

import pytest

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census.block import make_named_graph as made_graph
from gdbheapx.analysis.reachability.paths import NamedGraph
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.kernel.blocks.graph import UNOWNING
from tests.support.gcores import gcore
from tests.support.interpreters import releases, started
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # an interpreter that may not be here

SAMPLES, MOST_STEPS = 3000, 6
VALUES = ("HASH", "ARRAY", "OBJECT", "STRUCT", "STRING")
"""Types whose words all are told; classes and what the interpreter has for itself (iseq, imemo) own by rules of their own."""
PROGRAM = (Path(__file__).parents[1] / "programs" / "references.rb").read_text()


def ways(graph: NamedGraph, node: int, objects: Set[int]) -> Tuple[Set[int], Set[int]]:
    """(objects that its words own, all that they lead to), by way of blocks that are no object."""
    owned: Set[int] = set()
    led: Set[int] = set()
    waiting, seen = [(node, 0)], {node}
    while waiting:
        at, steps = waiting.pop()
        for edge in graph.reach.graph.edges(at):
            led.add(edge.node)
            if edge.rule != UNOWNING:
                owned.add(edge.node)
                if edge.node not in objects and edge.node not in seen and steps < MOST_STEPS and edge.node < graph.reach.numbers.blocks:
                    seen.add(edge.node)
                    waiting.append((edge.node, steps + 1))
    return owned & objects, led & objects


def test_references_are_those_of_the_dump(stage: Stage) -> None:
    """Of 3,000 random objects: each reference is a pointer here; of 100 that own at most 5 lead where none does; all objects are blocks, and as many of
    each class."""
    program, folder = shutil.which("ruby") or pytest.skip("ruby is not installed"), stage.folder()
    (folder / "program.rb").write_text(PROGRAM)
    process = stage.spawn_ready([str(program), str(folder / "program.rb"), str(folder)], folder)
    rows = [json.loads(line) for line in (folder / "dump").read_text(errors="replace").splitlines()]
    said: Dict[int, Any] = {int(row["address"], 16): row for row in rows if "address" in row}
    session = Session(open_elf_target(core=str(gcore(process))))
    session.prepare()
    graph = made_graph(session)
    nodes = {address: (graph.reach.graph.find(address) or (-1,))[0] for address in said}
    assert all(0 <= node < graph.reach.numbers.blocks for node in nodes.values())
    objects = set(nodes.values())
    lacking, beyond, owning = Counter[str](), Counter[str](), 0
    for address in random.Random(1).sample([one for one, row in said.items() if row["type"] in VALUES], SAMPLES):
        row = said[address]
        owned, led = ways(graph, nodes[address], objects)
        known = {
            nodes[int(other, 16)]
            for other in [*row.get("references", ()), *([row["class"]] if "class" in row else [])]
            if int(other, 16) in nodes
        }
        lacking.update([row["type"]] * len(known - led - {nodes[address]}))
        beyond.update([row["type"]] * len(owned - known - {nodes[address]}))
        owning += len(owned)
    told = graph.paths._told  # type: ignore[attr-defined]
    counts = Counter(told.kinds[label].name for label in told.labels)
    classes = Counter(said.get(int(row.get("class", "0"), 16), {}).get("name") for row in said.values() if row["type"] != "IMEMO")
    for name in ("Item", "Wide", "Pair", "Hash", "Array", "String", "Proc", "Encoding", "MatchData"):
        assert abs(counts[name] - classes[name]) <= 4, (name, counts[name], classes[name])  # what the dump's own lines have made
    assert not lacking and owning > 0.7 * SAMPLES, (lacking, owning)
    assert sum(beyond.values()) <= 0.05 * owning, (beyond, owning)


NEAR = 0.02
STALE_PROGRAM = (Path(__file__).parents[1] / "programs" / "stale_words.rb").read_text()


def truth(process: Process) -> Dict[str, int]:
    return {name: int(size) for name, size in (line.split() for line in (process.folder / "truth").read_text().splitlines())}


@pytest.mark.parametrize("ruby", releases("ruby"))
@pytest.mark.parametrize("kind", ["live", "core"])
def test_each_has_what_is_its_own(stage: Stage, ruby: str, kind: str) -> None:
    """Retained bytes as ObjectSpace counts them; next to nothing has several owners."""
    process = started(stage, ruby, STALE_PROGRAM)
    sizes = truth(process)
    target = ["--pid", str(process.pid)] if kind == "live" else ["--core", str(gcore(process))]
    data: Any = heapx(target, "owners", "--limit", "60", "--json").data
    found = {row["owner"]: row["retained_bytes"] for row in data["owners"]}
    both = {name: (size, found.get(name, 0)) for name, size in sizes.items()}
    assert {name: pair for name, pair in both.items() if abs(pair[1] - pair[0]) > NEAR * pair[0]} == {}
