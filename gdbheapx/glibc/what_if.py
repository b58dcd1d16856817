"""What the settings of glibc's malloc would change: the arenas it may have, its thresholds, its thread caches."""

from typing import List, Optional, Sequence, Tuple

from gdbheapx.allocators.effects import BOUNDED, Effect, in_force
from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.layout.view import View

FIXED_BYTES = 128 << 10
"""DEFAULT_MMAP_THRESHOLD_MIN, DEFAULT_TRIM_THRESHOLD, DEFAULT_TOP_PAD."""
LEFT_AT_TOP_BYTES = 3 * FIXED_BYTES
"""A free() leaves less than the trim threshold at the top, and top_pad; small blocks freed since may add to it, as merging is asked for in
steps of FASTBIN_CONSOLIDATION_THRESHOLD (64 KiB)."""
FREE = ("free_bytes", "fast_bytes", "tcache_bytes", "top_bytes")
"""What no program uses in an arena."""


def free_bytes(arenas: Sequence[ArenaTotals]) -> Optional[int]:
    """All that is free in some arenas, in RAM or not: none of their settings can save more. None where a part of it is not known."""
    total = 0
    for arena in arenas:
        for name in FREE:
            value = getattr(arena, name)
            if value is None:
                return None
            total += value
    return total


def effects(
    mp: View,
    arenas: Sequence[ArenaTotals],
    top_resident_bytes: Optional[int],
    large_blocks: int,
    page_bytes: int,
) -> List[Effect]:
    """Each of them once. `top_resident_bytes`: of the main top what is in RAM; `large_blocks`: blocks of FIXED_BYTES or more."""
    free = free_bytes(arenas)
    return [
        _arenas(free, len(arenas), mp["arena_max"] == 1),
        *_thresholds(mp, free, top_resident_bytes, large_blocks * page_bytes),
        *_caches(mp, free),
    ]


def _arenas(free: Optional[int], count: int, is_limited: bool) -> Effect:
    setting = "MALLOC_ARENA_MAX=1"
    if is_limited or count == 1:
        return in_force("arenas", setting, "arena_max is 1" if is_limited else "no thread made an arena of its own")
    why = "at most what is free in %d arenas; at worst one arena keeps all that was ever in RAM" % count
    return Effect("arenas", setting, BOUNDED, 0, free, why, "threads wait for one lock: how long is not known", may_peak=True)


def _thresholds(mp: View, free: Optional[int], top: Optional[int], slack: int) -> List[Effect]:
    rows: Sequence[Tuple[str, str, str, str]] = (
        ("trim-threshold", "trim_threshold", "MALLOC_TRIM_THRESHOLD_", "more calls of brk, and page faults when the top grows again"),
        ("mmap-threshold", "mmap_threshold", "MALLOC_MMAP_THRESHOLD_", "a system call and page faults for each block of 128 KiB or more"),
    )
    made = []
    for code, name, variable, cost in rows:
        setting = "%s=%d" % (variable, FIXED_BYTES)
        if mp["no_dyn_threshold"] and mp[name] == FIXED_BYTES:
            made.append(in_force(code, setting, "%s is fixed at 128 KiB" % name))
            continue
        least = None if top is None else max(0, top - LEFT_AT_TOP_BYTES) - slack
        why = "at least what of the main top is in RAM beyond the threshold; at most all that is free"
        made.append(Effect(code, setting, BOUNDED, least, free, why, cost, may_peak=True))
    return made


def _caches(mp: View, free: Optional[int]) -> List[Effect]:
    count = mp.get("tcache_count")
    if count is None:  # as releases before 2.26, which have no tunables either
        return []
    setting = "GLIBC_TUNABLES=glibc.malloc.tcache_count=0"
    if count == 0:
        return [in_force("thread-caches", setting, "tcache_count is 0")]
    why = "blocks in caches keep what is free beside them: at most all that is free"
    cost = "each malloc and free takes the lock of its arena"
    return [Effect("thread-caches", setting, BOUNDED, 0, free, why, cost, may_peak=True)]
