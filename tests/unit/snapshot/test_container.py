"""The file of a snapshot, and what is no such file.

Files: snapshot/record.py.
"""

import os
import random
import resource
import signal
import stat
import struct
import zlib
from pathlib import Path

import pytest

from gdbheapx.common import problems
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.model import Problem
from gdbheapx.snapshot import container, record
from gdbheapx.snapshot.record import RecordedOutcome, SnapshotHead, SnapshotRecord

pytestmark = pytest.mark.once  # files of bytes

HEAD = SnapshotHead("1", "2026-11-30T12:00:00Z", "core", 5, "/bin/x", None, None, None, True, [], [], [])
MADE = SnapshotRecord(HEAD, {"arenas": RecordedOutcome(True, [Problem(problems.CORE_CUT, None, "what", None)])}, {"census": {"rows": []}})


def made(folder: Path) -> Path:
    """A whole one."""
    path = folder / "one.snap"
    assert container.write_file(str(path), MADE.parts()) == path.stat().st_size
    return path


def test_it_comes_back(tmp_path: Path) -> None:
    """All parts; nobody else may read the file, also where it was there before with other rights."""
    path = tmp_path / "one.snap"
    path.write_bytes(b"x" * 5000)
    path.chmod(0o644)
    assert record.open_snapshot(str(made(tmp_path))) == MADE and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert container.is_snapshot(str(path)) and not container.is_snapshot(str(tmp_path)) and not container.is_snapshot(str(tmp_path / "none"))


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    """A disk that is full: the old snapshot stays, and nothing lies beside it."""
    path = made(tmp_path)
    whole = path.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, limit[1]))
    try:
        with pytest.raises(HeapxError, match="cannot write"):
            container.write_file(str(path), MADE.parts())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == whole and [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_thousand_damaged_ones(tmp_path: Path) -> None:
    """Cut, with other bytes, with pieces moved: one line each, or the whole where nothing that counts was hit; memory stays small."""
    whole, rng, refused = made(tmp_path).read_bytes(), random.Random(5), 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(1000):
        data = bytearray(whole)
        for _times in range(rng.randrange(1, 4)):
            what, at = rng.randrange(4), rng.randrange(len(data))
            if what == 0:
                del data[at:]
            elif what == 1:
                data[at] = rng.randrange(256)
            elif what == 2:
                data[at : at + 8] = rng.choice((b"\xff" * 8, bytes(8), struct.pack("<Q", 1 << 40)))
            else:
                data[at:at] = data[: rng.randrange(200)]
            data = data or bytearray(b"g")
        path = tmp_path / "damaged"
        path.write_bytes(data)
        try:
            assert record.open_snapshot(str(path)) == MADE
        except HeapxError as error:
            refused += 1
            assert "\n" not in error.line() and "Traceback" not in error.line()
    assert refused > 900
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_what_unpacks_to_far_more_is_refused(tmp_path: Path) -> None:
    """A part that says so, and one that does not."""
    bomb = zlib.compress(bytes(200 << 20))
    for length in (200 << 20, 1000):
        path = tmp_path / "bomb"
        path.write_bytes(container.MAGIC + container.VERSION + b"\x04head" + container.PART.pack(length, len(bomb), 0) + bomb)
        with pytest.raises(HeapxError, match="damaged"):
            container.read_file(str(path))["head"].bytes(str(path))


def test_long_rows_of_one_byte_are_kept(tmp_path: Path) -> None:
    """What packs better than a reader believes is not packed."""
    path, data = str(tmp_path / "one"), b"a" * (3 << 20)
    container.write_file(path, {"head": container.pack_part([data[:7], data[7:]])})
    assert container.read_file(path)["head"].bytes(path) == data and os.path.getsize(path) < len(data) // 4


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "is damaged, or was cut"),
        (b"\x7fELF" + bytes(100), "is not a snapshot"),
        (container.MAGIC + b"9\n", "that this one does not know"),
        (container.MAGIC + container.VERSION, "it has no part"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, said: str) -> None:
    """What they are, and what to do."""
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(HeapxError, match=said):
        record.open_snapshot(str(tmp_path / "other"))


def test_what_is_no_file(tmp_path: Path) -> None:
    """A FIFO is not waited for."""
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, tmp_path / "none"):
        with pytest.raises(HeapxError, match="cannot read"):
            record.open_snapshot(str(path))


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    """No recursion without end."""
    parts = {**MADE.parts(), "models": container.pack_part([b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}"])}
    container.write_file(str(tmp_path / "deep"), parts)
    with pytest.raises(HeapxError, match="nested too deeply"):
        record.open_snapshot(str(tmp_path / "deep"))
