"""Read the free lists: fastbins (singly linked), bins 1 to 126 (doubly linked: unsorted, small, large), and thread caches (malloc.c:
tcache_get, tcache_put). All lists of a process are followed in one call: that costs far less than one by one.

A thread is attached to an arena before it gets a cache and until it has given the cache up (arena.c: arena_get2,
__malloc_arena_thread_freeres), and attached_threads counts those (since 2.23, before there were caches). So an arena that counts no more
threads than were found to point to it has none that is missing; one that counts more has.
"""

from array import array
from bisect import bisect_right
from typing import Any, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.answers import make_collector
from gdbheapx.common import problems
from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.hints import hint_command
from gdbheapx.common.problems import Diagnostic, PartialSink
from gdbheapx.common.ranges import Range
from gdbheapx.common.units import count_noun
from gdbheapx.glibc import codes, layouts
from gdbheapx.glibc.arenas import LOOK_AGAIN, Arena, ArenaWalk, Context, Glibc, anonymous_ranges, report_arena, tell_unless_changing
from gdbheapx.glibc.layouts import TCACHE as TCACHE_STRUCT
from gdbheapx.glibc.records import BinRow
from gdbheapx.inferior.base import Target, Thread, ThreadLocal
from gdbheapx.kernel.common.library import ADDRESS_MASK
from gdbheapx.kernel.glibc import records as api
from gdbheapx.layout.view import LayoutView, read_view

KIND_BITS = 7
MAX_REPORTED = 8
"""Chunks on two lists, threads or arenas that are named; the rest is counted."""
UNSORTED = 1
NOT_DUMPED = (
    "the core lacks this thread's stack: chunks in its cache count as used; "
    "a core that the kernel writes (see core(5)), or a newer gdb, has it"
)


