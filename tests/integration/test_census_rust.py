"""Rust: containers and trait objects in a stripped program, and jemalloc's types from its own units, without gdb.

Files: inferior/gdb/target.py.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from gdbheapx.analysis.census.rust import TraitObjects
from gdbheapx.analysis.census.world import PLACE, SHAPE
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.jemalloc.entry import ALLOCATOR
from tests.support import jemallocs
from tests.support.censuses import told, where
from tests.support.jemallocs import preloads
from tests.support.paths import GDB
from tests.support.processes import Process, Stage, by_turns
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
