"""Chunks that look used in memory and are not: members of thread caches and fastbins, and the thread caches' own structs."""

from array import array
from bisect import bisect_left
from typing import Dict, FrozenSet, List, NamedTuple, Sequence, Set

from gdbheapx.glibc.arenas import Report
from gdbheapx.glibc.bins import FastList
from gdbheapx.glibc.detect import Glibc
from gdbheapx.glibc.tcache import Caches
from gdbheapx.kernel.api import SPECIAL_FAST, SPECIAL_TCACHE, SPECIAL_TCACHE_STRUCT
from gdbheapx.target.base import Target

KIND_BITS = 7
IS_MMAPPED = 2


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


def _is_mapped(target: Target, glibc: Glibc, mem: int) -> bool:
    """The chunk has a mapping of its own. Since 2.43 such chunks go into the tcache too, if they are small enough for it."""
    field = target.read_prefix(mem - glibc.geometry.word_bytes, glibc.geometry.word_bytes)
    return bool(int.from_bytes(field, "little" if glibc.geometry.little_endian else "big") & IS_MMAPPED)


def gather(target: Target, glibc: Glibc, caches: Caches, fast: Dict[int, List[FastList]], report: Report) -> Specials:
    """The special chunks, sorted; a chunk that stands on two lists (a double free) is reported and kept once."""
    header = 2 * glibc.geometry.word_bytes
    found = array("Q")
    mapped: Set[int] = set()
    for lists in fast.values():
        for item in lists:
            found.extend(chunk | SPECIAL_FAST for chunk in item.members)
    for cache in caches.caches:
        if cache.address:
            found.append(cache.address - header | SPECIAL_TCACHE_STRUCT)
        for cached in cache.lists:
            members = cached.members
            if glibc.traits.mmapped_trailer and cached.size_bytes is None:
                apart = {mem for mem in members if _is_mapped(target, glibc, mem)}
                mapped.update(mem - header for mem in apart)
                members = [mem for mem in members if mem not in apart]
            found.extend(mem - header | SPECIAL_TCACHE for mem in members)
    kept = array("Q")
    previous = 0
    for special in sorted(found):
        if special & ~KIND_BITS == previous & ~KIND_BITS and previous:
            report(special & ~KIND_BITS, "chunk stands on two free lists (freed twice, or a list is damaged)", None)
        else:
            kept.append(special)
        previous = special
    return Specials(kept, frozenset(mapped))
