"""Types from DWARF, and the one walk over types: what readers see is the same whatever the compiler and the build called it.

Call frames: what is damaged tells nothing, and no more than that; expressions come to what DWARF says.

Files: inferior/arch/aarch64.py, inferior/arch/x86_64.py, inferior/base.py, inferior/elf/dwarf.py, inferior/elf/images.py,
inferior/source.py.
"""

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.inferior.arch import architecture_named
from gdbheapx.inferior.arch.x86_64 import ARCHITECTURE
from gdbheapx.inferior.base import Member, StackCopy, TypeSet
from gdbheapx.inferior.elf import images
from gdbheapx.inferior.elf.dwarf import Dwarf, DwarfReader, DwarfUnits, RawMember, RawType, TypeWalk, Unsupported
from gdbheapx.inferior.elf.file import ElfFile, read_sleb, read_uleb
from gdbheapx.inferior.elf.images import evaluate_expression
from gdbheapx.inferior.target import open_elf_target
from tests.support.builders.raw_types import ByHand, Raw
from tests.support.paths import PROGRAMS
from tools import whole_file

SOURCE = (PROGRAMS / "dwarf_types.c").read_text()
FIRST = SOURCE + "int chosen_function(int x)\n{\n    volatile enum colour_e c = colour_red;\n    return x + (int) table[x].count + plain_enumerator + (int) config_static + c + (je_variable != 0);\n}\n"
SECOND = "struct outer_s { int another; };\nstruct outer_s *elsewhere;\nint other_function(int x)\n{\n    return x * 3 + elsewhere->another;\n}\n"
MAIN = "int chosen_function(int);\nint other_function(int);\nint main(int count, char **words)\n{\n    (void) words;\n    return chosen_function(count) + other_function(count);\n}\n"
STRUCTS = ("outer_s", "inner_s", "either_u", "tagless_t", "colour_e", "missing_s")
VARIABLES = ("variable", "table", "config_thing")
ENUMERATORS = ("colour_green", "plain_enumerator")


def build(folder: Path, *flags: str, compiler: str = "gcc") -> Path:
    """A program of three units, two of which have a struct of one name; skips where the compiler does not know a flag."""
    if not shutil.which(compiler):
        pytest.skip("%s is not installed" % compiler)
    sources = []
    for name, text in (("second.c", SECOND), ("first.c", FIRST), ("main.c", MAIN)):
        sources.append(str(folder / name))
        (folder / name).write_text(text)
    program = folder / "program"
    done = subprocess.run([compiler, "-O1", "-g", *flags, "-o", str(program), *sources], capture_output=True, text=True, cwd=folder)
    if done.returncode:
        pytest.skip("this %s cannot: %s" % (compiler, done.stderr.strip().splitlines()[-1]))
    return program


def read(program: Path, function: str = "chosen_function") -> TypeSet:
    """The types of the function's unit."""
    file = ElfFile(str(program))
    dwarf = Dwarf(file)
    address = file.symbols(function)[0].value
    unit = dwarf.unit_of(address)
    assert unit is not None
    return TypeWalk(DwarfReader(dwarf, unit, address), "je_").collect(STRUCTS, VARIABLES, ENUMERATORS)


def shape(types: TypeSet) -> Tuple[Any, ...]:
    """What two sets are compared by."""
    return types.structs, types.enums, types.variables


def expected() -> Dict[str, Any]:
    """Offsets and kinds that the C standard and the ABI fix, by name."""
    return {
        "bits": None,
        "text": (8, 8, 1, "string"),
        "renamed_text": (16, 8, 1, "string"),
        "no_text": (24, 8, 1, "pointer"),
        "opaque": (32, 8, 1, "pointer"),
        "function": (40, 8, 1, "pointer"),
        "nested": (48, 16, 6, "struct inner_s"),
        "first": (152, 1, 1, "uint"),
        "second": (152, 8, 1, "int"),
        "named": (160, 4, 1, "struct outer_s.named"),
        "colour": (164, 4, 1, "enum colour_e"),
        "either": (168, 8, 1, "struct either_u"),
        "tagless": (176, 8, 1, "struct tagless_t"),
        "yes": (184, 1, 1, "bool"),
        "small": (185, 1, 1, "int"),
        "real": (188, 4, 1, "float"),
        "buffer": (192, 1, 32, "char"),
        "flexible": (232, 4, 0, "uint"),
    }


