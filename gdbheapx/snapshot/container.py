"""The file of a snapshot: parts by name, each compressed, with its length and a checksum.

`gdbheapx snapshot 2\\n`, then for each part: length of its name (1 byte), name, length unpacked (8), packed (8), CRC-32 of what it unpacks
to (4), all little endian, and the packed bytes (zlib). A file is somebody's: no length in it is believed before it is held against the
file's size.
"""

import io
import os
import struct
import zlib
from typing import BinaryIO, Dict, Iterable, List, Mapping, NamedTuple

from gdbheapx.errors import HeapxError
from gdbheapx.files import open_regular
from gdbheapx.output import OutputFile
from gdbheapx.problems import FILE_UNREADABLE, NOT_A_SNAPSHOT, SNAPSHOT_DAMAGED
from gdbheapx.snapshot import store

MAGIC = b"gdbheapx snapshot "
VERSION = b"2\n"
READ_BY = {b"1\n": "1.0.0rc1"}
"""The last version of gdbheapx that reads an earlier format."""
PART = struct.Struct("<QQI")
MOST_RATIO, FREE_BYTES = 128, 1 << 16
"""What a part unpacks to is at most so many times its size in the file, and so much: text of tables packs to a fortieth."""
STREAMS, FREE_OF_STREAM = "graph.", 1 << 24
"""Parts whose names begin so have numbers, which stay as they are in memory: of a heap of equal blocks they pack to a thousandth."""
LEVEL = 6
HINT = "take it again: gdbheapx -p PID snapshot new.snap, or gdbheapx --core CORE snapshot new.snap"


def is_snapshot(path: str) -> bool:
    """It begins as one does."""
    if store.is_url(path):
        return store.begins(path, len(MAGIC)) == MAGIC
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


class Packed(NamedTuple):
    """A part as it stands in the file."""

    length: int
    """Unpacked."""
    checksum: int
    """Of what it unpacks to."""
    data: bytes

    def bytes(self, path: str) -> bytes:
        """What it unpacks to. HeapxError where that is not what was packed."""
        worker = zlib.decompressobj()
        try:
            data = worker.decompress(self.data, self.length + 1)
        except zlib.error:
            raise damaged(path)
        if len(data) != self.length or zlib.crc32(data) != self.checksum:
            raise damaged(path)
        return data


def packed_part(pieces: Iterable[bytes], level: int = LEVEL, free_bytes: int = FREE_BYTES) -> Packed:
    """A part of the pieces."""
    worker, length, checksum, data = zlib.compressobj(level), 0, 0, []
    for piece in pieces:
        length, checksum = length + len(piece), zlib.crc32(piece, checksum)
        data.append(worker.compress(piece))
    small = b"".join([*data, worker.flush()])
    if len(small) * MOST_RATIO + free_bytes < length:  # so regular that a reader would refuse it: no more than a bit for each byte
        worker = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_HUFFMAN_ONLY)
        small = worker.compress(zlib.decompress(small)) + worker.flush()
    return Packed(length, checksum, small)


def damaged(path: str) -> HeapxError:
    """What is said of such a file."""
    return HeapxError("%s is damaged, or was cut" % path, HINT, code=SNAPSHOT_DAMAGED)


def file_pieces(parts: Mapping[str, Packed]) -> List[bytes]:
    """The file."""
    pieces = [MAGIC + VERSION]
    for name, part in parts.items():
        label = name.encode("ascii")
        pieces += [bytes([len(label)]), label, PART.pack(part.length, len(part.data), part.checksum), part.data]
    return pieces


def write(path: str, parts: Mapping[str, Packed]) -> int:
    """Its size. Nobody else may read it, and it is there whole or not at all; HeapxError where it cannot be written."""
    content = b"".join(file_pieces(parts))
    if store.is_url(path):
        store.put(path, content)
    else:
        OutputFile(path, "snapshot FILE", takes_any=True).finish(content)
    return len(content)


def read(path: str) -> Dict[str, Packed]:
    """Its parts, packed. HeapxError where it is no whole snapshot."""
    if store.is_url(path):
        content = store.get(path)
        return _parts(io.BytesIO(content), len(content), store.shown(path))
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return _parts(file, os.fstat(file.fileno()).st_size, path)
    except OSError as error:
        raise HeapxError(
            "cannot read %s: %s" % (path, error.strerror or error), "give the file of a snapshot with --snapshot FILE", code=FILE_UNREADABLE
        )


def _parts(file: BinaryIO, size: int, path: str) -> Dict[str, Packed]:
    reader = _Reader(file, size, path)
    if reader.take(len(MAGIC)) != MAGIC:
        hint = "take one to another file, for this name would overwrite yours: gdbheapx -p PID snapshot new.snap"
        raise HeapxError("%s is not a snapshot" % path, hint, code=NOT_A_SNAPSHOT)
    version = reader.take(len(VERSION))
    if version in READ_BY:
        what = "%s has the format of gdbheapx %s" % (path, READ_BY[version])
        raise HeapxError(what, "read it with that version, or " + HINT, code=NOT_A_SNAPSHOT)
    if version != VERSION:
        raise HeapxError(
            "%s was made by a gdbheapx that this one does not know" % path, "read it with a later version", code=NOT_A_SNAPSHOT
        )
    parts: Dict[str, Packed] = {}
    while reader.left:
        name = reader.take(reader.take(1)[0]).decode("ascii", "replace")
        length, small, checksum = PART.unpack(reader.take(PART.size))
        if length > small * MOST_RATIO + (FREE_OF_STREAM if name.startswith(STREAMS) else FREE_BYTES):
            raise damaged(path)
        parts[name] = Packed(length, checksum, reader.take(small))
    return parts


class _Reader:
    """What is left of the file."""

    def __init__(self, file: BinaryIO, size: int, path: str) -> None:
        self._file, self.left, self._path = file, size, path

    def take(self, count: int) -> bytes:
        """So many bytes."""
        if count > self.left:
            raise damaged(self._path)
        data = self._file.read(count)
        if len(data) < count:
            raise damaged(self._path)
        self.left -= count
        return data
