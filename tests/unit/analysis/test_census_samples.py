"""Texts of example blocks.

Files: analysis/census/contents.py.
"""

import struct
from array import array
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from gdbheapx.analysis.census import contents, find
from gdbheapx.analysis.census.world import CONTENT, Signature
from gdbheapx.model import TargetAddress

pytestmark = pytest.mark.once  # pure functions
HERE = 0x5000


class Memory:
    """Some bytes at some addresses."""

    word_bytes, byte_order = 8, "little"

    def __init__(self, **pieces: bytes) -> None:
        self.pieces: Dict[int, bytes] = {int(at, 16): data for at, data in pieces.items()}

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        for start, data in self.pieces.items():
            if start <= address < start + len(data):
                return data[address - start :][:size_bytes]
        return b""

    def words_in(self, data: bytes) -> List[int]:
        return list(struct.unpack("<%dQ" % (len(data) // 8), data[: len(data) // 8 * 8]))


def texts(block: bytes, **others: bytes) -> List[str]:
    memory: Any = Memory(**{"%x" % HERE: block}, **others)
    return contents.read_texts(memory, HERE, len(block))


def test_a_typical_block() -> None:
    """Of the size that has most bytes of a class, not the first one; a class of one size has its own, whatever has no name beside it."""
    name, even = Signature("text", "", CONTENT), Signature("user", "", CONTENT)
    blocks = [(0x1000, 32), *((0x2000 + 0x100 * number, 0x100) for number in range(8)), (0x9000, 48), (0xA000, 48)]
    graph = SimpleNamespace(blocks=lambda ids: [blocks[number] for number in ids])
    told: Any = SimpleNamespace(labels=array("I", [1] * 9 + [2, 3]), names=[name, None, even], reach=SimpleNamespace(graph=graph))
    row = find.CensusRow("text", "", CONTENT, None, 9, 2080, 97.7, TargetAddress(0x1000))
    sized = find.CensusRow(None, "", "", 48, 1, 48, 2.2, TargetAddress(0x9000))
    same = find.CensusRow("user", "", CONTENT, 48, 1, 48, 2.2, TargetAddress(0xA000))
    census = find.Census([row, sized, same], 11, 2176, 0, 0, [], False)
    assert [tuple(one) for one in contents.list_census_examples(census, 3, told)] == [(0x2000, 0x100, "text"), (0x9000, 48, None), (0xA000, 48, "user")]
    assert contents.list_census_examples(census, 2)[0].address == 0x1000


def test_texts_that_it_points_to() -> None:
    """Three at most, each once; a std::string's own characters as well; pointers into the block itself are none of text."""
    others = {"%x" % (0x9000 + 0x100 * number): b"key number %d\0" % number for number in range(5)}
    words = struct.pack("<6Q", 0x9000, 0x9000, 0x9100, 7, 0x9200, 0x9300)
    assert texts(words, **others) == ["key number 0", "key number 1", "key number 2"]
    inline = struct.pack("<2Q", HERE + 24, 5) + b"alice\0".ljust(16, b"\0")
    assert texts(struct.pack("<Q", 1) + inline) == ["alice"]
    assert texts(struct.pack("<2Q", HERE + 24, 500) + struct.pack("<Q", 3) + b"alice\0".ljust(16, b"\0")) == []
