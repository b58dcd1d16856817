"""Chunks that look used in memory and are not: members of thread caches and fastbins, and the thread caches' own structs."""

from array import array
from bisect import bisect_left
from typing import Dict, List, NamedTuple, Sequence

from gdbheapx.glibc.arenas import Report
from gdbheapx.glibc.bins import FastList
from gdbheapx.glibc.detect import Glibc
from gdbheapx.glibc.tcache import Caches
from gdbheapx.kernel.api import SPECIAL_FAST, SPECIAL_TCACHE, SPECIAL_TCACHE_STRUCT

KIND_BITS = 7


class Specials(NamedTuple):
    """All special chunks of one glibc, as the kernel takes them."""

    chunks: Sequence[int]
    """array('Q') of chunk | SPECIAL_x, sorted, each chunk once."""

    def between(self, low: int, high: int) -> Sequence[int]:
        """array('Q') of the chunk addresses in [low, high)."""
        part = self.chunks[bisect_left(self.chunks, low) : bisect_left(self.chunks, high)]
        return array("Q", [item & ~KIND_BITS for item in part])


def gather(glibc: Glibc, caches: Caches, fast: Dict[int, List[FastList]], report: Report) -> Specials:
    """The special chunks, sorted; a chunk that stands on two lists (a double free) is reported and kept once."""
    header = 2 * glibc.geometry.word_bytes
    found = array("Q")
    for lists in fast.values():
        for item in lists:
            found.extend(chunk | SPECIAL_FAST for chunk in item.members)
    for cache in caches.caches:
        if cache.address:
            found.append(cache.address - header | SPECIAL_TCACHE_STRUCT)
        for cached in cache.lists:
            found.extend(mem - header | SPECIAL_TCACHE for mem in cached.members)
    kept = array("Q")
    previous = 0
    for special in sorted(found):
        if special & ~KIND_BITS == previous & ~KIND_BITS and previous:
            report(special & ~KIND_BITS, "chunk stands on two free lists (freed twice, or a list is damaged)", None)
        else:
            kept.append(special)
        previous = special
    return Specials(kept)
