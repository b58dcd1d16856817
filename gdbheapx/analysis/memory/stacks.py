"""Thread stacks: of living threads, of ended ones that are kept for reuse, and what a thread runs on instead of its own."""

import struct
from bisect import bisect_left
from types import MappingProxyType
from typing import Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.memory.kinds import STACK, Owner
from gdbheapx.analysis.memory.places import Places
from gdbheapx.arch import Architecture
from gdbheapx.inferior.base import Target, Thread
from gdbheapx.model import LIKELY
from gdbheapx.ranges import Range, Ranges, union

MAX_GUARD_BYTES = 1 << 20
"""Above a larger gap lies no stack, but a part of some reservation."""
MAX_USUAL_GUARD_BYTES = 64 << 10
"""Of stacks that no living thread proves: one page from pthreads, four from a JVM."""
MAX_UNGUARDED_BYTES = 64 << 20
TCB_ALIGN, TOP_BYTES = 64, 4096
"""allocate_stack (nptl/allocatestack.c) puts struct pthread into the last bytes of the stack, aligned so."""
LEAST_PTHREAD_BYTES = 2048
"""Every release's struct pthread is longer."""
MAX_PROBES = 3000
"""nptl keeps at most 40 MiB of them, of at least MIN_BYTES each (nptl/allocatestack.c: stack_cache_maxsize)."""
MIN_BYTES = 16 << 10
"""PTHREAD_STACK_MIN."""
LIST_HEAD_BYTES = 16
"""The head of one of the C library's lists of stacks."""

MAIN = "[stack]"

LIVING = Owner(STACK, "thread stacks")
COROUTINES = Owner(STACK, "stacks that threads run on instead of their own (coroutines, fibers)", LIKELY)
ENDED = Owner(STACK, "stacks of exited threads, kept for reuse", LIKELY)
OTHERS = Owner(STACK, "guarded stacks of no living thread (fibers, exited threads)", LIKELY)

Read = Callable[[int, int], bytes]


class Stacks(NamedTuple):
    """Where the stacks are."""

    sorts: Dict[int, Owner]
    """Index of each mapping that is a stack, or begins with one -> which sort."""
    ends: Dict[int, int]
    """Of those where it is known the end of the stack: behind it the kernel may have joined another mapping to it."""
    kept: Sequence[int] = ()
    """The control blocks of ended threads whose stacks are kept for reuse."""
    own: Mapping[int, Tuple[int, int]] = MappingProxyType({})
    """lwp -> the mapping of the thread's own stack, wherever it runs just now, and an address in that stack."""
    blocks: Sequence[Tuple[int, int]] = ()
    """(control block, end of its stack) of living and ended threads, sorted; empty where control blocks lie elsewhere."""
    told: Mapping[int, Range] = MappingProxyType({})
    """By its control block the stack that this tells, without its guard."""
    apart: Mapping[int, Sequence[Range]] = MappingProxyType({})
    """Of mappings all of whose stacks are told, these with their guards: what else lies there is none of theirs."""

    def ranges(self, places: Places) -> List[Tuple[Owner, Ranges]]:
        """The addresses of each sort."""
        spans: Dict[Owner, List[Range]] = {}
        for place, owner in self.sorts.items():
            spans.setdefault(owner, []).extend(self.parts(places, place))
        return [(owner, Ranges(ranges)) for owner, ranges in spans.items()]

    def parts(self, places: Places, place: int) -> Sequence[Range]:
        """What of a mapping that is a stack, or begins with one, is stacks."""
        mapping = places.uses[place].mapping
        return self.apart.get(place, ((mapping.start, min(mapping.end, self.ends.get(place, mapping.end))),))

    def bounds(self, places: Places, place: int, address: int) -> Range:
        """Of the stack at that address: the kernel joins stacks whose guard pages are no mappings of their own (libc 2.42 on Linux 6.13),
        and then its control block tells where it lies, or those of other threads where theirs end."""
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


