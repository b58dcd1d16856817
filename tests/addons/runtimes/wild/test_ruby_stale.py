"""Words that Ruby leaves behind own nothing: each owner has what the program counts for it.

Files: kernel/blocks/stale.h, addons/runtimes/ruby/objects.py, addons/runtimes/ruby/__init__.py.
"""

from typing import Any, Dict

import pytest

from tests.support.gcores import gcore
from tests.support.interpreters import releases, started
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # an interpreter that may not be here

NEAR = 0.02
PROGRAM = r"""
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
    process = started(stage, ruby, PROGRAM)
    sizes = truth(process)
    target = ["--pid", str(process.pid)] if kind == "live" else ["--core", str(gcore(process))]
    data: Any = heapx(target, "owners", "--limit", "60", "--json").data
    found = {row["owner"]: row["retained_bytes"] for row in data["owners"]}
    both = {name: (size, found.get(name, 0)) for name, size in sizes.items()}
    assert {name: pair for name, pair in both.items() if abs(pair[1] - pair[0]) > NEAR * pair[0]} == {}
