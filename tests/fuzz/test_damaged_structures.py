"""Structures that say of themselves what is not so: no parser raises what is no error of this project, or takes more steps than it has input.

`make fuzz` searches for ten minutes; the suite tries the same examples each time. What counts is calls, not seconds.
"""

import os
import struct
import sys
from pathlib import Path
from typing import Any, Callable, List, Sequence, Tuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdbheapx.common import problems
from gdbheapx.common.budget import WORK
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.model import Problem
from gdbheapx.inferior.elf import demangle, images
from gdbheapx.inferior.elf.dwarf import Dwarf, DwarfReader, TypeWalk, Unsupported
from gdbheapx.inferior.elf.file import ElfFile, parse_header
from gdbheapx.inferior.elf.link_map import LinkMap, find_tls
from gdbheapx.inferior.source import CoreSource
from gdbheapx.snapshot import container, record
from tests.support.builders import core_file
from tests.support.builders.elf_file import (
    DYNSYM,
    NOTE,
    PROGBITS,
    STRTAB,
    SYMTAB,
    Part,
    Segment,
    build,
    call_frames,
    number,
    starts,
    symbols,
)

pytestmark = pytest.mark.once  # searches at random

IS_LONG = bool(os.environ.get("GDBHEAPX_FUZZ"))
EXAMPLES = 400 if not IS_LONG else 1000
MOST_CALLS = 3_000_000
"""Of one example of at most some 20 KiB."""
ERRORS = (HeapxError, Unsupported)
NUMBERS = st.one_of(
    st.sampled_from([0, 1, 2, 7, 8, 24, 64, 255, 4096, 0xFFFF, 1 << 20, (1 << 31) - 1, 1 << 32, 1 << 47, (1 << 63) - 1, (1 << 64) - 1]),
    st.integers(0, 0x3000),
)
PATCHES = st.lists(st.tuples(st.integers(0, 1 << 16), st.sampled_from([1, 2, 4, 8]), NUMBERS), max_size=6)
search = settings(
    max_examples=EXAMPLES, derandomize=not IS_LONG, deadline=None, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def counted(step: Callable[[], Any]) -> None:
    """Run it: AssertionError where it makes too many calls. Its own errors are answers."""
    calls = [0]

    def count(frame: Any, event: str, argument: Any) -> None:
        calls[0] += 1
        if calls[0] > MOST_CALLS:
            sys.setprofile(None)
            raise AssertionError("more than %d calls" % MOST_CALLS)

    before = sys.getprofile()
    WORK.begin()
    sys.setprofile(count)
    try:
        step()
    except ERRORS:
        pass
    finally:
        sys.setprofile(before)
        WORK.exceeded.clear()
        WORK.begin()


def patched(data: bytes, patches: Sequence[Tuple[int, int, int]], places: Sequence[int] = ()) -> bytes:
    """With other numbers at some places: of `places`, where there are some, else anywhere."""
    changed = bytearray(data)
    for at, size, value in patches:
        at = places[at % len(places)] if places else at % max(1, len(data) - 8)
        changed[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    return bytes(changed)


def debug_parts() -> List[Part]:
    """A unit of C with a struct of two members, one of which is a struct without a name, and a function at 0x10000."""
    abbreviations = b"".join(
        number(code) + number(tag) + bytes((children,)) + b"".join(map(number, pairs)) + b"\0\0"
        for code, tag, children, pairs in (
            (1, 0x11, 1, (0x13, 0x0B, 0x11, 0x01, 0x12, 0x07)),
            (2, 0x13, 1, (0x03, 0x08, 0x0B, 0x0B)),
            (3, 0x0D, 0, (0x03, 0x08, 0x49, 0x13, 0x38, 0x0F)),
            (4, 0x24, 0, (0x03, 0x0E, 0x0B, 0x0B, 0x3E, 0x0B)),
            (5, 0x2E, 0, (0x11, 0x01, 0x03, 0x08)),
        )
    )
    body = number(1) + b"\x0c" + struct.pack("<QQ", 0x10000, 0x1000)
    inner = 11 + len(body) + len(number(4)) + 6
    body += number(4) + struct.pack("<IBB", 1, 4, 5)
    body += number(2) + b"inner\0\x04" + number(3) + b"a\0" + struct.pack("<I", inner - 7) + number(0) + b"\0"
    body += number(2) + b"outer\0\x08" + number(3) + b"\0" + struct.pack("<I", inner) + number(0) + number(3) + b"b\0" + struct.pack("<I", inner - 7) + number(4) + b"\0"
    body += number(5) + struct.pack("<Q", 0x10000) + b"work\0\0"
    info = struct.pack("<IHIB", 7 + len(body), 4, 0, 8) + body
    return [Part(".debug_info", PROGBITS, info), Part(".debug_abbrev", PROGBITS, abbreviations + b"\0"), Part(".debug_str", PROGBITS, b"\0int\0")]


def specimen(program: bytes = b"\x0e\x10") -> Tuple[bytes, List[int]]:
    """(an object with all that is parsed, where its structures have their numbers)."""
    table, text = symbols([(b"malloc", 0x10000), (b"je_mallctl", 0x10010), (b"_ZTV1a", 0x200), (b"_ZZN1aIJiiiEEEvDpT_E1x", 8)])
    words = struct.pack("<20Q", *(0x10000 + 8 * at for at in range(20)))
    note = struct.pack("<III", 4, 20, 3) + b"GNU\0" + bytes(range(20))
    relocations = struct.pack("<QQq", 0x1200, 8, 0x10000) * 4 + struct.pack("<QQq", 0x1210, 2 << 32 | 1, 0)
    packed = bytes(16)
    parts = [Part(".symtab", SYMTAB, table, 2, 24), Part(".strtab", STRTAB, text), Part(".dynsym", DYNSYM, table, 2, 24), Part(".note", NOTE, note)]
    parts += [Part(".rela.dyn", PROGBITS, relocations), Part(".relr.dyn", PROGBITS, packed), Part(".data", PROGBITS, words), Part(".dynamic", PROGBITS, bytes(16 * 12)), *debug_parts()]
    parts += [Part(".eh_frame_hdr", PROGBITS, bytes(24)), Part(".eh_frame", PROGBITS, b"")]
    at = starts(parts, 5)
    head, frames = call_frames(program, at[11])
    parts[11], parts[12] = Part(".eh_frame_hdr", PROGBITS, head), Part(".eh_frame", PROGBITS, frames)
    tags = (5, at[1], 10, len(text), 6, at[2], 7, at[4], 8, len(relocations), 36, at[5], 35, len(packed), 4, at[6], 23, at[4], 2, 24, 20, 7, 0, 0)
    parts[5] = Part(".relr.dyn", PROGBITS, struct.pack("<QQ", at[6], (1 << 64) - 1))
    parts[7] = Part(".dynamic", PROGBITS, struct.pack("<24Q", *tags))
    segments = [Segment(1, 5, 0, 0x20000), Segment(2, 6, at[7], 16 * 12), Segment(4, 4, at[3], len(note)), Segment(0x6474E550, 4, at[11], 24), Segment(7, 4, at[6], 64)]
    data = build(parts, segments)
    rows = struct.unpack_from("<Q", data, 40)[0]
    numbers = [16, 18, 32, 40, 54, 56, 58, 60, 62, *range(64, 64 + 56 * 5, 8), *range(rows, len(data), 8)]
    numbers += [place for part in (0, 2, 3, 4, 5, 7, 11) for place in range(at[part], at[part] + len(parts[part].data), 4)]
    return data, numbers


OBJECT, PLACES = specimen()


def read_object(path: str) -> None:
    """All that is asked of one."""
    try:
        file = ElfFile(path)
    except ValueError:
        return
    file.build_id()
    for name in ("malloc", "x"):
        file.symbols(name)
    file.names_ending("mallctl"), file.names_starting("je_")
    for name, _ in file.every_symbol(exported=True):
        demangle.demangle_variable(name)
    frames = images.CallFrames(file)
    frames.row(0x10010)
    for step in (lambda: images.find_raw_vtables(file, [file]), lambda: images.read_code(file), lambda: read_types(file)):
        try:
            step()
        except ERRORS:
            continue


def read_types(file: ElfFile) -> None:
    """Those of the unit at 0x10010."""
    dwarf = Dwarf(file)
    unit = dwarf.unit_of(0x10010)
    if unit is not None:
        try:
            TypeWalk(DwarfReader(dwarf, unit, 0x10000), "").collect(["outer", "inner"], ["work"], [])
        except RecursionError:
            pass


def test_the_specimen_is_whole(tmp_path: Path) -> None:
    """What is changed by the others is read to its end when nothing is changed."""
    path = tmp_path / "a.so"
    path.write_bytes(OBJECT)
    file = ElfFile(str(path))
    dwarf = Dwarf(file)
    unit = dwarf.unit_of(0x10010)
    assert unit is not None and file.names_ending("mallctl") == ["je_mallctl"] and file.build_id() == bytes(range(20)).hex()
    types = TypeWalk(DwarfReader(dwarf, unit, 0x10000), "").collect(["outer"], [], [])
    assert sorted(types.structs["outer"].members) == ["a", "b"] and images.CallFrames(file).row(0x10010) is not None
    image = images.ElfImage(file)
    assert len(image.own) > 8 and len(images.read_code(file).functions) == 1  # type: ignore[union-attr]


@search
@given(PATCHES, st.booleans(), st.integers(0, len(OBJECT)))
def test_objects(tmp_path: Path, patches: List[Tuple[int, int, int]], is_anywhere: bool, cut: int) -> None:
    """Headers, sections, symbols, relocations, notes and debug information with other numbers in them, and files that are cut."""
    path = tmp_path / "a.so"
    data = patched(OBJECT, patches, () if is_anywhere else PLACES)
    path.write_bytes(data[:cut] if cut % 8 == 0 else data)
    counted(lambda: read_object(str(path)))


@search
@given(st.lists(st.one_of(st.binary(max_size=4), st.sampled_from([b"\x0a", b"\x0b", b"\x07\xc8\1", b"\x0e\xff\xff\x7f", b"\x0f\3\x96\x96\x96", b"\x16\7\2\x96\x06"])), max_size=60), st.integers(1, 40))
def test_call_frames(tmp_path: Path, parts: List[bytes], times: int) -> None:
    """Programs of DW_CFA_* that nobody writes."""
    path = tmp_path / "a.so"
    path.write_bytes(specimen((b"".join(parts) * times)[:8192])[0])

    def read() -> None:
        row = images.CallFrames(ElfFile(str(path))).row(0x10010)
        numbers = ElfFile(str(path)).header.arch.unwinding
        if row is not None and numbers is not None:
            images.unwind_caller(row, dict.fromkeys(range(17), 4096), lambda address: address, numbers)

    counted(read)


@search
@given(PATCHES, st.binary(max_size=300), st.lists(st.tuples(st.sampled_from([1, 3, 6, 0x46494C45, 0x53494749, 2]), st.binary(max_size=500)), max_size=8))
def test_cores(tmp_path: Path, patches: List[Tuple[int, int, int]], memory: bytes, notes: List[Tuple[int, bytes]]) -> None:
    """Notes and program headers of cores: threads, mapped files and the auxiliary vector."""
    every = core_file.note("<", 6, struct.pack("<12Q", 3, 0x400040, 5, 2, 6, 4096, 25, 0x400100, 31, 0x400110, 0, 0))
    every += core_file.note("<", 0x46494C45, struct.pack("<8Q", 2, 4096, 0x400000, 0x401000, 0, 0x500000, 0x501000, 1) + b"/nowhere/a\0/nowhere/b\0")
    every += core_file.note("<", 1, bytes(336)) + b"".join(core_file.note("<", kind, data) for kind, data in notes)
    pieces = [core_file.Piece(0x400000, 0x2000, OBJECT[:0x1000]), core_file.Piece(0x500000, 0x1000, memory)]
    data = core_file.build(pieces, every)
    path = tmp_path / "a.core"
    path.write_bytes(patched(data, patches, range(0, 64 + 56 * 3 + len(every), 2)))

    def read() -> None:
        source = CoreSource(str(path))
        source.problems(), source.mappings(), source.memory_use(), source.undumped_files(), source.threads()
        objects = LinkMap(source.read_prefix, source.header, source.auxv())
        source.add_missing(objects)
        for loaded in objects.objects():
            loaded.build_id(), loaded.span(), loaded.lookup(b"malloc")

    counted(read)


@search
@given(st.lists(st.tuples(st.integers(0, 40), NUMBERS), max_size=24), st.lists(st.integers(0, 63), max_size=40), PATCHES)
def test_link_maps(words: List[Tuple[int, int]], nodes: List[int], patches: List[Tuple[int, int, int]]) -> None:
    """Lists of objects that lead anywhere, among others into themselves, and the tables that their objects have."""
    image = bytearray(patched(OBJECT, patches, PLACES).ljust(0x3000, b"\0"))
    dynamic = next(struct.unpack_from("<Q", image, 64 + 56 * row + 16)[0] for row in (1,)) % 0x2F00
    debug = 0x3000
    tail = bytearray(struct.pack("<6Q", 2, 0x3100, 0, 0, 0, debug).ljust(0x100, b"\0"))
    for place in range(64):
        following = nodes[place % len(nodes)] if nodes else place + 1
        tail += struct.pack("<4Q", place // 2 * 0x1000, 0x3F00, dynamic, 0x3100 + 32 * following)
    tail = bytearray(tail.ljust(0xF00, b"\0") + b"/a/b.so\0").ljust(0x1000, b"\0")
    for at, value in words:
        struct.pack_into("<Q", tail, 8 * at, value)
    image += tail
    struct.pack_into("<QQ", image, dynamic, 21, debug)
    header = parse_header(OBJECT)
    assert header is not None

    def read(address: int, size_bytes: int) -> bytes:
        return bytes(image[address : address + min(size_bytes, 1 << 20)]) if 0 <= address < len(image) else b""

    def ask() -> None:
        objects = LinkMap(read, header, {3: 64, 5: 5})
        for loaded in objects.objects():
            loaded.lookup(b"malloc"), list(loaded.names_ending("mallctl")), list(loaded.exported_symbols()), find_tls(loaded)

    counted(ask)


HEAD = record.SnapshotHead("1", "2026-11-30T12:00:00Z", "core", 5, "/bin/x", None, None, None, True, [], [], [])
RECORD = record.SnapshotRecord(HEAD, {"arenas": record.RecordedOutcome(True, [Problem(problems.CORE_CUT, None, "what", None)])}, {"census": {"rows": []}})
VALUES = st.recursive(st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=8)), lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)))


@search
@given(st.sampled_from(["head", "outcomes", "models"]), VALUES, PATCHES, st.booleans())
def test_snapshots(tmp_path: Path, name: str, value: Any, patches: List[Tuple[int, int, int]], is_packed: bool) -> None:
    """Other documents under right checksums, and other bytes."""
    path = tmp_path / "a.snap"
    parts = dict(RECORD.parts())
    if is_packed:
        from gdbheapx.report import encodings

        parts[name if name in parts else next(iter(parts))] = container.pack_part([encodings.encode_json(value).encode()])
    container.write_file(str(path), parts)
    if not is_packed:
        path.write_bytes(patched(path.read_bytes(), patches))
    counted(lambda: record.open_snapshot(str(path)))
