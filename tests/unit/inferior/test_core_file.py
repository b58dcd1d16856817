"""gdbheapx/inferior/core_file.py

Files: inferior/arch/aarch64.py, inferior/arch/i386.py, inferior/elf/file.py.
"""

import gzip
import struct
import time
from pathlib import Path
from typing import Any, List

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import CORE_CUT, CUT_HINT
from gdbheapx.inferior.arch.aarch64 import NT_ARM_TLS
from gdbheapx.inferior.arch.i386 import NT_386_TLS
from gdbheapx.inferior.core_file import CoreFile
from gdbheapx.inferior.elf.file import ElfFile
from gdbheapx.inferior.target import open_elf_target
from tests.support.builders.core_file import Piece, build, note

EM_386, EM_X86_64, EM_AARCH64 = 3, 62, 183


def written(folder: Path, data: bytes) -> str:
    """A file with this content."""
    path = folder / "a.core"
    path.write_bytes(data)
    return str(path)


def test_threads_of_a_kernel_core(core: Any) -> None:
    """A kernel core tells every thread's id, stack pointer and a thread pointer whose TCB points to itself."""
    path, specimen = core
    found = CoreFile(path)
    threads = found.notes().threads
    assert sorted(thread.lwp for thread in threads) == sorted(entry["lwp"] for entry in specimen.truth["threads"])
    assert found.notes().pid == specimen.truth["pid"]
    for thread in threads:
        assert found.read_dumped(thread.stack_pointer or 0, 8)
        assert int.from_bytes(found.read_dumped((thread.thread_pointer or 0) + 16, 8), "little") == thread.thread_pointer


def test_mappings_are_named_and_sorted(core: Any) -> None:
    """Mappings come sorted, with the names that NT_FILE tells."""
    path, specimen = core
    mappings = CoreFile(path).mappings()
    assert mappings == sorted(mappings)
    assert specimen.executable in {mapping.name for mapping in mappings}
    assert any(mapping.writable and mapping.dumped_bytes == mapping.size_bytes for mapping in mappings)


