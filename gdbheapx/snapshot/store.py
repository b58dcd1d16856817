"""Snapshots and cores where a URL says, by fsspec: object storage, or whatever else it reaches. Nothing else imports fsspec.

A file is whole on this machine before any of it is handed over, and stays here where that fails: there is no second look at a crash.
"""

import os
import re
import tempfile
from datetime import timezone
from typing import Any, Iterator, List, NoReturn, Optional, Tuple

from gdbheapx.errors import HeapxError
from gdbheapx.problems import CANNOT_WRITE, FILE_NOT_FOUND, FILE_UNREADABLE, MISSING_PACKAGE

URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.ASCII)
SECRET = re.compile(r"//[^/@]*@")
PATTERN = re.compile(r"[*?\[]")
MOST_FILES = 100_000
"""That a pattern may stand for."""
PIECE_BYTES, AHEAD_BYTES = 1 << 20, 8 << 20
"""Handed on, and fetched, at once."""
LET_IN = "check the URL, and the credentials of the protocol"
LOCAL = re.compile(r"(file|local)://")
INSTALL = "pip install 'gdbheapx[store]', and what fsspec names for the protocol (s3fs, gcsfs, adlfs)"


def is_url(path: str) -> bool:
    """`s3://BUCKET/KEY`, `gs://...`, `file:///...`; no path of a file begins so."""
    return URL.match(path) is not None


def shown(url: str) -> str:
    """Without a user and password that stand in it."""
    return SECRET.sub("//...@", url)


def put(url: str, content: bytes) -> None:
    """Write it there. HeapxError where that fails, with the file that has it then."""
    descriptor, local = tempfile.mkstemp(prefix="gdbheapx-", suffix=".snap")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    before = os.umask(0o077)  # of file:// the copy is for its owner alone, too
    try:
        system, path = _opened(url)
        system.put_file(local, path)
        if system.size(path) != len(content):
            raise OSError("it has another size there")
    except Exception as error:  # whatever the protocol's library raises
        _fail("cannot write to", url, error, "the snapshot is kept: copy %s there" % local, CANNOT_WRITE)
    finally:
        os.umask(before)
    os.unlink(local)


def get(url: str) -> bytes:
    """What is there. HeapxError where it cannot be read."""
    try:
        system, path = _opened(url)
        return bytes(system.cat_file(path))
    except MemoryError:
        raise
    except Exception as error:  # whatever the protocol's library raises
        _fail("cannot read", url, error, LET_IN, FILE_UNREADABLE)


def begins(url: str, count: int) -> bytes:
    """The first bytes of what is there; nothing where it cannot be read: whoever reads it then says why."""
    try:
        system, path = _opened(url)
        return bytes(system.cat_file(path, start=0, end=count))
    except Exception:  # whatever the protocol's library raises
        return b""


def pieces(url: str) -> Iterator[bytes]:
    """What is there, piece by piece. HeapxError where that cannot be read."""
    try:
        system, path = _opened(url)
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
        _fail("cannot read", url, error, LET_IN, FILE_UNREADABLE)


def listed(url: str) -> Iterator[str]:
    """What it stands for, in order: itself, what a pattern finds, or the files of a folder, if it ends with a /. What is a file of this
    machine is given as its path. HeapxError where nothing can be found."""
    inner, chained, outer = url.partition("::")
    pattern = inner + "*" if inner.endswith("/") else inner
    is_local = LOCAL.match(url) is not None and not chained
    if not (PATTERN.search(pattern) or is_local):
        return iter((url,))
    try:
        system, path = _opened(pattern + chained + outer)
        found = _found(system, path) if PATTERN.search(pattern) else [path]
    except Exception as error:  # whatever the protocol's library raises
        _fail("cannot list", url, error, LET_IN, FILE_UNREADABLE)
    if not found or len(found) > MOST_FILES:
        what = "%s stands for %s" % (shown(url), "%d files" % len(found) if found else "no file")
        hint = "narrow the pattern" if found else "check the pattern; a folder has a / at the end"
        raise HeapxError(what, hint, code=FILE_NOT_FOUND)
    if is_local:
        return iter(found)
    # with whatever the URL says of the host and of archives, which a path there leaves out
    start = pattern[: -len(path)] if pattern.endswith(path) else None
    return (system.unstrip_protocol(name) if start is None else start + name + chained + outer for name in found)


def _found(system: Any, pattern: str) -> List[str]:
    return sorted(name for name, info in system.glob(pattern, detail=True).items() if info.get("type") == "file")


def state(url: str) -> Optional[Tuple[int, Optional[int]]]:
    """Size and time (in ns; None where the protocol has none) of what is there, as it was listed in this process; None where it cannot be
    seen."""
    try:
        system, path = _opened(url)
        size = system.size(path)
    except Exception:  # whatever the protocol's library raises
        return None
    try:
        modified = system.modified(path)
        modified = modified if modified.tzinfo is not None else modified.replace(tzinfo=timezone.utc)
        return size, round(modified.timestamp() * 1_000_000) * 1000
    except Exception:
        return size, None


def _opened(url: str) -> Tuple[Any, str]:
    """(file system, path there)."""
    import fsspec

    found: Tuple[Any, str] = fsspec.core.url_to_fs(url)
    return found


def _fail(what: str, url: str, error: Exception, hint: str, code: Any) -> NoReturn:
    """One line, whatever that library says in how many."""
    is_absent = isinstance(error, FileNotFoundError)  # some say the path alone
    why = "it is not there" if is_absent else shown(" ".join(str(error).split())) or type(error).__name__
    is_missing = isinstance(error, ImportError)
    next_step = "%s; %s" % (hint, INSTALL) if is_missing and code is CANNOT_WRITE else INSTALL if is_missing else hint
    raise HeapxError("%s %s: %s" % (what, shown(url), why), next_step, code=MISSING_PACKAGE if is_missing else code) from None
