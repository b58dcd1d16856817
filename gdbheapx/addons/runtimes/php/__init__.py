"""PHP's memory manager: chunks of 2 MiB and huge blocks that it takes from the kernel itself (Zend/zend_alloc.c)."""

from functools import partial
from typing import Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx import problems
from gdbheapx.addons.runtimes.php import pieces as php_pieces
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

CHUNK_BYTES = 2 << 20
HEAP_OFFSET = 64
"""Of zend_mm_heap in the main chunk; a chunk begins with {heap, next, prev}."""
SIZE, FREE_SLOTS, BINS, HEAP_WORDS = 2, (4, 5), 30, 48
"""Of zend_mm_heap, in words: size, peak, from 8.4 on shadow_key, free_slot[30], real_size, ..., huge_list, main_chunk, cached_chunks."""
MOST_MEMBERS = 1 << 16
NAME = "Zend memory manager"
MOST_HEAPS = 8
"""Each of which did not prove itself."""


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
        if find_php_layout(world) is None:
            self._say_release(world)
        found, values = world.once(find_php_tables), world.once(make_php_reader)
        if found is None or values is None or world.once(find_zend_manager) is None:
            return
        for row, name in ((STRING_ROW, STRING_NAME), (ARRAY_ROW, ARRAY_NAME), (REFERENCE_ROW, REFERENCE_NAME)):
            yield Ask(row, lambda key, name=name: Signature(name, self.module, SHAPE), order=40)  # type: ignore[misc]
        classes = {value.data: values.class_name(value.data) for _, value in values.named(found.classes) if value.type == POINTER}
        row = SignatureRow(
            [COUNTED, Condition(4, 4, EQUAL, OBJECT, mask=TYPE_IN_COUNTS), Condition(16, 8, IN_SET, 0)],
            least_usable=40,
            key=(16, 8, (1 << 64) - 1),
        )
        numbers, owning = [NumberSet(sorted(classes))], partial(mask_php_class, values)
        yield Ask(row, lambda key: _name_block(classes.get(key), self.module), numbers, order=40, owning=owning)

    def _say_release(self, world: World) -> None:
        found = world.once(read_php_release)
        if found is not None:
            interface, version = found
            which = version or "with interface %d" % interface
            what = "PHP %s: its values have no types here; gdbheapx knows those of PHP %s" % (which, RELEASES)
            world.session.problem(
                problems.RUNTIME_UNREAD, None, what, "all of PHP's memory as one: %s" % hint_command("report"), partial=False
            )

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
        pieces = php_pieces.find_zend_pieces(world, memory.chunks, memory.huge, memory.free_slots, memory.notes)
        if pieces is None or pieces.bytes + pieces.notes_bytes != memory.size_bytes:
            return [Inner(iter(()), self.module, NAME, memory.taken, taken - memory.size_bytes, 0, is_told_apart=False)]
        return [Inner(iter([pieces.blocks]), self.module, NAME, memory.taken, taken - memory.size_bytes, pieces.notes_bytes, UNIT_BYTES)]

    def fields(self, world: World) -> Mapping[Tuple[str, int], str]:
        return {(ARRAY_NAME, 16): "elements of an array"}

    def namer(self, world: World) -> Optional[Namer]:
        found, values = world.once(find_php_tables), world.once(make_php_reader)
        return PhpNamer(values, found) if found is not None and values is not None and world.once(find_zend_manager) is not None else None


def _name_block(name: Optional[str], module: str) -> Optional[Signature]:
    return Signature(name, module) if name is not None else None


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
        taken += [(chunk, chunk + CHUNK_BYTES) for chunk in _list_cached_chunks(world, words[place + 1])]
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


def _list_cached_chunks(world: World, first: int) -> List[int]:
    """Return chunks that are cached for reuse: a list linked by their second word."""
    return [chunk for chunk, _ in _walk_list(world, first, 2) if not chunk % CHUNK_BYTES]


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


RECOGNISERS: List[Recogniser] = [Php()]
