"""Which large blocks are said to be cut up by the program itself.

Files: analysis/census/find.py.
"""

import random
import struct
from typing import Any, Callable, Dict, List, Sequence, Tuple

import pytest

from gdbheapx.analysis.census import find
from gdbheapx.report import census_text

SIZE, START = 16384, 0x7F0000010000
FIRSTS = (0x5000, 0x5100)


class Target:
    """Of 8 bytes a word."""

    def words_in(self, data: bytes) -> Sequence[int]:
        """As they are."""
        return struct.unpack("<%dQ" % (len(data) // 8), data)


class Classes:
    """Two."""

    def firsts(self) -> List[int]:
        """Their vtables."""
        return list(FIRSTS)


class Memory:
    """A world of a few blocks; counts what is read."""

    word_bytes, target = 8, Target()

    def __init__(self, blocks: Dict[int, List[int]]) -> None:
        self._blocks, self.read_bytes = blocks, 0

    def constant(self, make: Callable[..., Any]) -> Classes:
        """The classes."""
        return Classes()

    def read(self, address: int, size_bytes: int) -> bytes:
        """Of one block."""
        data = struct.pack("<%dQ" % len(self._blocks[address]), *self._blocks[address])[:size_bytes]
        self.read_bytes += len(data)
        return data


def found(fill: Callable[[random.Random, int, int], Dict[int, int]], count: int = 12, times: int = 2) -> Any:
    """What is said of so many blocks; `fill`: (draw, block's number, its address) -> words by offset; `times`: as much as the blocks are in use."""
    draw, blocks = random.Random(3), {}
    for number in range(count):
        start = START + number * (SIZE + 16)
        words = [0] * (SIZE // 8)
        for offset, word in fill(draw, number, start).items():
            words[offset // 8] = word
        blocks[start] = words
    world: Any = Memory(blocks)
    sampled = find.read_slabs(world, [(start, SIZE) for start in blocks])
    assert world.read_bytes <= find.MOST_SAMPLES * find.MOST_LOOKED_BYTES
    return find.find_slabs(world, sampled, count * SIZE * times)


def objects(draw: random.Random, number: int, start: int) -> Dict[int, int]:
    """Of two classes and sizes, in any order."""
    at, words = 16, {}
    while at < SIZE - 64:
        which = draw.randrange(2)
        words[at] = FIRSTS[which]
        at += (24, 56)[which]
    return words


def records(draw: random.Random, number: int, start: int) -> Dict[int, int]:
    """Of any size, which lead to others of their block."""
    places = sorted(draw.sample(range(0, SIZE - 64, 8), 200))
    return {at: start + draw.choice(places[1:]) for at in places}


def one_size(draw: random.Random, number: int, start: int) -> Dict[int, int]:
    """Elements of 40 bytes, with a vtable each, which lead to others."""
    places = range(0, SIZE - 40, 40)
    return {**dict.fromkeys(places, FIRSTS[0]), **{at + 8: start + draw.choice(places[1:]) for at in places}}


def members(draw: random.Random, number: int, start: int) -> Dict[int, int]:
    """Elements of 64 bytes with a vtable and two members that have one, and lead to members of others."""
    places = [at + member for at in range(0, SIZE - 64, 64) for member in (0, 24, 40)]
    return {**{at: draw.choice(FIRSTS) for at in places}, **{at + 8: start + draw.choice(places[1:]) for at in places}}


def strings(draw: random.Random, number: int, start: int) -> Dict[int, int]:
    """As std::string has them: each leads to its own inside."""
    return {at: start + at + 16 for at in range(0, SIZE - 32, 32)}


def stack(draw: random.Random, number: int, start: int) -> Dict[int, int]:
    """Frames at its upper end, which lead to one another."""
    places = range(SIZE - 1600, SIZE - 8, 8)
    return {at: start + draw.choice(places) for at in places}


def numbers(draw: random.Random, number: int, start: int) -> Dict[int, int]:
    """What is no pointer."""
    return {at: draw.getrandbits(64) for at in range(0, SIZE, 8)}


def elsewhere(draw: random.Random, number: int, start: int) -> Dict[int, int]:
    """Tables whose words lead to the starts of other such blocks, and to small ones."""
    return {at: START + draw.randrange(12) * (SIZE + 16) if draw.randrange(2) else 0x1000 * at for at in range(0, SIZE, 8)}


@pytest.mark.parametrize("fill", [objects, records])
def test_slabs(fill: Any) -> None:
    """All blocks of the size are told, with their share; three of them are no habit."""
    assert found(fill) == find.Slabs(12, 12 * SIZE, [SIZE], 50.0)
    assert found(fill, 3) is None
    said = str(census_text.describe_slabs(found(fill)))
    assert said == (
        "This program has its own allocator: about 12 blocks of malloc (192.0 KiB, 50 % of memory in use) are its slabs, 16.0 KiB each"
    )


@pytest.mark.parametrize("fill", [one_size, members, strings, stack, numbers, elsewhere])
def test_what_is_no_slab(fill: Any) -> None:
    """Arrays, with inline buffers too, stacks, numbers, and tables of pointers."""
    assert found(fill) is None


def test_few_slabs_are_not_worth_a_word() -> None:
    """Less than a quarter of what is in use, and what the file of a core lacks; sizes are grouped as malloc rounds them."""
    assert found(objects, 4, 5) is None and found(objects, 4, 3) is not None
    lacking = (SIZE, [START] * 4, [(START, b"")] * 4)
    world: Any = Memory({})
    assert find.find_slabs(world, [lacking], SIZE) is None
    large: List[Tuple[int, int]] = [(START + number * 0x8000, 0x4008 + 16 * (number % 2)) for number in range(6)]
    assert [(size, len(starts)) for size, starts in find.group_blocks(large)] == [(0x4008, 6)]
