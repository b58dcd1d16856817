"""Which ended threads nobody has joined, and which stacks are kept for reuse, by the C library's lists of stacks.

pthread_create links the control block of a thread into `stack_used`, of one whose stack the program gave (as the main thread's) into
`stack_user`. It stays there until the thread was joined or, if it is detached, has ended; then the stack goes to `stack_cache`
(nptl/allocatestack.c: queue_stack). Since 2.34 the heads lie side by side in ld.so (sysdeps/generic/ldsodefs.h: _dl_stack_used,
_dl_stack_user, _dl_stack_cache), before that in libpthread, at places that no symbol tells in a stripped one: there the cache is the list
whose stacks add up to stack_cache_actsize, a word of the same object.
"""

import struct
from itertools import chain
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.memory.places import Places
from gdbheapx.budget import Budget
from gdbheapx.inferior.base import Mapping
from gdbheapx.ranges import Range, Ranges

LEAST_PTHREAD_BYTES = 2048
"""Every release's struct pthread is longer."""
MAX_GUARD_BYTES = 1 << 20
"""Above a larger gap lies no stack, but a part of some reservation."""
TCB_ALIGN, TOP_BYTES = 64, 4096
"""allocate_stack (nptl/allocatestack.c) puts struct pthread into the last bytes of the stack, aligned so."""
MOST_NODES = 1 << 16
"""vm.max_map_count: two mappings for each stack with a guard."""
MOST_DATA_BYTES = 1 << 18
"""Of an object's variables, searched for heads of lists: ld.so and libpthread have less than 32 KiB."""
HEAD_BYTES, WORD = 16, 8
SMALL = 1 << 16
"""No memory lies below (vm.mmap_min_addr)."""
JOINED = 0xFFFFFFFF
"""tid of a thread that was joined (nptl/pthread_join_common.c)."""

Read = Callable[[int, int], bytes]


class EndedThread(NamedTuple):
    """A thread that is no longer, and whose stack is."""

    pointer: int
    """Its control block."""
    stack: Range
    """With its guard."""
    start: Optional[int]
    """The function that it ran."""


class ThreadLists(NamedTuple):
    """Ended threads."""

    unjoined: Sequence[EndedThread] = ()
    """On the lists of threads that are in use: nobody has joined them."""
    cached: Sequence[EndedThread] = ()
    """On the list of stacks that are kept for reuse."""


