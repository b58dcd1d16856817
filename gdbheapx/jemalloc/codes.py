"""Codes of what can be wrong with a jemalloc (gdbheapx/problems.py)."""

from gdbheapx.problems import Code, Nature

ARENAS_UNREADABLE = Code("arenas-unreadable", Nature.UNREAD)
NARENAS_WRONG = Code("narenas-wrong", Nature.DAMAGE)
ARENA_UNREADABLE = Code("arena-unreadable", Nature.UNREAD)
ARENA_WRONG = Code("arena-wrong", Nature.DAMAGE)
"""arenas[i] leads to what is no arena, or another one."""
BASE_UNREADABLE = Code("base-unreadable", Nature.UNREAD)
BASE_BROKEN = Code("base-broken", Nature.DAMAGE)

EXTENTS_CUT = Code("extents-cut", Nature.TIME)
EXTENT_DAMAGED = Code("extent-damaged", Nature.DAMAGE)
CACHED_BLOCK_WRONG = Code("cached-block-wrong", Nature.DAMAGE)
"""A thread cache holds what is no allocated block."""

CACHE_UNREADABLE = Code("thread-cache-unreadable", Nature.UNREAD)
CACHE_BIN_WRONG = Code("thread-cache-bin-wrong", Nature.DAMAGE)
CACHE_LIST_UNREADABLE = Code("thread-cache-list-unreadable", Nature.UNREAD)
CACHE_LIST_BROKEN = Code("thread-cache-list-broken", Nature.DAMAGE)
CACHE_UNLISTED = Code("thread-cache-unlisted", Nature.DAMAGE)
CACHE_UNOWNED = Code("thread-cache-unowned", Nature.DAMAGE)

TSD_UNKNOWN = Code("tsd-unknown", Nature.UNREAD)
TSD_UNREADABLE = Code("tsd-unreadable", Nature.UNREAD)
TSD_WRONG = Code("tsd-wrong", Nature.DAMAGE)
TSD_LIST_BROKEN = Code("tsd-list-broken", Nature.DAMAGE)
TSD_UNOWNED = Code("tsd-unowned", Nature.DAMAGE)
TSD_UNLISTED = Code("tsd-unlisted", Nature.DAMAGE)

BACKGROUND_UNREADABLE = Code("background-unreadable", Nature.UNREAD)
STATISTICS_UNREADABLE = Code("statistics-unreadable", Nature.UNREAD)
PROFILE_UNREADABLE = Code("profile-unreadable", Nature.UNREAD)
PROFILE_DAMAGED = Code("profile-damaged", Nature.DAMAGE)
