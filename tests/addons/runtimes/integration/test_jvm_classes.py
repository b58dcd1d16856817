"""Classes, fields and used parts of real JVMs: Unsafe says where fields are, jcmd how much is used, and objects fill each part to its end.

Files: addons/runtimes/jvm/java_heap.py, addons/runtimes/jvm/java_classes.py.
"""

import os
import re
import shutil
import signal
import struct
import subprocess
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import pytest

from gdbheapx.addons.runtimes.jvm.java_classes import MIRROR, STACK_CHUNK, JavaClass, list_fields, read_java_classes
from gdbheapx.addons.runtimes.jvm.java_heap import JavaShape, VmTables, find_java_heap, read_java_shape, read_vm_tables
from gdbheapx.inferior.live.source import LiveSource
from gdbheapx.inferior.source import CoreSource
from gdbheapx.inferior.target import ElfTarget
from tests.support.javas import find_jdks
from tests.support.processes import Process, Stage

pytestmark = pytest.mark.once  # a JVM that is installed here; the offsets are its own

PROGRAM = (Path(__file__).parents[1] / "programs" / "Offsets.java").read_text()
OPTIONS = {
    "G1": ["-XX:+UseG1GC"],
    "Serial": ["-XX:+UseSerialGC"],
    "Parallel": ["-XX:+UseParallelGC"],
    "wide": ["-XX:+UseSerialGC", "-XX:-UseCompressedOops"],
    "compact": ["-XX:+UseG1GC", "-XX:+UseCompactObjectHeaders"],
}
CASES = [pytest.param(home, name, id="%s-%s" % (Path(home).name, name)) for home in find_jdks() for name in OPTIONS]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program's classes."""
    javac, folder = shutil.which("javac"), tmp_path_factory.mktemp("offsets")
    if javac is None:
        pytest.skip("javac is not installed")
    (folder / "Offsets.java").write_text(PROGRAM)
    subprocess.run([javac, "-nowarn", "--release", "11", "Offsets.java"], cwd=folder, check=True, capture_output=True)
    return folder


def start_offsets(stage: Stage, compiled: Path, home: str, name: str) -> Process:
    """Start the program; skips where this JVM cannot."""
    words = ["-Xms96m", "-Xmx96m", *OPTIONS[name], "-cp", str(compiled), "Offsets"]
    folder = stage.folder()
    process = stage.spawn([home + "/bin/java", *words, str(folder / "record")], folder)
    try:
        process.wait_ready()
    except AssertionError as ended:
        if "Unrecognized VM option" in str(ended):
            pytest.skip("this release has no compact headers")
        raise
    return process


def read_tables(target: ElfTarget) -> VmTables:
    """Read the tables, which must be there."""
    tables = read_vm_tables(target)
    assert tables is not None
    return tables


def check_fields(tables: VmTables, classes: Sequence[JavaClass], record: Path) -> None:
    """Each field that Unsafe has an offset for has it here."""
    offsets: Dict[Tuple[str, str, bool], List[int]] = {}
    for row in classes:
        for field in list_fields(tables, row.klass):
            offsets.setdefault((row.name, field.name, field.is_static), []).append(field.offset)
    lines = [line.split() for line in record.read_text().splitlines()]
    assert len(lines) > 500
    assert [line for line in lines if int(line[2]) not in offsets.get((line[0], line[1], line[3] == "true"), [])] == []


def count_objects(data: bytes, shape: JavaShape, classes: Dict[int, JavaClass], counts: Dict[str, int]) -> int:
    """Count the objects of a part by class, and return how many bytes they fill, by klass.hpp, arrayKlass.hpp, instanceMirrorKlass.hpp."""
    at, end = 0, len(data)
    data += bytes(16)  # with compact headers an object may have 8 bytes
    while at < end:
        word = struct.unpack_from("<Q", data, at + shape.class_offset)[0]
        key = word >> shape.mark_class_shift if shape.class_bytes == 0 else word & (1 << 8 * shape.class_bytes) - 1
        row = classes.get(key)
        if row is None or row.kind == STACK_CHUNK:
            return at
        if row.kind == MIRROR:
            size_bytes = 8 * struct.unpack_from("<I", data, at + (shape.mirror_size_offset or 0))[0]
        elif row.layout_helper > 0:
            size_bytes = row.layout_helper & ~7
        else:
            length = struct.unpack_from("<I", data, at + shape.array_length_offset)[0]
            size_bytes = (row.layout_helper >> 16 & 255) + (length << (row.layout_helper & 63))
        counts[row.name] = counts.get(row.name, 0) + 1
        at += -(-size_bytes // shape.alignment_bytes) * shape.alignment_bytes
    return at


def check_parts(tables: VmTables, classes: Sequence[JavaClass]) -> None:
    """Objects of known classes fill each used part to its end, and the program's are among them."""
    shape, heap = read_java_shape(tables), find_java_heap(tables)
    assert heap is not None and heap.problems == [] and heap.is_collecting is False
    counts: Dict[str, int] = {}
    keys = {row.key: row for row in classes if row.key is not None}
    filled = [count_objects(tables.read_prefix(low, high - low), shape, keys, counts) for low, high in heap.used_parts]
    assert filled == [high - low for low, high in heap.used_parts]
    assert counts["int[][]"] >= 2000 and counts["int[]"] >= 4000 and counts["long[]"] >= 2001


@pytest.mark.parametrize("home, name", CASES)
def test_a_process_is_what_unsafe_and_jcmd_say(stage: Stage, compiled: Path, home: str, name: str) -> None:
    """Fields by Unsafe, used bytes by jcmd, and parts that are objects from begin to end."""
    process = start_offsets(stage, compiled, home, name)
    jcmd = shutil.which("jcmd", path=home + "/bin") or shutil.which("jcmd")
    if jcmd is None:
        pytest.skip("jcmd is not installed")
    answer = subprocess.run([jcmd, str(process.pid), "GC.heap_info"], check=True, capture_output=True, text=True).stdout
    os.kill(process.pid, signal.SIGSTOP)
    tables = read_tables(ElfTarget(LiveSource(process.pid), ()))
    classes, heap = read_java_classes(tables), find_java_heap(tables)
    check_fields(tables, classes, process.record_path)
    check_parts(tables, classes)
    used = [int(number) for number in re.findall(r"total.* used (\d+)K", answer)]
    uncounted = 1024 if tables.major < 12 and name == "G1" else 0  # JDK 11 leaves out the region that threads allocate from
    assert (
        heap is not None
        and 0 <= sum(end - start for start, end in [*heap.used_parts, *heap.buffers]) // 1024 - sum(used) <= len(used) + uncounted
    )


@pytest.mark.parametrize("home", find_jdks())
def test_a_core_has_all_that_is_read(stage: Stage, compiled: Path, home: str) -> None:
    """Classes, fields and parts are read from a core the kernel wrote."""
    process = start_offsets(stage, compiled, home, "G1")
    tables = read_tables(ElfTarget(CoreSource(str(process.core())), ()))
    classes = read_java_classes(tables)
    check_fields(tables, classes, process.record_path)
    check_parts(tables, classes)
