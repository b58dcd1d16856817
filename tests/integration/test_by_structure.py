"""glibc is read by structure alone, live and from cores, with the figures that its symbols give.

A stripped jemalloc or libc of Debian is read by its bundled pack; a pack that does not fit the memory is refused.

Files: layout/pack.py.
"""

import json
import subprocess
from pathlib import Path
from typing import Any, Dict, Sequence

import pytest

from gdbheapx.inferior.elf.file import ElfFile
from tests.support import bare, jemallocs
from tests.support.bare import Bare, facts
from tests.support.paths import GDB, PROGRAMS, ROOT
from tests.support.processes import Lasting, Process, Stage, by_turns
from tests.support.tool import heapx, tool_with_pack

pytestmark = pytest.mark.image  # each release has its own layouts

COMMANDS = ("arenas", "bins", "tcache", "chunks", "chunks --histogram", "malloc-info", "malloc-stats", "tunables", "report", "trim --dry-run")
ALSO_IN_GDB, IN_GDB = ("arenas", "report", "trim --dry-run"), ("--gdb", GDB)
STATIC = ("gcc", "-O1", "-static", "-s", "-pthread")


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """The tool without packs."""
    return bare.make(tmp_path_factory.mktemp("bare"))


@pytest.fixture
def recorder(stage: Stage) -> Process:
    """Five thread arenas with lists and caches."""
    return stage.start("recorder", "7", "3000", "5")


def test_every_command(recorder: Process, kind: str, tool: Bare) -> None:
    """What a command says without a pack and a debug file is what it says with them, to the byte; of a core also without any library; and all
    that without gdb, some with it, too."""
    target = recorder.target(kind)
    for command in COMMANDS:
        words = command.split()
        known = heapx(target, *words, "--json")
        for alone, gdb in ((False, IN_GDB), (True, IN_GDB), (kind == "core", ())):
            if (alone and kind == "live") or (gdb == IN_GDB and command not in ALSO_IN_GDB):
                continue
            found = tool.ask([*target, *gdb], *words, "--json", alone=alone)
            assert (found.code, facts(found.envelope["data"], kind)) == (known.code, facts(known.envelope["data"], kind)), (words, alone, gdb)
            (allocator,) = found.envelope["allocators"]
            assert (allocator["name"], allocator["layout"], allocator["address_source"]) == ("glibc", "table", "probe")


@pytest.mark.parametrize("options", [(), ("--no-debug-info",), IN_GDB, (*IN_GDB, "--no-debug-info")], ids=" ".join)
def test_what_a_pack_or_a_debug_file_lacks(lasting: Lasting, core: str, folder: Path, options: Sequence[str]) -> None:
    """Neither has the relocations that lead to thread-local storage, nor has a core without the library: that alone is told by structure, and
    the answer is as whole as without pack and debug file."""
    target = lasting.of(core, Stage.start, "recorder", "7", "3000", "5").target(core)
    for command in ("arenas", "tcache"):
        known, found = heapx(target, command, "--json"), heapx([*target, "--sysroot", str(folder), *options], command, "--json")
        assert found.code == 0 and not found.envelope["partial"], found.envelope["problems"]
        assert facts(found.data) == facts(known.data), command
    rows = heapx([*target, "--sysroot", str(folder), *options], "doctor", "--json").envelope["data"]["checks"]
    assert [row["ok"] for row in rows if row["what"] == "thread caches"] == [True]


def test_what_forbids_trim(recorder: Process, live: str, tool: Bare) -> None:
    """Its functions are not known, so that it cannot be told whether a thread is inside one: a refusal, with what can be had instead."""
    outcome = tool.ask(recorder.target(live), "trim", "--yes")
    assert outcome.code == 1 and "--dry-run" in outcome.stderr


