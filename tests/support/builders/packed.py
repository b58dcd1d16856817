"""Files compressed in each way in which cores are."""

import bz2
import gzip
import importlib
import lzma
from typing import Any, Callable, Dict

import pytest


def zst(data: bytes) -> bytes:
    try:
        return bytes(importlib.import_module("compression.zstd").compress(data))
    except ImportError:
        library: Any = pytest.importorskip("zstandard")
        return bytes(library.compress(data))


def lz4(data: bytes) -> bytes:
    library: Any = pytest.importorskip("lz4.frame")
    return bytes(library.compress(data))


PACKERS: Dict[str, Callable[[bytes], bytes]] = {
    ".zst": zst,
    ".lz4": lz4,
    ".xz": lambda data: lzma.compress(data, preset=0),
    ".gz": lambda data: gzip.compress(data, 1),
    ".bz2": bz2.compress,
}


def pack(name: str, data: bytes) -> bytes:
    """The data in one frame; skips where the library is not installed."""
    return PACKERS[name](data)
