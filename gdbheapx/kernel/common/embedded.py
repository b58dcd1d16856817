"""The C kernel that the single file carries: a library for each machine, and the C files for any other."""

import base64
import os
import zlib
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Sequence

from gdbheapx.kernel import build
from gdbheapx.kernel.common.library import Unusable

PACKED: Dict[str, str] = {}
"""Libraries by machine, C_FILES, and SOURCE_ID, as text: what the single file has. Empty in any other installation."""
C_FILES, SOURCE_ID = "C files", "source id"
"""The first is a JSON object of texts by path."""


def pack_bytes(data: bytes) -> str:
    """Bytes as PACKED has them."""
    return base64.b85encode(zlib.compress(data, 9)).decode("ascii")


def unpack_bytes(name: str) -> bytes:
    """The bytes of that name; Unusable if there are none."""
    if name not in PACKED:
        raise Unusable("this single file has no native library for %s" % name)
    return zlib.decompress(base64.b85decode(PACKED[name]))


def open_included(load: Callable[[str], Any]) -> Any:
    """The library of this machine, or one that is made of the C files, which `load` loads from a path; Unusable says what is in the way."""
    reasons: List[str] = []
    makers: Sequence[Callable[[], bytes]] = (unpack_own_library, compile_own_library)
    for make in makers:
        try:
            return _load_from_memory(make(), load)
        except Unusable as reason:
            reasons.append(str(reason))
    raise Unusable("; ".join(reasons))


def unpack_own_library() -> bytes:
    """The library of this machine."""
    return unpack_bytes(os.uname().machine)


def compile_own_library() -> bytes:
    """A library made of the C files, with whatever compiler there is."""
    import json
    import tempfile

    words = build.find_compiler()
    if words is None:
        raise Unusable("no C compiler found here (looked for $CC, cc, gcc, clang)")
    with tempfile.TemporaryDirectory(prefix="gdbheapx") as folder:
        target = os.path.join(folder, build.LIBRARY)
        if build.compile_into(target, words, json.loads(unpack_bytes(C_FILES)), int(PACKED[SOURCE_ID])).returncode != 0:
            raise Unusable("%s cannot compile it" % words[0])
        with open(target, "rb") as library:
            return library.read()


def _load_from_memory(data: bytes, load: Callable[[str], Any]) -> Any:
    """Load the library from memory, or, if that cannot be executed, from a file that no other process can open and that is removed at
    once.
    """
    reasons = []
    for place in (_in_memory, _in_private_file):
        try:
            with place(data) as path:
                library = load(path)
            if str(library.heapx_source_id()) == PACKED[SOURCE_ID]:
                return library
            reasons.append("another gdbheapx is loaded in this process")  # from a descriptor of the same number
        except (OSError, AttributeError, Unusable) as error:  # a Python or libc without memfd_create, too
            reasons.append(str(error))
    raise Unusable("; ".join(dict.fromkeys(reasons)))


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("gdbheapx", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield "/proc/self/fd/%d" % descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _in_private_file(data: bytes) -> Iterator[str]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gdbheapx") as folder:
        path = os.path.join(folder, build.LIBRARY)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
        yield path