def check(types: TypeSet) -> None:
    """The set is what the source says."""
    outer = types.structs["outer_s"].members
    for name, member in expected().items():
        assert (tuple(outer[name]) if name in outer else None) == member, name
    assert types.structs["inner_s"].members["wrapped"].kind == "uint"
    assert (types.enumerator("colour_red"), types.enumerator("colour_blue"), types.enumerator("plain_enumerator")) == (-3, 70000, 5)
    assert types.variables["table"].count == 7 and types.variables["table"].kind == "struct inner_s"
    assert types.variables["variable"].kind == "pointer" and types.variables["config_thing"].kind == "bool"

GCC = [("-gdwarf-%d" % version,) for version in (2, 3, 4, 5)] + [("-gdwarf-4", "-gz=zlib"), ("-gz=zlib",), ("-gdwarf64",), ("-g3",), ("-ffunction-sections",)]


@pytest.mark.parametrize("flags", GCC, ids=" ".join)
def test_gcc(tmp_path: Path, flags: Sequence[str]) -> None:
    """Every version, width and way to compress that gcc writes gives the types of the source, and those that pyelftools reads."""
    program = build(tmp_path, *flags)
    types = read(program)
    check(types)
    pytest.importorskip("elftools")
    reader = whole_file.WholeReader(whole_file.open_elftools(str(program)), "table")
    assert shape(types) == shape(TypeWalk(reader, "je_").collect(STRUCTS, VARIABLES, ENUMERATORS))


@pytest.mark.parametrize("flags", [("-gdwarf-4",), ("-gdwarf-5",), ("-gdwarf-5", "-ffunction-sections"), ("-gdwarf-4", "-gdwarf-aranges")], ids=" ".join)
def test_clang(tmp_path: Path, flags: Sequence[str]) -> None:
    """clang writes no table of ranges, no siblings, and in version 5 strings and addresses by index."""
    program = build(tmp_path, *flags, compiler="clang-14")
    if "-gdwarf-5" in flags:
        types = DwarfUnits().reader(ElfFile(str(program)), ElfFile(str(program)).symbols("chosen_function")[0].value)
        if types is None:
            return  # addresses by index: gdb is asked
    check(read(program))


def test_the_unit_is_that_of_the_function(tmp_path: Path) -> None:
    """Two units have a struct of one name: each function's unit gives its own."""
    program = build(tmp_path)
    assert list(read(program, "other_function").structs["outer_s"].members) == ["another"]
    assert "another" not in read(program).structs["outer_s"].members


def test_constants(tmp_path: Path) -> None:
    """A const variable that the compiler put where it is used has its value in the debug information alone."""
    program = build(tmp_path)
    reader = DwarfUnits().reader(ElfFile(str(program)), ElfFile(str(program)).symbols("chosen_function")[0].value)
    assert reader is not None and reader.constant("config_static") == -7 and reader.constant("table") is None and reader.constant("none") is None


def test_types_in_other_units(tmp_path: Path) -> None:
    """Link-time optimization and dwz move types into other units: they are followed there, or it is said that they are not understood."""
    program = build(tmp_path, "-flto", "-fno-inline", "-gdwarf-4")
    check(read(program))
    if shutil.which("dwz"):
        subprocess.run(["dwz", str(program)], check=True)
        check(read(program))


def test_type_units_are_left_to_gdb(tmp_path: Path) -> None:
    """Types that are found by signature alone are Unsupported, never missing without a word."""
    program = build(tmp_path, "-fdebug-types-section", "-gdwarf-4")
    with pytest.raises(Unsupported):
        read(program).structs["outer_s"]


def test_no_function_there(tmp_path: Path) -> None:
    """An address of no unit gives none."""
    assert Dwarf(ElfFile(str(build(tmp_path)))).unit_of(0x10) is None


