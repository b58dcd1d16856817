"""Unpack a compressed core, or copy one from elsewhere, to a temporary file without a name, which is then read as any core.

The first bytes tell how a file is compressed, whatever its name. Having no name, the copy vanishes with the last process that has it open.
Pages of zeros become holes: a compressed core does not tell them from memory that was never touched.
"""

import os
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

from gdbheapx.files import open_regular, open_unnamed, temporary_folder

IN_BYTES, LITTLE_BYTES, OUT_BYTES = 1 << 17, 1 << 11, 1 << 20
WINDOW_BITS = 31
"""The largest window of zstd (--long=31): within the memory of this process, not of the file."""


class CompressionForm(NamedTuple):
    """A compression that cores may have."""

    suffix: str
    tool: str
    """The command that unpacks it."""
    pieces: Callable[[int], Iterator[bytes]]
    """Gives what the descriptor's file unpacks to, in pieces of bounded size; Cut or Damaged after the last that can be had.
    ImportError where the library is missing."""


class CutStream(Exception):
    """The compressed file ends before its end."""


class DamagedStream(Exception):
    """The compressed file contradicts itself."""


def decompress_frames(descriptor: int, make: Callable[[], Any], wrong: Any) -> Iterator[bytes]:
    """Unpack by a decompressor such as lzma's. A file may be several streams in a row; trailing bytes that are none are ignored."""
    decompressor, data = make(), b""
    first = data = os.read(descriptor, IN_BYTES)
    while True:
        try:
            piece = decompressor.decompress(data, OUT_BYTES)
        except wrong as error:
            raise DamagedStream(" ".join(str(error).split()))
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
                raise CutStream


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
        """True if all input was consumed."""
        return not self._left

    @property
    def unused_data(self) -> bytes:
        """Input after the end of the stream."""
        return bytes(self._inner.unused_data)

    def decompress(self, data: bytes, most_bytes: int) -> bytes:
        """Return some of the unpacked bytes."""
        plain = self._inner.decompress(self._left + data, most_bytes)
        self._left = self._inner.unconsumed_tail
        return bytes(plain)


def decompress_gzip(descriptor: int) -> Iterator[bytes]:
    """Unpack a gzip stream."""
    import zlib

    return decompress_frames(descriptor, Gzip, zlib.error)


def decompress_xz(descriptor: int) -> Iterator[bytes]:
    """Unpack an xz stream."""
    import lzma

    return decompress_frames(descriptor, lzma.LZMADecompressor, lzma.LZMAError)


def decompress_bzip2(descriptor: int) -> Iterator[bytes]:
    """Unpack a bzip2 stream."""
    import bz2

    return decompress_frames(descriptor, bz2.BZ2Decompressor, OSError)


def decompress_lz4(descriptor: int) -> Iterator[bytes]:
    """Unpack an lz4 stream by the library lz4."""
    from lz4 import frame

    return decompress_frames(descriptor, frame.LZ4FrameDecompressor, RuntimeError)


def decompress_zstd(descriptor: int) -> Iterator[bytes]:
    """Unpack a zstd stream by Python's own module (3.14) or the library zstandard."""
    import importlib

    try:
        own: Any = importlib.import_module("compression.zstd")
    except ImportError:
        import zstandard

        return decompress_frames(descriptor, Zstandard, zstandard.ZstdError)
    options = {own.DecompressionParameter.window_log_max: WINDOW_BITS}
    return decompress_frames(descriptor, lambda: own.ZstdDecompressor(options=options), own.ZstdError)


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
        """True if all input was consumed."""
        return self._at >= len(self._data)

    @property
    def unused_data(self) -> bytes:
        """Input after the end of the stream."""
        return bytes(self._inner.unused_data) + self._data[self._at :]

    def decompress(self, data: bytes, most_bytes: int) -> bytes:
        """Return some of the unpacked bytes."""
        if data:
            self._data, self._at = data, 0  # nothing was left
        piece = self._data[self._at : self._at + LITTLE_BYTES]
        self._at += len(piece)
        return bytes(self._inner.decompress(piece))


FORMS: Dict[bytes, CompressionForm] = {
    b"\x28\xb5\x2f\xfd": CompressionForm(".zst", "zstd -d", decompress_zstd),
    b"\x04\x22\x4d\x18": CompressionForm(".lz4", "lz4 -d", decompress_lz4),
    b"\xfd7zXZ\0": CompressionForm(".xz", "xz -dk", decompress_xz),
    b"\x1f\x8b": CompressionForm(".gz", "gzip -dk", decompress_gzip),
    b"BZh": CompressionForm(".bz2", "bzip2 -dk", decompress_bzip2),
}
"""By what the file begins with."""


