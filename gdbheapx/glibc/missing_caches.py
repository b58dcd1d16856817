"""Threads whose cache is not known: whether they have one is told by the arenas, which count the threads that are attached to them.

A thread is attached to an arena before it gets a cache and until it has given the cache up (arena.c: arena_get2,
__malloc_arena_thread_freeres), and attached_threads counts those (since 2.23, before there were caches). So an arena that counts no more
threads than were found to point to it has none that is missing; one that counts more has.
"""

from typing import Dict, List, Optional, Sequence, Set, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.glibc import codes
from gdbheapx.glibc.arenas import Arena
from gdbheapx.glibc.context import Context
from gdbheapx.glibc.geometry import align_chunk
from gdbheapx.glibc.moments import collector, passing_by, tell_if_it_stays
from gdbheapx.glibc.tcache_struct import Cache, Trouble, count_limit, counts, is_chunk, read_struct
from gdbheapx.inferior.base import Target
from gdbheapx.problems import Diagnostic
from gdbheapx.units import plural

NOT_DUMPED = (
    "the core lacks this thread's stack: chunks in its cache count as used; "
    "a core that the kernel writes (see core(5)), or a newer gdb, has it"
)
MAX_REPORTED = 8
"""Threads, or arenas, that are named."""


def settle(context: Context, arenas: Sequence[Arena], caches: Sequence[Cache], troubles: Dict[int, Trouble]) -> Tuple[List[Cache], bool]:
    """The caches, and whether all are known; what is not known is reported, of a living process if another look shows the same."""
    told: List[Diagnostic] = []
    found, known = _settle(context._replace(report=collector(told)), arenas, caches, troubles)
    tell_if_it_stays(
        context, "lost caches", told, passing_by(codes.CACHES_CHANGING, "threads start and exit: the caches of some were not found")
    )
    return found, known


def _settle(context: Context, arenas: Sequence[Arena], caches: Sequence[Cache], troubles: Dict[int, Trouble]) -> Tuple[List[Cache], bool]:
    attached = all(cache.arena is not None for cache in caches if cache.known)
    missing = {arena: count for arena, count in _missing(arenas, caches).items() if count > 0} if attached else {}
    proven = attached and not missing and not any(trouble.surely for trouble in troubles.values())
    if troubles and not proven:
        _report(context, troubles)
        return list(caches), False
    found = [cache if cache.known else cache._replace(address=None, arena=0, known=True) for cache in caches]
    unattached = sum(1 for cache in found if cache.arena == 0 and not cache.address)
    if sum(missing.values()) <= unattached:  # these may be on their way in or out, and have no cache then
        return found, _has_no_orphan(context, arenas, found)
    titles = {arena.address: arena.title for arena in arenas}
    for arena, count in list(missing.items())[:MAX_REPORTED]:
        exited = "the count includes threads that exited by the bare system call, or that a fork left behind"
        hint = "chunks in their caches count as used; " + exited
        what = "%s attached to %s %s not found" % (plural(count, "thread"), titles[arena], "was" if count == 1 else "were")
        context.report(codes.CACHES_LOST, arena, what, hint)
    return found, False


def _missing(arenas: Sequence[Arena], caches: Sequence[Cache]) -> Dict[int, int]:
    """For each arena attached_threads less the threads that were found to point to it."""
    found = {arena.address: arena.state.get("attached_threads") or 0 for arena in arenas}
    for cache in caches:
        if cache.arena in found and (cache.known or cache.address):
            found[cache.arena] -= 1
    return found


def _report(context: Context, troubles: Dict[int, Trouble]) -> None:
    lost = _not_dumped(context.target)
    for lwp, trouble in list(troubles.items())[:MAX_REPORTED]:
        hint = NOT_DUMPED if lwp in lost else "chunks in its cache count as used"
        context.report(codes.CACHE_UNKNOWN, trouble.where, "thread %d: %s" % (lwp, trouble.why), hint)
    if len(troubles) > MAX_REPORTED:
        context.report(
            codes.CACHE_UNKNOWN,
            None,
            "the caches of %d more threads are unknown" % (len(troubles) - MAX_REPORTED),
            "chunks in them count as used",
        )


def _not_dumped(target: Target) -> Set[int]:
    """Threads whose control block a core does not have: it lies on top of the stack, in one mapping with it."""
    if target.kind != "core":
        return set()
    return {one.lwp for one in target.threads() if one.thread_pointer and not target.read_prefix(one.thread_pointer, 1)}


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
    except Unreadable:
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
    except Unreadable:
        return False
    heads, counted = record.numbers("entries"), counts(record, limit)
    return any(heads) and len(heads) == len(counted) and all(bool(head) == bool(count) for head, count in zip(heads, counted))
