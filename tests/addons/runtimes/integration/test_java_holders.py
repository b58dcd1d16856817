"""Java objects that hold memory of malloc: by class and field, garbage apart, and lost blocks once their objects are collected."""

import re
import subprocess
from typing import Any, Dict

import pytest

from tests.support.javas import BUFFER_BYTES, BUFFERS, DROPPED_BUFFERS, DROPPED_HANDLES, HANDLE_BYTES, HANDLES, HOLDERS
from tests.support.processes import Process, Stage
from tests.support.programs import need
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # a JVM that nobody here made; its threads may be inside malloc: partial answers count, too


STALE, SPLIT_BYTES = 20, 24
"""Blocks to which words of stacks and registers still lead, or that are larger than asked for; what malloc does not split off."""
COLLECTORS = ("-XX:+UseG1GC", "-XX:+UseSerialGC", "-XX:+UseParallelGC")

def start(stage: Stage, *options: str) -> Process:
    """A JVM that has filled its lists, and waits."""
    need("javac")
    return stage.spawn_text("Holders.java", HOLDERS, ["java", "-Xms64m", "-Xmx64m", "-Xmn32m", *options, "Holders.java"])


def fields(leaks: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    """By name."""
    return {row["field"]: row for row in leaks["fields"]}


@pytest.mark.parametrize("option", COLLECTORS)
def test_garbage_is_what_nothing_frees(stage: Stage, option: str) -> None:
    """Each object counts; what a Cleaner frees is no garbage; blocks of garbage are leaked. Live and core agree."""
    process = start(stage, option)
    for kind in ("live", "core"):
        leaked = heapx(process.target(kind), "leaks", "--json").envelope["data"]
        rows = fields(leaked)
        handle, buffer = rows["Holders$Handle.address"], rows["java.nio.DirectByteBuffer.address"]
        assert (handle["objects"], handle["garbage_objects"], handle["collectable_objects"]) == (HANDLES, DROPPED_HANDLES, 0)
        assert handle["blocks"] == HANDLES
        for size, least, count in ((handle["bytes"], HANDLES, HANDLES), (handle["garbage_bytes"], DROPPED_HANDLES - STALE, DROPPED_HANDLES)):
            assert least * HANDLE_BYTES <= size <= count * HANDLE_BYTES + STALE * SPLIT_BYTES
        assert buffer["garbage_objects"] == 0
        assert BUFFERS * BUFFER_BYTES <= buffer["bytes"] <= buffer["objects"] * (BUFFER_BYTES + 4096)
        assert DROPPED_BUFFERS <= buffer["collectable_objects"] <= DROPPED_BUFFERS + buffer["objects"] - BUFFERS
        assert any(row["size_bytes"] == HANDLE_BYTES and row["blocks"] >= DROPPED_HANDLES - STALE for row in leaked["groups"])


def test_collected_objects_hold_nothing(stage: Stage) -> None:
    """Once the garbage is collected its blocks are leaked: words in free parts of the Java heap are no pointers."""
    process = start(stage)
    process.command(b"g")
    leaked = heapx(process.target("live"), "leaks", "--json").envelope["data"]
    assert fields(leaked)["Holders$Handle.address"]["objects"] == HANDLES - DROPPED_HANDLES
    assert any(row["size_bytes"] == HANDLE_BYTES and row["blocks"] >= DROPPED_HANDLES - STALE for row in leaked["groups"])


def test_a_block_has_the_path_of_its_object(stage: Stage) -> None:
    """`refs` of a block that an object holds ends at the field, and the way to the object from a static field."""
    process = start(stage)
    row = next(row for row in heapx(process.target("live"), "census", "--json").envelope["data"]["rows"] if row["signature"] == "Holders$Handle.address")
    assert row["blocks"] >= HANDLES - DROPPED_HANDLES - STALE
    chain = heapx(process.target("live"), "refs", row["sample"], "--json").envelope["data"]["chains"][0]
    assert chain[-1]["root"].startswith("Holders$Handle.address of Holders.kept.elementData[")


LOCAL = """import java.nio.*;
public class Local {
  public static void main(String[] words) throws Exception {
    Thread keeper = new Thread(() -> { ByteBuffer buffer = ByteBuffer.allocateDirect(70000);
      try { System.out.println("ready"); System.out.flush(); Thread.sleep(1000000); } catch (InterruptedException error) { } buffer.get(); }, "keeper");
    keeper.start(); keeper.join();
  }
}
"""


def test_the_path_of_an_object_of_a_stack_begins_at_its_thread(stage: Stage) -> None:
    """A local variable of a frame is the root: the thread has the name that Java gave it."""
    need("javac")
    folder = stage.folder()
    (folder / "Local.java").write_text(LOCAL)
    subprocess.run(["javac", "Local.java"], check=True, cwd=folder)
    process = stage.spawn_ready(["java", "-Xint", "-Xmx64m", "Local"], folder)
    rows = heapx(process.target("live"), "census", "--json").envelope["data"]["rows"]
    samples = [row["sample"] for row in rows if row["signature"] == "java.nio.DirectByteBuffer.address" and row["bytes"] >= 70000]
    chains = [heapx(process.target("live"), "refs", sample, "--json").envelope["data"]["chains"][0] for sample in samples]
    assert any(chain[-1]["root"].endswith(" of thread keeper") for chain in chains)


def test_report_parts_the_java_heap(stage: Stage) -> None:
    """Objects, garbage and free memory of the Java heap are rows that add up with all others."""
    process = start(stage)
    data = heapx(process.target("live"), "report", "--deep", "--json").envelope["data"]
    (table,) = [table for table in data["runtimes"] if table["name"] == "JVM"]
    assert table["sum_bytes"] == sum(row["bytes"] for row in table["rows"]) == data["memory"]["total_bytes"]
    sizes = {row["kind"]: row["bytes"] for row in table["rows"] if row["name"].startswith("JVM: Java heap")}
    assert 0 < sizes["runtime-garbage"] < 60 << 20 and 0 < sizes["runtime-used"] < 60 << 20
    owners = {row["owner"]: row for row in heapx(process.target("live"), "owners", "--json").envelope["data"]["owners"]}
    assert owners["Holders$Handle.address"]["kind"] == "field"
    kept = HANDLES - DROPPED_HANDLES
    assert (kept - STALE) * HANDLE_BYTES <= owners["Holders$Handle.address"]["retained_bytes"] <= kept * HANDLE_BYTES + STALE * SPLIT_BYTES


def test_classes_are_those_of_jcmd(stage: Stage) -> None:
    """Objects and bytes by class are those of the JVM's own histogram, but for its thread that answers and what fills buffers."""
    need("jcmd")
    process = start(stage)
    rows = heapx(process.target("live"), "census", "--json").envelope["data"]["objects"]
    said = subprocess.run(["jcmd", str(process.pid), "GC.class_histogram", "-all"], check=True, capture_output=True, text=True).stdout
    lines = re.findall(r"^ *\d+: +(\d+) +(\d+) +([\w.$/]+)(?: |$)", said, re.M)
    truth = {name: (int(objects), int(size)) for objects, size, name in lines}
    ours = {row["name"]: (row["objects"], row["bytes"]) for row in rows}
    known = truth.keys() & ours.keys()
    assert len(known) > 200 and sum(truth[name] != ours[name] for name in known) <= 12
    assert ours["Holders$Handle"] == truth["Holders$Handle"] and ours["Holders$Handle"][0] == HANDLES
    (row,) = [row for row in rows if row["name"] == "Holders$Handle"]
    assert row["garbage_objects"] == DROPPED_HANDLES
