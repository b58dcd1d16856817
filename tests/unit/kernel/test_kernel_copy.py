"""A copy of a process's memory, against the process itself.

Files: kernel/common/copy.py app/stopping.py
"""

import mmap
import subprocess
import sys
import time
from array import array
from typing import Any, Iterator, List, Tuple

import pytest

from gdbheapx import kernel
from gdbheapx.app.stopping import copied_ranges
from gdbheapx.common.budget import NEVER, Budget
from gdbheapx.inferior.base import Mapping
from gdbheapx.inferior.live.source import LiveSource
from gdbheapx.kernel.common import copy
from gdbheapx.kernel.common.copy import TAKES_ALL, TAKES_OWN
from tests.support import at_rest

PAGE = mmap.PAGESIZE
pytestmark = pytest.mark.usefixtures("the_c_kernel")
PROGRAM = """
import mmap, os, sys
sparse = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for page in range(0, len(sparse), 5 * 4096): sparse[page : page + 8] = page.to_bytes(8, "little")
shared = mmap.mmap(-1, 1 << 20)
shared[4096 : 4104] = b"together"
file = open(sys.argv[1], "r+b")
private = mmap.mmap(file.fileno(), 8 * 4096, mmap.MAP_PRIVATE)
private[3 * 4096 : 3 * 4096 + 3] = b"own"
reading, writing = os.pipe()
if os.fork():
    print(os.getpid(), flush=True)
    for line in sys.stdin:
        sparse[: len(sparse)] = bytes(len(sparse)); shared[4096 : 4104] = b"changed!"; private[3 * 4096 : 3 * 4096 + 3] = b"new"
        print("changed", flush=True)
else:
    os.close(writing); os.read(reading, 1)  # until the other one ends, whose lines it must not take
os._exit(0)
"""


@pytest.fixture
def process(tmp_path: object) -> Iterator["subprocess.Popen[bytes]"]:
    """One with sparse, shared, and private mapped memory, which has forked: it changes all that when told."""
    path = "%s/file" % tmp_path
    with open(path, "wb") as file:
        file.write(b"file" * (2 * PAGE))
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdout is not None
    program.stdout.readline()
    yield program
    program.kill()
    program.communicate()


def made(pid: int, until_s: float = NEVER) -> Tuple[LiveSource, List[Mapping], "copy.Copy", object]:
    """Everything of it, copied and kept."""
    source = LiveSource(pid)
    compiled = kernel.load_native_library()
    table = source.page_table()
    assert table is not None
    held = compiled.copy(table)
    ranges = copied_ranges(source.mappings(), set(), set())
    assert held.prepare(ranges) > 1 << 20
    left = held.take(ranges, compiled.open_apart(source.bulk_source()), array("d", [until_s]))
    source.keep(held, lambda: None)
    return source, list(source.mappings()), held, left


def contents(source: LiveSource, mappings: List[Mapping]) -> List[bytes]:
    """Of all that can be read."""
    return [
        source.read_prefix(mapping.start, mapping.end - mapping.start)
        for mapping in mappings
        if mapping.readable and mapping.name != "[vvar]"
    ]


def test_it_is_as_it_was(process: "subprocess.Popen[bytes]") -> None:
    """Byte for byte, through Python and through the kernel, after the process has changed all of it; and after it has ended."""
    assert process.stdin is not None and process.stdout is not None
    at_rest.wait(process.pid)
    plain = LiveSource(process.pid)
    mappings = [mapping for mapping in plain.mappings() if mapping.writable]
    before = contents(plain, mappings)
    pages = [plain.touched_ranges(mapping.start, mapping.end) for mapping in mappings]
    residency = kernel.load_native_library().residency(plain.page_table(), [(mapping.start, mapping.end) for mapping in mappings])  # type: ignore[arg-type]
    source, _, held, left = made(process.pid)
    assert left is None and held.taken.unread_bytes == 0
    process.stdin.write(b"\n")
    process.stdin.flush()
    process.stdout.readline()
    assert contents(LiveSource(process.pid), mappings) != before
    for ended in (False, True):
        if ended:
            process.kill()
            process.wait()
        assert contents(source, mappings) == before
        assert [source.touched_ranges(mapping.start, mapping.end) for mapping in mappings] == pages
        assert (
            kernel.load_native_library().residency(source.page_table(), [(mapping.start, mapping.end) for mapping in mappings]) == residency
        )  # type: ignore[arg-type]
        bounds = (
            kernel.load_native_library()
            .written(source.bulk_source(), [(one.start, one.end) for one in mappings if one.is_untouched_zero], PAGE, Budget())
            .bounds
        )
        assert len(bounds) > 2 * 3000
        assert not source.has_ended()


def test_what_files_have_is_no_zeros(process: "subprocess.Popen[bytes]") -> None:
    """Pages of mapped files are not copied: they are read where they are, also by who takes what was never touched for zeros (vtables)."""
    plain, (source, mappings, _, _) = LiveSource(process.pid), made(process.pid)
    code = [(one.start, one.end) for one in mappings if one.executable and one.is_file]

    def written(of: LiveSource) -> Any:
        return kernel.load_native_library().written(of.bulk_source()._replace(untouched_zero=tuple(code)), code, PAGE, Budget()).bounds  # type: ignore[union-attr]

    assert len(written(plain)) >= 2 and list(written(source)) == list(written(plain))


def test_what_there_was_no_time_for(process: "subprocess.Popen[bytes]") -> None:
    """It cannot be read, and is not zeros; the copy goes on where it ended."""
    source, mappings, held, left = made(process.pid, time.monotonic() - 1)
    first = next(mapping for mapping in mappings if mapping.readable and mapping.is_untouched_zero)
    assert left is not None and source.read_prefix(first.start, 16) == b""
    compiled = kernel.load_native_library()
    opened = compiled.open_apart(LiveSource(process.pid).bulk_source())
    assert held.take(copied_ranges(mappings, set(), set()), opened, array("d", [NEVER]), left) is None  # type: ignore[call-overload]
    assert len(source.read_prefix(first.start, PAGE)) == PAGE


def test_a_process_that_is_gone(monkeypatch: pytest.MonkeyPatch, process: "subprocess.Popen[bytes]") -> None:
    """An OSError, and nothing is said when what was made of the copy is released."""
    told: List[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    table = LiveSource(process.pid).page_table()
    assert table is not None
    process.kill()
    process.wait()
    with pytest.raises(FileNotFoundError):
        kernel.load_native_library().copy(table)
    assert not told


def test_what_is_copied() -> None:
    """What is only read, what nobody may read, devices, and what the kernel maps is not."""

    def mapping(start: int, access: str, name: str = "", inode: int = 0) -> Mapping:
        return Mapping(start, start + PAGE, "r" in access, "w" in access, "x" in access, "s" in access, name, None, 0, "", inode)

    mappings = [
        mapping(0x1000, "rw"),
        mapping(0x2000, "r", "/lib/libc.so.6", 7),
        mapping(0x3000, ""),
        mapping(0x4000, "rs", "/data", 8),
        mapping(0x5000, "rws", "/dev/shm/x", 9),
        mapping(0x6000, "rw", "/dev/dri/card0", 10),
        mapping(0x7000, "r", "[vvar]"),
    ]
    ranges = [(0x1000, 0x2000, TAKES_ALL), (0x2000, 0x3000, TAKES_OWN), (0x5000, 0x6000, TAKES_ALL)]
    assert copied_ranges(mappings, {0x6000}, set()) == ranges
    assert copied_ranges(mappings, {0x6000}, {0x3000}) == sorted([*ranges, (0x3000, 0x4000, TAKES_ALL)])
