"""gdbheapx/inferior/core_file.py

A core that lost a segment, or whose headers and notes contradict each other, is never called whole.

gdbheapx/inferior/core_file.py and unpacking.py

Files: inferior/arch/aarch64.py, inferior/arch/i386.py, inferior/core_file.py, inferior/elf/file.py.
"""

import bz2
import gzip
import lzma
import os
import struct
import time
from pathlib import Path
from typing import Any, Iterator, List, NamedTuple, Tuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import CORE_CUT, CUT_HINT
from gdbheapx.inferior import core_file
from gdbheapx.inferior.arch.aarch64 import NT_ARM_TLS
from gdbheapx.inferior.arch.i386 import NT_386_TLS
from gdbheapx.inferior.core_file import CoreFile
from gdbheapx.inferior.elf.file import PT_LOAD, ElfFile, parse_notes
from gdbheapx.inferior.target import open_elf_target
from tests.support.builders.core_file import Piece, build, note
from tests.support.builders.packed import pack

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

NT_FILE, NT_AUXV = 0x46494C45, 6
ENTRY = "<IIQQQQQQ"
TYPE, FLAGS, OFFSET, ADDRESS, IN_FILE, IN_MEMORY = 0, 1, 2, 3, 5, 6


class Copy(NamedTuple):
    """A copy of the core that may be changed."""

    path: Path
    data: bytes

    def header(self, number: int) -> List[int]:
        """A program header."""
        return list(struct.unpack_from(ENTRY, self.data, struct.unpack_from("<Q", self.data, 32)[0] + 56 * number))

    def loads(self) -> List[int]:
        """The numbers of its PT_LOADs."""
        return [number for number in range(struct.unpack_from("<H", self.data, 56)[0]) if self.header(number)[TYPE] == PT_LOAD]

    def codes(self, *changes: Tuple[int, bytes]) -> List[str]:
        """What the core says of itself with these bytes at these places of the file."""
        with open(self.path, "r+b") as file:
            for at, data in changes:
                file.seek(at)
                file.write(data)
            file.flush()
            codes = [str(problem.code) for problem in open_elf_target(core=str(self.path)).problems()]
            for at, data in changes:
                file.seek(at)
                file.write(self.data[at : at + len(data)])
        return codes

    def with_header(self, number: int, field: int, value: int) -> List[str]:
        """The same, with one field of a program header."""
        header = self.header(number)
        header[field] = value
        return self.codes((struct.unpack_from("<Q", self.data, 32)[0] + 56 * number, struct.pack(ENTRY, *header)))

    def note(self, wanted: int) -> Tuple[int, bytes]:
        """(place in the file, contents) of a note."""
        header = self.header(0)
        notes = self.data[header[OFFSET] : header[OFFSET] + header[IN_FILE]]
        desc = next(desc for _, kind, desc in parse_notes("<", notes) if kind == wanted)
        return self.data.index(desc, header[OFFSET]), desc


@pytest.fixture
def copy(core: Any, tmp_path: Path) -> Iterator[Copy]:
    """Of the specimen's core."""
    data = Path(core[0]).read_bytes()
    if data[4] != 2:
        pytest.skip("the places in the file are those of 64 bits")
    path = tmp_path / "copy.core"
    path.write_bytes(data)
    yield Copy(path, data)
    path.unlink()


def test_a_whole_core_is_whole(copy: Copy) -> None:
    """Of a core that the kernel wrote nothing is missing, and nothing contradicts."""
    assert copy.codes() == []


def test_no_lost_or_moved_segment_goes_unnoticed(copy: Copy) -> None:
    """Each writable mapping with content in turn: its type, its place or its bytes in the file lost, its address moved far away."""
    silent = []
    for number in copy.loads():
        header = copy.header(number)
        changes = [(TYPE, 0), (OFFSET, header[OFFSET] + 4096), (IN_FILE, 0), (ADDRESS, 0x10000)]
        is_data = header[IN_FILE] and header[FLAGS] & 2
        silent += [(number, field) for field, value in changes if is_data and not copy.with_header(number, field, value)]
    assert silent == []


def test_lost_roots_are_named(copy: Copy, core: Any) -> None:
    """Without an object's variables, moved a page or without its rights, and without a stack, roots are missing: at the address."""
    target = open_elf_target(core=str(copy.path))
    _, middle, end = target.writable_segments(target.modules()[0])[-1]
    stacks = [thread.stack_pointer or 0 for thread in target.threads()]
    places = [number for number in copy.loads() for address in (end - 1, *stacks) if 0 <= address - copy.header(number)[ADDRESS] < copy.header(number)[IN_MEMORY]]
    assert len(places) == 1 + len(stacks)
    for number in places:
        assert "roots-missing" in copy.with_header(number, TYPE, 0)
        assert "roots-missing" in copy.with_header(number, FLAGS, 4)
        assert copy.with_header(number, FLAGS, 2) and copy.with_header(number, FLAGS, 14)
    assert "roots-missing" in copy.with_header(places[0], ADDRESS, copy.header(places[0])[ADDRESS] + 4096)


