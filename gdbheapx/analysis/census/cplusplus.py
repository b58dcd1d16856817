"""C++ classes of a process, by their vtables, and the recogniser of their objects."""

import sys
from array import array
from typing import Any, Container, Dict, Iterable, List, Optional, Sequence, Set, Tuple, Union

from gdbheapx.analysis.census.images import Images, list_constant_ranges
from gdbheapx.analysis.census.world import EXACT, PLACE, SHAPE, Ask, CensusTarget, Recogniser, Signature
from gdbheapx.common.ranges import RangeIndex
from gdbheapx.inferior.base import Module
from gdbheapx.kernel.blocks import signatures
from gdbheapx.kernel.blocks.signatures import ALL, AT_LEAST, AT_MOST, IN_RANGES, IN_SET, Condition, NumberSet, SignatureRow, Signed

MOST_DISTANCE = 1 << 20
"""From a base to the start of its object, in bytes."""
MOST_BASES = 64
MOST_KINDS = 64
"""Vtables of type_infos, those of every C++ runtime in the process together."""
NO_BASE, ONE_BASE, BASES = range(3)
"""Kinds of type_infos: __class_type_info, __si_class_type_info, __vmi_class_type_info."""


CppVtable = Tuple[int, int]
"""(address of its class's type_info, where the part of the object that points to the vtable begins)."""


def find_vtables(images: Images) -> Dict[int, CppVtable]:
    """Return vtables by address point, for all classes with type_infos; empty if there is no C++ runtime."""
    places, values = images.pointers()
    kinds = find_cpp_runtime(images, places, values)
    if not kinds:
        return {}
    infos, inside = type_infos(images, [(place, kinds[value]) for place, value in zip(places, values) if value in kinds])
    word, vtables = images.word_bytes, {}
    for place, value in [(place, value) for place, value in zip(places, values) if value in infos]:
        distance = images.signed(place - word)
        if place in inside or distance is None or distance % word or not -MOST_DISTANCE < distance <= 0:
            continue
        if has_code(images, place + word):
            vtables[place + word] = value, -distance
    return vtables


def has_code(images: Images, place: int) -> bool:
    """Return True if a function is among the first entries: those of an abstract class's destructors are empty."""
    first = next((word for word in (images.word(place + at * images.word_bytes) for at in range(3)) if word != 0), None)
    return first is not None and images.is_code(first & ~1)


def find_cpp_runtime(images: Images, places: Sequence[int], values: Sequence[int]) -> Dict[int, int]:
    """Return by the address points of the vtables of type_infos themselves NO_BASE, ONE_BASE or BASES, for every C++ runtime in the
    process.
    """
    word = images.word_bytes
    kinds: Dict[int, int] = {}
    read = images.word
    for place, value in zip(places, values):
        point = place + word
        if len(kinds) >= MOST_KINDS:
            break
        if read(value) != point:  # the type_info of __si_class_type_info: its vtable leads to it, and it to its vtable
            continue
        parent = read(value + 2 * word)
        top = read(parent + 2 * word) if parent is not None and read(parent) == point else None
        none = read(top) if top is not None else None
        if parent is None or none is None or read(none - word) != parent:
            continue
        kinds[point], kinds[none] = ONE_BASE, NO_BASE
        others = {at for at, kind in zip(places, values) if kind == point and at != value and read(at + 2 * word) == parent}
        for at, to in zip(places, values):  # an executable at a fixed address may have a copy of it: two
            if to in others and read(at - word) == 0 and has_code(images, at + word):
                kinds.setdefault(at + word, BASES)
    return kinds


def type_infos(images: Images, met: Sequence[Tuple[int, int]]) -> Tuple[Dict[int, List[int]], Set[int]]:
    """Return all consistent type_infos: address -> addresses of its bases' type_infos, and the places of these inside type_infos."""
    word = images.word_bytes
    bases_of: Dict[int, List[int]] = {}
    inside: Set[int] = set()
    for place, kind in met:
        name, first = images.word(place + word), place + 2 * word
        if name is None or images.span_at(name_address(name, word)) is None:
            continue
        at = [first] if kind == ONE_BASE else []
        if kind == BASES:
            head, count = images.half(first), images.half(first + 4)
            if head is None or count is None or head > 3 or not 1 <= count <= MOST_BASES:
                continue
            at = [first + 8 + 2 * word * number for number in range(count)]
        bases = [images.word(base) for base in at]
        if None not in bases:
            bases_of[place] = bases  # type: ignore[assignment]
            inside.update(at)
    while True:
        wrong = [place for place, bases in bases_of.items() if not all(base in bases_of for base in bases)]
        if not wrong:
            return bases_of, inside
        for place in wrong:
            del bases_of[place]


