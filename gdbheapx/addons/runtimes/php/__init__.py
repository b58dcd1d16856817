"""PHP's memory manager: chunks of 2 MiB and huge blocks that it takes from the kernel itself (Zend/zend_alloc.c)."""

from bisect import bisect_right
from functools import partial
from itertools import accumulate
from struct import unpack
from typing import Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx import problems
from gdbheapx.addons.runtimes.php.paths import ARRAY_NAME, REFERENCE_NAME, STRING_NAME, PhpNamer, mask_php_class
from gdbheapx.addons.runtimes.php.values import (
    ARRAY,
    OBJECT,
    POINTER,
    REFERENCE,
    RELEASES,
    STRING,
    TEXT,
    TYPE_AND_MARKS,
    PhpGlobals,
    PhpValues,
    find_php_layout,
    read_php_release,
)
from gdbheapx.analysis.census.world import SHAPE, Ask, Inner, Length, Recogniser, RuntimeLabels, Signature, World
from gdbheapx.analysis.reachability.paths import Namer
from gdbheapx.hints import hint_command
from gdbheapx.kernel.blocks.signatures import AT_MOST, EQUAL, FIELD, IN_SET, NOT_EQUAL, USABLE, Condition, NumberSet, SignatureRow
from gdbheapx.kernel.blocks.stream import NativeBlocks

CHUNK_BYTES = 2 << 20
HEAP_OFFSET = 64
"""Of zend_mm_heap in the main chunk; a chunk begins with {heap, next, prev}."""
SIZE, FREE_SLOTS, BINS, HEAP_WORDS = 2, (4, 5), 30, 48
"""Of zend_mm_heap, in words: size, peak, from 8.4 on shadow_key, free_slot[30], real_size, ..., huge_list, main_chunk, cached_chunks."""
MOST_MEMBERS = 1 << 16
NAME = "Zend memory manager"
MOST_HEAPS = 8
"""Each of which did not prove itself."""


PAGE_BYTES, PAGES = 4096, 512
HEAD_BYTES = 4096
FIRST = 0x40000001
"""Of map[0], in each chunk: the head is one large page."""
SMALL, LARGE = 1 << 31, 1 << 30
"""ZEND_MM_IS_SRUN, ZEND_MM_IS_LRUN; both: a further page of a small run (ZEND_MM_IS_NRUN)."""
SIZE_CLASSES = (
    *((8, 512, 1), (16, 256, 1), (24, 170, 1), (32, 128, 1), (40, 102, 1), (48, 85, 1), (56, 73, 1), (64, 64, 1), (80, 51, 1), (96, 42, 1)),
    *((112, 36, 1), (128, 32, 1), (160, 25, 1), (192, 21, 1), (224, 18, 1), (256, 16, 1), (320, 64, 5), (384, 32, 3), (448, 9, 1)),
    *((512, 8, 1), (640, 32, 5), (768, 16, 3), (896, 9, 2), (1024, 8, 2), (1280, 16, 5), (1536, 8, 3), (1792, 16, 7), (2048, 8, 4)),
    *((2560, 8, 5), (3072, 4, 3)),
)
"""(bytes of an element, elements, pages) by number (zend_alloc_sizes.h)."""
MOST_FREE = 1 << 20
UNIT_BYTES = 8
TYPE_IN_COUNTS = 0xF
"""Of the second half of a zend_refcounted_h: the type of what is counted."""
COUNTED = Condition(0, 4, NOT_EQUAL, 0)
STRING_ROW = SignatureRow(
    [COUNTED, Condition(4, 4, EQUAL, STRING, mask=TYPE_AND_MARKS), Condition(16, 8, AT_MOST, -TEXT - 1, base=USABLE)], least_usable=32
)
"""Its flags, and no mark of the collector; its length fits the block."""
ARRAY_ROW = SignatureRow(
    [
        *(COUNTED, Condition(4, 4, EQUAL, ARRAY, mask=TYPE_IN_COUNTS), Condition(12, 4, NOT_EQUAL, 0, mask=1 << 31)),
        *(Condition(24, 4, AT_MOST, 0, base=FIELD, other=32), Condition(28, 4, AT_MOST, 0, base=FIELD, other=24)),
    ],
    *(56, 56),
)
"""A mask below 0; no more values than used places, and no more of these than there are."""
REFERENCE_ROW = SignatureRow([COUNTED, Condition(4, 4, EQUAL, REFERENCE, mask=TYPE_IN_COUNTS), Condition(24, 8, EQUAL, 0)], 32, 32)
"""No typed property refers to it."""


