"""Snapshots and cores where a URL says: what is written comes back, what cannot be handed over stays here, and patterns stand for files.

Files: snapshot/container.py.
"""

import os
import stat
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from gdbheapx.app import invocation
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import (
    CANNOT_UNPACK,
    CANNOT_WRITE,
    FILE_NOT_FOUND,
    FILE_UNREADABLE,
    MISSING_PACKAGE,
    SNAPSHOT_DAMAGED,
    ProblemCode,
)
from gdbheapx.inferior import core_file
from gdbheapx.snapshot import container, take

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
PARTS = {"head": container.pack_part([b"a" * 1000, b"b"])}


@pytest.mark.parametrize("url", ["memory://bucket/a.snap", "file://FOLDER/a.snap"])
def test_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Whole, readable by its owner alone, and nothing of it is left here; a URL is that of a snapshot."""
    here = tmp_path / "tmp"
    here.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(here))
    url = url.replace("FOLDER", str(tmp_path))
    assert container.write_file(url, PARTS) == len(b"".join(container.make_file_pieces(PARTS)))
    assert container.read_file(url) == PARTS and take.detect_source(url) == take.SNAPSHOT and os.listdir(here) == []
    if url.startswith("file:"):
        assert stat.S_IMODE((tmp_path / "a.snap").stat().st_mode) == 0o600
        assert container.read_file(str(tmp_path / "a.snap")) == PARTS


def test_what_cannot_be_handed_over_stays_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file that has it; a password in the URL is not repeated."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(HeapxError) as told:
        container.write_file("nosuch://me:secret@host/a.snap", PARTS)
    (left,) = tmp_path.iterdir()
    assert told.value.code == CANNOT_WRITE and str(left) in str(told.value.hint) and container.read_file(str(left)) == PARTS
    assert "secret" not in told.value.line() and "\n" not in told.value.line() and stat.S_IMODE(left.stat().st_mode) == 0o600


def test_what_cannot_be_read(tmp_path: Path) -> None:
    """Nothing there, and something that is cut: the errors that a file has."""
    (tmp_path / "cut").write_bytes(b"".join(container.make_file_pieces(PARTS))[:-3])
    for name, code in (("none", FILE_UNREADABLE), ("cut", SNAPSHOT_DAMAGED)):
        with pytest.raises(HeapxError) as told:
            container.read_file("file://%s/%s" % (tmp_path, name))
        assert told.value.code == code


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named."""
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(HeapxError) as told:
        container.read_file("s3://bucket/a.snap")
    assert told.value.code == MISSING_PACKAGE and "gdbheapx[store]" in str(told.value.hint)


@pytest.mark.parametrize("path, is_url", [("s3://b/k", True), ("abfs://c@a/k", True), ("/a/b", False), ("a:b", False), ("C://x", False), ("./s3://b", False)])
def test_what_is_a_url(path: str, is_url: bool) -> None:
    """A protocol and two slashes."""
    assert container.is_url(path) is is_url


def test_a_pattern_stands_for_files(tmp_path: Path) -> None:
    """In object storage, in an archive, and on this machine, where they are paths; a folder is none of them."""
    system = fsspec.filesystem("memory")
    for name in ("b.snap", "a.snap", "deep/c.snap", "text"):
        system.pipe("/patterns/" + name, b"x")
    start = "memory://patterns/"
    assert list(container.list_urls(start + "*.snap")) == [start + "a.snap", start + "b.snap"]
    assert list(container.list_urls(start + "**/*.snap")) == [start + name for name in ("a.snap", "b.snap", "deep/c.snap")]
    assert list(container.list_urls(start)) == [start + name for name in ("a.snap", "b.snap", "text")]
    assert list(container.list_urls(start + "none.snap")) == [start + "none.snap"]  # what is there is told by a look at it
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("in/a.snap", b"y")
    assert list(container.list_urls("zip://in/*::%s/all.zip" % tmp_path)) == ["zip://in/a.snap::%s/all.zip" % tmp_path]
    for url in ("file://%s/*.zip", "file://%s/", "local://%s/all.zip"):
        assert list(container.list_urls(url % tmp_path)) == [str(tmp_path / "all.zip")]


def test_a_pattern_that_stands_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing there, more than can be meant, and no such protocol: one line each."""
    for url, code in (("memory://nothing/*", FILE_NOT_FOUND), ("nosuch://me:secret@host/*", FILE_UNREADABLE)):
        with pytest.raises(HeapxError) as told:
            container.list_urls(url)
        assert told.value.code == code and "secret" not in told.value.line() and "\n" not in told.value.line()
    monkeypatch.setattr(container, "MOST_FILES", 1)
    for name in "ab":
        fsspec.filesystem("memory").pipe("/many/" + name, b"x")
    with pytest.raises(HeapxError, match="2 files"):
        container.list_urls("memory://many/*")


def test_size_and_time() -> None:
    """Those of what is there; another content has another; nothing of what is not there."""
    system = fsspec.filesystem("memory")
    system.pipe("/state/a", b"1234")
    first = container.read_url_state("memory://state/a")
    assert first is not None and first[0] == 4 and first[1]
    system.pipe("/state/a", b"123")
    assert container.read_url_state("memory://state/a") != first and container.read_url_state("memory://state/b") is None


@pytest.mark.parametrize("content", [b"\0" * 5000 + b"end", bytes(range(256)) * 9000, b""])
def test_a_core_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """To a file without a name; what is a snapshot is told by its first bytes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    fsspec.filesystem("memory").pipe("/core", content)
    name, descriptor = invocation.fetch_core("memory://core")
    assert name == "memory://core" and descriptor is not None
    with open(descriptor, "rb") as file:
        assert file.read() == content and os.listdir(tmp_path) == []
    assert not container.is_snapshot("memory://core") and not container.is_snapshot("memory://none")
    container.write_file("memory://core.snap", PARTS)
    assert container.is_snapshot("memory://core.snap")


def test_a_core_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No room, which is asked for before anything is written, nothing there, and one that another takes the place of: no descriptor stays open."""
    before = len(os.listdir("/proc/self/fd"))
    fsspec.filesystem("memory").pipe("/core", b"x" * 100)
    assert refused("memory://none") == FILE_UNREADABLE
    with monkeypatch.context() as patch:
        patch.setattr(core_file, "RESERVE_BYTES", 1 << 62)
        patch.setattr(core_file.UnpackedFile, "put", None)
        assert refused("memory://core") == CANNOT_UNPACK
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "size", lambda self, path: 50)
    assert refused("memory://core") == FILE_UNREADABLE and len(os.listdir("/proc/self/fd")) == before


def refused(url: str) -> ProblemCode:
    """Why this core cannot be read."""
    error = invocation.prepare_core(url)
    assert error is not None and error.code is not None and "\n" not in error.line()
    return error.code
