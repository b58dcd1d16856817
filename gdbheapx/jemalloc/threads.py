"""Read each thread's tsd_t and tcache_t (tsd.h, tcache_structs.h, cache_bin.h)."""

from array import array
from collections import Counter
from functools import partial
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import CacheBin, TargetAddress, ThreadCache
from gdbheapx.common.units import count_noun
from gdbheapx.inferior.base import Thread
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.arenas import ArenaHandle, JemallocContext
from gdbheapx.jemalloc.layouts import has_short_ncached_max, omits_large_tcache_bins, read_tsd_states
from gdbheapx.jemalloc.structure import is_tcache, read_sized_word
from gdbheapx.jemalloc.symbols import read_words
from gdbheapx.layout.view import LayoutView, Picker, unpack_strided

MAX_ELEMENTS = 1 << 20
"""More elements than any process has threads: only there to end a broken list."""
MAX_EXPLICIT = 4096
"""MALLOCX_TCACHE_MAX is 4,093 in every release of 5."""
NEEDS_REINIT = 1
"""TCACHES_ELM_NEED_REINIT: an explicit cache that tcache.flush emptied."""


def read_ql_ring(context: JemallocContext, first: int, next_offset: int) -> Tuple[List[int], Optional[int], Optional[str]]:
    """Every element of the list that begins at `first` (0: empty); next_offset is qre_next's place in an element.

    Gives the addresses, those before the damage if there is some, the address of the link that does not hold, and what is wrong with it.
    """
    elements: List[int] = []
    seen = set()
    element = first
    while element and len(elements) < MAX_ELEMENTS and not context.budget.expired():
        if element in seen:
            return elements, elements[-1] + next_offset, "points back into the middle of its list"
        elements.append(element)
        seen.add(element)
        try:
            element = context.target.read_word(element + next_offset)
        except UnreadableMemory as problem:
            return elements[:-1], problem.address, "cannot be read"
        if not element:
            return elements, elements[-1] + next_offset, "is null in a circular list"
        if element == first:
            return elements, None, None
    return (elements, element, "is where the walk ended") if first else (elements, None, None)


def find_listed_caches(context: JemallocContext, listed: Sequence[ArenaHandle]) -> Tuple[List[Tuple[int, ArenaHandle]], bool]:
    """Find the tcache_t on the lists of these arenas, and whether every list was followed to its end. Damage is reported.

    5.0.x links tcache_t itself (arena_s.tcache_ql); from 5.1.0 on cache_bin_array_descriptor_ql links a descriptor in each.
    """
    types = context.types
    is_old = types.place("arena_s", "cache_bin_array_descriptor_ql") is None
    head = types.place("arena_s", "tcache_ql.qlh_first" if is_old else "cache_bin_array_descriptor_ql.qlh_first")
    link = types.place("tcache_s" if is_old else "cache_bin_array_descriptor_s", "link.qre_next")
    caches: List[Tuple[int, ArenaHandle]] = []
    if head is None or link is None:
        return caches, False
    complete = True
    for arena in listed:
        try:
            first = context.target.read_word(arena.address + head.offset)
        except UnreadableMemory as problem:
            what = "cannot read arena %d's list of thread caches" % arena.index
            context.report(codes.CACHE_LIST_UNREADABLE, problem.address, what, "their blocks may count as used")
            complete = False
            continue
        elements, where, wrong = read_ql_ring(context, first, link.offset)
        if wrong is not None:
            what = "a link of arena %d's list of thread caches %s" % (arena.index, wrong)
            context.report(codes.CACHE_LIST_BROKEN, where, what, "blocks of the others may count as used")
            complete = False
        for element in elements:
            address = element if is_old else _find_descriptor_owner(context, element, arena)
            complete = complete and bool(address)
            if address:
                caches.append((address, arena))
    return caches, complete and context.budget.reason is None