def find(places: Places, target: Target, read: Read, unguarded: bool) -> Stacks:
    """All stacks. `read`: bytes that cost the process nothing, else b"". `unguarded`: believe a stack without a guard below."""
    storage, threads, main = target.arch.storage, target.threads(), target.pid  # the main thread's control block does not lie on its stack
    owners: Dict[int, Owner] = {place: LIVING for place, use in enumerate(places.uses) if _is_named(use.mapping.name)}
    ends: Dict[int, int] = {}
    owns: Dict[int, Tuple[int, int]] = {}
    labelled = next((place for place in owners if places.uses[place].mapping.name == MAIN), None)
    if main is not None and labelled is not None:
        owns[main] = labelled, places.uses[labelled].mapping.start
    blocks = Blocks(places, read if storage.is_pthread else None, target.page_bytes)
    for thread in threads:
        own = _own(places, thread, main, unguarded, blocks)
        if own is not None:
            owners[own], owns[thread.lwp] = LIVING, (own, thread.thread_pointer or 0)
            if storage.is_pthread and not _is_named(places.uses[own].mapping.name):
                ends[own] = max(ends.get(own, 0), top(thread.thread_pointer or 0, target.arch))
                blocks.take(own, thread.thread_pointer or 0)
    sizes = {places.uses[place].mapping.size_bytes for place in owners if places.guard_bytes(place)}
    kept = set(_kept(threads, main, read, storage.list_at)) if storage.is_pthread else set()
    for pointer in kept:
        place = places.at(pointer)
        if place is not None and places.is_plain(place):
            owners.setdefault(place, ENDED)
            ends[place] = max(ends.get(place, 0), top(pointer, target.arch))
            blocks.take(place, pointer)
    labelled = any(use.mapping.name.startswith("[stack") for use in places.uses)
    for thread in threads:
        where = _where_it_runs(places, thread, thread.lwp == main and not labelled, unguarded)
        if where is not None and owners.setdefault(*where) == where[1] == LIVING:
            owns.setdefault(thread.lwp, (where[0], thread.stack_pointer or 0))
            if where[0] not in ends:  # nothing else tells where it lies in the mapping
                blocks.unknown.add(where[0])
    kept.update(_without_thread(places, owners, sizes, read if storage.is_pthread else None))
    living = {thread.thread_pointer for thread in threads if thread.thread_pointer}
    tops = [(pointer, top(pointer, target.arch)) for pointer in sorted(living | kept)] if storage.is_pthread else []
    return Stacks(owners, ends, sorted(kept), owns, tops, blocks.told, blocks.apart())