class ZendManager(NamedTuple):
    """Zend memory manager: its chunks and huge blocks."""

    taken: Sequence[Tuple[int, int]]
    """Chunks and huge blocks."""
    size_bytes: int
    """In use, as memory_get_usage() says."""
    chunks: Sequence[int]
    huge: Sequence[Tuple[int, int]]
    notes: Sequence[int]
    """Blocks of its own: the list of huge ones."""
    free_slots: Sequence[int]


class Php(Recogniser):
    """The main chunk holds the heap's own account; with the huge blocks the ring of chunks must add up to what it says was taken."""

    module, objects = "php", ("php", "libphp")
    table = RuntimeLabels(
        "PHP",
        "Zend memory manager",
        "",
        "malloc: blocks in use (the interpreter, classes and functions, extensions)",
        "malloc: blocks in use (the interpreter, classes and functions, extensions)",
    )

    def asks(self, world: World) -> Iterable[Ask]:
        release = world.once(read_php_release) if find_php_layout(world) is None else None
        if release is not None:
            which = release[1] or "with interface %d" % release[0]
            what = "PHP %s: its values have no types here; gdbheapx knows those of PHP %s" % (which, RELEASES)
            hint = "all of PHP's memory as one: %s" % hint_command("report")
            world.session.problem(problems.RUNTIME_UNREAD, None, what, hint, partial=False)
        found, values = world.once(find_php_tables), world.once(make_php_reader)
        if found is None or values is None or world.once(find_zend_manager) is None:
            return
        for row, name in ((STRING_ROW, STRING_NAME), (ARRAY_ROW, ARRAY_NAME), (REFERENCE_ROW, REFERENCE_NAME)):
            yield Ask(row, lambda key, name=name: Signature(name, self.module, SHAPE), order=40)  # type: ignore[misc]
        classes = {value.data: values.class_name(value.data) for _, value in values.named(found.classes) if value.type == POINTER}
        is_object = [COUNTED, Condition(4, 4, EQUAL, OBJECT, mask=TYPE_IN_COUNTS), Condition(16, 8, IN_SET, 0)]
        row = SignatureRow(is_object, least_usable=40, key=(16, 8, (1 << 64) - 1))
        numbers, owning = [NumberSet(sorted(classes))], partial(mask_php_class, values)

        def name_object(key: int) -> Optional[Signature]:
            name = classes.get(key)
            return Signature(name, self.module) if name is not None else None

        yield Ask(row, name_object, numbers, order=40, owning=owning)

    def lengths(self, world: World) -> Iterable[Length]:
        return (Length(STRING_NAME, 16, TEXT + 1),)

    def inner(self, world: World) -> Sequence[Inner]:
        """Return the manager's blocks if they add up to its own count of bytes in use, else its chunks, as memory that is not divided
        further.
        """
        memory = world.once(find_zend_manager)
        if memory is None:
            return ()
        taken = sum(end - start for start, end in memory.taken)
        pieces = find_zend_pieces(world, memory.chunks, memory.huge, memory.free_slots, memory.notes)
        if pieces is None or sum(pieces[0].usable_bytes) + pieces[1] != memory.size_bytes:
            return [Inner(iter(()), self.module, NAME, memory.taken, taken - memory.size_bytes, 0, is_told_apart=False)]
        return [Inner(iter(pieces[:1]), self.module, NAME, memory.taken, taken - memory.size_bytes, pieces[1], UNIT_BYTES)]

    def fields(self, world: World) -> Mapping[Tuple[str, int], str]:
        return {(ARRAY_NAME, 16): "elements of an array"}

    def namer(self, world: World) -> Optional[Namer]:
        found, values = world.once(find_php_tables), world.once(make_php_reader)
        return PhpNamer(values, found) if found is not None and values is not None and world.once(find_zend_manager) is not None else None


def make_php_reader(world: World) -> Optional[PhpValues]:
    """Return the reader of values; None for a layout that is not known."""
    known = find_php_layout(world)
    return PhpValues(world, known) if known is not None else None


def find_php_tables(world: World) -> Optional[PhpGlobals]:
    """Return the interpreter's tables."""
    values = world.once(make_php_reader)
    return values.globals() if values is not None else None