def _find_descriptor_owner(context: JemallocContext, descriptor: int, arena: ArenaHandle) -> int:
    """The tcache_s that a cache_bin_array_descriptor_s belongs to; 0, and a report, if they do not agree about where the bins are."""
    types = context.types
    inner = types.place("tcache_s", "cache_bin_array_descriptor")
    bins = types.place("tcache_s", "bins_small" if inner is not None else "bins")
    try:
        view = context.view("cache_bin_array_descriptor_s", descriptor)
        if bins is None:
            return 0
        address = (view.get("bins", "bins_small") or 0) - bins.offset
        if inner is not None:
            agrees = address == descriptor - inner.offset
        else:
            slow, back = types.place("tcache_slow_s", "cache_bin_array_descriptor"), types.place("tcache_s", "tcache_slow")
            agrees = slow is not None and back is not None and context.target.read_word(address + back.offset) == descriptor - slow.offset
    except UnreadableMemory as problem:
        what = "cannot read a thread cache on arena %d's list" % arena.index
        context.report(codes.CACHE_UNREADABLE, problem.address, what, "its blocks count as used")
        return 0
    if not agrees:
        text = "an element of arena %d's list of thread caches does not belong to the cache that it names"
        context.report(codes.CACHE_LIST_BROKEN, descriptor, text % arena.index, "its blocks count as used")
        return 0
    return address


def read_explicit_caches(context: JemallocContext) -> Dict[int, int]:
    """Address of each tcache_t that tcache.create made -> its number there (tcaches[], tcache.c); empty where that cannot be read."""
    array, count = context.variable("tcaches"), context.variable("tcaches_past", 4)
    if context.symbols.by_structure:
        return _search_explicit_caches(context, array or 0)
    if not array or not count or "tcaches_s" not in context.types.structs:
        return {}
    size = context.types.size_bytes("tcaches_s")
    try:
        entries = read_words(context.target, array, min(count, MAX_EXPLICIT), size)
    except UnreadableMemory as problem:
        context.report(codes.CACHE_LIST_UNREADABLE, problem.address, "cannot read jemalloc's table of explicit thread caches", None)
        return {}
    end = array + (MAX_EXPLICIT + 1) * size  # a free entry points to the next free one
    return {entry: number for number, entry in enumerate(entries) if entry not in (0, NEEDS_REINIT) and not array <= entry < end}


def _search_explicit_caches(context: JemallocContext, array: int) -> Dict[int, int]:
    """Find explicit caches without the number of entries: those entries that lead to a cache."""
    data = context.target.read_prefix(array, MAX_EXPLICIT * context.geometry.word_bytes) if array else b""
    read = partial(read_sized_word, context.target)
    entries = unpack_strided(data, 0, context.geometry.word_bytes, context.geometry.word_bytes, context.geometry.little_endian, False)
    return {entry: number for number, entry in enumerate(entries) if entry and is_tcache(context.types, read, entry)}


NOMINAL_STATES = ("nominal", "nominal_slow", "nominal_recompute")
"""States of a thread that uses jemalloc: tsd_state_nominal to tsd_state_nominal_max."""
NOMINAL_LINKS = ("tsd_link.qre_next", "tcache.tsd_link.qre_next")
"""Where tsd_nominal_tsds links its members: from 5.3.0, in 5.2."""


class Tsd(NamedTuple):
    """A thread's tsd_t. A member is None if this release lacks it, or it cannot be read."""

    thread: Optional[Thread]
    """None if it is known from jemalloc's own lists alone and no thread could be matched."""
    address: Optional[int]
    state: Optional[str]
    """tsd_state_ without its prefix; None if the tsd could not be read, see `trouble`."""
    trouble: Optional[str] = None
    tcache_enabled: Optional[bool] = None
    tcache_arena: Optional[int] = None
    """Address of the arena that its tcache is associated with; 0 before that."""
    reentrancy_level: Optional[int] = None
    arenas_tdata_bypass: Optional[bool] = None
    """5.0.0 to 5.2.1; None also for a byte that is no bool."""
    arenas_tdata: Optional[int] = None
    """5.0.0 to 5.2.1: address of the array of tickers, 0 if there is none."""
    narenas_tdata: Optional[int] = None
    arena: Optional[int] = None
    """Address of the arena that it is bound to, 0 for none."""
    iarena: Optional[int] = None
    arena_index: Optional[int] = None
    thread_allocated_bytes: Optional[int] = None
    """Stays 0 in builds without statistics up to 5.2."""
    thread_deallocated_bytes: Optional[int] = None
    ticker: Optional[Tuple[int, int]] = None
    """That of its own arena (ticker_t, from 5.3.0 ticker_geom_t): ticks left until the arena's decay is looked after, of so many."""

    @property
    def lwp(self) -> Optional[int]:
        """Kernel thread id."""
        return self.thread.lwp if self.thread is not None else None

    @property
    def is_nominal(self) -> bool:
        """Return whether the thread is in a nominal state."""
        return self.state in NOMINAL_STATES