def detect_form(first: bytes) -> Optional[CompressionForm]:
    """Return the compression of a file that begins so, or None."""
    return next((form for magic, form in FORMS.items() if first.startswith(magic)), None)


def find_form(path: str) -> Optional[CompressionForm]:
    """Return the compression of a file; None if it has none or cannot be read."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return None
    try:
        return detect_file_form(descriptor)
    finally:
        os.close(descriptor)


def detect_file_form(descriptor: int) -> Optional[CompressionForm]:
    """Return the compression of an open file, or None."""
    try:
        return detect_form(os.pread(descriptor, 6, 0))
    except OSError:
        return None


PAGE = 4096
RESERVE_BYTES = 64 << 20
"""What is left free for others where the core goes."""
ZEROS = bytes(2 * OUT_BYTES)
ELF_MAGIC = b"\x7fELF"
NEVER = float("inf")


class Unpacked(NamedTuple):
    """A core that was compressed."""

    descriptor: int
    trouble: str
    """What was wrong with the compressed file; empty if nothing was."""


class CannotUnpack(Exception):
    """Failure to unpack a core, with the next step."""

    def __init__(self, cause: str, hint: str) -> None:
        super().__init__(cause)
        self.cause, self.hint = cause, hint


def unpack_core(path: str, form: CompressionForm, source: Optional[int] = None, until: float = NEVER) -> Unpacked:
    """Unpack the core to a temporary file until the deadline; `source` is its descriptor, if open, and is closed."""
    hint = "unpack it first: %s %s" % (form.tool, path)
    try:
        source = open_regular(path) if source is None else source
    except OSError as error:
        raise CannotUnpack("cannot open the core %s: %s" % (path, error.strerror), "give a core file with --core FILE")
    try:
        pieces = form.pieces(source)
        out = UnpackedFile(path, hint, until)
        try:
            return Unpacked(out.descriptor, out.fill(pieces))
        except BaseException:
            os.close(out.descriptor)
            raise
    except ImportError as error:
        name = (error.name or "").split(".")[0]
        raise CannotUnpack(
            "%s is compressed (%s), and this Python has no module %s, or an old one" % (path, form.suffix, name),
            "pip install 'gdbheapx[cores]', or unpack it first: %s %s" % (form.tool, path),
        )
    except OSError as error:
        raise CannotUnpack("cannot unpack %s to %s: %s" % (path, temporary_folder(), error.strerror or error), hint)
    finally:
        os.close(source)


def copy_core(name: str, size_bytes: int, pieces: Iterator[bytes], until: float = NEVER) -> int:
    """A descriptor of what is called so, which is no file of this machine, in a temporary file. It may be compressed."""
    try:
        out = UnpackedFile(name, "copy it to this machine, and give the copy", until)
        try:
            out.look_for_room(size_bytes)
            at = 0
            for piece in pieces:
                if out.is_late or at > out.most_bytes:
                    why = "there was no time for all of it" if out.is_late else "it is longer than there is room for"
                    raise CannotUnpack(
                        "cannot copy %s to %s: %s" % (name, temporary_folder(), why), "raise --max-seconds, or copy it first"
                    )
                out.put(at, piece)
                at += len(piece)
            os.ftruncate(out.descriptor, at)
            return out.descriptor
        except BaseException:
            os.close(out.descriptor)
            raise
    except OSError as error:
        raise CannotUnpack(
            "cannot copy %s to %s: %s" % (name, temporary_folder(), error.strerror or error), "set TMPDIR to a folder with room"
        )


class UnpackedFile:
    """The file that a core is unpacked to."""

    def __init__(self, path: str, hint: str, until: float = NEVER) -> None:
        self.path = path
        self.descriptor = open_unnamed()
        self._hint, self._until = hint, until
        room = os.fstatvfs(self.descriptor)
        self.most_bytes = room.f_bavail * room.f_frsize
        """How long it may be where nothing tells its length, also if most of it is zeros, which take no room."""
        self._looked = 0
        """How far was written when room was looked for last."""

    @property
    def is_late(self) -> bool:
        """True after the deadline."""
        return time.monotonic() > self._until

    def fill(self, pieces: Iterator[bytes]) -> str:
        """Write everything, up to where the core's own headers end it; what was wrong."""
        held: List[bytes] = []
        at, held_bytes, trouble = 0, 0, ""
        head = CoreHead(self.path)
        while at + held_bytes < (self.most_bytes if head.end is None else head.end):
            if self.is_late:
                trouble = "the compressed file %s was not unpacked to its end within --max-seconds" % self.path
                break
            try:
                piece = next(pieces, None)
            except CutStream:
                trouble = "the compressed file %s ends early: it was not copied or written to its end" % self.path
                break
            except DamagedStream as error:
                trouble = "the compressed file %s is damaged%s" % (self.path, ": %s" % error if str(error) else "")
                break
            if piece is None:
                break
            if head.take(piece):
                self.look_for_room(head.end or 0)
            held.append(piece)
            held_bytes += len(piece)
            if held_bytes >= OUT_BYTES:
                data = b"".join(held)
                whole = held_bytes & -PAGE
                self.put(at, data[:whole])
                at, held, held_bytes = at + whole, [data[whole:]], held_bytes - whole
        self.put(at, b"".join(held))
        os.ftruncate(self.descriptor, at + held_bytes)
        if not at + held_bytes:
            raise CannotUnpack(trouble or "%s is compressed and has nothing in it" % self.path, "copy the core again, or take a new one")
        return trouble

    def look_for_room(self, more_bytes: int) -> None:
        """CannotUnpack where so many bytes more would leave too little for others."""
        room = os.fstatvfs(self.descriptor)
        free = room.f_bavail * room.f_frsize
        if more_bytes + RESERVE_BYTES > free:
            needed = "at least %d MB" % (more_bytes + RESERVE_BYTES >> 20)
            raise CannotUnpack(
                "no room for %s: it takes %s in %s, which has %d MB free" % (self.path, needed, temporary_folder(), free >> 20),
                "set TMPDIR to a folder with more room, or " + self._hint,
            )

    def put(self, at: int, data: bytes) -> None:
        """Write what is not zeros; `at` is a page's beginning."""
        if data == ZEROS[: len(data)]:
            return
        start: Optional[int] = None
        for place in range(0, len(data), PAGE):
            page = data[place : place + PAGE]
            if page == ZEROS[: len(page)]:
                if start is not None:
                    self._write_data(at + start, data[start:place])
                    start = None
            elif start is None:
                start = place
        if start is not None:
            self._write_data(at + start, data[start:])

    def _write_data(self, at: int, data: bytes) -> None:
        if at - self._looked >= RESERVE_BYTES >> 1:
            self._looked = at
            self.look_for_room(0)
        while data:
            done = os.pwrite(self.descriptor, data, at)
            at, data = at + done, data[done:]


