"""Objects of C++ classes: the first word of each leads to the vtable of its class.

Where they lie is found in memory (vtables.py), or in the file of an executable at a fixed address; their names stand in the files of their
objects. What is not found so, and yet is pointed to by the first words of blocks, may be a vtable without type_info
(-fno-rtti), or any other constant.
"""

import sys
from array import array
from bisect import bisect_right
from typing import Any, Container, Dict, Iterable, List, NamedTuple, Optional, Protocol, Sequence, Set

from gdbheapx.analysis.census.vtables import MOST_DISTANCE, CppVtable, Images, constant_ranges, find_vtables, name_address
from gdbheapx.analysis.census.world import EXACT, PLACE, SHAPE, Ask, Recogniser, Signature, World
from gdbheapx.inferior.base import Module
from gdbheapx.kernel.blocks.signatures import (
    ALL,
    AT_LEAST,
    AT_MOST,
    IN_RANGES,
    IN_SET,
    USABLE,
    Condition,
    NumberSet,
    SignatureRow,
    Signed,
    split_sized_key,
)

SLACK_BYTES = 16
"""How far the usable bytes of one class's objects are apart: what malloc gives beyond what was asked for."""
ARRAY_SLACK_BYTES = 32
LEAST_CONSTANT_BLOCKS = 4
LEAST_CONSTANT_SHARE = 0.9
"""Of blocks that begin with a pointer to one constant, those of one size: else it is no head of a struct."""
MOST_ARRAY_BYTES = 1 << 16
"""Of an array or a slab, that are looked at."""
MOST_LOOKED_BYTES = 16 << 20
"""Of all of them."""
LEAST_LARGE_BYTES = 2048
"""From here on a block with a class is looked at, whatever the sizes of others."""
LEAST_SLAB_BYTES, LEAST_SLAB_OBJECTS = 16384, 8
"""An object may have members with classes of their own; a block so large with so many further objects is rather a slab."""
MOST_NAMED = 3
ARRAY, SLAB = "[]", "slab of "


class CppClass(NamedTuple):
    """C++ class that a vtable belongs to."""

    name: str
    module: str
    within: int