class Tsds(NamedTuple):
    """The tsds of all threads."""

    records: Sequence[Tsd]
    complete: bool
    """Every thread's tsd was read, or is known not to exist."""


def read_tsds(context: JemallocContext, listed: Sequence[ArenaHandle]) -> Tsds:
    """Every thread's tsd by thread-local storage; without that, those on jemalloc's own lists. What cannot be read is reported."""
    if "tsd_s" not in context.types.structs:
        return Tsds([Tsd(thread, None, None, "the layout of its tsd is not known") for thread in context.target.threads()], False)
    reader = _TsdReader(context, {arena.address: arena.index for arena in listed})
    threads = list(context.target.threads())
    local = context.symbols.find_thread_locals()
    if local is None:
        return _read_listed_tsds(context, reader, threads, listed)
    records = []
    for thread in threads:
        address = local.addresses.get(thread.lwp)
        if address is not None:
            records.append(reader.read(thread, address))
        elif thread.thread_pointer is None or thread.lwp in local.unknown:
            why = local.unknown.get(thread.lwp, "cannot read its registers")
            context.report(codes.TSD_UNKNOWN, None, "thread %d: %s, so its tsd is unknown" % (thread.lwp, why), None)
            records.append(Tsd(thread, None, None, why))
        else:
            records.append(Tsd(thread, None, "uninitialized"))  # no block of thread-local storage: it never touched it
    complete = all(record.state is not None for record in records)
    if complete:
        _compare_lists(context, records)
    return Tsds(records, complete)


TSD_MEMBERS: Sequence[Tuple[str, ...]] = (
    *(("state",), ("tcache_enabled",), ("tcache_slow.arena", "tcache.arena"), ("reentrancy_level",), ("arenas_tdata_bypass",)),
    *(("arenas_tdata",), ("narenas_tdata",), ("arena",), ("iarena",), ("thread_allocated",), ("thread_deallocated",)),
    *(("arena_decay_ticker.tick",), ("arena_decay_ticker.nticks",)),
)
"""What is read of each tsd_s, in the order in which _Reader takes it."""


class _TsdReader:
    """Reads tsd_s by the places of its members."""

    def __init__(self, context: JemallocContext, arenas: Dict[int, int]) -> None:
        self.context = context
        self.arenas = arenas
        self.states = read_tsd_states(context.types, context.jemalloc.version)
        self.size_bytes = context.types.size_bytes("tsd_s")
        self.picker = Picker(context.types, "tsd_s", TSD_MEMBERS, context.geometry.little_endian)

    def read(self, thread: Optional[Thread], address: int) -> Tsd:
        context = self.context
        who = "thread %d" % thread.lwp if thread is not None else "a thread"
        try:
            data = context.target.read(address, self.size_bytes)
        except UnreadableMemory as problem:
            context.report(codes.TSD_UNREADABLE, problem.address, "cannot read the tsd of %s" % who, "its state and its cache are unknown")
            return Tsd(thread, address, None, "cannot read its tsd at 0x%x" % address)
        number, enabled, cache_arena, level, bypass, tdata, narenas, arena, iarena, allocated, deallocated, tick, nticks = self.picker.pick(
            data
        )
        state = self.states.get(number) if number is not None else None
        if state is None:
            what = address + (self.picker.addresses[0] or 0)
            context.report(codes.TSD_WRONG, what, "the tsd of %s has invalid state %s" % (who, number), None)
            return Tsd(thread, address, None, "its tsd has invalid state %s" % number)
        index = self.arenas.get(arena or 0)
        if tick is None or nticks is None:  # arenas_tdata[its arena].decay_ticker (arena_tdata_get, jemalloc_internal_inlines_a.h)
            ticker = self._read_ticker(tdata, index, thread) if index is not None and index < (narenas or 0) else None
        else:
            ticker = tick, nticks
        record = Tsd(
            thread,
            address,
            state,
            tcache_enabled=None if enabled is None else bool(enabled),
            tcache_arena=cache_arena,
            reentrancy_level=level,
            arenas_tdata_bypass={0: False, 1: True}.get(bypass) if bypass is not None else None,
            arenas_tdata=tdata,
            narenas_tdata=narenas,
            arena=arena,
            iarena=iarena,
            arena_index=index,
            thread_allocated_bytes=allocated,
            thread_deallocated_bytes=deallocated,
            ticker=ticker,
        )
        if record.is_nominal and arena and index is None:
            wrong_arena = "the tsd of %s is bound to 0x%x, which is not an arena" % (who, arena)
            context.report(codes.TSD_WRONG, address, wrong_arena, None)
        return record

    def _read_ticker(self, tdata: Optional[int], index: int, thread: Optional[Thread]) -> Optional[Tuple[int, int]]:
        if not tdata:
            return None
        address = tdata + index * self.context.types.size_bytes("arena_tdata_s")
        try:
            view = self.context.view("arena_tdata_s", address)
        except UnreadableMemory:
            who = thread.lwp if thread is not None else "?"
            self.context.report(codes.TSD_UNREADABLE, address, "cannot read the tickers of thread %s" % who, None)
            return None
        return view["decay_ticker.tick"], view["decay_ticker.nticks"]


