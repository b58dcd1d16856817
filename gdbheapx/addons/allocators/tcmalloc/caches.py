"""Where tcmalloc's free objects are listed besides their spans: transfer caches (central_freelist.h) and thread caches (thread_cache.h)."""

import struct
from array import array
from bisect import bisect_right
from itertools import islice
from typing import Container, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.addons.allocators.tcmalloc import codes
from gdbheapx.addons.allocators.tcmalloc.structure import CACHE_MAX, CACHE_TID, FREE_LIST_BYTES, FREE_LIST_SIZE, Central, Structure, Threads
from gdbheapx.inferior.base import Target
from gdbheapx.problems import Report
from gdbheapx.ranges import union

MOST_CACHES = 1 << 16
MOST_LACKING = 64
"""Threads without a cache that are looked at."""
LENGTH = 8
THREAD_LOCAL_BYTES = 4096
"""On either side of the thread pointer lies the thread-local storage of objects that the program starts with."""


class Batch(NamedTuple):
    """Objects of a transfer cache, linked."""

    head: int
    tail: int


class CentralList(NamedTuple):
    """One central list."""

    size_class: int
    address: int
    lock: int
    """0: nobody holds it."""
    spans: int
    """num_spans_."""
    counter: int
    """Free objects in its spans, as it counts them."""
    batches: Sequence[Batch]
    """Without the newest while the lock is held: it may be on its way in or out."""


class CacheList(NamedTuple):
    """One list of a thread cache."""

    size_class: int
    head: int
    length: int


class Cache(NamedTuple):
    """One thread cache."""

    address: int
    lwp: Optional[int]
    """None: not known whose it is."""
    size_bytes: int
    most_bytes: int
    lists: Sequence[CacheList]


class Caches(NamedTuple):
    """All of them."""

    rows: Sequence[Cache]
    is_whole: bool


