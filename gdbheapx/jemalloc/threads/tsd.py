"""Each thread's tsd_t: its state, arena, counters and decay ticker (tsd.h, tsd.c)."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.hints import ask
from gdbheapx.inferior.base import Thread
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection.layouts import tsd_states
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.jemalloc.threads.tcache_lists import Ring, listed_caches, read_ring
from gdbheapx.layout.view import Picker

NOMINAL = ("nominal", "nominal_slow", "nominal_recompute")
"""States of a thread that uses jemalloc: tsd_state_nominal to tsd_state_nominal_max."""
LINKS = ("tsd_link.qre_next", "tcache.tsd_link.qre_next")
"""Where tsd_nominal_tsds links its members: from 5.3.0, in 5.2."""


class Ticker(NamedTuple):
    """ticker_t, from 5.3.0 ticker_geom_t."""

    tick: int
    """Ticks left until the arena's decay is looked after."""
    nticks: int


class Tsd(NamedTuple):
    """One thread's tsd_t. A member is None if this release has none, or it cannot be read."""

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
    iarena_index: Optional[int] = None
    thread_allocated_bytes: Optional[int] = None
    """Stays 0 in builds without statistics up to 5.2."""
    thread_deallocated_bytes: Optional[int] = None
    ticker: Optional[Ticker] = None
    """That of its own arena."""

    @property
    def lwp(self) -> Optional[int]:
        """Kernel thread id."""
        return self.thread.lwp if self.thread is not None else None

    @property
    def is_nominal(self) -> bool:
        """It uses jemalloc as threads do."""
        return self.state in NOMINAL


class Tsds(NamedTuple):
    """All threads."""

    records: Sequence[Tsd]
    complete: bool
    """Every thread's tsd was read, or is known not to exist."""


def read_tsds(context: Context, listed: Sequence[Arena]) -> Tsds:
    """Every thread's tsd by thread-local storage; without that, those on jemalloc's own lists. What cannot be read is reported."""
    if "tsd_s" not in context.types.structs:
        return Tsds([Tsd(thread, None, None, "the layout of its tsd is not known") for thread in context.target.threads()], False)
    reader = _Reader(context, {arena.address: arena.index for arena in listed})
    threads = list(context.target.threads())
    local = context.symbols.thread_local("tsd_tls")
    if local is None:
        return _from_lists(context, reader, threads, listed)
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
        _compare(context, records)
    return Tsds(records, complete)


WANTED: Sequence[Tuple[str, ...]] = (
    ("state",),
    ("tcache_enabled",),
    ("tcache_slow.arena", "tcache.arena"),
    ("reentrancy_level",),
    ("arenas_tdata_bypass",),
    ("arenas_tdata",),
    ("narenas_tdata",),
    ("arena",),
    ("iarena",),
    ("thread_allocated",),
    ("thread_deallocated",),
    ("arena_decay_ticker.tick",),
    ("arena_decay_ticker.nticks",),
)
"""What is read of each tsd_s, in the order in which _Reader takes it."""


class _Reader:
    """Reads tsd_s by the places of its members."""

    def __init__(self, context: Context, arenas: Dict[int, int]) -> None:
        self.context = context
        self.arenas = arenas
        self.states = tsd_states(context.types, context.jemalloc.version)
        self.size_bytes = context.types.size_bytes("tsd_s")
        self.picker = Picker(context.types, "tsd_s", WANTED, context.geometry.little_endian)

    def read(self, thread: Optional[Thread], address: int) -> Tsd:
        """One thread's."""
        context = self.context
        who = "thread %d" % thread.lwp if thread is not None else "a thread"
        try:
            data = context.target.read(address, self.size_bytes)
        except Unreadable as problem:
            context.report(codes.TSD_UNREADABLE, problem.address, "cannot read the tsd of %s" % who, "its state and its cache are unknown")
            return Tsd(thread, address, None, "cannot read its tsd at 0x%x" % address)
        number, enabled, cache_arena, level, bypass, tdata, narenas, arena, iarena, allocated, deallocated, tick, nticks = self.picker.pick(
            data
        )
        state = self.states.get(number) if number is not None else None
        if state is None:
            context.report(
                codes.TSD_WRONG, address + (self.picker.addresses[0] or 0), "the tsd of %s has invalid state %s" % (who, number), None
            )
            return Tsd(thread, address, None, "its tsd has invalid state %s" % number)
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
            arena_index=self.arenas.get(arena or 0),
            iarena_index=self.arenas.get(iarena or 0),
            thread_allocated_bytes=allocated,
            thread_deallocated_bytes=deallocated,
            ticker=None if tick is None or nticks is None else Ticker(tick, nticks),
        )
        self._check(record, who)
        return record if record.ticker is not None else record._replace(ticker=self._ticker(record))

    def _check(self, record: Tsd, who: str) -> None:
        if record.is_nominal and record.arena and record.arena_index is None:
            self.context.report(
                codes.TSD_WRONG, record.address, "the tsd of %s is bound to 0x%x, which is not an arena" % (who, record.arena), None
            )

    def _ticker(self, record: Tsd) -> Optional[Ticker]:
        """arenas_tdata[its arena].decay_ticker, where the tsd itself has no arena_decay_ticker (arena_tdata_get,
        jemalloc_internal_inlines_a.h)."""
        index = record.arena_index
        if not record.arenas_tdata or index is None or index >= (record.narenas_tdata or 0):
            return None
        address = record.arenas_tdata + index * self.context.types.size_bytes("arena_tdata_s")
        try:
            tdata = self.context.view("arena_tdata_s", address)
        except Unreadable:
            self.context.report(codes.TSD_UNREADABLE, address, "cannot read the tickers of thread %s" % (record.lwp or "?"), None)
            return None
        return Ticker(tdata["decay_ticker.tick"], tdata["decay_ticker.nticks"])


