"""Thread caches: each thread's tcache_perthread_struct and the chunks on its lists (malloc.c: tcache_get, tcache_put)."""

from array import array
from bisect import bisect_right
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from gdbheapx import problems
from gdbheapx.errors import Unreadable
from gdbheapx.glibc import codes, missing_caches
from gdbheapx.glibc.arenas import Arena
from gdbheapx.glibc.context import Context
from gdbheapx.glibc.free_lists import KIND_BITS, FreeLists
from gdbheapx.glibc.geometry import tcache_size
from gdbheapx.glibc.located import Glibc
from gdbheapx.glibc.moments import collector, passing_by, tell_if_it_stays
from gdbheapx.glibc.tcache_struct import Cache, Trouble, count_limit, counts, is_chunk, read_struct
from gdbheapx.inferior.base import Target, Thread, ThreadLocal
from gdbheapx.kernel.glibc.list_records import CUT, TCACHE, TCACHE_SIZED, UNREAD, Followed, wrong
from gdbheapx.kernel.glibc.records import SPECIAL_TCACHE_STRUCT
from gdbheapx.layout.view import View
from gdbheapx.model import CacheBin
from gdbheapx.problems import Diagnostic
from gdbheapx.units import plural

SMALL_BINS = 64
"""TCACHE_SMALL_BINS; bins from here on (2.42) hold chunks of several sizes."""

MAX_ENTRIES = 65535
"""counts[] is a uint16_t: no list can be longer."""

LARGEST_BYTES = 4 << 20
"""No chunk in a thread cache is larger (2.42: TCACHE_LARGE_BINS)."""


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
            "see `gdbheapx doctor`",
        )
    reader = _Reader(lists, pointers) if pointers is not None else None
    found: List[Cache] = []
    for thread in threads:
        if context.budget.expired():
            break
        arena = _pointer(target, attached.addresses.get(thread.lwp)) if attached is not None else None
        if arena is None and attached is not None and thread.lwp not in attached.unknown and attached.addresses.get(thread.lwp) is None:
            arena = 0
        found.append(reader.read(thread, arena) if reader is not None else Cache(thread, None, arena, None, glibc.tcache is None))
    whole = len(found) == len(threads)
    if not whole:
        context.report(
            codes.CACHES_CUT, None, "not all thread caches were read: %s" % context.budget.reason, "chunks in the others count as used"
        )
    known = glibc.tcache is None
    if reader is not None:
        found, known = missing_caches.settle(context, arenas, found, reader.troubles) if whole else (found, False)
    expected = reader.expected if reader is not None else array("Q")
    return Caches(found, known, _sizes(glibc), expected if len(expected) == len(lists.lists) else array("Q"))


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
        """One thread's."""
        context, target, place = self._context, self._context.target, self._pointers.addresses.get(thread.lwp)
        if place is None:
            why = self._pointers.unknown.get(thread.lwp)
            return Cache(thread, None, arena, None, True) if why is None else self._unknown(thread, None, arena, None, why)
        address = _pointer(target, place)
        if address is None:
            return self._unknown(thread, None, arena, place, "cannot read its thread-local storage")
        if not address or (context.glibc.traits.mmapped_trailer and self._files.hold(address)):
            return Cache(thread, None, arena, None, True)  # 2.43: &__tcache_dummy, an empty read-only stand-in inside libc
        if self._owners.setdefault(address, thread.lwp) != thread.lwp:
            return self._unknown(thread, address, arena, place, "its tcache is the one of thread %d" % self._owners[address], True)
        record = read_struct(context, address)
        if record is None:
            return self._unknown(thread, address, arena, address, "cannot read its tcache at 0x%x" % address, True)
        if not is_chunk(context, record):
            return self._unknown(thread, address, arena, address, "no tcache at 0x%x: there is no chunk of that size" % address, True)
        first = _ask(self._lists, record)
        self.expected.extend(counts(record, self._limit))
        return Cache(thread, address, arena, first, True)

    def _unknown(
        self, thread: Thread, address: Optional[int], arena: Optional[int], where: Optional[int], why: str, surely: bool = False
    ) -> Cache:
        self.troubles[thread.lwp] = Trouble(where, why, surely)
        return Cache(thread, address, arena, None, False)


