"""tcache_perthread_struct itself, and what is known of one thread's (malloc.c: tcache_init)."""

from array import array
from typing import NamedTuple, Optional, Sequence

from gdbheapx.errors import Unreadable
from gdbheapx.glibc.context import Context
from gdbheapx.glibc.layouts import TCACHE
from gdbheapx.inferior.base import Thread
from gdbheapx.layout.view import View, read_view


class Cache(NamedTuple):
    """One thread's cache."""

    thread: Thread
    address: Optional[int]
    """Its tcache_perthread_struct; None if the thread has none (it never used malloc, or this build has no tcache) or it is not known."""
    arena: Optional[int]
    """thread_arena: address of a malloc_state; 0 if the thread is attached to none; None if it is not known."""
    first: Optional[int]
    """Number of the first of its lists among those asked for, one for each bin; None if it has none, or they are not known."""
    known: bool
    """It was read, or it is certain that the thread has none."""


class Trouble(NamedTuple):
    """Why one thread's cache is not known."""

    where: Optional[int]
    why: str
    """In words, to stand behind `thread N: `."""
    surely: bool
    """The thread has, or had, one: something stands where its address should."""


def read_struct(context: Context, address: int) -> Optional[View]:
    """The struct at `address`; None if it cannot be read. Only for builds that have thread caches."""
    assert context.glibc.tcache is not None
    try:
        return read_view(context.target, context.glibc.types, TCACHE.name, address)
    except Unreadable:
        return None


MOST_BEYOND = 4
"""So many times MINSIZE a chunk may be larger than the struct that stands in it."""


def is_chunk(context: Context, record: View) -> bool:
    """The struct is a block of malloc's own: its chunk has the size of one, or some more, which was not split off (malloc.c: tcache_init;
    _int_memalign, which 2.43 takes it from, leaves MINSIZE and more)."""
    geometry = context.glibc.geometry
    try:
        size = context.target.read_word(record.address - geometry.word_bytes) & ~7
    except Unreadable:
        return False
    least = -(-(record.size_bytes + geometry.word_bytes) // geometry.alignment_bytes) * geometry.alignment_bytes
    return record.address % geometry.alignment_bytes == 0 and least <= size <= least + MOST_BEYOND * geometry.min_chunk_bytes


def count_limit(context: Context) -> Optional[int]:
    """mp_.tcache_count, from which num_slots counts down (2.42); None where it is not needed or cannot be read."""
    if context.glibc.tcache is None or "num_slots" not in context.glibc.tcache.members:
        return None
    try:
        return context.glibc.read_mp(context.target)["tcache_count"]
    except Unreadable:
        return None


def counts(record: View, limit: Optional[int]) -> Sequence[int]:
    """Number of chunks in each bin as the struct says; since 2.42 num_slots counts down from `limit`. Empty if it is not known."""
    found = array("Q")
    if record.has("counts"):
        found = record.numbers("counts")
    elif record.has("num_slots") and limit is not None:
        found = array("Q", [max(limit - left, 0) for left in record.numbers("num_slots")])
    return found
