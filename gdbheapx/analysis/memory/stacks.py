"""Thread stacks: of living threads, of ended ones, and what a thread runs on instead of its own."""

import struct
from bisect import bisect_left
from types import MappingProxyType
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.memory.kinds import STACK, Owner
from gdbheapx.analysis.memory.places import Places
from gdbheapx.analysis.memory.stack_lists import (
    MAX_GUARD_BYTES,
    TCB_ALIGN,
    TOP_BYTES,
    ControlBlocks,
    Objects,
    Read,
    ThreadLists,
    find_ended,
)
from gdbheapx.arch import Architecture
from gdbheapx.budget import Budget
from gdbheapx.inferior.base import Target, Thread
from gdbheapx.model import LIKELY
from gdbheapx.ranges import Range, Ranges, union

MAX_USUAL_GUARD_BYTES = 64 << 10
"""Of stacks that no living thread proves: one page from pthreads, four from a JVM."""
MAX_UNGUARDED_BYTES = 64 << 20
MAX_PROBES = 3000
"""nptl keeps at most 40 MiB of them, of at least MIN_BYTES each (nptl/allocatestack.c: stack_cache_maxsize)."""
MIN_BYTES = 16 << 10
"""PTHREAD_STACK_MIN."""
MAIN = "[stack]"

LIVING = Owner(STACK, "thread stacks")
COROUTINES = Owner(STACK, "stacks that threads run on instead of their own (coroutines, fibers)", LIKELY)
UNJOINED = Owner(STACK, "stacks of threads that ended and were never joined")
CACHED = Owner(STACK, "stacks of exited threads, cached for reuse")
ENDED = Owner(STACK, "stacks of exited threads, joined or not", LIKELY)
OF_ENDED = (UNJOINED, CACHED, ENDED)
OTHERS = Owner(STACK, "guarded stacks of no living thread (fibers, exited threads)", LIKELY)


class Stacks(NamedTuple):
    """Where the stacks are."""

    sorts: Dict[int, Owner]
    """Index of each mapping that is a stack, or begins with one -> which sort."""
    ends: Dict[int, int]
    """Of those where it is known the end of the stack: behind it the kernel may have joined another mapping to it."""
    ended: Sequence[int] = ()
    """The control blocks of ended threads whose stacks are still there."""
    lists: Optional[ThreadLists] = None
    """Those of them that are on the C library's lists; None where the lists were not found."""
    own: Mapping[int, Tuple[int, int]] = MappingProxyType({})
    """lwp -> the mapping of the thread's own stack, wherever it runs just now, and an address in that stack."""
    blocks: Sequence[Tuple[int, int]] = ()
    """(control block, end of its stack) of living and ended threads, sorted; empty where control blocks lie elsewhere."""
    told: Mapping[int, Range] = MappingProxyType({})
    """By its control block the stack that this tells, without its guard."""
    apart: Mapping[int, Sequence[Tuple[Owner, Range]]] = MappingProxyType({})
    """Of mappings all of whose stacks are told, these with their guards: what else lies there is none of theirs."""
    cut_at: Optional[int] = None
    """Where there was no more time to follow the lists, which are None then."""

    def ranges(self, places: Places) -> List[Tuple[Owner, Ranges]]:
        """The addresses of each sort."""
        spans: Dict[Owner, List[Range]] = {}
        for place, owner in self.sorts.items():
            for one, span in self.apart.get(place) or [(owner, span) for span in self.parts(places, place)]:
                spans.setdefault(one, []).append(span)
        return [(owner, Ranges(ranges)) for owner, ranges in spans.items()]

    def parts(self, places: Places, place: int) -> Sequence[Range]:
        """What of a mapping that is a stack, or begins with one, is stacks."""
        if place in self.apart:
            return union(span for _, span in self.apart[place])
        mapping = places.uses[place].mapping
        return ((mapping.start, min(mapping.end, self.ends.get(place, mapping.end))),)

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


