"""A snapshot as a file: packed parts, values as JSON, and where it is stored (a path, or a URL by fsspec)."""

import functools
import io
import os
import re
import struct
import tempfile
import typing
import zlib
from datetime import timezone
from typing import Annotated, Any, BinaryIO, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import allocators
from gdbheapx.allocators.records import OfAllocator
from gdbheapx.command.output import OutputFile
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.files import open_regular
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.problems import CANNOT_WRITE, FILE_NOT_FOUND, FILE_UNREADABLE, MISSING_PACKAGE, NOT_A_SNAPSHOT, SNAPSHOT_DAMAGED
from gdbheapx.common.units import Sentence

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
    """Return True if the file begins like a snapshot."""
    if is_url(path):
        return read_beginning(path, len(MAGIC)) == MAGIC
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


class PackedPart(NamedTuple):
    """A part as it is in the file."""

    length: int
    """Unpacked."""
    checksum: int
    """Of what it unpacks to."""
    data: bytes

    def bytes(self, path: str) -> bytes:
        """Return the unpacked bytes. HeapxError if they are not those that were packed."""
        worker = zlib.decompressobj()
        try:
            data = worker.decompress(self.data, self.length + 1)
        except zlib.error:
            raise explain_damaged(path)
        if len(data) != self.length or zlib.crc32(data) != self.checksum:
            raise explain_damaged(path)
        return data


def pack_part(pieces: Iterable[bytes], level: int = LEVEL, free_bytes: int = FREE_BYTES) -> PackedPart:
    """A part of the pieces."""
    worker, length, checksum, data = zlib.compressobj(level), 0, 0, []
    for piece in pieces:
        length, checksum = length + len(piece), zlib.crc32(piece, checksum)
        data.append(worker.compress(piece))
    small = b"".join([*data, worker.flush()])
    if len(small) * MOST_RATIO + free_bytes < length:  # so regular that a reader would refuse it: no more than a bit for each byte
        worker = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_HUFFMAN_ONLY)
        small = worker.compress(zlib.decompress(small)) + worker.flush()
    return PackedPart(length, checksum, small)


def explain_damaged(path: str) -> HeapxError:
    """Return the error for a damaged file."""
    return HeapxError("%s is damaged, or was cut" % path, HINT, code=SNAPSHOT_DAMAGED)


def make_file_pieces(parts: Mapping[str, PackedPart]) -> List[bytes]:
    """The file."""
    pieces = [MAGIC + VERSION]
    for name, part in parts.items():
        label = name.encode("ascii")
        pieces += [bytes([len(label)]), label, PART.pack(part.length, len(part.data), part.checksum), part.data]
    return pieces


def write_file(path: str, parts: Mapping[str, PackedPart]) -> int:
    """Its size. No one else may read it, and it is there whole or not at all; HeapxError where it cannot be written."""
    content = b"".join(make_file_pieces(parts))
    if is_url(path):
        put_url(path, content)
    else:
        OutputFile(path, "snapshot FILE", takes_any=True).finish(content)
    return len(content)


def read_file(path: str) -> Dict[str, PackedPart]:
    """Its parts, packed. HeapxError where it is no whole snapshot."""
    if is_url(path):
        content = get_url(path)
        return _read_parts(io.BytesIO(content), len(content), hide_secrets(path))
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return _read_parts(file, os.fstat(file.fileno()).st_size, path)
    except OSError as error:
        what = "cannot read %s: %s" % (path, error.strerror or error)
        raise HeapxError(what, "give the file of a snapshot with --snapshot FILE", code=FILE_UNREADABLE)


