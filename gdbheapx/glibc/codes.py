"""Codes of what can be wrong with a glibc malloc (gdbheapx/problems.py)."""

from gdbheapx.problems import Code, Severity

RING_CUT = Code("arena-ring-incomplete", Severity.TIME)
RING_UNREADABLE = Code("arena-ring-unreadable", Severity.UNREAD)
RING_BROKEN = Code("arena-ring-broken", Severity.DAMAGE)
"""It leads to what is no malloc_state."""
RING_OPEN = Code("arena-ring-open", Severity.DAMAGE)
"""It does not come back to main_arena."""
MAIN_ARENA_LOST = Code("main-arena-lost", Severity.DAMAGE)
ARENA_CHANGING = Code("arena-changing", Severity.MOMENT)
HEAP_UNREADABLE = Code("heap-unreadable", Severity.UNREAD)
HEAP_DAMAGED = Code("heap-info-damaged", Severity.DAMAGE)

WALK_CUT = Code("walk-incomplete", Severity.TIME)
CHUNK_SMALL = Code("chunk-size-small", Severity.DAMAGE)
"""A size field that cannot be; so the next three."""
CHUNK_MISALIGNED = Code("chunk-size-misaligned", Severity.DAMAGE)
CHUNK_MMAPPED_BIT = Code("chunk-mmapped-bit", Severity.DAMAGE)
CHUNK_OVERRUN = Code("chunk-overrun", Severity.DAMAGE)
FENCEPOST_INSIDE = Code("fencepost-inside", Severity.DAMAGE)
NO_TOP = Code("no-top-chunk", Severity.DAMAGE)
MORE_DAMAGE = Code("more-damage", Severity.DAMAGE)
"""Places that are not told one by one."""
CHUNK_UNREADABLE = Code("chunk-unreadable", Severity.UNREAD)
NO_FENCEPOST = Code("no-fencepost", Severity.DAMAGE)
TOP_UNREADABLE = Code("top-unreadable", Severity.UNREAD)
TOP_SHORT = Code("top-short", Severity.DAMAGE)
"""The top chunk does not end where its memory ends."""
PREV_SIZE_WRONG = Code("prev-size-wrong", Severity.DAMAGE)
FREE_NEIGHBOURS = Code("adjacent-free-chunks", Severity.DAMAGE)
BREAK_DISAGREES = Code("break-mismatch", Severity.DAMAGE)
"""sbrk_base, top and system_mem."""
RUN_NOT_FOUND = Code("run-not-found", Severity.DAMAGE)
"""What lies behind a foreign sbrk."""
NOT_LOCATED = Code("bytes-not-located", Severity.DAMAGE)
SYSTEM_MEM_SMALL = Code("system-mem-small", Severity.DAMAGE)

LISTS_CUT = Code("lists-incomplete", Severity.TIME)
LIST_UNREAD = Code("free-list-unread", Severity.UNREAD)
"""A free list goes on in memory that was not read."""
FASTBIN_BROKEN = Code("fastbin-broken", Severity.DAMAGE)
BIN_BROKEN = Code("bin-broken", Severity.DAMAGE)
BINS_DISAGREE = Code("bins-mismatch", Severity.DAMAGE)
"""They do not hold exactly the free chunks."""
LISTED_TWICE = Code("free-list-entry-twice", Severity.DAMAGE)
LISTED_OUTSIDE = Code("free-list-entry-outside", Severity.DAMAGE)
LISTED_ASTRAY = Code("free-list-entry-not-a-chunk", Severity.DAMAGE)
"""It stands on no chunk boundary."""

CACHES_CUT = Code("caches-incomplete", Severity.TIME)
CACHES_CHANGING = Code("caches-changing", Severity.MOMENT)
CACHES_LOST = Code("attached-threads-not-found", Severity.DAMAGE)
"""An arena counts threads that were not found."""
CACHE_UNKNOWN = Code("cache-unknown", Severity.UNREAD)
CACHE_BROKEN = Code("cache-list-broken", Severity.DAMAGE)
CACHE_MISCOUNTS = Code("cache-count-mismatch", Severity.DAMAGE)

MP_UNREADABLE = Code("mp-unreadable", Severity.UNREAD)
MP_DISAGREES = Code("mp-mismatch", Severity.DAMAGE)
"""n_mmaps and mmapped_mem."""
MAPPED_MISSING = Code("mapped-chunks-missing", Severity.UNREAD)
MAPPED_NOT_SOUGHT = Code("mapped-chunks-not-searched", Severity.ENVIRONMENT)
MAPPED_CHANGING = Code("mapped-chunks-changing", Severity.MOMENT)

# ---- what `check` alone looks for
NOT_BINNED = Code("free-chunk-not-in-bin", Severity.DAMAGE)
BINNED_USED = Code("bin-entry-in-use", Severity.DAMAGE)
BINNED_ASTRAY = Code("bin-entry-not-a-chunk", Severity.DAMAGE)
CACHED_FREE = Code("cached-chunk-free", Severity.DAMAGE)
"""On the list of a thread cache or fastbin, and free by its successor as well: freed twice."""
ARENA_BIT = Code("chunk-arena-bit", Severity.DAMAGE)
FIRST_CHUNK = Code("first-chunk-prev-inuse", Severity.DAMAGE)
ENTRY_SIZE = Code("list-entry-size", Severity.DAMAGE)
CACHE_KEY = Code("cache-key-overwritten", Severity.DAMAGE)
LARGE_ORDER = Code("large-bin-order", Severity.DAMAGE)
LARGE_LINKS = Code("large-bin-nextsize", Severity.DAMAGE)
TOP_WRONG = Code("top-chunk-wrong", Severity.DAMAGE)
BINMAP_WRONG = Code("binmap-wrong", Severity.DAMAGE)
ARENA_STATE = Code("arena-state-wrong", Severity.DAMAGE)
HEAP_CHAIN = Code("heap-chain-wrong", Severity.DAMAGE)
MAPPED_HEADER = Code("mapped-chunk-header", Severity.DAMAGE)