class FreeLists(api.NativeFreeLists):
    """Lists to follow in one heap."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context

    def follow(self, collect: bool = False) -> api.NativeFollowedList:
        """Follow all lists. If time runs out that is reported, and the lists count as far as they were followed."""
        context, ranges = self.context, anonymous_ranges(self.context.target)
        most = sum(end - start for start, end in ranges) // context.glibc.geometry.min_chunk_bytes
        followed = context.walker.follow(self, api.NativeRules(context.glibc.traits.safe_linking, collect, most))
        if api.CUT in followed.problems:
            message = "the walk of the free lists did not finish: %s" % context.budget.reason
            context.report(codes.LISTS_CUT, None, message, "the chunks reached so far are counted")
        if api.UNREADABLE not in followed.problems:
            return followed
        # a link that leads to where chunks may lie is not damaged because they were not read: they are in swap, or not in the core
        pairs = zip(followed.problems, followed.ats)
        settled = [api.UNREAD if problem == api.UNREADABLE and is_within(ranges, at) else problem for problem, at in pairs]
        return followed._replace(problems=settled)


def is_within(ranges: Sequence[Range], address: int) -> bool:
    """Return whether one of these sorted ranges covers the address."""
    place = bisect_right(ranges, (address, ADDRESS_MASK)) - 1
    return place >= 0 and address < ranges[place][1]


# ---------------------------------------------------------------------------------------------------- fastbins and bins


class AskedLists(NamedTuple):
    """The fastbins or the bins of one arena that are not empty, among the lists asked for."""

    arena: Arena
    kind: int
    """FAST or BIN."""
    first: int
    """Number of the first list."""
    indexes: Sequence[int]
    """Numbers of the bins."""

    def name(self, index: int) -> str:
        """Return the name of a bin for messages."""
        return "%s %d of %s" % ("fastbin" if self.kind == api.FAST else "bin", index, self.arena.title)

    def damage_address(self, number: int, index: int, followed: api.NativeFollowedList, glibc: Glibc) -> int:
        """Return the address of the chunk or head that holds the bad link of list `number`."""
        if followed.problems[number] == api.BACK_LINK:
            return followed.ats[number]
        return followed.lasts[number] or head_address(self.arena, self.kind, index, glibc)


class Bin(NamedTuple):
    """A fastbin or bin that is not empty."""

    kind: str
    """`fast`, `unsorted`, `small` or `large`."""
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    chunks: int
    bytes: int
    raw_bytes: int
    """Sum of the size fields with their flag bits, as the next two have them: malloc_info prints these. 0 for a fastbin."""
    raw_min: int
    raw_max: int
    cut: bool
    """Time ran out before its end: there are more chunks than these."""


def kind_of_bin(index: int) -> str:
    """Return `unsorted`, `small` or `large`."""
    return "unsorted" if index == UNSORTED else "small" if index < layouts.NSMALLBINS else "large"


def most_chunks(arena: Arena, glibc: Glibc) -> int:
    """No list of the arena can be longer than this: its size over MINSIZE."""
    return max(arena.state["system_mem"], arena.state["max_system_mem"]) % (1 << 48) // glibc.geometry.min_chunk_bytes + 1


def head_address(arena: Arena, kind: int, index: int, glibc: Glibc) -> int:
    """Return the address of a fastbin's head, or of a bin's header: bin_at(m, i) (malloc.c)."""
    word = glibc.geometry.word_bytes
    if kind == api.FAST:
        return arena.state.address_of("fastbinsY") + index * word
    return arena.state.address_of("bins") + 2 * (index - 2) * word


def list_bin_headers(arena: Arena, glibc: Glibc) -> Any:
    """Return array('Q') of the headers of bins 1 to 127: the addresses that they have as if they were chunks."""
    first, step = head_address(arena, api.BIN, 1, glibc), 2 * glibc.geometry.word_bytes
    return array("Q", range(first, first + step * (layouts.NBINS - 1), step))


def list_used_bins(arena: Arena, kind: int, glibc: Glibc) -> List[int]:
    """Return the numbers of the arena's fastbins or bins that are not empty. Before the first malloc (up to 2.41) bins are all 0, and from
    2.43 on there are no fastbins.
    """
    if kind == api.FAST:
        return [index for index, head in enumerate(arena.state.numbers("fastbinsY")) if head] if arena.state.has("fastbinsY") else []
    own, heads = list_bin_headers(arena, glibc), arena.state.numbers("bins")[0::2]
    return [] if heads == own else [index for index, head, header in zip(range(1, layouts.NBINS), heads, own) if head not in (0, header)]


def ask_lists(lists: FreeLists, arena: Arena, kind: int) -> AskedLists:
    """Add the arena's fastbins (FAST) or bins (BIN) that are not empty."""
    glibc = lists.context.glibc
    used = list_used_bins(arena, kind, glibc)
    if kind == api.FAST:
        heads = [arena.state.numbers("fastbinsY")[index] for index in used]
    else:
        heads = [head_address(arena, api.BIN, index, glibc) for index in used]
    return AskedLists(arena, kind, lists.add(kind, heads, most_chunks(arena, glibc)), used)


def collect_bins(glibc: Glibc, group: AskedLists, followed: api.NativeFollowedList, report: PartialSink) -> List[Bin]:
    """Return the bins that are not empty; a broken one is reported and counts up to the damage."""
    made, is_fast = [], group.kind == api.FAST
    for number, index in enumerate(group.indexes, group.first):
        message, problem, chunks = api.describe_damage(followed, number), followed.problems[number], followed.counts[number]
        if message is not None:
            code = codes.LIST_UNREAD if problem == api.UNREAD else codes.FASTBIN_BROKEN if is_fast else codes.BIN_BROKEN
            hint = "the chunks after it count as used" if is_fast else "`%s` counts the chunks before it" % hint_command("bins")
            report(code, group.damage_address(number, index, followed, glibc), "%s: %s" % (group.name(index), message), hint)
        if is_fast:
            made.append(Bin("fast", index, chunks, chunks * layouts.fast_size(index, glibc.geometry), 0, 0, 0, problem == api.CUT))
        else:
            raw = (followed.raw_bytes[number], followed.raw_mins[number], followed.raw_maxs[number])
            made.append(Bin(kind_of_bin(index), index, chunks, followed.bytes[number], *raw, problem == api.CUT))
    return made


def each_arena(context: Context, arenas: Sequence[Arena]) -> Iterator[Tuple[Context, Arena, List[Bin]]]:
    """Yield each arena with its fastbins and bins that are not empty, and the context that collects complaints about it."""
    lists = FreeLists(context)
    groups = [(ask_lists(lists, arena, api.FAST), ask_lists(lists, arena, api.BIN)) for arena in arenas]
    followed = lists.follow()
    for arena, (fast, bins) in zip(arenas, groups):
        complaints: List[Diagnostic] = []
        own = context._replace(report=make_collector(complaints))
        yield own, arena, [group for lists_ in (fast, bins) for group in collect_bins(own.glibc, lists_, followed, own.report)]
        report_arena(context, arena, complaints)


