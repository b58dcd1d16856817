"""Types from DWARF, and the one walk over types: what readers see is the same whatever the compiler and the build called it.

Files: inferior/elf/dwarf.py, inferior/source.py, inferior/base.py.
"""

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import pytest

from gdbheapx.inferior.base import Member, TypeSet
from gdbheapx.inferior.elf.dwarf import Dwarf, DwarfReader, DwarfUnits, RawMember, RawType, TypeWalk, Unsupported
from gdbheapx.inferior.elf.file import ElfFile
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


UINT, INT, POINTER = Raw("uint"), Raw("int", 4), Raw("pointer")
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
