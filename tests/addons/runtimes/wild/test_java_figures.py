"""What `report` says of a JVM's memory, held against `jcmd`: its heap, metaspace, code, stacks, and what malloc has by NMT's tags.

Files: analysis/memory/kinds.py.
"""

import re
import shutil
import subprocess
from typing import Dict

import pytest

from tests.support.javas import JAVA
from tests.support.processes import Process, Stage
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
    if not shutil.which("java") or not shutil.which("jcmd"):
        pytest.skip("java and jcmd are not installed")
    folder = stage.folder()
    (folder / "Big.java").write_text(JAVA)
    process = stage.spawn_ready(["java", "-Xmx200m", "-XX:NativeMemoryTracking=" + tracking, "Big.java"], folder)
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
