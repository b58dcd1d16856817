"""Codes of what can be wrong with a mimalloc (gdbheapx/problems.py)."""

from gdbheapx.problems import Code, Severity

MOST_TOLD = 100
"""Contradictions that are reported one by one; `check` has them all."""

PAGES_CUT = Code("pages-incomplete", Severity.TIME)
SEGMENT_WRONG = Code("segment-wrong", Severity.DAMAGE)
SEGMENT_UNREADABLE = Code("segment-unreadable", Severity.UNREAD)
SLICES_WRONG = Code("segment-slices", Severity.DAMAGE)
"""The slices of a segment do not add up to it."""
SEGMENT_PAGES = Code("segment-pages", Severity.DAMAGE)
"""A segment counts other pages than it has."""
PAGE_WRONG = Code("page-wrong", Severity.DAMAGE)
"""A size, counts or lists of a page that cannot be."""
PAGE_UNREADABLE = Code("page-unreadable", Severity.UNREAD)
PAGES_OVERLAP = Code("pages-overlap", Severity.DAMAGE)
PAGE_UNMAPPED = Code("page-not-mapped", Severity.DAMAGE)
HEAP_UNREADABLE = Code("thread-heap-unreadable", Severity.UNREAD)
HEAP_PAGES = Code("thread-heap-pages", Severity.DAMAGE)
"""The heap of a thread counts other pages than lead to it: a segment, or a part of the page map, is lost."""
MAP_WRONG = Code("page-map-wrong", Severity.DAMAGE)
ARENA_WRONG = Code("mimalloc-arena-wrong", Severity.DAMAGE)
ARENA_SLICES = Code("arena-slices", Severity.DAMAGE)
"""A slice of a page is marked as free in its arena."""
LIST_STRAY = Code("free-list-stray", Severity.DAMAGE)
"""A free list leads to what is no block of its page."""
LIST_RING = Code("free-list-ring", Severity.DAMAGE)
LIST_UNREADABLE = Code("free-list-unreadable", Severity.UNREAD)
LIST_TWICE = Code("free-block-twice", Severity.DAMAGE)
"""A block is on two lists: it was freed twice."""
USED_WRONG = Code("page-used-mismatch", Severity.DAMAGE)
"""Blocks in use and on lists are not those that were handed out."""
PAGE_CHANGING = Code("page-changing", Severity.MOMENT)
"""The same, where a thread stands in mimalloc's code."""
