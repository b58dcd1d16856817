"""What a file, a core or memory says to be long costs by what is there: steps, bytes and names are counted, not seconds.

Files: inferior/elf/dwarf.py, inferior/elf/dwarf.py, inferior/elf/images.py, inferior/elf/images.py, inferior/source.py.
"""

import os
import struct
from pathlib import Path

import pytest

from gdbheapx.common.budget import WORK, TooMuchWork
from gdbheapx.inferior.core_file import CoreFile
from gdbheapx.inferior.elf import dwarf, images
from gdbheapx.inferior.elf import file as elf
from gdbheapx.inferior.elf.dwarf import Dwarf, Unsupported
from gdbheapx.inferior.elf.file import ElfFile, read_sleb, read_uleb
from gdbheapx.inferior.elf.link_map import MAX_OBJECTS, MOST_CHAIN, LinkMap, Loaded
from gdbheapx.inferior.source import read_page_bytes
from tests.support.builders import core_file
from tests.support.builders.elf_file import DYNSYM, PROGBITS, STRTAB, SYMTAB, Part, Segment, build, call_frames, number, starts, symbols
from tests.support.builders.raw_types import ByHand, Raw

LOAD, DYNAMIC = 1, 2


def opened(folder: Path, data: bytes) -> ElfFile:
    """The file with this content."""
    path = folder / "a.so"
    path.write_bytes(data)
    return ElfFile(str(path))


def spent(before: int) -> int:
    """Steps since then."""
    return WORK.steps - before


def test_a_long_name_is_no_name_that_ends_so(tmp_path: Path) -> None:
    """300,000 letters before an ending: as many steps as a name may have, and the short one is found beside it."""
    table, text = symbols([(b"A" * 300_000 + b"opt_narenas", 1), (b"je_opt_narenas", 2)])
    file, before = opened(tmp_path, build([Part(".symtab", SYMTAB, table, 2, 24), Part(".strtab", STRTAB, text)])), WORK.steps
    assert file.names_ending("opt_narenas") == ["je_opt_narenas"] and spent(before) < 10_000


