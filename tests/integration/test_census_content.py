"""How much of blocks is content, by the lengths that stand in them or beside the pointers to them: what the programs themselves count.

Files: kernel/blocks/graph_queries.py.
"""

import json
import sys
from typing import Any, Dict, List

import pytest

from tests.support.interpreters import started
from tests.support.jemallocs import preloads
from tests.support.processes import Stage, by_turns
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # depends on this C++ library and this Python

PYTHON = r"""
import json, sys
class Rows(list): pass
class Buffer(bytearray): pass
texts = ["%d " % number + sign * (number % 90) for number in range(100000) for sign in "x\u00fc\u4e2d\U0001f600"[number % 4]]
kept = [bytes(number % 3000) for number in range(20000)]
rows = []
for number in range(5000):
    rows.append(Rows())
    for item in range(number % 100):
        rows[-1].append(None)
buffers = [Buffer(b"x" * 1000) for _ in range(2000)]
for buffer in buffers:
    del buffer[600:]
with open(sys.argv[1] + "/truth", "w") as told:
    json.dump({"str": sum(map(sys.getsizeof, texts)), "bytes": sum(map(sys.getsizeof, kept)), "list items": sum(8 * len(one) for one in [*rows, rows, texts, kept, buffers]),
               "bytearray bytes": sum(len(one) + 1 for one in buffers)}, told)
print("ready", flush=True)
sys.stdin.read()
"""
RUBY = r"""
$a = Array.new(20000) { |number| "x" * (30 + number % 600) }
$b = Array.new(3000) { |number| list = []; (4 + number % 90).times { list << nil }; list }
GC.start
puts "ready"
STDOUT.flush
STDIN.read
"""


def rows_of(target: Any) -> Dict[str, Any]:
    """By name."""
    return {row["signature"]: row for row in heapx(target, "census", "--json").data["rows"] if row["signature"]}


@by_turns("way", ["glibc", "jemalloc"])
def test_strings_and_vectors(stage: Stage, way: str, kind: str) -> None:
    """Characters with their zero, and elements, are as many bytes as the program has put there, whoever has the string or vector."""
    made, folder = stage.builder.build_by("g++", "-O1", name="filled.cpp"), stage.folder()
    process = stage.spawn_ready([str(made), str(folder / "record")], env=preloads(way))
    texts, numbers = map(int, (folder / "record.told").read_text().split())
    target = process.target(kind)
    rows = rows_of(target)
    string, vector = rows["string {block, length, capacity}"], rows["vector {begin, end, capacity}"]
    # one or two blocks may have no owner but a register: they count as full
    assert 0 <= string["content_bytes"] - texts <= 1000 and 0 <= vector["content_bytes"] - numbers <= 2 * 4200
    assert string["blocks"] == 4001 and 4051 <= vector["blocks"] <= 4053  # buffers of stdio have such words, and nothing in them
    text = heapx(target, "census").stdout.decode()
    assert "vector {begin, end, capacity}: " in text and "is unused capacity" in text


def test_python(stage: Stage, kind: str) -> None:
    """What sys.getsizeof says of str, of every width of characters, and of bytes; items of lists, and bytes of bytearrays, that are in use."""
    process = started(stage, sys.executable, PYTHON)
    truth = json.loads((process.folder / "truth").read_text())
    rows = rows_of(process.target(kind))
    for name, known in truth.items():
        row = rows[name]
        # a few may have another name: a register leads to them as well
        assert known * 0.995 <= row["content_bytes"] <= known * 1.05 + 100_000 and row["content_bytes"] <= row["bytes"], name
    assert rows["bytearray bytes"]["content_bytes"] < rows["bytearray bytes"]["bytes"] * 0.65
    assert rows["dict"]["content_bytes"] is None


@pytest.mark.once  # of one release
def test_ruby(stage: Stage, kind: str) -> None:
    """Characters of Strings and elements of Arrays that are in use."""
    process = started(stage, "ruby", RUBY)
    rows = rows_of(process.target(kind))
    if "characters" not in rows:
        pytest.skip("this release of Ruby is not one that is read")
    lengths: List[int] = [30 + number % 600 + 1 for number in range(20000)]
    assert sum(lengths) <= rows["characters"]["content_bytes"] <= sum(lengths) * 1.2 + 2_000_000
    elements = 8 * (20000 + 3000 + sum(4 + number % 90 for number in range(3000)))
    assert elements <= rows["elements"]["content_bytes"] <= elements + 100_000
