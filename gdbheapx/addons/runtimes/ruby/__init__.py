"""Ruby's object heap: pages of slots that it takes from the kernel itself (gc.c: heap_page_header, heap_page)."""

from array import array
from functools import partial
from itertools import compress
from typing import Iterable, List, Mapping, Optional, Sequence, Tuple

from gdbheapx import problems
from gdbheapx.addons.runtimes.ruby.objects import (
    BLOCK_BYTES,
    CLASS,
    DATA,
    IMEMO,
    IMEMO_KINDS,
    OBJECT,
    RELEASES,
    SEQUENCE,
    STRUCT,
    TYPE_MASK,
    USER,
    RubyHeapPage,
    RubyObjects,
    TransientHeap,
    by_flags,
    find_ruby_layout,
    find_transient_heap,
    mask_ruby_class,
    mask_ruby_flags,
    object_class,
    read_ruby_release,
)
from gdbheapx.addons.runtimes.ruby.paths import TEXT, TYPES, RubyNamer
from gdbheapx.analysis.census.world import (
    ALL,
    CONTENT,
    EXACT,
    SHAPE,
    WEAK_ORDER,
    Ask,
    Inner,
    Length,
    Recogniser,
    RuntimeLabels,
    Signature,
    World,
    used_blocks,
)
from gdbheapx.analysis.reachability.paths import Namer
from gdbheapx.hints import hint_command
from gdbheapx.kernel.blocks.signatures import AT_LEAST, AT_MOST, EQUAL, IN_RANGES, IN_SET, NOT_EQUAL, Condition, NumberSet, SignatureRow
from gdbheapx.kernel.blocks.stream import NativeBlocks
from gdbheapx.ranges import unite_ranges

SLOT_BYTES = (40, 80, 160, 320, 640)
UNIT_BYTES = 8
ANONYMOUS = "[anon:"
"""Memory without a file that has a name: 3.4 names its pages."""
MOST_PAGES = 1 << 20
AT_ONCE = 256
"""Pages whose slots are looked at together."""


BY_CLASS = (OBJECT, STRUCT, DATA)
"""Types whose objects are named by their class."""
TEXT_ROW = SignatureRow(
    [Condition(0, 8, EQUAL, 0, mask=0x8080808080808080), *(Condition(at, 1, NOT_EQUAL, 0, mask=0x60) for at in range(8))],
    least_usable=8,
    weak=True,
)
"""Eight characters: most likely those of a String, from which no path leads on."""


