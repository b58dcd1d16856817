"""Processes without an allocator that is read, and one under Valgrind, whose malloc is Valgrind's own."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Dict

import pytest

from tests.support.addons import require_addon
from tests.support.jemallocs import CACHE
from tests.support.paths import PROGRAMS
from tests.support.processes import Process, Stage, by_turns
from tests.support.programs import need
from tests.support.tool import alone, heapx, run, tool_command

pytestmark = pytest.mark.once  # libcs and languages that the images lack, and the tool's own rules

BUILDS = {
    "static musl": ("musl-gcc", "-O1", "-static", "-DNEVER_FREES"),
    "static musl, stripped": ("musl-gcc", "-O1", "-static", "-s", "-DNEVER_FREES"),
    "static glibc, stripped": ("gcc", "-O1", "-static", "-s"),
}
NAMES = {"static musl": "musl", "static musl, stripped": "musl"}


def start(stage: Stage, program: Path, *arguments: str) -> Process:
    """A program that says when it is ready."""
    process = stage.spawn([str(program), *arguments], env={"GOTRACEBACK": "crash"})  # or a signal would leave no core of a Go program
    process.wait_ready()
    return process


def built(folder: Path, name: str) -> Path:
    """kept.c by one of the compilers; skips without it."""
    command = BUILDS[name]
    if not shutil.which(command[0]):
        pytest.skip("%s is not installed" % command[0])
    made = folder / "kept"
    subprocess.run([*command, "-o", str(made), str(PROGRAMS / "kept.c")], check=True, capture_output=True)
    return made


def kept_go(folder: Path, *flags: str) -> Path:
    """kept.go without cgo; skips without Go. What Go's own packages compile to is kept beside the Rust programs: twenty seconds of two processors."""
    need("go")
    made = folder / "kept_go"
    environment = dict(os.environ, CGO_ENABLED="0", GOCACHE=str(CACHE.parent / "go"), GOFLAGS="-mod=mod", GOTOOLCHAIN="local")
    done = subprocess.run(["go", "build", *flags, "-o", str(made), str(PROGRAMS / "kept.go")], env=environment, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this go builds nothing: " + done.stderr.strip().splitlines()[-1])
    return made


def split_of(data: Dict[str, Any]) -> Any:
    """The split, which tells something."""
    assert data["split"], data
    return data["split"]


@by_turns("name", list(NAMES))
def test_report_where_malloc_cannot_be_read(stage: Stage, kind: str, folder: Path, name: str) -> None:
    """The split of the memory, whose malloc it is, the next step, and exit code 4: malloc is there and was not read."""
    require_addon("allocators")
    process = start(stage, built(folder, name))
    outcome = heapx(process.target(kind), "report", "--json")
    envelope = outcome.envelope
    assert outcome.code == 4 and envelope["partial"] is True, outcome.stderr
    split_of(envelope["data"])
    (problem,) = envelope["problems"]
    assert problem["code"] == "allocator-unread" and NAMES[name] in problem["what"] and "bump" in problem["what"] and problem["hint"], problem
    assert envelope["data"]["verdict"]["kind"] == "inconclusive" and envelope["data"]["next"]
    text = heapx(process.target(kind), "report")
    assert text.code == 4 and text.stdout.isascii() and NAMES[name].encode() in text.stdout


def test_other_commands_name_it(stage: Stage, kind: str, folder: Path) -> None:
    """A command that needs the allocator says whose malloc it is, exit code 1; doctor has a line about it, without another that no libc was found."""
    require_addon("allocators")
    process = start(stage, built(folder, "static musl, stripped"))
    outcome = heapx(process.target(kind), "arenas")
    assert outcome.code == 1 and "kept contains musl" in outcome.stderr
    rows = heapx(process.target(kind), "doctor", "--json").envelope["data"]["checks"]
    assert [row["what"] for row in rows if row["ok"] is False and row["what"] in ("musl", "allocator", "debug symbols")] == ["musl"]


@by_turns("ask", [heapx, alone])
def test_a_program_that_is_not_loaded_yet(stage: Stage, kind: str, folder: Path, ask: Any) -> None:
    """It stands in ld.so, before libc is mapped: that is said, and not that it were linked statically."""
    gate, made = folder / "gate", folder / "kept"
    os.mkfifo(gate)  # ld.so opens what is to be preloaded first, and waits there for a writer
    subprocess.run(["gcc", "-O1", "-o", str(made), str(PROGRAMS / "kept.c")], check=True)
    process = stage.spawn([str(made)], env={"LD_PRELOAD": str(gate)})
    for _ in range(500):
        if Path("/proc/%d/wchan" % process.pid).read_text() in ("wait_for_partner", "fifo_open"):
            break
        time.sleep(0.01)
    for words in ("arenas", "report"):
        outcome = ask(process.target(kind), words)
        told = outcome.stderr + outcome.stdout.decode()
        assert outcome.code == (1 if words == "arenas" else 4) and "is not loaded yet" in told and "statically" not in told, told


GO = {"go": (), "stripped": ("-ldflags", "-s -w")}
OF_GO = [("live", "go"), ("core", "stripped"), *(pytest.param(*both, marks=pytest.mark.wild) for both in (("core", "go"), ("live", "stripped")))]


@pytest.mark.parametrize("kind, build", OF_GO, indirect=["kind"])
def test_go(stage: Stage, kind: str, folder: Path, build: str) -> None:
    """There is no malloc in it: the answer is whole, exit code 0; commands about malloc say why they have none."""
    process = start(stage, kept_go(folder, *GO[build]))
    data = heapx(process.target(kind), "report", "--json").data
    split_of(data)
    assert data["verdict"]["kind_1_0"] in ("not-malloc", "unread")
    outcome = heapx(process.target(kind), "arenas")
    assert outcome.code == 1 and "Go" in outcome.stderr
    assert heapx(process.target(kind), "doctor").code == 0


def test_a_stripped_program_with_the_one_before(stage: Stage, kind: str, folder: Path) -> None:
    """The next step holds: the same build with its symbols, given with --exe, makes the answer whole."""
    program, whole = folder / "kept", folder / "whole"
    subprocess.run(["gcc", "-O1", "-static", "-o", str(whole), str(PROGRAMS / "kept.c")], check=True)
    subprocess.run(["strip", "-o", str(program), str(whole)], check=True)
    process = start(stage, program)
    data = heapx([*process.target(kind), "--exe", str(whole)], "report", "--json").data
    assert sum(arena["used_bytes"] for arena in data["arenas"]) >= 1000 * 10000


def test_a_libc_without_symbols(stage: Stage, live: str) -> None:
    """A program on a glibc whose debug file is not read: report tells the split, and what to install; other commands still refuse."""
    process = stage.start("mapper")
    outcome = heapx(process.target(live), "report", "--json", "--no-debug-info")
    assert outcome.code in (0, 4)
    if outcome.code == 4:
        assert "libc.so.6" in str(outcome.envelope["problems"])
    split_of(outcome.envelope["data"])


@by_turns("flags", [("-static",), ("-static-pie",)])
def test_a_static_program_whose_release_nothing_tells(stage: Stage, kind: str, folder: Path, flags: "tuple[str, ...]") -> None:
    """Its release is told by its bytes, its thread cache among them, which no running process shows: the answer is whole, live as on a core."""
    program = folder / "kept"
    if subprocess.run(["gcc", "-O1", *flags, "-o", str(program), str(PROGRAMS / "kept.c")], capture_output=True).returncode:
        pytest.skip("this gcc links no such programs")
    process = start(stage, program)
    data = heapx(process.target(kind), "arenas", "--json").data
    assert data["arenas"][0]["tcache_chunks"] is not None
    assert run([*tool_command(), *process.target(kind), "tcache"]).code == 0


@pytest.mark.skipif(not shutil.which("valgrind"), reason="no valgrind here")
def test_owner_is_told() -> None:
    """There is no verdict, for whatever its memory looks like; doctor names the same owner."""
    words = ["valgrind", "-q", "sh", "-c", "echo ready; read word"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            target = ["--pid", str(process.pid)]
            report = heapx(target, "report", "--json").envelope["data"]
            assert (report["verdict"]["kind"], report["verdict"]["code"]) == ("inconclusive", "owner-unread")
            assert "Valgrind" in [row["what"] for row in heapx(target, "doctor", "--json").envelope["data"]["checks"] if row["ok"] is False]
        finally:
            process.kill()
