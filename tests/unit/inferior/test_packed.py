"""gdbheapx/inferior/core_file.py and unpacking.py

Files: inferior/core_file.py.
"""

import bz2
import gzip
import lzma
import os
import struct
from pathlib import Path
from typing import Any, List

import pytest

from gdbheapx.inferior import core_file
from tests.support.builders.core_file import Piece, build
from tests.support.builders.packed import pack

PAGE = 4096


def core_bytes(*pages: bytes, claimed_pages: int = 0) -> bytes:
    """A core of one PT_LOAD with these pages; `claimed_pages`: how many its header promises, if other than there are."""
    size = claimed_pages * PAGE or sum(map(len, pages))
    made = bytearray(build([Piece(0x10000, size, b"".join(pages))], bytes(PAGE - 64 - 2 * 56)))
    struct.pack_into("<Q", made, 64 + 56 + 32, size)
    return bytes(made)


def noise(count: int) -> List[bytes]:
    """Pages that no packer makes much smaller."""
    return [os.urandom(PAGE) for _ in range(count)]


def unpack(folder: Path, data: bytes) -> "tuple[bytes, str]":
    """What a file with this in it unpacks to, and the trouble."""
    path = folder / "a name that says nothing"
    path.write_bytes(data)
    form = core_file.find_form(str(path))
    assert form is not None
    descriptor, trouble = core_file.unpack_core(str(path), form)
    try:
        return os.pread(descriptor, 1 << 30, 0), trouble
    finally:
        os.close(descriptor)


def test_zeros_take_no_room(tmp_path: Path) -> None:
    """Pages of zeros are holes."""
    path = tmp_path / "core"
    path.write_bytes(gzip.compress(core_bytes(bytes(PAGE * 20_000), *noise(2))))
    descriptor, trouble = core_file.unpack_core(str(path), core_file.FORMS[b"\x1f\x8b"])
    status = os.fstat(descriptor)
    os.close(descriptor)
    assert status.st_size == PAGE * 20_003 and status.st_blocks * 512 < PAGE * 64


def test_the_file_is_private_and_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mode 0600, in TMPDIR, where no name is left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    path = tmp_path / "core"
    path.write_bytes(lzma.compress(core_bytes(*noise(2))))
    descriptor, trouble = core_file.unpack_core(str(path), core_file.FORMS[b"\xfd7zXZ\0"])
    assert os.readlink("/proc/self/fd/%d" % descriptor).startswith(str(folder)) and list(folder.iterdir()) == []
    assert os.fstat(descriptor).st_mode & 0o777 == 0o600
    os.close(descriptor)


def test_room_is_looked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as the core's headers tell how long it is; nothing of it is written where there is too little."""
    written: List[int] = []
    monkeypatch.setattr(core_file.UnpackedFile, "_write_data", lambda self, at, data: written.append(len(data)))
    data = gzip.compress(core_bytes(*noise(600), claimed_pages=1 << 40))
    with pytest.raises(core_file.CannotUnpack) as refused:
        unpack(tmp_path, data)
    assert "no room" in refused.value.message and "TMPDIR" in refused.value.hint and not written


def test_room_is_looked_for_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others write there too: it stops before the last 64 MB are gone."""
    fstatvfs, asked = os.fstatvfs, []  # type: Any, List[int]

    def shrinking(descriptor: int) -> Any:
        asked.append(descriptor)
        found = list(fstatvfs(descriptor))
        found[4] = (1 << 40 if len(asked) < 3 else 1 << 20) // found[1]  # f_bavail
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "fstatvfs", shrinking)
    monkeypatch.setattr(core_file, "RESERVE_BYTES", 4 << 20)
    with pytest.raises(core_file.CannotUnpack) as refused:
        unpack(tmp_path, gzip.compress(core_bytes(*noise(3000)), 0))
    assert "no room" in refused.value.message and len(asked) == 3


@pytest.mark.parametrize("inside", [b"text " * 100_000, b"", b"\x7fEL", bytes(1 << 22)], ids=["text", "nothing", "less than a header", "zeros"])
def test_what_is_in_it_must_be_a_core(tmp_path: Path, inside: bytes) -> None:
    """It is looked at first, so that another file is not unpacked to its end. A piece of a header is left to whoever reads it."""
    if inside == b"\x7fEL":
        assert unpack(tmp_path, gzip.compress(inside)) == (inside, "")
        return
    with pytest.raises(core_file.CannotUnpack):
        unpack(tmp_path, gzip.compress(inside))


def test_no_more_than_the_core_claims(tmp_path: Path) -> None:
    """A file that unpacks to more than its headers say is not unpacked to its end."""
    data = core_bytes(*noise(4)) + bytes(300 << 20)
    assert len(unpack(tmp_path, gzip.compress(data, 1))[0]) < 8 << 20


@pytest.mark.parametrize("count", [0, 0xFFFF])
def test_headers_that_do_not_tell(tmp_path: Path, count: int) -> None:
    """Without a number of segments, or with one that stands behind them all, everything is unpacked."""
    data = bytearray(core_bytes(*noise(600)))
    struct.pack_into("<H", data, 56, count)
    assert unpack(tmp_path, bz2.compress(bytes(data))) == (bytes(data), "")


@pytest.mark.parametrize("name, module", [(".zst", "zstandard"), (".lz4", "lz4")])
def test_a_library_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str) -> None:
    """The line names the extra that brings it, and the command that does without."""
    data = pack(name, core_bytes(*noise(2)))
    path = tmp_path / "core"
    path.write_bytes(data)
    import sys

    for one in [one for one in sys.modules if one.split(".")[0] == module] + [module, "compression.zstd"]:
        monkeypatch.setitem(sys.modules, one, None)
    form = core_file.find_form(str(path))
    assert form is not None
    with pytest.raises(core_file.CannotUnpack) as refused:
        core_file.unpack_core(str(path), form)
    assert module in refused.value.message and "gdbheapx[cores]" in refused.value.hint and form.tool in refused.value.hint


def test_a_zstandard_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that does not tell where a frame ends it is said that it will not do."""
    library: Any = pytest.importorskip("zstandard")

    class Old:
        def decompressobj(self) -> object:
            return object()

    monkeypatch.setitem(__import__("sys").modules, "compression.zstd", None)
    monkeypatch.setattr(library, "ZstdDecompressor", lambda **given: Old())
    with pytest.raises(core_file.CannotUnpack) as refused:
        unpack(tmp_path, pack(".zst", core_bytes(*noise(2))))
    assert "zstandard" in refused.value.message
