"""Codes of what can be wrong with a tcmalloc (gdbheapx/problems.py)."""

from gdbheapx.problems import Code, Severity

SPANS_CUT = Code("spans-incomplete", Severity.TIME)
ROOT_UNREADABLE = Code("page-map-unreadable", Severity.UNREAD)
LEAF_UNREADABLE = Code("page-map-leaf-unreadable", Severity.UNREAD)
LEAF_BROKEN = Code("page-map-leaf-broken", Severity.DAMAGE)
"""The root leads to one leaf from two places, or to no memory."""
SPAN_UNREADABLE = Code("span-unreadable", Severity.UNREAD)
SPAN_WRONG = Code("span-wrong", Severity.DAMAGE)
"""A length, a location or a size class that cannot be."""
SPAN_UNMAPPED = Code("span-not-mapped", Severity.DAMAGE)
CENTRAL_UNREADABLE = Code("central-lists-unreadable", Severity.UNREAD)
CENTRAL_WRONG = Code("central-list-wrong", Severity.DAMAGE)
"""A central list has another class than its place, or more batches than there is room for."""
CACHES_UNKNOWN = Code("thread-caches-unknown", Severity.UNREAD)
"""The list of thread caches was not found: objects in them count as used."""
TC_CACHE_UNREADABLE = Code("thread-caches-unreadable", Severity.UNREAD)
TC_CACHE_BROKEN = Code("thread-caches-broken", Severity.DAMAGE)
"""The list of thread caches leads to what is none, or comes back."""
FREE_LIST_UNREADABLE = Code("free-objects-unreadable", Severity.UNREAD)
FREE_LIST_BROKEN = Code("free-objects-broken", Severity.DAMAGE)
"""A link of a list of free objects points to something that is not an object, or the list does not end."""
FREED_TWICE = Code("free-object-twice", Severity.DAMAGE)
"""An object is on lists more than once."""
SAMPLE_UNREADABLE = Code("sampled-stack-unreadable", Severity.UNREAD)
LISTS_CHANGING = Code("free-lists-changing", Severity.MOMENT)
"""A thread stood in tcmalloc, and a list of free objects contradicts its counter, or another one."""

# ---- what tcmalloc counts
SPAN_COUNT = Code("span-count-mismatch", Severity.DAMAGE)
"""The objects that are out (refcount) and those on the span's list are not all of them."""
CENTRAL_COUNT = Code("central-count-mismatch", Severity.DAMAGE)
"""counter_ is not what the spans of the class have on their lists."""
CENTRAL_SPANS = Code("central-spans-mismatch", Severity.DAMAGE)
CACHE_COUNT = Code("thread-caches-count-mismatch", Severity.DAMAGE)
"""A list of a thread cache has another length than it says."""
BATCH_COUNT = Code("transfer-batch-mismatch", Severity.DAMAGE)
"""A batch of a transfer cache does not end where it says."""
LIST_CLASS = Code("free-objects-wrong-class", Severity.DAMAGE)
"""A list holds objects of another size class."""
HEAP_BYTES = Code("page-heap-mismatch", Severity.DAMAGE)
"""The page heap's own three figures are not what its spans add up to."""
