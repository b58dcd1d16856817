"""Find stacks: of living threads by registers and control blocks, of ended ones by the C library's lists, of others by guard and size."""

import struct
from bisect import bisect_left
from itertools import chain
from types import MappingProxyType
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple
from typing import Mapping as ReadOnly

from gdbheapx.analysis.memory.kinds import STACK, MappingPlaces, MemoryOwner
from gdbheapx.common.budget import Budget
from gdbheapx.common.model import LIKELY
from gdbheapx.common.ranges import Range, RangeIndex, unite_ranges
from gdbheapx.inferior.arch import Architecture
from gdbheapx.inferior.base import Target, Thread

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


EndedThread = Tuple[int, Range, Optional[int]]
"""A thread that is no longer, and whose stack is: (its control block, the stack with its guard, the function that it ran)."""


EndedLists = Tuple[List[EndedThread], List[EndedThread]]
"""(threads on the lists of those in use, which no one has joined; threads on the list of stacks that are kept for reuse)."""


class ControlBlocks:
    """Reads struct pthread, each once, and of one that may be no thread's, or lie among copied pages alone, no more than is asked for."""

    def __init__(
        self, places: MappingPlaces, read: Optional[Read], page_bytes: int, list_at: int = 0, budget: Optional[Budget] = None
    ) -> None:
        self._budget = budget or Budget()
        self.cut_at: Optional[int] = None
        """The node of a list where the time was up."""
        self._places, self._read, self._page, self.list_at = places, read, page_bytes, list_at
        self._words: Dict[int, Tuple[int, ...]] = {}
        self._is_one: Dict[int, bool] = {}
        self._stacks: Dict[int, Optional[Tuple[Range, int]]] = {}
        self._at: Optional[int] = None
        """The word of it that shows where a stack begins, once it was found."""

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
        """Another thread has joined the thread."""
        tid = self._words_at(pointer + self.list_at + HEAD_BYTES, WORD)
        return bool(tid) and tid[0] & JOINED == JOINED

    def stack(self, pointer: int) -> Optional[Tuple[Range, int]]:
        """(the stack that this control block describes, without its guard, in the mapping where both lie; bytes of the guard).

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
        mapping, words, least = self._places.uses[place].mapping, self.words(pointer), pointer + LEAST_PTHREAD_BYTES
        for at in chain(() if self._at is None else (self._at,), range(len(words) - 2)):
            start, size, guard = words[at : at + 3] if at < len(words) - 2 else (0, 0, 0)
            low, end = start + guard, start + size
            if not size or not self._are_pages(start, size, guard):
                continue
            if mapping.start - MAX_GUARD_BYTES <= low < pointer and least <= end <= min(least + TOP_BYTES, mapping.end):
                self._at = at
                return (max(low, mapping.start), end), guard
        for start, size, stack, stack_size, guard in zip(*(words[place:] for place in range(5))):
            low, end = start + guard, start + size
            is_stack = low < stack <= pointer < end <= mapping.end and stack - stack_size == low
            if is_stack and self._are_pages(start, size, guard):
                return (max(low, mapping.start), end), guard
        return None

    def _are_pages(self, start: int, size: int, guard: int) -> bool:
        return guard <= MAX_GUARD_BYTES and not (start % self._page or size % self._page or guard % self._page)

    def start_routine(self, pointer: int, images: RangeIndex) -> Optional[int]:
        """The function that the thread ran: the first pointer into an object after its list, scheduling parameters in front of it
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


def find_ended(blocks: ControlBlocks, living: Dict[int, bool], target: Target, read: Read) -> Optional[EndedLists]:
    """The control blocks of ended threads by the list that each is on; None where no living thread's list leads to the heads, or the time
    is up. `living`: thread pointer -> it is the main thread's."""
    for pointer in sorted(living, key=lambda pointer: not living[pointer]):
        own = blocks.follow(pointer + blocks.list_at) if blocks.is_one(pointer) else ()
        head = next((node for node in own if not blocks.is_one(node - blocks.list_at)), None)
        if head is not None:
            found = _by_heads(blocks, head, living, target, read)
            return found if blocks.cut_at is None else None
        if blocks.cut_at is not None:
            break
    return None