class CppClasses:
    """Address point -> class, in one process. Names are looked up when they are asked for: a large program has 10,000."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.images = world.once(Images)
        self._found: Dict[int, CppVtable] = find_vtables(self.images)
        self._named: Dict[int, CppClass] = {}
        self._vtables: Dict[Module, Dict[int, Any]] = {}
        for module in world.modules():
            if not module.base:  # at a fixed address: its vtables are constants, which no core has
                of_build = self._of_build(module)
                self._named.update({at: CppClass(vtable.name, module.shown_name, vtable.within) for at, vtable in of_build.items()})

    def _of_build(self, module: Module) -> Dict[int, Any]:
        if module not in self._vtables:
            self._vtables[module] = self._world.target.vtables(module) or {}
        return self._vtables[module]

    def firsts(self) -> List[int]:
        """Return the address points that whole objects point to."""
        points = {at for at, vtable in self._found.items() if not vtable.within} | {
            at for at, vtable in self._named.items() if not vtable.within
        }
        return sorted(points)

    def at(self, address: int) -> Optional[CppClass]:
        """Return the class of an address point, or None."""
        if address not in self._named and address in self._found:
            self._named[address] = self._name_class(address, self._found[address])
        return self._named.get(address)

    def _name_class(self, address: int, vtable: CppVtable) -> CppClass:
        span = self.images.span_at(vtable.type_info) or self.images.span_at(address)
        module = span[2] if span is not None else None
        text = self.images.word(vtable.type_info + self._world.word_bytes)
        at = name_address(text, self._world.word_bytes) if text is not None else 0
        home = self.images.span_at(at)
        name = self._world.target.class_name(home[2], at) if home is not None else None
        name = name or self.known(address) or self.by_place(address)
        return CppClass(name, module.shown_name if module is not None else "", vtable.within)

    def known(self, address: int) -> Optional[str]:
        """Return the name from the symbols of its file, or None."""
        span = self.images.span_at(address)
        vtable = self._of_build(span[2]).get(address - span[2].base) if span is not None else None
        return vtable.name if vtable is not None else None

    def by_place(self, address: int) -> str:
        """Return the name of an unnamed class, `CLASS@build-id+offset`."""
        span = self.images.span_at(address)
        if span is None:
            return "CLASS@0x%x" % address
        return "CLASS@%s+0x%x" % (span[2].build_id or span[2].shown_name, address - span[2].base)


def has_cpp(world: World) -> bool:
    """Return True if the process has C++: its library is loaded, classes were found, or the program is static, which leaves it open."""
    names = [module.file_name for module in world.modules()]
    if any(part in name for name in names for part in ("libstdc++", "libc++")):
        return True
    return not any(name.startswith("libc") for name in names) or bool(world.constant(CppClasses).firsts())


class CPlusPlus(Recogniser):
    """Objects and arrays of objects with vtables."""

    def is_here(self, world: World) -> bool:
        """Return True for any process: a runtime that was linked in has no name."""
        return world.word_bytes == 8

    def asks(self, world: World) -> Iterable[Ask]:
        """Return rows for objects, for arrays that begin with the number of their elements, and for blocks that begin with a pointer to
        another constant.
        """
        classes = world.constant(CppClasses)
        firsts = classes.firsts()
        if firsts:
            known = NumberSet(firsts)
            objects, arrays = CppObjects(world, classes, frozenset(firsts)), Arrays(world, classes)
            row = SignatureRow([Condition(0, 8, IN_SET, 0)], key=(0, 8, ALL), sized=True)
            yield Ask(row, objects.name, [known], 20, objects.settle)
            counted = [Condition(8, 8, IN_SET, 0), Condition(0, 8, AT_LEAST, 1), Condition(0, 8, AT_MOST, -8, USABLE)]
            yield Ask(SignatureRow(counted, key=(8, 8, ALL), sized=True), arrays.name, [known], 21, arrays.settle)
        constants = CppConstants(world, classes, bool(firsts))
        if constants.ranges:
            row = SignatureRow([Condition(0, 8, IN_RANGES, 0)], least_usable=16, key=(0, 8, ALL), sized=True)
            yield Ask(row, constants.name, [NumberSet(ranges=constants.ranges)], 90, constants.settle)


class KnownClasses(Protocol):
    """Classes by the addresses of their vtables."""

    def at(self, address: int) -> Optional[CppClass]:
        """Return the class whose vtable is there, or None."""


class CppObjects:
    """Blocks that begin with a pointer to the vtable of a class: objects, arrays and slabs of them."""

    def __init__(self, world: World, classes: KnownClasses, firsts: Container[int]) -> None:
        self._world, self._classes, self._firsts = world, classes, firsts
        self._usual: Dict[int, int] = {}
        self._several: Dict[int, str] = {}
        """By key: what a block of several objects is called."""
        self._unproven: Set[int] = set()
        """Keys of blocks in which further objects begin that may be its members."""

    def settle(self, matches: Sequence[Signed]) -> None:
        """Find the size that most blocks of a class have. Leftovers in freed memory begin the same way, and may be of any size. Blocks
        that are larger than the smallest of their class, or large, may hold several objects: the first of each size is read, the sizes
        with most bytes first.
        """
        least: Dict[int, int] = {}
        for number, sizes in by_number(matches).items():
            self._usual[number] = max(sizes, key=lambda size: (sizes[size], -size))
            least[number] = min(sizes)
        looked = 0
        for match in sorted(matches, key=lambda match: -match.bytes):
            number, size = split_sized_key(match.key)
            if not match.blocks or (size < LEAST_LARGE_BYTES and size <= least[number] + SLACK_BYTES):
                continue
            looked += min(size, MOST_ARRAY_BYTES)
            if looked > MOST_LOOKED_BYTES:
                self._unproven.add(match.key)
            else:
                self._inspect_block(match.key, match.sample, number, match.bytes // match.blocks)

    def _inspect_block(self, key: int, address: int, number: int, usable: int) -> None:
        """Search a block for further objects. An object contains no other of its own class: if one begins there, the block has several.
        Objects of other classes may be members; a large block with many of them is rather a slab.
        """
        words = self._read_words(address, min(usable, MOST_ARRAY_BYTES))
        places = [(at, word) for at, word in enumerate(words) if word in self._firsts]
        own = [at for at, word in places if word == number]
        others = [word for _, word in places if word != number]
        if len(own) > 1 and not others and len(set(_compute_differences(own))) == 1:
            self._several[key] = ARRAY
        elif len(own) > 1 or (usable >= LEAST_SLAB_BYTES and len(others) >= LEAST_SLAB_OBJECTS):
            self._several[key] = self._name_slab([number, *others])
        elif others and usable >= LEAST_LARGE_BYTES:
            self._unproven.add(key)

    def _read_words(self, address: int, size_bytes: int) -> Sequence[int]:
        data = self._world.read(address, size_bytes)
        words = array("Q", data[: len(data) // 8 * 8])
        if self._world.little_endian != (sys.byteorder == "little"):
            words.byteswap()
        return words

    def _name_slab(self, numbers: Sequence[int]) -> str:
        """Return `slab of A, B and others`, with the most frequent classes by name."""
        often = sorted(set(numbers), key=lambda number: (-numbers.count(number), number))
        names_ = [class_.name for class_ in map(self._classes.at, often[:MOST_NAMED]) if class_ is not None]
        return "%s%s%s" % (SLAB, ", ".join(sorted(names_)), " and others" if len(often) > MOST_NAMED else "")

    def name(self, key: int) -> Optional[Signature]:
        """Return the class; it is less sure if the size is unusual, or other objects begin in the block."""
        number, size = split_sized_key(key)
        class_ = self._classes.at(number)
        if class_ is None:
            return None
        several = self._several.get(key)
        if several is not None:
            return Signature(class_.name + several if several == ARRAY else several, class_.module, SHAPE)
        is_usual = abs(size - self._usual.get(number, size)) <= SLACK_BYTES
        return Signature(class_.name, class_.module, EXACT if is_usual and key not in self._unproven else SHAPE)


def _compute_differences(places: Sequence[int]) -> List[int]:
    return [after - before for before, after in zip(places, places[1:])]


class Arrays:
    """Blocks that new T[n] has got, for classes with destructors: n, then the objects."""

    def __init__(self, world: World, classes: CppClasses) -> None:
        self._world, self._classes = world, classes
        self._arrays: Set[int] = set()

    def settle(self, matches: Sequence[Signed]) -> None:
        """Read the first block of each class and size: all its elements begin with that vtable."""
        for match in matches:
            if self._is_array(match.sample, split_sized_key(match.key)[0], match.bytes // match.blocks):
                self._arrays.add(match.key)

    def _is_array(self, address: int, vtable: int, usable: int) -> bool:
        """Return True if so many elements of one size fill the block."""
        words = self._world.words(address, min(usable, MOST_ARRAY_BYTES) // 8) or (0,)
        count, room = words[0], usable - 8
        stride = room // count // 8 * 8 if count else 0
        least = min(usable - ARRAY_SLACK_BYTES, usable * 4 // 5 - SLACK_BYTES)
        while stride >= 8 and (8 + count * stride > least or stride == room // count // 8 * 8):
            if all(words[at] == vtable for at in range(1, min(len(words), 1 + count * stride // 8), stride // 8)):
                return True
            stride -= 8
        return False

    def name(self, key: int) -> Optional[Signature]:
        """Return `T[]`; a struct of the same size, with a number before an object, is named the same way."""
        class_ = self._classes.at(split_sized_key(key)[0]) if key in self._arrays else None
        return Signature(class_.name + "[]", class_.module, SHAPE) if class_ is not None else None


class CppConstants:
    """Blocks that begin with a pointer to read-only data: a vtable without type_info, a table of functions."""

    def __init__(self, world: World, classes: CppClasses, has_runtime: bool) -> None:
        self._world, self._classes, self._images, self._has_runtime = world, classes, classes.images, has_runtime
        self._told: Dict[int, Signature] = {}
        self._vtables: Dict[int, bool] = {}
        self.ranges = constant_ranges(world, classes.images)
        self._starts = [start for start, _ in self.ranges]
        self._objects = CppObjects(world, self, self)
        """Of those that are vtables: a large block may be a slab of several objects."""

    def __contains__(self, address: object) -> bool:
        assert isinstance(address, int)
        place = bisect_right(self._starts, address) - 1
        if place < 0 or address >= self.ranges[place][1]:
            return False
        if address not in self._vtables:
            self._vtables[address] = self._is_vtable(address)
        return self._vtables[address]

    def at(self, address: int) -> Optional[CppClass]:
        """Return the class whose vtable is there, or None."""
        span = self._images.span_at(address)
        if span is None or address not in self:
            return None
        return CppClass(self._classes.known(address) or self._classes.by_place(address), span[2].shown_name, 0)

    def settle(self, matches: Sequence[Signed]) -> None:
        """Name tables that many blocks of one size begin with; a table like a vtable is a class from the first block on."""
        for number, sizes in by_number(matches).items():
            usual = max(sizes.values())
            span = self._images.span_at(number)
            if span is None:
                continue
            module = span[2].shown_name
            if self._has_runtime and number in self:
                name = self._classes.known(number)
                self._told[number] = Signature(name or self._classes.by_place(number), module, EXACT if name else SHAPE)
            elif usual < LEAST_CONSTANT_BLOCKS or usual < LEAST_CONSTANT_SHARE * sum(sizes.values()):
                continue
            elif not self._world.text(number):
                self._told[number] = Signature("constant %s+0x%x" % (module, number - span[0]), module, PLACE)
        self._objects.settle([match for match in matches if self._vtables.get(split_sized_key(match.key)[0])])

    def _is_vtable(self, address: int) -> bool:
        words = self._world.words(address - 16, 3) if not address % 8 else None
        if words is None or words[1] or not self._images.is_code(words[2] & ~1):
            return False
        return not words[0] or ((1 << 64) - words[0] < MOST_DISTANCE and not words[0] % 8)

    def name(self, key: int) -> Optional[Signature]:
        """Return the signature of objects by their class; no surer than the class's name is."""
        number = split_sized_key(key)[0]
        told, object_ = self._told.get(number), self._objects.name(key) if self._vtables.get(number) else None
        return told if told is None or object_ is None else object_._replace(sure=told.sure if object_.sure == EXACT else SHAPE)


def by_number(matches: Sequence[Signed]) -> Dict[int, Dict[int, int]]:
    """Return, by number and usable bytes, the count of blocks, from the keys of a row that is `sized`."""
    numbers: Dict[int, Dict[int, int]] = {}
    for match in matches:
        number, size = split_sized_key(match.key)
        sizes = numbers.setdefault(number, {})
        sizes[size] = sizes.get(size, 0) + match.blocks
    return numbers


RECOGNISERS: List[Recogniser] = [CPlusPlus()]
