"""Blocks by their texts and first letters, what of each is in RAM and in swap.

Files: analysis/census/contents.py, analysis/census/registry.py, analysis/census/owned.py.
"""

import random
import struct
from array import array
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from gdbheapx.analysis.census import contents, find
from gdbheapx.analysis.census.images import Images
from gdbheapx.analysis.census.owned import PageStates
from gdbheapx.analysis.census.registry import Magic
from gdbheapx.analysis.census.world import CONTENT, Signature
from gdbheapx.common.model import TargetAddress
from gdbheapx.kernel.blocks.signatures import Signed
from gdbheapx.kernel.common.copy import KIND_EXCLUSIVE, KIND_RESIDENT, KIND_SWAPPED, KIND_UNSURE

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


HEAP = 0x555500000000
TASK = int.from_bytes(b"Task", "big")
VENU = int.from_bytes(b"venu", "little")


def magic_memory(words: Tuple[int, ...]) -> Any:
    """A world of one block; addresses from HEAP on are mapped."""
    images = SimpleNamespace(mapping_at=lambda address: address if HEAP <= address < HEAP + 4096 else None)
    return SimpleNamespace(word_bytes=8, words=lambda address, count: words[:count], once={Images: images}.get)


@pytest.mark.parametrize(
    "words, is_one",
    [
        ((TASK, HEAP + 8, 0, 0, 0), True),
        ((TASK, 5, 0, HEAP, 0), True),
        ((VENU, 0, 0, 0, 0), False),
        ((VENU, 7, 9, 1 << 60, 0), False),
        ((HEAP + 16, HEAP, 0, 0, 0), False),
    ],
)
def test_four_letters_alone_are_a_text(words: Tuple[int, ...], is_one: bool) -> None:
    """A structure has a pointer behind its number; `venu` and nothing else is a text, told as 'unev' before."""
    (ask,) = Magic().asks(magic_memory(words))
    assert ask.accepts is not None and ask.accepts(Signed(0, words[0] & 0xFFFFFFFF, 9, 360, HEAP, 40, 40)) == is_one


PAGE = 16
OWN = KIND_RESIDENT | KIND_EXCLUSIVE


def pages(kinds: Dict[Tuple[int, int], Optional[bytes]], resident: Optional[int] = None) -> PageStates:
    return PageStates(list(kinds), PAGE, lambda start, end: kinds[start, end], lambda start, end: resident)


def test_a_block_has_its_share_of_its_pages() -> None:
    """Byte by byte as a plain count has it, over pages of each sort and mappings with gaps."""
    chance = random.Random(7)
    kinds = {(base, base + 40 * PAGE): bytes(chance.choice((0, OWN, KIND_SWAPPED)) for _ in range(40)) for base in (320, 64 * PAGE, 640 * PAGE)}
    asked = pages(dict(kinds))
    for _ in range(2000):
        (start, end), of = chance.choice(list(kinds.items()))
        address = chance.randrange(start, end)
        size = chance.randrange(0, end - address + 1)
        plain = [of[(at - start) // PAGE] for at in range(address, address + size)]
        assert asked.of(address, size) == (sum(one == OWN for one in plain), sum(one == KIND_SWAPPED for one in plain))
    assert asked.is_whole


@pytest.mark.parametrize("resident, expected", [(2 * PAGE, 2 * PAGE), (PAGE, PAGE), (None, None), (5, None)])
def test_pages_that_are_unsure(resident: Optional[int], expected: Optional[int]) -> None:
    """RSS says whether they are the zero page or shared; where it does not, nothing is said."""
    asked = pages({(0, 2 * PAGE): bytes([OWN, KIND_UNSURE])}, resident)
    found = asked.of(0, 2 * PAGE)
    assert (found[0], asked.is_whole) == (expected or 0, expected is not None)


@pytest.mark.parametrize("address, size", [(0, 8), (2 * PAGE, 8), (PAGE, 2 * PAGE), (8 * PAGE, 8), (10 * PAGE, 8)])
def test_what_is_not_known_is_said(address: int, size: int) -> None:
    """Beside every mapping, beyond one, or in one of which nothing is known, or too little."""
    asked = pages({(PAGE, 2 * PAGE): bytes([OWN]), (8 * PAGE, 9 * PAGE): None, (10 * PAGE, 12 * PAGE): bytes([OWN])})
    assert asked.of(address, size) == (0, 0) and not asked.is_whole
    assert PageStates([], PAGE, lambda start, end: None, lambda start, end: None).of(0, 1) == (0, 0)