class _Files:
    """Where files are mapped."""

    def __init__(self, target: Target) -> None:
        self._spans = target.file_ranges()

    def hold(self, address: int) -> bool:
        """A file is mapped at this address."""
        place = bisect_right(self._spans, (address, 1 << 64)) - 1
        return place >= 0 and address < self._spans[place][1]


def _sizes(glibc: Glibc) -> List[Optional[int]]:
    bins = glibc.tcache.members["entries"].count if glibc.tcache is not None else 0
    return [tcache_size(index, glibc.geometry) if index < SMALL_BINS else None for index in range(bins)]


def _pointer(target: Target, address: Optional[int]) -> Optional[int]:
    """The pointer at `address`; None if it is not known."""
    if address is None:
        return None
    try:
        return target.read_word(address)
    except Unreadable:
        return None


def _ask(lists: FreeLists, record: View) -> int:
    """Adds one cache's lists, empty ones too; the number of the first."""
    heads = record.numbers("entries")
    small = heads[:SMALL_BINS]
    first = lists.add(TCACHE, small, MAX_ENTRIES, tcache_size(len(small) - 1, lists.context.glibc.geometry))
    if len(heads) > SMALL_BINS:
        lists.add(TCACHE_SIZED, heads[SMALL_BINS:], MAX_ENTRIES, LARGEST_BYTES)
    return first


def check(context: Context, caches: Caches, found: Followed) -> bool:
    """Reports every list that is broken, and those that do not hold as many chunks as their struct counts; True if any is broken.

    A thread changes its cache under no lock: between two steps of its change the list is right and the count is not.
    """
    told: List[Diagnostic] = []
    slight: List[Diagnostic] = []  # one chunk more or less: a step of tcache_put or tcache_get
    asked = sum(len(caches.lists(cache)) for cache in caches.caches)
    if not any(found.problems[:asked]) and (not caches.expected or caches.expected == found.counts[:asked]):
        return False
    for cache in caches.caches:
        for index, number in enumerate(caches.lists(cache)):
            off_by_one = not found.problems[number] and bool(caches.expected) and abs(caches.expected[number] - found.counts[number]) == 1
            _check_list(context._replace(report=collector(slight if off_by_one else told)), caches, found, cache, index, number)
    is_broken = any(problem not in (0, CUT, UNREAD) for problem in found.problems[:asked])
    changing = passing_by(codes.CACHES_CHANGING, "thread caches are in the middle of a change")
    tell_if_it_stays(context, "caches", [*told, *slight], changing if is_broken else None, slight)
    return is_broken


def _check_list(context: Context, caches: Caches, found: Followed, cache: Cache, index: int, number: int) -> None:
    name = "tcache bin %d of thread %d" % (index, cache.thread.lwp)
    what, count = wrong(found, number), found.counts[number]
    expected = caches.expected[number] if caches.expected else count
    if what is not None:
        assert context.glibc.tcache is not None and cache.address is not None
        head = cache.address + context.glibc.tcache.members["entries"].offset + index * context.glibc.geometry.word_bytes
        code = codes.LIST_UNREAD if found.problems[number] == UNREAD else codes.CACHE_BROKEN
        context.report(code, found.lasts[number] or head, "%s: %s" % (name, what), "the chunks after it count as used")
    elif expected != count and found.problems[number] != CUT:
        but = "lists %d" % count if count else "its list is empty"
        context.report(codes.CACHE_MISCOUNTS, cache.address, "%s counts %s but %s" % (name, plural(expected, "chunk"), but), None)


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
