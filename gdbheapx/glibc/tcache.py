"""Thread caches: each thread's tcache_perthread_struct and the chunks on its lists (malloc.c: tcache_get, tcache_put)."""

from array import array
from bisect import bisect_right
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from gdbheapx.errors import Unreadable
from gdbheapx.glibc.context import Context
from gdbheapx.glibc.detect import Glibc
from gdbheapx.glibc.free_lists import FreeLists
from gdbheapx.glibc.geometry import tcache_size
from gdbheapx.glibc.moments import collector, tell_if_it_stays
from gdbheapx.kernel.list_records import CUT, TCACHE, TCACHE_SIZED, Followed, wrong
from gdbheapx.layout.resolve import read_record
from gdbheapx.layout.struct import Record
from gdbheapx.looks import Contradiction
from gdbheapx.model import CacheBin
from gdbheapx.target.base import Target, Thread

SMALL_BINS = 64
"""TCACHE_SMALL_BINS; bins from here on (2.42) hold chunks of several sizes."""

MAX_ENTRIES = 65535
"""counts[] is a uint16_t: no list can be longer."""

LARGEST_BYTES = 4 << 20
"""No chunk in a thread cache is larger (2.42: TCACHE_LARGE_BINS)."""


class Cache(NamedTuple):
    """One thread's cache."""

    thread: Thread
    address: Optional[int]
    """Its tcache_perthread_struct; None if the thread has none (it never used malloc, or this build has no tcache) or it is not known."""
    arena: Optional[int]
    """thread_arena: address of a malloc_state; 0 if the thread is attached to none; None if it is not known."""
    first: Optional[int]
    """Number of the first of its lists among those asked for, one for each bin; None if the struct could not be read."""


class CacheBins(Sequence[CacheBin]):
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
    """All threads' caches."""

    caches: Sequence[Cache]
    known: bool
    """thread-local storage could be read, so the lists are complete."""
    sizes: Sequence[Optional[int]]
    """Chunk size of each bin; None for the large bins."""
    expected: Sequence[int]
    """array('Q'): how many chunks the structs count in each list, cache after cache; empty if that is not known."""

    def lists(self, cache: Cache) -> range:
        """Numbers of the cache's lists among those asked for, bin by bin."""
        return range(0) if cache.first is None else range(cache.first, cache.first + len(self.sizes))


def read_caches(lists: FreeLists) -> Caches:
    """Every thread's cache; its lists are added to `lists`, which must be empty.

    Where thread-local storage cannot be read that is reported and `known` is False; so it is where time runs out.
    """
    context = lists.context
    target, glibc = context.target, context.glibc
    threads = target.threads()
    arenas = target.thread_local("thread_arena", glibc.main_arena)
    caches = target.thread_local("tcache", glibc.main_arena) if glibc.tcache is not None else None
    if glibc.tcache is not None and caches is None:
        context.report(None, "thread-local storage cannot be read: chunks in thread caches count as used", "see `heapx doctor`")
    files = _Files(target) if caches is not None else None
    limit = _count_limit(context)
    expected = array("Q")
    found: List[Cache] = []
    for thread in threads:
        if context.budget.expired():
            break
        arena = _pointer(target, arenas.addresses.get(thread.lwp)) if arenas is not None else None
        address = _pointer(target, caches.addresses.get(thread.lwp)) if caches is not None else None
        if address and files is not None and files.hold(address):
            address = 0  # 2.43: &__tcache_dummy, an empty read-only stand-in inside libc
        record = _struct(context, thread, address) if address else None
        first = None
        if record is not None:
            first = _ask(lists, record)
            expected.extend(counts(record, limit))
        found.append(Cache(thread, address or None, arena, first))
    whole = len(found) == len(threads)
    if not whole:
        context.report(None, "thread caches were not all read: %s" % context.budget.reason, "chunks in the others count as used")
    known = glibc.tcache is None or (caches is not None and whole)
    return Caches(found, known, _sizes(glibc), expected if len(expected) == len(lists.lists) else array("Q"))


class _Files:
    """Where files are mapped."""

    def __init__(self, target: Target) -> None:
        self._spans = [(mapping.start, mapping.end) for mapping in target.mappings() if mapping.is_file]

    def hold(self, address: int) -> bool:
        """A file is mapped at this address."""
        place = bisect_right(self._spans, (address, 1 << 64)) - 1
        return place >= 0 and address < self._spans[place][1]


