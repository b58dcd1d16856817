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
        found = world.once(pages)
        if not found:
            return
        ranges = union((one.address, one.address + PAGE_BYTES) for one in found)
        conditions = [Condition(0, 8, NOT_EQUAL, 0, mask=TYPE_MASK), Condition(8, 8, IN_RANGES, 0)]
        for size in sorted({one.slot_bytes for one in found}):
            row = SignatureRow(conditions, size, size, key=(0, 8, TYPE_MASK))
            yield Ask(row, self._name, [NumberSet(ranges=ranges)], order=30)

    def _name(self, key: int) -> Optional[Signature]:
        return Signature(TYPES[key], self.module, SHAPE) if key in TYPES else None

    def fields(self, world: World) -> Mapping[Tuple[str, int], str]:
        """What objects keep outside of their slots (struct RString, RArray, RHash, RObject)."""
        return {("String", 24): "characters", ("Array", 32): "elements", ("Hash", 16): "table of a Hash", ("Object", 24): "variables"}

    def inner(self, world: World) -> Sequence[Inner]:
        """The slots in use, by their flags."""
        found = world.once(pages)
        if not found:
            return ()
        slots = sum(one.slots * one.slot_bytes for one in found)
        used = [part for some in batches(found) for part in in_use(world, some)]
        free = slots - sum(sum(part.usable_bytes) for part in used)
        taken = [(one.address, one.address + PAGE_BYTES) for one in found]
        return [Inner(iter(used), self.module, "object in a slot", taken, free, len(found) * PAGE_BYTES - slots, UNIT_BYTES)]


def pages(world: World) -> List[Page]:
    """All pages, by address."""
    found: List[Page] = []
    for mapping in world.target.mappings():
        if mapping.name or not mapping.writable:
            continue
        for address in range(-(-mapping.start // PAGE_BYTES) * PAGE_BYTES, mapping.end - PAGE_BYTES + 1, PAGE_BYTES):
            head = world.words(address, 1)
            if head is None or not head[0] or head[0] % 8 or len(found) == MOST_PAGES:
                continue
            page = world.words(head[0], START_WORD + 1)
            if page is None or not address < page[START_WORD] < address + PAGE_BYTES:
                continue
            size, count = page[0] & 0xFFFF, page[0] >> 16 & 0xFFFF
            if size in SLOT_BYTES and count and page[START_WORD] + size * count <= address + PAGE_BYTES:
                found.append(Page(address, page[START_WORD], size, count))
    return found


def batches(found: Sequence[Page]) -> Iterator[Sequence[Page]]:
    """Some pages at a time."""
    for place in range(0, len(found), AT_ONCE):
        yield found[place : place + AT_ONCE]


def slots_of(some: Sequence[Page]) -> Blocks:
    """All slots."""
    addresses, sizes = array("Q"), array("Q")
    for one in some:
        addresses.extend(range(one.first_slot, one.first_slot + one.slots * one.slot_bytes, one.slot_bytes))
        sizes.extend([one.slot_bytes] * one.slots)
    return used_blocks(addresses, sizes)


def in_use(world: World, some: Sequence[Page]) -> Sequence[Blocks]:
    """The slots that hold an object."""
    every = slots_of(some)
    signer = world.signer([SignatureRow([Condition(0, 8, NOT_EQUAL, 0, mask=TYPE_MASK)], least_usable=SLOT_BYTES[0])])
    signer.stream(iter([every]))
    labels = signer.labels()
    columns: Tuple[array[int], ...] = tuple(array(column.typecode, compress(column, labels)) for column in every)
    return [Blocks(*columns)]


RECOGNISERS: List[Recogniser] = [Ruby()]
