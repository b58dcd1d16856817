"""Snapshots where a URL says, by fsspec: object storage, or whatever else it reaches. Nothing else imports fsspec.

A file is whole on this machine before any of it is handed over, and stays here where that fails: there is no second look at a crash.
"""

import os
import re
import tempfile
from typing import Any, NoReturn, Tuple

from gdbheapx.errors import HeapxError
from gdbheapx.problems import CANNOT_WRITE, FILE_UNREADABLE, MISSING_PACKAGE

URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.ASCII)
SECRET = re.compile(r"//[^/@]*@")
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
        _fail("cannot read", url, error, "give the URL of a snapshot, and what the protocol needs to be let in", FILE_UNREADABLE)


def _opened(url: str) -> Tuple[Any, str]:
    """(file system, path there)."""
    import fsspec

    found: Tuple[Any, str] = fsspec.core.url_to_fs(url)
    return found


def _fail(what: str, url: str, error: Exception, hint: str, code: Any) -> NoReturn:
    """One line, whatever that library says in how many."""
    why = shown(" ".join(str(error).split())) or type(error).__name__
    is_missing = isinstance(error, ImportError)
    next_step = "%s; %s" % (hint, INSTALL) if is_missing and code is CANNOT_WRITE else INSTALL if is_missing else hint
    raise HeapxError("%s %s: %s" % (what, shown(url), why), next_step, code=MISSING_PACKAGE if is_missing else code) from None