def collect_bin_members(context: Context, walk: ArenaWalk) -> Sequence[int]:
    """Return chunk addresses in the arena's bins, sorted: places where a chain can be joined again after damage."""
    if walk.members is None:
        lists = FreeLists(context)
        ask_lists(lists, walk.arena, api.BIN)
        walk.members = lists.follow(collect=True).members
    return walk.members


def collect_unsorted(context: Context, arenas: Sequence[Arena]) -> Sequence[int]:
    """Return the chunks in the unsorted bins, sorted."""
    lists = FreeLists(context)
    for arena in arenas:
        header = head_address(arena, api.BIN, UNSORTED, context.glibc)
        if arena.state.numbers("bins")[0] not in (0, header):
            lists.add(api.BIN, [header], most_chunks(arena, context.glibc))
    return lists.follow(collect=True).members if len(lists) else ()


def make_glibc_bin_rows(context: Context, arena: Arena, bins: Sequence[Bin]) -> List[BinRow]:
    """Return the rows of `bins` for one arena."""
    glibc, rows = context.glibc, []
    for item in bins:
        low: Optional[int] = None
        high: Optional[int] = None
        if item.kind == "fast":
            low = high = layouts.fast_size(item.index, glibc.geometry)
        elif item.index != UNSORTED:
            low, high = layouts.bin_range(item.index, glibc.geometry)
        chunks, bytes_ = (None, None) if item.cut else (item.chunks, item.bytes)
        rows.append(BinRow(glibc.id, arena.index, item.kind, item.index, low, high, chunks, bytes_))
    return rows


# ---------------------------------------------------------------------------------------------------- thread caches


class Cache(NamedTuple):
    """A thread's cache."""

    thread: Thread
    address: Optional[int]
    """Its tcache_perthread_struct; None if the thread has none (it never used malloc, or this build has no tcache) or it is not known."""
    arena: Optional[int]
    """thread_arena: address of a malloc_state; 0 if the thread is attached to none; None if it is not known."""
    first: Optional[int] = None
    """Number of the first of its lists among those asked for, one for each bin; None if it has none, or they are not known."""
    trouble: "Optional[CacheTrouble]" = None
    """None: it was read, or it is certain that the thread has none. With an address the thread has, or had, a cache all the same."""


CacheTrouble = Tuple[Optional[int], str]
"""(address, reason) why a cache is not known."""


class Caches(NamedTuple):
    """Caches of all threads."""

    caches: Sequence[Cache]
    known: bool
    """Every thread's is known, so the lists are complete."""
    sizes: Sequence[Optional[int]]
    """Chunk size of each bin; None for the large bins."""
    expected: Sequence[int]
    """array('Q'): how many chunks the structs count in each list, cache after cache; empty if that is not known."""

    def lists(self, cache: Cache) -> range:
        """Return the numbers of the cache's lists among those asked for, bin by bin."""
        return range(0) if cache.first is None else range(cache.first, cache.first + len(self.sizes))


def _read_cache(context: Context, address: int) -> Tuple[Optional[LayoutView], str]:
    """Return the struct of a thread cache in a chunk that tcache_init could have got for it, or None and the reason against it."""
    geometry, struct = context.glibc.geometry, context.glibc.tcache
    try:
        record = read_view(context.target, context.glibc.types, TCACHE_STRUCT.name, address)
    except UnreadableMemory:
        return None, "cannot read its tcache at 0x%x" % address
    field = context.target.read_prefix(address - geometry.word_bytes, geometry.word_bytes)
    size = int.from_bytes(field, context.target.byte_order) & ~7 if len(field) == geometry.word_bytes else 0
    is_chunk = struct is not None and layouts.is_tcache_chunk(size, struct, geometry.word_bytes, geometry.alignment_bytes)
    if not is_chunk or address % geometry.alignment_bytes:
        return None, "no tcache at 0x%x: there is no chunk of that size" % address
    return record, ""