# ---------------------------------------------------------------------------------------------------- jemalloc's own lists


def read_nominal_list(context: JemallocContext) -> Optional[Tuple[List[int], Optional[int], Optional[str]]]:
    """tsd_nominal_tsds: the tsds in nominal states, as read_ql_ring. None before 5.2.0 and after 5.3.1, which have no such list."""
    path, head = context.types.first("tsd_s", *NOMINAL_LINKS), context.variable("tsd_nominal_tsds")
    place = context.types.place("tsd_s", path) if path is not None else None
    return None if place is None or head is None else read_ql_ring(context, head, place.offset)


def _compare_lists(context: JemallocContext, records: Sequence[Tsd]) -> None:
    """Reports where jemalloc's own list and thread-local storage contradict each other."""
    ring = read_nominal_list(context)
    if ring is None:
        return
    elements, where, wrong = ring
    if wrong is not None:
        what = "a link of jemalloc's list of initialised threads %s" % wrong
        context.report(codes.TSD_LIST_BROKEN, where, what, "threads were read from their thread-local storage instead")
        return
    listed = set(elements)
    by_tls = {record.address: record for record in records if record.is_nominal}
    for address in elements:
        if address not in by_tls:
            what = "a tsd on jemalloc's list of initialised threads belongs to no thread"
            context.report(codes.TSD_UNOWNED, address, what, "the thread exited without cleaning up, or the list was being changed")
    for place, record in by_tls.items():
        if place not in listed:
            text = "the tsd of thread %s is initialised, but not on jemalloc's list of initialised threads" % record.lwp
            context.report(codes.TSD_UNLISTED, place, text, "the list was being changed, or the tsd is damaged")


def _read_listed_tsds(context: JemallocContext, reader: _TsdReader, threads: Sequence[Thread], listed: Sequence[ArenaHandle]) -> Tsds:
    """Read initialised threads without thread-local storage: from tsd_nominal_tsds, or from the tcaches on the arenas' lists."""
    ring, where = read_nominal_list(context), None
    if ring is not None:
        addresses, where, _ = ring
        what = "cannot read thread-local storage: threads are known only from jemalloc's own list"
    else:
        addresses = _find_cache_tsds(context, reader, listed)
        what = "cannot read thread-local storage: threads are known only from the thread caches on the arenas' lists"
    context.report(codes.TSDS_FROM_LISTS, where, what, "see " + hint_command("doctor"))
    records = []
    left = list(threads)
    for address in addresses:
        thread = _find_owner(context, left, address)
        if thread is not None:
            left.remove(thread)
        records.append(reader.read(thread, address))
    records += [Tsd(thread, None, None, "cannot read thread-local storage") for thread in left]
    return Tsds(records, False)


def _find_cache_tsds(context: JemallocContext, reader: _TsdReader, listed: Sequence[ArenaHandle]) -> List[int]:
    addresses = []
    for cache, arena in find_listed_caches(context, listed)[0]:
        place = context.types.place("tsd_s", "tcache")
        address = cache - place.offset if place is not None else 0
        try:
            view = context.view("tsd_s", address)
        except UnreadableMemory:
            continue
        if view["arena"] == arena.address and reader.states.get(view["state"]) in NOMINAL_STATES and view["tcache_enabled"] == 1:
            addresses.append(address)
    return addresses


