"""A Java heap as bytes, as HotSpot writes it: classes, objects with references, and the truth about each; with a plain reference walk."""

import random
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.addons.runtimes.jvm.java_classes import FINAL, MIRROR, PHANTOM, PLAIN, SOFT, STACK_CHUNK, JavaClass
from gdbheapx.addons.runtimes.jvm.java_heap import JavaShape
from gdbheapx.inferior.base import BytesSource

HEAP = 0x7_0000_0000
MALLOC = 0x7F00_0000_0000
"""Where words lead to that are not references."""
CLASS_KEYS = 0x1000
CLASS_OBJECT_BYTES, STATICS_AT = 48, 48
SIZE_AT, STATIC_COUNT_AT = 32, 36
"""In a java.lang.Class."""
CHUNK = (20, 24, 28)
"""Offsets of a StackChunk's size, stack pointer and flags."""
CHUNK_BYTES = 48
BITMAP_FLAG = 16


class JavaCase(NamedTuple):
    """How a JVM writes its objects."""

    oop_bytes: int = 4
    class_bytes: int = 4
    alignment_bytes: int = 8
    oop_base: int = 0
    oop_shift: int = 3

    @property
    def shape(self) -> JavaShape:
        """The shape as it is read from a JVM."""
        length_at = 8 + self.class_bytes
        shift = 0 if self.oop_bytes == 8 else self.oop_shift
        base, mark = 0 if self.oop_bytes == 8 else self.oop_base, 0 if self.class_bytes else 42
        return JavaShape(
            base, shift, self.oop_bytes, 0, 0, self.class_bytes, 8 if self.class_bytes else 0, mark, self.alignment_bytes, length_at, 16,
            SIZE_AT, STATIC_COUNT_AT,
        )


CASES = (JavaCase(), JavaCase(8, 4), JavaCase(8, 8), JavaCase(4, 0), JavaCase(4, 4, 32, 1 << 36, 5), JavaCase(8, 0))


