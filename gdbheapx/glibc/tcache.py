"""Thread caches: each thread's tcache_perthread_struct and the chunks on its lists (malloc.c: tcache_get, tcache_put).

Threads whose cache is not known: whether they have one is told by the arenas, which count the threads that are attached to them.

A thread is attached to an arena before it gets a cache and until it has given the cache up (arena.c: arena_get2,
__malloc_arena_thread_freeres), and attached_threads counts those (since 2.23, before there were caches). So an arena that counts no more
threads than were found to point to it has none that is missing; one that counts more has.

tcache_perthread_struct itself, and what is known of one thread's (malloc.c: tcache_init).
"""

from array import array
from bisect import bisect_right
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx import problems
from gdbheapx.allocators.answers import make_collector
from gdbheapx.errors import UnreadableMemory
from gdbheapx.glibc import codes
from gdbheapx.glibc.arenas import Arena, Glibc
from gdbheapx.glibc.bins import KIND_BITS, FreeLists
from gdbheapx.glibc.context import LOOK_AGAIN, Context, tell_unless_changing
from gdbheapx.glibc.layouts import MAX_TCACHE_COUNT, TCACHE_SMALL_BINS, align_chunk, is_tcache_chunk, tcache_size
from gdbheapx.glibc.layouts import TCACHE as TCACHE_STRUCT
from gdbheapx.hints import hint_command
from gdbheapx.inferior.base import Target, Thread, ThreadLocal
from gdbheapx.kernel.glibc.lists import CUT, TCACHE, TCACHE_SIZED, UNREAD, NativeFollowedList, describe_damage
from gdbheapx.kernel.glibc.records import SPECIAL_TCACHE_STRUCT
from gdbheapx.layout.view import LayoutView, read_view
from gdbheapx.model import CacheBin
from gdbheapx.problems import Diagnostic
from gdbheapx.units import count_noun

NOT_DUMPED = (
    "the core lacks this thread's stack: chunks in its cache count as used; "
    "a core that the kernel writes (see core(5)), or a newer gdb, has it"
)
MAX_REPORTED = 8
"""Threads, or arenas, that are named."""


class Cache(NamedTuple):
    """A thread's cache."""

    thread: Thread
    address: Optional[int]
    """Its tcache_perthread_struct; None if the thread has none (it never used malloc, or this build has no tcache) or it is not known."""
    arena: Optional[int]
    """thread_arena: address of a malloc_state; 0 if the thread is attached to none; None if it is not known."""
    first: Optional[int]
    """Number of the first of its lists among those asked for, one for each bin; None if it has none, or they are not known."""
    known: bool
    """It was read, or it is certain that the thread has none."""


class Trouble(NamedTuple):
    """Reason why a thread's cache is unknown."""

    where: Optional[int]
    why: str
    """In words, to stand behind `thread N: `."""
    surely: bool
    """The thread has, or had, one: something stands where its address should."""


def read_struct(context: Context, address: int) -> Optional[LayoutView]:
    """The struct at `address`; None if it cannot be read. Only for builds that have thread caches."""
    assert context.glibc.tcache is not None
    try:
        return read_view(context.target, context.glibc.types, TCACHE_STRUCT.name, address)
    except UnreadableMemory:
        return None


def is_chunk(context: Context, record: LayoutView) -> bool:
    """Return whether the struct stands in a chunk that tcache_init could have got for it."""
    geometry = context.glibc.geometry
    try:
        size = context.target.read_word(record.address - geometry.word_bytes) & ~7
    except UnreadableMemory:
        return False
    assert context.glibc.tcache is not None
    is_aligned = record.address % geometry.alignment_bytes == 0
    return is_aligned and is_tcache_chunk(size, context.glibc.tcache, geometry.word_bytes, geometry.alignment_bytes)


def count_limit(context: Context) -> Optional[int]:
    """mp_.tcache_count, from which num_slots counts down (2.42); None where it is not needed or cannot be read."""
    if context.glibc.tcache is None or "num_slots" not in context.glibc.tcache.members:
        return None
    try:
        return context.glibc.read_mp(context.target)["tcache_count"]
    except UnreadableMemory:
        return None


def read_cache_counts(record: LayoutView, limit: Optional[int]) -> Sequence[int]:
    """Number of chunks in each bin as the struct says; since 2.42 num_slots counts down from `limit`. Empty if it is not known."""
    numbers = array("Q")
    if record.has("counts"):
        numbers = record.numbers("counts")
    elif record.has("num_slots") and limit is not None:
        numbers = array("Q", [max(limit - left, 0) for left in record.numbers("num_slots")])
    return numbers


