"""glibc is read by structure alone, live and from cores, with the figures that its symbols give."""

import subprocess
from pathlib import Path
from typing import Sequence

import pytest

from tests.support import bare
from tests.support.bare import Bare, facts
from tests.support.paths import GDB, PROGRAMS
from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import heapx

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
