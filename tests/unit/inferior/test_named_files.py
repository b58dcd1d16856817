"""A core proves the files that it names: by its own bytes, never by the file's.

Files: inferior/source.py, inferior/target.py.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest

from gdbheapx.inferior.elf.file import ElfFile
from gdbheapx.inferior.source import has_layout
from gdbheapx.inferior.target import open_elf_target
from tests.support import kernelcore
from tests.support.builders.core_file import Piece, build
from tests.support.compilers import compile_c
from tests.support.paths import PROGRAMS

BASE = 0x10000000000
PROGRAM = (PROGRAMS / "named_by_itself.c").read_text()
SECRET = "char secret[64] = \"a-token-of-somebody-else\";\nint main(void) { return secret[0]; }\n"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(core, path) of a program that has mapped the file of this path, a text then, and says that an object was loaded from it."""
    if kernelcore.reason():
        pytest.skip(kernelcore.reason())
    folder = tmp_path_factory.mktemp("hostile")
    program, named = compile_c(PROGRAM, folder / "hostile", "-Wl,--build-id"), folder / "vault.so"
    named.write_text("a text\n")
    popen = kernelcore.start([program, str(named)], stdout=subprocess.PIPE, cwd=str(folder))
    with popen:
        assert popen.stdout is not None and popen.stdout.readline() == b"ready\n"
        try:
            return kernelcore.take(popen, str(folder / "hostile.core")), named
        finally:
            popen.kill()


def another_core(path: Path) -> None:
    """A core of somebody else."""
    path.write_bytes(build([Piece(0, 4096, b"a-token-of-somebody-else" * 100)]))


def another_program(path: Path) -> None:
    """A program of somebody else, without a build-id."""
    shutil.copy(compile_c(SECRET, path.parent / "another", "-Wl,--build-id=none"), path)


@pytest.mark.parametrize("made", [another_core, another_program])
@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_nothing_comes_out_of_a_file_that_the_core_does_not_show(hostile: Any, made: Callable[[Path], None], mode: int) -> None:
    """What lies here at the path that a core names: not a byte of it is the core's memory, and no name comes from it."""
    path, named = hostile
    named.unlink()
    made(named)
    named.chmod(mode)
    target = open_elf_target(core=path)
    module = next(module for module in target.modules() if module.base == BASE)
    assert module.name == str(named) and target.module_file(module) is None and module.build_id is None
    assert target.read_prefix(BASE, 64) == b"" and target.class_name(module, BASE + 256) is None


def test_a_sysroot_names_files_but_no_core(hostile: Any, tmp_path: Path) -> None:
    """Below --sysroot the program that nothing in the core shows is taken; another core is not."""
    path, named = hostile
    there = tmp_path / str(named)[1:]
    there.parent.mkdir(parents=True)
    for made, wanted in ((another_program, str(there)), (another_core, None)):
        there.unlink() if there.exists() else None
        made(there)
        target = open_elf_target(core=path, sysroot=str(tmp_path))
        assert target.module_file(next(module for module in target.modules() if module.base == BASE)) == wanted


def test_no_rights_of_who_reads_open_a_file(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core's own program, which its owner alone may read: its owner uses it, another user only with --exe."""
    path, specimen = core
    mode = os.stat(specimen.executable).st_mode
    os.chmod(specimen.executable, 0o700)
    try:
        assert open_elf_target(core=path).problems() == []
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        target = open_elf_target(core=path)
        assert [problem.code for problem in target.problems()] == ["wrong-file"] and target.module_file(target.modules()[0]) is None
        given = open_elf_target(core=path, executable=specimen.executable)
        assert given.problems() == [] and given.module_file(given.modules()[0]) == specimen.executable
    finally:
        os.chmod(specimen.executable, mode)


def test_the_layout_of_a_library_is_that_of_its_mappings(core: Any) -> None:
    """What a cut core's library is judged by: each mapping where a segment of the file is, and none moved by a page."""
    target = open_elf_target(core=core[0])
    plugin = target.modules()[-1]
    entries = [entry for entry in target.source.core.notes().files if entry.name == plugin.name]  # type: ignore[attr-defined]
    file = ElfFile(plugin.name)
    assert has_layout(file, entries, target.page_bytes) and not has_layout(file, [], target.page_bytes)
    moved = [*entries[:-1], entries[-1]._replace(offset=entries[-1].offset + target.page_bytes)]
    assert not has_layout(file, moved, target.page_bytes) and not has_layout(file, entries[:-2], target.page_bytes)
