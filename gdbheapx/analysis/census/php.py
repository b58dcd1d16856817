"""PHP's memory manager: chunks of 2 MiB and huge blocks that it takes from the kernel itself (Zend/zend_alloc.c, 8.2)."""

from typing import Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.census.world import Inner, Recogniser, World

CHUNK_BYTES = 2 << 20
HEAP_OFFSET = 64
"""Of zend_mm_heap in the main chunk; a chunk begins with {heap, next, prev}."""
SIZE, FREE_SLOTS, BINS = 16, 32, 30
"""Of zend_mm_heap: size, peak, free_slot[30], then real_size."""
REAL_SIZE = FREE_SLOTS + 8 * BINS
HEAP_WORDS = 48
MOST_MEMBERS = 1 << 16
MOST_HEAPS = 8
"""Each of which did not prove itself."""


class Manager(NamedTuple):
    """What was found of it."""

    taken: Sequence[Tuple[int, int]]
    """Chunks and huge blocks."""
    size_bytes: int
    """In use, as memory_get_usage() says."""


class Php(Recogniser):
    """The main chunk holds the heap's own account; with the huge blocks the ring of chunks must add up to what it says was taken."""

    module, objects = "php", ("php", "libphp")

    def inner(self, world: World) -> Sequence[Inner]:
        """Its chunks: what lies in them is not told apart."""
        memory = world.once(manager)
        if memory is None:
            return ()
        taken = sum(end - start for start, end in memory.taken)
        return [Inner(iter(()), self.module, "Zend memory manager", memory.taken, taken - memory.size_bytes, 0, is_told_apart=False)]


def manager(world: World) -> Optional[Manager]:
    """The first heap that proves itself."""
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


def _of_heap(world: World, heap: int) -> Optional[Manager]:
    """Its chunks and huge blocks; None where they are not what it has counted."""
    main, words = heap - HEAP_OFFSET, world.words(heap, HEAP_WORDS)
    chunks = _ring(world, main, heap)
    if words is None or chunks is None:
        return None
    size, real = words[SIZE // 8], words[REAL_SIZE // 8]
    taken = [(chunk, chunk + CHUNK_BYTES) for chunk in chunks]
    # cached chunks count in real_size and are in no ring; the list of huge blocks stands before the pointer to the main chunk
    place = next((at for at in range(REAL_SIZE // 8 + 1, HEAP_WORDS) if words[at] == main), None)
    if place is None or size > real:
        return None
    taken += _huge(world, words[place - 1])
    if place + 1 < HEAP_WORDS:
        taken += [(chunk, chunk + CHUNK_BYTES) for chunk in _cached(world, words[place + 1])]
    whole = sorted(set(taken))
    return Manager(whole, size) if sum(end - start for start, end in whole) == real else None


def _ring(world: World, main: int, heap: int) -> Optional[List[int]]:
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


def _cached(world: World, first: int) -> List[int]:
    """Chunks kept for reuse: a list by their second word."""
    return [chunk for chunk, _ in _list(world, first, 2) if not chunk % CHUNK_BYTES]


def _huge(world: World, first: int) -> List[Tuple[int, int]]:
    """zend_mm_huge_list: {ptr, size, next}."""
    return [(words[0], words[0] + words[1]) for _, words in _list(world, first, 3)]


def _list(world: World, first: int, count: int) -> Iterator[Tuple[int, Tuple[int, ...]]]:
    """(address, words) of the members of a list: the last of `count` words is the next one."""
    seen: Set[int] = set()
    while first and first not in seen and len(seen) < MOST_MEMBERS:
        seen.add(first)
        words = world.words(first, count)
        if words is None:
            return
        yield first, words
        first = words[-1]


RECOGNISERS: List[Recogniser] = [Php()]
