"""The settings that are advised, and what each was measured to do: docs/reference/advice.md has the programs, `make advice` runs them.

A text of a setting is here alone: what has no case is advised nowhere.
"""

from typing import Collection, NamedTuple

from gdbheapx.common import findings as codes

LEAST_SHARE = 10
"""Percent of RSS: what saved less in every program where it was tried for a cause is not advised for that cause."""


class Setting(NamedTuple):
    """A setting for the next start."""

    variable: str
    """Of the environment. A build may read another: its `PublicNames` has that."""
    value: str
    """Of the variable, or of one option in it; empty: it is a call of the program."""
    harm: int
    """0: system calls and page faults; 1: a lock is taken more often, or waited for."""

    @property
    def text(self) -> str:
        """The setting as it is typed."""
        return "%s=%s" % (self.variable, self.value) if self.value else self.variable


class Case(NamedTuple):
    """A measured program, without and with a setting."""

    setting: str
    """Its text."""
    cause: str
    """The code of what keeps the memory."""
    before_mib: float
    after_mib: float

    @property
    def saved_percent(self) -> int:
        """Percent of the memory without the setting; below 0: it takes more."""
        return int(100 * (self.before_mib - self.after_mib) / self.before_mib)


ARENA_ONE = Setting("MALLOC_ARENA_MAX", "1", 1)
ARENA_TWO = Setting("MALLOC_ARENA_MAX", "2", 1)
MMAP_THRESHOLD = Setting("MALLOC_MMAP_THRESHOLD_", "131072", 0)
TRIM_THRESHOLD = Setting("MALLOC_TRIM_THRESHOLD_", "131072", 0)
MXFAST = Setting("GLIBC_TUNABLES", "glibc.malloc.mxfast=0", 0)
TCACHE_COUNT = Setting("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1)
HUGETLB_OFF = Setting("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0", 0)
HUGETLB_ON = Setting("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 0)
DECAY_NONE = Setting("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0", 0)
DECAY_USUAL = Setting("MALLOC_CONF", "background_thread:true,dirty_decay_ms:10000", 0)
MUZZY_NONE = Setting("MALLOC_CONF", "muzzy_decay_ms:0", 0)
BACKGROUND = Setting("MALLOC_CONF", "background_thread:true", 0)
ONE_ARENA = Setting("MALLOC_CONF", "narenas:1", 1)
NO_TCACHE = Setting("MALLOC_CONF", "tcache:false", 1)
NO_HUGE = Setting("MALLOC_CONF", "thp:never", 0)
HPA_BOUND = Setting("MALLOC_CONF", "hpa_dirty_mult:0.25", 0)
"""jemalloc's own value."""
NO_OBLIVIOUS = Setting("MALLOC_CONF", "cache_oblivious:false", 0)
"""From 5.3.1; 5.3.0 refuses it."""
PURGE_DELAY = Setting("MIMALLOC_PURGE_DELAY", "0", 0)
DECOMMIT_DELAY = Setting("MIMALLOC_DECOMMIT_DELAY", "0", 0)
"""As release 2.0 calls it."""
PURGE_DECOMMITS = Setting("MIMALLOC_PURGE_DECOMMITS", "1", 0)
AGGRESSIVE_DECOMMIT = Setting("TCMALLOC_AGGRESSIVE_DECOMMIT", "true", 0)
CACHE_BYTES = Setting("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "524288", 1)
FREEZE = Setting("gc.freeze()", "", 0)
"""Of Python, before it forks. What was measured is PSS: RSS counts the parent's pages whether they are copied or not."""

SETTINGS = tuple(one for one in list(globals().values()) if isinstance(one, Setting))

CASES = (
    # made by `make advice`
    Case(MXFAST.text, codes.UNMERGED, 47.0, 3.2),
    Case(MMAP_THRESHOLD.text, codes.UNMERGED, 47.0, 47.1),
    Case(TRIM_THRESHOLD.text, codes.UNMERGED, 47.0, 47.2),
    Case(ARENA_ONE.text, codes.UNMERGED, 47.0, 47.1),
    Case(ARENA_TWO.text, codes.UNMERGED, 47.0, 47.2),
    Case(TCACHE_COUNT.text, codes.UNMERGED, 47.0, 47.1),
    Case(MXFAST.text, codes.THREAD_TOPS, 129.3, 129.3),
    Case(MMAP_THRESHOLD.text, codes.THREAD_TOPS, 129.3, 1.3),
    Case(TRIM_THRESHOLD.text, codes.THREAD_TOPS, 129.3, 1.2),
    Case(ARENA_ONE.text, codes.THREAD_TOPS, 129.3, 97.3),
    Case(ARENA_TWO.text, codes.THREAD_TOPS, 129.3, 118.7),
    Case(TCACHE_COUNT.text, codes.THREAD_TOPS, 129.3, 129.4),
    Case(MMAP_THRESHOLD.text, codes.THREAD_TOPS, 80.6, 2.4),
    Case(TRIM_THRESHOLD.text, codes.THREAD_TOPS, 80.6, 2.4),
    Case(ARENA_ONE.text, codes.THREAD_TOPS, 80.6, 7.5),
    Case(ARENA_TWO.text, codes.THREAD_TOPS, 80.6, 55.0),
    Case(MMAP_THRESHOLD.text, codes.MAIN_TOP, 31.1, 5.4),
    Case(TRIM_THRESHOLD.text, codes.MAIN_TOP, 31.1, 5.2),
    Case(MXFAST.text, codes.MAIN_TOP, 31.1, 31.2),
    Case(TCACHE_COUNT.text, codes.MAIN_TOP, 31.1, 31.1),
    Case(MXFAST.text, codes.MANY_ARENAS, 50.3, 50.3),
    Case(MMAP_THRESHOLD.text, codes.MANY_ARENAS, 50.3, 50.2),
    Case(TRIM_THRESHOLD.text, codes.MANY_ARENAS, 50.3, 50.3),
    Case(ARENA_ONE.text, codes.MANY_ARENAS, 50.3, 19.1),
    Case(ARENA_TWO.text, codes.MANY_ARENAS, 50.3, 20.6),
    Case(TCACHE_COUNT.text, codes.MANY_ARENAS, 50.3, 49.4),
    Case(TCACHE_COUNT.text, codes.THREAD_CACHES, 44.4, 8.1),
    Case(ARENA_ONE.text, codes.THREAD_CACHES, 44.4, 43.8),
    Case(ARENA_TWO.text, codes.THREAD_CACHES, 44.4, 43.9),
    Case(MXFAST.text, codes.THREAD_CACHES, 44.4, 44.4),
    Case(MMAP_THRESHOLD.text, codes.ARENAS_LEFT, 80.7, 2.5),
    Case(TRIM_THRESHOLD.text, codes.ARENAS_LEFT, 80.7, 2.6),
    Case(ARENA_ONE.text, codes.ARENAS_LEFT, 80.7, 10.3),
    Case(ARENA_TWO.text, codes.ARENAS_LEFT, 80.7, 56.4),
    Case(ARENA_ONE.text, codes.MANY_ARENAS, 65.6, 32.0),
    Case(ARENA_TWO.text, codes.MANY_ARENAS, 65.6, 37.4),
    Case(MXFAST.text, codes.FREE_BETWEEN, 18.0, 17.8),
    Case(TRIM_THRESHOLD.text, codes.FREE_BETWEEN, 18.0, 18.0),
    Case(TCACHE_COUNT.text, codes.FREE_BETWEEN, 18.0, 18.0),
    Case(MXFAST.text, codes.IN_USE, 41.0, 40.9),
    Case(ARENA_ONE.text, codes.IN_USE, 41.0, 41.0),
    Case(TCACHE_COUNT.text, codes.IN_USE, 41.0, 41.0),
    Case(HUGETLB_ON.text, codes.IN_USE, 41.0, 41.0),
    Case(HUGETLB_OFF.text, codes.BLOCKLESS, 31.3, 5.1),
    Case(BACKGROUND.text, codes.PURGED_BY_CALLS, 411.2, 23.7),
    Case(DECAY_NONE.text, codes.PURGED_BY_CALLS, 411.2, 18.8),
    Case(ONE_ARENA.text, codes.PURGED_BY_CALLS, 411.2, 269.3),
    Case(NO_TCACHE.text, codes.PURGED_BY_CALLS, 411.2, 324.3),
    Case(NO_HUGE.text, codes.PURGED_BY_CALLS, 411.2, 411.2),
    Case(BACKGROUND.text, codes.PURGING_OFF, 411.2, 411.2),
    Case(DECAY_NONE.text, codes.PURGING_OFF, 411.2, 18.8),
    Case(DECAY_USUAL.text, codes.PURGING_OFF, 411.2, 110.9),
    Case(MUZZY_NONE.text, codes.UNUSED_PAGES, 411.2, 18.9),
    Case(DECAY_NONE.text, codes.UNUSED_PAGES, 411.2, 18.8),
    Case(BACKGROUND.text, codes.UNUSED_PAGES, 411.2, 411.2),
    Case(ONE_ARENA.text, codes.UNUSED_PAGES, 411.2, 214.5),
    Case(HPA_BOUND.text, codes.UNUSED_PAGES, 411.3, 22.4),
    Case(BACKGROUND.text, codes.UNUSED_PAGES, 411.3, 411.3),
    Case(DECAY_NONE.text, codes.UNUSED_PAGES, 411.3, 411.2),
    Case(BACKGROUND.text, codes.THREAD_CACHES, 61.8, 61.8),
    Case(DECAY_NONE.text, codes.THREAD_CACHES, 61.8, 61.6),
    Case(ONE_ARENA.text, codes.THREAD_CACHES, 61.8, 60.6),
    Case(NO_TCACHE.text, codes.THREAD_CACHES, 61.8, 14.6),
    Case(BACKGROUND.text, codes.MANY_ARENAS, 41.5, 44.7),
    Case(DECAY_NONE.text, codes.MANY_ARENAS, 41.5, 42.7),
    Case(ONE_ARENA.text, codes.MANY_ARENAS, 41.5, 23.2),
    Case(NO_TCACHE.text, codes.MANY_ARENAS, 41.5, 45.0),
    Case(BACKGROUND.text, codes.FREE_REGIONS, 19.9, 19.9),
    Case(DECAY_NONE.text, codes.FREE_REGIONS, 19.9, 19.8),
    Case(ONE_ARENA.text, codes.FREE_REGIONS, 19.9, 19.8),
    Case(NO_TCACHE.text, codes.FREE_REGIONS, 19.9, 19.8),
    Case(NO_TCACHE.text, codes.IN_USE, 82.3, 82.2),
    Case(ONE_ARENA.text, codes.IN_USE, 82.3, 82.1),
    Case(DECAY_NONE.text, codes.IN_USE, 82.3, 82.3),
    Case(NO_OBLIVIOUS.text, codes.LARGE_ROUNDING, 82.2, 82.3),
    Case(NO_OBLIVIOUS.text, codes.LARGE_ROUNDING, 83.2, 67.7),
    Case(NO_HUGE.text, codes.PART_HELD, 44.4, 35.4),
    Case(DECAY_NONE.text, codes.PART_HELD, 44.4, 30.0),
    Case(ONE_ARENA.text, codes.SMALL_HEAP, 7.3, 6.7),
    Case(DECOMMIT_DELAY.text, codes.FREED_AND_HELD, 324.5, 9.3),
    Case(PURGE_DELAY.text, codes.FREED_AND_HELD, 327.3, 14.3),
    Case(PURGE_DELAY.text, codes.FREED_AND_HELD, 253.7, 15.2),
    Case(DECOMMIT_DELAY.text, codes.FREED_AND_HELD, 18.4, 18.1),
    Case(PURGE_DELAY.text, codes.FREED_AND_HELD, 21.6, 20.0),
    Case(PURGE_DELAY.text, codes.FREED_AND_HELD, 21.7, 21.5),
    Case(DECOMMIT_DELAY.text, codes.FREED_AND_HELD, 72.3, 46.5),
    Case(PURGE_DELAY.text, codes.FREED_AND_HELD, 89.9, 55.1),
    Case(PURGE_DELAY.text, codes.FREED_AND_HELD, 63.8, 53.8),
    Case(PURGE_DECOMMITS.text, codes.GIVEN_BACK_IN_RAM, 296.4, 14.3),
    Case(PURGE_DELAY.text, codes.GIVEN_BACK_IN_RAM, 296.4, 326.2),
    Case(PURGE_DECOMMITS.text, codes.GIVEN_BACK_IN_RAM, 246.0, 16.4),
    Case(PURGE_DELAY.text, codes.GIVEN_BACK_IN_RAM, 246.0, 279.4),
    Case(AGGRESSIVE_DECOMMIT.text, codes.UNUSED_PAGES, 205.0, 50.7),
    Case(CACHE_BYTES.text, codes.UNUSED_PAGES, 205.0, 169.0),
    Case(AGGRESSIVE_DECOMMIT.text, codes.UNUSED_PAGES, 106.6, 7.5),
    Case(CACHE_BYTES.text, codes.UNUSED_PAGES, 106.6, 106.6),
    Case(AGGRESSIVE_DECOMMIT.text, codes.THREAD_CACHES, 61.5, 61.6),
    Case(CACHE_BYTES.text, codes.THREAD_CACHES, 61.5, 36.6),
    Case(AGGRESSIVE_DECOMMIT.text, codes.FREE_REGIONS, 22.6, 22.6),
    Case(CACHE_BYTES.text, codes.FREE_REGIONS, 22.6, 22.6),
    Case(FREEZE.text, codes.COPIED_ON_WRITE, 38.0, 13.6),
    Case(FREEZE.text, codes.COPIED_ON_WRITE, 38.5, 38.5),
    # end
)
"""What was measured: setting, cause, RSS without and with it."""


def saved_percent(setting: Setting, causes: Collection[str]) -> int:
    """The most that it saved of RSS where one of these kept the memory; 0: nothing worth it, or never tried."""
    found = [case.saved_percent for case in CASES if case.setting == setting.text and case.cause in causes]
    return max((one for one in found if one >= LEAST_SHARE), default=0)
