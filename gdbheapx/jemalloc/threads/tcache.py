"""Thread caches: the blocks that each holds, which jemalloc's bitmaps call allocated (tcache.c, cache_bin.h).

The bins of one tcache_t: where each has its stack of pointers, and how many stand on it (tcache_structs.h, cache_bin.h).
"""

from array import array
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from gdbheapx.errors import Unreadable
from gdbheapx.inferior.base import Member
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context, pointers_in, strided
from gdbheapx.jemalloc.detection.calibrate import words
from gdbheapx.jemalloc.detection.layouts import has_short_ncached_max, omits_large_tcache_bins
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.jemalloc.threads.tcache_lists import explicit_caches, listed_caches
from gdbheapx.jemalloc.threads.tsd import Tsd, Tsds
from gdbheapx.layout.view import Picker, View
from gdbheapx.model import Address, CacheBin, ThreadCache
from gdbheapx.units import plural

LOW_BITS = 0xFFFF
"""A stack takes less than 64 KiB: from 5.3.0 on a bin keeps 16 bits of the addresses of its ends."""
MAX_NHBINS = 1 << 12
MAX_NCACHED = 1 << 16
"""Where tcache_bin_info cannot be read: more than any release allows."""
PICKED = (("stack_head",), ("low_bits_full",), ("low_bits_empty",), ("bin_info.ncached_max",))
"""Of each bin; the last from 5.3.1 on."""
READ_BYTES = 1 << 20
"""The stacks of one cache lie in one allocation; they are read together unless that is longer than this."""


class Stack(NamedTuple):
    """Pointers that stand together."""

    szind: int
    start: int
    """Address of the lowest."""
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record


class Bins(NamedTuple):
    """All bins of one cache."""

    stacks: Sequence[Stack]
    """What the cache holds, stashed blocks too: they were freed, and jemalloc keeps them to find writes after that."""
    counted: Sequence[Stack]
    """Those of them that jemalloc counts as ncached."""
    nhbins: int
    """Size classes up to here have a bin."""
    complete: bool

    def by_class(self) -> List[Stack]:
        """One for each size class."""
        sums: Dict[int, int] = {}
        for stack in self.stacks:
            sums[stack.szind] = sums.get(stack.szind, 0) + stack.count
        return [Stack(szind, 0, count) for szind, count in sorted(sums.items())]


NOTHING = Bins((), (), 0, False)


class Limits(NamedTuple):
    """What is the same for all caches."""

    nhbins: Optional[int]
    """None where this build has no such variable: each cache has its own."""
    disabled: Optional[int]
    """Address of the stand-in for bins that are turned off (5.3.1)."""
    most: Sequence[int]
    """tcache_bin_info[szind].ncached_max; empty where that cannot be read."""
    picker: Optional[Picker]
    """What is read of each bin from 5.3.0 on; None before."""


def read_limits(context: Context) -> Limits:
    """nhbins, disabled_bin and tcache_bin_info."""
    nhbins, pointer, disabled = context.variable("nhbins", 4), context.variable("tcache_bin_info"), context.symbols.find("disabled_bin")
    count = min(nhbins, MAX_NHBINS) if nhbins is not None else len(context.geometry.size_classes)
    try:
        most = words(context.target, pointer, count, 2 if has_short_ncached_max(context.types) else 4) if pointer else []
    except Unreadable:
        most = []
    element = context.types.place("tcache_s", "bins")
    picker = (
        Picker(context.types, element.struct, PICKED, context.geometry.little_endian)
        if element is not None and element.struct is not None
        else None
    )
    return Limits(nhbins, disabled.address if disabled is not None else None, most, picker)


def read_bins(context: Context, address: int, limits: Limits) -> Bins:
    """The bins of the tcache_t at `address`. A bin that cannot be as it stands is reported and left out."""
    try:
        view = context.view("tcache_s", address)
    except Unreadable as problem:
        context.report(
            codes.CACHE_UNREADABLE, problem.address, "cannot read the thread cache at 0x%x" % address, "its blocks count as used"
        )
        return NOTHING
    if view.has("bins"):
        return _Descending(context, view, limits).read()
    return _Ascending(context, view, limits).read()