def find_zend_manager(world: World) -> Optional[ZendManager]:
    """Return the first heap whose structure proves it, or None."""
    judged: Set[int] = set()
    for mapping in world.target.mappings():
        if mapping.name or not mapping.writable or mapping.end - mapping.start < CHUNK_BYTES:
            continue
        for chunk in range(-(-mapping.start // CHUNK_BYTES) * CHUNK_BYTES, mapping.end - CHUNK_BYTES + 1, CHUNK_BYTES):
            head = world.words(chunk, 1)
            if head is None or head[0] % CHUNK_BYTES != HEAP_OFFSET or head[0] in judged:
                continue
            judged.add(head[0])
            made = _of_heap(world, head[0])
            if made is not None or len(judged) == MOST_HEAPS:
                return made
    return None


def _of_heap(world: World, heap: int) -> Optional[ZendManager]:
    """Return the heap's chunks and huge blocks, or None if they differ from its own counts."""
    main, words = heap - HEAP_OFFSET, world.words(heap, HEAP_WORDS)
    chunks = _walk_chunk_ring(world, main, heap)
    if words is None or chunks is None:
        return None
    taken = [(chunk, chunk + CHUNK_BYTES) for chunk in chunks]
    # cached chunks count in real_size and are in no ring; the list of huge blocks stands before the pointer to the main chunk
    place = next((at for at in range(FREE_SLOTS[-1] + BINS + 1, HEAP_WORDS) if words[at] == main), None)
    if place is None:
        return None
    noted = dict(_walk_list(world, words[place - 1], 3))  # zend_mm_huge_list: {ptr, size, next}
    huge = [(start, start + size_bytes) for start, size_bytes, _ in noted.values()]
    taken += huge
    if place + 1 < HEAP_WORDS:
        cached = _walk_list(world, words[place + 1], 2)  # for reuse: a list linked by their second word
        taken += [(chunk, chunk + CHUNK_BYTES) for chunk, _ in cached if not chunk % CHUNK_BYTES]
    whole = sorted(set(taken))
    real = sum(end - start for start, end in whole)
    slots = next((words[at : at + BINS] for at in FREE_SLOTS if words[at + BINS] == real), None)
    return ZendManager(whole, words[SIZE], chunks, huge, list(noted), slots) if slots is not None and words[SIZE] <= real else None


def _walk_chunk_ring(world: World, main: int, heap: int) -> Optional[List[int]]:
    chunks, at = [main], main
    while len(chunks) < MOST_MEMBERS:
        head = world.words(at, 2)
        if head is None or head[0] != heap or head[1] % CHUNK_BYTES:
            return None
        if head[1] == main:
            return chunks
        at = head[1]
        chunks.append(at)
    return None


def _walk_list(world: World, first: int, count: int) -> Iterator[Tuple[int, Tuple[int, ...]]]:
    """Yield (address, words) of the members of a list: the last of `count` words leads to the next member."""
    seen: Set[int] = set()
    while first and first not in seen and len(seen) < MOST_MEMBERS:
        seen.add(first)
        words = world.words(first, count)
        if words is None:
            return
        yield first, words
        first = words[-1]


def find_zend_pieces(
    world: World, chunks: Sequence[int], huge: Sequence[Tuple[int, int]], free_slots: Sequence[int], notes: Sequence[int]
) -> Optional[Tuple[NativeBlocks, int]]:
    """Return the pieces in use and the bytes of the manager's own blocks, or None if a map or a list is damaged. `free_slots`: the first
    free element of each bin; `notes`: the manager's own blocks, which lead to what others own.
    """
    runs = [(start, end - start, 1) for start, end in huge]
    for chunk in chunks:
        pages = _read_page_map(world, chunk)
        if pages is None:
            return None
        runs += _list_runs(chunk, pages)
    runs.sort()
    labels = world.unlisted(runs, free_slots, MOST_FREE)
    if labels is None:
        return None
    starts, firsts, notes_bytes = [start for start, _, _ in runs], [0, *accumulate(count for _, _, count in runs)], 0
    for address in notes if runs else ():
        place = max(0, bisect_right(starts, address) - 1)
        start, size, count = runs[place]
        number, rest = divmod(address - start, size or 1)
        if not rest and 0 <= number < count and labels[firsts[place] + number]:
            labels[firsts[place] + number] = 0
            notes_bytes += size
    return world.cells(runs, labels), notes_bytes


def _read_page_map(world: World, chunk: int) -> Optional[Sequence[int]]:
    head = world.read(chunk, HEAD_BYTES)
    words = unpack("<%dI" % (HEAD_BYTES // 4), head) if len(head) == HEAD_BYTES else ()
    place = next((at for at in range(16, len(words) - PAGES + 1) if words[at] == FIRST), None)
    return None if place is None else words[place : place + PAGES]


def _list_runs(chunk: int, pages: Sequence[int]) -> Iterator[Tuple[int, int, int]]:
    """Yield (start, bytes of an element, elements) of each run except the chunk's head."""
    page = 1
    while page < PAGES:
        info, start = pages[page], chunk + page * PAGE_BYTES
        length = 1
        if info & SMALL and not info & LARGE and info & 31 < len(SIZE_CLASSES):
            size, count, length = SIZE_CLASSES[info & 31]
            yield start, size, count
        elif info & LARGE and not info & SMALL and info & 1023:
            length = info & 1023
            yield start, length * PAGE_BYTES, 1
        page += length


RECOGNISERS: List[Recogniser] = [Php()]