def _read_parts(file: BinaryIO, size: int, path: str) -> Dict[str, PackedPart]:
    reader = _FileReader(file, size, path)
    if reader.take(len(MAGIC)) != MAGIC:
        hint = "take one to another file, for this name would overwrite yours: gdbheapx -p PID snapshot new.snap"
        raise HeapxError("%s is not a snapshot" % path, hint, code=NOT_A_SNAPSHOT)
    version = reader.take(len(VERSION))
    if version in READ_BY:
        what = "%s has the format of gdbheapx %s" % (path, READ_BY[version])
        raise HeapxError(what, "read it with that version, or " + HINT, code=NOT_A_SNAPSHOT)
    if version != VERSION:
        what = "%s was made by a gdbheapx that this one does not know" % path
        raise HeapxError(what, "read it with a later version", code=NOT_A_SNAPSHOT)
    parts: Dict[str, PackedPart] = {}
    while reader.left:
        name = reader.take(reader.take(1)[0]).decode("ascii", "replace")
        length, small, checksum = PART.unpack(reader.take(PART.size))
        if length > small * MOST_RATIO + (FREE_OF_STREAM if name.startswith(STREAMS) else FREE_BYTES):
            raise explain_damaged(path)
        parts[name] = PackedPart(length, checksum, reader.take(small))
    return parts


class _FileReader:
    """Rest of the file that is not read yet."""

    def __init__(self, file: BinaryIO, size: int, path: str) -> None:
        self._file, self.left, self._path = file, size, path

    def take(self, count: int) -> bytes:
        """So many bytes."""
        data = self._file.read(count) if count <= self.left else b""
        if len(data) < count:
            raise explain_damaged(self._path)
        self.left -= count
        return data


TEXT, PLAIN = "text", "plain"
"""A sentence with sizes has two forms (units.py)."""


class WrongValue(ValueError):
    """Error: the value is not of the type that was asked for."""


def encode_value(value: Any) -> Any:
    """The value in the types that json knows."""
    if isinstance(value, Sentence):
        return {TEXT: str(value), PLAIN: value.plain}
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return int(value)
    names = getattr(value, "_fields", None)
    if names is not None:
        return {name: encode_value(member) for name, member in zip(names, value)}
    if isinstance(value, Mapping):
        return {str(name): encode_value(member) for name, member in value.items()}
    return [encode_value(member) for member in value]


def decode_value(kind: Any, value: Any) -> Any:
    """The reverse, for a value of this type. Wrong where it is none; a field that a later version has added is left out, and one that is
    lacking has its default."""
    return _make_decoder(kind)(value)


