"""Blocks that begin with a pointer to a trait object (Box<dyn Trait>, &dyn Trait): an address, and the vtable of what lies there.

A vtable is what drops the object or 0, its size, its alignment, then the trait's methods (rustc_middle: vtable.rs, COMMON_VTABLE_ENTRIES).
What a trait object itself is, its block does not say: the vtable stands beside the pointer in the owner, at any place of that. Rows look at
one block, so that needs the graph, whose edges know both.
"""

from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from gdbheapx.analysis.census.signature import PLACE, SHAPE, Ask, Signature
from gdbheapx.analysis.census.vtables import Images, constant_ranges
from gdbheapx.analysis.census.world import Recogniser, World
from gdbheapx.kernel.blocks.signatures import ALL, AT_LEAST, IN_RANGES, Condition, NumberSet, SignatureRow, Signed

MOST_OBJECT_BYTES = 1 << 20
MOST_ALIGNMENT = 4096
LEAST_BLOCKS = 4
"""That begin with one trait object of a kind: fewer are chance."""
LEAST_ADDRESS = 1 << 16


LEAST_LOCATIONS = 24
MOST_PATH, MOST_LINE, MOST_COLUMN = 512, 1 << 17, 512
MOST_SEARCHED = 1 << 20
"""Words of the program's constants."""


def is_used(world: World) -> bool:
    """The program has places in its sources, as every panic tells one (core::panic::Location): a path and its length, then line and column
    in one word; several times the same path. Where it is at a fixed address they are constants, which no core has."""
    if world.word_bytes != 8 or not world.little_endian or not world.modules():
        return False
    images, program = world.once(Images), world.modules()[0]
    paths: Dict[Tuple[int, int], int] = {}
    for start, end in constant_ranges(world, images):
        span = images.span_at(start)
        if span is None or span[2] != program:
            continue
        for at in range(start, min(end, start + 8 * MOST_SEARCHED) - 16, 8):
            length, place = images.word(at + 8), images.word(at + 16)
            if length is None or place is None or not 4 <= length <= MOST_PATH:
                continue
            path = images.word(at)
            if path and span[0] <= path < span[1] and 0 < place & 0xFFFFFFFF < MOST_LINE and 0 < place >> 32 < MOST_COLUMN:
                paths[path, length] = paths.get((path, length), 0) + 1
    return sum(count for count in paths.values() if count > 1) >= LEAST_LOCATIONS


class TraitObjects(Recogniser):
    """Structs and vectors that begin with one."""

    def is_here(self, world: World) -> bool:
        """No name tells a stripped program."""
        return world.word_bytes == 8

    def asks(self, world: World) -> Iterable[Ask]:
        """An address, and a pointer to what is not written to any more; twice in an array."""
        images = world.once(Images)
        ranges = constant_ranges(world, images)
        if ranges:
            first = [Condition(0, 8, AT_LEAST, LEAST_ADDRESS), Condition(8, 8, IN_RANGES, 0)]
            second = [Condition(16, 8, AT_LEAST, LEAST_ADDRESS), Condition(24, 8, IN_RANGES, 0)]
            for order, conditions, heads in ((85, first + second, Heads(world, images, 2)), (86, first, Heads(world, images, 1))):
                yield Ask(SignatureRow(conditions, key=(8, 8, ALL)), heads.name, [NumberSet(ranges=ranges)], order, heads.settle)


class Heads:
    """What such blocks begin with, by the vtable."""

    def __init__(self, world: World, images: Images, pairs: int) -> None:
        self._world, self._images, self._pairs = world, images, pairs
        self._told: Dict[int, Signature] = {}

    def settle(self, found: Sequence[Signed]) -> None:
        """Looks at the first block of each vtable."""
        for one in found:
            layout, span = self._layout(one.key), self._images.span_at(one.key)
            words = self._world.words(one.sample, 2 * self._pairs)
            if layout is None or span is None or words is None or not self._is_object(words[0], layout[1]):
                continue
            module = span[2].file_name
            if self._pairs > 1 and self._is_pair(words[2], words[3]):
                self._told[one.key] = Signature("Box<dyn>[]", module, SHAPE)
            elif self._pairs == 1 and one.blocks >= LEAST_BLOCKS:
                what = "begins with Box<dyn %s+0x%x>, %d bytes" % (module, one.key - span[0], layout[0])
                self._told[one.key] = Signature(what, module, PLACE)

    def _is_pair(self, address: int, vtable: int) -> bool:
        layout = self._layout(vtable)
        return layout is not None and self._is_object(address, layout[1])

    def _is_object(self, address: int, alignment: int) -> bool:
        """It can be written to, and lies where its type asks for."""
        mapping = self._images.mapping_at(address)
        return mapping is not None and mapping.writable and not address % alignment

    def _layout(self, vtable: int) -> Optional[Tuple[int, int]]:
        """(size, alignment) of the object; None if this is no vtable with a method."""
        words = [self._images.word(vtable + 8 * number) for number in range(4)]
        drop, size, alignment, method = words
        if drop is None or size is None or alignment is None or method is None or vtable % 8:
            return None
        if not 0 < size <= MOST_OBJECT_BYTES or not 0 < alignment <= MOST_ALIGNMENT or alignment & (alignment - 1) or size % alignment:
            return None
        return (size, alignment) if (not drop or self._images.is_code(drop)) and self._images.is_code(method) else None

    def name(self, key: int) -> Optional[Signature]:
        """What was told of the vtable."""
        return self._told.get(key)


RECOGNISERS: List[Recogniser] = [TraitObjects()]
