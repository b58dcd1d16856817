"""Codes of what can be wrong with a jemalloc (gdbheapx/common/problems.py)."""

from gdbheapx.common.problems import ProblemCode, Severity

LAYOUT_UNKNOWN = ProblemCode("layout-unknown", Severity.UNREAD)
"""No layout is this build's: its extents are read, its counters, threads and caches are not."""
ARENAS_UNREADABLE = ProblemCode("arenas-unreadable", Severity.UNREAD)
NARENAS_WRONG = ProblemCode("narenas-wrong", Severity.DAMAGE)
ARENA_UNREADABLE = ProblemCode("arena-unreadable", Severity.UNREAD)
ARENA_WRONG = ProblemCode("arena-wrong", Severity.DAMAGE)
"""arenas[i] points to something that is not an arena, or to another one."""
ARENA_MISSING = ProblemCode("arena-missing", Severity.DAMAGE)
"""Extents belong to an arena that arenas[] does not have."""
BASE_UNREADABLE = ProblemCode("base-unreadable", Severity.UNREAD)
BASE_BROKEN = ProblemCode("base-broken", Severity.DAMAGE)

HUGE_PAGES_UNREAD = ProblemCode("huge-pages-unread", Severity.UNREAD)
"""An arena counts more dirty pages in huge pages (HPA) than its lists of these lead to."""
HUGE_PAGES_CUT = ProblemCode("huge-pages-incomplete", Severity.TIME)
HUGE_PAGE_WRONG = ProblemCode("huge-page-wrong", Severity.DAMAGE)
"""A list of huge pages leads to what is none; the lists after it are missing."""

EXTENTS_CUT = ProblemCode("extents-incomplete", Severity.TIME)
NODE_UNREADABLE = ProblemCode("rtree-node-unreadable", Severity.UNREAD)
NODE_HOLE = ProblemCode("rtree-node-hole", Severity.UNREAD)
NODE_TWICE = ProblemCode("rtree-node-twice", Severity.DAMAGE)
NODE_MISALIGNED = ProblemCode("rtree-node-misaligned", Severity.DAMAGE)
TOO_MANY_NODES = ProblemCode("rtree-too-many-nodes", Severity.DAMAGE)
EXTENT_UNREADABLE = ProblemCode("extent-unreadable", Severity.UNREAD)
EXTENT_SIZE = ProblemCode("extent-size", Severity.DAMAGE)
EXTENT_STALE = ProblemCode("extent-stale", Severity.DAMAGE)
"""The extent that the radix tree names for a page does not contain it."""
EXTENT_FIRST_PAGE = ProblemCode("extent-first-page", Severity.DAMAGE)
EXTENT_LAST_PAGE = ProblemCode("extent-last-page", Severity.DAMAGE)
EXTENT_OVERLAP = ProblemCode("extent-overlap", Severity.DAMAGE)
EXTENT_ARENA = ProblemCode("extent-arena", Severity.DAMAGE)
EXTENT_STATE = ProblemCode("extent-state", Severity.DAMAGE)
EXTENT_SZIND = ProblemCode("extent-szind", Severity.DAMAGE)
SLAB_SIZE = ProblemCode("slab-size", Severity.DAMAGE)
SLAB_BITMAP = ProblemCode("slab-bitmap", Severity.DAMAGE)

CACHED_OUTSIDE = ProblemCode("cached-outside", Severity.DAMAGE)
"""A thread cache holds an address in no active extent; the next four likewise."""
CACHED_NOT_START = ProblemCode("cached-not-start", Severity.DAMAGE)
CACHED_FREE = ProblemCode("cached-free", Severity.DAMAGE)
CACHED_TWICE = ProblemCode("cached-twice", Severity.DAMAGE)
CACHED_UNKNOWN = ProblemCode("cached-unknown", Severity.DAMAGE)

CACHE_UNREADABLE = ProblemCode("thread-cache-unreadable", Severity.UNREAD)
CACHE_BIN_WRONG = ProblemCode("thread-cache-bin-wrong", Severity.DAMAGE)
CACHE_LIST_UNREADABLE = ProblemCode("thread-cache-list-unreadable", Severity.UNREAD)
CACHE_LIST_BROKEN = ProblemCode("thread-cache-list-broken", Severity.DAMAGE)
CACHE_UNLISTED = ProblemCode("thread-cache-unlisted", Severity.DAMAGE)
CACHE_UNOWNED = ProblemCode("thread-cache-unowned", Severity.DAMAGE)

