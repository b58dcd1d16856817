"""Thread caches: each thread's tcache_perthread_struct and the chunks on its lists (malloc.c: tcache_get, tcache_put)."""

from typing import Dict, List, NamedTuple, Optional, Sequence

from gdbheapx.errors import Unreadable
from gdbheapx.glibc.arenas import Report
from gdbheapx.glibc.bins import broken_link
from gdbheapx.glibc.detect import Glibc
from gdbheapx.glibc.geometry import tcache_size
from gdbheapx.kernel.base import Kernel
from gdbheapx.layout.resolve import read_record
from gdbheapx.layout.struct import Record
from gdbheapx.target.base import BulkSource, Target, Thread

SMALL_BINS = 64
"""TCACHE_SMALL_BINS; bins from here on (2.42) hold chunks of several sizes."""

MAX_ENTRIES = 65535
"""counts[] is a uint16_t: no list can be longer."""


class CachedList(NamedTuple):
    """One non-empty list of a thread cache."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    size_bytes: Optional[int]
    """Chunk size of its members; None for the large bins."""
    members: Sequence[int]
    """mem addresses, as malloc returned them."""


class Cache(NamedTuple):
    """One thread's cache."""

    thread: Thread
    address: Optional[int]
    """Its tcache_perthread_struct; None if the thread has none (it never used malloc, or this build has no tcache) or it is not known."""
    arena: Optional[int]
    """thread_arena: address of a malloc_state; 0 if the thread is attached to none; None if it is not known."""
    lists: Sequence[CachedList]


class Caches(NamedTuple):
    """All threads' caches."""

    caches: Sequence[Cache]
    known: bool
    """thread-local storage could be read, so the lists are complete."""


def read_caches(target: Target, glibc: Glibc, kernel: Kernel, source: BulkSource, report: Report) -> Caches:
    """Every thread's cache. Where thread-local storage cannot be read that is reported and `known` is False."""
    threads = target.threads()
    arenas = target.thread_local("thread_arena", glibc.main_arena)
    caches = target.thread_local("tcache", glibc.main_arena) if glibc.tcache is not None else None
    if glibc.tcache is not None and caches is None:
        report(None, "thread-local storage cannot be read: chunks in thread caches count as used", "see `heapx doctor`")
    own_files = [(m.start, m.end) for m in target.mappings() if m.is_file] if caches is not None else []
    found = []
    for thread in threads:
        arena = _pointer(target, arenas.addresses.get(thread.lwp)) if arenas is not None else None
        address = _pointer(target, caches.addresses.get(thread.lwp)) if caches is not None else None
        if address and any(start <= address < end for start, end in own_files):
            address = 0  # 2.43: &__tcache_dummy, an empty read-only stand-in inside libc
        lists = _read_lists(target, glibc, kernel, source, thread, address, report) if address else ()
        found.append(Cache(thread, address or None, arena, lists))
    return Caches(found, glibc.tcache is None or caches is not None)


def _pointer(target: Target, address: Optional[int]) -> Optional[int]:
    """The pointer at `address`; None if it is not known."""
    if address is None:
        return None
    try:
        return target.read_word(address)
    except Unreadable:
        return None


def _read_lists(
    target: Target, glibc: Glibc, kernel: Kernel, source: BulkSource, thread: Thread, address: int, report: Report
) -> List[CachedList]:
    assert glibc.tcache is not None
    try:
        record = read_record(target, glibc.tcache, address)
    except Unreadable:
        report(address, "the tcache of thread %d cannot be read" % thread.lwp, "chunks in it count as used")
        return []
    expected = counts(record, glibc, target)
    lists = []
    for index, head in enumerate(record.array("entries")):
        if not head:
            if expected and expected[index]:
                report(address, "tcache bin %d of thread %d counts %d chunks but its list is empty" % (index, thread.lwp, expected[index]), None)
            continue
        result = kernel.collect_list(source, glibc.geometry, head, 0, glibc.traits.safe_linking, MAX_ENTRIES, 0)
        where = "tcache bin %d of thread %d" % (index, thread.lwp)
        if result.problem:
            holder, what = broken_link(result, record.address_of("entries") + index * glibc.geometry.word_bytes)
            report(holder, "%s: %s" % (where, what), "the chunks behind it count as used")
        elif expected and expected[index] != len(result.entries):
            report(address, "%s counts %d chunks but lists %d" % (where, expected[index], len(result.entries)), None)
        size = tcache_size(index, glibc.geometry) if index < SMALL_BINS else None
        lists.append(CachedList(index, size, result.entries))
    return lists


def counts(record: Record, glibc: Glibc, target: Target) -> Optional[List[int]]:
    """Number of chunks in each bin as the struct says; since 2.42 num_slots counts down from mp_.tcache_count."""
    if record.has("counts"):
        return record.array("counts")
    if record.has("num_slots"):
        try:
            limit = glibc.read_mp(target)["tcache_count"]
        except Unreadable:
            return None
        return [limit - left for left in record.array("num_slots")]
    return None


def threads_by_arena(caches: Caches) -> Optional[Dict[int, int]]:
    """arena address -> number of threads attached to it; None if any thread's thread_arena is not known."""
    attached: Dict[int, int] = {}
    for cache in caches.caches:
        if cache.arena is None:
            return None
        attached[cache.arena] = attached.get(cache.arena, 0) + 1
    return attached