def name_address(word: int, word_bytes: int) -> int:
    """Return the address of a type_info's name, whose highest bit may say that it is not the only one of this name."""
    return word & ~(1 << (8 * word_bytes - 1)) if word_bytes == 8 else word


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


CppClass = Tuple[str, str]
"""C++ class that a vtable belongs to: (its name, its module)."""


class CppClasses:
    """Address point -> class, in one process. Names are looked up when they are asked for: a large program has 10,000."""

    def __init__(self, world: CensusTarget) -> None:
        self._world = world
        self.images = world.once(Images)
        self._found: Dict[int, CppVtable] = find_vtables(self.images)
        self._named: Dict[int, CppClass] = {}
        self._vtables: Dict[Module, Dict[int, Any]] = {}
        self._firsts = {at for at, (_, within) in self._found.items() if not within}
        for module in world.modules():
            if not module.base:  # at a fixed address: its vtables are constants, which no core has
                of_build = self._of_build(module)
                self._named.update({at: (name, module.shown_name) for at, (name, _) in of_build.items()})
                self._firsts.update(at for at, (_, within) in of_build.items() if not within)

    def _of_build(self, module: Module) -> Dict[int, Any]:
        if module not in self._vtables:
            self._vtables[module] = self._world.target.vtables(module) or {}
        return self._vtables[module]

    def firsts(self) -> List[int]:
        """Return the address points that whole objects point to."""
        return sorted(self._firsts)

    def at(self, address: int) -> Optional[CppClass]:
        """Return the class of an address point, or None."""
        if address not in self._named and address in self._found:
            type_info, word = self._found[address][0], self._world.word_bytes
            span = self.images.span_at(type_info) or self.images.span_at(address)
            text = self.images.word(type_info + word)
            at = name_address(text, word) if text is not None else 0
            home = self.images.span_at(at)
            name = self._world.target.class_name(home[2], at) if home is not None else None
            name = name or self.known(address) or self.by_place(address)
            self._named[address] = name, span[2].shown_name if span is not None else ""
        return self._named.get(address)

    def known(self, address: int) -> Optional[str]:
        """Return the name from the symbols of its file, or None."""
        span = self.images.span_at(address)
        vtable = self._of_build(span[2]).get(address - span[2].base) if span is not None else None
        return vtable[0] if vtable is not None else None

    def by_place(self, address: int) -> str:
        """Return the name of an unnamed class, `CLASS@build-id+offset`."""
        span = self.images.span_at(address)
        if span is None:
            return "CLASS@0x%x" % address
        return "CLASS@%s+0x%x" % (span[2].build_id or span[2].shown_name, address - span[2].base)


def has_cpp(world: CensusTarget) -> bool:
    """Return True if the process has C++: its library is loaded, classes were found, or the program is static, which leaves it open."""
    names = [module.file_name for module in world.modules()]
    if any(part in name for name in names for part in ("libstdc++", "libc++")):
        return True
    return not any(name.startswith("libc") for name in names) or bool(world.constant(CppClasses).firsts())


class CPlusPlus(Recogniser):
    """Objects and arrays of objects with vtables."""

    def is_here(self, world: CensusTarget) -> bool:
        """Return True for any process: a runtime that was linked in has no name."""
        return world.word_bytes == 8

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
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
            counted = [Condition(8, 8, IN_SET, 0), Condition(0, 8, AT_LEAST, 1), Condition(0, 8, AT_MOST, -8, signatures.USABLE)]
            yield Ask(SignatureRow(counted, key=(8, 8, ALL), sized=True), arrays.name, [known], 21, arrays.settle)
        constants = CppConstants(world, classes, bool(firsts))
        if constants.ranges:
            row = SignatureRow([Condition(0, 8, IN_RANGES, 0)], least_usable=16, key=(0, 8, ALL), sized=True)
            yield Ask(row, constants.name, [NumberSet(ranges=constants.ranges)], 90, constants.settle)