def settle_missing_caches(
    context: Context, arenas: Sequence[Arena], caches: Sequence[Cache], troubles: Dict[int, Trouble]
) -> Tuple[List[Cache], bool]:
    """The caches, and whether all are known; what is not known is reported."""
    told: List[Diagnostic] = []
    settled, known = _settle_caches(context._replace(report=make_collector(told)), arenas, caches, troubles)
    tell_unless_changing(context, told, codes.CACHES_CHANGING, "threads start and exit: the caches of some were not found")
    return settled, known


def _settle_caches(
    context: Context, arenas: Sequence[Arena], caches: Sequence[Cache], troubles: Dict[int, Trouble]
) -> Tuple[List[Cache], bool]:
    attached = all(cache.arena is not None for cache in caches if cache.known)
    missing = {arena: count for arena, count in _count_missing(arenas, caches).items() if count > 0} if attached else {}
    proven = attached and not missing and not any(trouble.surely for trouble in troubles.values())
    if troubles and not proven:
        _report_troubles(context, troubles)
        return list(caches), False
    settled = [cache if cache.known else cache._replace(address=None, arena=0, known=True) for cache in caches]
    unattached = sum(1 for cache in settled if cache.arena == 0 and not cache.address)
    if sum(missing.values()) <= unattached:  # these may be on their way in or out, and have no cache then
        return settled, _has_no_orphan(context, arenas, settled)
    titles = {arena.address: arena.title for arena in arenas}
    for arena, count in list(missing.items())[:MAX_REPORTED]:
        exited = "the count includes threads that exited by the bare system call, or that a fork left behind"
        hint = "chunks in their caches count as used; " + exited
        what = "%s attached to %s %s not found" % (count_noun(count, "thread"), titles[arena], "was" if count == 1 else "were")
        context.report(codes.CACHES_LOST, arena, what, hint)
    return settled, False


def _count_missing(arenas: Sequence[Arena], caches: Sequence[Cache]) -> Dict[int, int]:
    missing = {arena.address: arena.state.get("attached_threads") or 0 for arena in arenas}
    for cache in caches:
        if cache.arena in missing and (cache.known or cache.address):
            missing[cache.arena] -= 1
    return missing


def _report_troubles(context: Context, troubles: Dict[int, Trouble]) -> None:
    lost = _not_dumped(context.target)
    for lwp, trouble in list(troubles.items())[:MAX_REPORTED]:
        hint = NOT_DUMPED if lwp in lost else "chunks in its cache count as used"
        context.report(codes.CACHE_UNKNOWN, trouble.where, "thread %d: %s" % (lwp, trouble.why), hint)
    if len(troubles) > MAX_REPORTED:
        context.report(
            codes.CACHE_UNKNOWN,
            None,
            "the caches of %s are unknown" % count_noun(len(troubles) - MAX_REPORTED, "more thread"),
            "chunks in them count as used",
        )


def _not_dumped(target: Target) -> Set[int]:
    """Threads whose control block a core does not have: it lies on top of the stack, in one mapping with it."""
    if target.kind != "core":
        return set()
    return {thread.lwp for thread in target.threads() if thread.thread_pointer and not target.read_prefix(thread.thread_pointer, 1)}


def _has_no_orphan(context: Context, arenas: Sequence[Arena], caches: Sequence[Cache]) -> bool:
    """False, and a report, where a thread is attached to an arena and has no cache, and a cache that is no thread's stands where the
    arena's first thread has its own: in the arena's first chunk. A thread that asked for aligned memory alone has none (up to 2.41), nor
    one that is ending."""
    owned, limit = {cache.address for cache in caches}, count_limit(context)
    by_address = {arena.address: arena for arena in arenas}
    for cache in caches:
        arena = by_address.get(cache.arena or 0)
        if cache.address or arena is None:
            continue
        first = _first_chunk(context, arena)
        address = first + 2 * context.glibc.geometry.word_bytes
        if first and address not in owned and _is_in_use(context, address, limit):
            what = "thread %d has no tcache, and the one at 0x%x belongs to no thread" % (cache.thread.lwp, address)
            context.report(codes.CACHE_UNKNOWN, address, what, "the thread's pointer to it may be damaged; chunks in it count as used")
            return False
    return True


def _first_chunk(context: Context, arena: Arena) -> int:
    glibc = context.glibc
    if not arena.is_main:
        return align_chunk(arena.address + glibc.malloc_state.size_bytes, glibc.geometry)
    try:
        base = glibc.read_mp(context.target)["sbrk_base"]
    except UnreadableMemory:
        return 0
    return align_chunk(base, glibc.geometry) if base else 0


def _is_in_use(context: Context, address: int, limit: Optional[int]) -> bool:
    """A thread cache that holds something: a chunk of its size, in use, with as many lists as are counted to hold chunks."""
    record, word = read_struct(context, address) if context.glibc.tcache is not None else None, context.glibc.geometry.word_bytes
    if record is None or not is_chunk(context, record):
        return False
    try:
        following = address - 2 * word + (context.target.read_word(address - word) & ~7)
        if not context.target.read_word(following + word) & 1:
            return False
    except UnreadableMemory:
        return False
    heads, counted = record.numbers("entries"), read_cache_counts(record, limit)
    return any(heads) and len(heads) == len(counted) and all(bool(head) == bool(count) for head, count in zip(heads, counted))


