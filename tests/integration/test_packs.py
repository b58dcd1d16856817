"""Packs with the stock libraries of this system: gdb reads the same types as pyelftools did, and a stripped jemalloc or libc is read by its pack.

Files: commands/symbols.py.
"""

import json
import shutil
import signal
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest

from gdbheapx.inferior.elf.file import ElfFile
from gdbheapx.layout import pack
from tests.support import jemallocs
from tests.support.paths import GDB, ROOT
from tests.support.processes import Builder, Process, Stage
from tests.support.tool import heapx, in_gdb, run

pytestmark = pytest.mark.image  # the pack of its libjemalloc, the types as its gdb reads them

DATA = jemallocs.DEBUG_FILES
BUILD_IDS = sorted(path.name.split(".")[0] for path in DATA.glob("*.debug.xz"))
GLIBC = ROOT / "tests" / "data" / "glibc"
GLIBC_BUILD_IDS = sorted(path.name.split(".")[0] for path in GLIBC.glob("*.debug.xz"))
READ_BY_GDB = """
import gdb
from gdbheapx.glibc.detect import STRUCTS
from gdbheapx.jemalloc.detection import layouts
from gdbheapx.layout import pack
from gdbheapx.inferior.gdb.types import GdbReader, variables
from gdbheapx.inferior.elf.type_walk import Walk
known = pack.load(%(pack)r)
objfile = gdb.objfiles()[0]
is_glibc = known.allocator == "glibc"
near = variables(objfile, "main_arena" if is_glibc else known.prefix + "arenas")[0]
walk = Walk(GdbReader(gdb, objfile, near.symtab.static_block(), thorough=True), known.prefix)
if is_glibc:
    types = walk.collect(STRUCTS, (), ())
else:
    types = walk.collect(layouts.STRUCTS, sorted(known.symbols) + sorted(known.thread_locals), layouts.ENUMERATORS)
open(%(out)r, "w").write(pack.dump(known._replace(types=types)))
"""


@pytest.fixture(scope="module")
def debug_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A debug directory with the debug files of the test data, by build-id."""
    yield jemallocs.debug_directory(jemallocs.debug_directory(tmp_path_factory.mktemp("debug")), GLIBC)


@pytest.fixture(scope="module")
def build_id() -> str:
    """The build-id of this system's libjemalloc2; skips where no pack is shipped for it."""
    found = ElfFile(str(jemallocs.library())).build_id()
    if found not in BUILD_IDS:
        pytest.skip("no pack is shipped for this system's libjemalloc2 (build-id %s)" % found)
    return str(found)


def shipped(build_id: str) -> Path:
    """The shipped file."""
    return ROOT / "gdbheapx" / "packs" / (build_id + ".json")


def preloaded(stage: Stage) -> Process:
    """A program under the stock library."""
    return stage.start("recorder", "9", "1000", "3", env={"LD_PRELOAD": str(jemallocs.library())})


@pytest.mark.parametrize("known", BUILD_IDS + GLIBC_BUILD_IDS)
def test_gdb_reads_the_same_types(debug_directory: Path, folder: Path, known: str) -> None:
    """gdb, which shares nothing with pyelftools, reads the very types of the shipped pack from the debug information."""
    if not shutil.which(GDB):
        pytest.skip("gdb is not installed")
    script, out = folder / "read.py", folder / "out.json"
    script.write_text(READ_BY_GDB % {"pack": str(shipped(known)), "out": str(out)})
    debug = debug_directory / ".build-id" / known[:2] / (known[2:] + ".debug")
    outcome = run([GDB, "-nx", "-q", "-batch", str(debug), "-x", str(script)])
    if outcome.code == -signal.SIGABRT and "glibc" in shipped(known).read_text()[:400]:
        pytest.skip("this gdb aborts on a debug file that was made smaller (gdb 10)")
    assert out.exists(), outcome.stderr
    assert out.read_text() == shipped(known).read_text()


def gdb_with(folder: Path, library: str) -> str:
    """A gdb whose Python has this library or has it not; skips where it cannot be had."""
    script = folder / "gdb"
    if library == "gdb":
        first = "python import sys; sys.modules['elftools'] = None"
    else:
        elftools = pytest.importorskip("elftools", reason="pyelftools is not installed")
        first = "python import sys; sys.path.append(%r)" % str(Path(elftools.__file__).parents[1])
    script.write_text("#!/bin/sh\nexec %s -iex \"%s\" \"$@\"\n" % (GDB, first))
    script.chmod(0o755)
    if library != "gdb" and run([str(script), "-nx", "-q", "-batch", "-ex", "python import elftools.elf.elffile"]).stderr:
        pytest.skip("gdb's Python cannot import the pyelftools that is here")
    return str(script)