def _find_owner(context: JemallocContext, threads: Sequence[Thread], address: int) -> Optional[Thread]:
    """The one thread whose stack lies in the mapping that has its thread-local storage, below it; None if that is none or several."""
    span = next(((mapping.start, mapping.end) for mapping in context.target.mappings() if mapping.start <= address < mapping.end), None)
    if span is None:
        return None
    near: List[Tuple[int, Thread]] = []
    for thread in threads:
        if thread.thread_pointer is not None and span[0] <= thread.thread_pointer < span[1]:
            near.append((abs(thread.thread_pointer - address), thread))
        elif thread.stack_pointer is not None and span[0] <= thread.stack_pointer < address:
            near.append((address - thread.stack_pointer, thread))
    return min(near, key=lambda pair: pair[0])[1] if len(near) == 1 else None


LOW_BITS = 0xFFFF
"""A stack takes less than 64 KiB: from 5.3.0 on a bin keeps 16 bits of the addresses of its ends."""
MAX_NHBINS = 1 << 12
MAX_NCACHED = 1 << 16
"""Where tcache_bin_info cannot be read: more than any release allows."""
BIN_MEMBERS = (("stack_head",), ("low_bits_full",), ("low_bits_empty",), ("bin_info.ncached_max",))
"""Of each bin; the last from 5.3.1 on."""
READ_BYTES = 1 << 20
"""The stacks of one cache lie in one allocation; they are read together unless that is longer than this."""


class CacheStack(NamedTuple):
    """A run of pointers of one size class."""

    szind: int
    start: int
    """Address of the lowest."""
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record


class JemallocCache(NamedTuple):
    """A tcache_t with its blocks."""

    address: int
    arena_index: Optional[int]
    """The arena that has it on its list; None if none has."""
    tsd: Optional[Tsd]
    """Its thread's; None for explicit caches, and where no thread could be matched."""
    explicit: Optional[int]
    """The number that tcache.create gave; None for a thread's own."""
    stacks: Sequence[CacheStack] = ()
    """What the cache holds, stashed blocks too: they were freed, and jemalloc keeps them to find writes after that."""
    counted: Sequence[CacheStack] = ()
    """Those of them that jemalloc counts as ncached."""
    nhbins: int = 0
    """Size classes up to here have a bin."""
    pointers: "array[int]" = array("Q")
    """All blocks in it."""

    def list_slots(self, word_bytes: int) -> List[Tuple[int, int, int]]:
        """List (block, address of its slot, size class); none where a stack was not read whole."""
        stacks = sorted(self.stacks, key=lambda stack: stack.start)
        slots = [(stack.start + number * word_bytes, stack.szind) for stack in stacks for number in range(stack.count)]
        return [(pointer, *slot) for pointer, slot in zip(self.pointers, slots)] if len(slots) == len(self.pointers) else []


