"""Codes of what can be wrong with a jemalloc (gdbheapx/problems.py)."""

from gdbheapx.problems import Code, Severity

LAYOUT_UNKNOWN = Code("layout-unknown", Severity.UNREAD)
"""No layout is this build's: its extents are read, its counters, threads and caches are not."""
ARENAS_UNREADABLE = Code("arenas-unreadable", Severity.UNREAD)
NARENAS_WRONG = Code("narenas-wrong", Severity.DAMAGE)
ARENA_UNREADABLE = Code("arena-unreadable", Severity.UNREAD)
ARENA_WRONG = Code("arena-wrong", Severity.DAMAGE)
"""arenas[i] points to something that is not an arena, or to another one."""
ARENA_MISSING = Code("arena-missing", Severity.DAMAGE)
"""Extents belong to an arena that arenas[] does not have."""
BASE_UNREADABLE = Code("base-unreadable", Severity.UNREAD)
BASE_BROKEN = Code("base-broken", Severity.DAMAGE)

HUGE_PAGES_UNREAD = Code("huge-pages-unread", Severity.UNREAD)
"""An arena counts more dirty pages in huge pages (HPA) than its lists of these lead to."""
HUGE_PAGES_CUT = Code("huge-pages-incomplete", Severity.TIME)
HUGE_PAGE_WRONG = Code("huge-page-wrong", Severity.DAMAGE)
"""A list of huge pages leads to what is none; the lists after it are missing."""

EXTENTS_CUT = Code("extents-incomplete", Severity.TIME)
NODE_UNREADABLE = Code("rtree-node-unreadable", Severity.UNREAD)
NODE_HOLE = Code("rtree-node-hole", Severity.UNREAD)
NODE_TWICE = Code("rtree-node-twice", Severity.DAMAGE)
NODE_MISALIGNED = Code("rtree-node-misaligned", Severity.DAMAGE)
TOO_MANY_NODES = Code("rtree-too-many-nodes", Severity.DAMAGE)
EXTENT_UNREADABLE = Code("extent-unreadable", Severity.UNREAD)
EXTENT_SIZE = Code("extent-size", Severity.DAMAGE)
EXTENT_STALE = Code("extent-stale", Severity.DAMAGE)
"""The extent that the radix tree names for a page does not contain it."""
EXTENT_FIRST_PAGE = Code("extent-first-page", Severity.DAMAGE)
EXTENT_LAST_PAGE = Code("extent-last-page", Severity.DAMAGE)
EXTENT_OVERLAP = Code("extent-overlap", Severity.DAMAGE)
EXTENT_ARENA = Code("extent-arena", Severity.DAMAGE)
EXTENT_STATE = Code("extent-state", Severity.DAMAGE)
EXTENT_SZIND = Code("extent-szind", Severity.DAMAGE)
SLAB_SIZE = Code("slab-size", Severity.DAMAGE)
SLAB_BITMAP = Code("slab-bitmap", Severity.DAMAGE)

CACHED_OUTSIDE = Code("cached-outside", Severity.DAMAGE)
"""A thread cache holds an address in no active extent; the next four likewise."""
CACHED_NOT_START = Code("cached-not-start", Severity.DAMAGE)
CACHED_FREE = Code("cached-free", Severity.DAMAGE)
CACHED_TWICE = Code("cached-twice", Severity.DAMAGE)
CACHED_UNKNOWN = Code("cached-unknown", Severity.DAMAGE)

CACHE_UNREADABLE = Code("thread-cache-unreadable", Severity.UNREAD)
CACHE_BIN_WRONG = Code("thread-cache-bin-wrong", Severity.DAMAGE)
CACHE_LIST_UNREADABLE = Code("thread-cache-list-unreadable", Severity.UNREAD)
CACHE_LIST_BROKEN = Code("thread-cache-list-broken", Severity.DAMAGE)
CACHE_UNLISTED = Code("thread-cache-unlisted", Severity.DAMAGE)
CACHE_UNOWNED = Code("thread-cache-unowned", Severity.DAMAGE)