# ---------------------------------------------------------------------------------------------------- jemalloc's own lists


def nominal_list(context: Context) -> Optional[Ring]:
    """tsd_nominal_tsds: the tsds in nominal states. None before 5.2.0 and after 5.3.1, which have no such list."""
    path, head = context.types.first("tsd_s", *LINKS), context.variable("tsd_nominal_tsds")
    place = context.types.place("tsd_s", path) if path is not None else None
    return None if place is None or head is None else read_ring(context, head, place.offset)


def _compare(context: Context, records: Sequence[Tsd]) -> None:
    """Reports where jemalloc's own list and thread-local storage contradict each other."""
    ring = nominal_list(context)
    if ring is None:
        return
    if ring.what is not None:
        context.report(
            codes.TSD_LIST_BROKEN,
            ring.where,
            "a link of jemalloc's list of initialised threads %s" % ring.what,
            "threads were read from their thread-local storage instead",
        )
        return
    listed = set(ring.elements)
    by_tls = {record.address: record for record in records if record.is_nominal}
    for address in ring.elements:
        if address not in by_tls:
            context.report(
                codes.TSD_UNOWNED,
                address,
                "a tsd on jemalloc's list of initialised threads belongs to no thread",
                "the thread exited without cleaning up, or the list was being changed",
            )
    for place, record in by_tls.items():
        if place not in listed:
            text = "the tsd of thread %s is initialised, but not on jemalloc's list of initialised threads" % record.lwp
            context.report(codes.TSD_UNLISTED, place, text, "the list was being changed, or the tsd is damaged")


def _from_lists(context: Context, reader: _Reader, threads: Sequence[Thread], listed: Sequence[Arena]) -> Tsds:
    """Without thread-local storage: initialised threads from tsd_nominal_tsds, or from the tcaches on the arenas' lists."""
    ring = nominal_list(context)
    hint = "see " + ask("doctor")
    if ring is not None:
        addresses = ring.elements
        context.report(
            codes.TSDS_FROM_LISTS, ring.where, "cannot read thread-local storage: threads are known only from jemalloc's own list", hint
        )
    else:
        addresses = _behind_caches(context, reader, listed)
        context.report(
            codes.TSDS_FROM_LISTS,
            None,
            "cannot read thread-local storage: threads are known only from the thread caches on the arenas' lists",
            hint,
        )
    records = []
    left = list(threads)
    for address in addresses:
        thread = _owner_of(context, left, address)
        if thread is not None:
            left.remove(thread)
        records.append(reader.read(thread, address))
    records += [Tsd(thread, None, None, "cannot read thread-local storage") for thread in left]
    return Tsds(records, False)


def _behind_caches(context: Context, reader: _Reader, listed: Sequence[Arena]) -> List[int]:
    """tsds whose tcache hangs on an arena's list: the tcache is a member of the tsd; explicit ones are not, and do not look so."""
    addresses = []
    for cache in listed_caches(context, listed).caches:
        place = context.types.place("tsd_s", "tcache")
        address = cache.address - place.offset if place is not None else 0
        try:
            view = context.view("tsd_s", address)
        except Unreadable:
            continue
        if view["arena"] == cache.arena_address and reader.states.get(view["state"]) in NOMINAL and view["tcache_enabled"] == 1:
            addresses.append(address)
    return addresses


def _owner_of(context: Context, threads: Sequence[Thread], address: int) -> Optional[Thread]:
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
