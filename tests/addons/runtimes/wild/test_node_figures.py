"""What `census` and `report` say of node's memory, held against `process.memoryUsage()` and `v8.getHeapStatistics()`.

Files: addons/runtimes/v8/__init__.py, analysis/inside.py.
"""

import json
import shutil

import pytest

from tests.support.gcores import gcore
from tests.support.processes import Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # node may not be here
PROGRAM = """
const v8 = require('v8'), kept = globalThis.kept = [];
for (let i = 0; i < 1500; i++) kept.push(Buffer.allocUnsafeSlow(20000 + i).fill(i & 255));
for (let i = 0; i < 3000; i++) kept.push(new Uint8Array(100 + i % 50).fill(7));
for (let i = 0; i < 300; i++) kept.push(new ArrayBuffer(4096 * (1 + i % 3)));
for (let i = 0; i < 2000; i++) kept.push(Buffer.from('small ' + i));
gc(); gc();
setTimeout(() => {
  const said = {usage: process.memoryUsage(), heap: v8.getHeapStatistics()};
  require('fs').writeFileSync('said', JSON.stringify(said)); console.log('ready'); require('fs').readSync(0, Buffer.alloc(1));
}, 200);
"""
LEAST, MOST = 0.99, 1.04
"""Of what node says: without the first one's rounding; with strings of C++, which look the same."""


@pytest.mark.parametrize("kind", ["live", "core"])
def test_buffers_and_heap(stage: Stage, kind: str) -> None:
    """Buffers of every size, as many bytes as arrayBuffers; of the heap in RAM what is between used and physical."""
    program, folder = shutil.which("node") or pytest.skip("node is not installed"), stage.folder()
    (folder / "main.js").write_text(PROGRAM)
    process = stage.spawn_ready([str(program), "--expose-gc", "main.js"], folder)
    said = json.loads((folder / "said").read_text())
    target = process.target("live") if kind == "live" else ["--core", str(gcore(process))]
    rows = heapx(target, "census", "--json").data["rows"]
    buffers = sum(row["bytes"] for row in rows if (row["signature"] or "").startswith("buffer or string"))
    assert LEAST * said["usage"]["arrayBuffers"] <= buffers <= MOST * said["usage"]["arrayBuffers"]
    split = heapx(target, "report", "--json").data["split"]
    found = sum(part["resident_bytes"] or part["dumped_bytes"] or 0 for part in split if part["program"] == "V8")
    assert said["heap"]["used_heap_size"] <= found <= 1.02 * said["heap"]["total_physical_size"]


KEPT = """
function make() { const kept = []; return { add: n => kept.push(Buffer.allocUnsafeSlow(20000).fill(n & 255)), size: () => kept.length }; }
const service = make();
for (let n = 0; n < 2000; n++) service.add(n);
console.log("ready");
setInterval(() => service.size(), 100000);
"""


def test_who_holds_buffers(stage: Stage, kind: str) -> None:
    """Each Buffer is held by its JavaScript object alone, which a closure's variable leads to: the runtime's lists own nothing."""
    process = stage.spawn_ready([shutil.which("node") or pytest.skip("node is not installed"), "-e", KEPT])
    first = heapx(process.target(kind), "owners", "--json").data["owners"][0]
    assert first["kind"] == "field" and first["owner"].startswith("ArrayBuffer of kept[]")
    assert first["retained_bytes"] >= 0.9 * 2000 * 20000