TSD_UNKNOWN = Code("tsd-unknown", Severity.UNREAD)
TICKER_UNTOLD = Code("ticker-untold", Severity.UNREAD)
"""A thread may be blind or just creating its tickers: the code that tells is in a file that is not at hand."""
TSDS_FROM_LISTS = Code("tsds-from-lists", Severity.UNREAD)
"""Without thread-local storage only jemalloc's own lists lead to tsds: a call needs to know that of the thread it is made on."""
TSD_UNREADABLE = Code("tsd-unreadable", Severity.UNREAD)
TSD_WRONG = Code("tsd-wrong", Severity.DAMAGE)
TSD_LIST_BROKEN = Code("tsd-list-broken", Severity.DAMAGE)
TSD_UNOWNED = Code("tsd-unowned", Severity.DAMAGE)
TSD_UNLISTED = Code("tsd-unlisted", Severity.DAMAGE)

BACKGROUND_UNREADABLE = Code("background-unreadable", Severity.UNREAD)
STATISTICS_UNREADABLE = Code("statistics-unreadable", Severity.UNREAD)
PROFILE_UNREADABLE = Code("profile-unreadable", Severity.UNREAD)
PROFILE_DAMAGED = Code("profile-damaged", Severity.DAMAGE)

# ---- what `check` alone looks for
ACTIVE_PAGES = Code("active-pages-mismatch", Severity.DAMAGE)
"""An arena's own counter is not what its extents add up to; so the next three."""
DIRTY_PAGES = Code("dirty-pages-mismatch", Severity.DAMAGE)
MUZZY_PAGES = Code("muzzy-pages-mismatch", Severity.DAMAGE)
PINNED_PAGES = Code("pinned-pages-mismatch", Severity.DAMAGE)
RETAINED_PAGES = Code("retained-pages-mismatch", Severity.DAMAGE)
BIN_REGIONS = Code("bin-regions-mismatch", Severity.DAMAGE)
"""curregs of a bin is not what its slabs' bitmaps add up to."""
BIN_SLABS = Code("bin-slabs-mismatch", Severity.DAMAGE)
BIN_REQUESTS = Code("bin-requests-mismatch", Severity.DAMAGE)
"""nmalloc less ndalloc is not curregs."""
BIN_SLAB_WRONG = Code("bin-slab-wrong", Severity.DAMAGE)
"""slabcur, or the first slab with a free region, leads to what is no slab of that bin."""
BIN_NONFULL = Code("bin-nonfull-mismatch", Severity.DAMAGE)
"""nonfull_slabs of a bin is not the number of slabs in its heap."""
LEAF = Code("leaf-mismatch", Severity.DAMAGE)
"""A leaf element of the radix tree says another size class, slab bit or state than the extent: free() believes the leaf."""
SLAB_PAGES = Code("slab-pages", Severity.DAMAGE)
"""Not every page of a slab has a leaf element that names it."""
SLAB_SHARD = Code("slab-shard", Severity.DAMAGE)
SLAB_BITMAP_REST = Code("slab-bitmap-rest", Severity.DAMAGE)
"""The bitmap has free regions beyond the last one."""
HEAP_LINKS = Code("extent-heap-links", Severity.DAMAGE)
"""A pairing heap of extents, or of slabs with a free region: a link leads nowhere, or not back."""
HEAP_MEMBER = Code("extent-heap-member", Severity.DAMAGE)
"""It holds an extent that does not belong there."""
HEAP_PAGES = Code("extent-heap-pages", Severity.DAMAGE)
"""The extents in the heaps of a state are not the pages that are counted for it."""
HEAP_BITMAP = Code("extent-heap-bitmap", Severity.DAMAGE)
"""Which heaps hold something is not what the bitmap over them says."""
RING_LINKS = Code("extent-list-links", Severity.DAMAGE)
"""The same of the rings that extents are in."""
RING_MEMBER = Code("extent-list-member", Severity.DAMAGE)
RING_MISCOUNTS = Code("extent-list-count", Severity.DAMAGE)
"""A ring of unused extents has another number of them than the heaps beside it."""
MAPPED_BYTES = Code("mapped-mismatch", Severity.DAMAGE)
"""The bytes that an arena counts as mapped are not those of its active, dirty and muzzy extents."""
RTREE_CACHE = Code("thread-rtree-cache", Severity.DAMAGE)
"""What a thread remembers of the radix tree is not what the tree says."""
THREADS_MISCOUNTED = Code("nthreads-mismatch", Severity.DAMAGE)
BASE_MAPPED = Code("base-mapped-mismatch", Severity.DAMAGE)
CACHED_CLASS = Code("cached-wrong-class", Severity.DAMAGE)
"""A cache bin holds a block of another size class."""