class _BinReader:
    """Reads the bins of caches by the constants of them all."""

    def __init__(self, context: JemallocContext) -> None:
        types, geometry = context.types, context.geometry
        self.context, self.word = context, geometry.word_bytes
        self.nhbins, disabled = context.variable("nhbins", 4), context.symbols.find("disabled_bin")
        """None where this build has no such variable: each cache has its own."""
        self.disabled = disabled.address if disabled is not None else None
        """The placeholder for bins that are turned off (5.3.1)."""
        pointer = context.variable("tcache_bin_info")
        count = min(self.nhbins, MAX_NHBINS) if self.nhbins is not None else len(geometry.size_classes)
        try:
            self._most = read_words(context.target, pointer, count, 2 if has_short_ncached_max(types) else 4) if pointer else []
        except UnreadableMemory:
            self._most = []
        element = types.place("tcache_s", "bins")
        struct = element.struct if element is not None else None
        self.picker = Picker(types, struct, BIN_MEMBERS, geometry.little_endian) if struct is not None else None
        """What is read of each bin from 5.3.0 on; None before."""

    def most(self, count: int) -> List[int]:
        """tcache_bin_info[szind].ncached_max of the first size classes; the widest bound where that cannot be read."""
        return list(self._most[:count]) if len(self._most) >= count else [MAX_NCACHED] * count

    def read(self, cache: JemallocCache) -> Tuple[JemallocCache, bool]:
        """The cache with its stacks, and whether it was read whole. A bin that cannot be right is reported and left out."""
        try:
            view = self.context.view("tcache_s", cache.address)
        except UnreadableMemory as problem:
            what = "cannot read the thread cache at 0x%x" % cache.address
            self.context.report(codes.CACHE_UNREADABLE, problem.address, what, "its blocks count as used")
            return cache, False
        wrong: List[Tuple[int, str]] = []
        cache = self._read_descending(cache, view, wrong) if view.has("bins") else self._read_ascending(cache, view, wrong)
        for szind, what in wrong:
            text = "size class %d of the thread cache at 0x%x: %s" % (szind, cache.address, what)
            self.context.report(codes.CACHE_BIN_WRONG, cache.address, text, "its blocks count as used")
        return cache, not wrong

    def _read_ascending(self, cache: JemallocCache, view: LayoutView, wrong: List[Tuple[int, str]]) -> JemallocCache:
        """Read the bins of 5.0 to 5.2: avail points just above the stack, avail[-ncached .. -1] are its members."""
        nbins = self.context.geometry.nbins
        nhbins = self.nhbins if self.nhbins is not None else len(self.context.geometry.size_classes)
        limits, stacks = self.most(nhbins), []
        for first, paths, limit in ((0, ("bins_small", "tbins_small"), nbins), (nbins, ("bins_large", "tbins_large"), nhbins)):
            path = view.types.first("tcache_s", *paths)
            if path is None:
                continue
            rows = zip(view.column(path, "ncached") or (), view.column(path, "avail") or ())
            for szind, (count, avail) in enumerate(rows, first):
                if szind >= limit:
                    break
                if not avail or not count:
                    continue
                if 0 < count <= limits[szind]:
                    stacks.append(CacheStack(szind, avail - count * self.word, count))
                else:
                    wrong.append((szind, "it counts %s of at most %d" % (count_noun(count, "block"), limits[szind])))
        return cache._replace(stacks=stacks, counted=stacks, nhbins=nhbins)

    def _read_descending(self, cache: JemallocCache, view: LayoutView, wrong: List[Tuple[int, str]]) -> JemallocCache:
        """Read the bins of 5.3.0 and later: stack_head[0 .. ncached-1], up to the address whose low bits are low_bits_empty;
        stashed blocks at the low end.

        From 5.3.1 on each bin knows its own ncached_max, and one that is turned off points to a common placeholder.
        """
        element, picker, word = view.types.place("tcache_s", "bins"), self.picker, self.word
        assert element is not None and picker is not None
        has_own = picker.addresses[-1] is not None
        nhbins = element.count if has_own or self.nhbins is None else min(element.count, self.nhbins)
        columns: Any = picker.columns(view.bytes_of("bins")[: nhbins * element.size_bytes], element.size_bytes)
        heads, full, empty, own = columns
        stashed, counted = [], []
        for szind, (head, low, high, limit) in enumerate(zip(heads, full, empty, own if has_own else self.most(nhbins))):
            if not head and high:  # both are written by cache_bin_init
                wrong.append((szind, "its stack_head is null"))
                continue
            if not head or head == self.disabled:
                continue
            count = (high - (head & LOW_BITS) & LOW_BITS) // word
            if count > limit:
                wrong.append((szind, "it holds %s of at most %d" % (count_noun(count, "block"), limit)))
                continue
            if count:
                counted.append(CacheStack(szind, head, count))
            # blocks between the low end of the array and low_bits_full (cache_bin_nitems_get_remote)
            kept = (low - (high - limit * word & LOW_BITS) & LOW_BITS) // word
            if kept and (self.disabled is not None or not has_own) and limit < MAX_NCACHED:
                if kept > limit:
                    wrong.append((szind, "it keeps %d stashed blocks of at most %d" % (kept, limit)))
                else:
                    stashed.append(CacheStack(szind, head + (count - limit) * word, kept))
        return cache._replace(stacks=[*stashed, *counted], counted=counted, nhbins=nhbins)


class JemallocCaches(NamedTuple):
    """The thread caches of one jemalloc."""

    caches: Sequence[JemallocCache]
    pointers: "array[int]"
    """What all of them hold, sorted."""
    complete: bool
    """Nothing is missing in `pointers`: caches were found by both or by one whole way, and each was read whole."""


