"""The vtables of a module name the class of every object of a C++ program; names that a stripped library exports, of a core alone.

Files: analysis/reachability/heap_graph.py, inferior/elf/link_map.py.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Dict, Sequence, Tuple

import pytest

from gdbheapx.inferior.base import ClassVtable
from gdbheapx.inferior.target import open_elf_target
from tests.support.paths import PROGRAMS
from tests.support.processes import Process, Stage, by_turns
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # reads files of this machine's compiler, as any other's are: by the ABI that all of them keep

WAYS = {
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


def started(stage: Stage, flags: Sequence[str]) -> Tuple[Process, Seen]:
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


@by_turns("way", sorted(WAYS))
def test_every_object_has_its_class(stage: Stage, kind: str, way: str) -> None:
    """Several bases, virtual ones, templates, namespaces without name, local classes: symbols or none, the pointer in the object names its class."""
    process, seen = started(stage, WAYS[way])
    assert len(seen) == 15
    if "fixed" not in way and "static" not in way:
        seen = {at: one for at, one in seen.items() if one[0] != "std::bad_alloc"}  # in the library's own data
    known = vtables_of(process, kind, "classes")
    if way == "without type_infos":  # nothing but the symbol tells where a class with a virtual base has its vtable
        seen = {at: one for at, one in seen.items() if one[1] == 0 and "Diamond" not in one[0]}
    assert {at: known.get(at) for at in seen} == seen


def test_what_the_linker_says_of_the_library(stage: Stage, live: str) -> None:
    """The vtables of libstdc++ are those that its symbols name, each once as an object's first word, under the names that nm writes."""
    if not shutil.which("nm"):
        pytest.skip("nm is not installed")
    process, _ = started(stage, ())
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
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
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
