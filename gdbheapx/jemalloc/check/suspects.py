"""Which block most likely overran: the one that ends where the memory begins in which something is damaged."""

from typing import Dict, List, Optional, Sequence

from gdbheapx.allocators.places import Neighbour
from gdbheapx.allocators.rules import Suspect, collector
from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.heap import base, locate
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.jemalloc.threads.tcache import Caches

WRITTEN = ("used", "cached")
"""Statuses of blocks into which somebody writes, or wrote."""


class Suspects:
    """Metadata lies apart from blocks: only its first page can be reached by one, and a cache's stack where it is a block itself."""

    def __init__(self, context: Context, arenas: Sequence[Arena], caches: Caches) -> None:
        self._context, self._arenas, self._caches = context, arenas, caches
        self._slots: Optional[Dict[int, int]] = None
        self._blocks: Optional[List[base.BaseBlock]] = None
        self._known: Dict[int, Optional[Suspect]] = {}

    def of(self, place: Optional[int]) -> Optional[Suspect]:
        """The block that ends where the memory around `place` begins."""
        if not place:
            return None
        if place not in self._known:
            self._known[place] = self._of(place)
        return self._known[place]

    def of_cached(self, pointer: int) -> Optional[Suspect]:
        """The same of the slot of a thread cache that holds this pointer."""
        if self._slots is None:
            self._slots = {}
            for cache in self._caches.caches:
                stacks = sorted(cache.bins.stacks, key=lambda one: one.start)
                slots = [stack.start + number * self._context.geometry.word_bytes for stack in stacks for number in range(stack.count)]
                self._slots.update(zip(cache.pointers, slots) if len(slots) == len(cache.pointers) else ())
        return self.of(self._slots.get(pointer))

    def _of(self, place: int) -> Optional[Suspect]:
        extent = locate.extent_at(self._context, place)
        if extent is not None and extent.is_slab:
            found = locate.find(self._context, self._arenas, self._caches, place)
            if found is None or found.block is None:
                return None
            return _suspect(found.previous) if found.previous is not None else self._ends_at(extent.begin)
        if extent is not None:
            return self._ends_at(extent.begin)
        if self._blocks is None:
            self._blocks = _base_blocks(self._context, self._arenas)
        block = next((one for one in self._blocks if one.address <= place < one.address + self._context.geometry.page_bytes), None)
        return self._ends_at(block.address if block is not None else place & -self._context.geometry.page_bytes)

    def _ends_at(self, address: int) -> Optional[Suspect]:
        found = locate.find(self._context, self._arenas, self._caches, address - 1)
        if found is None or found.block is None or found.block.status not in WRITTEN:
            return None
        return _suspect(found.block)


def _base_blocks(context: Context, arenas: Sequence[Arena]) -> List[base.BaseBlock]:
    """Of all arenas. What is broken there was told before."""
    found: List[base.BaseBlock] = []
    for arena in arenas:
        try:
            found += base.blocks(context._replace(report=collector([])), arena)
        except Unreadable:
            continue
    return found


def _suspect(block: Optional[Neighbour]) -> Optional[Suspect]:
    if block is None or block.status not in WRITTEN:
        return None
    return Suspect(block.address, block.size_bytes, block.status)
