"""In which ways cores are compressed, as systemd-coredump and apport leave them: how to tell, and what takes them apart, bit by bit.

A file is recognised by its first bytes, whatever its name. unpacking.py writes what is in it.
"""

import os
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional

from gdbheapx.files import open_regular

IN_BYTES, LITTLE_BYTES, OUT_BYTES = 1 << 17, 1 << 11, 1 << 20
WINDOW_BITS = 31
"""The largest window of zstd (--long=31): within the memory of this process, not of the file."""


class Form(NamedTuple):
    """One way in which cores are compressed."""

    suffix: str
    tool: str
    """The command that unpacks it."""
    pieces: Callable[[int], Iterator[bytes]]
    """Gives what the descriptor's file unpacks to, in pieces of bounded size; Cut or Damaged after the last that can be had.
    ImportError where the library is missing."""


class Cut(Exception):
    """The compressed file ends before its end."""


class Damaged(Exception):
    """The compressed file contradicts itself."""


def frames(descriptor: int, make: Callable[[], Any], wrong: Any) -> Iterator[bytes]:
    """By a decompressor such as lzma's. A file may be several, one behind the other; what follows that is none is left alone."""
    decompressor, data = make(), b""
    first = data = os.read(descriptor, IN_BYTES)
    while True:
        try:
            piece = decompressor.decompress(data, OUT_BYTES)
        except wrong as error:
            raise Damaged(" ".join(str(error).split()))
        if piece:
            yield piece
        data = b""
        if decompressor.eof:
            data = decompressor.unused_data or b""
            while len(data) < 4:
                more = os.read(descriptor, IN_BYTES)
                if not more:
                    return
                data += more
            if data[:4] != first[:4]:
                return
            decompressor = make()
        elif decompressor.needs_input:
            data = os.read(descriptor, IN_BYTES)
            if not data:
                raise Cut


class Gzip:
    """zlib in the form of the others."""

    def __init__(self) -> None:
        import zlib

        self._inner: Any = zlib.decompressobj(31)
        self._left = b""

    @property
    def eof(self) -> bool:
        """The end of a member was reached."""
        return bool(self._inner.eof)

    @property
    def needs_input(self) -> bool:
        """Nothing is left of what was given."""
        return not self._left

    @property
    def unused_data(self) -> bytes:
        """What followed the end."""
        return bytes(self._inner.unused_data)

    def decompress(self, data: bytes, most_bytes: int) -> bytes:
        """Some of what it unpacks to."""
        plain = self._inner.decompress(self._left + data, most_bytes)
        self._left = self._inner.unconsumed_tail
        return bytes(plain)


def gzip(descriptor: int) -> Iterator[bytes]:
    """By zlib."""
    import zlib

    return frames(descriptor, Gzip, zlib.error)


def xz(descriptor: int) -> Iterator[bytes]:
    """By lzma."""
    import lzma

    return frames(descriptor, lzma.LZMADecompressor, lzma.LZMAError)


def bzip2(descriptor: int) -> Iterator[bytes]:
    """By bz2."""
    import bz2

    return frames(descriptor, bz2.BZ2Decompressor, OSError)


def lz4(descriptor: int) -> Iterator[bytes]:
    """By the library lz4."""
    from lz4 import frame

    return frames(descriptor, frame.LZ4FrameDecompressor, RuntimeError)


def zstd(descriptor: int) -> Iterator[bytes]:
    """By Python's own module, which it has since 3.14, else by the library zstandard."""
    import importlib

    try:
        own: Any = importlib.import_module("compression.zstd")
    except ImportError:
        import zstandard

        return frames(descriptor, Zstandard, zstandard.ZstdError)
    options = {own.DecompressionParameter.window_log_max: WINDOW_BITS}
    return frames(descriptor, lambda: own.ZstdDecompressor(options=options), own.ZstdError)


class Zstandard:
    """The library's decompressor, which does not bound what it gives: it gets little at a time, of which no more than 64 MB can come."""

    def __init__(self) -> None:
        import zstandard

        self._inner: Any = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_BITS).decompressobj()
        if not hasattr(self._inner, "eof"):
            raise ImportError("zstandard is older than 0.19", name="zstandard")
        self._data, self._at = b"", 0

    @property
    def eof(self) -> bool:
        """The end of a frame was reached."""
        return bool(self._inner.eof)

    @property
    def needs_input(self) -> bool:
        """Nothing is left of what was given."""
        return self._at >= len(self._data)

    @property
    def unused_data(self) -> bytes:
        """What followed the end."""
        return bytes(self._inner.unused_data) + self._data[self._at :]

    def decompress(self, data: bytes, most_bytes: int) -> bytes:
        """Some of what it unpacks to."""
        if data:
            self._data, self._at = data, 0  # nothing was left
        piece = self._data[self._at : self._at + LITTLE_BYTES]
        self._at += len(piece)
        return bytes(self._inner.decompress(piece))


FORMS: Dict[bytes, Form] = {
    b"\x28\xb5\x2f\xfd": Form(".zst", "zstd -d", zstd),
    b"\x04\x22\x4d\x18": Form(".lz4", "lz4 -d", lz4),
    b"\xfd7zXZ\0": Form(".xz", "xz -dk", xz),
    b"\x1f\x8b": Form(".gz", "gzip -dk", gzip),
    b"BZh": Form(".bz2", "bzip2 -dk", bzip2),
}
"""By what the file begins with."""


def form_of(first: bytes) -> Optional[Form]:
    """How a file that begins so is compressed; None if it is not."""
    return next((form for magic, form in FORMS.items() if first.startswith(magic)), None)


def find(path: str) -> Optional[Form]:
    """How this file is compressed; None if it is not, or cannot be read: whoever opens it then says why."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return None
    try:
        return form_at(descriptor)
    finally:
        os.close(descriptor)


def form_at(descriptor: int) -> Optional[Form]:
    """The same of a file that is open, from its beginning on."""
    try:
        return form_of(os.pread(descriptor, 6, 0))
    except OSError:
        return None
