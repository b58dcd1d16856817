"""Unpacks a compressed core, or copies one from elsewhere, to a temporary file without a name, which is then read as any core.

Having no name, the file vanishes with the last process that has it open, whatever ends that. Pages of zeros become holes: a compressed core
does not tell them from memory that was never touched, and needs less room so.
"""

import os
import time
from typing import Iterator, List, NamedTuple, Optional

from gdbheapx.files import folder, open_regular, unnamed
from gdbheapx.inferior.core.packed import OUT_BYTES, Cut, Damaged, Form

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
    """Why there is nothing to read, and the next step."""

    def __init__(self, cause: str, hint: str) -> None:
        super().__init__(cause)
        self.cause, self.hint = cause, hint


def unpack(path: str, form: Form, source: Optional[int] = None, until: float = NEVER) -> Unpacked:
    """What the core unpacks to by then; `source` is its file, where that is open already, and is closed."""
    hint = "unpack it first: %s %s" % (form.tool, path)
    try:
        source = open_regular(path) if source is None else source
    except OSError as error:
        raise CannotUnpack("cannot open the core %s: %s" % (path, error.strerror), "give a core file with --core FILE")
    try:
        pieces = form.pieces(source)
        out = Out(path, hint, until)
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
        raise CannotUnpack("cannot unpack %s to %s: %s" % (path, folder(), error.strerror or error), hint)
    finally:
        os.close(source)


def copied(name: str, size_bytes: int, pieces: Iterator[bytes], until: float = NEVER) -> int:
    """A descriptor of what is called so, which is no file of this machine, in a temporary file. It may be compressed."""
    try:
        out = Out(name, "copy it to this machine, and give the copy", until)
        try:
            out.look_for_room(size_bytes)
            at = 0
            for piece in pieces:
                if out.is_late or at > out.most_bytes:
                    why = "there was no time for all of it" if out.is_late else "it is longer than there is room for"
                    raise CannotUnpack("cannot copy %s to %s: %s" % (name, folder(), why), "raise --max-seconds, or copy it first")
                out.put(at, piece)
                at += len(piece)
            os.ftruncate(out.descriptor, at)
            return out.descriptor
        except BaseException:
            os.close(out.descriptor)
            raise
    except OSError as error:
        raise CannotUnpack("cannot copy %s to %s: %s" % (name, folder(), error.strerror or error), "set TMPDIR to a folder with room")


class Out:
    """The file that a core is unpacked to."""

    def __init__(self, path: str, hint: str, until: float = NEVER) -> None:
        self.path = path
        self.descriptor = unnamed()
        self._hint, self._until = hint, until
        room = os.fstatvfs(self.descriptor)
        self.most_bytes = room.f_bavail * room.f_frsize
        """How long it may be where nothing tells its length, also if most of it is zeros, which take no room."""
        self._looked = 0
        """How far was written when room was looked for last."""

    @property
    def is_late(self) -> bool:
        """There is no time for more."""
        return time.monotonic() > self._until

    def fill(self, pieces: Iterator[bytes]) -> str:
        """Write everything, up to where the core's own headers end it; what was wrong."""
        held: List[bytes] = []
        at, held_bytes, trouble = 0, 0, ""
        head = Head(self.path)
        while at + held_bytes < (self.most_bytes if head.end is None else head.end):
            if self.is_late:
                trouble = "the compressed file %s was not unpacked to its end within --max-seconds" % self.path
                break
            try:
                piece = next(pieces, None)
            except Cut:
                trouble = "the compressed file %s ends early: it was not copied or written to its end" % self.path
                break
            except Damaged as error:
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
                "no room for %s: it takes %s in %s, which has %d MB free" % (self.path, needed, folder(), free >> 20),
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
                    self._write(at + start, data[start:place])
                    start = None
            elif start is None:
                start = place
        if start is not None:
            self._write(at + start, data[start:])

    def _write(self, at: int, data: bytes) -> None:
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


class Head:
    """The beginning of the core, which tells how long it is."""

    def __init__(self, path: str) -> None:
        self._wrong = CannotUnpack("%s is compressed, and its content is not an ELF core" % path, "give a core file with --core FILE")
        self._data = b""
        self._is_open = True
        self.end: Optional[int] = None
        """Where the last segment and the table of sections end; None while that is not known, or if nothing tells."""

    def take(self, piece: bytes) -> bool:
        """One more piece. True if it told where the core ends, or the first told that nothing will."""
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
