"""Rust: containers and trait objects in a stripped program, and jemalloc's types from its own units, without gdb.

The vtables of a module name the class of every object of a C++ program; names that a stripped library exports, of a core alone.

Files: analysis/reachability/heap_graph.py, inferior/elf/link_map.py, inferior/gdb/target.py.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.analysis.census.rust import TraitObjects
from gdbheapx.analysis.census.world import PLACE, SHAPE
from gdbheapx.inferior.base import ClassVtable
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.jemalloc.entry import ALLOCATOR
from tests.support import jemallocs
from tests.support.censuses import told, where
from tests.support.jemallocs import preloads
from tests.support.paths import GDB, PROGRAMS
from tests.support.processes import Process, Stage, by_turns
from tests.support.programs import need
from tests.support.tool import alone, heapx, run

pytestmark = pytest.mark.once  # its compiler alone says how a vtable is laid out


def started(stage: Stage, name: str, *options: str, env: Optional[Dict[str, str]] = None) -> Process:
    """The program at rest, stripped if the options do not say otherwise."""
    made = stage.builder.build_by("rustc", "-O", *(options or ("-C", "strip=symbols")), name="rust/%s.rs" % name)
    return stage.spawn_ready([str(made)], stage.folder(), env)

NAMES = {
    "hashes": r"table of a HashMap or HashSet",
    "dyns": r"dyn holds\+0x[0-9a-f]+ \((24|72) B\)",
    "shared": r"Rc or Arc of dyn holds\+0x[0-9a-f]+ \((24|72) B\)",
    "counted": r"Rc or Arc",
    "btrees": r"node of a BTreeMap or BTreeSet",
    "vecs": r"Vec or String \{capacity, pointer, length\}|Box<dyn>\[\]",
}
"""What the program calls its blocks -> what the census does. A Vec of trait objects is told as such."""

MOST_UNNAMED = 0.05


@by_turns("way", ["glibc", "jemalloc"], "core")
def test_containers(stage: Stage, kind: str, way: str) -> None:
    """There are as many blocks of each kind as it says, with the program's file and without; few bytes have no name."""
    process = started(stage, "holds", env=preloads(way))
    made = dict(line.split() for line in process.stderr_path.read_text().splitlines())
    where_: List[str] = [] if kind == "live" or way == "jemalloc" else ["--sysroot", str(stage.folder())]
    rows = alone([*process.target(kind), *where_], "census", "--json", "--max-stop", "100").envelope["data"]["rows"]
    assert {name: blocks_of(rows, shown) for name, shown in NAMES.items()} == {name: int(blocks) for name, blocks in made.items()}
    unnamed = sum(row["bytes"] for row in rows if row["signature"] is None)
    assert unnamed < MOST_UNNAMED * sum(row["bytes"] for row in rows)


@by_turns("way", ["glibc", "jemalloc"])
def test_tables_are_held(stage: Stage, kind: str, way: str) -> None:
    """A HashMap points to the middle of its table: that holds it. No block of the program is held by a pointer to just its inside."""
    process = started(stage, "holds", env=preloads(way))
    found = alone(process.target(kind), "leaks", "--json", "--no-weak").envelope["data"]["classes"]
    assert "inside" not in found["maybe"]["by_evidence"] and not found["leaked"]["blocks"] and found["held"]["blocks"] > 20000


def blocks_of(rows: List[Dict[str, Any]], name: str) -> int:
    """Of the rows whose names are so."""
    return sum(row["blocks"] for row in rows if re.fullmatch(name, row["signature"] or ""))


@pytest.mark.parametrize("option", ["symbol-mangling-version=v0", "debuginfo=0"])
def test_types_by_symbols(stage: Stage, option: str) -> None:
    """With symbols, mangled as of today or as this compiler does by itself, what a trait object leads to has the name of its type."""
    process = started(stage, "holds", "-C", option)
    rows = alone(process.target("live"), "census", "--json").envelope["data"]["rows"]
    found = {row["signature"]: row["blocks"] for row in rows if "dyn holds" in (row["signature"] or "")}
    assert found == {
        "dyn holds::Square": 700,
        "dyn holds::Circle": 600,
        "Rc or Arc of dyn holds::Circle": 800,
        "Rc or Arc of dyn holds::Square": 900,
    }


def test_a_library(stage: Stage, kind: str) -> None:
    """What a library in Rust keeps in a program that is not is told, and little else is taken for it."""
    library, folder = stage.builder.build_by("rustc", "-O", "-C", "strip=symbols", "--crate-type", "cdylib", name="rust/library.rs"), stage.folder()
    python = "import ctypes, sys; ctypes.CDLL(%r).keep(); print('ready', flush=True); sys.stdin.read()" % str(library)
    process = stage.spawn_ready([sys.executable, "-c", python], folder, {"PYTHONMALLOC": "malloc"})
    rows = alone(process.target(kind), "census", "--json").envelope["data"]["rows"]
    assert blocks_of(rows, r"dyn library\+0x[0-9a-f]+ \(24 B\)") == 500
    assert 500 <= blocks_of(rows, NAMES["vecs"]) <= 510
    assert blocks_of(rows, r"node of a BTreeMap.*|Rc or Arc.*") == 0


