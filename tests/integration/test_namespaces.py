"""Files of the target that are not those which this machine has at the same path: other mount namespaces, chroots, files that were replaced."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import List, Sequence

import pytest

from gdbheapx.inferior.source import Openable, resolves_to_itself
from gdbheapx.inferior.target import open_elf_target
from tests.support.paths import PROGRAMS
from tests.support.processes import Builder, Process, Stage
from tests.support.tool import heapx
from tests.support.victims import status

pytestmark = pytest.mark.image  # how its gdb opens the files of other namespaces

HELD = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
%s
static void *kept[1000];
int wait_for_ever(void)
{
    int number;
    char byte;
    for (number = 0; number < 1000; number++)
        kept[number] = malloc(100 + number);
    puts("ready");
    fflush(stdout);
    return read(0, &byte, 1);
}
"""
"""A library in whose function the program waits, with as many others before it as are asked for."""
MAIN = "int wait_for_ever(void);\nint main(void)\n{\n    return wait_for_ever();\n}\n"


def held(folder: Path, others: int, *flags: str) -> Path:
    """libheld.so in the folder: code and unwinding tables of many functions, or of next to none."""
    folder.mkdir(exist_ok=True)
    source = folder / "held.c"
    source.write_text(HELD % "\n".join("int other_%d(int x) { return puts(\"\") + x * %d; }" % (one, one) for one in range(others)))
    library = folder / "libheld.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-g", *flags, "-o", str(library), str(source)], check=True)
    return library


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of 4,000 functions."""
    return held(tmp_path_factory.mktemp("held") / "there", 4000)


@pytest.fixture
def program(folder: Path) -> Path:
    """A program that waits in folder/here/libheld.so, which is a small one."""
    library = held(folder / "here", 1)
    (folder / "main.c").write_text(MAIN)
    path = folder / "held_program"
    subprocess.run(["gcc", "-O1", "-o", str(path), str(folder / "main.c"), "-L", str(library.parent), "-lheld", "-Wl,-rpath," + str(library.parent)], check=True)
    return path


def elsewhere(stage: Stage, program: Path, mounted: Sequence["tuple[Path, Path]"]) -> Process:
    """The program in a mount namespace of its own, in which files are mounted over others; skips where that may not be made."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace may be made here")
    lines = ["mount --make-rprivate /"] + ["mount --bind '%s' '%s'" % pair for pair in mounted] + ["exec '%s'" % program]
    return stage.spawn_ready(["unshare", "-m", "sh", "-ec", "\n".join(lines)])


@pytest.fixture
def other(stage: Stage, program: Path, folder: Path, large: Path) -> Process:
    """The program, with a library of 4,000 functions where this machine has one of two at the same path."""
    return elsewhere(stage, program, [(large, folder / "here" / "libheld.so")])


@pytest.mark.parametrize("words", [("trim", "--yes"), ("report",), ("arenas",)], ids=lambda words: words[0])
def test_another_library_at_the_same_path(live: str, other: Process, words: "tuple[str, ...]") -> None:
    """gdb opens a file again by its path, which is another file's here: it must not get that one, nor die of it."""
    outcome = heapx(["--pid", str(other.pid)], *words)
    assert outcome.code == 0 and "internal" not in outcome.stderr, outcome.stderr
    assert status(other.pid, "TracerPid") == "0"


def test_a_name_that_gdb_may_resolve(live: str, other: Process, folder: Path) -> None:
    """A link of /proc is handed to gdb as it is where its text leads to the same file, and as a copy without a name where it does not."""
    mine, theirs = folder / "here" / "libheld.so", Path("/proc/%d/root%s" % (other.pid, folder / "here" / "libheld.so"))
    openable = Openable()
    assert resolves_to_itself(str(mine)) and openable.name(str(mine)) == str(mine)
    name = openable.name(str(theirs))
    assert not resolves_to_itself(str(theirs)) and name and os.path.realpath(name) != str(mine)
    assert Path(name).read_bytes() == theirs.read_bytes() != mine.read_bytes()
    assert openable.name(str(theirs)) == name


