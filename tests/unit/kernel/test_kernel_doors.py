"""Sources, Ctrl-C and time limits, the pagemap, and which kernel is loaded."""

import ctypes
import mmap
import os
import random
import subprocess
import sys
import time
from array import array
from pathlib import Path
from typing import Any, Tuple

import pytest

import gdbheapx.kernel
from gdbheapx.common.budget import Budget, Still
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import KERNEL_MISSING
from gdbheapx.inferior.base import BytesSource, FileSource, ProcessSource, Segment
from gdbheapx.kernel import binding, build
from gdbheapx.kernel.blocks.stream import BlockFilter
from gdbheapx.kernel.common import library
from gdbheapx.kernel.common.library import STOP_END, STOP_TIME, STOP_UNREADABLE, Kernel
from gdbheapx.kernel.glibc.records import STATUS_FREE, STATUS_USED, NativeListed, Region
from gdbheapx.kernel.glibc.walkers import ChunkWalker
from tests.support import compilers
from tests.support.builders import heap
from tests.support.builders.call_source import call_source

NONE = array("Q")
ROOT = Path(__file__).parents[3]
PAGE = os.sysconf("SC_PAGESIZE")


def address_of(data: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(data))


def test_every_source_gives_the_same_walk(kernel: Kernel, tmp_path: Path) -> None:
    """A core file in two segments, this process, a Python call that gives less than asked, and bytes."""
    data, region, cached_chunks = heap.large(5, 2)
    half = len(data) // 3
    path = tmp_path / "core"
    path.write_bytes(b"x" * 100 + data[half:] + data[:half])
    live = mmap.mmap(-1, len(data))
    live[:] = data
    source = BytesSource(((region.begin, data),))
    wanted = ChunkWalker(kernel, source, heap.LP64, Budget()).walk([region], cached_chunks)
    file = FileSource(str(path), (Segment(region.begin, half, 100 + len(data) - half), Segment(region.begin + half, len(data) - half, 100)))
    assert ChunkWalker(kernel, file, heap.LP64, Budget()).walk([region], cached_chunks) == wanted
    assert ChunkWalker(kernel, call_source(source), heap.LP64, Budget()).walk([region], cached_chunks, threads=8) == wanted
    shift = address_of(live) - region.begin
    here = Region(region.begin + shift, region.end + shift, 0)
    moved = array("Q", [special + shift for special in cached_chunks])
    got = ChunkWalker(kernel, ProcessSource(os.getpid()), heap.LP64, Budget()).walk([here], moved)[0]
    assert got[2:16] == wanted[0][2:16] and got.histogram == wanted[0].histogram


def test_a_truncated_core_is_read_to_its_end(kernel: Kernel, tmp_path: Path) -> None:
    """Segments that promise more than the file holds."""
    data, region, cached_chunks = heap.large(5, 2)
    path = tmp_path / "core"
    path.write_bytes(data[:1000000])
    source = FileSource(str(path), (Segment(region.begin, len(data), 0),))
    result = ChunkWalker(kernel, source, heap.LP64, Budget()).walk([region], cached_chunks)[0]
    assert result.stop == STOP_UNREADABLE and abs(result.at - region.begin - 1000000) < 13000
    assert result == ChunkWalker(kernel, BytesSource(((region.begin, data[:1000000]),)), heap.LP64, Budget()).walk([region], cached_chunks)[0]