@functools.cache
def _make_decoder(kind: Any) -> Callable[[Any], Any]:
    """Reads values of this type."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return _decode_untyped
    if origin is Annotated:
        own = [mark for mark in kind.__metadata__ if isinstance(mark, OfAllocator)]
        return (lambda value: decode_value(allocators.find_record_kinds(own[0]), value)) if own else _make_decoder(inner[0])
    if origin is typing.Union:
        return functools.partial(_one_of, [_make_decoder(choice) for choice in inner])
    if origin is not None:
        return functools.partial(_decode_many, origin, inner)
    if hasattr(kind, "_fields"):
        return functools.partial(_decode_record, kind)
    if issubclass(kind, str):
        return _decode_text
    if kind in (bool, type(None)):
        return lambda value: _decode_plain(isinstance(value, kind), value)
    if kind is float:
        return lambda value: float(_decode_plain(isinstance(value, (int, float)) and not isinstance(value, bool), value))
    if kind is TargetAddress:
        return _decode_address
    if issubclass(kind, int):
        return lambda value: kind(_decode_plain(isinstance(value, int) and not isinstance(value, bool), value))
    raise WrongValue("values of the type %s are not kept" % kind)


def _decode_untyped(value: Any) -> Any:
    """Return the values that json made, with sentences restored."""
    if isinstance(value, list):
        return [_decode_untyped(member) for member in value]
    if not isinstance(value, dict):
        return value
    return _decode_text(value) if set(value) == {TEXT, PLAIN} else {name: _decode_untyped(member) for name, member in value.items()}


def _decode_plain(fits: bool, value: Any) -> Any:
    if not fits:
        raise WrongValue("%s where something else belongs" % type(value).__name__)
    return value


def _decode_text(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {TEXT, PLAIN} and all(isinstance(form, str) for form in value.values()):
        return Sentence(value[TEXT], value[PLAIN])
    return str(_decode_plain(isinstance(value, str), value))


def _decode_address(value: Any) -> TargetAddress:
    """A number in a file of ours; in documents hex."""
    if isinstance(value, str):
        try:
            return TargetAddress(int(value, 16))
        except ValueError as error:
            raise WrongValue(str(error))
    return TargetAddress(_decode_plain(isinstance(value, int) and not isinstance(value, bool), value))


def _one_of(decoders: Sequence[Callable[[Any], Any]], value: Any) -> Any:
    for decoder in decoders:
        try:
            return decoder(value)
        except WrongValue:
            continue
    raise WrongValue("%s where something else belongs" % type(value).__name__)


def _decode_many(origin: Any, kinds: Tuple[Any, ...], value: Any) -> Any:
    if issubclass(origin, Mapping):
        decoder = _make_decoder(kinds[1])
        return {str(name): decoder(member) for name, member in _decode_plain(isinstance(value, dict), value).items()}
    _decode_plain(isinstance(value, list), value)
    if issubclass(origin, tuple) and kinds[-1] is not ...:
        _decode_plain(len(value) == len(kinds), value)
        return tuple(decode_value(kind, member) for kind, member in zip(kinds, value))
    members = list(map(_make_decoder(kinds[0]), value))
    return tuple(members) if issubclass(origin, tuple) else members


@functools.cache
def _decode_members(kind: Any) -> Dict[str, Callable[[Any], Any]]:
    return {name: _make_decoder(declared) for name, declared in typing.get_type_hints(kind, include_extras=True).items()}


def _decode_record(kind: Any, value: Any) -> Any:
    _decode_plain(isinstance(value, dict), value)
    given = {name: decoder(value[name]) for name, decoder in _decode_members(kind).items() if name in value}
    lacking = set(kind._fields) - set(given) - set(kind._field_defaults)
    if lacking:
        raise WrongValue("a %s without %s" % (kind.__name__, sorted(lacking)[0]))
    return kind(**given)


URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.ASCII)
SECRET = re.compile(r"//[^/@]*@")
PATTERN = re.compile(r"[*?\[]")
MOST_FILES = 100_000
"""That a pattern may match."""
PIECE_BYTES, AHEAD_BYTES = 1 << 20, 8 << 20
"""Handed on, and fetched, at once."""
LET_IN = "check the URL, and the credentials of the protocol"
LOCAL = re.compile(r"(file|local)://")
INSTALL = "pip install 'gdbheapx[store]', and what fsspec names for the protocol (s3fs, gcsfs, adlfs)"


def is_url(path: str) -> bool:
    """`s3://BUCKET/KEY`, `gs://...`, `file:///...`; no path of a file begins so."""
    return URL.match(path) is not None


def hide_secrets(url: str) -> str:
    """Return the URL without its user and password."""
    return SECRET.sub("//...@", url)


def put_url(url: str, content: bytes) -> None:
    """Write it there. HeapxError where that fails, with the file that has it then."""
    descriptor, local = tempfile.mkstemp(prefix="gdbheapx-", suffix=".snap")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    before = os.umask(0o077)  # of file:// the copy is for its owner alone, too
    try:
        system, path = _open_url(url)
        system.put_file(local, path)
        if system.size(path) != len(content):
            raise OSError("it has another size there")
    except Exception as error:  # whatever the protocol's library raises
        _raise_url_error("cannot write to", url, error, "the snapshot is kept: copy %s there" % local, CANNOT_WRITE)
    finally:
        os.umask(before)
    os.unlink(local)


def get_url(url: str) -> bytes:
    """Return the content at the URL. HeapxError if it cannot be read."""
    try:
        system, path = _open_url(url)
        return bytes(system.cat_file(path))
    except MemoryError:
        raise
    except Exception as error:  # whatever the protocol's library raises
        _raise_url_error("cannot read", url, error, LET_IN, FILE_UNREADABLE)


def read_beginning(url: str, count: int) -> bytes:
    """The first bytes of what is there; nothing where it cannot be read: the caller that reads it then says why."""
    try:
        system, path = _open_url(url)
        return bytes(system.cat_file(path, start=0, end=count))
    except Exception:  # whatever the protocol's library raises
        return b""


def read_url_pieces(url: str) -> Iterator[bytes]:
    """Yield the content at the URL, piece by piece. HeapxError if it cannot be read."""
    try:
        system, path = _open_url(url)
        size, at = system.size(path), 0
        with system.open(path, "rb", block_size=AHEAD_BYTES) as file:
            for piece in iter(lambda: file.read(PIECE_BYTES), b""):
                at += len(piece)
                yield piece
        if size is not None and at != size:
            raise OSError("it changed while it was read")
    except MemoryError:
        raise
    except Exception as error:  # whatever the protocol's library raises
        _raise_url_error("cannot read", url, error, LET_IN, FILE_UNREADABLE)


def list_urls(url: str) -> Iterator[str]:
    """Return the URLs that it expands to, in order: itself, the matches of a pattern, or the files of a folder, if it ends with a /. A
    file of this machine is given as its path. HeapxError if nothing can be found.
    """
    inner, chained, outer = url.partition("::")
    pattern = inner + "*" if inner.endswith("/") else inner
    is_local = LOCAL.match(url) is not None and not chained
    if not (PATTERN.search(pattern) or is_local):
        return iter((url,))
    try:
        system, path = _open_url(pattern + chained + outer)
        found = _find_pattern(system, path) if PATTERN.search(pattern) else [path]
    except Exception as error:  # whatever the protocol's library raises
        _raise_url_error("cannot list", url, error, LET_IN, FILE_UNREADABLE)
    if not found or len(found) > MOST_FILES:
        what = "%s stands for %s" % (hide_secrets(url), "%d files" % len(found) if found else "no file")
        hint = "narrow the pattern" if found else "check the pattern; a folder has a / at the end"
        raise HeapxError(what, hint, code=FILE_NOT_FOUND)
    if is_local:
        return iter(found)
    # with whatever the URL says of the host and of archives, which a path there leaves out
    start = pattern[: -len(path)] if pattern.endswith(path) else None
    return (system.unstrip_protocol(name) if start is None else start + name + chained + outer for name in found)


def _find_pattern(system: Any, pattern: str) -> List[str]:
    return sorted(name for name, info in system.glob(pattern, detail=True).items() if info.get("type") == "file")


def read_url_state(url: str) -> Optional[Tuple[int, Optional[int]]]:
    """Size and time (in ns; None where the protocol has none) of what is there, as it was listed in this process; None where it cannot be
    seen."""
    try:
        system, path = _open_url(url)
        size = system.size(path)
    except Exception:  # whatever the protocol's library raises
        return None
    try:
        modified = system.modified(path)
        modified = modified if modified.tzinfo is not None else modified.replace(tzinfo=timezone.utc)
        return size, round(modified.timestamp() * 1_000_000) * 1000
    except Exception:
        return size, None


def _open_url(url: str) -> Tuple[Any, str]:
    """(file system, path there)."""
    import fsspec

    found: Tuple[Any, str] = fsspec.core.url_to_fs(url)
    return found


def _raise_url_error(what: str, url: str, error: Exception, hint: str, code: Any) -> typing.NoReturn:
    """Raise the error in one line, however many lines the library's message has."""
    is_absent = isinstance(error, FileNotFoundError)  # some say the path alone
    why = "it is not there" if is_absent else hide_secrets(" ".join(str(error).split())) or type(error).__name__
    is_missing = isinstance(error, ImportError)
    next_step = "%s; %s" % (hint, INSTALL) if is_missing and code is CANNOT_WRITE else INSTALL if is_missing else hint
    raise HeapxError("%s %s: %s" % (what, hide_secrets(url), why), next_step, code=MISSING_PACKAGE if is_missing else code) from None