TSD_UNKNOWN = ProblemCode("tsd-unknown", Severity.UNREAD)
TICKER_UNTOLD = ProblemCode("ticker-untold", Severity.UNREAD)
"""A thread may be blind or just creating its tickers: the file with the code that would show it is not at hand."""
TSDS_FROM_LISTS = ProblemCode("tsds-from-lists", Severity.UNREAD)
"""Without thread-local storage only jemalloc's own lists lead to tsds: a call needs to know that of the thread it is made on."""
TSD_UNREADABLE = ProblemCode("tsd-unreadable", Severity.UNREAD)
TSD_WRONG = ProblemCode("tsd-wrong", Severity.DAMAGE)
TSD_LIST_BROKEN = ProblemCode("tsd-list-broken", Severity.DAMAGE)
TSD_UNOWNED = ProblemCode("tsd-unowned", Severity.DAMAGE)
TSD_UNLISTED = ProblemCode("tsd-unlisted", Severity.DAMAGE)

BACKGROUND_UNREADABLE = ProblemCode("background-unreadable", Severity.UNREAD)
STATISTICS_UNREADABLE = ProblemCode("statistics-unreadable", Severity.UNREAD)
PROFILE_UNREADABLE = ProblemCode("profile-unreadable", Severity.UNREAD)
PROFILE_DAMAGED = ProblemCode("profile-damaged", Severity.DAMAGE)

# ---- what `check` alone looks for
ACTIVE_PAGES = ProblemCode("active-pages-mismatch", Severity.DAMAGE)
"""An arena's own counter is not what its extents add up to; so the next three."""
DIRTY_PAGES = ProblemCode("dirty-pages-mismatch", Severity.DAMAGE)
MUZZY_PAGES = ProblemCode("muzzy-pages-mismatch", Severity.DAMAGE)
PINNED_PAGES = ProblemCode("pinned-pages-mismatch", Severity.DAMAGE)
RETAINED_PAGES = ProblemCode("retained-pages-mismatch", Severity.DAMAGE)
BIN_REGIONS = ProblemCode("bin-regions-mismatch", Severity.DAMAGE)
"""curregs of a bin is not what its slabs' bitmaps add up to."""
BIN_SLABS = ProblemCode("bin-slabs-mismatch", Severity.DAMAGE)
BIN_REQUESTS = ProblemCode("bin-requests-mismatch", Severity.DAMAGE)
"""nmalloc less ndalloc is not curregs."""
BIN_SLAB_WRONG = ProblemCode("bin-slab-wrong", Severity.DAMAGE)
"""slabcur, or the first slab with a free region, leads to what is no slab of that bin."""
BIN_NONFULL = ProblemCode("bin-nonfull-mismatch", Severity.DAMAGE)
"""nonfull_slabs of a bin is not the number of slabs in its heap."""
LEAF = ProblemCode("leaf-mismatch", Severity.DAMAGE)
"""A leaf element of the radix tree says another size class, slab bit or state than the extent: free() believes the leaf."""
SLAB_PAGES = ProblemCode("slab-pages", Severity.DAMAGE)
"""Not every page of a slab has a leaf element that names it."""
SLAB_SHARD = ProblemCode("slab-shard", Severity.DAMAGE)
SLAB_BITMAP_REST = ProblemCode("slab-bitmap-rest", Severity.DAMAGE)
"""The bitmap has free regions beyond the last one."""
HEAP_LINKS = ProblemCode("extent-heap-links", Severity.DAMAGE)
"""A pairing heap of extents, or of slabs with a free region: a link leads nowhere, or not back."""
HEAP_MEMBER = ProblemCode("extent-heap-member", Severity.DAMAGE)
"""It holds an extent that does not belong there."""
HEAP_PAGES = ProblemCode("extent-heap-pages", Severity.DAMAGE)
"""The extents in the heaps of a state are not the pages that are counted for it."""
HEAP_BITMAP = ProblemCode("extent-heap-bitmap", Severity.DAMAGE)
"""Which heaps hold something is not what the bitmap over them says."""
RING_LINKS = ProblemCode("extent-list-links", Severity.DAMAGE)
"""The same of the rings that extents are in."""
RING_MEMBER = ProblemCode("extent-list-member", Severity.DAMAGE)
RING_MISCOUNTS = ProblemCode("extent-list-count", Severity.DAMAGE)
"""A ring of unused extents has another number of them than the heaps of the same state."""
MAPPED_BYTES = ProblemCode("mapped-mismatch", Severity.DAMAGE)
"""The bytes that an arena counts as mapped are not those of its active, dirty and muzzy extents."""
RTREE_CACHE = ProblemCode("thread-rtree-cache", Severity.DAMAGE)
"""What a thread remembers of the radix tree is not what the tree says."""
THREADS_MISCOUNTED = ProblemCode("nthreads-mismatch", Severity.DAMAGE)
BASE_MAPPED = ProblemCode("base-mapped-mismatch", Severity.DAMAGE)
CACHED_CLASS = ProblemCode("cached-wrong-class", Severity.DAMAGE)
"""A cache bin holds a block of another size class."""