@pytest.mark.parametrize("reader", ["pyelftools", "gdb"])
def test_export_gives_the_shipped_pack(stage: Stage, kind: str, folder: Path, debug_directory: Path, build_id: str, reader: str) -> None:
    """`symbols export` with debug information writes what is shipped, read by pyelftools or, where that is not installed, by gdb."""
    if any(DATA.glob(build_id + ".rebuilt*")):
        pytest.skip("the debug information of this build is that of a rebuild laid out otherwise: gdb does not take it for the library's")
    out = folder / "mine.json"
    target = [*preloaded(stage).target(kind), "--gdb", gdb_with(folder, reader)]
    outcome = heapx(target, "--debug-dir", str(debug_directory), "symbols", "export", "-o", str(out))
    assert outcome.code == 0 and not outcome.stderr, outcome.stderr
    mine, theirs = pack.load(str(out)), pack.load(str(shipped(build_id)))
    assert ("read by pyelftools" if reader == "pyelftools" else "read by gdb ") in mine.made_from
    assert pack.dump(mine._replace(made_from=theirs.made_from, exactness=theirs.exactness)) == pack.dump(theirs)


def test_a_stripped_library_is_read_by_its_pack(stage: Stage, kind: str, build_id: str) -> None:
    """Without debug information the shipped pack answers, and the answer says so."""
    answer = heapx(preloaded(stage).target(kind), "symbols", "list", "--json").envelope
    assert [row["build_id"] for row in answer["data"]["packs"] if row["in_use"] and row["allocator"] == "jemalloc"] == [build_id]
    (jemalloc,) = [one for one in answer["allocators"] if one["name"] == "jemalloc"]
    assert (jemalloc["layout"], jemalloc["address_source"], jemalloc["build_id"]) == ("pack", "pack", build_id)


def test_a_folder_of_the_users_is_asked_first(stage: Stage, core: str, folder: Path, build_id: str) -> None:
    """--symbols DIR and `set heapx symbols-path DIR` have a pack found before the shipped one."""
    shutil.copy(shipped(build_id), folder / "any-name.json")
    target = preloaded(stage).target(core)
    rows = heapx(target, "--symbols", str(folder), "symbols", "list", "--json").data["packs"]
    assert (rows[0]["file"], rows[0]["in_use"]) == (str(folder / "any-name.json"), True)
    assert [row["file"] for row in rows if row["in_use"] and row["allocator"] == "jemalloc"] == [rows[0]["file"]]
    out = folder / "answer"
    outcome = in_gdb(target, ["set heapx symbols-path /nowhere:%s" % folder, "heapx symbols list --json -o %s" % out])
    answer = json.loads(out.read_text())
    used = [row["file"] for row in answer["data"]["packs"] if row["in_use"] and row["allocator"] == "jemalloc"]
    assert used == [str(folder / "any-name.json")], outcome.stderr
    assert answer["problems"][0]["where"] == "/nowhere" and not answer["partial"]


def wrong_pack(build_id: str, change: Any) -> str:
    """The shipped pack with a change of its tree."""
    tree: Dict[str, Any] = json.loads(shipped(build_id).read_text())
    change(tree)
    return json.dumps(tree)


def move_e_bits(tree: Dict[str, Any]) -> None:
    """The extent's bits and its address change places."""
    members = tree["structs"]["edata_s" if "edata_s" in tree["structs"] else "extent_s"][1]
    members["e_bits"], members["e_addr"] = [8, 8, 1, "uint"], [0, 8, 1, "pointer"]


def move_arenas(tree: Dict[str, Any]) -> None:
    """The array of arenas is said to be somewhere else."""
    tree["symbols"]["arenas"][0] += 4096


@pytest.mark.parametrize("change", [move_e_bits, move_arenas])
def test_a_pack_that_is_wrong_is_refused(stage: Stage, core: str, folder: Path, build_id: str, change: Any) -> None:
    """A pack with the right build-id that does not fit the memory is not believed: one line says so, and there is no answer from it."""
    (folder / (build_id + ".json")).write_text(wrong_pack(build_id, change))
    target = preloaded(stage).target(core)
    outcome = heapx(target, "--symbols", str(folder), "arenas", "--allocator", "jemalloc")
    assert outcome.code in (1, 2) and not outcome.stdout, outcome.stdout
    assert "its memory does not match its layout" in outcome.stderr and len(outcome.stderr.strip().splitlines()) == 1, outcome.stderr


def test_a_damaged_pack_is_one_line(stage: Stage, core: str, folder: Path, build_id: str) -> None:
    """A BUILDID.json that is no pack is an error with its name, not ignored: the user meant it."""
    (folder / (build_id + ".json")).write_text('{"schema": "gdbheapx-pack/1"}')
    outcome = heapx(preloaded(stage).target(core), "--symbols", str(folder), "report")
    assert outcome.code == 1 and build_id in outcome.stderr and len(outcome.stderr.strip().splitlines()) == 1, outcome.stderr