def test_page_entries_are_kept_in_a_stop_alone(c_kernel: Kernel) -> None:
    """Of large blocks each header costs one read while the process stands still, two while it runs: its pages may come and go."""
    count, size, still = 1024, 64 << 10, Still()
    live = mmap.mmap(-1, count * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for place in range(count):
        live[place * size + 8 : place * size + 16] = (size | 1).to_bytes(8, "little")
    start = address_of(live)
    source = ProcessSource(os.getpid(), ((start, start + count * size),), still)

    def looked() -> Tuple[int, int]:
        """(blocks, reads)."""
        before = reads()
        result = ChunkWalker(c_kernel, source, heap.LP64, Budget()).walk([Region(start, start + count * size, 0)], NONE)[0]
        return result.used_chunks, reads() - before

    running = looked()
    still.begin(time.monotonic() + 60, 60)
    standing = looked()
    still.end()
    again = looked()
    assert running[0] == standing[0] == again[0] >= count - 1
    assert standing[1] < 1.4 * count < 1.8 * count < min(running[1], again[1])


def reads() -> int:
    """Calls of read(2) and its like that this process has made."""
    return int(Path("/proc/self/io").read_text().split("syscr: ")[1].split()[0])


def test_a_hole_ends_a_read(c_kernel: Kernel) -> None:
    """A page that a live process unmapped: what stands before it counts."""
    data, region, _ = heap.large(5, 2)
    live = mmap.mmap(-1, len(data))
    live[:] = data
    start = address_of(live)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.munmap(ctypes.c_void_p(start + (1 << 20)), ctypes.c_size_t(PAGE)) == 0
    result = ChunkWalker(c_kernel, ProcessSource(os.getpid()), heap.LP64, Budget()).walk([Region(start, start + len(data), 0)], NONE)[0]
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10  # MAP_FIXED: the hole is filled again before the object is closed
    libc.mmap(ctypes.c_void_p(start + (1 << 20)), ctypes.c_size_t(PAGE), 3, flags, -1, 0)
    assert result.stop == STOP_UNREADABLE and start + (1 << 20) - 13000 < result.at < start + (1 << 20) + PAGE


def test_ctrl_c_gives_what_was_counted(kernel: Kernel) -> None:
    """KeyboardInterrupt while bytes are read: the budget knows, the answer ends with STOP_TIME at a true chunk, later regions at their start."""
    data, region, cached_chunks = heap.large(5, 4)
    source, budget = BytesSource(((region.begin, data),)), Budget()
    results = ChunkWalker(kernel, call_source(source, 6), heap.LP64, budget).walk([region, region], cached_chunks)
    assert budget.reason == "stopped by Ctrl-C"
    assert results[0].stop == results[1].stop == STOP_TIME
    assert region.begin < results[0].at < region.end and results[1].at == region.begin
    part = region._replace(end=results[0].at)
    whole = ChunkWalker(kernel, source, heap.LP64, Budget()).walk([part], cached_chunks)[0]
    assert whole.stop == STOP_END and whole.tcache_chunks == results[0].tcache_chunks
    assert abs(whole.used_chunks + whole.free_chunks - results[0].used_chunks - results[0].free_chunks) <= 1


def test_an_expired_budget_ends_every_region(kernel: Kernel) -> None:
    """STOP_TIME at the first chunk, nothing counted."""
    built = heap.build([(STATUS_USED, 64)])
    budget = Budget(0.0)
    time.sleep(0.001)
    result = ChunkWalker(kernel, built.source, heap.LP64, budget).walk([built.region], NONE)[0]
    assert (result.stop, result.at, result.used_chunks) == (STOP_TIME, built.region.begin, 0)
    assert list(ChunkWalker(kernel, built.source, heap.LP64, budget).blocks([NativeListed(built.region, 0)], NONE)) == []


def test_impossible_geometry_is_refused(kernel: Kernel) -> None:
    """The kernels rely on a few facts about every glibc."""
    for wrong in ({"word_bytes": 2}, {"alignment_bytes": 24}, {"page_bytes": 5000}, {"min_chunk_bytes": 16}):
        with pytest.raises(ValueError):
            ChunkWalker(kernel, BytesSource(()), heap.LP64._replace(**wrong), Budget()).walk([], NONE)


def test_a_library_that_is_missing_broken_or_stale_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One line says why, and how to get it."""
    with pytest.raises(binding.Unusable, match="not built"):
        binding.open_kernel(str(tmp_path / "none.so"))
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    with pytest.raises(binding.Unusable, match="cannot load it"):
        binding.open_kernel(str(broken))
    monkeypatch.setattr(gdbheapx.kernel, "_loaded", [])
    monkeypatch.setattr(binding, "open_kernel", _refuse)
    with pytest.raises(HeapxError, match="stale: built from other sources") as refused:
        gdbheapx.kernel.load_native_library()
    assert refused.value.code == KERNEL_MISSING and "wheel" in (refused.value.hint or "")
    assert gdbheapx.kernel.loaded_library() is None and gdbheapx.kernel.swapped_in_bytes() == 0


def _refuse() -> Kernel:
    raise binding.Unusable("stale: built from other sources")


def test_a_library_built_from_other_sources_is_stale(c_kernel: Kernel, c_library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum of the C files is compiled in: the library that was just loaded is refused beside other files."""
    monkeypatch.setattr(build, "source_id", lambda: 1)
    with pytest.raises(binding.Unusable, match="stale"):
        binding.open_kernel(c_library)


def test_the_door_is_imported_in_milliseconds() -> None:
    """The first command in gdb must not wait for imports: nothing heavy comes along."""
    code = "import sys; import gdbheapx.kernel.binding; print([m for m in ('dataclasses', 'inspect', 'subprocess', 'json') if m in sys.modules])"
    outcome = subprocess.run([sys.executable, "-S", "-c", code], cwd=str(ROOT), stdout=subprocess.PIPE)
    assert outcome.stdout.strip() == b"[]"


@pytest.mark.slow
@pytest.mark.once  # the same C everywhere
def test_the_c_kernel_keeps_within_its_buffers(tmp_path: Path) -> None:
    """The other tests of this folder again, fewer of them, with a library under the address and undefined-behaviour sanitizers."""
    words = build.find_compiler()
    if os.environ.get("HEAPX_TEST_LIBRARY") or not words:
        pytest.skip("already inside, or no compiler")
    found = subprocess.run(words + ["-print-file-name=libasan.so"], stdout=subprocess.PIPE, text=True).stdout.strip()
    library = str(tmp_path / "sanitized.so")
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-shared-libasan"] if "clang" in words[0] else [
        "-fsanitize=address,undefined", "-fno-sanitize-recover=all"
    ]  # fmt: skip
    quick = compilers.with_last(words, tmp_path, *flags, "-O1")  # of the core alone: no test of these asks an add-on
    if not os.path.isabs(found) or build.compile_into(library, quick, build.all_sources(()), build.source_id() or 0).returncode:
        pytest.skip("the compiler has no sanitizers")
    environment = dict(os.environ, HEAPX_TEST_LIBRARY=library, LD_PRELOAD=found, ASAN_OPTIONS="detect_leaks=0", PYTHONMALLOC="malloc")
    chosen = ["test_kernel_blocks.py", "test_kernel_lists.py", "test_kernel_finds.py", "test_kernel_walk.py"]
    outcome = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        + ["-k", "threads or round or damage"]
        + [str(Path(__file__).parent / name) for name in chosen],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert outcome.returncode == 0, outcome.stdout[-4000:]
    assert " passed" in outcome.stdout


def test_random_slices_do_not_change_the_answer(c_kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that is paused and resumed every few blocks gives what one go gives."""
    data, region, cached_chunks = heap.large(9, 24)
    source = BytesSource(((region.begin, data),))
    wanted = ChunkWalker(c_kernel, source, heap.LP64, Budget()).walk([region], cached_chunks, threads=1)
    for threads in (1, 3):
        slices = random.Random(threads)
        monkeypatch.setattr(library, "FIRST_SLICE_SECONDS", slices.choice((1e-6, 1e-4)))
        monkeypatch.setattr(library, "SLICE_SECONDS", 1e-4)
        assert ChunkWalker(c_kernel, source, heap.LP64, Budget()).walk([region], cached_chunks, threads=threads) == wanted


def test_a_listing_is_let_go_before_its_end(kernel: Kernel) -> None:
    """A caller may stop asking; nothing is kept, and the result stays unknown."""
    data, region, cached_chunks = heap.large(5, 1)
    listing = ChunkWalker(kernel, BytesSource(((region.begin, data),)), heap.LP64, Budget()).blocks([NativeListed(region, 0)], cached_chunks, BlockFilter({STATUS_FREE}))
    assert next(iter(listing)) and listing.result is None
