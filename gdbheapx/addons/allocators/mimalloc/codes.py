"""Codes of what can be wrong with a mimalloc (gdbheapx/common/problems.py)."""

from gdbheapx.common.problems import ProblemCode, Severity

MOST_TOLD = 100
"""Contradictions that are reported one by one; `check` has them all."""

PAGES_CUT = ProblemCode("pages-incomplete", Severity.TIME)
SEGMENT_WRONG = ProblemCode("segment-wrong", Severity.DAMAGE)
SEGMENT_UNREADABLE = ProblemCode("segment-unreadable", Severity.UNREAD)
SLICES_WRONG = ProblemCode("segment-slices", Severity.DAMAGE)
"""The slices of a segment do not add up to it."""
SEGMENT_PAGES = ProblemCode("segment-pages", Severity.DAMAGE)
"""A segment counts other pages than it has."""
PAGE_WRONG = ProblemCode("page-wrong", Severity.DAMAGE)
"""A size, counts or lists of a page that cannot be."""
PAGE_UNREADABLE = ProblemCode("page-unreadable", Severity.UNREAD)
PAGES_OVERLAP = ProblemCode("pages-overlap", Severity.DAMAGE)
PAGE_UNMAPPED = ProblemCode("page-not-mapped", Severity.DAMAGE)
HEAP_UNREADABLE = ProblemCode("thread-heap-unreadable", Severity.UNREAD)
HEAP_PAGES = ProblemCode("thread-heap-pages", Severity.DAMAGE)
"""The heap of a thread counts other pages than lead to it: a segment, or a part of the page map, is lost."""
MAP_WRONG = ProblemCode("page-map-wrong", Severity.DAMAGE)
ARENA_WRONG = ProblemCode("mimalloc-arena-wrong", Severity.DAMAGE)
ARENA_SLICES = ProblemCode("arena-slices", Severity.DAMAGE)
"""A slice of a page is marked as free in its arena."""
LIST_STRAY = ProblemCode("free-list-stray", Severity.DAMAGE)
"""A free list leads to what is no block of its page."""
LIST_RING = ProblemCode("free-list-ring", Severity.DAMAGE)
LIST_UNREADABLE = ProblemCode("free-list-unreadable", Severity.UNREAD)
LIST_TWICE = ProblemCode("free-block-twice", Severity.DAMAGE)
"""A block is on two lists: it was freed twice."""
USED_WRONG = ProblemCode("page-used-mismatch", Severity.DAMAGE)
"""Blocks in use and on lists are not those that were handed out."""
PAGE_CHANGING = ProblemCode("page-changing", Severity.MOMENT)
"""Reported instead where a thread is in mimalloc's code."""
