"""Codes of what can be wrong with a jemalloc (gdbheapx/problems.py)."""

from gdbheapx.problems import Code, Nature

LAYOUT_UNKNOWN = Code("layout-unknown", Nature.UNREAD)
"""No layout is this build's: its extents are read, its counters, threads and caches are not."""
ARENAS_UNREADABLE = Code("arenas-unreadable", Nature.UNREAD)
NARENAS_WRONG = Code("narenas-wrong", Nature.DAMAGE)
ARENA_UNREADABLE = Code("arena-unreadable", Nature.UNREAD)
ARENA_WRONG = Code("arena-wrong", Nature.DAMAGE)
"""arenas[i] leads to what is no arena, or another one."""
ARENA_MISSING = Code("arena-missing", Nature.DAMAGE)
"""Extents belong to an arena that arenas[] does not have."""
BASE_UNREADABLE = Code("base-unreadable", Nature.UNREAD)
BASE_BROKEN = Code("base-broken", Nature.DAMAGE)

EXTENTS_CUT = Code("extents-incomplete", Nature.TIME)
NODE_UNREADABLE = Code("rtree-node-unreadable", Nature.UNREAD)
NODE_HOLE = Code("rtree-node-hole", Nature.UNREAD)
NODE_TWICE = Code("rtree-node-twice", Nature.DAMAGE)
NODE_MISALIGNED = Code("rtree-node-misaligned", Nature.DAMAGE)
TOO_MANY_NODES = Code("rtree-too-many-nodes", Nature.DAMAGE)
EXTENT_UNREADABLE = Code("extent-unreadable", Nature.UNREAD)
EXTENT_SIZE = Code("extent-size", Nature.DAMAGE)
EXTENT_STALE = Code("extent-stale", Nature.DAMAGE)
"""The extent that the radix tree names for a page does not contain it."""
EXTENT_FIRST_PAGE = Code("extent-first-page", Nature.DAMAGE)
EXTENT_LAST_PAGE = Code("extent-last-page", Nature.DAMAGE)
EXTENT_OVERLAP = Code("extent-overlap", Nature.DAMAGE)
EXTENT_ARENA = Code("extent-arena", Nature.DAMAGE)
EXTENT_STATE = Code("extent-state", Nature.DAMAGE)
EXTENT_SZIND = Code("extent-szind", Nature.DAMAGE)
SLAB_SIZE = Code("slab-size", Nature.DAMAGE)
SLAB_BITMAP = Code("slab-bitmap", Nature.DAMAGE)

CACHED_OUTSIDE = Code("cached-outside", Nature.DAMAGE)
"""A thread cache holds an address in no active extent; the next four likewise."""
CACHED_NOT_START = Code("cached-not-start", Nature.DAMAGE)
CACHED_FREE = Code("cached-free", Nature.DAMAGE)
CACHED_TWICE = Code("cached-twice", Nature.DAMAGE)
CACHED_UNKNOWN = Code("cached-unknown", Nature.DAMAGE)

CACHE_UNREADABLE = Code("thread-cache-unreadable", Nature.UNREAD)
CACHE_BIN_WRONG = Code("thread-cache-bin-wrong", Nature.DAMAGE)
CACHE_LIST_UNREADABLE = Code("thread-cache-list-unreadable", Nature.UNREAD)
CACHE_LIST_BROKEN = Code("thread-cache-list-broken", Nature.DAMAGE)
CACHE_UNLISTED = Code("thread-cache-unlisted", Nature.DAMAGE)
CACHE_UNOWNED = Code("thread-cache-unowned", Nature.DAMAGE)

TSD_UNKNOWN = Code("tsd-unknown", Nature.UNREAD)
TICKER_UNTOLD = Code("ticker-untold", Nature.UNREAD)
"""A thread may be blind or just creating its tickers: the code that tells is in a file that is not at hand."""
TSDS_FROM_LISTS = Code("tsds-from-lists", Nature.UNREAD)
"""Without thread-local storage only jemalloc's own lists lead to tsds: a call needs to know that of the thread it is made on."""
TSD_UNREADABLE = Code("tsd-unreadable", Nature.UNREAD)
TSD_WRONG = Code("tsd-wrong", Nature.DAMAGE)
TSD_LIST_BROKEN = Code("tsd-list-broken", Nature.DAMAGE)
TSD_UNOWNED = Code("tsd-unowned", Nature.DAMAGE)
TSD_UNLISTED = Code("tsd-unlisted", Nature.DAMAGE)