def _by_heads(blocks: ControlBlocks, own: int, living: Dict[int, bool], target: Target, read: Read) -> Optional[EndedLists]:
    segments = [(low, end) for module in target.modules() for low, _, end in target.writable_segments(module)]
    words = _data_words(own, segments, read)
    listed = {head: [node - blocks.list_at for node in blocks.follow(head)] for head in _find_heads(blocks, words, own)}
    listed = {head: members for head, members in listed.items() if all(map(blocks.is_one, members))}
    dead = [head for head, members in listed.items() if head != own and members and not any(block in living for block in members)]
    caches = [head for head in dead if any(map(blocks.was_joined, listed[head]))]
    caches = caches or [head for head in dead if _fits_sum(blocks, head, own, listed[head], words)]
    if len(caches) > 1:
        return None
    images = RangeIndex((low, high) for low, high, _ in target.image_ranges())
    found: EndedLists = ([], [])
    for head, members in listed.items():
        told = ((block, blocks.stack(block)) for block in members if block not in living)
        for block, at in told:
            if at is not None:
                (low, end), guard = at
                found[head in caches].append((block, (low - guard, end), blocks.start_routine(block, images)))
    return found  # the main thread has no stack of its own, and is in neither


def _fits_sum(blocks: ControlBlocks, head: int, own: int, members: Sequence[int], words: Dict[int, int]) -> bool:
    """The stacks of this list add up to what the C library says of its cache; since 2.34 in the word after the head."""
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


def _find_heads(blocks: ControlBlocks, words: Dict[int, int], own: int) -> Iterator[int]:
    """Heads of lists of control blocks: the one that is known, and what has their form."""
    yield own
    for at, first in words.items():
        last, node = words.get(at + WORD, 0), first - blocks.list_at
        if at == own or first <= SMALL or last <= SMALL or (first | last) % HEAD_BYTES or node % TCB_ALIGN or not blocks.is_one(node):
            continue
        links = blocks.links(first)
        if links is not None and links[1] == at:
            yield at


MAX_USUAL_GUARD_BYTES = 64 << 10
"""Of stacks that no living thread proves: one page from pthreads, four from a JVM."""
MAX_UNGUARDED_BYTES = 64 << 20
MAX_PROBES = 3000
"""nptl keeps at most 40 MiB of them, of at least MIN_BYTES each (nptl/allocatestack.c: stack_cache_maxsize)."""
MIN_BYTES = 16 << 10
"""PTHREAD_STACK_MIN."""
MAIN = "[stack]"

LIVING = MemoryOwner(STACK, "thread stacks")
COROUTINES = MemoryOwner(STACK, "stacks that threads run on instead of their own (coroutines, fibers)", LIKELY)
UNJOINED = MemoryOwner(STACK, "stacks of threads that ended and were never joined")
CACHED = MemoryOwner(STACK, "stacks of exited threads, cached for reuse")
ENDED = MemoryOwner(STACK, "stacks of exited threads, joined or not", LIKELY)
OF_ENDED = (UNJOINED, CACHED, ENDED)
OTHERS = MemoryOwner(STACK, "guarded stacks of no living thread (fibers, exited threads)", LIKELY)


class Stacks(NamedTuple):
    """Positions of the stacks."""

    sorts: Dict[int, MemoryOwner]
    """Index of each mapping that is a stack, or begins with one -> which sort."""
    ends: Dict[int, int]
    """Of those where it is known the end of the stack: after it the kernel may have joined another mapping to it."""
    ended: Sequence[int] = ()
    """The control blocks of ended threads whose stacks are still there."""
    lists: Optional[EndedLists] = None
    """Those of them that are on the C library's lists; None where the lists were not found."""
    own: ReadOnly[int, Tuple[int, int]] = MappingProxyType({})
    """lwp -> the mapping of the thread's own stack, at whatever place it runs just now, and an address in that stack."""
    blocks: Sequence[Tuple[int, int]] = ()
    """(control block, end of its stack) of living and ended threads, sorted; empty where control blocks lie elsewhere."""
    told: ReadOnly[int, Range] = MappingProxyType({})
    """By its control block the stack that this shows, without its guard."""
    apart: ReadOnly[int, Sequence[Tuple[MemoryOwner, Range]]] = MappingProxyType({})
    """Of mappings all of whose stacks are shown, these with their guards: what else lies there is none of theirs."""
    cut_at: Optional[int] = None
    """Where there was no more time to follow the lists, which are None then."""

    def ranges(self, places: MappingPlaces) -> List[Tuple[MemoryOwner, RangeIndex]]:
        """The addresses of each sort."""
        spans: Dict[MemoryOwner, List[Range]] = {}
        for place, owner in self.sorts.items():
            for one, span in self.apart.get(place) or [(owner, span) for span in self.parts(places, place)]:
                spans.setdefault(one, []).append(span)
        return [(owner, RangeIndex(ranges)) for owner, ranges in spans.items()]

    def parts(self, places: MappingPlaces, place: int) -> Sequence[Range]:
        """Return the ranges of stacks in a mapping that is a stack, or begins with one."""
        if place in self.apart:
            return unite_ranges(span for _, span in self.apart[place])
        mapping = places.uses[place].mapping
        return ((mapping.start, min(mapping.end, self.ends.get(place, mapping.end))),)

    def bounds(self, places: MappingPlaces, place: int, address: int) -> Range:
        """Return the bounds of the stack at that address: the kernel joins stacks whose guard pages are no mappings of their own (libc
        2.42 on Linux 6.13), and then its control block gives its bounds, or those of other threads limit them.
        """
        mapping = places.uses[place].mapping
        for low, high in self.told.values():
            if low <= address < high:
                return max(low, mapping.start), min(high, mapping.end)
        start, end = mapping.start, min(mapping.end, self.ends.get(place, mapping.end))
        for _, top_ in self.blocks[bisect_left(self.blocks, (start, 0)) : bisect_left(self.blocks, (end, 0))]:
            if start < top_ <= address:
                start = top_
            elif address < top_ < end:
                end = top_
        return start, end


