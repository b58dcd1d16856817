"""Paths in the tree the target ran in, and what is said about debug files for it.

A core proves the files that it names: by its own bytes, never by the file's.

Files: glibc/detect.py, inferior/source.py, inferior/target.py, jemalloc/find.py.
"""

import errno
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from gdbheapx.common import files
from gdbheapx.glibc.detect import PACKAGES as LIBC
from gdbheapx.inferior import source
from gdbheapx.inferior.elf.file import ElfFile
from gdbheapx.inferior.source import has_layout
from gdbheapx.inferior.target import open_elf_target
from tests.support import kernelcore
from tests.support.builders.core_file import Piece, build
from tests.support.compilers import compile_c
from tests.support.paths import PROGRAMS


@pytest.mark.parametrize(
    "path, expected",
    [
        ("/usr/lib/libc.so.6", "/usr/lib/libc.so.6"),
        ("/lib/libc.so.6", "/usr/lib/libc.so.6"),
        ("/lib64/ld.so", "/usr/lib/ld-2.31.so"),
        ("/up/libc.so.6", "/usr/lib/libc.so.6"),
        ("/gone/x", None),
        ("/usr/../../../lib/x", "/usr/lib/x"),
    ],
)
def test_links_stay_in_the_tree(tmp_path: Path, path: str, expected: Optional[str]) -> None:
    """Relative and absolute links, also those that climb above the root, mean places in the tree, as they did where it was the root."""
    (tmp_path / "usr" / "lib").mkdir(parents=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "ld.so").symlink_to("/lib/ld-2.31.so")
    (tmp_path / "up").symlink_to("../../../../usr/lib")
    (tmp_path / "gone").symlink_to("/nowhere")
    for name in ("usr/lib/libc.so.6", "usr/lib/ld-2.31.so", "usr/lib/x"):
        (tmp_path / name).touch()
    ways = (files.open_of_target, walked, files.open_apart)
    for open_it in ways:
        if expected is None:
            with pytest.raises(FileNotFoundError):
                open_it(files.in_tree(str(tmp_path), path))
            continue
        descriptor = open_it(files.in_tree(str(tmp_path), path))
        assert os.path.samestat(os.fstat(descriptor), os.stat(str(tmp_path) + expected))
        os.close(descriptor)


def walked(path: files.TargetPath) -> int:
    """A handle found without openat2."""
    top = os.open(path.root or "", files.HANDLE)
    try:
        return files.walk_path(top, path.inside)
    finally:
        os.close(top)


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    """A link to itself ends after as many steps as the kernel takes."""
    (tmp_path / "a").symlink_to("/a")
    for open_it in (files.open_of_target, walked):
        with pytest.raises(OSError) as caught:
            open_it(files.in_tree(str(tmp_path), "/a/b"))
        assert caught.value.errno == errno.ELOOP


def test_without_a_tree_paths_resolve_as_they_do_here() -> None:
    """An empty root is this machine's own tree; a relative name is one of the working folder."""
    assert files.in_tree("", "/etc").root == "/" and files.in_tree("", "x/y").root == "."
    os.close(files.open_of_target(files.in_tree("", "/etc"), is_folder=True))


@pytest.mark.parametrize(
    "text, command",
    [
        ('ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n', "apt-get install libc6-dbg"),
        ('ID=pop\nID_LIKE="ubuntu debian"\n', "apt-get install libc6-dbg"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf debuginfo-install glibc"),
        ("ID=void\n", None),
        ("", None),
    ],
)
def test_the_package_is_that_of_the_trees_release(tmp_path: Path, text: str, command: str) -> None:
    """os-release of the tree decides which command is named; an unknown distribution gets none."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").write_text(text)
    assert source.find_debug_package(str(tmp_path), LIBC) == command
    assert source.read_release_name(str(tmp_path)) == ("Debian GNU/Linux 12 (bookworm)" if "PRETTY" in text else "")


def test_what_debuginfod_fetched_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of debuginfod-find is looked into, where its variables say it is."""
    (tmp_path / "abcd").mkdir()
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path))
    assert source.find_downloaded("abcd") is None
    (tmp_path / "abcd" / "debuginfo").write_bytes(b"x")
    assert source.find_downloaded("abcd") == str(tmp_path / "abcd" / "debuginfo")
    monkeypatch.delenv("DEBUGINFOD_CACHE_PATH")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert source.find_downloaded("abcd") is None


@pytest.mark.parametrize(
    "path, is_wheel",
    [
        ("/srv/venv/lib/python3.11/site-packages/pyarrow/libarrow.so.2600", True),
        ("/usr/local/lib/python3.11/dist-packages/duckdb/duckdb.so", True),
        ("/usr/lib/python3/dist-packages/numpy/core/_multiarray_umath.so", False),
        ("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", False),
    ],
)
def test_what_pip_installed_is_told_from_what_a_distribution_did(path: str, is_wheel: bool) -> None:
    """debuginfod serves the packages of distributions, not PyPI's wheels."""
    assert source.is_from_wheel("", path) is is_wheel


def test_a_wheel_is_known_by_its_metadata_wherever_it_was_put(tmp_path: Path) -> None:
    """pip install --target names no site-packages, but leaves a .dist-info beside the package."""
    library = tmp_path / "duckdb" / "lib" / "duckdb.so"
    library.parent.mkdir(parents=True)
    assert not source.is_from_wheel("", str(library))
    (tmp_path / "duckdb-1.1.3.dist-info").mkdir()
    assert source.is_from_wheel("", str(library)) and not source.is_from_wheel("", "/nowhere/at/all.so")

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
