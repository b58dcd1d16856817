"""The file of a snapshot: parts by name, each compressed, with its length and a checksum.

`gdbheapx snapshot 1\\n`, then for each part: length of its name (1 byte), name, length unpacked (8), packed (8), CRC-32 of what it unpacks
to (4), all little endian, and the packed bytes (zlib). A file is somebody's: no length in it is believed before it is held against the
file's size.
"""

import os
import struct
import zlib
from typing import BinaryIO, Dict, List, Mapping

from gdbheapx.errors import HeapxError
from gdbheapx.files import open_regular
from gdbheapx.output import open_private, told

MAGIC = b"gdbheapx snapshot "
VERSION = b"1\n"
PART = struct.Struct("<QQI")
MOST_RATIO, FREE_BYTES = 128, 1 << 16
"""What a part unpacks to is at most so many times its size in the file, and so much: text of tables packs to a fortieth."""
LEVEL = 6
HINT = "take it again with `gdbheapx --pid N snapshot FILE` or `--core FILE`"


def is_snapshot(path: str) -> bool:
    """It begins as one does."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def packed(parts: Mapping[str, bytes]) -> List[bytes]:
    """The file, in pieces."""
    pieces = [MAGIC + VERSION]
    for name, data in parts.items():
        small = zlib.compress(data, LEVEL)
        if len(small) * MOST_RATIO + FREE_BYTES < len(data):  # as long a row of one byte as nobody writes; a reader would refuse it
            small = zlib.compress(data, 0)
        label = name.encode("ascii")
        pieces += [bytes([len(label)]), label, PART.pack(len(data), len(small), zlib.crc32(data)), small]
    return pieces


def write(path: str, parts: Mapping[str, bytes]) -> int:
    """Its size. Nobody else may read it; HeapxError where it cannot be written."""
    pieces = packed(parts)
    with open_private(path) as out:
        told(out.buffer.writelines, path, "choose another file")(pieces)
        told(out.flush, path, "choose another file")()
    return sum(map(len, pieces))


def read(path: str) -> Dict[str, bytes]:
    """Its parts. HeapxError where it is no whole snapshot."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return _parts(file, os.fstat(file.fileno()).st_size, path)
    except OSError as error:
        raise HeapxError("cannot read %s: %s" % (path, error.strerror or error), "give the file of a snapshot with --snapshot FILE")


def _parts(file: BinaryIO, size: int, path: str) -> Dict[str, bytes]:
    reader = _Reader(file, size, path)
    if reader.take(len(MAGIC)) != MAGIC:
        raise HeapxError("%s is not a snapshot" % path, "`gdbheapx --core FILE snapshot %s` makes one" % path)
    version = reader.take(len(VERSION))
    if version != VERSION:
        raise HeapxError("%s was made by a gdbheapx that this one does not know" % path, "read it with a later version")
    found: Dict[str, bytes] = {}
    while reader.left:
        name = reader.take(reader.take(1)[0]).decode("ascii", "replace")
        length, small, checksum = PART.unpack(reader.take(PART.size))
        if length > small * MOST_RATIO + FREE_BYTES:
            raise reader.damaged()
        found[name] = reader.unpack(small, length, checksum)
    return found


class _Reader:
    """What is left of the file."""

    def __init__(self, file: BinaryIO, size: int, path: str) -> None:
        self._file, self.left, self._path = file, size, path

    def damaged(self) -> HeapxError:
        """What is said of such a file."""
        return HeapxError("%s is damaged, or was cut" % self._path, HINT)

    def take(self, count: int) -> bytes:
        """So many bytes."""
        if count > self.left:
            raise self.damaged()
        data = self._file.read(count)
        if len(data) < count:
            raise self.damaged()
        self.left -= count
        return data

    def unpack(self, small: int, length: int, checksum: int) -> bytes:
        """A part."""
        worker = zlib.decompressobj()
        try:
            data = worker.decompress(self.take(small), length + 1)
        except zlib.error:
            raise self.damaged()
        if len(data) != length or zlib.crc32(data) != checksum:
            raise self.damaged()
        return data