def find_thread_stacks(places: MappingPlaces, target: Target, read: Read, unguarded: bool, budget: Optional[Budget] = None) -> Stacks:
    """Find all stacks. `read`: bytes that cost the process nothing, else b"". `unguarded`: believe a stack without a guard below."""
    storage, threads, main = target.arch.storage, target.threads(), target.pid  # the main thread's control block does not lie on its stack
    owners: Dict[int, MemoryOwner] = {place: LIVING for place, use in enumerate(places.uses) if _is_named(use.mapping.name)}
    ends: Dict[int, int] = {}
    owns: Dict[int, Tuple[int, int]] = {}
    labelled = next((place for place in owners if places.uses[place].mapping.name == MAIN), None)
    if main is not None and labelled is not None:
        owns[main] = labelled, places.uses[labelled].mapping.start
    blocks = ControlBlocks(places, read if storage.is_pthread else None, target.page_bytes, storage.list_at, budget)
    told: Dict[int, Range] = {}
    apart: Dict[int, List[Tuple[MemoryOwner, Range]]] = {}
    unknown: Set[int] = set()  # mappings with a stack of which nothing is shown

    def take_block(place: int, pointer: int, owner: MemoryOwner) -> None:
        """Take the stack of this control block, which lies in that mapping."""
        ends[place] = max(ends.get(place, 0), find_stack_top(pointer, target.arch))
        found = blocks.stack(pointer)
        if found is None:
            unknown.add(place)
            return
        (low, end), guard = found
        told[pointer] = low, end
        apart.setdefault(place, []).append((owner, (max(low - guard, places.uses[place].mapping.start), end)))

    for thread in threads:
        own = _find_own_stack(places, thread, main, unguarded, blocks)
        if own is not None:
            owners[own], owns[thread.lwp] = LIVING, (own, thread.thread_pointer or 0)
            if storage.is_pthread and not _is_named(places.uses[own].mapping.name):
                take_block(own, thread.thread_pointer or 0, LIVING)
    sizes = {places.uses[place].mapping.size_bytes for place in owners if places.guard_bytes(place)}
    living = {thread.thread_pointer: thread.lwp == main for thread in threads if thread.thread_pointer}
    lists = find_ended(blocks, living, target, read) if storage.is_pthread and storage.list_at else None
    ended = set()
    for pointer, owner in [(pointer, owner) for owner, listed in zip((UNJOINED, CACHED), lists or ()) for pointer, _, _ in listed]:
        place = places.at(pointer)
        if place is not None and places.is_plain(place):
            owners.setdefault(place, owner)
            take_block(place, pointer, owner)
            ended.add(pointer)
    is_labelled = any(use.mapping.name.startswith("[stack") for use in places.uses)
    for thread in threads:
        where = _where_it_runs(places, thread, thread.lwp == main and not is_labelled, unguarded)
        if where is not None and owners.setdefault(*where) == where[1] == LIVING:
            owns.setdefault(thread.lwp, (where[0], thread.stack_pointer or 0))
            if where[0] not in ends:  # nothing else tells where it lies in the mapping
                unknown.add(where[0])
    ended.update(_without_thread(places, owners, sizes, read if storage.is_pthread else None))
    tops = [(pointer, find_stack_top(pointer, target.arch)) for pointer in sorted({*living, *ended})] if storage.is_pthread else []
    whole = {place: spans for place, spans in apart.items() if place not in unknown}
    return Stacks(owners, ends, sorted(ended), lists, owns, tops, told, whole, blocks.cut_at)


