"""A stripped jemalloc or libc of Debian is read by its bundled pack; a pack that does not fit the memory is refused.

Files: layout/pack.py.
"""

import json
from pathlib import Path
from typing import Any, Dict

import pytest

from gdbheapx.inferior.elf.file import ElfFile
from tests.support import jemallocs
from tests.support.paths import ROOT
from tests.support.processes import Process, Stage, by_turns
from tests.support.tool import heapx, tool_with_pack

pytestmark = pytest.mark.image  # the pack of its libjemalloc and libc

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