class GlibcCacheBins(Sequence[CacheBin]):
    """The non-empty bins of one thread cache, made when they are looked at: a process has 64 for each thread."""

    def __init__(self, sizes: Sequence[Optional[int]], chunks: Sequence[int], bytes_: Sequence[int]) -> None:
        self._sizes, self._chunks, self._bytes = sizes, chunks, bytes_
        self._used = [index for index, count in enumerate(chunks) if count]

    def __len__(self) -> int:
        return len(self._used)

    def __getitem__(self, place: Any) -> Any:
        index = self._used[place]
        return CacheBin(index, self._sizes[index], self._chunks[index], self._bytes[index])


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
        """Numbers of the cache's lists among those asked for, bin by bin."""
        return range(0) if cache.first is None else range(cache.first, cache.first + len(self.sizes))


def read_caches(lists: FreeLists, arenas: Sequence[Arena]) -> Caches:
    """Every thread's cache; its lists are added to `lists`, which must be empty.

    Where thread-local storage cannot be read that is reported and `known` is False; so it is where time runs out.
    """
    context = lists.context
    target, glibc = context.target, context.glibc
    threads = target.threads()
    attached = glibc.thread_local(target, "thread_arena")
    pointers = glibc.thread_local(target, "tcache") if glibc.tcache is not None else None
    if glibc.tcache is not None and pointers is None:
        context.report(
            problems.THREAD_LOCALS_UNREADABLE,
            None,
            "cannot read thread-local storage: chunks in thread caches count as used",
            "see " + hint_command("doctor"),
        )
    reader = _Reader(lists, pointers) if pointers is not None else None
    read: List[Cache] = []
    for thread in threads:
        if context.budget.expired():
            break
        arena = _read_pointer(target, attached.addresses.get(thread.lwp)) if attached is not None else None
        if arena is None and attached is not None and thread.lwp not in attached.unknown and attached.addresses.get(thread.lwp) is None:
            arena = 0
        read.append(reader.read(thread, arena) if reader is not None else Cache(thread, None, arena, None, glibc.tcache is None))
    whole = len(read) == len(threads)
    if not whole:
        context.report(
            codes.CACHES_CUT, None, "not all thread caches were read: %s" % context.budget.reason, "chunks in the others count as used"
        )
    known = glibc.tcache is None
    if reader is not None:
        read, known = settle_missing_caches(context, arenas, read, reader.troubles) if whole else (read, False)
    expected = reader.expected if reader is not None else array("Q")
    return Caches(read, known, _list_sizes(glibc), expected if len(expected) == len(lists.lists) else array("Q"))


class _Reader:
    """Reads one cache after the other."""

    def __init__(self, lists: FreeLists, pointers: ThreadLocal) -> None:
        self._lists, self._context, self._pointers = lists, lists.context, pointers
        self._files = _Files(self._context.target)
        self._limit = count_limit(self._context)
        self._owners: Dict[int, int] = {}
        self.expected: Any = array("Q")
        self.troubles: Dict[int, Trouble] = {}
        """By lwp: why its cache is not known."""

    def read(self, thread: Thread, arena: Optional[int]) -> Cache:
        """Read the thread cache of one thread."""
        context, target, place = self._context, self._context.target, self._pointers.addresses.get(thread.lwp)
        if place is None:
            why = self._pointers.unknown.get(thread.lwp)
            return Cache(thread, None, arena, None, True) if why is None else self._add_unknown(thread, None, arena, None, why)
        address = _read_pointer(target, place)
        if address is None:
            return self._add_unknown(thread, None, arena, place, "cannot read its thread-local storage")
        if not address or (context.glibc.traits.mmapped_trailer and self._files.hold(address)):
            return Cache(thread, None, arena, None, True)  # 2.43: &__tcache_dummy, an empty read-only stand-in inside libc
        if self._owners.setdefault(address, thread.lwp) != thread.lwp:
            return self._add_unknown(thread, address, arena, place, "its tcache is the one of thread %d" % self._owners[address], True)
        record = read_struct(context, address)
        if record is None:
            return self._add_unknown(thread, address, arena, address, "cannot read its tcache at 0x%x" % address, True)
        if not is_chunk(context, record):
            return self._add_unknown(thread, address, arena, address, "no tcache at 0x%x: there is no chunk of that size" % address, True)
        first = _add_lists(self._lists, record)
        self.expected.extend(read_cache_counts(record, self._limit))
        return Cache(thread, address, arena, first, True)

    def _add_unknown(
        self, thread: Thread, address: Optional[int], arena: Optional[int], where: Optional[int], why: str, surely: bool = False
    ) -> Cache:
        self.troubles[thread.lwp] = Trouble(where, why, surely)
        return Cache(thread, address, arena, None, False)