class _Reader:
    """What both layouts have in common."""

    def __init__(self, context: Context, view: View, limits: Limits) -> None:
        self.context = context
        self.view = view
        self.word = context.geometry.word_bytes
        self.stacks: List[Stack] = []
        self.counted: List[Stack] = []
        self.complete = True
        self.limits, self.nhbins = limits, limits.nhbins

    def integers(self, data: bytes, element: Member, place: Optional[Member]) -> List[int]:
        """One member of every bin in `data`, an array of structs of element.size_bytes."""
        if place is None:
            return [0] * (len(data) // element.size_bytes)
        return strided(data, place.offset, element.size_bytes, place.size_bytes, self.context.geometry.little_endian, place.signed)

    def column(self, path: str, name: str) -> List[int]:
        """Member `name` of every bin of the array `path`."""
        element = self.context.types.place("tcache_s", path)
        assert element is not None and element.struct is not None
        return self.integers(self.view.bytes_of(path), element, self.context.types.place(element.struct, name))

    def most(self, count: int) -> List[int]:
        """tcache_bin_info[szind].ncached_max of the first size classes; the widest bound where that cannot be read."""
        return list(self.limits.most[:count]) if len(self.limits.most) >= count else [MAX_NCACHED] * count

    def refuse(self, szind: int, what: str) -> None:
        """A bin that is left out."""
        self.complete = False
        text = "size class %d of the thread cache at 0x%x: %s" % (szind, self.view.address, what)
        self.context.report(codes.CACHE_BIN_WRONG, self.view.address, text, "its blocks count as used")

    def done(self, nhbins: int) -> Bins:
        """The answer."""
        return Bins(self.stacks, self.counted, nhbins, self.complete)


class _Ascending(_Reader):
    """5.0 to 5.2: avail points just above the stack, avail[-ncached .. -1] are its members."""

    def read(self) -> Bins:
        """All bins."""
        nbins = self.context.geometry.nbins
        nhbins = self.nhbins if self.nhbins is not None else len(self.context.geometry.size_classes)
        limits = self.most(nhbins)
        for first, paths, limit in ((0, ("bins_small", "tbins_small"), nbins), (nbins, ("bins_large", "tbins_large"), nhbins)):
            path = self.context.types.first("tcache_s", *paths)
            if path is None:
                continue
            rows = zip(self.column(path, "ncached"), self.column(path, "avail"))
            for szind, (count, avail) in enumerate(rows, first):
                if szind >= limit:
                    break
                if not avail or not count:
                    continue
                if not 0 < count <= limits[szind]:
                    self.refuse(szind, "it counts %s of at most %d" % (plural(count, "block"), limits[szind]))
                    continue
                self.stacks.append(Stack(szind, avail - count * self.word, count))
        self.counted = self.stacks
        return self.done(nhbins)


class _Descending(_Reader):
    """From 5.3.0: stack_head[0 .. ncached-1], up to the address whose low bits are low_bits_empty; stashed blocks at the low end.

    From 5.3.1 on each bin knows its own ncached_max, and one that is turned off points to a common stand-in.
    """

    def read(self) -> Bins:
        """All bins."""
        element, picker, word = self.context.types.place("tcache_s", "bins"), self.limits.picker, self.word
        assert element is not None and picker is not None
        own_limits, disabled = picker.addresses[-1] is not None, self.limits.disabled
        nhbins = element.count if own_limits or self.nhbins is None else min(element.count, self.nhbins)
        columns: Any = picker.columns(self.view.bytes_of("bins")[: nhbins * element.size_bytes], element.size_bytes)
        heads, full, empty, own = columns
        known = disabled is not None or not own_limits
        for szind, (head, low, high, limit) in enumerate(zip(heads, full, empty, own if own_limits else self.most(nhbins))):
            if not head and high:  # both are written by cache_bin_init
                self.refuse(szind, "its stack_head is null")
                continue
            if not head or head == disabled:
                continue
            count = (high - (head & LOW_BITS) & LOW_BITS) // word
            if count > limit:
                self.refuse(szind, "it holds %s of at most %d" % (plural(count, "block"), limit))
                continue
            if count:
                self.counted.append(Stack(szind, head, count))
            if low != high - limit * word & LOW_BITS:
                self._stashed(szind, head + count * self.word, low, high, limit, known)
        self.stacks += self.counted
        return self.done(nhbins)

    def _stashed(self, szind: int, end: int, full: int, empty: int, limit: int, known: bool) -> None:
        """Blocks between the low end of the array and low_bits_full (cache_bin_nitems_get_remote)."""
        low = empty - limit * self.word & LOW_BITS
        count = (full - low & LOW_BITS) // self.word
        if count and known and limit < MAX_NCACHED:
            if count > limit:
                self.refuse(szind, "it keeps %d stashed blocks of at most %d" % (count, limit))
            else:
                self.stacks.append(Stack(szind, end - limit * self.word, count))


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
    places = {address: _Place(address, arena_index, own.get(address), explicit.get(address)) for address, arena_index, _ in on_lists.caches}
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
    caches, all_pointers, limits = [], array("Q"), read_limits(context)
    for place in places.values():
        if context.budget.expired():
            complete = False
            break
        bins = read_bins(context, place.address, limits)
        complete = complete and bins.complete
        pointers = _collect(context, bins)
        complete = complete and len(pointers) == sum(stack.count for stack in bins.stacks)
        all_pointers.extend(pointers)
        caches.append(Cache(place.address, place.arena_index, place.tsd, place.explicit, bins, pointers))
    return Caches(caches, context.kernel.in_order(all_pointers), complete)


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
            size, have = stack.count * word, max(0, min(stack.count * word, start + len(data) - stack.start))
            part = data[stack.start - start : stack.start - start + have]
            if have < size:
                part = context.target.read_prefix(stack.start, size)  # the hole may lie before it
                have = len(part)
            if have < size:
                text = "cannot read the blocks of size class %d in a thread cache" % stack.szind
                context.report(codes.CACHE_UNREADABLE, stack.start + have, text, "they count as used")
            parts.append(part[: have - have % word])
    return pointers_in(context, b"".join(parts))


def _groups(stacks: Sequence[Stack], word: int) -> Iterator[List[Stack]]:
    """Stacks that are read together, each group sorted by address."""
    group: List[Stack] = []
    for stack in sorted(stacks, key=lambda stack: stack.start):
        if group and stack.start + stack.count * word - group[0].start > READ_BYTES:
            yield group
            group = []
        group.append(stack)
    if group:
        yield group


# ---------------------------------------------------------------------------------------------------- answers


def rows(context: Context, caches: Caches, tsds: Tsds) -> List[ThreadCache]:
    """One row per thread, then one per explicit cache, then caches that no thread could be matched to."""
    by_tsd = {cache.tsd.address: cache for cache in caches.caches if cache.tsd is not None}
    answer = []
    for record in tsds.records:
        cache = by_tsd.get(record.address) if record.address is not None else None
        if cache is not None:
            answer.append(_row(context, cache))
        else:
            known = None if record.state is None else 0
            name = record.thread.name if record.thread else None
            answer.append(ThreadCache(context.jemalloc.id, record.lwp, name, record.arena_index, None, known, known, []))
    answer += [
        _row(context, cache)
        for cache in sorted(caches.caches, key=lambda cache: (cache.explicit is None, cache.explicit, cache.address))
        if cache.tsd is None
    ]
    return answer


def _row(context: Context, cache: Cache) -> ThreadCache:
    sizes = context.geometry.size_classes
    stacks = [stack for stack in cache.bins.by_class() if stack.count]
    bins = [CacheBin(stack.szind, sizes[stack.szind], stack.count, stack.count * sizes[stack.szind]) for stack in stacks]
    thread = cache.tsd.thread if cache.tsd is not None else None
    return ThreadCache(
        allocator=context.jemalloc.id,
        lwp=thread.lwp if thread is not None else None,
        name=thread.name if thread is not None else None,
        tcache=Address(cache.address),
        arena=cache.arena_index if cache.arena_index is not None or cache.tsd is None else cache.tsd.arena_index,
        chunks=sum(cache_bin.chunks for cache_bin in bins),
        bytes=sum(cache_bin.bytes or 0 for cache_bin in bins),
        bins=bins,
        explicit=cache.explicit,
    )


class Counted(NamedTuple):
    """What the caches on one arena's list hold, as jemalloc itself adds it up (arena_stats_merge)."""

    tcache_bytes: Optional[int]
    stashed_bytes: Optional[int]
    """Blocks kept back to find writes after free; 0 unless the build does that (from 5.3.0)."""


def counted(context: Context, caches: Caches, listed: Sequence[Arena]) -> Dict[int, Counted]:
    """Arena index -> Counted, for each of these arenas; empty if not every cache could be read.

    From 5.1.0 to 5.2.1 tcache_bytes leaves out large size classes: arena_stats_merge (arena.c) takes bins_large[i] for i from NBINS on,
    as if the array began with the small ones, and multiplies what it finds there by the size of class i.
    """
    if not caches.complete:
        return {}
    geometry = context.geometry
    sums = {arena.index: [0, 0] for arena in listed}
    shifted = geometry.nbins if omits_large_tcache_bins(context.jemalloc.version) else 0
    for cache in caches.caches:
        if cache.arena_index not in sums:
            continue
        own, counting = sums[cache.arena_index], set(cache.bins.counted)
        for stack in cache.bins.counted:
            szind = stack.szind if stack.szind < geometry.nbins else stack.szind - shifted
            if szind == stack.szind or geometry.nbins <= szind < cache.bins.nhbins:
                own[0] += stack.count * geometry.size_classes[szind]
        own[1] += sum(stack.count * geometry.size_classes[stack.szind] for stack in cache.bins.stacks if stack not in counting)
    return {index: Counted(*both) for index, both in sums.items()}