def test_a_target_needs_no_gdb_for_types(tmp_path: Path) -> None:
    """ElfTarget reads them of a process: the function's unit by its symbol, the constant too."""
    program = build(tmp_path)
    waiting = tmp_path / "main.c"
    waiting.write_text(MAIN.replace("return", "__builtin_puts(\"ready\"); fflush(stdout); getchar(); return").replace("int main", "#include <stdio.h>\nint main", 1))
    subprocess.run(["gcc", "-O1", "-g", "-o", str(program), str(waiting), str(tmp_path / "first.c"), str(tmp_path / "second.c")], check=True)
    with subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"ready\n"
            target = open_elf_target(pid=process.pid)
            near = target.function(target.modules()[0], "chosen_function")
            assert near is not None and near.source == "debug-info" and target.constant("config_static", near) == -7
            types = target.types(near, STRUCTS, VARIABLES, ENUMERATORS, "je_")
            assert types is not None
            check(types)
            assert target.function(target.modules()[0], "no_such_function") is None
        finally:
            process.kill()


def spoil(data: bytes, spans: Sequence[Tuple[int, int]], chance: random.Random) -> bytes:
    """The file with one or more bytes of these (place, size) changed."""
    copy = bytearray(data)
    for _ in range(chance.choice((1, 4, 40))):
        start, size = chance.choice(spans)
        copy[start + chance.randrange(size)] = chance.choice((0, 0xFF, 0x7F, 0x80, chance.randrange(256)))
    return bytes(copy)


@pytest.mark.parametrize("flags", [("-gdwarf-4",), ("-gdwarf-5",), ("-gz=zlib",)], ids=" ".join)
def test_damage(tmp_path: Path, flags: Sequence[str]) -> None:
    """Flipped bytes in the debug sections give types, none, or Unsupported, and come to an end."""
    program = build(tmp_path, *flags)
    data = program.read_bytes()
    file = ElfFile(str(program))
    address = file.symbols("chosen_function")[0].value
    spans = [(one.offset, one.size_bytes) for one in file.sections() if one.name.startswith(".debug_") and one.size_bytes]
    chance = random.Random(71)
    outcomes: List[str] = []
    damaged = tmp_path / "damaged"
    for _ in range(150):
        damaged.write_bytes(spoil(data, spans, chance))
        reader = DwarfUnits().reader(ElfFile(str(damaged)), address)
        try:
            TypeWalk(reader, "je_").collect(STRUCTS, VARIABLES, ENUMERATORS) if reader is not None else None
            outcomes.append("read" if reader is not None else "none")
        except (Unsupported, RecursionError):
            outcomes.append("unsupported")
    assert len(set(outcomes)) > 1


def test_damage_to_a_whole_file(tmp_path: Path) -> None:
    """Flipped bytes in what pyelftools reads end in types or in an error that is known as such."""
    pytest.importorskip("elftools")
    program = build(tmp_path)
    data, damaged, chance = program.read_bytes(), tmp_path / "damaged", random.Random(72)
    spans = [(one.offset, one.size_bytes) for one in ElfFile(str(program)).sections() if one.name in (".debug_abbrev", ".debug_str", ".debug_info")]
    outcomes = set()
    for _ in range(60):
        damaged.write_bytes(spoil(data, spans, chance))
        try:
            TypeWalk(whole_file.WholeReader(whole_file.open_elftools(str(damaged)), "table"), "je_").collect(STRUCTS, VARIABLES, ENUMERATORS)
            outcomes.add("read")
        except (whole_file.PyelftoolsError, *whole_file.elftools_errors()):
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_a_copy_without_debug_information(tmp_path: Path) -> None:
    """What gdb gets for unwinding: code, tables and symbols of the file, a fraction of its size on disk, no debug information."""
    from gdbheapx.inferior.source import Openable, has_debug_info

    program = build(tmp_path, "-g3")
    openable = Openable()
    assert openable.name(str(program)) == str(program) and has_debug_info(str(program))
    name = openable.name(str(program), debug_info=False)
    assert name and name != str(program) and not has_debug_info(name)
    file, copy = ElfFile(str(program)), ElfFile(name)
    assert copy.program_headers() == file.program_headers() and sorted(copy.every_symbol()) == sorted(file.every_symbol())
    for one in copy.sections():
        if not one.name.startswith(".debug") and one.type != 8:
            assert copy.pread(one.offset, one.size_bytes) == file.pread(one.offset, one.size_bytes), one.name
    subprocess.run(["strip", "--strip-debug", str(program)], check=True)
    assert Openable().name(str(program), debug_info=False) == str(program)


def member(name: str, offset: int, kind: RawType, is_bit_field: bool = False) -> RawMember:
    """A member."""
    return (name, offset, is_bit_field, kind)

