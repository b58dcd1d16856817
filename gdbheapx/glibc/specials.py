"""Chunks that look used in memory and are not: members of thread caches and fastbins, and the thread caches' own structs."""

from array import array
from bisect import bisect_left
from typing import Callable, FrozenSet, NamedTuple, Optional, Sequence

from gdbheapx.glibc import codes
from gdbheapx.glibc.context import Context
from gdbheapx.glibc.tcache import Caches
from gdbheapx.kernel.glibc.list_records import Followed
from gdbheapx.kernel.glibc.records import SPECIAL_TCACHE_STRUCT
from gdbheapx.problems import Report

KIND_BITS = 7

MAX_REPORTED = 8
"""Chunks on two lists that are named; the rest is counted."""


class Specials(NamedTuple):
    """All special chunks of one glibc, as the kernel takes them."""

    chunks: Sequence[int]
    """array('Q') of chunk | SPECIAL_x, sorted, each chunk once."""
    mapped: FrozenSet[int]
    """Mapped chunks in thread caches: in no arena (2.43)."""

    def between(self, low: int, high: int) -> Sequence[int]:
        """array('Q') of the chunk addresses in [low, high)."""
        part = self.chunks[bisect_left(self.chunks, low) : bisect_left(self.chunks, high)]
        return array("Q", [item & ~KIND_BITS for item in part])


def gather(found: Followed, about: Callable[[int], Optional[Report]]) -> Specials:
    """The special chunks, sorted; a chunk that stands on two lists (a double free) is reported and kept once.

    `about`: whom to report what is wrong with a chunk; None where nobody wants to know.
    """
    told = [(chunk, report) for chunk in found.twice for report in [about(chunk)] if report is not None]
    for chunk, report in told[:MAX_REPORTED]:
        report(codes.LISTED_TWICE, chunk, "chunk is on two free lists (freed twice, or a list is damaged)", None)
    if len(told) > MAX_REPORTED:
        told[-1][1](codes.LISTED_TWICE, None, "%d more chunks are on two free lists" % (len(told) - MAX_REPORTED), None)
    return Specials(found.members, frozenset(found.mapped))


def own_chunks(context: Context, caches: Caches) -> Sequence[int]:
    """The thread caches' own structs, as specials; not what no chunk can be."""
    chunks = {cache.address - 2 * context.glibc.geometry.word_bytes for cache in caches.caches if cache.address and cache.known}
    return [chunk | SPECIAL_TCACHE_STRUCT for chunk in chunks if chunk > 0 and not chunk & KIND_BITS]