def test_code_without_the_right_to_run_is_damage(copy: Copy) -> None:
    """The header of a mapping that an object's own headers call code."""
    codes = [copy.with_header(number, FLAGS, 4) for number in copy.loads() if copy.header(number)[FLAGS] == 5]
    assert sum("core-damaged" in found for found in codes) >= 3


def test_mapped_files_that_contradict_are_damage(copy: Copy) -> None:
    """NT_FILE: names that are cut in two or joined, another page size, entries out of order, another place in the file."""
    at, desc = copy.note(NT_FILE)
    count = struct.unpack_from("<Q", desc)[0]
    names = at + 8 * (2 + 3 * count)
    first, second = desc[16:40], desc[40:64]
    changes = [(names + 1, b"\0"), (names + desc[names - at :].index(b"\0"), b"x"), (at + 8, struct.pack("<Q", 8192)), (at + 16, second + first)]
    changes += [(at + 40 + 16, struct.pack("<Q", 77)), (at + 16 + 8, first[:8]), (at + 16, struct.pack("<Q", 1 << 40))]
    assert [change for change in changes if "core-damaged" not in copy.codes(change)] == []


@pytest.mark.parametrize("key", [3, 5, 7, 9, 25, 31])
def test_an_auxiliary_vector_that_contradicts_is_damage(copy: Copy, key: int) -> None:
    """AT_PHDR, AT_PHNUM, AT_BASE, AT_ENTRY, AT_RANDOM, AT_EXECFN with one bit changed."""
    at, desc = copy.note(NT_AUXV)
    place = next(place for place in range(0, len(desc), 16) if struct.unpack_from("<Q", desc, place)[0] == key)
    value = struct.unpack_from("<Q", desc, place + 8)[0]
    assert "core-damaged" in copy.codes((at + place + 8, struct.pack("<Q", value ^ (1 if key == 5 else 1 << 45))))


def test_the_stack_of_who_overflowed_it_is_not_asked_for(tmp_path: Path) -> None:
    """The stack pointer of a thread that died by SIGSEGV may be anywhere; that of another may not."""
    registers = [0] * 27
    registers[19] = 0x900000
    status = bytes(32) + struct.pack("<i", 7) + bytes(76) + struct.pack("<27Q", *registers)
    fault = struct.pack("<3i", 11, 0, 1) + bytes(116)
    for notes, wanted in ((note("<", 1, status) + note("<", 0x53494749, fault), []), (note("<", 1, status), ["roots-missing"])):
        path = tmp_path / "a.core"
        path.write_bytes(build([Piece(0x10000, 4096, b"x" * 4096)], notes))
        codes = [str(problem.code) for problem in open_elf_target(core=str(path)).problems()]
        assert [code for code in codes if code == "roots-missing"] == wanted


def test_hostile_headers_cost_no_more_than_their_number(tmp_path: Path) -> None:
    """Counted: of 20,000 mappings that NT_FILE contradicts a few are listed, each kind once."""
    pieces = [Piece(0x100000 + 0x2000 * number, 0x1000, b"") for number in range(20000)]
    spans = b"".join(struct.pack("<3Q", piece.address, piece.address + 0x2000, 0) for piece in pieces)
    path = tmp_path / "a.core"
    path.write_bytes(build(pieces, note("<", NT_FILE, struct.pack("<2Q", len(pieces), 1) + spans + b"x\0" * len(pieces))))
    assert len(CoreFile(str(path)).loads) == 20000
    codes = [str(problem.code) for problem in open_elf_target(core=str(path)).problems()]
    assert 1 <= codes.count("core-damaged") <= 8

PAGE = 4096


def core_bytes(*pages: bytes, claimed_pages: int = 0) -> bytes:
    """A core of one PT_LOAD with these pages; `claimed_pages`: how many its header promises, if other than there are."""
    size = claimed_pages * PAGE or sum(map(len, pages))
    made = bytearray(build([Piece(0x10000, size, b"".join(pages))], bytes(PAGE - 64 - 2 * 56)))
    struct.pack_into("<Q", made, 64 + 56 + 32, size)
    return bytes(made)


def noise(count: int) -> List[bytes]:
    """Pages that no packer makes much smaller."""
    return [os.urandom(PAGE) for _ in range(count)]


def unpack(folder: Path, data: bytes) -> "tuple[bytes, str]":
    """What a file with this in it unpacks to, and the trouble."""
    path = folder / "a name that says nothing"
    path.write_bytes(data)
    form = core_file.find_form(str(path))
    assert form is not None
    descriptor, trouble = core_file.unpack_core(str(path), form)
    try:
        return os.pread(descriptor, 1 << 30, 0), trouble
    finally:
        os.close(descriptor)