UINT = Raw("uint")
ATOMIC = Raw("struct", 8, "atomic_zu_t", [member("repr", 0, UINT)])
LOCKED = Raw("struct", 8, "locked_u64_s", [member("val", 0, ATOMIC)])


def walk(members: List[RawMember], prefix: str = "je_") -> Any:
    """The struct s_s with these members, walked."""
    return TypeWalk(ByHand({"s_s": Raw("struct", 64, "s_s", members)}), prefix).collect(["s_s", "missing_s"], [], [])


def test_atomics_are_scalars() -> None:
    """A struct whose only member is repr or val reads as that scalar, also twice around and in arrays; others do not."""
    time = Raw("struct", 8, "nstime_t", [member("ns", 0, UINT)])
    array = Raw("array", 32, element=(ATOMIC, 4))
    found = walk([member("a", 0, ATOMIC), member("b", 8, LOCKED), member("c", 16, array), member("d", 48, time)])
    assert found.structs["s_s"].members == {
        "a": Member(0, 8, 1, "uint"),
        "b": Member(8, 8, 1, "uint"),
        "c": Member(16, 8, 4, "uint"),
        "d": Member(48, 8, 1, "struct nstime_t"),
    }
    assert sorted(found.structs) == ["nstime_t", "s_s"]


def test_a_struct_that_contains_itself_ends() -> None:
    """Damaged debug information in which a struct contains itself by value does not hang the walk."""
    loop = Raw("struct", 64, "s_s")
    loop._members = [member("me", 0, loop), member("x", 8, UINT)]
    found = TypeWalk(ByHand({"s_s": loop}), "").collect(["s_s"], [], [])
    assert list(found.structs["s_s"].members) == ["me", "x"]
    loop._members = [member("val", 0, loop)]
    assert list(TypeWalk(ByHand({"s_s": loop}), "").collect(["s_s"], [], []).structs) == ["s_s"]

FOREIGN = Path(__file__).parents[3] / ".cache" / "foreign" / "arm64"
NUMBERS: Any = ARCHITECTURE.unwinding
WORDS = {0x1000 + 8 * number: 0x2000 + number for number in range(16)}


def libc() -> str:
    """The C library of this interpreter."""
    with open("/proc/self/maps") as maps:
        found = [line.split()[-1] for line in maps if "/libc.so.6" in line or "/libc-2." in line]
    if not found:
        pytest.skip("no shared libc")
    return found[0]


def test_rows_of_a_library() -> None:
    """Nearly all functions of libc have a row at each place, and their callers' stack pointers lie above."""
    frames = images.CallFrames(ElfFile(libc()))
    rows: List[Optional[images.UnwindRow]] = [frames.row(start) for start, _ in frames._table[::20]]
    known = [row for row in rows if row is not None]
    assert len(known) > 0.9 * len(rows) > 10
    by_stack = [row for row in known if row.register == NUMBERS.sp]
    saved = [row for row in by_stack if row.rules.get(NUMBERS.pc, ())[:2] == (images.SAVED, -8)]
    assert len(saved) > 0.98 * len(by_stack)  # of those that nobody returns from, as a thread's first, it is told otherwise
    plain = [row for row in known if (row.register, row.offset, len(row.rules)) == (NUMBERS.sp, 8, 1)]
    assert len(plain) > 0.5 * len(known)
    one = plain[0]
    after = images.unwind_caller(one, {NUMBERS.sp: 0x1000, 3: 7, 0: 1}, WORDS.get, NUMBERS)
    assert after == {NUMBERS.sp: 0x1008, NUMBERS.pc: 0x2000, 3: 7}


def test_the_last_function_has_an_end() -> None:
    """All functions of a library have one, as their own entry says: none begins behind the last, which was lost for that."""
    frames = images.CallFrames(ElfFile(libc()))
    found = frames.functions()
    assert found and all(start < end for start, end in found)
    last = max(range(len(found)), key=lambda place: found[place][0])
    assert frames.row(found[last][1] - 1) is not None and frames.row(found[last][1]) is None


class Damaged:
    """A file of which bytes were changed."""

    at = ElfFile.at

    def __init__(self, file: ElfFile, rng: random.Random) -> None:
        self.header, self.program_headers, self._file, self._rng = file.header, file.program_headers, file, rng
        self.work, self.pread_table = file.work, self.pread
        self.spoils = False

    def pread(self, offset: int, size: int) -> bytes:
        """With some of them changed."""
        data = bytearray(self._file.pread(offset, size))
        for _ in range(self._rng.randrange(4) if self.spoils and data else 0):
            data[self._rng.randrange(len(data))] = self._rng.randrange(256)
        return bytes(data[: self._rng.randrange(len(data) + 1)] if self.spoils and self._rng.random() < 0.1 else data)


