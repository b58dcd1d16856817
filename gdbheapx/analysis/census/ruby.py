"""Ruby's object heap: pages of slots that it takes from the kernel itself (gc.c of 3.1: heap_page_header, heap_page)."""

from array import array
from itertools import compress
from typing import Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census.world import SHAPE, Ask, Inner, Recogniser, Signature, World, used_blocks
from gdbheapx.kernel.blocks.records import Blocks
from gdbheapx.kernel.blocks.signatures import IN_RANGES, NOT_EQUAL, Condition, NumberSet, SignatureRow
from gdbheapx.ranges import union

PAGE_BYTES = 16 << 10
START_WORD = 4
"""Of struct heap_page: where its slots begin."""
TYPE_MASK = 0x1F
"""Of a slot's flags: RUBY_T_MASK; 0: it is free (RUBY_T_NONE)."""
TYPES = dict(enumerate(("Object", "Class", "Module", "Float", "String", "Regexp", "Array", "Hash", "Struct", "Integer (large)"), 1))
TYPES.update(enumerate(("File", "Data", "MatchData", "Complex", "Rational"), 11))
TYPES.update({0x14: "Symbol", 0x1A: "internal (imemo)", 0x1B: "node of syntax", 0x1C: "internal class"})
"""By ruby_value_type (include/ruby/internal/value_type.h)."""
SLOT_BYTES = (40, 80, 160, 320, 640)
UNIT_BYTES = 8
MOST_PAGES = 1 << 20
AT_ONCE = 256
"""Pages whose slots are looked at together."""


class Page(NamedTuple):
    """One page."""

    address: int
    first_slot: int
    slot_bytes: int
    slots: int


class Ruby(Recogniser):
    """A page begins with a pointer to its description, a block that says where in that page the slots begin, how large and how many they
    are."""

    module, objects = "ruby", ("ruby", "libruby")

    def asks(self, world: World) -> Iterable[Ask]:
        """A slot in use has a type, and its class is a slot, too."""
        heap_pages = world.once(pages)
        if not heap_pages:
            return
        ranges = union((page.address, page.address + PAGE_BYTES) for page in heap_pages)
        conditions = [Condition(0, 8, NOT_EQUAL, 0, mask=TYPE_MASK), Condition(8, 8, IN_RANGES, 0)]
        for size in sorted({page.slot_bytes for page in heap_pages}):
            row = SignatureRow(conditions, size, size, key=(0, 8, TYPE_MASK))
            yield Ask(row, self._name, [NumberSet(ranges=ranges)], order=30)

    def _name(self, key: int) -> Optional[Signature]:
        return Signature(TYPES[key], self.module, SHAPE) if key in TYPES else None

    def fields(self, world: World) -> Mapping[Tuple[str, int], str]:
        """What objects keep outside of their slots (struct RString, RArray, RHash, RObject)."""
        return {("String", 24): "characters", ("Array", 32): "elements", ("Hash", 16): "table of a Hash", ("Object", 24): "variables"}

    def inner(self, world: World) -> Sequence[Inner]:
        """The slots in use, by their flags."""
        heap_pages = world.once(pages)
        if not heap_pages:
            return ()
        slots = sum(page.slots * page.slot_bytes for page in heap_pages)
        used = [part for some in batches(heap_pages) for part in in_use(world, some)]
        free = slots - sum(sum(part.usable_bytes) for part in used)
        taken = [(page.address, page.address + PAGE_BYTES) for page in heap_pages]
        return [Inner(iter(used), self.module, "object in a slot", taken, free, len(heap_pages) * PAGE_BYTES - slots, UNIT_BYTES)]


def pages(world: World) -> List[Page]:
    """All pages, by address."""
    heap_pages: List[Page] = []
    for mapping in world.target.mappings():
        if mapping.name or not mapping.writable:
            continue
        for address in range(-(-mapping.start // PAGE_BYTES) * PAGE_BYTES, mapping.end - PAGE_BYTES + 1, PAGE_BYTES):
            head = world.words(address, 1)
            if head is None or not head[0] or head[0] % 8 or len(heap_pages) == MOST_PAGES:
                continue
            page = world.words(head[0], START_WORD + 1)
            if page is None or not address < page[START_WORD] < address + PAGE_BYTES:
                continue
            size, count = page[0] & 0xFFFF, page[0] >> 16 & 0xFFFF
            if size in SLOT_BYTES and count and page[START_WORD] + size * count <= address + PAGE_BYTES:
                heap_pages.append(Page(address, page[START_WORD], size, count))
    return heap_pages


def batches(heap_pages: Sequence[Page]) -> Iterator[Sequence[Page]]:
    """Some pages at a time."""
    for place in range(0, len(heap_pages), AT_ONCE):
        yield heap_pages[place : place + AT_ONCE]


def slots_of(some: Sequence[Page]) -> Blocks:
    """All slots."""
    addresses, sizes = array("Q"), array("Q")
    for page in some:
        addresses.extend(range(page.first_slot, page.first_slot + page.slots * page.slot_bytes, page.slot_bytes))
        sizes.extend([page.slot_bytes] * page.slots)
    return used_blocks(addresses, sizes)


def in_use(world: World, some: Sequence[Page]) -> Sequence[Blocks]:
    """The slots that hold an object."""
    blocks = slots_of(some)
    signer = world.signer([SignatureRow([Condition(0, 8, NOT_EQUAL, 0, mask=TYPE_MASK)], least_usable=SLOT_BYTES[0])])
    signer.stream(iter([blocks]))
    labels = signer.labels()
    columns: Tuple[array[int], ...] = tuple(array(column.typecode, compress(column, labels)) for column in blocks)
    return [Blocks(*columns)]


RECOGNISERS: List[Recogniser] = [Ruby()]
