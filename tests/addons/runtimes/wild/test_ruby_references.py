"""References between Ruby's objects, and words that Ruby leaves behind, which own nothing.

Files: addons/runtimes/ruby/__init__.py, addons/runtimes/ruby/objects.py, kernel/blocks/stale.h.
"""

import json
import random
import shutil
from collections import Counter
from typing import Any, Dict, Set, Tuple

import pytest

from gdbheapx.analysis.census.block import make_named_graph as made_graph
from gdbheapx.analysis.reachability.paths import NamedGraph
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.kernel.blocks.graph import UNOWNING
from gdbheapx.session import Session
from tests.support.gcores import gcore
from tests.support.interpreters import releases, started
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # an interpreter that may not be here

SAMPLES, MOST_STEPS = 3000, 6
VALUES = ("HASH", "ARRAY", "OBJECT", "STRUCT", "STRING")
"""Types whose words all are told; classes and what the interpreter has for itself (iseq, imemo) own by rules of their own."""
PROGRAM = r"""
require 'objspace'
require 'json'
require 'webrick'
Pair = Struct.new(:a, :b, :c, :d, :e)
class Item
  def initialize(i); @name, @tags, @attrs = "item name number %d with long text" % i, ["t#{i}", [i.to_s * 3]], {a: "v#{i}", "k#{i}" => ["x#{i}"]}; @pair = Pair.new("p#{i}", nil, [i.to_s], {1 => "one"}); end
end
class Wide
  def initialize(i); @a, @b, @c, @d, @e, @f, @g = i.to_s, [i], {i => i.to_s}, "d#{i}", nil, "f#{i}" * 20, i; end
end
CACHE = {}
5000.times { |i| CACHE["u:#{i}"] = i.odd? ? Item.new(i) : Wide.new(i) }
1000.times { |i| CACHE.delete("u:#{i * 3}"); CACHE["more#{i}"] = {one: "1", two: i.to_s} }
GC.start; 1000.times { |i| CACHE["u:#{i}"] ||= {i => [i.to_s] * (i % 7)} }
GC.start; GC.disable
File.open(ARGV[0] + "/dump", "w") { |file| ObjectSpace.dump_all(output: file) }
puts "ready"; STDOUT.flush; STDIN.read
"""


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
    assert graph.paths is not None
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
STALE_PROGRAM = r"""
require 'objspace'
COUNT = 4000
def text(name, i) = "#{name} #{i} " + "x" * 900
# pairs: new small hashes lie where full ones were, whose values are kept elsewhere
PAIRS = Array.new(8 * COUNT) { |i| text("pair", i) }
full = Array.new(COUNT) { |i| (0...8).to_h { |at| [at, PAIRS[8 * i + at]] } }
3.times { GC.start }
full = nil
3.times { GC.start }
SMALL = Array.new(COUNT) { |i| {1 => text("small", i), 2 => nil} }
# arrays: what was popped is kept elsewhere, and so is what stood in the slots of new ones
POPPED = []
ARRAYS = Array.new(COUNT) { |i| (0...40).map { |at| at < 10 ? text("popped", i) : nil }.reverse }
ARRAYS.each { |array| 10.times { POPPED << array.pop }; array[0] = text("array", array.size) }
SHORT = Array.new(COUNT) { |i| [text("short", 1), text("short", 2), text("short", 3)] }
TAKEN = []
SHORT.each { |array| 2.times { TAKEN << array.pop } }
# tables: deleted entries
DELETED = []
TABLES = Array.new(COUNT / 10) { |i| (0...60).to_h { |at| ["key #{at}", text("table", at)] } }
TABLES.each { |table| 30.times { |at| DELETED << table.delete("key #{2 * at}") } }
3.times { GC.start }
def bytes(seen, o)
  return 0 unless Array === o || Hash === o || String === o
  return 0 if seen[o]
  seen[o] = true
  below = Array === o ? o : Hash === o ? o.keys + o.values : []
  ObjectSpace.memsize_of(o) + below.sum { |one| bytes(seen, one) }
end
names = %w[PAIRS SMALL POPPED ARRAYS SHORT TAKEN DELETED TABLES]
Thread.new do  # nothing of this stays on a stack
  seen = {}.compare_by_identity
  File.write(ARGV[0] + "/truth", names.map { |name| "#{name} #{bytes(seen, Object.const_get(name))}" }.join("\n"))
end.join
3.times { GC.start }
puts "ready"
STDOUT.flush
STDIN.read
"""


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
