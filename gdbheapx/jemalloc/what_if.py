"""Effects of jemalloc's options: decay, background threads, the number of arenas, thread caches."""

from typing import List, Optional, Sequence

from gdbheapx import findings as codes
from gdbheapx.allocators.answers import BOUNDED, Effect, effect_of_restart, in_force
from gdbheapx.allocators.measured import BACKGROUND, DECAY_NONE, NO_TCACHE, ONE_ARENA
from gdbheapx.columns import add_values
from gdbheapx.jemalloc.records import JemallocArena, JemallocConditions
from gdbheapx.model import HistogramRow
from gdbheapx.units import count_noun


def list_jemalloc_effects(
    arenas: Sequence[JemallocArena], conditions: JemallocConditions, ends_bytes: int, regions_bytes: int, is_set: bool = False
) -> List[Effect]:
    """Return the effect of each option once. Where the build's environment variable is unknown, the setting says so. `ends_bytes`: see
    ends(). `regions_bytes`: free regions of slabs. `is_set`: the variable has a value.
    """

    def make_setting(options: str) -> str:
        return conditions.names.setting(options) + (" (added to its present value)" if is_set else "")

    unused = add_values(arena.reclaimable_resident_bytes for arena in arenas)
    free, most = add_values((sum_jemalloc_free(arenas), ends_bytes)), add_values((_unused_bytes(arenas), ends_bytes))
    return [
        _predict_decay(arenas, unused, most, make_setting(DECAY_NONE.value)),
        _predict_background(arenas, conditions, unused, most, make_setting(BACKGROUND.value)),
        _predict_arenas(arenas, free, regions_bytes, make_setting(ONE_ARENA.value)),
        _predict_caches(arenas, free, add_values((most, regions_bytes)), make_setting(NO_TCACHE.value)),
        effect_of_restart(free),
    ]


def sum_jemalloc_free(arenas: Sequence[JemallocArena]) -> Optional[int]:
    """Return the bytes in these arenas that the program does not use; of dirty and muzzy pages only those in RAM, where that is known.
    None where a part is unknown.
    """
    unused = _unused_bytes(arenas)
    active = add_values(arena.active_bytes for arena in arenas)
    held = None if unused is None or active is None else active + unused
    used = add_values(
        add_values((arena.used_bytes, arena.rounding_bytes or 0)) for arena in arenas
    )  # what blocks are rounded up by stays with them
    return None if held is None or used is None else max(0, held - used)


def _unused_bytes(arenas: Sequence[JemallocArena]) -> Optional[int]:
    unused = add_values(arena.reclaimable_resident_bytes for arena in arenas)
    return unused if unused is not None else add_values(part for arena in arenas for part in (arena.dirty_bytes, arena.muzzy_bytes))


def sum_unwritten_ends(sizes: Sequence[HistogramRow], page_bytes: int) -> int:
    """Whole pages at the ends of large blocks, up to the next smaller class: a program that asked for less never wrote there, and they are
    in RAM only if they were dirty when the block was made."""
    total = 0
    for row in sizes:
        step = 1 << max(0, (row.size_bytes - 1).bit_length() - 3)
        total += row.used_chunks * max(0, step - page_bytes)
    return total


def _list_causes(arenas: Sequence[JemallocArena]) -> Sequence[str]:
    """Return the codes of the reasons why unused pages stay."""
    if any(arena.dirty_decay_ms == -1 and arena.dirty_bytes for arena in arenas):
        return (codes.PURGING_OFF,)
    if any(arena.muzzy_decay_ms == -1 and arena.muzzy_bytes for arena in arenas):
        return (codes.UNUSED_PAGES,)
    return (codes.PURGED_BY_CALLS,)


def _predict_decay(arenas: Sequence[JemallocArena], unused: Optional[int], most: Optional[int], setting: str) -> Effect:
    times = [time for arena in arenas for time in (arena.dirty_decay_ms, arena.muzzy_decay_ms)]
    if times and not any(time is None or time for time in times):
        return in_force("decay", setting, "both decay times are 0 in every arena")
    why = "dirty and muzzy pages in RAM; at most unwritten ends of large blocks, too; free regions in slabs stay"
    cost = "a system call for each freed extent, and page faults for memory that is used again"
    return Effect("decay", setting, BOUNDED, unused, most, why, cost, acts_on_bytes=unused, by=DECAY_NONE, causes=_list_causes(arenas))


def _predict_background(
    arenas: Sequence[JemallocArena], conditions: JemallocConditions, unused: Optional[int], most: Optional[int], setting: str
) -> Effect:
    if conditions.background_enabled:
        return in_force("background-threads", setting, "background threads are on")
    if conditions.background_asked:
        return in_force("background-threads", setting, "they were asked for at the start, and the program or a fork turned them off")
    why = "dirty and muzzy pages go by time: at most all of them, and unwritten ends of large blocks"
    cost = "up to one thread for each CPU, which wakes to purge"
    by, causes = BACKGROUND, _list_causes(arenas)
    return Effect("background-threads", setting, BOUNDED, 0, most, why, cost, may_peak=True, acts_on_bytes=unused, by=by, causes=causes)


def _predict_caches(arenas: Sequence[JemallocArena], free: Optional[int], kept: Optional[int], setting: str) -> Effect:
    """`kept`: free regions and unused pages, without what large blocks leave of their class. Threads that wait for locks take another
    course: together they may hold more than they ever did."""
    is_alone = _count_automatic(arenas) == 1
    why = "cached blocks keep their slabs: at most these, free regions, and unused pages; "
    why += "at worst as much stays as was ever in RAM" if is_alone else "threads that wait may hold their most at the same time"
    acts_on, cost = add_values(arena.cached_bytes for arena in arenas), "each malloc and free takes the lock of its bin"
    most = free if free is None or kept is None or acts_on is None else min(free, kept + acts_on)
    least, causes = 0 if is_alone else None, (codes.THREAD_CACHES,)
    return Effect(
        "thread-caches", setting, BOUNDED, least, most, why, cost, may_peak=True, acts_on_bytes=acts_on, by=NO_TCACHE, causes=causes
    )


def _count_automatic(arenas: Sequence[JemallocArena]) -> int:
    return sum(arena.kind == "auto" for arena in arenas)


def _predict_arenas(arenas: Sequence[JemallocArena], free: Optional[int], regions_bytes: int, setting: str) -> Effect:
    count = _count_automatic(arenas)
    if count == 1:
        return in_force("arenas", setting, "there is one arena")
    why = "at most the free memory of %s, and all memory of all but the largest; at worst one keeps all that was ever in RAM"
    why %= count_noun(count, "arena")
    held = [add_values((arena.active_bytes, arena.dirty_bytes, arena.muzzy_bytes)) for arena in arenas]
    known = [one for one in held if one is not None]
    most = free if free is None or len(known) < len(held) else min(free, sum(known) - max(known))
    cost, by, causes = "threads wait for the locks of one arena: how long is not known", ONE_ARENA, (codes.MANY_ARENAS,)
    return Effect("arenas", setting, BOUNDED, 0, most, why, cost, may_peak=True, acts_on_bytes=regions_bytes, by=by, causes=causes)
