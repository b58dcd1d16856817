"""A process with tcmalloc as bytes: page map, spans, central lists, transfer and thread caches, as gperftools 2.15 lays them out; with the truth."""

import struct
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.allocators.tcmalloc.records import SPAN_BYTES
from gdbheapx.inferior.base import Module, Symbol, Thread
from gdbheapx.kernel.glibc.records import Geometry
from tests.support.builders.process import FakeTarget

DATA = 0x5550_0000
ROOT = DATA + 0x1000
STATS = ROOT + 8 * (1 << 17) + 8 + 96 + 96 * 128
SIZES_AT = STATS + 0x1000
CENTRAL = SIZES_AT + 0x2000
STRIDE = 1216
HEADS = CENTRAL + STRIDE * 128
DATA_END = HEADS + 0x1000
LEAF, STRUCTS, CACHES, HEAP = 0x7000_0000_0000, 0x7000_0040_0000, 0x7000_0050_0000, 0x7000_1000_0000
PAGE = 8192
HEAP_BYTES = 200 * PAGE
PROGRAM = Module("/lib/libtcmalloc_minimal.so.4", 0x5500_0000, False, None, None)
CLASS_BYTES = (0, 8, 16, 32, 48, 64, 80, 96, 112, 128, *(128 + 128 * step for step in range(1, 20)), *(4096 * step for step in range(1, 17)))
BATCH = 4


class Span(NamedTuple):
    """One that was built."""

    struct: int
    start: int
    size_class: int
    objects: List[int]


class TcTarget(FakeTarget):
    """What a test builds span by span. `used` is every block in use with its usable size."""

    def __init__(self, thread_caches: int = 2, has_tid: bool = True) -> None:
        super().__init__(Geometry(8, 16, 32, 48, 4096, True), "i386:x86-64")
        for start, size in ((DATA, DATA_END - DATA), (LEAF, 8 << 18), (STRUCTS, 0x10000), (CACHES, 0x20000), (HEAP, HEAP_BYTES)):
            self.pieces[start] = bytearray(size)
        self.next_page, self.next_struct = HEAP // PAGE, STRUCTS
        self.used: Dict[int, int] = {}
        self.free: List[Tuple[int, str]] = []
        self.totals = [0, 0, 0]
        self.has_tid = has_tid
        self.put_word(ROOT + 8 * (HEAP // PAGE >> 18), LEAF)
        count = len(CLASS_BYTES)
        self.put(SIZES_AT - 512, struct.pack("<%di" % count, 0, *([BATCH] * (count - 1))))
        self.put(SIZES_AT, struct.pack("<%di" % count, *CLASS_BYTES))
        self.put(SIZES_AT + 512, struct.pack("<%dQ" % count, *(-(-size // PAGE) for size in CLASS_BYTES)))
        for number in range(128):
            base = CENTRAL + STRIDE * number
            self.put_word(base + 8, number if number < count else 0)
            for head in (base + 16, base + 64):
                self.put(head + 16, struct.pack("<QQ", head, head))
        self.caches = [CACHES + 4160 * number for number in range(thread_caches)]
        for place, cache in enumerate(self.caches):
            for number, size in enumerate(CLASS_BYTES):
                self.put(cache + 32 * number + 24, struct.pack("<i", size))
            link = 4144 if has_tid else 4128
            before, behind = self.caches[place - 1 : place] or [0], self.caches[place + 1 : place + 2] or [0]
            if has_tid:
                self.put_word(cache + 4128, 0x1000 + place)
            self.put(cache + link, struct.pack("<QQ", behind[0], before[0]))
        self.put_word(HEADS, self.caches[0] if self.caches else 0)

    def put(self, address: int, data: bytes) -> None:
        """Overwrites some bytes."""
        start, piece = self._piece(address)
        piece[address - start : address - start + len(data)] = data

    def word(self, address: int) -> int:
        """As it is now."""
        return int.from_bytes(self.read_prefix(address, 8), "little")

    def span(self, pages: int, size_class: int = 0, location: int = 0) -> Span:
        """The next pages; all objects in use. Those without a class are one block, or free."""
        page, made = self.next_page, self.next_struct
        self.next_page, self.next_struct = page + pages, made + SPAN_BYTES
        size = CLASS_BYTES[size_class]
        objects = [page * PAGE + size * place for place in range(pages * PAGE // size)] if size_class else [page * PAGE]
        self.put(made, struct.pack("<QQQQQHBB", page, pages, 0, 0, 0, len(objects) if size_class else 0, size_class, location))
        for at in range(page, page + pages) if size_class else (page, page + pages - 1):
            self.put_word(LEAF + 8 * (at & (1 << 18) - 1), made)
        self.totals[0] += pages * PAGE
        if location:
            self.totals[location] += pages * PAGE
        self.put(STATS, struct.pack("<3Q", *self.totals))
        if size_class:
            base = CENTRAL + STRIDE * size_class
            first = self.word(base + 16 + 16)
            self.put(made + 16, struct.pack("<QQ", first, base + 16))
            self.put_word(base + 16 + 16, made)
            self.put_word(base + 112, self.word(base + 112) + 1)
        if not location:
            self.used.update((at, size or pages * PAGE) for at in objects)
        return Span(made, page * PAGE, size_class, objects)

    def chain(self, objects: Sequence[int], status: str) -> int:
        """Links free objects; the first."""
        for at, following in zip(objects, [*objects[1:], 0]):
            self.put_word(at, following)
            self.free.append((at, status))
            del self.used[at]
        return objects[0] if objects else 0

    def to_central(self, span: Span, objects: Sequence[int]) -> None:
        """Frees them into their span."""
        self.put_word(span.struct + 32, self.chain(objects, "free"))
        self.put(span.struct + 40, struct.pack("<H", len(span.objects) - len(objects)))
        counter = CENTRAL + STRIDE * span.size_class + 120
        self.put_word(counter, self.word(counter) + len(objects))

    def to_transfer(self, size_class: int, objects: Sequence[int]) -> None:
        """One batch."""
        base = CENTRAL + STRIDE * size_class
        used = self.word(base + 1152) & 0xFFFFFFFF
        self.put(base + 128 + 16 * used, struct.pack("<QQ", self.chain(objects, "transfer"), objects[-1]))
        self.put(base + 1152, struct.pack("<i", used + 1))

    def to_cache(self, cache: int, size_class: int, objects: Sequence[int]) -> None:
        """Into a thread's list."""
        self.put(cache + 32 * size_class, struct.pack("<QI", self.chain(objects, "tcache"), len(objects)))
        size = int.from_bytes(self.read_prefix(cache + 4096, 4), "little") + len(objects) * CLASS_BYTES[size_class]
        self.put(cache + 4096, struct.pack("<i", size))

    def modules(self) -> Sequence[Module]:
        return [PROGRAM]

    def writable_segments(self, module: Module) -> Sequence[Tuple[int, int, int]]:
        return [(DATA, DATA + 4096, DATA_END)]

    def touched_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        return [(start, end)]

    def dynamic_symbol(self, name: str) -> Optional[Symbol]:
        return Symbol(name, PROGRAM.base + 64, PROGRAM, "symbol") if name in ("malloc", "tc_malloc") else None

    def find_static(self, name: str) -> Sequence[Symbol]:
        return []

    def threads(self) -> Sequence[Thread]:
        return [Thread(100 + place, "worker", 0x1000 + place, None, None) for place in range(len(self.caches))]
