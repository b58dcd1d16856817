"""`symbols export --module` names the class of every object of a C++ program, by the pointer that stands in the object.

Files: analysis/reachability/heap_graph.py.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from gdbheapx.layout import pack
from tests.support.paths import PROGRAMS
from tests.support.processes import Process, Stage
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


def built(folder: Path, flags: Tuple[str, ...]) -> Path:
    """The program; skips without a C++ compiler."""
    compiler, made = shutil.which("g++"), folder / "classes"
    if compiler is None:
        pytest.skip("g++ is not installed")
    done = subprocess.run([compiler, "-O1", "-Wl,--build-id", *flags, "-o", str(made), str(PROGRAMS / "classes.cpp")], capture_output=True, text=True)
    if "unrecognized" in done.stderr or "unknown" in done.stderr or "cannot find" in done.stderr or "not supported" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return made


def started(stage: Stage, program: Path) -> Tuple[Process, Seen]:
    """(the program at rest, address point in the file -> (class, where the part begins) as its objects tell)."""
    folder = stage.folder()
    process = stage.spawn([str(program), str(folder / "record")], folder)
    process.wait_ready()
    first, *lines = (folder / "record").read_text().splitlines()
    bias = int(first.split()[1], 16)
    rows = [line.split(" ", 2) for line in lines]
    return process, {int(pointer, 16) - bias: (name, int(within)) for pointer, within, name in rows}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_every_object_has_its_class(stage: Stage, kind: str, folder: Path, way: str) -> None:
    """Several bases, virtual ones, templates, namespaces without name, local classes: symbols or none, the pointer in the object names its class."""
    process, seen = started(stage, built(folder, WAYS[way]))
    assert len(seen) == 15
    if "fixed" not in way and "static" not in way:
        seen = {at: one for at, one in seen.items() if one[0] != "std::bad_alloc"}  # in the library's own data
    out = folder / "pack.json"
    outcome = heapx(process.target(kind), "symbols", "export", "--module", "classes", "-o", str(out))
    assert outcome.code == 0, outcome.stderr
    known = pack.load(str(out)).vtables.all()
    if way == "without type_infos":  # nothing but the symbol tells where a class with a virtual base has its vtable
        seen = {at: one for at, one in seen.items() if one[1] == 0 and "Diamond" not in one[0]}
    assert {at: (known[at].name, known[at].within) if at in known else None for at in seen} == seen


def test_what_the_linker_says_of_the_library(stage: Stage, live: str, folder: Path) -> None:
    """The vtables of libstdc++ are those that its symbols name, each once as an object's first word, under the names that nm writes."""
    if not shutil.which("nm"):
        pytest.skip("nm is not installed")
    process, _ = started(stage, built(folder, ()))
    maps = Path("/proc/%d/maps" % process.pid).read_text()
    library = next(line.split()[-1] for line in maps.splitlines() if "libstdc++" in line)
    out = folder / "pack.json"
    assert heapx(process.target(live), "symbols", "export", "--module", "libstdc++.so.6", "-o", str(out)).code == 0
    known = pack.load(str(out)).vtables.all()
    listed = subprocess.run(["nm", "-DCS", "--defined-only", os.path.realpath(library)], capture_output=True, text=True).stdout
    rows = [line.split(" ", 3) for line in listed.splitlines() if " vtable for " in line]
    assert len(rows) > 100
    for start, size, _, text in rows:
        name = text[len("vtable for ") :].split("@")[0]
        inside = [one for at, one in known.items() if int(start, 16) < at <= int(start, 16) + int(size, 16)]
        assert inside and inside[0].within == 0 and {one.name for one in inside} <= {name, SHORT.get(name, name)}, (name, inside)


SHORT = {
    "std::basic_%s<char, std::char_traits<char> >" % stream: "std::" + stream for stream in ("istream", "ostream", "iostream")
}  # type: Dict[str, str]
"""Names that the C++ runtime writes as the standard does."""


def test_a_core_without_the_programs_file(stage: Stage, core: str, folder: Path) -> None:
    """Where the file is gone, the error says that vtables are read from it; with a build-id as name the module is found as well."""
    program = built(folder, ("-s",))
    process, _ = started(stage, program)
    target = process.target(core)
    build_id = heapx(target, "symbols", "export", "--module", "classes", "--json").data["pack"]["build_id"]
    assert heapx(target, "symbols", "export", "--module", build_id, "--json").data["pack"]["vtables"]
    program.unlink()
    outcome = heapx(target, "symbols", "export", "--module", build_id)
    assert outcome.code == 1 and len(lines_of(outcome.stderr)) == 1 and "vtables are read from it" in outcome.stderr, outcome.stderr


@pytest.mark.parametrize("words, code, text", [(["--module", "nothing.so"], 1, "no module nothing.so"), (["--module", "recorder"], 1, "no C++ class")])
def test_nothing_to_export(stage: Stage, core: str, words: List[str], code: int, text: str) -> None:
    """A module that is not there, or has nothing for a pack, is one line with a next step."""
    outcome = heapx(stage.start("recorder", "1", "100", "3").target(core), "symbols", "export", *words)
    assert outcome.code == code and text in outcome.stderr and len(lines_of(outcome.stderr)) == 1, outcome.stderr
    assert heapx([], "symbols", "list", "--module", "x").code == 2


def lines_of(text: str) -> List[str]:
    """Without the empty ones."""
    return [line for line in text.splitlines() if line.strip()]