def _sizes(glibc: Glibc) -> List[Optional[int]]:
    bins = glibc.tcache.fields["entries"].count if glibc.tcache is not None else 0
    return [tcache_size(index, glibc.geometry) if index < SMALL_BINS else None for index in range(bins)]


def _pointer(target: Target, address: Optional[int]) -> Optional[int]:
    """The pointer at `address`; None if it is not known."""
    if address is None:
        return None
    try:
        return target.read_word(address)
    except Unreadable:
        return None


def _struct(context: Context, thread: Thread, address: int) -> Optional[Record]:
    assert context.glibc.tcache is not None
    try:
        return read_record(context.target, context.glibc.tcache, address)
    except Unreadable:
        context.report(address, "the tcache of thread %d cannot be read" % thread.lwp, "chunks in it count as used")
        return None


def _ask(lists: FreeLists, record: Record) -> int:
    """Adds one cache's lists, empty ones too; the number of the first."""
    heads = record.numbers("entries")
    small = heads[:SMALL_BINS]
    first = lists.add(TCACHE, small, MAX_ENTRIES, tcache_size(len(small) - 1, lists.context.glibc.geometry))
    if len(heads) > SMALL_BINS:
        lists.add(TCACHE_SIZED, heads[SMALL_BINS:], MAX_ENTRIES, LARGEST_BYTES)
    return first


def _count_limit(context: Context) -> Optional[int]:
    """mp_.tcache_count, from which num_slots counts down (2.42); None where it is not needed or cannot be read."""
    if context.glibc.tcache is None or "num_slots" not in context.glibc.tcache.fields:
        return None
    try:
        return context.glibc.read_mp(context.target)["tcache_count"]
    except Unreadable:
        return None


def counts(record: Record, limit: Optional[int]) -> Sequence[int]:
    """Number of chunks in each bin as the struct says; since 2.42 num_slots counts down from `limit`. Empty if it is not known."""
    found = array("Q")
    if record.has("counts"):
        found = record.numbers("counts")
    elif record.has("num_slots") and limit is not None:
        found = array("Q", [max(limit - left, 0) for left in record.numbers("num_slots")])
    return found


def check(context: Context, caches: Caches, found: Followed) -> bool:
    """Reports every list that is broken, and those that do not hold as many chunks as their struct counts; True if any is broken.

    A thread changes its cache under no lock: between two steps of its change the list is right and the count is not.
    """
    told: List[Contradiction] = []
    asked = sum(len(caches.lists(cache)) for cache in caches.caches)
    if not any(found.problems[:asked]) and (not caches.expected or caches.expected == found.counts[:asked]):
        return False
    for cache in caches.caches:
        for index, number in enumerate(caches.lists(cache)):
            _check_list(context._replace(report=collector(told)), caches, found, cache, index, number)
    is_broken = any(problem not in (0, CUT) for problem in found.problems[:asked])
    tell_if_it_stays(context, "caches", told, "thread caches are in the middle of a change" if is_broken else None)
    return is_broken


def _check_list(context: Context, caches: Caches, found: Followed, cache: Cache, index: int, number: int) -> None:
    name = "tcache bin %d of thread %d" % (index, cache.thread.lwp)
    what, count = wrong(found, number), found.counts[number]
    expected = caches.expected[number] if caches.expected else count
    if what is not None:
        assert context.glibc.tcache is not None and cache.address is not None
        head = cache.address + context.glibc.tcache.fields["entries"].offset + index * context.glibc.geometry.word_bytes
        context.report(found.lasts[number] or head, "%s: %s" % (name, what), "the chunks behind it count as used")
    elif expected != count and found.problems[number] != CUT:
        but = "lists %d" % count if count else "its list is empty"
        context.report(cache.address, "%s counts %d chunks but %s" % (name, expected, but), None)


def threads_by_arena(caches: Caches) -> Optional[Dict[int, int]]:
    """arena address -> number of threads attached to it; None if any thread's thread_arena is not known."""
    attached: Dict[int, int] = {}
    for cache in caches.caches:
        if cache.arena is None:
            return None
        attached[cache.arena] = attached.get(cache.arena, 0) + 1
    return attached
