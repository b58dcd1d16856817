"""Codes of what can be wrong with a glibc malloc (gdbheapx/common/problems.py)."""

from gdbheapx.common.problems import ProblemCode, Severity

RING_CUT = ProblemCode("arena-ring-incomplete", Severity.TIME)
RING_UNREADABLE = ProblemCode("arena-ring-unreadable", Severity.UNREAD)
RING_BROKEN = ProblemCode("arena-ring-broken", Severity.DAMAGE)
"""It leads to what is no malloc_state."""
RING_OPEN = ProblemCode("arena-ring-open", Severity.DAMAGE)
"""It does not come back to main_arena."""
MAIN_ARENA_LOST = ProblemCode("main-arena-lost", Severity.DAMAGE)
ARENA_CHANGING = ProblemCode("arena-changing", Severity.MOMENT)
HEAP_UNREADABLE = ProblemCode("heap-unreadable", Severity.UNREAD)
HEAP_DAMAGED = ProblemCode("heap-info-damaged", Severity.DAMAGE)

WALK_CUT = ProblemCode("walk-incomplete", Severity.TIME)
CHUNK_SMALL = ProblemCode("chunk-size-small", Severity.DAMAGE)
"""A size field that cannot be; so the next three."""
CHUNK_MISALIGNED = ProblemCode("chunk-size-misaligned", Severity.DAMAGE)
CHUNK_MMAPPED_BIT = ProblemCode("chunk-mmapped-bit", Severity.DAMAGE)
CHUNK_OVERRUN = ProblemCode("chunk-overrun", Severity.DAMAGE)
FENCEPOST_INSIDE = ProblemCode("fencepost-inside", Severity.DAMAGE)
NO_TOP = ProblemCode("no-top-chunk", Severity.DAMAGE)
MORE_DAMAGE = ProblemCode("more-damage", Severity.DAMAGE)
"""Places that are not named one by one."""
CHUNK_UNREADABLE = ProblemCode("chunk-unreadable", Severity.UNREAD)
NO_FENCEPOST = ProblemCode("no-fencepost", Severity.DAMAGE)
TOP_UNREADABLE = ProblemCode("top-unreadable", Severity.UNREAD)
TOP_SHORT = ProblemCode("top-short", Severity.DAMAGE)
"""The top chunk does not end where its memory ends."""
PREV_SIZE_WRONG = ProblemCode("prev-size-wrong", Severity.DAMAGE)
FREE_NEIGHBOURS = ProblemCode("adjacent-free-chunks", Severity.DAMAGE)
BREAK_DISAGREES = ProblemCode("break-mismatch", Severity.DAMAGE)
"""sbrk_base, top and system_mem."""
RUN_NOT_FOUND = ProblemCode("run-not-found", Severity.DAMAGE)
"""Chunks after a foreign sbrk."""
NOT_LOCATED = ProblemCode("bytes-not-located", Severity.DAMAGE)
SYSTEM_MEM_SMALL = ProblemCode("system-mem-small", Severity.DAMAGE)

LISTS_CUT = ProblemCode("lists-incomplete", Severity.TIME)
LIST_UNREAD = ProblemCode("free-list-unread", Severity.UNREAD)
"""A free list goes on in memory that was not read."""
FASTBIN_BROKEN = ProblemCode("fastbin-broken", Severity.DAMAGE)
BIN_BROKEN = ProblemCode("bin-broken", Severity.DAMAGE)
BINS_DISAGREE = ProblemCode("bins-mismatch", Severity.DAMAGE)
"""They do not hold exactly the free chunks."""
LISTED_TWICE = ProblemCode("free-list-entry-twice", Severity.DAMAGE)
LISTED_OUTSIDE = ProblemCode("free-list-entry-outside", Severity.DAMAGE)
LISTED_ASTRAY = ProblemCode("free-list-entry-not-a-chunk", Severity.DAMAGE)
"""It is on no chunk boundary."""

CACHES_CUT = ProblemCode("caches-incomplete", Severity.TIME)
CACHES_CHANGING = ProblemCode("caches-changing", Severity.MOMENT)
CACHES_LOST = ProblemCode("attached-threads-not-found", Severity.DAMAGE)
"""An arena counts threads that were not found."""
CACHE_UNKNOWN = ProblemCode("cache-unknown", Severity.UNREAD)
CACHE_BROKEN = ProblemCode("cache-list-broken", Severity.DAMAGE)
CACHE_MISCOUNTS = ProblemCode("cache-count-mismatch", Severity.DAMAGE)

MP_UNREADABLE = ProblemCode("mp-unreadable", Severity.UNREAD)
MP_DISAGREES = ProblemCode("mp-mismatch", Severity.DAMAGE)
"""n_mmaps and mmapped_mem."""
MAPPED_MISSING = ProblemCode("mapped-chunks-missing", Severity.UNREAD)
MAPPED_NOT_SOUGHT = ProblemCode("mapped-chunks-not-searched", Severity.ENVIRONMENT)
MAPPED_CHANGING = ProblemCode("mapped-chunks-changing", Severity.MOMENT)

# ---- what `check` alone looks for
NOT_BINNED = ProblemCode("free-chunk-not-in-bin", Severity.DAMAGE)
BINNED_USED = ProblemCode("bin-entry-in-use", Severity.DAMAGE)
BINNED_ASTRAY = ProblemCode("bin-entry-not-a-chunk", Severity.DAMAGE)
CACHED_FREE = ProblemCode("cached-chunk-free", Severity.DAMAGE)
"""On the list of a thread cache or fastbin, and free by its successor as well: freed twice."""
ARENA_BIT = ProblemCode("chunk-arena-bit", Severity.DAMAGE)
FIRST_CHUNK = ProblemCode("first-chunk-prev-inuse", Severity.DAMAGE)
ENTRY_SIZE = ProblemCode("list-entry-size", Severity.DAMAGE)
CACHE_KEY = ProblemCode("cache-key-overwritten", Severity.DAMAGE)
LARGE_ORDER = ProblemCode("large-bin-order", Severity.DAMAGE)
LARGE_LINKS = ProblemCode("large-bin-nextsize", Severity.DAMAGE)
TOP_WRONG = ProblemCode("top-chunk-wrong", Severity.DAMAGE)
BINMAP_WRONG = ProblemCode("binmap-wrong", Severity.DAMAGE)
ARENA_STATE = ProblemCode("arena-state-wrong", Severity.DAMAGE)
HEAP_CHAIN = ProblemCode("heap-chain-wrong", Severity.DAMAGE)
MAPPED_HEADER = ProblemCode("mapped-chunk-header", Severity.DAMAGE)
