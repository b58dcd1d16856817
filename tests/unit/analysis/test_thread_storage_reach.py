"""Thread-local storage reaches as far below a thread pointer as the blocks that came with the thread, and no frame of a stack lies in it.

Files: analysis/reachability/heap_graph.py, inferior/elf/link_map.py.
"""

import os
import shutil
import signal
import struct
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import pytest

from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.inferior.elf.file import PT_TLS, ProgramHeader, parse_header
from gdbheapx.inferior.elf.link_map import Loaded, NumberReader
from gdbheapx.inferior.target import open_elf_target
from tests.support.compilers import compile_c
from tests.support.paths import PROGRAMS

PTHREAD_BYTES = 2048
"""Every release's struct pthread is longer."""
PLUGIN = "static __thread void *mine[2000]; void **place(void) { return mine + 1999; }"
PROGRAM = (PROGRAMS / "thread_storage.c").read_text()


class SwappedOut:
    """A live process like this core, of which no page of these threads' control blocks is in memory."""

    kind = "live"

    def __init__(self, core: Any, pointers: Sequence[int]) -> None:
        self._core, self.pointers, self.brought_in = core, pointers, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def _is_out(self, start: int, end: int) -> bool:
        return any(start < pointer + PTHREAD_BYTES and pointer < end for pointer in self.pointers)

    def present_ranges(self, start: int, end: int) -> List[Tuple[int, int]]:
        return [] if self._is_out(start, end) else [(start, end)]

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        self.brought_in += self._is_out(address, address + size_bytes)
        data: bytes = self._core.read_prefix(address, size_bytes)
        return data


def link_map(fields: List[int], address: int = 0x9000) -> Loaded:
    """An object at 0x400000 with a block of 72 bytes aligned to 16, whose link map ends so."""
    memory: Dict[int, bytes] = {address: bytes(424) + struct.pack("<%dq" % len(fields), *fields) + bytes(64)}
    header = parse_header(b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 0, 0, 64, 56, 0, 64, 0, 0))
    assert header is not None
    entry = ProgramHeader(type=PT_TLS, offset=0, vaddr=0x3D08, filesz=8, memsz=72, align=16, flags=4)
    loaded = Loaded(NumberReader(lambda at, size: memory.get(at, b"")[:size], header), "/lib/a.so", 0x400000, 0, False, [entry])
    loaded.node = address
    return loaded


@pytest.mark.parametrize(
    "behind, expected",
    [
        ([8, 88, 2], -88),  # glibc: first byte, offset, number
        ([8, 0, 2], 0),  # NO_TLS_OFFSET
        ([8, -1, 2], 0),  # FORCED_DYNAMIC_TLS_OFFSET
        ([120, 2, 0], -120),  # musl: offset, number
    ],
)
def test_link_map_tells_the_block(behind: List[int], expected: int) -> None:
    """The four fields of PT_TLS stand before it; where they do not, nothing is said."""
    assert link_map([0x403D08, 8, 72, 16, *behind]).static_distance() == expected
    assert link_map([0x403D08, 8, 80, 16, *behind]).static_distance() is None


@pytest.mark.skipif(not shutil.which("gcore"), reason="no gcore")
def test_no_frame_is_thread_local(tmp_path: Path) -> None:
    """A plug-in with 16 KB of thread-local storage of its own, in a heap: no stack pointer lies in storage,
    and the argument of the start routine is a word of the stack."""
    plugin = compile_c(PLUGIN, tmp_path / "plug.so", "-shared", "-fPIC")
    process = subprocess.Popen([compile_c(PROGRAM, tmp_path / "app", "-pthread", "-ldl"), plugin], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline()
        options = ["gcore", "-o", str(tmp_path / "core"), str(process.pid)]
        subprocess.run(options, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        target = open_elf_target("%s.%d" % (tmp_path / "core", process.pid))
        end = max(end for _, end, module in target.image_ranges() if module.is_executable)
        brk = min(mapping for mapping in target.mappings() if mapping.start >= end)
        roots = heap_graph.find_regions(target, [(brk.start, brk.end)]).roots
        storage = [root for root in roots if root.kind == heap_graph.THREAD_LOCAL]
        threads = [thread for thread in target.threads() if thread.lwp != process.pid]
        assert len(threads) == 2
        for thread in threads:
            pointer, start = thread.stack_pointer or 0, thread.thread_pointer or 0
            assert not any(root.start <= pointer < root.end for root in storage)
            assert any(root.start <= start - 320 and start - 2048 < root.start for root in storage)
            arguments = [root for root in roots if root.thread == thread and root.kind == heap_graph.STACK and root.end - root.start == 8]
            assert len(arguments) == 1 and arguments[0].start > start
        live: Any = SwappedOut(target, [thread.thread_pointer or 0 for thread in threads])
        assert any(root.thread for root in heap_graph.find_regions(live, [(brk.start, brk.end)]).roots)
        assert not live.brought_in, "a look brings no page in"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
