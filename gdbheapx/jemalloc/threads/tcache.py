"""Thread caches: the blocks that each holds, which jemalloc's bitmaps call allocated (tcache.c, cache_bin.h)."""

from array import array
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection.layouts import omits_large_tcache_bins
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.jemalloc.threads.tcache_bins import Bins, Stack, read_bins, read_limits
from gdbheapx.jemalloc.threads.tcache_lists import explicit_caches, listed_caches
from gdbheapx.jemalloc.threads.tsd import Tsd, Tsds
from gdbheapx.model import Address, CacheBin, ThreadCache

READ_BYTES = 1 << 20
"""The stacks of one cache lie in one allocation; they are read together unless that is longer than this."""


class Cache(NamedTuple):
    """One tcache_t and what it holds."""

    address: int
    arena_index: Optional[int]
    """The arena on whose list it hangs; None if it is on none."""
    tsd: Optional[Tsd]
    """Its thread's; None for explicit caches, and where no thread could be matched."""
    explicit: Optional[int]
    """The number that tcache.create gave; None for a thread's own."""
    bins: Bins
    pointers: "array[int]"
    """All blocks in it."""


class Caches(NamedTuple):
    """All thread caches of one jemalloc."""

    caches: Sequence[Cache]
    pointers: "array[int]"
    """What all of them hold, sorted."""
    complete: bool
    """Nothing is missing in `pointers`: caches were found by both or by one whole way, and each was read whole."""


class _Place(NamedTuple):
    """A cache before it is read."""

    address: int
    arena_index: Optional[int]
    tsd: Optional[Tsd]
    explicit: Optional[int]


def read_caches(context: Context, listed: Sequence[Arena], tsds: Tsds, has_stats: Optional[bool] = None) -> Caches:
    """Every thread cache, by the threads' tsds and by the arenas' lists. What contradicts or cannot be read is reported.

    Builds without statistics put caches on no list (tcache.c: tcache_arena_associate): there, and where that is not known and the lists
    are empty, the tsds alone tell.
    """
    on_lists = listed_caches(context, listed)
    lists_complete = on_lists.complete and (bool(on_lists.caches) if has_stats is None else has_stats)
    explicit = explicit_caches(context)
    own = {record.address + offset: record for record in tsds.records for offset in _offsets(context, record) if record.address is not None}
    places = {one.address: _Place(one.address, one.arena_index, own.get(one.address), explicit.get(one.address)) for one in on_lists.caches}
    for address, record in own.items():
        if address not in places:
            if lists_complete:
                context.report(
                    codes.CACHE_UNLISTED,
                    address,
                    "the cache of thread %s is on no arena's list" % record.lwp,
                    "the list was being changed, or is damaged",
                )
            places[address] = _Place(address, None, record, None)
    for address, number in explicit.items():
        if address not in places and not lists_complete:
            places[address] = _Place(address, None, None, number)
    if tsds.complete and not context.symbols.by_structure:  # there nothing tells explicit caches from others
        for place in places.values():
            if place.tsd is None and place.explicit is None:
                context.report(
                    codes.CACHE_UNOWNED,
                    place.address,
                    "a thread cache on arena %s's list belongs to no thread and is not an explicit one" % place.arena_index,
                    None,
                )
    complete = lists_complete or tsds.complete
    caches, every, limits = [], array("Q"), read_limits(context)
    for place in places.values():
        if context.budget.expired():
            complete = False
            break
        bins = read_bins(context, place.address, limits)
        complete = complete and bins.complete
        pointers = _collect(context, bins)
        complete = complete and len(pointers) == sum(stack.count for stack in bins.stacks)
        every.extend(pointers)
        caches.append(Cache(place.address, place.arena_index, place.tsd, place.explicit, bins, pointers))
    return Caches(caches, context.kernel.in_order(every), complete)


def _offsets(context: Context, record: Tsd) -> Iterator[int]:
    """Where the tsd has its cache, if it is in use."""
    place = context.types.place("tsd_s", "tcache")
    if place is not None and record.is_nominal and record.tcache_enabled and record.tcache_arena:
        yield place.offset


