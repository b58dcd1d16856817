"""A core that lost a segment, or whose headers and notes contradict each other, is never called whole.

Files: inferior/core_file.py, inferior/core_file.py.
"""

import struct
from pathlib import Path
from typing import Any, Iterator, List, NamedTuple, Tuple

import pytest

from gdbheapx.inferior.core_file import CoreFile
from gdbheapx.inferior.elf.file import PT_LOAD, parse_notes
from gdbheapx.inferior.target import open_elf_target
from tests.support.builders.core_file import Piece, build, note

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
