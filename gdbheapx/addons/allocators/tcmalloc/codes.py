"""Codes of what can be wrong with a tcmalloc (gdbheapx/common/problems.py)."""

from gdbheapx.common.problems import ProblemCode, Severity

SPANS_CUT = ProblemCode("spans-incomplete", Severity.TIME)
ROOT_UNREADABLE = ProblemCode("page-map-unreadable", Severity.UNREAD)
LEAF_UNREADABLE = ProblemCode("page-map-leaf-unreadable", Severity.UNREAD)
LEAF_BROKEN = ProblemCode("page-map-leaf-broken", Severity.DAMAGE)
"""The root leads to one leaf from two places, or to no memory."""
SPAN_UNREADABLE = ProblemCode("span-unreadable", Severity.UNREAD)
SPAN_WRONG = ProblemCode("span-wrong", Severity.DAMAGE)
"""A length, a location or a size class that cannot be."""
SPAN_UNMAPPED = ProblemCode("span-not-mapped", Severity.DAMAGE)
CENTRAL_UNREADABLE = ProblemCode("central-lists-unreadable", Severity.UNREAD)
CENTRAL_WRONG = ProblemCode("central-list-wrong", Severity.DAMAGE)
"""A central list has another class than its place, or more batches than there is room for."""
CACHES_UNKNOWN = ProblemCode("thread-caches-unknown", Severity.UNREAD)
"""The list of thread caches was not found: objects in them count as used."""
TC_CACHE_UNREADABLE = ProblemCode("thread-caches-unreadable", Severity.UNREAD)
TC_CACHE_BROKEN = ProblemCode("thread-caches-broken", Severity.DAMAGE)
"""The list of thread caches leads to what is none, or comes back."""
FREE_LIST_UNREADABLE = ProblemCode("free-objects-unreadable", Severity.UNREAD)
FREE_LIST_BROKEN = ProblemCode("free-objects-broken", Severity.DAMAGE)
"""A link of a list of free objects points to something that is not an object, or the list does not end."""
FREED_TWICE = ProblemCode("free-object-twice", Severity.DAMAGE)
"""An object is on lists more than once."""
SAMPLE_UNREADABLE = ProblemCode("sampled-stack-unreadable", Severity.UNREAD)
LISTS_CHANGING = ProblemCode("free-lists-changing", Severity.MOMENT)
"""A thread stood in tcmalloc, and a list of free objects contradicts its counter, or another one."""

# ---- what tcmalloc counts
SPAN_COUNT = ProblemCode("span-count-mismatch", Severity.DAMAGE)
"""The objects that are out (refcount) and those on the span's list are not all of them."""
CENTRAL_COUNT = ProblemCode("central-count-mismatch", Severity.DAMAGE)
"""counter_ is not what the spans of the class have on their lists."""
CENTRAL_SPANS = ProblemCode("central-spans-mismatch", Severity.DAMAGE)
CACHE_COUNT = ProblemCode("thread-caches-count-mismatch", Severity.DAMAGE)
"""A list of a thread cache has another length than it says."""
BATCH_COUNT = ProblemCode("transfer-batch-mismatch", Severity.DAMAGE)
"""A batch of a transfer cache does not end where it says."""
LIST_CLASS = ProblemCode("free-objects-wrong-class", Severity.DAMAGE)
"""A list holds objects of another size class."""
HEAP_BYTES = ProblemCode("page-heap-mismatch", Severity.DAMAGE)
"""The page heap's own three figures are not what its spans add up to."""