class ControlBlocks:
    """Reads struct pthread, each once, and of one that may be no thread's, or lie among copied pages alone, no more than is asked for."""

    def __init__(
        self, places: Places, read: Optional[Read], page_bytes: int, list_at: int = 0, budget: Optional[Budget] = None
    ) -> None:
        self._budget = budget or Budget()
        self.cut_at: Optional[int] = None
        """The node of a list where the time was up."""
        self._places, self._read, self._page, self.list_at = places, read, page_bytes, list_at
        self._words: Dict[int, Tuple[int, ...]] = {}
        self._is_one: Dict[int, bool] = {}
        self._stacks: Dict[int, Optional[Tuple[Range, int]]] = {}
        self._at: Optional[int] = None
        """The word of it that tells where a stack begins, once it was found."""

    def words(self, pointer: int) -> Tuple[int, ...]:
        """The words of a control block; none where it cannot be read."""
        if pointer not in self._words:
            self._words[pointer] = self._words_at(pointer, LEAST_PTHREAD_BYTES)
        return self._words[pointer]

    def _words_at(self, address: int, size_bytes: int) -> Tuple[int, ...]:
        data = self._read(address, size_bytes) if self._read is not None else b""
        return struct.unpack("<%dQ" % (len(data) // WORD), data[: len(data) & -WORD])

    def is_one(self, pointer: int) -> bool:
        """A struct pthread (nptl's tls.h: tcbhead_t): tcb and self both hold its own address."""
        if pointer not in self._is_one:
            place = self._places.at(pointer)
            is_memory = place is not None and self._places.uses[place].mapping.writable
            self._is_one[pointer] = is_memory and self._words_at(pointer, 3 * WORD)[::2] == (pointer, pointer)
        return self._is_one[pointer]

    def was_joined(self, pointer: int) -> bool:
        """Somebody has joined the thread."""
        tid = self._words_at(pointer + self.list_at + HEAD_BYTES, WORD)
        return bool(tid) and tid[0] & JOINED == JOINED

    def stack(self, pointer: int) -> Optional[Tuple[Range, int]]:
        """(the stack that this control block tells of, without its guard, in the mapping where both lie; bytes of the guard).

        allocate_stack writes begin, size and guard side by side into struct pthread (nptl/descr.h: stackblock, stackblock_size,
        guardsize), whose end is that of the stack; another C library writes its mapping, where in it the stack ends, and the guard
        (src/internal/pthread_impl.h: map_base, map_size, stack, stack_size, guard_size). No other words of it fit."""
        if pointer not in self._stacks:
            self._stacks[pointer] = self._find_stack(pointer)
        return self._stacks[pointer]

    def _find_stack(self, pointer: int) -> Optional[Tuple[Range, int]]:
        place = self._places.at(pointer)
        if place is None:
            return None
        mapping, words = self._places.uses[place].mapping, self.words(pointer)
        for at in chain(() if self._at is None else (self._at,), range(len(words) - 2)):
            found = self._nptl_stack(mapping, pointer, *words[at : at + 3]) if at < len(words) - 2 else None
            if found is not None:
                self._at = at
                return found
        for start, size, stack, stack_size, guard in zip(*(words[place:] for place in range(5))):
            low, end, are_pages = start + guard, start + size, not (start % self._page or size % self._page or guard % self._page)
            if are_pages and guard <= MAX_GUARD_BYTES and low < stack <= pointer < end <= mapping.end and stack - stack_size == low:
                return (max(low, mapping.start), end), guard
        return None

    def _nptl_stack(self, mapping: Mapping, pointer: int, start: int, size: int, guard: int) -> Optional[Tuple[Range, int]]:
        low, end, least = start + guard, start + size, pointer + LEAST_PTHREAD_BYTES
        if not size or start % self._page or size % self._page or guard % self._page or guard > MAX_GUARD_BYTES:
            return None
        if mapping.start - MAX_GUARD_BYTES <= low < pointer and least <= end <= min(least + TOP_BYTES, mapping.end):
            return (max(low, mapping.start), end), guard
        return None

    def start_routine(self, pointer: int, images: Ranges) -> Optional[int]:
        """The function that the thread ran: the first pointer into an object behind its list, scheduling parameters in front of it
        (nptl/descr.h: joinid, result, schedparam and schedpolicy, start_routine)."""
        words = self.words(pointer)
        for at in range(self.list_at // WORD + 3, len(words)):
            if words[at - 3] in (0, pointer) and words[at - 1] >> 36 == 0 and images.meets(words[at], words[at] + 1):
                return words[at]
        return None

    def follow(self, node: int) -> Sequence[int]:
        """The other nodes of the list_t (include/list.h) that this one is of, a head among them; none if its links do not agree, or there
        are more than MOST_NODES."""
        nodes: List[int] = []
        links = self.links(node)
        while links is not None and len(nodes) < MOST_NODES:
            before, after = (nodes[-1] if nodes else node), links[0]
            links = self.links(after)
            if links is None or links[1] != before:
                break
            if after == node:
                return nodes
            nodes.append(after)
            if self._budget.expired():
                self.cut_at = after
                break
        return []

    def links(self, node: int) -> Optional[Tuple[int, int]]:
        """The words of a list_t: the next node, and the one before."""
        words = self._words_at(node, HEAD_BYTES)
        return (words[0], words[1]) if len(words) == 2 else None


class Objects(NamedTuple):
    """What the dynamic linker has loaded."""

    images: Ranges
    segments: Sequence[Range]
    """Their writable memory."""


def find_ended(blocks: ControlBlocks, living: Dict[int, bool], objects: Objects, read: Read) -> Optional[ThreadLists]:
    """The control blocks of ended threads by the list that each is on; None where no living thread's list leads to the heads, or the time
    is up. `living`: thread pointer -> it is the main thread's."""
    for pointer in sorted(living, key=lambda pointer: not living[pointer]):
        own = blocks.follow(pointer + blocks.list_at) if blocks.is_one(pointer) else ()
        head = next((node for node in own if not blocks.is_one(node - blocks.list_at)), None)
        if head is not None:
            found = _by_heads(blocks, head, living, objects, read)
            return found if blocks.cut_at is None else None
        if blocks.cut_at is not None:
            break
    return None


def _by_heads(blocks: ControlBlocks, own: int, living: Dict[int, bool], objects: Objects, read: Read) -> Optional[ThreadLists]:
    words = _data_words(own, objects.segments, read)
    listed = {head: [node - blocks.list_at for node in blocks.follow(head)] for head in _heads(blocks, words, own)}
    listed = {head: members for head, members in listed.items() if all(map(blocks.is_one, members))}
    dead = [head for head, members in listed.items() if head != own and members and not any(block in living for block in members)]
    caches = [head for head in dead if any(map(blocks.was_joined, listed[head]))]
    caches = caches or [head for head in dead if _fits_sum(blocks, head, own, listed[head], words)]
    if len(caches) > 1:
        return None
    found: Tuple[List[EndedThread], List[EndedThread]] = ([], [])
    for head, members in listed.items():
        told = ((block, blocks.stack(block)) for block in members if block not in living)
        found[head in caches].extend(
            EndedThread(block, (at[0][0] - at[1], at[0][1]), blocks.start_routine(block, objects.images))
            for block, at in told
            if at is not None
        )
    return ThreadLists(*found)  # the main thread has no stack of its own, and is in neither


def _fits_sum(blocks: ControlBlocks, head: int, own: int, members: Sequence[int], words: Dict[int, int]) -> bool:
    """The stacks of this list add up to what the C library says of its cache; since 2.34 in the word behind the head."""
    told = [blocks.stack(block) for block in members]
    size = sum(span[1] - span[0] + guard for span, guard in filter(None, told))
    if None in told or words.get(head + HEAD_BYTES) == size:
        return None not in told
    behind, sum_bytes = words.get(own + HEAD_BYTES, 0), words.get(own + 2 * HEAD_BYTES, 1)
    is_used = own - head == HEAD_BYTES and behind > SMALL and sum_bytes % TOP_BYTES == 0  # _dl_stack_used
    return not is_used and size in words.values()


def _data_words(head: int, segments: Sequence[Range], read: Read) -> Dict[int, int]:
    """The variables of the object that has this head, as far as they are in RAM: address -> word."""
    near = head - HEAD_BYTES, head + 3 * HEAD_BYTES
    start, end = next(((low, high) for low, high in segments if low <= head < high and high - low <= MOST_DATA_BYTES), near)
    found: Dict[int, int] = {}
    at = start & -WORD
    while at < end:
        upto = min(end, (at & -TOP_BYTES) + TOP_BYTES)
        data = read(at, upto - at)
        found.update(zip(range(at, upto, WORD), struct.unpack("<%dQ" % (len(data) // WORD), data[: len(data) & -WORD])))
        at = upto
    return found


def _heads(blocks: ControlBlocks, words: Dict[int, int], own: int) -> Iterator[int]:
    """Heads of lists of control blocks: the one that is known, and what has their form."""
    yield own
    for at, first in words.items():
        last, node = words.get(at + WORD, 0), first - blocks.list_at
        if at == own or first <= SMALL or last <= SMALL or (first | last) % HEAD_BYTES or node % TCB_ALIGN or not blocks.is_one(node):
            continue
        links = blocks.links(first)
        if links is not None and links[1] == at:
            yield at
