"""What threads remember of the radix tree: rtree_ctx of each tsd."""

from typing import Dict

from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.check.findings import Findings
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection.calibrate import words
from gdbheapx.jemalloc.heap import locate
from gdbheapx.jemalloc.threads.tsd import Tsds

INVALID_KEY = 1
"""RTREE_LEAFKEY_INVALID."""
CACHES = ("cache", "l2_cache")


def tell_rtree_caches(context: Context, found: Findings, tsds: Tsds) -> None:
    """Each leaf node that a thread remembers is the one to which the tree leads for its key (rtree.h: rtree_leaf_elm_lookup)."""
    types, target, word = context.types, context.target, context.geometry.word_bytes
    if len(context.geometry.rtree.levels) < 2:
        return
    leaves: Dict[int, int] = {}
    for record in tsds.records:
        for name in CACHES:
            path = types.first("tsd_s", "rtree_ctx." + name)
            place = types.place("tsd_s", path) if path is not None else None
            if record.address is None or place is None or place.size_bytes != 2 * word or context.budget.expired():
                continue
            try:
                column = words(target, record.address + place.offset, 2 * place.count)
                for number, (key, leaf) in enumerate(zip(column[::2], column[1::2])):
                    if key == INVALID_KEY or not leaf:
                        continue
                    if key not in leaves:
                        leaves[key] = locate.leaf_of(context, key)
                    if leaves[key] != leaf:
                        where = record.address + place.offset + 2 * word * number
                        what = "a thread remembers the rtree node 0x%x for 0x%x, the tree has 0x%x" % (leaf, key, leaves[key])
                        found.add(codes.RTREE_CACHE, where, what)
            except Unreadable:
                continue