def _read_cache_counts(context: Context, record: LayoutView) -> Sequence[int]:
    """Return the number of chunks in each bin as the struct counts; since 2.42 num_slots counts down from mp_.tcache_count. Empty if that
    is not known.
    """
    numbers = record.numbers("counts") if record.has("counts") else array("Q")
    limit = context.glibc.read_setting(context.target, "tcache_count") if record.has("num_slots") else None
    return numbers if limit is None else array("Q", [max(limit - left, 0) for left in record.numbers("num_slots")])


def _find_cache(
    context: Context, pointers: Optional[ThreadLocal], thread: Thread, owners: Dict[int, int]
) -> Tuple[Optional[int], Optional[LayoutView], Optional[CacheTrouble]]:
    """Return the address of a thread's cache, its struct, and why it is not known. `pointers`: None if they cannot be found. `owners`: the
    thread of each cache so far.
    """
    place = pointers.addresses.get(thread.lwp) if pointers is not None else None
    if place is None:
        why = "cannot find its thread-local storage" if pointers is None else pointers.unknown.get(thread.lwp)
        return None, None, None if why is None else (None, why)
    address = _read_pointer(context.target, place)
    if address is None:
        return None, None, (place, "cannot read its thread-local storage")
    if not address or (context.glibc.traits.mmapped_trailer and is_within(context.target.file_ranges(), address)):
        return None, None, None  # 2.43: &__tcache_dummy, an empty read-only stand-in inside libc
    if owners.setdefault(address, thread.lwp) != thread.lwp:
        return address, None, (place, "its tcache is the one of thread %d" % owners[address])
    record, why = _read_cache(context, address)
    return address, record, None if record is not None else (address, why)


def _read_pointer(target: Target, address: int) -> Optional[int]:
    try:
        return target.read_word(address)
    except UnreadableMemory:
        return None


def read_caches(lists: FreeLists, arenas: Sequence[Arena]) -> Caches:
    """Read every thread's cache; its lists are added to `lists`, which must be empty.

    If thread-local storage cannot be read, or time runs out, that is reported and `known` is False.
    """
    context, glibc = lists.context, lists.context.glibc
    target, threads, has_caches = context.target, context.target.threads(), glibc.tcache is not None
    attached = glibc.thread_local(target, "thread_arena")
    pointers = glibc.thread_local(target, "tcache") if has_caches else None
    if has_caches and pointers is None:
        message = "cannot read thread-local storage: chunks in thread caches count as used"
        context.report(problems.THREAD_LOCALS_UNREADABLE, None, message, "see " + hint_command("doctor"))
    expected, owners = array("Q"), {}  # type: Any, Dict[int, int]
    caches: List[Cache] = []
    for thread in threads:
        if context.budget.expired():
            break
        arena = first = None
        if attached is not None:
            place = attached.addresses.get(thread.lwp)
            arena = _read_pointer(target, place) if place is not None else None if thread.lwp in attached.unknown else 0
        address, record, trouble = _find_cache(context, pointers, thread, owners) if has_caches else (None, None, None)
        if record is not None:
            heads = record.numbers("entries")
            first = lists.add(api.TCACHE, heads[: layouts.TCACHE_SMALL_BINS], layouts.MAX_TCACHE_COUNT)
            lists.add(api.TCACHE_SIZED, heads[layouts.TCACHE_SMALL_BINS :], layouts.MAX_TCACHE_COUNT)
            expected.extend(_read_cache_counts(context, record))
        caches.append(Cache(thread, address, arena, first, trouble))
    known = not has_caches
    if len(caches) < len(threads):
        message = "not all thread caches were read: %s" % context.budget.reason
        context.report(codes.CACHES_CUT, None, message, "chunks in the others count as used")
    elif pointers is not None:
        caches, known = _settle_caches(context, arenas, caches)
    bins = glibc.tcache.members["entries"].count if glibc.tcache is not None else 0
    sizes = [layouts.tcache_size(index, glibc.geometry) if index < layouts.TCACHE_SMALL_BINS else None for index in range(bins)]
    return Caches(caches, known, sizes, expected if len(expected) == len(lists) else array("Q"))


