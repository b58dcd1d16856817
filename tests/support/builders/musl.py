"""A musl heap as bytes, for any word size and order: a context, areas of metas, and groups with blocks as mallocng makes them; with the truth."""

from array import array
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.allocators.musl.detect import find_offsets
from gdbheapx.addons.allocators.musl.records import AREA_BYTES, MUSL_CLASSES, OWN_CLASS, UNIT_BYTES, MuslLayout, count_slot_units
from gdbheapx.inferior.base import BytesSource, Module, Symbol
from gdbheapx.kernel.glibc.records import Geometry
from tests.support.builders.process import FakeTarget

SECRET = 0x1122334455667788
AREA = 0x7000_0000_0000
HEAP = 0x7100_0000_0000


class Request(NamedTuple):
    """One block in use."""

    slot: int
    bytes: int
    units: int = 0
    """So far behind the slot's begin it starts."""


class MuslHeap:
    """What a test builds group by group. `used` is every block in use with what was asked for, `free` every free slot."""

    def __init__(self, word: int = 8, little_endian: bool = True, page: int = 4096) -> None:
        self.word, self.order, self.page = word, "little" if little_endian else "big", page
        self.little_endian = little_endian
        self.pieces: Dict[int, bytearray] = {}
        self.areas: List[int] = []
        self.metas = 0
        self.next_group = HEAP if word == 8 else HEAP >> 16
        self.area_at = AREA if word == 8 else AREA >> 16
        self.used: Dict[int, int] = {}
        self.free: List[int] = []
        self.usage = [0] * 64
        """Slots by class, as the context counts them."""
        self.add_area()

    @property
    def first(self) -> int:
        """Of an area's metas."""
        return 8 + 2 * self.word

    @property
    def meta_bytes(self) -> int:
        return 4 * self.word + 8

    @property
    def metas_each(self) -> int:
        return (AREA_BYTES - self.first) // self.meta_bytes

    def put(self, address: int, value: int, size: int) -> None:
        """Overwrites some bytes."""
        start = next(start for start, data in self.pieces.items() if start <= address < start + len(data))
        at = address - start
        self.pieces[start][at : at + size] = (value % (1 << 8 * size)).to_bytes(size, self.order)  # type: ignore[arg-type]

    def add_area(self) -> int:
        """One more at the end of the list."""
        address = self.area_at + 2 * AREA_BYTES * len(self.areas)
        self.pieces[address] = bytearray(AREA_BYTES)
        self.put(address, SECRET, 8)
        self.put(address + 8 + self.word, self.metas_each, 4)
        if self.areas:
            self.put(self.areas[-1] + 8, address, self.word)
        self.areas.append(address)
        return address

    def meta(self) -> int:
        """The next one that is not in use."""
        if self.metas == self.metas_each * len(self.areas):
            self.add_area()
        place = self.metas % self.metas_each
        self.metas += 1
        return self.areas[-1] + self.first + place * self.meta_bytes

    def group(
        self,
        size_class: int,
        slots: int,
        requests: Sequence[Request] = (),
        freed: int = 0,
        pages: Optional[int] = None,
        at: Optional[int] = None,
        freeable: bool = True,
        in_use: int = 0,
    ) -> Tuple[int, int]:
        """Its address and its meta's. Slots without a request are free: those of the mask `freed` in freed_mask, the others in avail_mask;
        those of `in_use` hold groups. `at`: in memory that is there. `pages`: of its mapping; 0: none."""
        units = count_slot_units(size_class)
        if pages is None:
            pages = -(-(UNIT_BYTES + units * UNIT_BYTES * slots) // self.page) * self.page // AREA_BYTES
        stride = pages * AREA_BYTES - UNIT_BYTES if pages and slots == 1 else units * UNIT_BYTES
        address = at if at is not None else self.next_group
        if at is None:
            size = pages * AREA_BYTES if pages else UNIT_BYTES + stride * slots
            self.pieces[address] = bytearray(size)
            self.next_group += -(-size // self.page) * self.page + self.page
        meta = self.meta()
        self.usage[size_class] += slots if freeable else 0
        taken = in_use
        for request in requests:
            taken |= 1 << request.slot
        free = ~taken & (1 << slots) - 1
        for place, value in enumerate((0, 0, address)):
            self.put(meta + place * self.word, value, self.word)
        self.put(meta + 3 * self.word, free & ~freed, 4)
        self.put(meta + 3 * self.word + 4, free & freed, 4)
        self.put(meta + 3 * self.word + 8, slots - 1 | freeable << 5 | size_class << 6 | pages << 12, self.word)
        self.put(address, meta, self.word)
        first = address + UNIT_BYTES
        self.free += [first + slot * stride for slot in range(slots) if free >> slot & 1]
        for request in requests:
            self.block(address, first + request.slot * stride, stride, request)
        return address, meta

    def block(self, group: int, start: int, stride: int, request: Request, mark: Optional[int] = None) -> int:
        """As enframe() and set_size() write it; its address. `mark`: instead of what is left."""
        end, begin = start + stride - 4, start + UNIT_BYTES * request.units
        if request.units:
            self.put(start - 2, request.units & 0xFFFF, 2)
            self.put(start - 3, 7 << 5, 1)
        offset, left = (begin - group - UNIT_BYTES) // UNIT_BYTES, end - begin - request.bytes
        assert left >= 0
        self.put(begin - 4, int(offset > 0xFFFF), 1)
        self.put(begin - 2, offset if offset <= 0xFFFF else 0, 2)
        if offset > 0xFFFF:
            self.put(begin - 8, offset, 4)
        if left:
            self.put(end - left, 0, 1)
        if left >= 5:
            self.put(end - 4, left, 4)
            self.put(end - 5, 0, 1)
        self.put(begin - 3, request.slot | (min(left, 5) if mark is None else mark) << 5, 1)
        if mark is None:
            self.used[begin] = request.bytes
        return begin

    def own(self, request: int, units: int = 0) -> Tuple[int, int]:
        """A block with a mapping of its own."""
        size = request + 4 + UNIT_BYTES + UNIT_BYTES * units
        pages = -(-size // self.page) * self.page // AREA_BYTES
        return self.group(OWN_CLASS, 1, [Request(0, request, units)], pages=pages)

    def source(self) -> BytesSource:
        """Its memory."""
        return BytesSource(tuple((start, bytes(data)) for start, data in sorted(self.pieces.items())))

    def memory(self) -> "array[int]":
        """Begin and end of its ranges."""
        return array("Q", [end for start, data in sorted(self.pieces.items()) for end in (start, start + len(data))])

    def layout(self) -> MuslLayout:
        """As the kernel walks it."""
        return MuslLayout(self.word, self.little_endian, SECRET, self.areas[0], 1000, self.page)


CONTEXT = 0x5550_1000
PROGRAM = Module("/bin/made", 0x5550_0000, True, None, None)


class MuslTarget(FakeTarget):
    """A static program with this heap; its context lies in its data, which begins with other words."""

    def __init__(self, heap: MuslHeap, has_page_size: bool = False) -> None:
        super().__init__(Geometry(heap.word, 16, 32, 48, heap.page, heap.little_endian), "i386:x86-64")
        self.heap, self.where = heap, find_offsets(heap.word, has_page_size)
        heap.pieces[CONTEXT & -4096] = bytearray(b"\1\0\0\0" * 2048)
        self.pieces = heap.pieces
        heap.pieces[CONTEXT & -4096][:1024] = bytes(1024)
        heap.put(CONTEXT, SECRET, 8)
        heap.put(CONTEXT + self.where.init_done, 1, 4)
        heap.put(CONTEXT + self.where.first_area, heap.areas[0], heap.word)
        for size_class in range(MUSL_CLASSES):
            heap.put(CONTEXT + self.where.usage + size_class * heap.word, heap.usage[size_class], heap.word)

    def modules(self) -> Sequence[Module]:
        return [PROGRAM]

    def writable_segments(self, module: Module) -> Sequence[Tuple[int, int, int]]:
        start = CONTEXT & -4096
        return [(start, start + 4096, start + 8192)]

    def touched_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        return [(start, end)]

    def dynamic_symbol(self, name: str) -> Optional[Symbol]:
        return None

    def knows_objects(self) -> bool:
        return True

    def find_static(self, name: str) -> Sequence[Symbol]:
        return []
