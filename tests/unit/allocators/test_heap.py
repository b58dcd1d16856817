"""What the registry says of allocators is what their heaps have.

Files: glibc/allocator.py.
"""

from gdbheapx import allocators
from gdbheapx.glibc import allocator as glibc
from gdbheapx.jemalloc import allocator as jemalloc


def test_statuses_are_those_of_the_blocks() -> None:
    """`chunks --status` takes every word that a listing may show, and no other."""
    known = allocators.by_name()
    for name, words in (("glibc", glibc.WORDS), ("jemalloc", jemalloc.WORDS)):
        assert set(known[name].statuses) == set(words)