class CppObjects:
    """Blocks that begin with a pointer to the vtable of a class: objects, arrays and slabs of them."""

    def __init__(self, world: CensusTarget, classes: "Union[CppClasses, CppConstants]", firsts: Container[int]) -> None:
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
            number, size = signatures.split_sized_key(match.key)
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
        data = self._world.read(address, min(usable, MOST_ARRAY_BYTES))
        words = array("Q", data[: len(data) // 8 * 8])
        if self._world.little_endian != (sys.byteorder == "little"):
            words.byteswap()
        places = [(at, word) for at, word in enumerate(words) if word in self._firsts]
        own = [at for at, word in places if word == number]
        others = [word for _, word in places if word != number]
        if len(own) > 1 and not others and len({after - before for before, after in zip(own, own[1:])}) == 1:
            self._several[key] = ARRAY
        elif len(own) > 1 or (usable >= LEAST_SLAB_BYTES and len(others) >= LEAST_SLAB_OBJECTS):
            numbers = [number, *others]  # the most frequent classes by name: `slab of A, B and others`
            often = sorted(set(numbers), key=lambda number: (-numbers.count(number), number))
            names = sorted(class_[0] for class_ in map(self._classes.at, often[:MOST_NAMED]) if class_ is not None)
            self._several[key] = "%s%s%s" % (SLAB, ", ".join(names), " and others" if len(often) > MOST_NAMED else "")
        elif others and usable >= LEAST_LARGE_BYTES:
            self._unproven.add(key)

    def name(self, key: int) -> Optional[Signature]:
        """Return the class; it is less sure if the size is unusual, or other objects begin in the block."""
        number, size = signatures.split_sized_key(key)
        class_, several = self._classes.at(number), self._several.get(key)
        if class_ is None:
            return None
        name, module = class_
        if several is not None:
            return Signature(name + several if several == ARRAY else several, module, SHAPE)
        is_usual = abs(size - self._usual.get(number, size)) <= SLACK_BYTES
        return Signature(name, module, EXACT if is_usual and key not in self._unproven else SHAPE)


class Arrays:
    """Blocks that new T[n] has got, for classes with destructors: n, then the objects."""

    def __init__(self, world: CensusTarget, classes: CppClasses) -> None:
        self._world, self._classes = world, classes
        self._arrays: Set[int] = set()

    def settle(self, matches: Sequence[Signed]) -> None:
        """Read the first block of each class and size: all its elements begin with that vtable."""
        for match in matches:
            if self._is_array(match.sample, signatures.split_sized_key(match.key)[0], match.bytes // match.blocks):
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
        class_ = self._classes.at(signatures.split_sized_key(key)[0]) if key in self._arrays else None
        return Signature(class_[0] + "[]", class_[1], SHAPE) if class_ is not None else None


class CppConstants:
    """Blocks that begin with a pointer to read-only data: a vtable without type_info, a table of functions."""

    def __init__(self, world: CensusTarget, classes: CppClasses, has_runtime: bool) -> None:
        self._world, self._classes, self._images, self._has_runtime = world, classes, classes.images, has_runtime
        self._told: Dict[int, Signature] = {}
        self._vtables: Dict[int, bool] = {}
        self.ranges = list_constant_ranges(world, classes.images)
        self._index = RangeIndex(self.ranges)
        self._objects = CppObjects(world, self, self)
        """Of those that are vtables: a large block may be a slab of several objects."""

    def __contains__(self, address: object) -> bool:
        assert isinstance(address, int)
        if not self._index.meets(address, address + 1):
            return False
        if address not in self._vtables:
            words = self._world.words(address - 16, 3) if not address % 8 else None
            distance, zero, method = words or (0, 1, 0)  # from the begin of the object, type_info, the first function
            is_distance = not distance or ((1 << 64) - distance < MOST_DISTANCE and not distance % 8)
            self._vtables[address] = not zero and is_distance and self._images.is_code(method & ~1)
        return self._vtables[address]

    def at(self, address: int) -> Optional[CppClass]:
        """Return the class whose vtable is there, or None."""
        span = self._images.span_at(address)
        if span is None or address not in self:
            return None
        return self._classes.known(address) or self._classes.by_place(address), span[2].shown_name

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
        self._objects.settle([match for match in matches if self._vtables.get(signatures.split_sized_key(match.key)[0])])

    def name(self, key: int) -> Optional[Signature]:
        """Return the signature of objects by their class; no surer than the class's name is."""
        number = signatures.split_sized_key(key)[0]
        told, object_ = self._told.get(number), self._objects.name(key) if self._vtables.get(number) else None
        return told if told is None or object_ is None else object_._replace(sure=told.sure if object_.sure == EXACT else SHAPE)


def by_number(matches: Sequence[Signed]) -> Dict[int, Dict[int, int]]:
    """Return, by number and usable bytes, the count of blocks, from the keys of a row that is `sized`."""
    numbers: Dict[int, Dict[int, int]] = {}
    for match in matches:
        number, size = signatures.split_sized_key(match.key)
        sizes = numbers.setdefault(number, {})
        sizes[size] = sizes.get(size, 0) + match.blocks
    return numbers


RECOGNISERS: List[Recogniser] = [CPlusPlus()]