def read_jemalloc_caches(
    context: JemallocContext, listed: Sequence[ArenaHandle], tsds: Tsds, has_stats: Optional[bool] = None
) -> JemallocCaches:
    """Read every thread cache, by the threads' tsds and by the arenas' lists. Contradictions and unreadable memory are reported.

    Builds without statistics put caches on no list (tcache.c: tcache_arena_associate): there, and if that is unknown and the lists are
    empty, the tsds alone lead to them.
    """
    on_lists, lists_complete = find_listed_caches(context, listed)
    lists_complete = lists_complete and (bool(on_lists) if has_stats is None else has_stats)
    explicit = read_explicit_caches(context)
    own = _find_own_caches(context, tsds)
    places = {address: JemallocCache(address, arena.index, own.get(address), explicit.get(address)) for address, arena in on_lists}
    for address, record in own.items():
        if address not in places:
            if lists_complete:
                what = "the cache of thread %s is on no arena's list" % record.lwp
                context.report(codes.CACHE_UNLISTED, address, what, "the list was being changed, or is damaged")
            places[address] = JemallocCache(address, None, record, None)
    for address, number in explicit.items():
        if address not in places and not lists_complete:
            places[address] = JemallocCache(address, None, None, number)
    if tsds.complete and not context.symbols.by_structure:  # there nothing tells explicit caches from others
        for place in places.values():
            if place.tsd is None and place.explicit is None:
                what = "a thread cache on arena %s's list belongs to no thread and is not an explicit one" % place.arena_index
                context.report(codes.CACHE_UNOWNED, place.address, what, None)
    complete = lists_complete or tsds.complete
    caches, all_pointers, reader = [], array("Q"), _BinReader(context)
    for place in places.values():
        if context.budget.expired():
            complete = False
            break
        cache, is_whole = reader.read(place)
        pointers = _read_pointers(context, cache.stacks)
        complete = complete and is_whole and len(pointers) == sum(stack.count for stack in cache.stacks)
        all_pointers.extend(pointers)
        caches.append(cache._replace(pointers=pointers))
    return JemallocCaches(caches, context.kernel.in_order(all_pointers), complete)


def _find_own_caches(context: JemallocContext, tsds: Tsds) -> Dict[int, Tsd]:
    """Address of the cache in each tsd where it is in use -> that tsd."""
    place = context.types.place("tsd_s", "tcache")
    using = [one for one in tsds.records if one.is_nominal and one.tcache_enabled and one.tcache_arena and one.address is not None]
    return {(one.address or 0) + place.offset: one for one in using} if place is not None else {}


def _read_pointers(context: JemallocContext, stacks: Sequence[CacheStack]) -> "array[int]":
    """The pointers of all stacks; those that cannot be read are reported and left out."""
    word, parts = context.geometry.word_bytes, []
    rows = sorted((stack.start, stack.count * word, stack.szind) for stack in stacks if stack.count)
    data_of = context.read_pieces([(start, size) for start, size, _ in rows], READ_BYTES)
    for start, size, szind in rows:
        part = data_of.get(start, b"")[:size]
        if len(part) < size:
            part = context.target.read_prefix(start, size)
            text = "cannot read the blocks of size class %d in a thread cache" % szind
            context.report(codes.CACHE_UNREADABLE, start + len(part), text, "they count as used")
        parts.append(part[: len(part) - len(part) % word])
    return context.unpack_pointers(b"".join(parts))


# ---------------------------------------------------------------------------------------------------- answers


def make_cache_rows(context: JemallocContext, caches: JemallocCaches, tsds: Tsds) -> List[ThreadCache]:
    """Make a row for each thread, then for each explicit cache, then for caches without a known thread."""
    by_tsd = {cache.tsd.address: cache for cache in caches.caches if cache.tsd is not None}
    answer = []
    for record in tsds.records:
        cache = by_tsd.get(record.address) if record.address is not None else None
        if cache is not None:
            answer.append(_make_cache_row(context, cache))
        else:
            known = None if record.state is None else 0
            name = record.thread.name if record.thread else None
            answer.append(ThreadCache(context.jemalloc.id, record.lwp, name, record.arena_index, None, known, known, []))
    answer += [
        _make_cache_row(context, cache)
        for cache in sorted(caches.caches, key=lambda cache: (cache.explicit is None, cache.explicit, cache.address))
        if cache.tsd is None
    ]
    return answer


