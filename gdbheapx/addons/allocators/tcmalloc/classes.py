"""The size classes that gperftools' tcmalloc makes where it is built as usual, with pages of 8 KiB (SizeMap::Init in common.cc)."""

from bisect import bisect_left
from functools import cache
from typing import Tuple

PAGE_BYTES = 8 << 10
MOST_BYTES = 256 << 10
"""Larger blocks are whole pages."""
MOVED_BYTES, MOVED_MOST = 64 << 10, 32
"""So much at once, and so many objects, go between a thread and the central list."""


def block_bytes(request_bytes: int) -> int:
    """The block for a request."""
    if request_bytes > MOST_BYTES:
        return -(-request_bytes // PAGE_BYTES) * PAGE_BYTES
    return classes()[bisect_left(classes(), request_bytes)]


@cache
def classes() -> Tuple[int, ...]:
    """In order. Sizes of which as many fit into a span of as many pages are one class."""
    made, before, size = [8], (1, PAGE_BYTES // 8), 16
    while size <= MOST_BYTES:
        pages = _pages(size)
        shape = pages, pages * PAGE_BYTES // size
        if shape == before:
            made.pop()
        made.append(size)
        before, size = shape, size + (16 if size < 128 else min(PAGE_BYTES, 1 << (size.bit_length() - 4)))
    return tuple(made)


def _pages(size_bytes: int) -> int:
    """Of a span: less than an eighth is left over, and a quarter of what is moved at once fits in."""
    pages, moved = 1, max(2, min(MOVED_MOST, MOVED_BYTES // size_bytes)) // 4
    while pages * PAGE_BYTES % size_bytes > pages * PAGE_BYTES >> 3 or pages * PAGE_BYTES // size_bytes < moved:
        pages += 1
    return pages