def built(folder: Path, *command: str, source: str = "kept.c") -> Path:
    """A program by this compiler; skips where it cannot."""
    made = folder / Path(source).stem
    done = subprocess.run([*command, "-o", str(made), str(PROGRAMS / source)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("%s: %s" % (" ".join(command), done.stderr.strip().splitlines()[-1]))
    return made


def test_a_stripped_static_program(stage: Stage, kind: str, folder: Path) -> None:
    """kept.c holds 1,000 blocks of 10,000 bytes: they are there, also on a core whose program is gone."""
    program = built(folder, *STATIC)
    process = stage.spawn_ready([str(program)])
    target = process.target(kind)
    if kind == "core":
        program.unlink()
    outcome = heapx(target, "arenas", "--json")
    (allocator,) = outcome.envelope["allocators"]
    assert (allocator["name"], allocator["address_source"], allocator["owns_malloc"]) == ("glibc", "probe", True)
    (arena,) = outcome.envelope["data"]["arenas"]
    assert arena["used_chunks"] >= 1000 and arena["used_bytes"] >= 1000 * 10000 and arena["unparsed_bytes"] == 0
    assert outcome.code == 0


def test_malloc_was_never_used(stage: Stage, kind: str, folder: Path, tool: Bare) -> None:
    """A program that never calls malloc: that is the answer, with figures of 0."""
    source = folder / "never.c"
    source.write_text('#include <unistd.h>\nint main(void) { char byte; if (write(1, "ready\\n", 6) != 6) return 1; return read(0, &byte, 1) < 0; }\n')
    program = folder / "never"
    subprocess.run(["gcc", "-O1", "-o", str(program), str(source)], check=True)
    process = stage.spawn_ready([str(program)])
    outcome = tool.ask(process.target(kind), "arenas", "--json")
    assert outcome.code == 0
    (arena,) = outcome.envelope["data"]["arenas"]
    assert (arena["system_bytes"], arena["used_bytes"], arena["tcache_bytes"], arena["threads"]) in ((0, 0, 0, 0), (0, 0, 0, 1))
    checks = {row["what"]: row for row in tool.ask(process.target(kind), "doctor", "--json").envelope["data"]["checks"]}
    assert "by structure" in checks


def test_while_it_runs(stage: Stage, live: str, tool: Bare) -> None:
    """Threads that never stop allocating: what was found while they ran holds in the stop, or is searched again there."""
    process = stage.start("busy", "4")
    for _ in range(5):
        outcome = tool.ask(process.target(live), "arenas", "--json")
        assert outcome.code in (0, 4)
        for arena in outcome.envelope["data"]["arenas"]:
            parts = ("used_bytes", "tcache_bytes", "fast_bytes", "free_bytes", "top_bytes", "overhead_bytes", "unparsed_bytes")
            assert arena["system_bytes"] == sum(arena[part] for part in parts)
    assert process.popen.poll() is None

DATA = jemallocs.DEBUG_FILES
BUILD_IDS = sorted(path.name.split(".")[0] for path in DATA.glob("*.debug.xz"))
GLIBC = ROOT / "tests" / "data" / "glibc"
GLIBC_BUILD_IDS = sorted(path.name.split(".")[0] for path in GLIBC.glob("*.debug.xz"))


@pytest.fixture(scope="module")
def build_id() -> str:
    """The build-id of this system's libjemalloc2; skips where no pack is shipped for it."""
    found = ElfFile(str(jemallocs.library())).build_id()
    if found not in BUILD_IDS:
        pytest.skip("no pack is shipped for this system's libjemalloc2 (build-id %s)" % found)
    return str(found)


def preloaded(stage: Stage) -> Process:
    """A program under the stock library."""
    return stage.start("recorder", "9", "1000", "3", env={"LD_PRELOAD": str(jemallocs.library())})


def test_a_stripped_library_is_read_by_its_pack(stage: Stage, kind: str, build_id: str) -> None:
    """Without debug information the bundled pack answers, and the answer says so."""
    answer = heapx(preloaded(stage).target(kind), "arenas", "--json").envelope
    (jemalloc,) = [one for one in answer["allocators"] if one["name"] == "jemalloc"]
    assert (jemalloc["layout"], jemalloc["address_source"], jemalloc["build_id"]) == ("pack", "pack", build_id)


def with_change(build_id: str, change: Any) -> Dict[str, str]:
    """A tool whose pack of this build is changed."""
    tree: Dict[str, Any] = json.loads((ROOT / "gdbheapx" / "packs" / (build_id + ".json")).read_text())
    change(tree)
    return tool_with_pack(build_id, json.dumps(tree))


def move_e_bits(tree: Dict[str, Any]) -> None:
    """The extent's bits and its address change places."""
    members = tree["structs"]["edata_s" if "edata_s" in tree["structs"] else "extent_s"][1]
    members["e_bits"], members["e_addr"] = [8, 8, 1, "uint"], [0, 8, 1, "pointer"]


def move_arenas(tree: Dict[str, Any]) -> None:
    """The array of arenas is said to be somewhere else."""
    tree["symbols"]["arenas"][0] += 4096


@pytest.mark.parametrize("change", [move_e_bits, move_arenas])
def test_a_pack_that_is_wrong_is_refused(stage: Stage, core: str, build_id: str, change: Any) -> None:
    """A pack with the right build-id that does not fit the memory is not believed: one line says so, and there is no answer from it."""
    outcome = heapx(preloaded(stage).target(core), "arenas", "--allocator", "jemalloc", env=with_change(build_id, change))
    assert outcome.code in (1, 2) and not outcome.stdout, outcome.stdout
    assert "its memory does not match its layout" in outcome.stderr and len(outcome.stderr.strip().splitlines()) == 1, outcome.stderr


# ---------------------------------------------------------------------------------------------------- glibc


@pytest.fixture(scope="module")
def libc_build_id() -> str:
    """The build-id of this system's libc; skips where no pack is shipped for it."""
    library = next((path for path in Path("/usr/lib").glob("*-linux-gnu*/libc.so.6")), Path("/lib/x86_64-linux-gnu/libc.so.6"))
    found = ElfFile(str(library)).build_id() if library.exists() else None
    if found not in GLIBC_BUILD_IDS:
        pytest.skip("no pack is shipped for this system's libc (build-id %s)" % found)
    return str(found)


@by_turns("state", ["one", "seven", "mmapped"])
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
def test_a_pack_of_glibc_that_is_wrong_is_refused(stage: Stage, core: str, libc_build_id: str, change: Any) -> None:
    """A pack with the right build-id that does not fit the memory is not believed: one line says so, and there is no answer from it."""
    target = [*stage.start("recorder", "9", "1000", "3").target(core), "--no-debug-info"]
    outcome = heapx(target, "arenas", env=with_change(libc_build_id, change))
    assert outcome.code == 1 and not outcome.stdout, outcome.stdout
    assert "its memory does not match its layout" in outcome.stderr and len(outcome.stderr.strip().splitlines()) == 1, outcome.stderr


def test_a_libc_read_by_its_pack_is_not_called(stage: Stage, live: str, libc_build_id: str) -> None:
    """A pack does not say where malloc's functions end, so nobody can tell that no thread is inside: trim refuses, its prediction answers."""
    target = [*stage.start("recorder", "9", "1000", "3").target(live), "--no-debug-info"]
    refused = heapx(target, "trim", "--yes")
    assert refused.code == 1 and "read by a pack" in refused.stderr, refused.stderr
    assert "(build-id %s)" % libc_build_id in refused.stderr and "debuginfod-find debuginfo %s" % libc_build_id in refused.stderr, refused.stderr
    assert "--debug-dir DIR" in refused.stderr, refused.stderr
    dry = heapx(target, "trim", "--dry-run", "--json")
    assert dry.code == 0 and b"--debug-dir DIR" in dry.stdout, dry.stdout