def _collect(context: Context, bins: Bins) -> "array[int]":
    """The pointers of all stacks; those that cannot be read are reported and left out."""
    word = context.geometry.word_bytes
    parts: List[bytes] = []
    for group in _groups([stack for stack in bins.stacks if stack.count], word):
        start, end = group[0].start, max(stack.start + stack.count * word for stack in group)
        data = context.target.read_prefix(start, end - start)
        if len(data) == end - start:
            parts += [data[stack.start - start : stack.start - start + stack.count * word] for stack in group]
            continue
        for stack in group:
            wanted, have = stack.count * word, max(0, min(stack.count * word, start + len(data) - stack.start))
            part = data[stack.start - start : stack.start - start + have]
            if have < wanted:
                part = context.target.read_prefix(stack.start, wanted)  # the hole may lie before it
                have = len(part)
            if have < wanted:
                text = "cannot read the blocks of size class %d in a thread cache" % stack.szind
                context.report(codes.CACHE_UNREADABLE, stack.start + have, text, "they count as used")
            parts.append(part[: have - have % word])
    return _words(context, b"".join(parts))


def _groups(stacks: Sequence[Stack], word: int) -> Iterator[List[Stack]]:
    """Stacks that are read together, each group sorted by address."""
    group: List[Stack] = []
    for stack in sorted(stacks, key=lambda one: one.start):
        if group and stack.start + stack.count * word - group[0].start > READ_BYTES:
            yield group
            group = []
        group.append(stack)
    if group:
        yield group


def _words(context: Context, data: bytes) -> "array[int]":
    """The target's pointers in these bytes."""
    found = array("Q" if context.geometry.word_bytes == 8 else "I")
    found.frombytes(data)
    if context.geometry.little_endian != (array("H", [1]).tobytes()[0] == 1):
        found.byteswap()
    return found


# ---------------------------------------------------------------------------------------------------- answers


def rows(context: Context, caches: Caches, tsds: Tsds) -> List[ThreadCache]:
    """One row per thread, then one per explicit cache, then caches that no thread could be matched to."""
    by_tsd = {cache.tsd.address: cache for cache in caches.caches if cache.tsd is not None}
    found = []
    for record in tsds.records:
        cache = by_tsd.get(record.address) if record.address is not None else None
        if cache is not None:
            found.append(_row(context, cache))
        else:
            known = None if record.state is None else 0
            name = record.thread.name if record.thread else None
            found.append(ThreadCache(context.jemalloc.id, record.lwp, name, record.arena_index, None, known, known, []))
    found += [
        _row(context, cache)
        for cache in sorted(caches.caches, key=lambda one: (one.explicit is None, one.explicit, one.address))
        if cache.tsd is None
    ]
    return found


def _row(context: Context, cache: Cache) -> ThreadCache:
    sizes = context.geometry.size_classes
    bins = [CacheBin(one.szind, sizes[one.szind], one.count, one.count * sizes[one.szind]) for one in cache.bins.by_class() if one.count]
    thread = cache.tsd.thread if cache.tsd is not None else None
    return ThreadCache(
        allocator=context.jemalloc.id,
        lwp=thread.lwp if thread is not None else None,
        name=thread.name if thread is not None else None,
        tcache=Address(cache.address),
        arena=cache.arena_index if cache.arena_index is not None or cache.tsd is None else cache.tsd.arena_index,
        chunks=sum(one.chunks for one in bins),
        bytes=sum(one.bytes or 0 for one in bins),
        bins=bins,
        explicit=cache.explicit,
    )


class Counted(NamedTuple):
    """What the caches on one arena's list hold, as jemalloc itself adds it up (arena_stats_merge)."""

    tcache_bytes: int
    stashed_bytes: int
    """Blocks kept back to find writes after free; 0 unless the build does that (from 5.3.0)."""


def counted(context: Context, caches: Caches, listed: Sequence[Arena]) -> Dict[int, Counted]:
    """Arena index -> Counted, for each of these arenas; empty if not every cache could be read.

    From 5.1.0 to 5.2.1 tcache_bytes leaves out large size classes: arena_stats_merge (arena.c) takes bins_large[i] for i from NBINS on,
    as if the array began with the small ones, and multiplies what it finds there by the size of class i.
    """
    if not caches.complete:
        return {}
    geometry = context.geometry
    found = {arena.index: Counted(0, 0) for arena in listed}
    shifted = geometry.nbins if omits_large_tcache_bins(context.jemalloc.version) else 0
    for cache in caches.caches:
        if cache.arena_index not in found:
            continue
        total, counting = 0, set(cache.bins.counted)
        for one in cache.bins.counted:
            szind = one.szind if one.szind < geometry.nbins else one.szind - shifted
            if szind == one.szind or geometry.nbins <= szind < cache.bins.nhbins:
                total += one.count * geometry.size_classes[szind]
        stashed = sum(one.count * geometry.size_classes[one.szind] for one in cache.bins.stacks if one not in counting)
        before = found[cache.arena_index]
        found[cache.arena_index] = Counted(before.tcache_bytes + total, before.stashed_bytes + stashed)
    return found
