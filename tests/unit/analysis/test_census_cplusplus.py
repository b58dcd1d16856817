"""Which blocks are said to be a class's, by what all of a kind have in common.

Files: analysis/census/world.py.
"""

from typing import Any, Dict, Optional, Tuple, cast

from gdbheapx.analysis.census.cplusplus import Arrays, CppClass, CppClasses, CppObjects, drop_range_overlaps
from gdbheapx.analysis.census.world import EXACT, SHAPE, Signature, World
from gdbheapx.kernel.blocks.signatures import OTHERS, SIZED_BITS, Signed

CAR, VAN, HOLE = 0x7000, 0x7100, 0x8000


class Known:
    """Classes of which one is known."""

    def at(self, address: int) -> Optional[CppClass]:
        """See Classes."""
        return {CAR: ("Car", "app"), VAN: ("Van", "app")}.get(address)


class Memory:
    """A world with a few words."""

    def __init__(self, blocks: Dict[int, Tuple[int, ...]]) -> None:
        self._blocks = blocks

    def words(self, address: int, count: int) -> Tuple[int, ...]:
        """See World."""
        return self._blocks[address][:count]

    little_endian = True

    def read(self, address: int, size_bytes: int) -> bytes:
        """See World."""
        return b"".join(word.to_bytes(8, "little") for word in self._blocks[address])[:size_bytes]


def key(number: int, usable: int) -> int:
    """Of a row that is sized."""
    return number | usable // 8 << SIZED_BITS


def signed(number: int, usable: int, blocks: int, sample: int = 0) -> Signed:
    """Blocks of one size."""
    return Signed(0, key(number, usable), blocks, blocks * usable, sample, usable, usable)


def test_an_unusual_size_is_less_sure() -> None:
    """Objects of one class have one size, but for what malloc rounds up; others may be memory that was freed and is something else now."""
    objects = CppObjects(cast(World, Memory({0: (CAR,)})), cast(Any, Known()), [CAR])
    objects.settle([signed(CAR, 40, 900), signed(CAR, 56, 90), signed(CAR, 64, 30), signed(HOLE, 24, 5)])
    assert objects.name(key(CAR, 40)) == objects.name(key(CAR, 56)) == Signature("Car", "app", EXACT)
    assert objects.name(key(CAR, 64)) == Signature("Car", "app", SHAPE)
    assert objects.name(key(HOLE, 24)) is None and objects.name(OTHERS) is None


def told(words: Tuple[int, ...], *others: Tuple[int, int]) -> Optional[Signature]:
    """What a block of these words is said to be, beside blocks of other sizes: (usable bytes, how many)."""
    objects = CppObjects(cast(World, Memory({0: (CAR, 1, 2), 1: words})), cast(Any, Known()), [CAR, VAN])
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
    arrays = Arrays(cast(World, Memory(blocks)), cast(CppClasses, Known()))
    arrays.settle([signed(CAR, 8 * len(words), 1, at) for at, words in blocks.items() if at != 2])
    assert arrays.name(key(CAR, 56)) == Signature("Car[]", "app", SHAPE)
    assert not [at for at, words in blocks.items() if at > 2 and arrays.name(key(CAR, 8 * len(words)))]
    arrays = Arrays(cast(World, Memory(blocks)), cast(CppClasses, Known()))
    arrays.settle([signed(CAR, 56, 4, 2)])
    assert arrays.name(key(CAR, 56)) is None


def test_data_is_searched_once() -> None:
    """Segments that overlap, as damaged headers have them, give each byte once."""
    assert list(drop_range_overlaps(iter([(40, 50), (10, 30), (20, 35), (12, 15)]))) == [(10, 30), (30, 35), (40, 50)]
