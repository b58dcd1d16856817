"""Rust programs with `debug = true`: jemalloc's types come from its own units, without gdb, which takes seconds for each of them.

Files: inferior/gdb/target.py.
"""

import json
from pathlib import Path

import pytest

from gdbheapx.inferior.target import open_elf_target
from gdbheapx.jemalloc.entry import ALLOCATOR
from tests.support import jemallocs
from tests.support.paths import GDB
from tests.support.processes import Stage, by_turns
from tests.support.tool import heapx, run

pytestmark = pytest.mark.once  # Rust programs bring their jemalloc with them

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