class Blocks:
    """Where control blocks say that their stacks lie: allocate_stack writes begin, size and guard side by side into struct pthread
    (nptl/descr.h: stackblock, stackblock_size, guardsize), whose end is that of the stack; another C library writes its mapping, where in
    it the stack ends, and the guard (src/internal/pthread_impl.h: map_base, map_size, stack, stack_size, guard_size). Which words of it
    these are nobody needs to know: no others fit."""

    def __init__(self, places: Places, read: Optional[Read], page_bytes: int) -> None:
        self._places, self._read, self._page = places, read, page_bytes
        self._asked: Dict[int, Optional[Tuple[Range, int]]] = {}
        self._of: Dict[int, List[Range]] = {}
        self.told: Dict[int, Range] = {}
        self.unknown: Set[int] = set()
        """Mappings with a stack of which nothing is told."""

    def at(self, pointer: int) -> Optional[Tuple[Range, int]]:
        """(the stack that this control block tells of, without its guard, in the mapping where both lie; bytes of the guard)."""
        if pointer not in self._asked:
            self._asked[pointer] = self._find(pointer)
        return self._asked[pointer]

    def _find(self, pointer: int) -> Optional[Tuple[Range, int]]:
        place = self._places.at(pointer)
        if self._read is None or place is None:
            return None
        mapping, least = self._places.uses[place].mapping, pointer + LEAST_PTHREAD_BYTES
        data = self._read(pointer, LEAST_PTHREAD_BYTES)
        words = struct.unpack("<%dQ" % (len(data) // 8), data[: len(data) & -8])
        for start, size, guard in zip(words, words[1:], words[2:]):
            low, end = start + guard, start + size
            if start % self._page or size % self._page or guard % self._page or guard > MAX_GUARD_BYTES or not size:
                continue
            if mapping.start - MAX_GUARD_BYTES <= low < pointer and least <= end <= min(least + TOP_BYTES, mapping.end):
                return (max(low, mapping.start), end), guard
        for start, size, stack, stack_size, guard in zip(*(words[place:] for place in range(5))):
            low, end, are_pages = start + guard, start + size, not (start % self._page or size % self._page or guard % self._page)
            if are_pages and guard <= MAX_GUARD_BYTES and low < stack <= pointer < end <= mapping.end and stack - stack_size == low:
                return (max(low, mapping.start), end), guard
        return None

    def take(self, place: int, pointer: int) -> None:
        """The stack of this control block lies in that mapping."""
        found = self.at(pointer)
        if found is None:
            self.unknown.add(place)
            return
        (low, end), guard = found
        self.told[pointer] = low, end
        self._of.setdefault(place, []).append((max(low - guard, self._places.uses[place].mapping.start), end))

    def apart(self) -> Dict[int, Sequence[Range]]:
        """Of mappings all of whose stacks are told, these with their guards."""
        return {place: union(ranges) for place, ranges in self._of.items() if place not in self.unknown}


def top(pointer: int, arch: Architecture) -> int:
    """Where the stack ends whose control block lies there."""
    return -(-(pointer + arch.pthread_bytes) // TOP_BYTES) * TOP_BYTES


def _kept(threads: Sequence[Thread], main: Optional[int], read: Read, list_at: int) -> List[int]:
    """The control blocks on the C library's list of stacks that are kept for reuse. Its head stands behind those of the stacks that the
    library allocated and of others, as that of the main thread (since libc 2.34; sysdeps/generic/ldsodefs.h: _dl_stack_used,
    _dl_stack_user, _dl_stack_cache), and any thread's list leads to one of these. Nothing else tells of stacks that the kernel joined,
    since their guards are no mappings (libc 2.42 on Linux 6.13)."""
    living = {thread.thread_pointer: thread.lwp == main for thread in threads if thread.thread_pointer}
    for pointer in sorted(living, key=lambda pointer: not living[pointer]):
        nodes = _list(pointer + list_at, read)
        head = next((node for node in nodes if not _is_control_block(node - list_at, read)), None)
        if head is not None:
            blocks = [node - list_at for step in (1, 2) for node in _list(head + step * LIST_HEAD_BYTES, read)]
            return [block for block in blocks if block not in living and _is_control_block(block, read)]
    return []


def _list(head: int, read: Read) -> List[int]:
    """The other nodes of a list_t (include/list.h); none if its links do not agree."""
    nodes: List[int] = []
    before = head
    while len(nodes) < MAX_PROBES:
        data = read(before, 8)
        node = int.from_bytes(data, "little")
        if len(data) < 8 or int.from_bytes(read(node + 8, 8), "little") != before:
            break
        if node == head:
            return nodes
        nodes.append(node)
        before = node
    return []


def _is_control_block(address: int, read: Read) -> bool:
    """A struct pthread (nptl's tls.h: tcbhead_t): tcb and self both hold its own address."""
    data = read(address, 24)
    return len(data) == 24 and int.from_bytes(data[:8], "little") == int.from_bytes(data[16:], "little") == address


def _is_named(name: str) -> bool:
    """`[stack]`, `[stack:TID]` (Linux 3.4 to 4.4), or nptl's name for it (mem.decorate_maps, since 2.39)."""
    return name.startswith("[stack") or (name.startswith("[anon:") and ": pthread" in name and "stack" in name)


def _has_guard(places: Places, place: int) -> bool:
    return 0 < places.guard_bytes(place) <= MAX_GUARD_BYTES


def _own(places: Places, thread: Thread, main: Optional[int], unguarded: bool, blocks: Blocks) -> Optional[int]:
    """The mapping of the thread's own stack: its control block lies at the upper end of it, wherever it runs just now."""
    block, runs = places.at(thread.thread_pointer), places.at(thread.stack_pointer)
    if thread.lwp == main or block is None:  # the main thread's stack is named, or in a core found by the auxiliary vector
        return None
    if not places.is_plain(block):
        return None
    if _has_guard(places, block) or blocks.at(thread.thread_pointer or 0) is not None:
        return block
    size = places.uses[block].mapping.size_bytes
    if unguarded and runs == block and (thread.stack_pointer or 0) < (thread.thread_pointer or 0) and size <= MAX_UNGUARDED_BYTES:
        return block  # no guard, or one that is no mapping (MADV_GUARD_INSTALL: libc 2.42 on Linux 6.13)
    return None


def _where_it_runs(places: Places, thread: Thread, alone: bool, unguarded: bool) -> Optional[Tuple[int, Owner]]:
    """The stack that it runs on, if its control block did not tell it. `alone`: the stack pointer is all there is to go by."""
    place, alone = places.at(thread.stack_pointer), alone or not thread.thread_pointer
    if place is None or not places.is_plain(place):
        return None
    if _has_guard(places, place):
        return place, LIVING if alone else COROUTINES
    if alone and unguarded and places.uses[place].mapping.size_bytes <= MAX_UNGUARDED_BYTES:
        return place, LIVING
    return None


def _without_thread(places: Places, owners: Dict[int, Owner], sizes: Set[int], read: Optional[Read]) -> List[int]:
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
        elif is_guarded and (use.mapping.size_bytes in sizes or _is_map_stack(use.flags)):
            owners[place] = OTHERS
    return blocks


def _is_map_stack(flags: Optional[FrozenSet[str]]) -> bool:
    """MAP_STACK forbids huge pages since Linux 6.7 (include/linux/mman.h: calc_vm_flag_bits), which little else does."""
    return flags is not None and "nh" in flags


def _control_block(end: int, read: Read) -> Optional[int]:
    """Where a struct pthread stands at the upper end of a stack."""
    data = read(end - TOP_BYTES, TOP_BYTES)
    words = struct.unpack("<%dQ" % (len(data) // 8), data[: len(data) & -8])
    places = ((end - TOP_BYTES + 8 * step, words[step], words[step + 2]) for step in range(0, len(words) - 2, TCB_ALIGN // 8))
    return next((place for place, tcb, own in places if tcb == place == own), None)
