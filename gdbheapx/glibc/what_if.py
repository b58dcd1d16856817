"""What the settings of glibc's malloc would change: the arenas it may have, its thresholds, its thread caches."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.effects import BOUNDED, Effect, Requests, in_force, restart
from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.layout.view import View
from gdbheapx.model import HistogramRow

FIXED_BYTES = 128 << 10
"""DEFAULT_MMAP_THRESHOLD_MIN, DEFAULT_TRIM_THRESHOLD, DEFAULT_TOP_PAD."""
LEFT_AT_TOP_BYTES = 3 * FIXED_BYTES
"""A free() leaves less than the trim threshold at the top, and top_pad; small blocks freed since may add to it, as merging is asked for in
steps of FASTBIN_CONSOLIDATION_THRESHOLD (64 KiB)."""
MOST_CHUNKS = 1 << 18
"""Of more free chunks it is not asked which of their pages are in RAM: all of them count as if they were."""
FREE = ("free_bytes", "fast_bytes", "tcache_bytes", "top_bytes")
"""What no program uses in an arena."""


def free_bytes(arenas: Sequence[ArenaTotals]) -> Optional[int]:
    """All that is free in some arenas, in RAM or not. None where a part of it is not known."""
    total = 0
    for arena in arenas:
        for name in FREE:
            value = getattr(arena, name)
            if value is None:
                return None
            total += value
    return total


class Figures(NamedTuple):
    """What the effects follow from."""

    arenas: int
    free_bytes: Optional[int]
    """What is free, without whole pages that are known not to be in RAM: no setting can save more."""
    others_bytes: Optional[int]
    """What of free memory lies in thread arenas, in RAM or not."""
    cached_bytes: Optional[int]
    """In thread caches."""
    top_bytes: Optional[int]
    """What of the main top is in RAM."""
    huge_page_bytes: Optional[int]
    """What the arenas would have more where huge pages come whole."""
    large_chunks: int
    """Of FIXED_BYTES or more."""


def effects(mp: View, has: Figures, page_bytes: int) -> List[Effect]:
    """Each of them once."""
    return [
        _arenas(has, mp["arena_max"] == 1),
        *_thresholds(mp, has, page_bytes),
        *_caches(mp, has),
        *_huge_pages(mp, has),
        restart(has.free_bytes),
    ]


def _arenas(has: Figures, is_limited: bool) -> Effect:
    setting = "MALLOC_ARENA_MAX=1"
    if is_limited or has.arenas == 1:
        return in_force("arenas", setting, "arena_max is 1" if is_limited else "no thread made an arena of its own")
    why = "at most what is free in %d arenas; at worst one arena keeps all that was ever in RAM" % has.arenas
    cost = "threads wait for one lock: how long is not known"
    return Effect("arenas", setting, BOUNDED, 0, has.free_bytes, why, cost, may_peak=True, acts_on_bytes=has.others_bytes)


def _thresholds(mp: View, has: Figures, page_bytes: int) -> List[Effect]:
    rows: Sequence[Tuple[str, str, str, str]] = (
        ("trim-threshold", "trim_threshold", "MALLOC_TRIM_THRESHOLD_", "more calls of brk, and page faults when the top grows again"),
        ("mmap-threshold", "mmap_threshold", "MALLOC_MMAP_THRESHOLD_", "a system call and page faults for each block of 128 KiB or more"),
    )
    slack = page_bytes * has.large_chunks
    beyond = None if has.top_bytes is None else max(0, has.top_bytes - LEFT_AT_TOP_BYTES)
    made = []
    for code, name, variable, cost in rows:
        setting = "%s=%d" % (variable, FIXED_BYTES)
        if mp["no_dyn_threshold"] and mp[name] == FIXED_BYTES:
            made.append(in_force(code, setting, "%s is fixed at 128 KiB" % name))
            continue
        least = None if beyond is None else beyond - slack
        why = "at least what of the main top is in RAM beyond the threshold, unless a block comes to lie above it; at most all that is free"
        made.append(Effect(code, setting, BOUNDED, least, has.free_bytes, why, cost, may_peak=True, acts_on_bytes=beyond))
    return made


def _caches(mp: View, has: Figures) -> List[Effect]:
    count = mp.get("tcache_count")
    if count is None:  # as releases before 2.26, which have no tunables either
        return []
    setting = "GLIBC_TUNABLES=glibc.malloc.tcache_count=0"
    if count == 0:
        return [in_force("thread-caches", setting, "tcache_count is 0")]
    why = "blocks in caches keep what is free beside them: at most all that is free; a lower tcache_max saves no more"
    cost = "each malloc and free takes the lock of its arena"
    return [Effect("thread-caches", setting, BOUNDED, 0, has.free_bytes, why, cost, may_peak=True, acts_on_bytes=has.cached_bytes)]


def _huge_pages(mp: View, has: Figures) -> List[Effect]:
    size = mp.get("thp_pagesize")
    if size is None:  # before 2.35
        return []
    setting = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"
    if size:
        return [in_force("malloc-huge-pages", setting, "malloc asks for huge pages")]
    more = None if has.huge_page_bytes is None else -has.huge_page_bytes
    why = "it costs at most what is missing to whole huge pages where arenas lie now; nothing where the kernel has no huge page at hand"
    most = 0 if has.arenas == 1 else has.free_bytes
    if most != 0:
        why += "; threads in several arenas come in another order, which alone can save what is free"
    return [Effect("malloc-huge-pages", setting, BOUNDED, more, most, why, "RAM, for fewer misses of the TLB", may_peak=True)]


def requests(sizes: Sequence[HistogramRow], word_bytes: int, page_bytes: int) -> List[Requests]:
    """Of a chunk the request is known to two words less a byte; a large one may be a mapping, in whole pages."""
    return [
        Requests(
            row.used_chunks,
            row.used_bytes,
            row.used_bytes - row.used_chunks * (3 * word_bytes if row.max_size_bytes < FIXED_BYTES else page_bytes),
            max(1, row.size_bytes - 3 * word_bytes + 1),
            row.max_size_bytes - word_bytes,
        )
        for row in sizes
        if row.used_chunks
    ]