def test_export_without_debug_information(stage: Stage, core: str, build_id: str) -> None:
    """Without debug information there is nothing to export: one line tells how to get it; without a target it is wrong usage."""
    outcome = heapx(preloaded(stage).target(core), "symbols", "export")
    assert outcome.code == 1 and not outcome.stdout and build_id in outcome.stderr
    assert heapx([], "symbols", "export").code == 2


def test_list_needs_no_target() -> None:
    """`symbols list` without a process and without gdb names every shipped pack."""
    outcome = heapx([], "--gdb", "/nowhere/gdb", "symbols", "list", "--json")
    rows = heapx([], "symbols", "list", "--json").data["packs"]
    assert sorted(row["build_id"] for row in rows) == sorted(BUILD_IDS + GLIBC_BUILD_IDS) and {row["in_use"] for row in rows} == {None}
    assert outcome.code == 1, "a gdb that was named and is not there is an error for every command"


# ---------------------------------------------------------------------------------------------------- glibc


@pytest.fixture(scope="module")
def glibc_pack(tmp_path_factory: pytest.TempPathFactory, builder: Builder) -> Iterator[Path]:
    """A folder with the pack of this system's libc; skips where its debug files are missing, or its own file has the symbols anyway."""
    stage, folder = Stage(builder), tmp_path_factory.mktemp("packs")
    try:
        target = stage.start("recorder", "9", "1000", "3").target("core")
        outcome = heapx([*target, "--no-debug-info"], "arenas", "--json")
        if outcome.code == 0 and [one["layout"] for one in outcome.envelope["allocators"] if one["name"] == "glibc"] != ["pack"]:
            pytest.skip("this libc has its symbol table: nothing needs a pack")
        outcome = heapx(target, "symbols", "export", "-o", str(folder / "libc.json"))
        if outcome.code:
            pytest.skip("no debug information for this libc: %s" % outcome.stderr)
        yield folder
    finally:
        stage.close()


def test_a_stripped_libc_is_read_by_its_pack(stage: Stage, kind: str, glibc_pack: Path) -> None:
    """Without debug information the pack gives the very answer that debug information gives: arenas, thread caches, bins, settings."""
    target = stage.start("recorder", "9", "1000", "3").target(kind)
    for command in ("arenas", "tcache", "bins", "tunables"):
        with_debug = heapx(target, command, "--json").envelope
        by_pack = heapx([*target, "--no-debug-info", "--symbols", str(glibc_pack)], command, "--json").envelope
        assert by_pack["data"] == with_debug["data"] and by_pack["partial"] == with_debug["partial"] is False, command
        (glibc,) = [one for one in by_pack["allocators"] if one["name"] == "glibc"]
        assert (glibc["layout"], glibc["address_source"]) == ("pack", "pack")


def test_the_pack_of_glibc_names_no_jemalloc(glibc_pack: Path) -> None:
    """What is written is a pack of glibc with its four structs, and it reads back as it was written."""
    known = pack.load(str(glibc_pack / "libc.json"))
    assert known.allocator == "glibc" and known.version_text and set(known.symbols) >= {"main_arena", "mp_"}
    assert {"malloc_state", "malloc_par", "_heap_info"} <= set(known.types.structs) and known.symbols["main_arena"][1] == known.types.size_bytes("malloc_state")
    assert pack.dump(known) == (glibc_pack / "libc.json").read_text()


@pytest.fixture(scope="module")
def libc_build_id() -> str:
    """The build-id of this system's libc; skips where no pack is shipped for it."""
    library = next((path for path in Path("/usr/lib").glob("*-linux-gnu*/libc.so.6")), Path("/lib/x86_64-linux-gnu/libc.so.6"))
    found = ElfFile(str(library)).build_id() if library.exists() else None
    if found not in GLIBC_BUILD_IDS:
        pytest.skip("no pack is shipped for this system's libc (build-id %s)" % found)
    return str(found)


@pytest.mark.parametrize("state", ["one", "seven", "mmapped"])
def test_a_stripped_libc_of_debian_needs_nothing(stage: Stage, kind: str, libc_build_id: str, state: str) -> None:
    """Without debug files the shipped pack reads what malloc_info itself printed, byte for byte, and every thread's cache."""
    process = stage.start("accounts", state)
    target = [*process.target(kind), "--no-debug-info"]
    answer = heapx(target, "malloc-info", "--json").envelope
    (glibc,) = [one for one in answer["allocators"] if one["name"] == "glibc"]
    assert (glibc["layout"], glibc["address_source"], glibc["build_id"]) == ("pack", "pack", libc_build_id)
    assert answer["data"]["xml"] == process.record_path.with_name("record.xml").read_text() and not answer["partial"]
    rows = heapx(target, "tcache", "--json").data["threads"]
    arenas = heapx(target, "arenas", "--json").data
    cached = arenas["totals"]["glibc"]["tcache_chunks"]
    assert sum(row["chunks"] for row in rows) == cached and all(row["arena"] is not None for row in rows)
    assert cached > 0 or state == "mmapped"  # 2.41 has freed nothing there