BACKGROUND_UNREADABLE = Code("background-unreadable", Nature.UNREAD)
STATISTICS_UNREADABLE = Code("statistics-unreadable", Nature.UNREAD)
PROFILE_UNREADABLE = Code("profile-unreadable", Nature.UNREAD)
PROFILE_DAMAGED = Code("profile-damaged", Nature.DAMAGE)

# ---- what `check` alone looks for
ACTIVE_PAGES = Code("active-pages-mismatch", Nature.DAMAGE)
"""An arena's own counter is not what its extents add up to; so the next three."""
DIRTY_PAGES = Code("dirty-pages-mismatch", Nature.DAMAGE)
MUZZY_PAGES = Code("muzzy-pages-mismatch", Nature.DAMAGE)
RETAINED_PAGES = Code("retained-pages-mismatch", Nature.DAMAGE)
BIN_REGIONS = Code("bin-regions-mismatch", Nature.DAMAGE)
"""curregs of a bin is not what its slabs' bitmaps add up to."""
BIN_SLABS = Code("bin-slabs-mismatch", Nature.DAMAGE)
BIN_REQUESTS = Code("bin-requests-mismatch", Nature.DAMAGE)
"""nmalloc less ndalloc is not curregs."""
BIN_SLAB_WRONG = Code("bin-slab-wrong", Nature.DAMAGE)
"""slabcur, or the first slab with a free region, leads to what is no slab of that bin."""
BIN_NONFULL = Code("bin-nonfull-mismatch", Nature.DAMAGE)
"""nonfull_slabs of a bin is not the number of slabs in its heap."""
LEAF = Code("leaf-mismatch", Nature.DAMAGE)
"""A leaf element of the radix tree says another size class, slab bit or state than the extent: free() believes the leaf."""
SLAB_PAGES = Code("slab-pages", Nature.DAMAGE)
"""Not every page of a slab has a leaf element that names it."""
SLAB_SHARD = Code("slab-shard", Nature.DAMAGE)
SLAB_BITMAP_REST = Code("slab-bitmap-rest", Nature.DAMAGE)
"""The bitmap has free regions beyond the last one."""
HEAP_LINKS = Code("extent-heap-links", Nature.DAMAGE)
"""A pairing heap of extents, or of slabs with a free region: a link leads nowhere, or not back."""
HEAP_MEMBER = Code("extent-heap-member", Nature.DAMAGE)
"""It holds an extent that does not belong there."""
HEAP_PAGES = Code("extent-heap-pages", Nature.DAMAGE)
"""The extents in the heaps of a state are not the pages that are counted for it."""
HEAP_BITMAP = Code("extent-heap-bitmap", Nature.DAMAGE)
"""Which heaps hold something is not what the bitmap over them says."""
RING_LINKS = Code("extent-list-links", Nature.DAMAGE)
"""The same of the rings that extents are in."""
RING_MEMBER = Code("extent-list-member", Nature.DAMAGE)
RING_MISCOUNTS = Code("extent-list-count", Nature.DAMAGE)
"""A ring of unused extents has another number of them than the heaps beside it."""
MAPPED_BYTES = Code("mapped-mismatch", Nature.DAMAGE)
"""The bytes that an arena counts as mapped are not those of its active, dirty and muzzy extents."""
RTREE_CACHE = Code("thread-rtree-cache", Nature.DAMAGE)
"""What a thread remembers of the radix tree is not what the tree says."""
THREADS_MISCOUNTED = Code("nthreads-mismatch", Nature.DAMAGE)
BASE_MAPPED = Code("base-mapped-mismatch", Nature.DAMAGE)
CACHED_CLASS = Code("cached-wrong-class", Nature.DAMAGE)
"""A cache bin holds a block of another size class."""