class _Files:

    def __init__(self, target: Target) -> None:
        self._spans = target.file_ranges()

    def hold(self, address: int) -> bool:
        """A file is mapped at this address."""
        place = bisect_right(self._spans, (address, 1 << 64)) - 1
        return place >= 0 and address < self._spans[place][1]


def _list_sizes(glibc: Glibc) -> List[Optional[int]]:
    bins = glibc.tcache.members["entries"].count if glibc.tcache is not None else 0
    return [tcache_size(index, glibc.geometry) if index < TCACHE_SMALL_BINS else None for index in range(bins)]


def _read_pointer(target: Target, address: Optional[int]) -> Optional[int]:
    """The pointer at `address`; None if it is not known."""
    if address is None:
        return None
    try:
        return target.read_word(address)
    except UnreadableMemory:
        return None


def _add_lists(lists: FreeLists, record: LayoutView) -> int:
    """Adds one cache's lists, empty ones too; the number of the first."""
    heads = record.numbers("entries")
    first = lists.add(TCACHE, heads[:TCACHE_SMALL_BINS], MAX_TCACHE_COUNT)
    if len(heads) > TCACHE_SMALL_BINS:
        lists.add(TCACHE_SIZED, heads[TCACHE_SMALL_BINS:], MAX_TCACHE_COUNT)
    return first


def check_cache_lists(context: Context, caches: Caches, followed: NativeFollowedList) -> bool:
    """Reports every list that is broken, and those that do not hold as many chunks as their struct counts; True if any is broken.

    A thread changes its cache under no lock: between two steps of its change the list is right and the count is not.
    """
    told: List[Diagnostic] = []
    changing: List[int] = []
    at_work = context.threads_at_work()
    asked = sum(len(caches.lists(cache)) for cache in caches.caches)
    if not any(followed.problems[:asked]) and (not caches.expected or caches.expected == followed.counts[:asked]):
        return False
    for cache in caches.caches:
        for index, number in enumerate(caches.lists(cache)):
            apart = caches.expected[number] - followed.counts[number] if caches.expected else 0
            if context.target.kind == "live" and not followed.problems[number] and abs(apart) == 1:
                continue  # a step of tcache_put or tcache_get
            if cache.thread.lwp in at_work and followed.problems[number] not in (0, CUT):
                changing.append(cache.thread.lwp)
                continue
            _check_list(context._replace(report=make_collector(told)), caches, followed, cache, index, number)
    is_broken = any(problem not in (0, CUT, UNREAD) for problem in followed.problems[:asked])
    if changing:
        context.report(codes.CACHES_CHANGING, None, "thread caches are in the middle of a change", LOOK_AGAIN)
    for complaint in told:
        context.report(*complaint)
    return is_broken


def _check_list(context: Context, caches: Caches, followed: NativeFollowedList, cache: Cache, index: int, number: int) -> None:
    name = "tcache bin %d of thread %d" % (index, cache.thread.lwp)
    what, count = describe_damage(followed, number), followed.counts[number]
    expected = caches.expected[number] if caches.expected else count
    if what is not None:
        assert context.glibc.tcache is not None and cache.address is not None
        head = cache.address + context.glibc.tcache.members["entries"].offset + index * context.glibc.geometry.word_bytes
        code = codes.LIST_UNREAD if followed.problems[number] == UNREAD else codes.CACHE_BROKEN
        context.report(code, followed.lasts[number] or head, "%s: %s" % (name, what), "the chunks after it count as used")
    elif expected != count and followed.problems[number] != CUT:
        but = "lists %d" % count if count else "its list is empty"
        context.report(codes.CACHE_MISCOUNTS, cache.address, "%s counts %s but %s" % (name, count_noun(expected, "chunk"), but), None)


def threads_by_arena(caches: Caches) -> Optional[Dict[int, int]]:
    """arena address -> number of threads attached to it; None if any thread's thread_arena is not known."""
    attached: Dict[int, int] = {}
    for cache in caches.caches:
        if cache.arena is None:
            return None
        attached[cache.arena] = attached.get(cache.arena, 0) + 1
    return attached


def own_chunks(context: Context, caches: Caches) -> Sequence[int]:
    """The thread caches' own structs, as cached chunks; not what no chunk can be."""
    chunks = {cache.address - 2 * context.glibc.geometry.word_bytes for cache in caches.caches if cache.address and cache.known}
    return [chunk | SPECIAL_TCACHE_STRUCT for chunk in chunks if chunk > 0 and not chunk & KIND_BITS]