def test_trait_objects(stage: Stage, kind: str) -> None:
    """Vectors of boxed trait objects and structs that begin with one, in a stripped program: as many as it made, and no other block."""
    process = started(stage, "dyns")
    every = told([TraitObjects()], **where(process, kind))
    assert sorted((one.sure, one.module, count) for one, count in every.items()) == [(PLACE, "dyns", 500), (SHAPE, "dyns", 500)]
    assert {one.name.split(" dyns+")[0] for one in every} == {"Box<dyn>[]", "begins with Box<dyn"}
    bare = told([TraitObjects()], **where(process, kind), sysroot=str(stage.folder())) if kind == "core" else every
    assert sorted(bare.values()) == [500, 500]

WAYS = [name for name, build in jemallocs.RUST.items() if build.profile == "with-debug-info"]

SAME = """
python
from gdbheapx.jemalloc import layouts
from gdbheapx.inferior.elf.dwarf import DwarfUnits, TypeWalk
from gdbheapx.inferior.elf.file import ElfFile
from gdbheapx.inferior.gdb.target import GdbReader
name, prefix = "_rjem_je_arena_choose_hard", "_rjem_je_"
near = gdb.objfiles()[0].lookup_global_symbol(name)
file = ElfFile(%(program)r)
readers = [GdbReader(gdb, gdb.objfiles()[0], near.symtab.static_block()), DwarfUnits().reader(file, file.symbols(name)[0].value)]
theirs, ours = [TypeWalk(reader, prefix).collect(layouts.STRUCTS, (), layouts.ENUMERATORS) for reader in readers]
print("DIFFERENT", [one for one in theirs.structs if theirs.structs[one] != ours.structs.get(one)][:5], theirs.enums == ours.enums)
print("COUNT", len(theirs.structs), len(ours.structs))
end
"""


@by_turns("way", WAYS)
def test_types_without_gdb(stage: Stage, kind: str, way: str) -> None:
    """jemalloc is recognised, proven on its slabs, from the debug information of the units that have its types; no gdb is there at all."""
    process = jemallocs.start(stage, way, "recorder", "park", "3", "200")
    target = open_elf_target(pid=process.pid) if kind == "live" else open_elf_target(core=str(process.core()))
    (found,) = ALLOCATOR.find(target).located
    assert (found.layout_source, found.version) == ("debug-info", jemallocs.version(way)) and found.calibrated_slabs
    assert {"background_thread_info_s", "ctl_arenas_s", "tsd_s", "arena_s"} <= set(found.types.structs)


@pytest.mark.parametrize("way", WAYS)
def test_the_same_types_as_gdb(way: str, folder: Path) -> None:
    """Every struct and enum of jemalloc.c's unit is, member by member, what gdb reads of it."""
    program = jemallocs.build_rust(jemallocs.RUST[way])
    script = folder / "same.gdb"
    script.write_text(SAME % {"program": str(program)})
    outcome = run([GDB, "-nx", "-q", "-batch", "-iex", "set auto-load no", str(program), "-x", str(script)])
    assert b"DIFFERENT [] True" in outcome.stdout, (outcome.stdout, outcome.stderr)


@pytest.mark.rust
def test_no_debug_information_wanted(stage: Stage, core: str) -> None:
    """--no-debug-info holds for units as well: nothing is read of them."""
    process = jemallocs.start(stage, WAYS[-1], "recorder", "park", "3", "200")
    envelope = json.loads(heapx(process.target(core), "--no-debug-info", "doctor", "--json").stdout)
    assert "debug-info" not in [one["layout"] for one in envelope["allocators"]], envelope["allocators"]

FORMS = {
    "symbols": (),
    "stripped": ("-s",),
    "stripped at a fixed address": ("-no-pie", "-fno-pie", "-s"),
    "stripped and static": ("-static", "-s"),
    "stripped, static and movable": ("-static-pie", "-s"),
    "stripped, with packed relocations": ("-Wl,-z,pack-relative-relocs", "-s"),
    "without type_infos": ("-fno-rtti",),
    "another linking": ("-s", "-Wl,-z,norelro", "-Wl,--hash-style=sysv"),
}

Seen = Dict[int, Tuple[str, int]]