@pytest.mark.parametrize("seed", range(20))
def test_damage_tells_nothing(seed: int) -> None:
    """No exception, whatever stands there."""
    rng = random.Random(seed)
    damaged: Any = Damaged(ElfFile(libc()), rng)
    frames = images.CallFrames(damaged)
    damaged.spoils = True
    for _ in range(200):
        start = rng.choice(frames._table)[0]
        row = frames.row(start + rng.randrange(64))
        if row is not None:
            images.unwind_caller(row, dict.fromkeys(range(17), 4096), WORDS.get, NUMBERS)


def test_expressions() -> None:
    """Of the procedure linkage table, of a signal's frame; what is not known, or no operation that is read."""
    registers: Dict[int, int] = {7: 0x1000, 16: 0x1234b}
    linkage = bytes((0x77, 8, 0x80, 0, 0x3F, 0x1A, 0x3B, 0x2A, 0x33, 0x24, 0x22))
    assert evaluate_expression(linkage, registers, WORDS.get, None) == 0x1008 + (8 if 0x1234B & 15 >= 11 else 0)
    assert evaluate_expression(bytes((0x77, 16, 0x06)), registers, WORDS.get, None) == 0x2002
    for data in (b"\x76\x00", b"\xff", b"\x06", b""):
        assert evaluate_expression(data, registers, WORDS.get, None) is None
    assert (read_uleb(b"\xe5\x8e\x26", 0), read_sleb(b"\x9b\xf1\x59", 0), read_sleb(b"\x7f", 0)) == ((624485, 3), (-624485, 3), (-1, 1))

SIGNATURE = 0x2A << 48
"""Bits that pacia has put above an address."""


def of_aarch64(program: bytes) -> images.UnwindRow:
    """What such instructions of an entry come to."""
    row = images.UnwindRow(4, -8, False)
    row.run(bytes((0x0C, 31, 0)) + program, None)
    return row


def test_a_signed_return_address_is_one() -> None:
    """On aarch64 the return address is a register, saved or not; what signs it is no part of the address; nobody is called twice by it."""
    arch: Any = architecture_named("aarch64")
    signed_frame = of_aarch64(bytes((0x2D, 0x0E, 32, 0x9D, 4, 0x9E, 3)))  # negate_ra_state, def_cfa_offset 32, x29 at -32, x30 at -24
    rows = {0x5FFF: signed_frame, 0x6FFF: of_aarch64(bytes((0x0E, 16)))}
    stack = b"".join(word.to_bytes(8, "little") for word in (0x1100, 0x7000 | SIGNATURE, 0, 0, 0, 0))
    general = dict.fromkeys(arch.registers.names, 0)
    general.update(pc=0x5FFF, sp=0x1000, x30=1)
    copy = StackCopy(0x1000, 0x5FFF, [general[name] for name in arch.registers.names], stack)
    found = images.walk_calls(copy, rows.get, arch)
    assert [(call.pc, call.start, call.end) for call in found] == [(0x5FFF, 0x1000, 0x1020), (0x7000, 0x1020, 0x1030)]


def test_rows_of_a_library_of_aarch64() -> None:
    """Nearly all functions of its libc have a row at each place, and save the return address beside the frame pointer."""
    file = FOREIGN / "lib" / "aarch64-linux-gnu" / "libc.so.6"
    if not file.exists():
        pytest.skip("no libc of arm64: tools/foreign_libc.sh")
    frames, numbers = images.CallFrames(ElfFile(str(file))), architecture_named("aarch64").unwinding
    rows = [frames.row(start + 32) for start, _ in frames._table[::20]]
    known = [row for row in rows if row is not None]
    assert numbers is not None and len(known) > 0.9 * len(rows) > 100
    saving = [row for row in known if numbers.returns in row.rules]
    assert len(saving) > 0.5 * len(known)
    assert all(row.rules[29][1] + 8 == row.rules[30][1] for row in saving if 29 in row.rules and row.rules[30][0] == images.SAVED)