def central_lists(target: Target, known: Structure, report: Report) -> List[CentralList]:
    """All central lists; one that cannot be as it stands is reported and left out."""
    sizes, found = known.sizes, []
    count = sizes.classes
    data = target.read_prefix(known.central, count * known.stride)
    if len(data) < count * known.stride:
        what = "cannot read all central lists at 0x%x" % known.central
        report(codes.CENTRAL_UNREADABLE, known.central + len(data), what, "what transfer caches hold counts as used")
    for number in range(1, len(data) // known.stride):
        base = number * known.stride
        lock, own = struct.unpack_from("<I", data, base)[0], struct.unpack_from("<Q", data, base + Central.size_class)[0]
        spans, counter = struct.unpack_from("<QQ", data, base + Central.spans)
        used = struct.unpack_from("<i", data, base + Central.used_slots)[0]
        address = known.central + base
        if own != number or not 0 <= used <= Central.most_slots:
            what = "the central list of class %d says class %d and %d batches" % (number, own, used)
            report(codes.CENTRAL_WRONG, address, what, "objects in its transfer cache count as used")
            used = 0
        used -= bool(lock and used)
        pairs = struct.unpack_from("<%dQ" % (2 * used), data, base + Central.slots)
        batches = [Batch(*pair) for pair in zip(pairs[::2], pairs[1::2])]
        found.append(CentralList(number, address, lock, spans, counter, batches))
    return found


def thread_caches(target: Target, known: Structure, report: Report) -> Caches:
    """All thread caches."""
    threads = known.threads
    if threads is None:
        what = "the list of thread caches was not found"
        report(codes.CACHES_UNKNOWN, None, what, "objects in them count as used")
        return Caches((), False)
    head, size, tid = target.read_prefix(threads.head, 8), known.sizes.cache_bytes, known.sizes.lists_bytes + CACHE_TID
    address, met = int.from_bytes(head, "little"), []  # type: ignore[var-annotated]
    seen: Set[int] = set()
    is_whole, last = len(head) == 8, 0
    while address and is_whole:
        data = target.read_prefix(address, size)
        if len(data) < size:
            report(codes.TC_CACHE_UNREADABLE, address, "cannot read a thread cache", "objects in it and those behind it count as used")
            is_whole = False
        elif address in seen or len(met) >= MOST_CACHES or not _is_cache(data, known) or _before(data, threads) != last:
            what = "the list of thread caches points to something that is not a thread cache, or back"
            report(codes.TC_CACHE_BROKEN, address, what, "objects in those behind it count as used", target.kind == "live")
            is_whole = False
        else:
            seen.add(address)
            met.append((address, data))
            last = address
            (address,) = struct.unpack_from("<Q", data, threads.next)
    whose = _whose(target, known, [(address, struct.unpack_from("<Q", data, tid)[0]) for address, data in met])
    unlisted = _unlisted(target, known, seen, set(whose.values())) if is_whole else None
    if unlisted is not None:
        what = "this thread cache is not on the list of all"
        report(codes.TC_CACHE_BROKEN, unlisted, what, "objects in it count as used", target.kind == "live")
        is_whole = False
    return Caches([_cache(address, data, whose.get(address), known) for address, data in met], is_whole)


def _before(data: bytes, threads: Threads) -> int:
    """prev_, which stands behind next_."""
    return int(struct.unpack_from("<Q", data, threads.next + 8)[0])


def _column(data: bytes, known: Structure, place: int) -> "array[int]":
    """One member of u32 of all lists of a cache, by class."""
    return array("I", data[: known.sizes.lists_bytes])[place // 4 :: FREE_LIST_BYTES // 4][: known.sizes.classes]


def _is_cache(data: bytes, known: Structure) -> bool:
    return _column(data, known, FREE_LIST_SIZE)[1:].tolist() == list(known.sizes.object_bytes[1 : known.sizes.classes])


def _cache(address: int, data: bytes, lwp: Optional[int], known: Structure) -> Cache:
    size, most = (struct.unpack_from("<i", data, known.sizes.lists_bytes + place)[0] for place in (0, CACHE_MAX))
    heads, lengths = array("Q", data[: known.sizes.lists_bytes])[:: FREE_LIST_BYTES // 8], _column(data, known, LENGTH)
    lists = [CacheList(number, heads[number], length) for number, length in enumerate(lengths) if number and (heads[number] or length)]
    return Cache(address, lwp, size, most, lists)


def _whose(target: Target, known: Structure, caches: Sequence[Tuple[int, int]]) -> Dict[int, int]:
    """lwp by cache: by tid_, else by the thread-local pointer to it, wherever that stands near the thread pointer."""
    threads = {thread.thread_pointer: thread.lwp for thread in target.threads() if thread.thread_pointer}
    has_tid = known.threads is not None and known.threads.has_tid
    whose = {address: threads[tid] for address, tid in caches if has_tid and tid in threads}
    left, told = {address for address, _ in caches}.difference(whose), set(whose.values())
    for pointer, lwp in threads.items():
        own = left.intersection(_near(target, pointer)) if left and lwp not in told else set()
        if len(own) == 1:
            whose[own.pop()] = lwp
    return whose


def _near(target: Target, thread_pointer: int) -> List[int]:
    """Words of a thread's local storage, as far as it was ever touched."""
    words: List[int] = []
    start = thread_pointer // 8 * 8 - THREAD_LOCAL_BYTES
    end = start + 2 * THREAD_LOCAL_BYTES
    for first, last in target.touched_ranges(start, end) if target.kind != "remote" else [(start, end)]:
        words += target.words_in(target.read_prefix(max(first, start), min(last, end) - max(first, start)))
    return words


def _unlisted(target: Target, known: Structure, caches: Container[int], lwps: Container[int]) -> Optional[int]:
    """A thread cache that a thread without one on the list points to; None: there is none. A wrong link ends the list early."""
    memory = union([(mapping.start, mapping.end) for mapping in target.mappings() if mapping.writable and not mapping.is_file])
    starts, size = [start for start, _ in memory], known.sizes.cache_bytes
    lacking = (thread for thread in target.threads() if thread.thread_pointer and thread.lwp not in lwps)
    for thread in islice(lacking, MOST_LACKING):
        for word in _near(target, thread.thread_pointer or 0):
            place = bisect_right(starts, word) - 1
            if word % 8 or word in caches or place < 0 or word + size > memory[place][1]:
                continue
            data = target.read_prefix(word, size)
            if len(data) == size and _is_cache(data, known):
                return word
    return None