def test_cut_core_tells_what_is_missing(core: Any, tmp_path: Path) -> None:
    """A core cut in half keeps its map; bytes beyond the cut are missing and never read."""
    whole = CoreFile(core[0])
    data = Path(core[0]).read_bytes()
    cut = CoreFile(written(tmp_path, data[: len(data) // 2]))
    assert whole.missing_bytes == 0
    assert cut.missing_bytes == len(data) - len(data) // 2
    assert [load.start for load in cut.loads] == [load.start for load in whole.loads]
    for load in cut.loads:
        assert len(cut.read_dumped(load.start, load.end - load.start)) == load.dumped_bytes or load.start + load.dumped_bytes == load.end
    assert all(segment.file_offset + segment.size_bytes <= cut.file_bytes for segment in cut.segments())


def test_a_cut_core_says_what_to_do(core: Any, tmp_path: Path) -> None:
    """Once, in the words of the verdict; a whole one does not."""
    data = Path(core[0]).read_bytes()
    cut, whole = (open_elf_target(core=path).problems() for path in (written(tmp_path, data[: len(data) // 2]), core[0]))
    assert [one.code for one in cut if one.hint == CUT_HINT] == [CORE_CUT] and not [one for one in whole if one.hint == CUT_HINT]


def test_what_nobody_wrote_to_is_not_dumped(tmp_path: Path) -> None:
    """Writable mappings of no file without a byte in the core, next to others; read-only ones, those of files, and cut ones are none."""
    page = 4096
    pieces = [Piece(0x10000, page, b"x" * page), Piece(0x20000, 3 * page, b""), Piece(0x30000, page, b"", 4), Piece(0x40000, page, b"x" * 10)]
    found = CoreFile(written(tmp_path, build(pieces)))
    assert found.unwritten() == ((0x20000, 0x20000 + 3 * page),)
    random = note("<", 6, struct.pack("<4Q", 25, 0x20000, 0, 0))  # AT_RANDOM lies on the stack: what is private was left out
    assert CoreFile(written(tmp_path, build(pieces, random))).unwritten() == ()


@pytest.mark.parametrize(
    "word_bytes, order, machine, expected",
    [(8, "<", EM_X86_64, "i386:x86-64"), (4, "<", EM_386, "i386"), (8, "<", EM_AARCH64, "aarch64"), (8, ">", 22, "s390:64-bit")],
)
def test_every_shape_of_core(tmp_path: Path, word_bytes: int, order: str, machine: int, expected: str) -> None:
    """Word size, byte order and machine come from the file, never from this machine."""
    found = CoreFile(written(tmp_path, build([Piece(0x10000, 0x2000, b"abcd" * 1024)], b"", word_bytes, order, machine)))
    assert (found.header.word_bytes, found.header.order, found.header.arch.name) == (word_bytes, order, expected)
    assert found.read_dumped(0x10004, 4) == b"abcd"
    assert found.read_dumped(0x10FFE, 16) == b"cd"
    assert found.read_dumped(0x11000, 1) == b""


def test_aarch64_thread_pointer(tmp_path: Path) -> None:
    """On aarch64 the thread pointer is NT_ARM_TLS of the same thread, pc and sp stand in its NT_PRSTATUS."""
    words = [0] * 34
    words[31], words[32] = 0x7000, 0x400123
    notes = note("<", 1, bytes(32) + struct.pack("<i", 77) + bytes(76) + struct.pack("<34Q", *words)) + note(
        "<", NT_ARM_TLS, struct.pack("<2Q", 0xABC000, 0), b"LINUX\0"
    )
    notes += note("<", 1, bytes(32) + struct.pack("<i", 78) + bytes(76) + struct.pack("<34Q", *words))
    threads = CoreFile(written(tmp_path, build([], notes, machine=EM_AARCH64))).notes().threads
    assert [(thread.lwp, thread.thread_pointer, thread.stack_pointer, thread.pc) for thread in threads] == [
        (77, 0xABC000, 0x7000, 0x400123),
        (78, None, 0x7000, 0x400123),
    ]


@pytest.mark.parametrize("stack_pointer, expected", [(0x7000, [77, 79]), (0, [77, 78, 79])])
def test_workers_of_the_kernel_are_no_threads(tmp_path: Path, stack_pointer: int, expected: List[int]) -> None:
    """gcore writes those of io_uring down, with the thread pointer of their maker and nothing else; a core that has no registers of anybody keeps all."""
    notes = b""
    for lwp, sp, pc in ((77, stack_pointer, 0x400123), (78, 0, 0), (79, stack_pointer, 0)):
        notes += note("<", 1, bytes(32) + struct.pack("<i", lwp) + bytes(76) + struct.pack("<34Q", *[0] * 31, sp, pc, 0))
    threads = CoreFile(written(tmp_path, build([], notes, machine=EM_AARCH64))).notes().threads
    assert [thread.lwp for thread in threads] == expected


def test_i386_thread_pointer(tmp_path: Path) -> None:
    """On i386 the thread pointer is the base of the descriptor that gs selects."""
    words = [0] * 17
    words[10], words[12], words[15] = 0x63, 0x8048000, 0xFF00
    notes = note("<", 1, bytes(24) + struct.pack("<i", 5) + bytes(44) + struct.pack("<17I", *words))
    notes += note("<", NT_386_TLS, struct.pack("<8I", 11, 1, 0, 0, 12, 0xF7C0, 0xFFFFF, 0x51), b"LINUX\0")
    (thread,) = CoreFile(written(tmp_path, build([], notes, 4, "<", EM_386))).notes().threads
    assert (thread.lwp, thread.thread_pointer, thread.stack_pointer, thread.pc) == (5, 0xF7C0, 0xFF00, 0x8048000)


def test_thousands_of_segments(tmp_path: Path) -> None:
    """A core of 20,000 mappings takes no time that grows with their square: that would be minutes."""
    pieces = [Piece(0x100000 + 0x2000 * number, 0x1000, b"") for number in range(20000)]
    path = written(tmp_path, build(pieces))
    began = time.process_time()
    assert len(CoreFile(path).mappings()) == 20000
    assert time.process_time() - began < 20


def test_overlapping_segments_are_left_out(tmp_path: Path) -> None:
    """Damaged program headers that overlap give segments without overlap."""
    found = CoreFile(
        written(tmp_path, build([Piece(0x1000, 0x2000, b"a" * 0x2000), Piece(0x2000, 0x1000, b"b" * 0x1000), Piece(0x3000, 0x1000, b"c")]))
    )
    assert [segment.address for segment in found.segments()] == [0x1000, 0x3000]


def test_a_segment_that_grew_does_not_hide_the_next(tmp_path: Path) -> None:
    """A segment that claims a terabyte of addresses ends where the next one begins, and the core says that its headers overlap."""
    data = bytearray(build([Piece(0x1000, 0x1000, b"a" * 0x1000), Piece(1 << 30, 0x1000, b"b" * 0x1000)]))
    struct.pack_into("<Q", data, 64 + 56 + 40, 1 << 40)
    path = written(tmp_path, bytes(data))
    found = CoreFile(path)
    assert [(segment.address, segment.size_bytes) for segment in found.segments()] == [(0x1000, 0x1000), (1 << 30, 0x1000)]
    assert "core-damaged" in [one.code for one in open_elf_target(core=path).problems()]


def test_every_end_is_an_address(tmp_path: Path) -> None:
    """A segment that claims to reach behind the last address ends before it: the kernel's C takes ends as 64 bits."""
    data = bytearray(build([Piece(0x1000, 0x1000, b"a" * 0x1000), Piece((1 << 64) - (10 << 20), 0x1000, b"b" * 0x1000)]))
    struct.pack_into("<I", data, 64 + 2 * 56 + 4, 5)  # code, as vsyscall is
    struct.pack_into("<Q", data, 64 + 2 * 56 + 40, 1 << 40)
    found = CoreFile(written(tmp_path, bytes(data)))
    assert found.find((1 << 64) - (9 << 20)) is not None
    assert max(load.end for load in found.loads) < 1 << 64


def test_a_segment_beyond_all_programs_is_left_out(tmp_path: Path) -> None:
    """One flipped bit of an address: the core says that it is damaged, and the segment is none."""
    path = written(tmp_path, build([Piece(0x1000, 0x1000, b"a" * 0x1000), Piece(1 << 62 | 0x2000, 0x1000, b"b" * 0x1000)]))
    assert [segment.address for segment in CoreFile(path).segments()] == [0x1000]
    assert "core-damaged" in [one.code for one in open_elf_target(core=path).problems()]


def test_no_byte_of_the_file_belongs_to_two_segments(tmp_path: Path) -> None:
    """A segment that claims a terabyte has what is in the file before the next one begins, and all together are no longer than the file."""
    data = bytearray(build([Piece(0x1000, 0x1000, b"a" * 0x1000), Piece(1 << 44, 0x1000, b"b" * 0x1000)]))
    struct.pack_into("<QQ", data, 64 + 56 + 32, 1 << 40, 1 << 40)
    found = CoreFile(written(tmp_path, bytes(data)))
    assert [segment.size_bytes for segment in found.segments()] == [0x1000, 0x1000]
    assert found.missing_bytes == (1 << 40) - 0x1000


EXTREMES = (0, 1, 52, 64, 0x1000, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 0x1000, (1 << 64) - 1)
WORDS = [(8, place) for place in range(16, 64 + 3 * 56, 8)] + [(4, 64), (4, 120), (2, 54), (2, 56), (2, 58), (2, 60), (2, 62)]
"""Of the header and of three program headers: type, offset, address and sizes are words of 8 bytes; counts have 2."""
NOTE = 64 + 3 * 56
SECONDS = 5


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.sampled_from(WORDS + [(4, at) for at in range(NOTE, NOTE + 200, 4)]), st.sampled_from(EXTREMES)), min_size=1, max_size=4),
)
def test_extreme_values_are_read_as_far_as_they_go(tmp_path: Path, changes: Any) -> None:
    """Whatever header, program headers, notes and the list of mapped files claim: a core or an error in one line, soon, and never more bytes
    than the file has. The same bytes as a program's file: nothing, or what is there."""
    files = struct.pack("<5Q", 1, 4096, 0x1000, 0x2000, 0) + b"/bin/true\0"
    notes = note("<", 1, bytes(336)) + note("<", 6, struct.pack("<4Q", 3, 0x1040, 0, 0)) + note("<", 0x46494C45, files)
    data = bytearray(build([Piece(0x1000, 0x1000, b"\x7fELF" * 0x400, 5), Piece(0x4000, 0x3000, b"b" * 0x1000)], notes))
    for (size, at), value in changes:
        data[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    path, began = written(tmp_path, bytes(data)), time.process_time()
    try:
        found = CoreFile(path)
        assert sum(segment.size_bytes for segment in found.segments()) <= len(data)
        target = open_elf_target(core=path)
        target.modules(), target.threads(), target.mappings(), target.maps_text(), target.memory_use(), target.problems()
        target.unwritten_ranges(), target.dynamic_symbol("malloc"), target.data_ranges([(0x1000, 0x7000)])
    except HeapxError as error:
        assert "\n" not in error.message
    try:
        file = ElfFile(path)
        file.program_headers(), file.sections(), file.build_id(), file.symbols("malloc"), file.word_at(0x1000)
    except (OSError, ValueError):
        pass
    assert time.process_time() - began < SECONDS


def test_a_count_of_headers_far_beyond_the_file(tmp_path: Path) -> None:
    """e_phnum 0xffff sends the reader to the first section header, which a damaged e_shoff puts beyond any file."""
    data = bytearray(build([Piece(0x1000, 0x1000, b"a" * 0x1000)]))
    struct.pack_into("<Q", data, 40, 1 << 63)
    struct.pack_into("<H", data, 56, 0xFFFF)
    found = CoreFile(written(tmp_path, bytes(data)))
    assert found.find(0x1000) is not None and found.missing_headers > 0


def test_damaged_notes_end_quietly(tmp_path: Path) -> None:
    """A note that claims more bytes than there are ends the list; those before it count."""
    notes = note("<", 6, struct.pack("<4Q", 6, 65536, 0, 0)) + struct.pack("<III", 5, 1 << 30, 1) + b"CORE\0\0\0\0"
    assert CoreFile(written(tmp_path, build([], notes))).notes().auxv == {6: 65536}


@pytest.mark.parametrize(
    "data, said",
    [
        (b"", "empty"),
        (b"hello, world, this is text\n" * 10, "not an ELF core"),
        (gzip.compress(b"x" * 100), "gzip -dk"),
        (b"\x28\xb5\x2f\xfd" + bytes(100), "zstd -d"),
    ],
    ids=["empty", "text", "gzip", "zstd"],
)
def test_what_is_no_core_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    """A file that is no core is refused in one line that says what to do."""
    with pytest.raises(HeapxError) as refused:
        CoreFile(written(tmp_path, data))
    assert said in refused.value.line() and "\n" not in refused.value.line()
