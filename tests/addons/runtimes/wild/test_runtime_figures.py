"""What `report` and `census` say of a JVM's and of node's memory, held against `jcmd`, `process.memoryUsage()` and `v8.getHeapStatistics()`.

Files: analysis/memory/kinds.py, addons/runtimes/v8/__init__.py, analysis/inside.py.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Dict

import pytest

from tests.support.gcores import gcore
from tests.support.javas import JAVA
from tests.support.processes import Process, Stage
from tests.support.programs import need
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # a JVM and its jcmd may not be here

KIB = 1024
SLACK_BYTES = 512 * KIB
"""Between two questions; and a thread of jcmd's own."""


def jcmd(process: Process, *words: str) -> str:
    """What it answers."""
    return subprocess.run(["jcmd", str(process.pid), *words], check=True, capture_output=True, text=True).stdout


def parts(process: Process) -> Dict[str, int]:
    """Bytes in RAM by what `report` calls them."""
    split = heapx(process.target("live"), "report", "--json").data["split"]
    return {part["name"]: part["resident_bytes"] for part in split if part["resident_bytes"] is not None}


def only(found: Dict[str, int], word: str) -> int:
    (bytes_,) = [value for name, value in found.items() if word in name]
    return bytes_


@pytest.mark.parametrize("tracking", ["summary", "off"])
def test_parts_are_what_jcmd_says(stage: Stage, tracking: str) -> None:
    """In RAM is no less than what is used, and no more than what is committed."""
    need("jcmd")
    process = stage.spawn_text("Big.java", JAVA, ["java", "-Xmx200m", "-XX:NativeMemoryTracking=" + tracking, "Big.java"])
    said = jcmd(process, "GC.heap_info")
    found = parts(process)
    heap_total, heap_used = (KIB * int(number) for number in re.search(r"heap +total (\d+)K, used (\d+)K", said).groups())  # type: ignore[union-attr]
    meta_used, meta_committed = (KIB * int(number) for number in re.search(r"Metaspace +used (\d+)K, committed (\d+)K", said).groups())  # type: ignore[union-attr]
    assert heap_used - SLACK_BYTES <= only(found, "Java heap") <= heap_total
    assert 0.9 * meta_used <= only(found, "metaspace") <= meta_committed + SLACK_BYTES
    if tracking == "off":
        return
    told = jcmd(process, "VM.native_memory", "summary", "scale=b")
    code = int(re.search(r"Code \(.*\n.*\n +\(mmap: reserved=\d+, committed=(\d+)", told).group(1))  # type: ignore[union-attr]
    stacks = int(re.search(r"\(stack: reserved=\d+, committed=(\d+)\)", told).group(1))  # type: ignore[union-attr]
    collector = int(re.search(r"GC \(.*\n.*\n +\(mmap: reserved=\d+, committed=(\d+)", told).group(1))  # type: ignore[union-attr]
    assert 0 < only(found, "code cache") <= code
    assert abs(only(found, "thread stacks") - stacks) <= SLACK_BYTES
    assert 0 < only(found, "tables of the garbage collector") <= collector + SLACK_BYTES


PROGRAM = (Path(__file__).parents[1] / "programs" / "figures.js").read_text()
LEAST, MOST = 0.99, 1.04
"""Of what node says: without the first one's rounding; with strings of C++, which look the same."""


@pytest.mark.parametrize("kind", ["live", "core"])
def test_buffers_and_heap(stage: Stage, kind: str) -> None:
    """Buffers of every size, as many bytes as arrayBuffers; of the heap in RAM what is between used and physical."""
    process = stage.spawn_text("main.js", PROGRAM, ["node", "--expose-gc", "main.js"])
    said = json.loads((process.folder / "said").read_text())
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
