"""Which blocks are said to be a class's, by what all of a kind have in common."""

from typing import Any, Dict, Optional, Tuple, cast

from gdbheapx.analysis.census.cplusplus import Arrays, Class, Classes, Objects
from gdbheapx.analysis.census.signature import EXACT, SHAPE, Signature
from gdbheapx.analysis.census.vtables import without_overlap
from gdbheapx.analysis.census.world import World
from gdbheapx.kernel.blocks.signatures import OTHERS, SIZED_BITS, Signed

CAR, HOLE = 0x7000, 0x8000


class Known:
    """Classes of which one is known."""

    def at(self, address: int) -> Optional[Class]:
        """See Classes."""
        return Class("Car", "app", 0) if address == CAR else None


class Memory:
    """A world with a few words."""

    def __init__(self, blocks: Dict[int, Tuple[int, ...]]) -> None:
        self._blocks = blocks

    def words(self, address: int, count: int) -> Tuple[int, ...]:
        """See World."""
        return self._blocks[address][:count]


def key(number: int, usable: int) -> int:
    """Of a row that is sized."""
    return number | usable // 8 << SIZED_BITS


def signed(number: int, usable: int, blocks: int, sample: int = 0) -> Signed:
    """Blocks of one size."""
    return Signed(0, key(number, usable), blocks, blocks * usable, sample, usable, usable)


def test_an_unusual_size_is_less_sure() -> None:
    """Objects of one class have one size, but for what malloc rounds up; others may be memory that was freed and is something else now."""
    objects = Objects(cast(Any, Known()))
    objects.settle([signed(CAR, 40, 900), signed(CAR, 56, 90), signed(CAR, 64, 30), signed(HOLE, 24, 5)])
    assert objects.name(key(CAR, 40)) == objects.name(key(CAR, 56)) == Signature("Car", "app", EXACT)
    assert objects.name(key(CAR, 64)) == Signature("Car", "app", SHAPE)
    assert objects.name(key(HOLE, 24)) is None and objects.name(OTHERS) is None


def test_arrays_are_full_of_objects() -> None:
    """The number before them, and a vtable at the begin of each; a number before one object is none."""
    blocks = {1: (3, CAR, 9, CAR, 9, CAR, 9), 2: (3, CAR, 9, 9, 9, 9, 9), 3: (0, CAR), 4: (9, CAR, 0), 5: (1 << 40, CAR, 0, 0)}
    arrays = Arrays(cast(World, Memory(blocks)), cast(Classes, Known()))
    arrays.settle([signed(CAR, 8 * len(words), 1, at) for at, words in blocks.items() if at != 2])
    assert arrays.name(key(CAR, 56)) == Signature("Car[]", "app", SHAPE)
    assert not [at for at, words in blocks.items() if at > 2 and arrays.name(key(CAR, 8 * len(words)))]
    arrays = Arrays(cast(World, Memory(blocks)), cast(Classes, Known()))
    arrays.settle([signed(CAR, 56, 4, 2)])
    assert arrays.name(key(CAR, 56)) is None


def test_data_is_searched_once() -> None:
    """Segments that overlap, as damaged headers have them, give each byte once."""
    assert list(without_overlap(iter([(40, 50), (10, 30), (20, 35), (12, 15)]))) == [(10, 30), (30, 35), (40, 50)]