def find_stack_top(pointer: int, arch: Architecture) -> int:
    """Return the end of the stack whose control block has this address."""
    return -(-(pointer + arch.pthread_bytes) // TOP_BYTES) * TOP_BYTES


def _is_named(name: str) -> bool:
    """`[stack]`, `[stack:TID]` (Linux 3.4 to 4.4), or nptl's name for it (mem.decorate_maps, since 2.39)."""
    return name.startswith("[stack") or (name.startswith("[anon:") and ": pthread" in name and "stack" in name)


def _has_guard(places: MappingPlaces, place: int) -> bool:
    return 0 < places.guard_bytes(place) <= MAX_GUARD_BYTES


def _find_own_stack(places: MappingPlaces, thread: Thread, main: Optional[int], unguarded: bool, blocks: ControlBlocks) -> Optional[int]:
    """The mapping of the thread's own stack: its control block lies at the upper end of it, at whatever place it runs just now."""
    place, block, pointer = places.at(thread.thread_pointer), thread.thread_pointer or 0, thread.stack_pointer
    # the main thread's stack is named, or in a core found by the auxiliary vector
    if thread.lwp == main or place is None or not places.is_plain(place):
        return None
    if _has_guard(places, place) or blocks.stack(block) is not None:
        return place
    # no guard, or one that is no mapping (MADV_GUARD_INSTALL: libc 2.42 on Linux 6.13)
    is_small = places.uses[place].mapping.size_bytes <= MAX_UNGUARDED_BYTES
    return place if unguarded and places.at(pointer) == place and (pointer or 0) < block and is_small else None


def _where_it_runs(places: MappingPlaces, thread: Thread, alone: bool, unguarded: bool) -> Optional[Tuple[int, MemoryOwner]]:
    """The stack that it runs on, if its control block did not show it. `alone`: the stack pointer is all there is to go by."""
    place, alone = places.at(thread.stack_pointer), alone or not thread.thread_pointer
    if place is None or not places.is_plain(place):
        return None
    if _has_guard(places, place):
        return place, LIVING if alone else COROUTINES
    if alone and unguarded and places.uses[place].mapping.size_bytes <= MAX_UNGUARDED_BYTES:
        return place, LIVING
    return None


def _without_thread(places: MappingPlaces, owners: Dict[int, MemoryOwner], sizes: Set[int], read: Optional[Read]) -> List[int]:
    """Stacks that belong to no living thread, by their guard and their size, or by the control block that an ended thread left; these."""
    probes = 0
    blocks: List[int] = []
    for place, use in enumerate(places.uses):
        if not use.resident_bytes or use.mapping.size_bytes < MIN_BYTES or place in owners:
            continue
        is_guarded = 0 < places.guard_bytes(place) <= MAX_USUAL_GUARD_BYTES
        if not (places.is_plain(place) and (is_guarded or places.may_have_had_guard(place))):
            continue
        probes += 1
        block = _control_block(use.mapping.end, read) if read is not None and probes <= MAX_PROBES else None
        if block is not None:
            owners[place] = ENDED
            blocks.append(block)
        elif is_guarded and (use.mapping.size_bytes in sizes or (use.flags is not None and "nh" in use.flags)):
            owners[place] = OTHERS  # MAP_STACK forbids huge pages since Linux 6.7 (linux/mman.h: calc_vm_flag_bits), little else does
    return blocks


def _control_block(end: int, read: Read) -> Optional[int]:
    """Return the address of the struct pthread at the upper end of a stack; None if there is none."""
    data = read(end - TOP_BYTES, TOP_BYTES)
    words = struct.unpack("<%dQ" % (len(data) // 8), data[: len(data) & -8])
    places = ((end - TOP_BYTES + 8 * step, words[step], words[step + 2]) for step in range(0, len(words) - 2, TCB_ALIGN // 8))
    return next((place for place, tcb, own in places if tcb == place == own), None)
