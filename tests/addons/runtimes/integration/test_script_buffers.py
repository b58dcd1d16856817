"""Which JavaScript holds node's ArrayBuffers: names, counts and bytes are those of the program, live and on a core.

Files: addons/runtimes/v8/__init__.py, addons/runtimes/v8/buffer_holders.py.
"""

import shutil
from pathlib import Path
from typing import List

import pytest

from tests.support.gcores import gcore
from tests.support.processes import Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # a program that nobody here wrote
PROGRAM = """
const cache = new Map();
class Store { constructor() { this.items = []; } }
const store = new Store();
for (let i = 0; i < 1000; i++) cache.set('key' + i, new ArrayBuffer(40000));
for (let i = 0; i < 300; i++) store.items.push(Buffer.alloc(30000));
globalThis.shared = [];
for (let i = 0; i < 100; i++) shared.push(new Float64Array(3000));
gc(); gc();
function size() { return cache.size + store.items.length; }
setTimeout(() => console.log('ready'), 200);
setInterval(size, 1e6);
"""
HELD = {
    "ArrayBuffer of cache.get() (Map) in shop.js": (1000, 40000),
    "ArrayBuffer of store.items[] (Store) in shop.js": (300, 30000),
    "ArrayBuffer of globalThis.shared[] (Array)": (100, 24000),
}


@pytest.mark.parametrize("kind", ["live", "core"])
def test_holders_of_buffers(stage: Stage, kind: str) -> None:
    """Each group has its buffers, and what malloc has for them; a block of one is held by its Map's name and key."""
    program, folder = shutil.which("node") or pytest.skip("node is not installed"), stage.folder()
    (folder / "shop.js").write_text(PROGRAM)
    process = stage.spawn_ready([str(program), "--expose-gc", "shop.js"], folder)
    target: List[str] = (
        process.target("live") if kind == "live" else ["--core", str(gcore(process)), "--exe", str(Path(str(program)).resolve())]
    )
    data = heapx(target, "owners", "--json").data
    fields = {row["field"]: row for row in data["fields"]}
    if not fields:
        pytest.skip("this node exports no v8dbg_ constants that are known")
    for name, (count, size) in HELD.items():
        assert fields[name]["blocks"] == fields[name]["objects"] == count
        assert count * size <= fields[name]["bytes"] <= count * (size + 64)
        assert fields[name]["runtime"] == "JavaScript" and fields[name]["garbage_objects"] is None
    assert fields["ArrayBuffer of cache.get() (Map) in shop.js"]["retained_bytes"] >= 0.9 * 40000 * 1000
    blocks = heapx(target, "chunks", "--min-size", "40000", "--max-size", "40064", "--limit", "3", "--json").data["chunks"]
    texts = [heapx(target, "refs", "0x%x" % (int(block["address"], 16) + 16)).stdout.decode() for block in blocks]
    assert any('<- ArrayBuffer of cache.get("key' in text for text in texts)