class JavaObjects:
    """Objects that a test makes one after the other, in one part. `references` has those of each object, with the place of each."""

    def __init__(self, case: JavaCase, begin: int = HEAP) -> None:
        self.case, self.shape, self.begin = case, case.shape, begin + self._far(case)
        self.data = bytearray()
        self.classes: List[JavaClass] = []
        self.objects: Dict[int, Tuple[int, int]] = {}
        """Class index and size by address."""
        self.references: Dict[int, List[Tuple[int, int]]] = {}
        """(place, offset) of each reference that may be written, by object."""
        self.targets: Dict[int, Dict[int, int]] = {}
        """What was written, by place."""
        self.head = 8 if not case.class_bytes else 12 if case.class_bytes == 4 else 16
        self.first = -(-self.head // case.oop_bytes) * case.oop_bytes

    @staticmethod
    def _far(case: JavaCase) -> int:
        return case.oop_base if case.oop_bytes == 4 else 0

    @property
    def at(self) -> int:
        """Where the next object begins."""
        return self.begin + len(self.data)

    @property
    def parts(self) -> List[Tuple[int, int]]:
        return [(self.begin, self.at)]

    def source(self) -> BytesSource:
        """The heap as it is."""
        return BytesSource(((self.begin, bytes(self.data)),))

    def align(self, size: int) -> int:
        """Round up to whole units."""
        return -(-size // self.case.alignment_bytes) * self.case.alignment_bytes

    def add_class(self, helper: int, kind: int = PLAIN, blocks: Sequence[Tuple[int, int]] = ()) -> int:
        """Make a class; its index."""
        index = len(self.classes)
        key = CLASS_KEYS + 8 * index
        self.classes.append(JavaClass(key, 0x10000 + key, "C%d" % index, helper, kind, tuple(blocks), 0, 0, None))
        return index

    def add_instance_class(self, references: int, words: int, kind: int = PLAIN) -> int:
        """Make a class of instances: references, then words of 8 bytes."""
        end = self.first + references * self.case.oop_bytes
        size = -(-end // 8) * 8 + 8 * words
        return self.add_class(size, kind, [(self.first, references)] if references else ())

    def add_array_class(self, log2: int, is_objects: bool = False, element: int = 8) -> int:
        """Make a class of arrays."""
        header = self.shape.array_length_offset + 4
        header = -(-header // (1 << log2)) * (1 << log2)
        tag = -2 if is_objects else -1
        return self.add_class((tag << 30) | header << 16 | element << 8 | log2)

    def add_object(self, index: int, size: int, places: Iterable[Tuple[int, int]] = ()) -> int:
        """Write a header; the object's address."""
        address, size = self.at, self.align(size)
        key = self.classes[index].key or 0
        self.data += (key << 42 | 1 if not self.case.class_bytes else 1).to_bytes(8, "little") + bytes(size - 8)
        if self.case.class_bytes:
            self.put(address + 8, key, self.case.class_bytes)
        self.objects[address] = (index, size)
        self.references[address] = list(places)
        self.targets[address] = {}
        return address

    def add_instance(self, index: int) -> int:
        """An object of a class."""
        places = [(at + i * self.case.oop_bytes,) * 2 for at, count in self.classes[index].oop_blocks for i in range(count)]
        return self.add_object(index, self.classes[index].layout_helper & ~7, places)

    def add_array(self, index: int, length: int) -> int:
        """An array of a class."""
        helper = self.classes[index].layout_helper
        header, log2 = helper >> 16 & 255, helper & 63
        places = [(i, header + (i << log2)) for i in range(length)] if helper >> 30 == -2 else []
        address = self.add_object(index, header + (length << log2), places)
        self.put(address + self.shape.array_length_offset, length, 4)
        return address

    def add_mirror(self, index: int, references: int, words: int) -> int:
        """A java.lang.Class with so many static references and words."""
        oop = self.case.oop_bytes
        size = self.align(-(-(STATICS_AT + references * oop) // 8) * 8 + 8 * words)
        places = [(at + i * oop,) * 2 for at, count in self.classes[index].oop_blocks for i in range(count)]
        address = self.add_object(index, size, places + [(STATICS_AT + i * oop,) * 2 for i in range(references)])
        self.put(address + SIZE_AT, size // 8, 4)
        self.put(address + STATIC_COUNT_AT, references, 4)
        return address

    def add_chunk(self, index: int, words: int, sp: int, bits: Optional[Iterable[int]] = None) -> int:
        """A StackChunk whose stack is in use from `sp` on; `bits`: the places of references that its bitmap names."""
        slots = 8 // self.case.oop_bytes
        address = self.add_object(index, CHUNK_BYTES + 8 * words + (words * slots + 63) // 64 * 8)
        for offset, value in zip(CHUNK[:2], (words, sp)):
            self.put(address + (offset or 0), value, 4)
        marked = sorted(bits) if bits is not None else range(sp * slots, words * slots)
        self.references[address] = [(CHUNK_BYTES + bit * self.case.oop_bytes,) * 2 for bit in marked if bit >= sp * slots]
        if bits is not None:
            self.put(address + (CHUNK[2]), BITMAP_FLAG, 1)
            for bit in marked:
                place = address + CHUNK_BYTES + 8 * words + bit // 8
                self.put(place, self.data[place - self.begin] | 1 << bit % 8, 1)
        return address

    def put(self, address: int, value: int, size: int) -> None:
        """Overwrite some bytes."""
        self.data[address - self.begin : address - self.begin + size] = value.to_bytes(size, "little")

    def refer(self, address: int, number: int, target: int) -> None:
        """Write an object's reference."""
        place, offset = self.references[address][number]
        value = target if self.case.oop_bytes == 8 or not target else target - self.shape.oop_base >> self.shape.oop_shift
        self.put(address + offset, value, self.case.oop_bytes)
        self.targets[address][place] = target

    def reached(self, roots: Iterable[int], skipped: Sequence[int] = ()) -> Set[int]:
        """What these objects lead to, by the truth."""
        waiting = [root for root in roots if root in self.objects]
        seen = set(waiting)
        while waiting:
            address = waiting.pop()
            is_skipped = self.classes[self.objects[address][0]].kind in skipped
            for target in self.targets[address].values():
                if target not in self.objects or target in seen or (is_skipped and self.classes[self.objects[target][0]].kind < SOFT):
                    continue
                seen.add(target)
                waiting.append(target)
        return seen


def make_random_objects(case: JavaCase, rng: random.Random, count: int) -> JavaObjects:
    """Objects of all kinds, with references at random, some of them to no object."""
    heap = JavaObjects(case)
    log2 = 2 if case.oop_bytes == 4 else 3
    plain = [heap.add_instance_class(rng.randrange(4), rng.randrange(4)) for _ in range(20)]
    references = [heap.add_instance_class(2, 1, kind) for kind in (SOFT, SOFT + 1, FINAL, PHANTOM)]
    arrays = [heap.add_array_class(size) for size in (0, 1, 2)] + [heap.add_array_class(3, element=11), heap.add_array_class(3, element=7)]
    objects = heap.add_array_class(log2, True)
    mirror = heap.add_class(CLASS_OBJECT_BYTES, MIRROR, [(24, 8 // case.oop_bytes)])
    chunk = heap.add_class(CHUNK_BYTES, STACK_CHUNK)
    for _ in range(count):
        chosen = rng.random()
        if chosen < 0.7:
            heap.add_instance(rng.choice(plain))
        elif chosen < 0.75:
            heap.add_instance(rng.choice(references))
        elif chosen < 0.85:
            heap.add_array(rng.choice(arrays), rng.choice((0, 1, 3, 7, 100)))
        elif chosen < 0.95:
            heap.add_array(objects, rng.choice((0, 1, 5, 40, 3000 if rng.random() < 0.1 else 2)))
        elif chosen < 0.98:
            heap.add_mirror(mirror, rng.randrange(5), rng.randrange(4))
        else:
            words = rng.randrange(1, 80)
            sp = rng.randrange(words)
            slots = words * 8 // case.oop_bytes
            heap.add_chunk(chunk, words, sp, None if rng.random() < 0.5 else rng.sample(range(slots), slots // 3))
    addresses = list(heap.objects)
    for address, places in heap.references.items():
        for number in range(len(places)):
            if rng.random() < 0.5:
                heap.refer(address, number, rng.choice(addresses) + (case.alignment_bytes if rng.random() < 0.05 else 0))
    return heap