def test_names_are_no_longer_than_their_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many symbols whose names overlap: what is made of them ends, and the file is named."""
    monkeypatch.setattr(elf, "FREE_NAMES_BYTES", 1 << 20)
    text = b"\0" + b"A" * 60_000 + b"\0"
    table = bytes(24) + b"".join(struct.pack("<IBBHQQ", at, 0x11, 0, 1, at, 8) for at in range(1, 60_000, 6))
    file = opened(tmp_path, build([Part(".symtab", SYMTAB, table, 2, 24), Part(".strtab", STRTAB, text)]))
    WORK.exceeded.clear()
    named = sum(len(name) for name, _ in file.every_symbol())
    assert named < elf.ENTRIES_AT_ONCE * 60_000 and list(WORK.exceeded) == [file.path]
    WORK.exceeded.clear()


def test_section_names_are_short_and_shared(tmp_path: Path) -> None:
    """Thousands of headers with one name of 64 KiB."""
    data = bytearray(build([Part("x", PROGBITS, b"A" * 65_535)]))
    at, count = len(data), 5000
    data += struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, 64, 65_535, 0, 0, 1, 0) * count
    struct.pack_into("<Q", data, 40, at)
    struct.pack_into("<HH", data, 60, count, 1)
    sections = opened(tmp_path, bytes(data)).sections()
    assert len(sections) == count and {len(section.name) for section in sections} == {255} and len({id(section.name) for section in sections}) == 1


def test_a_sparse_table_is_not_read(tmp_path: Path) -> None:
    """.symtab and .strtab that claim 1 GiB of a hole: nothing is read of it."""
    table = Part(".symtab", SYMTAB, bytes(24), 2, 24)
    data = bytearray(build([table, Part(".strtab", STRTAB, b"\0")]))
    rows = struct.unpack_from("<Q", data, 40)[0]
    for row in (1, 2):
        struct.pack_into("<QQ", data, rows + 64 * row + 24, 1 << 20, 1 << 30)
    file = opened(tmp_path, bytes(data))
    os.truncate(file.path, (1 << 20) + (1 << 30))
    with open(file.path, "rb") as sparse:
        hole = os.lseek(sparse.fileno(), 1 << 20, os.SEEK_HOLE)
    if hole != 1 << 20:
        pytest.skip("this folder has no holes in files")
    assert file.pread_table(1 << 20, 1 << 30) == b"" and file.symbols("malloc") == [] and list(file.every_symbol()) == []


def test_a_number_has_ten_bytes() -> None:
    """More is no number, wherever it would end."""
    assert read_uleb(b"\x80" * 9 + b"\1", 0) == (1 << 63, 10) and read_sleb(b"\x7f", 0) == (-1, 1)
    for data in (b"\xff" * 65_536, b"\x80" * 10 + b"\1"):
        with pytest.raises(ValueError):
            read_uleb(data, 0)


def test_abbreviations_without_end(tmp_path: Path) -> None:
    """4 MiB of 0xFF in .debug_abbrev: one number."""
    info = struct.pack("<IHIB", 8, 4, 0, 8) + b"\1"
    file = opened(tmp_path, build([Part(".debug_info", PROGBITS, info), Part(".debug_abbrev", PROGBITS, b"\xff" * (4 << 20))]))
    before = WORK.steps
    with pytest.raises(Unsupported):
        Dwarf(file).unit_of(0)
    assert spent(before) < 1000


def test_anonymous_structs_are_counted() -> None:
    """Forty levels of two each: members are counted each time they are met."""
    nested = Raw("struct", 8, "innermost")
    for depth in range(40):
        nested = Raw("struct", 8, "n%d" % depth, [("", 0, False, nested)] * 2)
    with pytest.raises(TooMuchWork):
        dwarf.TypeWalk(ByHand({"a": nested}), "").collect(["a"], [], [])
    WORK.exceeded.clear()


@pytest.mark.parametrize(
    ("program", "is_read"),
    [
        (b"\x0a\x0b" * 100, True),
        (b"\x0a" * 65, False),
        (b"\x07" + number(127), True),
        (b"\x07" + number(200), False),
        (b"\x05" + number(200) + number(1), False),
        (b"\x10" + number(200) + number(0), False),
    ],
)
def test_call_frames_are_small(tmp_path: Path, program: bytes, is_read: bool) -> None:
    """Registers that no machine has, and states without end, are no call frames."""
    at = starts([Part("", PROGBITS, b"")], 2)[0]
    head, frames = call_frames(program, at)
    data = build([Part(".eh_frame_hdr", PROGBITS, head), Part(".eh_frame", PROGBITS, frames)], [Segment(LOAD, 5, 0, 0x20000), Segment(0x6474E550, 4, at, len(head))])
    row = images.CallFrames(opened(tmp_path, data)).row(0x10010)
    assert (row is not None) == is_read


def test_packed_relocations_cost_what_they_are(tmp_path: Path) -> None:
    """DT_RELR whose bitmaps cover a hole, in a file of a thousand segments: a step for each place, and nothing is kept."""
    relr = struct.pack("<Q", 0x100000) + struct.pack("<Q", (1 << 64) - 1) * 2000
    dynamic = struct.pack("<QQQQQQ", 36, 0, 35, len(relr), 0, 0)
    parts = [Part(".relr.dyn", PROGBITS, relr), Part(".dynamic", PROGBITS, dynamic)]
    count = elf.MOST_SEGMENTS + 500
    places = starts(parts, count)
    parts[1] = Part(".dynamic", PROGBITS, struct.pack("<QQQQQQ", 36, places[0], 35, len(relr), 0, 0))
    segments = [Segment(DYNAMIC, 4, places[1], len(dynamic)), Segment(LOAD, 4, 0, 0x10000000), *[Segment(LOAD, 4, 0x20000000, 8)] * (count - 2)]
    file, before = opened(tmp_path, build(parts, segments)), WORK.steps
    os.truncate(file.path, 0x10000000)
    image = images.ElfImage(file)
    assert len(file.program_headers()) == elf.MOST_SEGMENTS and not image.own and spent(before) < 200_000


def test_lists_of_objects_end() -> None:
    """Namespaces without end, each with a list that leads into itself late: no more entries are read than there may be objects."""
    reads = [0]

    def read(address: int, size_bytes: int) -> bytes:
        reads[0] += 1
        if address < 0x1000:  # the program's dynamic section: DT_DEBUG
            return struct.pack("<QQQQ", 21, 0x1000, 0, 0)[:size_bytes]
        if address < 0x10000:  # r_debug: version 2, r_map, ..., r_next
            return struct.pack("<QQQQQQ", 2, 0x10000 + (address - 0x1000 << 24), 0, 0, 0, address + 0x30)[address % 0x30 and (address - 0x1000) % 0x30 :][:size_bytes]
        return struct.pack("<QQQQ", address, 0, 0, address + 32)[:size_bytes]

    header = elf.parse_header(build([]))
    assert header is not None
    table = struct.pack("<IIQQQQQQ", 6, 4, 64, 64, 64, 0, 0, 8) + struct.pack("<IIQQQQQQ", DYNAMIC, 4, 0, 0x100, 0, 0, 32, 8)
    objects = LinkMap(lambda address, size: table[:size] if address == 64 else read(address, size), header, {3: 64, 5: 2})
    assert len(objects.objects()) == 1 and not objects.complete and MAX_OBJECTS <= reads[0] < 2 * MAX_OBJECTS


def test_chains_of_hashes_end() -> None:
    """A chain of DT_HASH that leads to itself, for a name that is not there."""
    reads = [0]
    memory = {0x200: struct.pack("<QQQQQQQQ", 4, 0x300, 5, 0x400, 6, 0x500, 0, 0), 0x300: struct.pack("<5I", 1, 1 << 31, 1, 0, 1), 0x400: b"\0x\0", 0x500: bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 0, 0)}

    def read(address: int, size_bytes: int) -> bytes:
        reads[0] += 1
        start = max((at for at in memory if at <= address), default=0)
        return memory.get(start, b"")[address - start :][:size_bytes]

    header = elf.parse_header(build([]))
    assert header is not None
    program = Loaded(LinkMap(read, header, {}).memory, "a.so", 0, 0x200, False, [])
    assert program.lookup(b"nowhere") is None and reads[0] < 5 * MOST_CHAIN


def test_notes_are_bounded(tmp_path: Path) -> None:
    """NT_FILE with names of nothing but ends, and an auxiliary vector of a megabyte."""
    files = struct.pack("<QQQQQ", 1, 4096, 0x1000, 0x2000, 0) + bytes(1 << 20)
    auxv = b"".join(struct.pack("<QQ", kind, kind) for kind in range(1, 1 << 16))
    path = tmp_path / "a.core"
    path.write_bytes(core_file.build([], core_file.note("<", 0x46494C45, files) + core_file.note("<", 6, auxv)))
    notes = CoreFile(str(path)).notes()
    assert [entry.name for entry in notes.files] == [""] and len(notes.auxv) <= elf.MOST_AUXV_BYTES // 16


@pytest.mark.parametrize(("claimed", "judged"), [(4096, 4096), (16384, 16384), (65536, 65536), (1, 4096), (0, 4096), (4097, 4096), (1 << 40, 4096), (2048, 4096)])
def test_pages_are_those_of_machines(claimed: int, judged: int) -> None:
    """AT_PAGESZ of a core is a power of two of 4 to 64 KiB, or not believed."""
    assert read_page_bytes({6: claimed}) == judged and read_page_bytes({}) == 4096


def test_tables_of_symbols_are_few(tmp_path: Path) -> None:
    """A hundred symbol tables: the first ones are read."""
    table, text = symbols([(b"thing", 1)])
    file = opened(tmp_path, build([Part(".strtab", STRTAB, text), *[Part(".dynsym", DYNSYM, table, 1, 24)] * 100]))
    assert len(list(file.every_symbol(exported=True))) == elf.MOST_SYMBOL_TABLES