def test_no_room_for_a_copy(live: str, other: Process, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no folder takes the copy it is kept in memory."""
    monkeypatch.setenv("TMPDIR", str(folder / "none"))
    theirs = "/proc/%d/root%s" % (other.pid, folder / "here" / "libheld.so")
    name = Openable().name(theirs)
    assert name is None or Path(name).read_bytes() == Path(theirs).read_bytes()


NO_ID = ("-static", "-Wl,--build-id=none")


def other_build(builder: Builder, folder: Path) -> Path:
    """recorder as a static program without a build-id whose variables lie elsewhere."""
    made = folder / "other_build"
    source = folder / "other.c"
    source.write_text('char before_all[1 << 16] = "x";\n#include "%s"\n' % (PROGRAMS / "recorder.c"))
    subprocess.run(["gcc", "-O1", "-g", "-I", str(PROGRAMS), *NO_ID, "-o", str(made), str(source), "-pthread"], check=True)
    return made


def test_a_program_without_a_build_id_that_was_replaced(stage: Stage, live: str, builder: Builder, folder: Path) -> None:
    """What lies at its path by now is another build: the one that runs is read, as before it was replaced."""
    program = folder / "program"
    shutil.copy(builder.build("recorder", *NO_ID), program)
    process = stage.spawn_ready([str(program), str(folder / "record"), "9", "1000", "3"], folder, record=folder / "record")
    before = heapx(process.target(live), "arenas", "--json").data
    os.replace(other_build(builder, folder), program)
    assert heapx(process.target(live), "arenas", "--json").data == before


def test_a_core_without_a_build_id_whose_program_was_replaced(stage: Stage, core: str, builder: Builder, folder: Path) -> None:
    """Its own pages that the core leaves out are not taken from the other build: with the program it was, the answer is whole; with the other, it says so."""
    program, dynamic = folder / "program", ("-Wl,--build-id=none",)
    shutil.copy(builder.build("recorder", *dynamic), program)
    process = stage.spawn_ready([str(program), str(folder / "record"), "9", "1000", "3"], folder, record=folder / "record")
    target = process.target(core)
    assert heapx(target, "arenas", "--json").data
    kept = folder / "kept"
    program.rename(kept)
    other_build(builder, folder)
    subprocess.run(["gcc", "-O1", "-I", str(PROGRAMS), *dynamic, "-o", str(program), str(folder / "other.c"), "-pthread"], check=True)
    outcome = heapx(target, "doctor")
    assert "a different build" in outcome.stdout.decode(), outcome.stdout
    assert "a different build" not in heapx([*target, "--exe", str(kept)], "doctor").stdout.decode()


def test_a_file_that_was_cut_while_it_is_mapped(stage: Stage, live: str, folder: Path, program: Path) -> None:
    """Half of a mapped library is gone from the disk: there is an answer, or one line, never a gdb that dies."""
    process = stage.spawn_ready([str(program)])
    library = folder / "here" / "libheld.so"
    size = library.stat().st_size
    for words in (("arenas",), ("trim", "--yes")):
        os.truncate(library, size - size // 4)  # its section headers, symbols and debug information; what the process runs stays
        outcome = heapx(process.target(live), *words)
        assert outcome.code in (0, 1, 4) and outcome.stderr.count("gdbheapx: ") <= 1 and "internal" not in outcome.stderr, outcome.stderr
        assert status(process.pid, "TracerPid") == "0"


def test_a_chroot(stage: Stage, live: str, builder: Builder, folder: Path) -> None:
    """A process below another root directory: its own files are read, by links that mean places in its tree."""
    root = folder / "root"
    (root / "bin").mkdir(parents=True)
    shutil.copy(builder.build("recorder", "-static"), root / "bin" / "recorder")
    if subprocess.run(["chroot", str(root), "/bin/recorder"], capture_output=True).returncode == 125:
        pytest.skip("chroot is not permitted here")
    process = stage.spawn_ready(["chroot", str(root), "/bin/recorder", "/record", "9", "1000", "3"], folder, record=root / "record")
    assert heapx(process.target(live), "arenas", "--json").data["arenas"]


def modules_files(pid: int) -> List[str]:
    """The files that the tool takes for the modules of a process."""
    target = open_elf_target(pid=pid)
    return [target.module_file(module) or "" for module in target.modules()]


def test_a_debug_file_of_another_tree(live: str, other: Process, folder: Path) -> None:
    """Every file that is taken is the one that the process has mapped, by device and inode."""
    for path in modules_files(other.pid):
        assert path.startswith("/proc/%d/" % other.pid)
