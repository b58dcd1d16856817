"""Snapshots where a URL says: what is written comes back, and what cannot be handed over stays here.

Files: snapshot/store.py, snapshot/container.py.
"""

import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from gdbheapx.errors import HeapxError
from gdbheapx.problems import CANNOT_WRITE, FILE_UNREADABLE, MISSING_PACKAGE, SNAPSHOT_DAMAGED
from gdbheapx.snapshot import container, store, take

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
PARTS = {"head": container.packed_part([b"a" * 1000, b"b"])}


@pytest.mark.parametrize("url", ["memory://bucket/a.snap", "file://FOLDER/a.snap"])
def test_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Whole, readable by its owner alone, and nothing of it is left here; a URL is that of a snapshot."""
    here = tmp_path / "tmp"
    here.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(here))
    url = url.replace("FOLDER", str(tmp_path))
    assert container.write(url, PARTS) == len(b"".join(container.file_pieces(PARTS)))
    assert container.read(url) == PARTS and take.form(url) == take.SNAPSHOT and os.listdir(here) == []
    if url.startswith("file:"):
        assert stat.S_IMODE((tmp_path / "a.snap").stat().st_mode) == 0o600
        assert container.read(str(tmp_path / "a.snap")) == PARTS


def test_what_cannot_be_handed_over_stays_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file that has it; a password in the URL is not repeated."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(HeapxError) as told:
        container.write("nosuch://me:secret@host/a.snap", PARTS)
    (left,) = tmp_path.iterdir()
    assert told.value.code == CANNOT_WRITE and str(left) in str(told.value.hint) and container.read(str(left)) == PARTS
    assert "secret" not in told.value.line() and "\n" not in told.value.line() and stat.S_IMODE(left.stat().st_mode) == 0o600


def test_what_cannot_be_read(tmp_path: Path) -> None:
    """Nothing there, and something that is cut: the errors that a file has."""
    (tmp_path / "cut").write_bytes(b"".join(container.file_pieces(PARTS))[:-3])
    for name, code in (("none", FILE_UNREADABLE), ("cut", SNAPSHOT_DAMAGED)):
        with pytest.raises(HeapxError) as told:
            container.read("file://%s/%s" % (tmp_path, name))
        assert told.value.code == code


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named."""
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(HeapxError) as told:
        container.read("s3://bucket/a.snap")
    assert told.value.code == MISSING_PACKAGE and "gdbheapx[store]" in str(told.value.hint)


@pytest.mark.parametrize("path, is_url", [("s3://b/k", True), ("abfs://c@a/k", True), ("/a/b", False), ("a:b", False), ("C://x", False), ("./s3://b", False)])
def test_what_is_a_url(path: str, is_url: bool) -> None:
    """A protocol and two slashes."""
    assert store.is_url(path) is is_url