def test_export_gives_the_shipped_pack_of_the_libc(glibc_pack: Path, libc_build_id: str) -> None:
    """`symbols export` with this libc's debug file writes what is shipped."""
    mine, theirs = pack.load(str(glibc_pack / "libc.json")), pack.load(str(shipped(libc_build_id)))
    assert mine.build_id == libc_build_id
    assert pack.dump(mine._replace(made_from=theirs.made_from, exactness=theirs.exactness)) == pack.dump(theirs)


def test_export_of_the_libc_without_gdb(stage: Stage, core: str, folder: Path, glibc_pack: Path) -> None:
    """Python alone writes the same pack; without pyelftools the line says that the debug information is here, and what it lacks."""
    target, out = stage.start("recorder", "9", "1000", "3").target(core), folder / "alone.json"
    hidden = folder / "hidden" / "elftools"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError")
    outcome = heapx([*target, "--gdb", "none"], "symbols", "export", "-o", str(folder / "none.json"), env={"PYTHONPATH": "%s:%s" % (hidden.parent, ROOT)})
    assert outcome.code == 1 and outcome.stderr.count("\n") == 1, outcome.stderr
    assert "is here, and cannot be read without gdb: pyelftools is not installed; pip install pyelftools" in outcome.stderr
    pytest.importorskip("elftools", reason="pyelftools is not installed")
    assert heapx([*target, "--gdb", "none"], "symbols", "export", "-o", str(out)).code == 0
    mine, gdbs = pack.load(str(out)), pack.load(str(glibc_pack / "libc.json"))
    assert pack.dump(mine._replace(made_from=gdbs.made_from)) == pack.dump(gdbs)


def swap_members(tree: Dict[str, Any]) -> None:
    """top and system_mem change places."""
    members = tree["structs"]["malloc_state"][1]
    members["top"], members["system_mem"] = members["system_mem"], members["top"]


def move_bins(tree: Dict[str, Any]) -> None:
    """The bins are said to begin a word later."""
    members = tree["structs"]["malloc_state"][1]
    members["bins"][0] += tree["word_bytes"]


def move_main_arena(tree: Dict[str, Any]) -> None:
    """main_arena is said to be somewhere else."""
    tree["symbols"]["main_arena"][0] += 64


def move_mp(tree: Dict[str, Any]) -> None:
    """mp_ is said to be somewhere else."""
    tree["symbols"]["mp_"][0] += 64


@pytest.mark.parametrize("change", [swap_members, move_bins, move_main_arena, move_mp])
def test_a_pack_of_glibc_that_is_wrong_is_refused(stage: Stage, core: str, folder: Path, glibc_pack: Path, change: Any) -> None:
    """A pack with the right build-id that does not fit the memory is not believed: one line says so, and there is no answer from it."""
    tree = json.loads((glibc_pack / "libc.json").read_text())
    change(tree)
    (folder / "libc.json").write_text(json.dumps(tree))
    outcome = heapx([*stage.start("recorder", "9", "1000", "3").target(core), "--no-debug-info", "--symbols", str(folder)], "arenas")
    assert outcome.code == 1 and not outcome.stdout, outcome.stdout
    assert "its memory does not match its layout" in outcome.stderr and len(outcome.stderr.strip().splitlines()) == 1, outcome.stderr


def test_a_libc_read_by_its_pack_is_not_called(stage: Stage, live: str, glibc_pack: Path) -> None:
    """A pack does not say where malloc's functions end, so nobody can tell that no thread is inside: trim refuses, its prediction answers."""
    target = [*stage.start("recorder", "9", "1000", "3").target(live), "--no-debug-info", "--symbols", str(glibc_pack)]
    refused = heapx(target, "trim", "--yes")
    assert refused.code == 1 and "read by a pack" in refused.stderr, refused.stderr
    build_id = json.loads((glibc_pack / "libc.json").read_text())["build_id"]
    assert "(build-id %s)" % build_id in refused.stderr and "debuginfod-find debuginfo %s" % build_id in refused.stderr, refused.stderr
    assert "--debug-dir DIR" in refused.stderr, refused.stderr
    dry = heapx(target, "trim", "--dry-run", "--json")
    assert dry.code == 0 and b"--debug-dir DIR" in dry.stdout, dry.stdout
