"""Which blocks are said to be slabs, a class's, or named by who alone points to them.

Files: analysis/census/find.py, analysis/census/world.py.
"""

import random
import struct
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Tuple, cast

import pytest

from gdbheapx.analysis.census import find
from gdbheapx.analysis.census.cplusplus import Arrays, CppObjects
from gdbheapx.analysis.census.find import PlaceNames
from gdbheapx.analysis.census.images import drop_range_overlaps
from gdbheapx.analysis.census.world import EXACT, PLACE, SHAPE, CensusTarget, Signature
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.kernel.blocks.signatures import (
    ELEMENT,
    MEMBER_SHAPE,
    MEMBER_SLOT,
    MEMBERS,
    OTHERS,
    REFERRED,
    ROOTED,
    ROOTED_MEMBERS,
    SIZED_BITS,
    Signed,
)
from gdbheapx.report import census_text

SIZE, START = 16384, 0x7F0000010000
FIRSTS = (0x5000, 0x5100)


class Memory:
    """A world of a few blocks; counts what is read."""

    word_bytes = 8
    target = SimpleNamespace(words_in=lambda data: struct.unpack("<%dQ" % (len(data) // 8), data))

    def __init__(self, blocks: Dict[int, List[int]]) -> None:
        self._blocks, self.read_bytes = blocks, 0

    def constant(self, make: Callable[..., Any]) -> Any:
        """Two classes."""
        return SimpleNamespace(firsts=lambda: list(FIRSTS))

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


CAR, VAN, HOLE = 0x7000, 0x7100, 0x8000


KNOWN: Any = SimpleNamespace(at={CAR: ("Car", "app"), VAN: ("Van", "app")}.get)
"""Two classes."""


class ClassMemory:
    """A world with a few words."""

    def __init__(self, blocks: Dict[int, Tuple[int, ...]]) -> None:
        self._blocks = blocks

    def words(self, address: int, count: int) -> Tuple[int, ...]:
        """See CensusTarget."""
        return self._blocks[address][:count]

    little_endian = True

    def read(self, address: int, size_bytes: int) -> bytes:
        """See CensusTarget."""
        return b"".join(word.to_bytes(8, "little") for word in self._blocks[address])[:size_bytes]


def key(number: int, usable: int) -> int:
    """Of a row that is sized."""
    return number | usable // 8 << SIZED_BITS


def signed(number: int, usable: int, blocks: int, sample: int = 0) -> Signed:
    """Blocks of one size."""
    return Signed(0, key(number, usable), blocks, blocks * usable, sample, usable, usable)


def test_an_unusual_size_is_less_sure() -> None:
    """Objects of one class have one size, but for what malloc rounds up; others may be memory that was freed and is something else now."""
    objects = CppObjects(cast(CensusTarget, ClassMemory({0: (CAR,)})), KNOWN, [CAR])
    objects.settle([signed(CAR, 40, 900), signed(CAR, 56, 90), signed(CAR, 64, 30), signed(HOLE, 24, 5)])
    assert objects.name(key(CAR, 40)) == objects.name(key(CAR, 56)) == Signature("Car", "app", EXACT)
    assert objects.name(key(CAR, 64)) == Signature("Car", "app", SHAPE)
    assert objects.name(key(HOLE, 24)) is None and objects.name(OTHERS) is None


def told(words: Tuple[int, ...], *others: Tuple[int, int]) -> Optional[Signature]:
    """What a block of these words is said to be, beside blocks of other sizes: (usable bytes, how many)."""
    objects = CppObjects(cast(CensusTarget, ClassMemory({0: (CAR, 1, 2), 1: words})), KNOWN, [CAR, VAN])
    rows = [signed(CAR, 8 * len(words), 6, 1), *(signed(CAR, size, count) for size, count in others)]
    objects.settle(rows)
    return objects.name(key(CAR, 8 * len(words)))


def test_a_slab_is_no_object() -> None:
    """An object has no second one of its class in it: objects in a row are an array, a mixture is a slab; no block of either is exact, even
    where a class has no other."""
    row = (CAR, 1, 2, 3) * 2048
    mixed = (CAR, 1, 2, VAN, 4, CAR, 6, 7) * 1024
    assert told(row) == told(row[:32], (40, 900)) == Signature("Car[]", "app", SHAPE)
    assert told(mixed) == told(mixed, (40, 900)) == Signature("slab of Car, Van", "app", SHAPE)
    assert told((CAR, *((VAN, 1, 2, 3) * 1024))) == Signature("slab of Car, Van", "app", SHAPE), "one of its own, and very many others"
    uneven = (CAR, 1, CAR, 2, 3, CAR, *range(8, 300))
    assert told(uneven) == Signature("slab of Car", "app", SHAPE)


def test_a_large_object_is_one() -> None:
    """Nothing else begins in it: exact. Members with classes of their own do not make a slab, and are no proof either."""
    assert told((CAR, *([0] * 2000))) == Signature("Car", "app", EXACT)
    assert told((CAR, *([0] * 2000), VAN, 1)) == Signature("Car", "app", SHAPE)
    assert told((CAR, VAN, 2, 3)) == Signature("Car", "app", EXACT)


def test_arrays_are_full_of_objects() -> None:
    """The number before them, and a vtable at the begin of each; a number before one object is none."""
    blocks = {1: (3, CAR, 9, CAR, 9, CAR, 9), 2: (3, CAR, 9, 9, 9, 9, 9), 3: (0, CAR), 4: (9, CAR, 0), 5: (1 << 40, CAR, 0, 0)}
    arrays = Arrays(cast(CensusTarget, ClassMemory(blocks)), KNOWN)
    arrays.settle([signed(CAR, 8 * len(words), 1, at) for at, words in blocks.items() if at != 2])
    assert arrays.name(key(CAR, 56)) == Signature("Car[]", "app", SHAPE)
    assert not [at for at, words in blocks.items() if at > 2 and arrays.name(key(CAR, 8 * len(words)))]
    arrays = Arrays(cast(CensusTarget, ClassMemory(blocks)), KNOWN)
    arrays.settle([signed(CAR, 56, 4, 2)])
    assert arrays.name(key(CAR, 56)) is None


def test_data_is_searched_once() -> None:
    """Segments that overlap, as damaged headers have them, give each byte once."""
    assert list(drop_range_overlaps(iter([(40, 50), (10, 30), (20, 35), (12, 15)]))) == [(10, 30), (30, 35), (40, 50)]


LIST, TREE, ARRAY = 0, 1, 4
"""Shapes, by their numbers."""


@pytest.mark.parametrize("row", [REFERRED, ROOTED, MEMBERS, ROOTED_MEMBERS])
def test_places_beyond_the_labels_have_no_name(row: int) -> None:
    """Of millions of places the kernel labels one million; blocks of the rest share a key, which is no place."""
    reach: Any = SimpleNamespace(word_bytes=8, regions=SimpleNamespace(roots=[]))
    names: Any = None
    one = Signed(row + 3, OTHERS, 7, 700, 0x1000, 100, 100)
    known: List[Any] = []
    PlaceNames(3, known, names, reach, SimpleNamespace()).name_all({1: one})
    assert known == [None]


def test_elements_and_what_is_below_them() -> None:
    """Elements are called by the word or the table that holds their container, and blocks below by the way from the elements."""
    root: Any = SimpleNamespace(kind=heap_graph.DATA, module=SimpleNamespace(shown_name="app"), start=0x1000)
    roots: Any = SimpleNamespace(
        at=lambda module, address, is_short: "g_queue" if address == 0x1000 else "g_queue+0x8", variable=lambda *place: None
    )
    reach: Any = SimpleNamespace(word_bytes=8, regions=SimpleNamespace(roots=[root]))
    beyond: Any = SimpleNamespace(fields={("Cache", 0x18): "entry of a cache"})
    keys = [
        (ROOTED_MEMBERS, 0 << 32 | LIST << MEMBER_SHAPE | 1, "element of the list g_queue+0x8"),
        (REFERRED, 1 << 32 | 7, "+0x38 of elements of the list g_queue+0x8"),
        (REFERRED, 2 << 32 | 2, "+0x38 -> +0x10 of elements of the list g_queue+0x8"),
        (REFERRED, 1 << 32 | ELEMENT, "element of elements of the list g_queue+0x8"),
        (MEMBERS, 1 << 32 | ARRAY << MEMBER_SHAPE | ELEMENT & MEMBER_SLOT, "element of the array of elements of the list g_queue+0x8"),
        (MEMBERS, 1 << 32 | TREE << MEMBER_SHAPE | 4, "element of the tree at +0x20 of elements of the list g_queue+0x8"),
        (MEMBERS, 0 << 32 | ARRAY << MEMBER_SHAPE | 4, "element of an array"),
        (ROOTED, 0 << 32 | 1, "data"),
        (MEMBERS, 8 << 32 | TREE << MEMBER_SHAPE | 4, "element of the tree g_queue+0x8 -> +0x20"),
    ]
    matches = {label: Signed(row + 3, key, 7, 700, 0x1000, 100, 100) for label, (row, key, _) in enumerate(keys, 1)}
    names: List[Any] = []
    PlaceNames(3, names, roots, reach, beyond).name_all(matches)
    assert [one.name for one in names] == [name for _, _, name in keys] and {one.sure for one in names} == {PLACE}
    typed: List[Any] = [Signature("Cache", "app", EXACT)]
    entry = Signed(MEMBERS + 3, 1 << 32 | LIST << MEMBER_SHAPE | 3, 7, 700, 0, 8, 8)
    PlaceNames(3, typed, roots, reach, beyond).name_all({1: matches[1]._replace(row=0), 2: entry})
    assert typed[1] == Signature("entry of a cache", "app", EXACT)