def _make_cache_row(context: JemallocContext, cache: JemallocCache) -> ThreadCache:
    sizes, counts = context.geometry.size_classes, Counter[int]()
    for stack in cache.stacks:
        counts[stack.szind] += stack.count
    bins = [CacheBin(szind, sizes[szind], count, count * sizes[szind]) for szind, count in sorted(counts.items()) if count]
    thread = cache.tsd.thread if cache.tsd is not None else None
    return ThreadCache(
        allocator=context.jemalloc.id,
        lwp=thread.lwp if thread is not None else None,
        name=thread.name if thread is not None else None,
        tcache=TargetAddress(cache.address),
        arena=cache.arena_index if cache.arena_index is not None or cache.tsd is None else cache.tsd.arena_index,
        chunks=sum(cache_bin.chunks for cache_bin in bins),
        bytes=sum(cache_bin.bytes or 0 for cache_bin in bins),
        bins=bins,
        explicit=cache.explicit,
    )


LARGEST_CACHED = ("tcache_maxclass", "global_do_not_change_tcache_maxclass", "opt_tcache_max")
"""Variables with the largest size class of each cache, up to 5.3.0, from 5.3.1, and found without symbols."""
CACHE_SLOTS = (("opt_tcache_nslots_small_min", 20), ("opt_tcache_nslots_small_max", 200), ("opt_tcache_nslots_large", 20))
"""Blocks of each size class, and the usual numbers: constants up to 5.2."""
USUAL_LARGEST_BYTES = 32 << 10


def limit_cached_bytes(context: JemallocContext) -> Optional[int]:
    """Return the most bytes that all thread caches may hold by the options (tcache_ncached_max_compute), explicit caches included; None if
    no thread is known."""
    geometry, threads = context.geometry, len(context.target.threads())
    largest = next((value for value in map(context.variable, LARGEST_CACHED) if value), USUAL_LARGEST_BYTES)
    least, most, large = (context.variable(name, 4) or usual for name, usual in CACHE_SLOTS)
    lg_factor = context.variable("opt_lg_tcache_nslots_mul", signed=True)
    factor = 2.0 ** min(max(1 if lg_factor is None else lg_factor, -16), 16)
    slots = [max(least, min(most, int(info.nregs * factor))) for info in geometry.bins]
    sizes = [size for size in geometry.size_classes if size <= largest]
    own_bytes = sum((count + count % 2) * size for count, size in zip([*slots, *[large] * len(sizes)], sizes))
    return (threads + (context.variable("tcaches_past", 4) or 0)) * own_bytes if threads else None


CountedCaches = Tuple[Optional[int], Optional[int]]
"""Bytes in the caches on one arena's list, as jemalloc adds them up (arena_stats_merge), and of them blocks kept back to find writes after
free: 0 unless the build does that (from 5.3.0)."""


def count_cached_bytes(context: JemallocContext, caches: JemallocCaches, listed: Sequence[ArenaHandle]) -> Dict[int, CountedCaches]:
    """Arena index -> bytes, for each of these arenas; empty if not every cache could be read.

    From 5.1.0 to 5.2.1 tcache_bytes leaves out large size classes: arena_stats_merge (arena.c) takes bins_large[i] for i from NBINS on,
    as if the array began with the small ones, and multiplies what it finds there by the size of class i.
    """
    if not caches.complete:
        return {}
    geometry = context.geometry
    sums: Dict[int, Tuple[int, int]] = {arena.index: (0, 0) for arena in listed}
    shifted = geometry.nbins if omits_large_tcache_bins(context.jemalloc.version) else 0
    for cache in caches.caches:
        if cache.arena_index not in sums:
            continue
        counted_bytes, counting = 0, set(cache.counted)
        for stack in cache.counted:
            szind = stack.szind if stack.szind < geometry.nbins else stack.szind - shifted
            if szind == stack.szind or geometry.nbins <= szind < cache.nhbins:
                counted_bytes += stack.count * geometry.size_classes[szind]
        stashed_bytes = sum(stack.count * geometry.size_classes[stack.szind] for stack in cache.stacks if stack not in counting)
        before = sums[cache.arena_index]
        sums[cache.arena_index] = before[0] + counted_bytes, before[1] + stashed_bytes
    return dict(sums)
