"""The heaps of a thread arena: each starts on a multiple of HEAP_MAX_SIZE with a heap_info (arena.c)."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Set

from gdbheapx.budget import Budget
from gdbheapx.errors import Unreadable
from gdbheapx.glibc import codes
from gdbheapx.glibc.arenas import BETWEEN_CLOCKS, Arena
from gdbheapx.glibc.geometry import align_chunk
from gdbheapx.glibc.layouts import HEAP_INFO
from gdbheapx.glibc.located import Glibc
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.glibc.records import Region
from gdbheapx.layout.view import View, read_view
from gdbheapx.problems import Report


class Heap(NamedTuple):
    """One heap_info."""

    address: int
    arena: int
    """ar_ptr: address of the malloc_state."""
    prev: int
    size_bytes: int
    """Bytes in use by the arena; system_mem counts these."""
    mprotect_size_bytes: int

    def region(self, glibc: Glibc, top: int) -> Region:
        """The run of chunks in it: in an arena's first heap the malloc_state stands before the first chunk."""
        first = self.address + glibc.heap_info.size_bytes
        if self.arena == first:
            first += glibc.malloc_state.size_bytes
        end = self.address + self.size_bytes
        return Region(align_chunk(first, glibc.geometry), end, top if self.address <= top < end else 0)


def read_heap(target: Target, glibc: Glibc, address: int, heap_max: int) -> Optional[Heap]:
    """The heap_info at `address`; None if what is there is none. Unreadable if it cannot be read."""
    info = read_view(target, glibc.types, HEAP_INFO.name, address)
    return _checked(info, glibc, heap_max)


def _checked(info: View, glibc: Glibc, heap_max: int) -> Optional[Heap]:
    page = glibc.geometry.page_bytes
    size, writable = info["size"], info["mprotect_size"]
    if not 0 < size <= writable <= heap_max or size % page or writable % page or info["prev"] % heap_max:
        return None
    return Heap(info.address, info["ar_ptr"], info["prev"], size, writable)


def heaps_of(target: Target, glibc: Glibc, arena: Arena, heap_max: int, report: Report, budget: Optional[Budget] = None) -> List[Heap]:
    """The heaps of a thread arena, newest (the one that holds top) first.

    Where the chain breaks, or does not add up to system_mem, the address space is searched for the others.
    """
    chain = _follow(target, glibc, arena, heap_max, report)
    if sum(heap.size_bytes for heap in chain) != arena.state["system_mem"]:
        known = {heap.address for heap in chain}
        chain += [heap for heap in scan(target, glibc, heap_max, known, budget) if heap.arena == arena.address]
    return chain


def _follow(target: Target, glibc: Glibc, arena: Arena, heap_max: int, report: Report) -> List[Heap]:
    chain: List[Heap] = []
    seen: Set[int] = set()
    address = arena.top & -heap_max
    while address and address not in seen:
        seen.add(address)
        try:
            heap = read_heap(target, glibc, address, heap_max)
        except Unreadable:
            report(
                codes.HEAP_UNREADABLE,
                address,
                "cannot read a heap of %s (not mapped, or not in the core)" % arena.title,
                "its bytes count as unparsed",
            )
            break
        if heap is None or heap.arena != arena.address:
            report(
                codes.HEAP_DAMAGED,
                address,
                "heap_info of %s is damaged (ar_ptr, size or mprotect_size)" % arena.title,
                "its bytes count as unparsed",
            )
            break
        chain.append(heap)
        address = heap.prev
    return chain


def scan(target: Target, glibc: Glibc, heap_max: int, known: Set[int], budget: Optional[Budget] = None) -> List[Heap]:
    """Every plausible heap_info on a multiple of heap_max in writable anonymous memory, but for the known ones; fewer where time runs
    out."""
    found: Dict[int, Heap] = {}
    looked = 0
    for mapping in target.mappings():
        if not (mapping.readable and mapping.writable) or mapping.is_file:
            continue
        address = -(-mapping.start // heap_max) * heap_max
        while address + glibc.heap_info.size_bytes <= mapping.end:
            looked += 1
            if budget is not None and looked % BETWEEN_CLOCKS == 0 and budget.expired():
                return _with_readable_arena(target, glibc, list(found.values()))
            if address not in known:
                try:
                    heap = read_heap(target, glibc, address, heap_max)
                except Unreadable:
                    heap = None
                if heap is not None and heap.arena % glibc.geometry.word_bytes == 0 and heap.arena:
                    found[address] = heap
            address += heap_max
    return _with_readable_arena(target, glibc, list(found.values()))


def _with_readable_arena(target: Target, glibc: Glibc, heaps: Sequence[Heap]) -> List[Heap]:
    """Heaps whose ar_ptr stands behind the heap_info of some heap on a boundary, or can be read at all."""
    kept = []
    for heap in heaps:
        if len(target.read_prefix(heap.arena, glibc.malloc_state.size_bytes)) == glibc.malloc_state.size_bytes:
            kept.append(heap)
    return kept
