"""What an arena's own fields say: the top chunk, the accounts, the bin map, the chain of heaps."""

from typing import AbstractSet, List, Optional, Tuple

from gdbheapx.allocators.rules import Suspect
from gdbheapx.errors import Unreadable
from gdbheapx.glibc import bins
from gdbheapx.glibc.arenas import Arena
from gdbheapx.glibc.check.chunks import Rows, suspect
from gdbheapx.glibc.check.findings import Findings
from gdbheapx.glibc.context import ArenaWalk, Context
from gdbheapx.glibc.layouts import HEAP_INFO
from gdbheapx.layout.view import read_view

PREV_INUSE, FLAGS = 1, 7
MUTEX_VALUES = (0, 1, 2)
"""Free, locked, locked with waiters (lowlevellock)."""
KNOWN_FLAGS = 7
MOST_THREADS = 1 << 22
"""PID_MAX_LIMIT: no arena has more threads."""
MAP_BITS = 32


def tell(context: Context, found: Findings, walk: ArenaWalk, rows: Rows) -> None:
    """All of one arena."""
    _top(context, found, walk.arena, suspect(context, rows.stops.get(walk.arena.top)))
    _state(found, walk.arena)
    _bin_map(context, found, walk.arena)
    _heaps(context, found, walk)


def _top(context: Context, found: Findings, arena: Arena, before: Optional[Suspect]) -> None:
    geometry, top, title = context.glibc.geometry, arena.top, arena.title
    if not top:
        return
    try:
        field = context.target.read_word(top + geometry.word_bytes)
    except Unreadable:
        return
    size = field & ~FLAGS
    if size > arena.state["system_mem"]:
        what = "the top chunk of %s has 0x%x bytes, more than the arena (0x%x)" % (title, size, arena.state["system_mem"])
        found.add("top-size", top, what, before)
        return
    if size < geometry.min_chunk_bytes:
        found.add("top-small", top, "the top chunk of %s has 0x%x bytes, less than MINSIZE" % (title, size), before)
    elif (top + size) % geometry.page_bytes:
        found.add("top-page-end", top, "the top chunk of %s ends at 0x%x, which is no page" % (title, top + size), before)
    if not field & PREV_INUSE:
        found.add("top-prev-inuse", top, "the top chunk of %s says that the chunk before it is free" % title, before)
    if field & FLAGS & ~PREV_INUSE:
        found.add("top-flags", top, "the size field 0x%x of the top chunk of %s has flags that top never has" % (field, title), before)


def _state(found: Findings, arena: Arena) -> None:
    state, title = arena.state, arena.title
    if state["system_mem"] > state["max_system_mem"]:
        what = "%s: system_mem 0x%x is larger than max_system_mem 0x%x" % (title, state["system_mem"], state["max_system_mem"])
        found.add("system-mem-max", state.address_of("system_mem"), what)
    if state["mutex"] not in MUTEX_VALUES:
        found.add("arena-mutex", state.address_of("mutex"), "%s: the mutex has the value %d, which no lock has" % (title, state["mutex"]))
    if state["flags"] & ~KNOWN_FLAGS:
        found.add(
            "arena-flags", state.address_of("flags"), "%s: flags is 0x%x, which has bits that malloc does not use" % (title, state["flags"])
        )
    attached = state.get("attached_threads")
    if attached is not None and attached > MOST_THREADS:
        found.add("attached-threads", state.address_of("attached_threads"), "%s counts %d attached threads" % (title, attached))


def _bin_map(context: Context, found: Findings, arena: Arena) -> None:
    words, own = arena.state.numbers("binmap"), bins.headers(arena, context.glibc)
    heads = arena.state.numbers("bins")[0::2]
    if not any(heads):
        return
    for index in range(2, len(own)):
        if heads[index - 1] != own[index - 1] and not words[index // MAP_BITS] >> index % MAP_BITS & 1:
            what = "%s: bin %d is not empty, but its bit in binmap is clear: malloc does not find what is in it" % (arena.title, index)
            found.add("binmap", arena.state.address_of("binmap") + index // MAP_BITS * 4, what)


def _heaps(context: Context, found: Findings, walk: ArenaWalk) -> None:
    if walk.arena.is_main or not walk.arena.top:
        return
    total = sum(heap.size_bytes for heap in walk.heaps)
    if walk.heaps and total != walk.arena.state["system_mem"]:
        what = "%s: its heaps have 0x%x bytes, but system_mem is 0x%x" % (walk.arena.title, total, walk.arena.state["system_mem"])
        found.add("heap-sum", walk.arena.state.address_of("system_mem"), what)
    for heap in walk.heaps:
        for name, what in _broken_heap(context, walk, heap.address):
            found.add(name, heap.address, "%s: %s" % (walk.arena.title, what))


def _broken_heap(context: Context, walk: ArenaWalk, address: int) -> List[Tuple[str, str]]:
    return heap_rules(context, walk.arena, address, {heap.address for heap in walk.heaps})


def heap_rules(context: Context, arena: Arena, address: int, known: AbstractSet[int]) -> List[Tuple[str, str]]:
    """(rule, what) of the heap_info at `address`."""
    page, told = context.glibc.geometry.page_bytes, []
    try:
        info = read_view(context.target, context.glibc.types, HEAP_INFO.name, address)
    except Unreadable:
        return []
    if info["ar_ptr"] != arena.address:
        told.append(("heap-arena", "the heap_info names the arena 0x%x" % info["ar_ptr"]))
    size, writable = info["size"], info["mprotect_size"]
    if not 0 < size <= writable or size % page or writable % page:
        told.append(("heap-size", "the heap_info has size 0x%x and mprotect_size 0x%x" % (size, writable)))
    if info["prev"] and info["prev"] not in known:
        told.append(("heap-prev", "the heap_info leads to 0x%x, which is no heap of this arena" % info["prev"]))
    return told
