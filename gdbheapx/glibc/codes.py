"""Codes of what can be wrong with a glibc malloc (gdbheapx/problems.py)."""

from gdbheapx.problems import Code, Nature

RING_CUT = Code("arena-ring-incomplete", Nature.TIME)
RING_UNREADABLE = Code("arena-ring-unreadable", Nature.UNREAD)
RING_BROKEN = Code("arena-ring-broken", Nature.DAMAGE)
"""It leads to what is no malloc_state."""
RING_OPEN = Code("arena-ring-open", Nature.DAMAGE)
"""It does not come back to main_arena."""
MAIN_ARENA_LOST = Code("main-arena-lost", Nature.DAMAGE)
ARENA_CHANGING = Code("arena-changing", Nature.MOMENT)
HEAP_UNREADABLE = Code("heap-unreadable", Nature.UNREAD)
HEAP_DAMAGED = Code("heap-info-damaged", Nature.DAMAGE)

WALK_CUT = Code("walk-incomplete", Nature.TIME)
CHUNK_SMALL = Code("chunk-size-small", Nature.DAMAGE)
"""A size field that cannot be; so the next three."""
CHUNK_MISALIGNED = Code("chunk-size-misaligned", Nature.DAMAGE)
CHUNK_MMAPPED_BIT = Code("chunk-mmapped-bit", Nature.DAMAGE)
CHUNK_OVERRUN = Code("chunk-overrun", Nature.DAMAGE)
FENCEPOST_INSIDE = Code("fencepost-inside", Nature.DAMAGE)
NO_TOP = Code("no-top-chunk", Nature.DAMAGE)
MORE_DAMAGE = Code("more-damage", Nature.DAMAGE)
"""Places that are not told one by one."""
CHUNK_UNREADABLE = Code("chunk-unreadable", Nature.UNREAD)
NO_FENCEPOST = Code("no-fencepost", Nature.DAMAGE)
TOP_UNREADABLE = Code("top-unreadable", Nature.UNREAD)
TOP_SHORT = Code("top-short", Nature.DAMAGE)
"""The top chunk does not end where its memory ends."""
PREV_SIZE_WRONG = Code("prev-size-wrong", Nature.DAMAGE)
FREE_NEIGHBOURS = Code("adjacent-free-chunks", Nature.DAMAGE)
BREAK_DISAGREES = Code("break-mismatch", Nature.DAMAGE)
"""sbrk_base, top and system_mem."""
RUN_NOT_FOUND = Code("run-not-found", Nature.DAMAGE)
"""What lies behind a foreign sbrk."""
NOT_LOCATED = Code("bytes-not-located", Nature.DAMAGE)
SYSTEM_MEM_SMALL = Code("system-mem-small", Nature.DAMAGE)

LISTS_CUT = Code("lists-incomplete", Nature.TIME)
LIST_UNREAD = Code("free-list-unread", Nature.UNREAD)
"""A free list goes on in memory that was not read."""
FASTBIN_BROKEN = Code("fastbin-broken", Nature.DAMAGE)
BIN_BROKEN = Code("bin-broken", Nature.DAMAGE)
BINS_DISAGREE = Code("bins-mismatch", Nature.DAMAGE)
"""They do not hold exactly the free chunks."""
LISTED_TWICE = Code("free-list-entry-twice", Nature.DAMAGE)
LISTED_OUTSIDE = Code("free-list-entry-outside", Nature.DAMAGE)
LISTED_ASTRAY = Code("free-list-entry-not-a-chunk", Nature.DAMAGE)
"""It stands on no chunk boundary."""

CACHES_CUT = Code("caches-incomplete", Nature.TIME)
CACHES_CHANGING = Code("caches-changing", Nature.MOMENT)
CACHES_LOST = Code("attached-threads-not-found", Nature.DAMAGE)
"""An arena counts threads that were not found."""
CACHE_UNKNOWN = Code("cache-unknown", Nature.UNREAD)
CACHE_BROKEN = Code("cache-list-broken", Nature.DAMAGE)
CACHE_MISCOUNTS = Code("cache-count-mismatch", Nature.DAMAGE)

MP_UNREADABLE = Code("mp-unreadable", Nature.UNREAD)
MP_DISAGREES = Code("mp-mismatch", Nature.DAMAGE)
"""n_mmaps and mmapped_mem."""
MAPPED_MISSING = Code("mapped-chunks-missing", Nature.UNREAD)
MAPPED_NOT_SOUGHT = Code("mapped-chunks-not-searched", Nature.ENVIRONMENT)
MAPPED_CHANGING = Code("mapped-chunks-changing", Nature.MOMENT)

# ---- what `check` alone looks for
NOT_BINNED = Code("free-chunk-not-in-bin", Nature.DAMAGE)
BINNED_USED = Code("bin-entry-in-use", Nature.DAMAGE)
BINNED_ASTRAY = Code("bin-entry-not-a-chunk", Nature.DAMAGE)
CACHED_FREE = Code("cached-chunk-free", Nature.DAMAGE)
"""On the list of a thread cache or fastbin, and free by its successor as well: freed twice."""
ARENA_BIT = Code("chunk-arena-bit", Nature.DAMAGE)
FIRST_CHUNK = Code("first-chunk-prev-inuse", Nature.DAMAGE)
ENTRY_SIZE = Code("list-entry-size", Nature.DAMAGE)
CACHE_KEY = Code("cache-key-overwritten", Nature.DAMAGE)
LARGE_ORDER = Code("large-bin-order", Nature.DAMAGE)
LARGE_LINKS = Code("large-bin-nextsize", Nature.DAMAGE)
TOP_WRONG = Code("top-chunk-wrong", Nature.DAMAGE)
BINMAP_WRONG = Code("binmap-wrong", Nature.DAMAGE)
ARENA_STATE = Code("arena-state-wrong", Nature.DAMAGE)
HEAP_CHAIN = Code("heap-chain-wrong", Nature.DAMAGE)
MAPPED_HEADER = Code("mapped-chunk-header", Nature.DAMAGE)