def find(places: Places, target: Target, read: Read, unguarded: bool, budget: Optional[Budget] = None) -> Stacks:
    """All stacks. `read`: bytes that cost the process nothing, else b"". `unguarded`: believe a stack without a guard below."""
    storage, threads, main = target.arch.storage, target.threads(), target.pid  # the main thread's control block does not lie on its stack
    owners: Dict[int, Owner] = {place: LIVING for place, use in enumerate(places.uses) if _is_named(use.mapping.name)}
    ends: Dict[int, int] = {}
    owns: Dict[int, Tuple[int, int]] = {}
    labelled = next((place for place in owners if places.uses[place].mapping.name == MAIN), None)
    if main is not None and labelled is not None:
        owns[main] = labelled, places.uses[labelled].mapping.start
    blocks = ControlBlocks(places, read if storage.is_pthread else None, target.page_bytes, storage.list_at, budget)
    spans = Spans(places, blocks)
    for thread in threads:
        own = _own(places, thread, main, unguarded, blocks)
        if own is not None:
            owners[own], owns[thread.lwp] = LIVING, (own, thread.thread_pointer or 0)
            if storage.is_pthread and not _is_named(places.uses[own].mapping.name):
                ends[own] = max(ends.get(own, 0), top(thread.thread_pointer or 0, target.arch))
                spans.take(own, thread.thread_pointer or 0, LIVING)
    sizes = {places.uses[place].mapping.size_bytes for place in owners if places.guard_bytes(place)}
    living = {thread.thread_pointer: thread.lwp == main for thread in threads if thread.thread_pointer}
    lists = _lists(blocks, living, target, read) if storage.is_pthread and storage.list_at else None
    ended = set()
    for pointer, owner in [(gone.pointer, owner) for owner, listed in zip((UNJOINED, CACHED), lists or ()) for gone in listed]:
        place = places.at(pointer)
        if place is not None and places.is_plain(place):
            owners.setdefault(place, owner)
            ends[place] = max(ends.get(place, 0), top(pointer, target.arch))
            spans.take(place, pointer, owner)
            ended.add(pointer)
    labelled = any(use.mapping.name.startswith("[stack") for use in places.uses)
    for thread in threads:
        where = _where_it_runs(places, thread, thread.lwp == main and not labelled, unguarded)
        if where is not None and owners.setdefault(*where) == where[1] == LIVING:
            owns.setdefault(thread.lwp, (where[0], thread.stack_pointer or 0))
            if where[0] not in ends:  # nothing else tells where it lies in the mapping
                spans.unknown.add(where[0])
    ended.update(_without_thread(places, owners, sizes, read if storage.is_pthread else None))
    tops = [(pointer, top(pointer, target.arch)) for pointer in sorted({*living, *ended})] if storage.is_pthread else []
    return Stacks(owners, ends, sorted(ended), lists, owns, tops, spans.told, spans.apart(), blocks.cut_at)


def _lists(blocks: ControlBlocks, living: Dict[int, bool], target: Target, read: Read) -> Optional[ThreadLists]:
    segments = [(low, end) for module in target.modules() for low, _, end in target.writable_segments(module)]
    return find_ended(blocks, living, Objects(Ranges((low, high) for low, high, _ in target.image_ranges()), segments), read)


class Spans:
    """Where the stacks lie in their mappings, as far as control blocks tell (stack_lists.ControlBlocks.stack)."""

    def __init__(self, places: Places, blocks: ControlBlocks) -> None:
        self._places, self._blocks = places, blocks
        self._of: Dict[int, List[Tuple[Owner, Range]]] = {}
        self.told: Dict[int, Range] = {}
        self.unknown: Set[int] = set()
        """Mappings with a stack of which nothing is told."""

    def take(self, place: int, pointer: int, owner: Owner) -> None:
        """The stack of this control block lies in that mapping."""
        found = self._blocks.stack(pointer)
        if found is None:
            self.unknown.add(place)
            return
        (low, end), guard = found
        self.told[pointer] = low, end
        self._of.setdefault(place, []).append((owner, (max(low - guard, self._places.uses[place].mapping.start), end)))

    def apart(self) -> Dict[int, Sequence[Tuple[Owner, Range]]]:
        """Of mappings all of whose stacks are told, these with their guards."""
        return {place: spans for place, spans in self._of.items() if place not in self.unknown}


def top(pointer: int, arch: Architecture) -> int:
    """Where the stack ends whose control block lies there."""
    return -(-(pointer + arch.pthread_bytes) // TOP_BYTES) * TOP_BYTES


def _is_named(name: str) -> bool:
    """`[stack]`, `[stack:TID]` (Linux 3.4 to 4.4), or nptl's name for it (mem.decorate_maps, since 2.39)."""
    return name.startswith("[stack") or (name.startswith("[anon:") and ": pthread" in name and "stack" in name)


def _has_guard(places: Places, place: int) -> bool:
    return 0 < places.guard_bytes(place) <= MAX_GUARD_BYTES


def _own(places: Places, thread: Thread, main: Optional[int], unguarded: bool, blocks: ControlBlocks) -> Optional[int]:
    """The mapping of the thread's own stack: its control block lies at the upper end of it, wherever it runs just now."""
    block, runs = places.at(thread.thread_pointer), places.at(thread.stack_pointer)
    if thread.lwp == main or block is None:  # the main thread's stack is named, or in a core found by the auxiliary vector
        return None
    if not places.is_plain(block):
        return None
    if _has_guard(places, block) or blocks.stack(thread.thread_pointer or 0) is not None:
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
