"""Mallocs that nobody reads, in programs of which nothing else is at hand either: each is named, no figure is given for it."""

import shutil
import subprocess
from pathlib import Path
from typing import Callable, Dict

import pytest

from tests.support import bare
from tests.support.addons import require_addon
from tests.support.bare import Bare
from tests.support.paths import PROGRAMS
from tests.support.processes import Process, Stage
from tests.support.programs import need
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # packages that a developer's machine need not have

FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
LIBRARIES = {"tbbmalloc": ("libtbbmalloc_proxy.so.2", "tbbmalloc")}
"""File, name in words. Debian: libtbbmalloc2."""
WAYS = {"nothing": (), "symbols, gdb": (*bare.LIVE, "--gdb", "none")}
"""What is hidden: options."""


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """The tool without packs."""
    return bare.make(tmp_path_factory.mktemp("bare"))


def preloaded(stage: Stage, name: str) -> Process:
    """A program of glibc's with that library before it."""
    paths = [Path(folder) / LIBRARIES[name][0] for folder in FOLDERS]
    library = next((path for path in paths if path.exists()), None)
    if library is None:
        pytest.skip("%s is not installed" % LIBRARIES[name][0])
    return stage.spawn_ready([str(kept(stage.folder(), "gcc", "-O1"))], env={"LD_PRELOAD": str(library)})


def kept(folder: Path, *command: str) -> Path:
    """kept.c by that compiler."""
    if not shutil.which(command[0]):
        pytest.skip("%s is not installed" % command[0])
    subprocess.run([*command, "-o", str(folder / "kept"), str(PROGRAMS / "kept.c")], check=True, capture_output=True)
    return folder / "kept"


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("name", list(LIBRARIES))
def test_another_malloc_is_named(stage: Stage, kind: str, tool: Bare, name: str, way: str) -> None:
    """It owns malloc and is not read: exit code 4, its name, and no bytes of glibc's idle heap passed off as the program's."""
    target = preloaded(stage, name).target(kind)
    found = heapx(target, "arenas", "--json") if way == "nothing" else tool.ask([*target, *WAYS[way]], "arenas", "--json")
    assert found.code == 4 and found.envelope["partial"]
    told = [one for one in found.envelope["problems"] if one["code"] == "owner-unread"]
    assert told and LIBRARIES[name][1] in told[0]["what"], found.envelope["problems"]
    (owner,) = [one for one in found.envelope["allocators"] if one["owns_malloc"]]
    assert (owner["name"], owner["layout"]) == (LIBRARIES[name][1], None)
    assert {one["name"] for one in found.envelope["allocators"]} <= {"glibc", owner["name"]}
    assert sum(row["system_bytes"] for row in found.envelope["data"]["arenas"]) == 0


@pytest.mark.parametrize("hidden", [False, True], ids=["nothing", "everything"])
@pytest.mark.parametrize("name", list(LIBRARIES))
def test_another_malloc_of_a_core_alone(stage: Stage, core: str, tool: Bare, name: str, hidden: bool) -> None:
    """Without any file of the process nothing is taken for the program's heap: who owns malloc is then unknown, never a guess."""
    target = preloaded(stage, name).target(core)
    found = tool.ask([*target, "--gdb", "none"], "arenas", "--json", alone=hidden)
    if found.code == 1:
        assert found.stderr.count("\n") == 1
        return
    assert found.code == 4 or hidden, found.stderr
    read = [one for one in found.envelope["allocators"] if one["layout"]]
    assert {one["name"] for one in read} <= {"glibc"} and not [one for one in read if one["owns_malloc"]]
    assert sum(row["system_bytes"] for row in found.envelope["data"]["arenas"]) == 0


def musl(stage: Stage) -> Process:
    """It never frees, so that it has the malloc that keeps no list."""
    require_addon("allocators")
    return run(stage, kept(stage.folder(), "musl-gcc", "-O1", "-static", "-s", "-DNEVER_FREES"))


def go(stage: Stage) -> Process:
    need("go")
    folder = stage.folder()
    flags = {
        "CGO_ENABLED": "0",
        "GOCACHE": str(folder / "cache"),
        "GOTOOLCHAIN": "local",
        "PATH": "/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
    }
    done = subprocess.run(
        ["go", "build", "-ldflags=-s -w", "-o", str(folder / "kept"), str(PROGRAMS / "kept.go")], env=flags, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip("this go builds nothing: " + done.stderr.strip().splitlines()[-1])
    return run(stage, folder / "kept")


def run(stage: Stage, program: Path) -> Process:
    return stage.spawn_ready([str(program)], env={"GOTRACEBACK": "crash"})


STATIC: Dict[str, Callable[[Stage], Process]] = {"musl": musl, "go": go}


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("name", list(STATIC))
def test_programs_without_a_malloc_that_is_read(stage: Stage, kind: str, tool: Bare, name: str, way: str) -> None:
    """Stripped and static: one line says what it is, or that nothing tells; `report` still tells the memory."""
    target = STATIC[name](stage).target(kind)
    for words, code in (("arenas", (1,)), ("report", (0, 4))):
        found = heapx(target, words, "--json") if way == "nothing" else tool.ask([*target, *WAYS[way]], words, "--json")
        assert found.code in code, (words, found.stderr)
        if words == "arenas":
            assert found.stderr.count("\n") == 1 and (
                any(text in found.stderr for text in ("no malloc here", "no allocator found", "no readable allocator", "contains musl"))
            )
        else:
            assert found.envelope["data"]["split"] and not [one for one in found.envelope["allocators"] if one["layout"]]