class Ruby(Recogniser):
    """A page begins with a pointer to its description, a block that says where in that page the slots begin, how large and how many they
    are."""

    module, objects = "ruby", ("ruby", "libruby")
    table = RuntimeLabels(
        "Ruby",
        "object heap",
        "malloc: what objects alone point to",
        "malloc: other blocks in use (the interpreter, extensions)",
        "malloc: blocks in use",
    )

    def asks(self, world: World) -> Iterable[Ask]:
        """Return the rows of slots: a slot in use has a type, and its class is a slot, too; a block of malloc's with five numbers and
        pointers to objects is no slot.
        """
        heap_pages, known = world.once(find_ruby_pages), world.once(make_ruby_reader)
        release = read_ruby_release(world) if known is None else None
        if release is not None:
            what = "Ruby %d.%d: its objects have no types here; gdbheapx knows those of Ruby %s" % (*release, RELEASES)
            hint = "all of Ruby's memory as one: %s" % hint_command("report")
            world.session.problem(problems.RUNTIME_UNREAD, None, what, hint, partial=False)
        if not heap_pages or known is None:
            return
        ranges = NumberSet(ranges=unite_ranges((page.address, page.address + ruby_page_bytes(world)) for page in heap_pages))
        classes = NumberSet(world.once(read_ruby_slots)[1])
        # a block with two pointers to classes begins like a slot, but for the number of a shape
        is_flags = Condition(0, 8, AT_MOST, known.most_flags())
        # from IMEMO on the second word need not be a class
        is_object = [is_flags, Condition(0, 8, NOT_EQUAL, 0, mask=TYPE_MASK), Condition(0, 8, AT_MOST, IMEMO - 1, mask=TYPE_MASK)]
        others = [is_flags, Condition(0, 8, AT_LEAST, IMEMO, mask=TYPE_MASK), Condition(8, 8, IN_RANGES, 0)]
        for size in sorted({page.slot_bytes for page in heap_pages}):
            key = (0, 8, TYPE_MASK)
            for kind in BY_CLASS:
                row = SignatureRow(
                    [is_flags, Condition(0, 8, EQUAL, kind, mask=TYPE_MASK), Condition(8, 8, IN_SET, 0)], size, size, key=(8, 8, ALL)
                )
                yield Ask(row, partial(self._of_class, known, kind), [classes], order=29, owning=partial(mask_ruby_class, known, kind))
            for kind, mask, number in by_flags(known.layout):
                flags = [is_flags, Condition(0, 8, EQUAL, kind, mask=mask), Condition(8, 8, IN_SET, 0)]
                row = SignatureRow(flags, size, size, key=(0, 8, TYPE_MASK | number))
                yield Ask(row, self._name_object, [classes], order=29, owning=partial(mask_ruby_flags, known.layout))
            row = SignatureRow([*is_object, Condition(8, 8, IN_SET, 0)], size, size, key=key)
            yield Ask(row, self._name_object, [classes], order=30)
            row = SignatureRow(others, size, size, key=(0, 8, TYPE_MASK | IMEMO_KINDS))
            yield Ask(row, self._name_object, [ranges], order=30, owning=partial(mask_ruby_flags, known.layout))
            code = Condition(0, 8, EQUAL, IMEMO | SEQUENCE << 12, mask=TYPE_MASK | IMEMO_KINDS)
            row = SignatureRow([is_flags, code, Condition(8, 8, EQUAL, 0)], size, size, key=(0, 8, TYPE_MASK | IMEMO_KINDS))
            yield Ask(row, self._name_object, order=30, owning=partial(mask_ruby_flags, known.layout))
        yield Ask(TEXT_ROW, lambda key: Signature(TEXT, self.module, CONTENT), order=WEAK_ORDER)

    def _of_class(self, found: RubyObjects, kind: int, class_: int) -> Signature:
        return Signature(found.class_path(found.real_class((0, class_))) or TYPES[kind], self.module, EXACT)

    def _name_object(self, key: int) -> Optional[Signature]:
        key &= TYPE_MASK
        return Signature(TYPES[key], self.module, SHAPE) if key in TYPES else None

    def fields(self, world: World) -> Mapping[Tuple[str, int], str]:
        # memory outside of slots: (struct RString, RArray, RHash, RObject)
        known = find_ruby_layout(world)
        if known is None:
            return {}
        tables = (16,) if known.table is None else (8 * (known.table + 3), 8 * (known.table + 6))
        own = {("String", 24): "characters", ("Array", 32): "elements", ("Object", 8 * known.variables): "variables"}
        return {**own, **{("Hash", offset): "table of a Hash" for offset in tables}}

    def lengths(self, world: World) -> Iterable[Length]:
        own = (0, USER[2], 0)
        return (Length("String", 16, 1, 1, 24, test=own), Length("Array", 16, 0, 8, 32, test=own))

    def inner(self, world: World) -> Sequence[Inner]:
        """Return the slots in use, by their flags, and the transient memory of young objects."""
        heap_pages = world.once(find_ruby_pages)
        if not heap_pages:
            return ()
        total = sum(page.slots * page.slot_bytes for page in heap_pages)
        used, _ = world.once(read_ruby_slots)
        free = total - sum(sum(part.usable_bytes) for part in used)
        taken = [(page.address, page.address + ruby_page_bytes(world)) for page in heap_pages]
        overhead = len(heap_pages) * ruby_page_bytes(world) - total
        memory = [Inner(iter(used), self.module, "object in a slot", taken, free, overhead, UNIT_BYTES, is_collected=True)]
        young = world.once(read_transient_heap)
        if young is not None:
            addresses, sizes = (array("Q", (piece[column] for piece in young.pieces)) for column in (0, 1))
            taken = [(block, block + BLOCK_BYTES) for block in young.blocks]
            free, overhead = young.free_bytes, len(taken) * BLOCK_BYTES - sum(sizes) - young.free_bytes
            blocks, name = iter([used_blocks(addresses, sizes)]), "transient memory of objects"
            memory.append(Inner(blocks, self.module, name, taken, free, overhead, UNIT_BYTES, is_collected=True))
        return memory

    def namer(self, world: World) -> Optional[Namer]:
        found, young = world.once(make_ruby_reader), world.once(read_transient_heap)
        top = object_class(found) if found is not None and found.symbols else None
        if found is None or top is None:
            return None
        return RubyNamer(found, top, partial(find_instances, world), [young.promoted] if young is not None else [])


