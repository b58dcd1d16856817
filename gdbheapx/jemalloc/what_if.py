"""What jemalloc's options would change: decay, background threads, the number of arenas, thread caches."""

from typing import List, Optional, Sequence

from gdbheapx.allocators.effects import BOUNDED, Effect, in_force
from gdbheapx.columns import add
from gdbheapx.jemalloc.records import JemallocArena, JemallocConditions


def effects(arenas: Sequence[JemallocArena], conditions: JemallocConditions) -> List[Effect]:
    """Each of them once. Where the build's environment variable is not known, that is said in place of it."""
    setting = conditions.names.setting
    unused = add(arena.reclaimable_resident_bytes for arena in arenas)
    free = free_bytes(arenas)
    return [
        _decay(arenas, unused, free, setting("dirty_decay_ms:0,muzzy_decay_ms:0")),
        _background(conditions, unused, setting("background_thread:true")),
        _arenas(arenas, free, setting("narenas:1")),
        Effect(
            code="thread-caches",
            setting=setting("tcache:false"),
            kind=BOUNDED,
            least_bytes=None,
            most_bytes=free,
            why="cached blocks keep their slabs: at most all that is free; threads that wait may hold their most at the same time",
            cost="each malloc and free takes the lock of its bin",
        ),
    ]


def free_bytes(arenas: Sequence[JemallocArena]) -> Optional[int]:
    """All that no program uses in some arenas, in RAM or not. None where a part of it is not known."""
    held = add(part for arena in arenas for part in (arena.active_bytes, arena.dirty_bytes, arena.muzzy_bytes))
    used = add(arena.used_bytes for arena in arenas)
    return None if held is None or used is None else max(0, held - used)


def _decay(arenas: Sequence[JemallocArena], unused: Optional[int], free: Optional[int], setting: str) -> Effect:
    times = [time for arena in arenas for time in (arena.dirty_decay_ms, arena.muzzy_decay_ms)]
    if times and not any(time is None or time for time in times):
        return in_force("decay", setting, "both decay times are 0 in every arena")
    why = "at least dirty and muzzy pages that are in RAM; at most all that is free, as pages are reused in another order"
    cost = "a system call for each freed extent, and page faults for what is used again"
    return Effect("decay", setting, BOUNDED, unused, free, why, cost)


def _background(conditions: JemallocConditions, unused: Optional[int], setting: str) -> Effect:
    if conditions.background_enabled:
        return in_force("background-threads", setting, "background threads are on")
    why = "dirty and muzzy pages go by time: at most all of them"
    return Effect("background-threads", setting, BOUNDED, 0, unused, why, "up to one thread for each CPU, which wakes to purge")


def _arenas(arenas: Sequence[JemallocArena], free: Optional[int], setting: str) -> Effect:
    count = sum(arena.kind == "auto" for arena in arenas)
    if count == 1:
        return in_force("arenas", setting, "there is one arena")
    why = "at most what is free in %d arenas; at worst one arena keeps all that was ever in RAM" % count
    return Effect("arenas", setting, BOUNDED, 0, free, why, "threads wait for the locks of one arena: how long is not known", may_peak=True)