def _settle_caches(context: Context, arenas: Sequence[Arena], caches: List[Cache]) -> Tuple[List[Cache], bool]:
    """Return the caches, and whether all are known; what is not known is reported.

    The arenas count the threads that are attached to them: whether a thread whose cache was not found has one follows from that.
    """
    complaints: List[Diagnostic] = []
    own = context._replace(report=make_collector(complaints))
    missing = {arena.address: arena.state.get("attached_threads") or 0 for arena in arenas}
    for cache in caches:
        if cache.arena in missing and (cache.trouble is None or cache.address):
            missing[cache.arena] -= 1
    missing_threads = sum(count for count in missing.values() if count > 0)
    is_attached_known = all(cache.arena is not None for cache in caches if cache.trouble is None)
    troubles = [(cache.thread, cache.trouble) for cache in caches if cache.trouble is not None]
    if troubles and (not is_attached_known or missing_threads or any(cache.address for cache in caches if cache.trouble is not None)):
        _report_troubles(own, troubles)
        known = False
    else:
        caches = [cache if cache.trouble is None else Cache(cache.thread, None, 0) for cache in caches]
        unattached = sum(1 for cache in caches if cache.arena == 0 and not cache.address)
        # these may be on their way in or out, and have no cache then
        known = not is_attached_known or missing_threads <= unattached
        lost = [] if known else [(arena, missing[arena.address]) for arena in arenas if missing[arena.address] > 0]
        for arena, count in lost[:MAX_REPORTED]:
            message = "%s attached to %s %s not found" % (count_noun(count, "thread"), arena.title, "was" if count == 1 else "were")
            exited = "the count includes threads that exited by the bare system call, or that a fork left behind"
            own.report(codes.CACHES_LOST, arena.address, message, "chunks in their caches count as used; " + exited)
        known = known and _has_no_orphan(own, arenas, caches)
    tell_unless_changing(context, complaints, codes.CACHES_CHANGING, "threads start and exit: the caches of some were not found")
    return caches, known


def _report_troubles(context: Context, troubles: Sequence[Tuple[Thread, CacheTrouble]]) -> None:
    target = context.target
    for thread, (where, why) in troubles[:MAX_REPORTED]:
        pointer = thread.thread_pointer if target.kind == "core" else None
        # the control block lies on top of the stack, in one mapping with it
        hint = NOT_DUMPED if pointer and not target.read_prefix(pointer, 1) else "chunks in its cache count as used"
        context.report(codes.CACHE_UNKNOWN, where, "thread %d: %s" % (thread.lwp, why), hint)
    if len(troubles) > MAX_REPORTED:
        message = "the caches of %s are unknown" % count_noun(len(troubles) - MAX_REPORTED, "more thread")
        context.report(codes.CACHE_UNKNOWN, None, message, "chunks in them count as used")


def _has_no_orphan(context: Context, arenas: Sequence[Arena], caches: Sequence[Cache]) -> bool:
    """Return False, with a report, if a thread is attached to an arena and has no cache, and a cache that is no thread's lies at the
    place of the first thread's: in the arena's first chunk. A thread that asked for aligned memory alone has none (up to 2.41), nor one
    that is ending.
    """
    owned = {cache.address for cache in caches}
    by_address = {arena.address: arena for arena in arenas}
    for cache in caches:
        arena = by_address.get(cache.arena or 0)
        if cache.address or arena is None:
            continue
        glibc, first = context.glibc, arena.address + context.glibc.malloc_state.size_bytes
        if arena.is_main:
            first = glibc.read_setting(context.target, "sbrk_base") or 0
        address = layouts.align_chunk(first, glibc.geometry) + 2 * glibc.geometry.word_bytes
        if first and address not in owned and _is_in_use(context, address):
            message = "thread %d has no tcache, and the one at 0x%x belongs to no thread" % (cache.thread.lwp, address)
            context.report(codes.CACHE_UNKNOWN, address, message, "the thread's pointer to it may be damaged; chunks in it count as used")
            return False
    return True


def _is_in_use(context: Context, address: int) -> bool:
    """Return whether a thread cache is here that holds something: a chunk of its size, in use, with as many lists as are counted to hold
    chunks.
    """
    record, word = _read_cache(context, address)[0] if context.glibc.tcache is not None else None, context.glibc.geometry.word_bytes
    if record is None:
        return False
    try:
        following = address - 2 * word + (context.target.read_word(address - word) & ~7)
        if not context.target.read_word(following + word) & 1:
            return False
    except UnreadableMemory:
        return False
    heads, counted = record.numbers("entries"), _read_cache_counts(context, record)
    return any(heads) and len(heads) == len(counted) and all(bool(head) == bool(count) for head, count in zip(heads, counted))


