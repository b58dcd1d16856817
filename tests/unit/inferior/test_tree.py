"""Paths in the tree the target ran in, and what is said about debug files for it.

Files: glibc/detect.py, jemalloc/find.py.
"""

import errno
import os
from pathlib import Path
from typing import Optional

import pytest

from gdbheapx.common import files
from gdbheapx.glibc.detect import PACKAGES as LIBC
from gdbheapx.inferior import source


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