def make_ruby_reader(world: World) -> Optional[RubyObjects]:
    """Return the reader of objects; None for a layout that is not known."""
    known = find_ruby_layout(world)
    return RubyObjects(world, known, world.once(find_ruby_pages)) if known is not None else None


def read_transient_heap(world: World) -> Optional[TransientHeap]:
    """Return the transient memory of young objects, or None."""
    found = world.once(make_ruby_reader)
    return find_transient_heap(found) if found is not None and found.layout.has_transient_heap else None


def ruby_page_bytes(world: World) -> int:
    """Return the bytes of a heap page that was found."""
    known = world.once(find_ruby_layout)
    return known.page_bytes if known is not None else 0


def find_ruby_pages(world: World) -> List[RubyHeapPage]:
    """Return all heap pages by address; none if their layout is not known."""
    heap_pages: List[RubyHeapPage] = []
    known = find_ruby_layout(world)
    page_size, start_word = (known.page_bytes, known.start_word) if known is not None else (0, 0)
    for mapping in world.target.mappings() if page_size else ():
        if not mapping.writable or (mapping.name and not mapping.name.startswith(ANONYMOUS)):
            continue
        for address in range(-(-mapping.start // page_size) * page_size, mapping.end - page_size + 1, page_size):
            head = world.words(address, 1)
            if head is None or not head[0] or head[0] % 8 or len(heap_pages) == MOST_PAGES:
                continue
            page = world.words(head[0], start_word + 1)
            if page is None or not address < page[start_word] < address + page_size:
                continue
            size, count = page[0] & 0xFFFF, page[0] >> 16 & 0xFFFF
            if size in SLOT_BYTES and count and page[start_word] + size * count <= address + page_size:
                heap_pages.append(RubyHeapPage(address, page[start_word], size, count))
    return heap_pages


def find_instances(world: World, classes: Sequence[int]) -> List[int]:
    """Find objects of these classes in one pass over all slots in use."""
    found: List[int] = []
    for blocks in world.once(read_ruby_slots)[0]:
        signer = world.signer([SignatureRow([Condition(8, 8, IN_SET, 0)])], [NumberSet(classes)])
        signer.stream(iter([blocks]))
        known = [False, *(match.row == 0 for match in signer.found())]
        found.extend(compress(blocks.addresses, map(known.__getitem__, signer.labels())))
    return found


def read_ruby_slots(world: World) -> Tuple[Sequence[NativeBlocks], Sequence[int]]:
    """Read all slots in one pass; return those that hold an object, and classes among them."""
    used: List[NativeBlocks] = []
    classes: List[int] = []
    heap_pages = world.once(find_ruby_pages)
    for place in range(0, len(heap_pages), AT_ONCE):
        runs = [(page.first_slot, page.slot_bytes, page.slots) for page in heap_pages[place : place + AT_ONCE]]
        blocks = world.cells(runs)
        is_used = Condition(0, 8, NOT_EQUAL, 0, mask=TYPE_MASK)
        signer = world.signer([SignatureRow([is_used], least_usable=SLOT_BYTES[0], key=(0, 8, TYPE_MASK))])
        signer.stream(iter([blocks]))
        labels = signer.labels()
        class_label = next((number for number, found in enumerate(signer.found(), 1) if found.row == 0 and found.key == CLASS), 0)
        if class_label:
            classes.extend(address for address, label in zip(blocks.addresses, labels) if label == class_label)
        used.append(world.cells(runs, labels))
    return used, classes


RECOGNISERS: List[Recogniser] = [Ruby()]