MOST_HEAD_BYTES = 16 << 20
"""Program headers of 300,000 mappings."""
SECTIONS_FOLLOW = 0xFFFF
"""PN_XNUM: the number of program headers stands behind all that was dumped."""


class CoreHead:
    """The beginning of the core, which tells how long it is."""

    def __init__(self, path: str) -> None:
        self._wrong = CannotUnpack("%s is compressed, and its content is not an ELF core" % path, "give a core file with --core FILE")
        self._data = b""
        self._is_open = True
        self.end: Optional[int] = None
        """Where the last segment and the table of sections end; None while that is not known, or if nothing tells."""

    def take(self, piece: bytes) -> bool:
        """Add a piece; True if it determined where the core ends, or that nothing will."""
        if not self._is_open:
            return False
        from gdbheapx.inferior.elf.file import parse_header, parse_program_headers

        self._data += piece
        header = parse_header(self._data[:64])
        if header is None:
            if len(self._data) >= 64 or self._data[:4] != ELF_MAGIC[: len(self._data)]:
                raise self._wrong
            return False
        table = header.phoff + header.phnum * header.phentsize
        sections = header.shoff + header.shnum * header.shentsize if header.shoff else 0
        unknown = header.phnum in (0, SECTIONS_FOLLOW) or table > MOST_HEAD_BYTES
        if table > len(self._data) and not unknown:
            return False
        if unknown:
            self.end = sections or None
        else:
            entries = parse_program_headers(header.order, header.word_bytes, self._data[header.phoff : table])
            self.end = max([table, sections] + [entry.offset + entry.filesz for entry in entries])
        self._is_open, self._data = False, b""
        return True