def test_zeros_take_no_room(tmp_path: Path) -> None:
    """Pages of zeros are holes."""
    path = tmp_path / "core"
    path.write_bytes(gzip.compress(core_bytes(bytes(PAGE * 20_000), *noise(2))))
    descriptor, trouble = core_file.unpack_core(str(path), core_file.FORMS[b"\x1f\x8b"])
    status = os.fstat(descriptor)
    os.close(descriptor)
    assert status.st_size == PAGE * 20_003 and status.st_blocks * 512 < PAGE * 64


def test_the_file_is_private_and_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mode 0600, in TMPDIR, where no name is left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    path = tmp_path / "core"
    path.write_bytes(lzma.compress(core_bytes(*noise(2))))
    descriptor, trouble = core_file.unpack_core(str(path), core_file.FORMS[b"\xfd7zXZ\0"])
    assert os.readlink("/proc/self/fd/%d" % descriptor).startswith(str(folder)) and list(folder.iterdir()) == []
    assert os.fstat(descriptor).st_mode & 0o777 == 0o600
    os.close(descriptor)


def test_room_is_looked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as the core's headers tell how long it is; nothing of it is written where there is too little."""
    written: List[int] = []
    monkeypatch.setattr(core_file.UnpackedFile, "_write_data", lambda self, at, data: written.append(len(data)))
    data = gzip.compress(core_bytes(*noise(600), claimed_pages=1 << 40))
    with pytest.raises(core_file.CannotUnpack) as refused:
        unpack(tmp_path, data)
    assert "no room" in refused.value.message and "TMPDIR" in refused.value.hint and not written


def test_room_is_looked_for_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others write there too: it stops before the last 64 MB are gone."""
    fstatvfs, asked = os.fstatvfs, []  # type: Any, List[int]

    def shrinking(descriptor: int) -> Any:
        asked.append(descriptor)
        found = list(fstatvfs(descriptor))
        found[4] = (1 << 40 if len(asked) < 3 else 1 << 20) // found[1]  # f_bavail
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "fstatvfs", shrinking)
    monkeypatch.setattr(core_file, "RESERVE_BYTES", 4 << 20)
    with pytest.raises(core_file.CannotUnpack) as refused:
        unpack(tmp_path, gzip.compress(core_bytes(*noise(3000)), 0))
    assert "no room" in refused.value.message and len(asked) == 3


@pytest.mark.parametrize("inside", [b"text " * 100_000, b"", b"\x7fEL", bytes(1 << 22)], ids=["text", "nothing", "less than a header", "zeros"])
def test_what_is_in_it_must_be_a_core(tmp_path: Path, inside: bytes) -> None:
    """It is looked at first, so that another file is not unpacked to its end. A piece of a header is left to whoever reads it."""
    if inside == b"\x7fEL":
        assert unpack(tmp_path, gzip.compress(inside)) == (inside, "")
        return
    with pytest.raises(core_file.CannotUnpack):
        unpack(tmp_path, gzip.compress(inside))


def test_no_more_than_the_core_claims(tmp_path: Path) -> None:
    """A file that unpacks to more than its headers say is not unpacked to its end."""
    data = core_bytes(*noise(4)) + bytes(300 << 20)
    assert len(unpack(tmp_path, gzip.compress(data, 1))[0]) < 8 << 20


@pytest.mark.parametrize("count", [0, 0xFFFF])
def test_headers_that_do_not_tell(tmp_path: Path, count: int) -> None:
    """Without a number of segments, or with one that stands behind them all, everything is unpacked."""
    data = bytearray(core_bytes(*noise(600)))
    struct.pack_into("<H", data, 56, count)
    assert unpack(tmp_path, bz2.compress(bytes(data))) == (bytes(data), "")


@pytest.mark.parametrize("name, module", [(".zst", "zstandard"), (".lz4", "lz4")])
def test_a_library_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str) -> None:
    """The line names the extra that brings it, and the command that does without."""
    data = pack(name, core_bytes(*noise(2)))
    path = tmp_path / "core"
    path.write_bytes(data)
    import sys

    for one in [one for one in sys.modules if one.split(".")[0] == module] + [module, "compression.zstd"]:
        monkeypatch.setitem(sys.modules, one, None)
    form = core_file.find_form(str(path))
    with pytest.raises(core_file.CannotUnpack) as refused:
        core_file.unpack_core(str(path), form)
    assert module in refused.value.message and "gdbheapx[cores]" in refused.value.hint and form.tool in refused.value.hint


def test_a_zstandard_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that does not tell where a frame ends it is said that it will not do."""
    library: Any = pytest.importorskip("zstandard")

    class Old:
        def decompressobj(self) -> object:
            return object()

    monkeypatch.setitem(__import__("sys").modules, "compression.zstd", None)
    monkeypatch.setattr(library, "ZstdDecompressor", lambda **given: Old())
    with pytest.raises(core_file.CannotUnpack) as refused:
        unpack(tmp_path, pack(".zst", core_bytes(*noise(2))))
    assert "zstandard" in refused.value.message
