"""The settings that are advised, and what each was measured to do: docs/reference/advice.md has the programs, `make advice` runs them.

A text of a setting stands here alone: what has no case is advised nowhere.
"""

from typing import Collection, List, NamedTuple

from gdbheapx import findings as codes

LEAST_SHARE = 10
"""Percent of RSS: what saved less in every program where it was tried for a cause is not advised for that cause."""


class Setting(NamedTuple):
    """One, at the next start."""

    variable: str
    """Of the environment. A build may read another: its `PublicNames` has that."""
    value: str
    """Of the variable, or of one option in it."""
    harm: int
    """0: system calls and page faults; 1: a lock is taken more often, or waited for."""

    @property
    def text(self) -> str:
        """As it is typed."""
        return "%s=%s" % (self.variable, self.value)


class Case(NamedTuple):
    """One program, without and with a setting."""

    setting: str
    """Its value."""
    cause: str
    """The code of what keeps the memory."""
    before_bytes: int
    after_bytes: int

    @property
    def saved_percent(self) -> int:
        """Of the memory without it; below 0: it takes more."""
        return 100 * (self.before_bytes - self.after_bytes) // self.before_bytes


ARENA_ONE = Setting("MALLOC_ARENA_MAX", "1", 1)
ARENA_TWO = Setting("MALLOC_ARENA_MAX", "2", 1)
MMAP_THRESHOLD = Setting("MALLOC_MMAP_THRESHOLD_", "131072", 0)
TRIM_THRESHOLD = Setting("MALLOC_TRIM_THRESHOLD_", "131072", 0)
MXFAST = Setting("GLIBC_TUNABLES", "glibc.malloc.mxfast=0", 0)
TCACHE_COUNT = Setting("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1)
HUGETLB_OFF = Setting("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0", 0)
HUGETLB_ON = Setting("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 0)
DECAY_NONE = Setting("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0", 0)
DECAY_USUAL = Setting("MALLOC_CONF", "dirty_decay_ms:10000", 0)
MUZZY_NONE = Setting("MALLOC_CONF", "muzzy_decay_ms:0", 0)
BACKGROUND = Setting("MALLOC_CONF", "background_thread:true", 0)
ONE_ARENA = Setting("MALLOC_CONF", "narenas:1", 1)
NO_TCACHE = Setting("MALLOC_CONF", "tcache:false", 1)
NO_HUGE = Setting("MALLOC_CONF", "thp:never", 0)
PURGE_DELAY = Setting("MIMALLOC_PURGE_DELAY", "0", 0)
DECOMMIT_DELAY = Setting("MIMALLOC_DECOMMIT_DELAY", "0", 0)
"""As release 2.0 calls it."""
AGGRESSIVE_DECOMMIT = Setting("TCMALLOC_AGGRESSIVE_DECOMMIT", "true", 0)
CACHE_BYTES = Setting("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "524288", 1)

SETTINGS = tuple(one for one in list(globals().values()) if isinstance(one, Setting))

CASES = (
    # made by `make advice`
    Case(MXFAST.text, codes.FASTBINS, 51900000, 5100000),
    # end
)
"""What was measured: setting, cause, RSS without and with it."""


def saved_percent(setting: Setting, cause: str) -> int:
    """The most that it saved of RSS where this kept the memory; 0: nothing worth it, or never tried."""
    found = [case.saved_percent for case in CASES if (case.setting, case.cause) == (setting.text, cause)]
    return max((one for one in found if one >= LEAST_SHARE), default=0)


def helping(causes: Collection[str], among: Collection[Setting]) -> List[Setting]:
    """Those that were measured to help against one of these causes: what saved most first, of those alike the least harm."""
    weighed = {one: max((saved_percent(one, cause) for cause in causes), default=0) for one in among}
    return sorted((one for one in among if weighed[one]), key=lambda one: (-weighed[one], one.harm))