def start_in_form(stage: Stage, flags: Sequence[str]) -> Tuple[Process, Seen]:
    """(the program at rest, address point in the file -> (class, where the part begins) as its objects tell); skips without a C++ compiler."""
    program, folder = stage.builder.build_by("g++", "-O1", "-Wl,--build-id", *flags, name="classes.cpp"), stage.folder()
    process = stage.spawn_ready([str(program), str(folder / "record")], folder)
    first, *lines = (folder / "record").read_text().splitlines()
    bias = int(first.split()[1], 16)
    rows = [line.split(" ", 2) for line in lines]
    return process, {int(pointer, 16) - bias: (name, int(within)) for pointer, within, name in rows}


def vtables_of(process: Process, kind: str, module: str) -> Dict[int, ClassVtable]:
    """The vtables of a module, as the reader of this kind of target finds them."""
    target = open_elf_target(core=str(process.core())) if kind == "core" else open_elf_target(pid=process.pid)
    found = target.vtables(next(one for one in target.modules() if one.file_name == module))
    assert found is not None
    return found


@by_turns("way", sorted(FORMS))
def test_every_object_has_its_class(stage: Stage, kind: str, way: str) -> None:
    """Several bases, virtual ones, templates, namespaces without name, local classes: symbols or none, the pointer in the object names its class."""
    process, seen = start_in_form(stage, FORMS[way])
    assert len(seen) == 15
    if "fixed" not in way and "static" not in way:
        seen = {at: one for at, one in seen.items() if one[0] != "std::bad_alloc"}  # in the library's own data
    known = vtables_of(process, kind, "classes")
    if way == "without type_infos":  # nothing but the symbol tells where a class with a virtual base has its vtable
        seen = {at: one for at, one in seen.items() if one[1] == 0 and "Diamond" not in one[0]}
    assert {at: known.get(at) for at in seen} == seen


def test_what_the_linker_says_of_the_library(stage: Stage, live: str) -> None:
    """The vtables of libstdc++ are those that its symbols name, each once as an object's first word, under the names that nm writes."""
    need("nm")
    process, _ = start_in_form(stage, ())
    maps = Path("/proc/%d/maps" % process.pid).read_text()
    library = next(line.split()[-1] for line in maps.splitlines() if "libstdc++" in line)
    known = vtables_of(process, live, "libstdc++.so.6")
    listed = subprocess.run(["nm", "-DCS", "--defined-only", os.path.realpath(library)], capture_output=True, text=True).stdout
    rows = [line.split(" ", 3) for line in listed.splitlines() if " vtable for " in line]
    assert len(rows) > 100
    for start, size, _, text in rows:
        name = text[len("vtable for ") :].split("@")[0]
        inside = [one for at, one in known.items() if int(start, 16) < at <= int(start, 16) + int(size, 16)]
        assert inside and inside[0][1] == 0 and {one[0] for one in inside} <= {name, SHORT.get(name, name)}, (name, inside)

SHORT = {
    "std::basic_%s<char, std::char_traits<char> >" % stream: "std::" + stream for stream in ("istream", "ostream", "iostream")
}  # type: Dict[str, str]
"""Names that the C++ runtime writes as the standard does."""

LIBRARY = (PROGRAMS / "exported_names.cpp").read_text()
PROGRAM = '#include <stdio.h>\n#include <unistd.h>\nvoid fill(void);\nint main(void) { fill(); puts("ready"); fflush(stdout); pause(); return 0; }\n'


def started_stripped(stage: Stage) -> Process:
    need("g++")
    folder = stage.folder()
    (folder / "gatekit.cpp").write_text(LIBRARY)
    (folder / "gate.c").write_text(PROGRAM)
    library, program = str(folder / "libgatekit.so"), str(folder / "gate")
    subprocess.run(["g++", "-O2", "-s", "-shared", "-fPIC", "-o", library, str(folder / "gatekit.cpp")], check=True)
    subprocess.run(["gcc", "-O2", "-s", "-o", program, str(folder / "gate.c"), library], check=True)
    return stage.spawn_ready([program], folder)


@pytest.mark.parametrize("alone", [True, False])
def test_of_a_core(stage: Stage, core: str, tmp_path: Path, alone: bool) -> None:
    """Variables, containers and classes have their names, with the library's file and without any file."""
    target = [*started_stripped(stage).target(core), *(["--sysroot", str(tmp_path)] if alone else [])]
    rows = {row["owner"]: row for row in heapx(target, "owners", "--json").data["owners"]}
    assert [(one["kind"], one["elements"]) for one in rows["gate::Resolver::cache_ in libgatekit.so"]["containers"]] == [("unordered map or set", 5000)]
    assert rows["gate::shapes in libgatekit.so"]["retained_blocks"] == 2000
    kinds = {row["signature"]: row["blocks"] for row in heapx(target, "census", "--json").data["rows"]}
    assert kinds["gate::Shape"] == 2000