def name_cache_bin(cache: Cache, index: int) -> str:
    """Return the name of a thread cache's bin for messages."""
    return "tcache bin %d of thread %d" % (index, cache.thread.lwp)


def check_cache_lists(context: Context, caches: Caches, followed: api.NativeFollowedList) -> None:
    """Report every list that is broken, and those that do not hold as many chunks as their struct counts.

    A thread changes its cache under no lock: between two steps of its change the list is right and the count is not.
    """
    group = sum(len(caches.lists(cache)) for cache in caches.caches)
    if not any(followed.problems[:group]) and (not caches.expected or caches.expected == followed.counts[:group]):
        return
    complaints: List[Diagnostic] = []
    glibc, at_work, is_changing = context.glibc, context.threads_at_work(), False
    for cache in caches.caches:
        for index, number in enumerate(caches.lists(cache)):
            problem, count = followed.problems[number], followed.counts[number]
            apart = caches.expected[number] - count if caches.expected else 0
            if context.target.kind == "live" and not problem and abs(apart) == 1:
                continue  # a step of tcache_put or tcache_get
            if cache.thread.lwp in at_work and problem not in (0, api.CUT):
                is_changing = True
                continue
            name, message = name_cache_bin(cache, index), api.describe_damage(followed, number)
            if message is not None:
                assert glibc.tcache is not None and cache.address is not None
                head = cache.address + glibc.tcache.members["entries"].offset + index * glibc.geometry.word_bytes
                code = codes.LIST_UNREAD if problem == api.UNREAD else codes.CACHE_BROKEN
                hint = "the chunks after it count as used"
                complaints.append(Diagnostic(code, followed.lasts[number] or head, "%s: %s" % (name, message), hint))
            elif apart and problem != api.CUT:
                but = "lists %d" % count if count else "its list is empty"
                message = "%s counts %s but %s" % (name, count_noun(count + apart, "chunk"), but)
                complaints.append(Diagnostic(codes.CACHE_MISCOUNTS, cache.address, message, None))
    if is_changing:
        context.report(codes.CACHES_CHANGING, None, "thread caches are in the middle of a change", LOOK_AGAIN)
    for complaint in complaints:
        context.report(*complaint)


class Singles(NamedTuple):
    """Thread caches and fastbins as they were followed, and the chunks that look used and are free: members of both."""

    caches: Caches
    fast: Sequence[AskedLists]
    followed: api.NativeFollowedList
    heads: Sequence[int]
    """The first entry of each list."""

    @property
    def mapped(self) -> FrozenSet[int]:
        """Return mapped chunks in thread caches: in no arena (2.43)."""
        return frozenset(self.followed.mapped)


def read_singles(context: Context, arenas: Sequence[Arena], walks: Sequence[ArenaWalk], heap_max: int) -> Singles:
    """Follow all lists of chunks that look used and are free, and report what is on two of them to the arena that owns it."""
    lists = FreeLists(context)
    caches = read_caches(lists, arenas)
    fast = [ask_lists(lists, walk.arena, api.FAST) for walk in walks]
    structs = {cache.address - 2 * context.glibc.geometry.word_bytes for cache in caches.caches if cache.address and cache.trouble is None}
    lists.also.extend(chunk | api.SPECIAL_TCACHE_STRUCT for chunk in structs if chunk > 0 and not chunk & KIND_BITS)
    followed = lists.follow(collect=True)
    check_cache_lists(context, caches, followed)
    for walk, group in zip(walks, fast):
        collect_bins(context.glibc, group, followed, walk.report)
    sinks = {heap.address: walk.report for walk in walks for heap in walk.heaps}
    main = next((walk.report for walk in walks if walk.arena.is_main), context.report)
    for chunk in followed.twice[:MAX_REPORTED]:
        message = "chunk is on two free lists (freed twice, or a list is damaged)"
        sinks.get(chunk & -heap_max, main)(codes.LISTED_TWICE, chunk, message, None)
    more = len(followed.twice) - MAX_REPORTED
    if more > 0:
        message = "%s on two free lists" % count_noun(more, "more chunk")
        sinks.get(followed.twice[-1] & -heap_max, main)(codes.LISTED_TWICE, None, message, None)
    return Singles(caches, fast, followed, lists.heads)
